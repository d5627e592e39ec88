/* ATTENTION_BWD by wgmma (wgmma.cuh), for bf16 and fp16 on Hopper and sequences of at most 512 rows: the formulas,
   roundings, draws and order of attention_bwd_whole.cu in other products. A block has a head of a sequence. It holds
   128 keys, 64 a warpgroup, and the queries stream past in stages of 64; where the sequence has more keys, the block
   passes over the queries again for the next ones.

   A warpgroup makes Sᵀ = k·qᵀ and dPᵀ = v·doᵀ of 32 queries from shared memory, and draws their dropout while these
   products run. Pᵀ and dSᵀ, rounded to T, are the next products' operands from registers: dv += Pᵀ·do, dk += dSᵀ·q.
   dSᵀ goes to shared memory too. Every second stage the two warpgroups meet, and each makes dq of one of the two
   stages, over the pass's keys. From one pass to the next dq is kept in shared memory, in fp32.

   With `once` sequences have at most 128 rows: one pass, and two blocks a multiprocessor, which hide each other's
   latency, in 128 registers. Else there is one block, and dv and dk are added to until the next Sᵀ is awaited, which
   takes registers for two sets of Pᵀ and dSᵀ: 244, and at 512 tokens 226 of 227 KiB of shared memory, which leave no
   room for do·o. Beside the counts of sass.tsv dq takes 177 instructions and 72 cycles of shared memory with `once`,
   else 76 and 62, for 64 queries and 16 keys. */
#include "kernels/cuda/attention_sums.cuh"

#include "kernels/cuda/wgmma.cuh"

#define GROUPS  2 /* warpgroups of a block */
#define THREADS (GROUPS * WGMMA_THREADS)
#define KEYS    (GROUPS * 64)
#define D       64 /* columns of a tile; narrower heads have zeros there */
#define STAGE   64 /* queries */

/* Shared memory, in elements from a place of wgmma_align on: k, v, dSᵀ of two stages, two stages of q and do; then
   log-sum-exp in base 2 and do·o of two stages' queries, and dq between passes, (stages, 4 warps, D / 8, lanes). */
#define V_AT      (KEYS * D)
#define DS_AT     (2 * KEYS * D)
#define STAGES_AT (DS_AT + 2 * KEYS * STAGE)
#define STATS_AT  (STAGES_AT + 4 * STAGE * D)

static size_t shared_bytes(int longest)
{
    size_t kept = longest > KEYS ? static_cast<size_t>((longest + STAGE - 1) / STAGE) * STAGE * D * sizeof(float) : 0;
    return WGMMA_ALIGN + STATS_AT * sizeof(uint16_t) + 2 * STAGE * sizeof(float2) + kept;
}

template <typename T, bool once> __device__ static inline void attention_keys(const Attention<T> &a)
{
    typedef AttentionTile<T, D> Tile; /* dSᵀ's too: a row per key, a column per query of a stage */
    typedef AttentionSums<T, D, THREADS> Sums;
    constexpr int N = 32, tiles = N / 16; /* N: queries at a time */
    static_assert(Tile::step == STAGE && sizeof(T) == 2, "wgmma's tiles");
    CUDA_SHARED_DYNAMIC(T, shared);
    T *k_tile = wgmma_align(shared), *v_tile = k_tile + V_AT, *ds_tile = k_tile + DS_AT, *stages = k_tile + STAGES_AT;
    float2 *stats = reinterpret_cast<float2 *>(k_tile + STATS_AT);
    float4 *dq_sums = reinterpret_cast<float4 *>(stats + 2 * STAGE);
    AttentionPlace p;
    if (!Tile::template begin_whole<THREADS>(a, &p)) return Sums::leave_none(a);

    int thread = static_cast<int>(threadIdx.x), lane = thread % CUDA_WARP, g = lane / 4, c = lane % 4;
    int warp = attention_warp(), group = warp / 4, head = static_cast<int>(blockIdx.y);
    int hidden = a.heads * a.head_dim, width = 3 * hidden;
    T *dq = a.to + head * a.head_dim, *dk = dq + hidden, *dv = dk + hidden;
    const T *q = a.qkv + int64_t{p.start} * width + head * a.head_dim;
    const T *dout = a.dout + int64_t{p.start} * hidden + head * a.head_dim;
    const T *o = a.o + int64_t{p.start} * hidden + head * a.head_dim;
    const float *lses = a.lse + int64_t{p.start} * a.heads + head;
    float *dots = a.dot + int64_t{head} * a.rows + p.start;
    auto copy_stage = [&](int i) {
        Tile::template copy_stage_aligned<THREADS>(stages, i, q, width, dout, hidden, p.length, a);
    };
    auto stats_of = [&](int row) {
        bool there = row < p.length;
        return make_float2(there ? lses[row * a.heads] * LOG2_E : INFINITY, there ? dots[row] : 0);
    };
    CUDA_ROLL
    for (int row = thread / 2; row < (p.length + 15) / 16 * 16; row += THREADS / 2) { /* whole warps */
        bool there = row < p.length;
        float dot = attention_row_dot<T, D>(a, dout + row * hidden, o + row * hidden, there);
        if (there && thread % 2 == 0) dots[row] = dot;
    }

    AttentionDropout<T> dropout(a, p);
    Sums sums;
    float to_log2 = a.scale * LOG2_E;
    uint64_t keys = wgmma_tile(k_tile + 64 * group * D), values = wgmma_tile(v_tile + 64 * group * D);
    CUDA_ROLL
    for (int pass = 0; pass < (once ? 1 : p.length); pass += KEYS) {
        int first = pass + 16 * warp, n_keys = min(p.length - pass, KEYS);           /* first: of the warp's keys */
        bool has_keys = 64 * group < n_keys, last = once || pass + KEYS >= p.length; /* last: dq is complete */
        float sum_k[D / 8][4] = {}, sum_v[D / 8][4] = {};
        auto wait_sums = [&]() {
            wgmma_wait<64>(sum_v[0]);
            wgmma_wait<64>(sum_k[0]);
        };
        __syncthreads(); /* the pass before has ended; the dots are here */
        Tile::template copy_aligned<KEYS, THREADS>(k_tile, q + hidden + pass * width, width, n_keys, a);
        Tile::template copy_aligned<KEYS, THREADS>(v_tile, q + 2 * hidden + pass * width, width, n_keys, a);
        copy_stage(0);
        copy_stage(1);
        if (thread < 2 * STAGE) stats[thread] = stats_of(thread);
        CUDA_ROLL
        for (int pair = 0; pair < (once ? 1 : p.length); pair += 2 * STAGE) {
            CUDA_ROLL
            for (int i = pair / STAGE; i < pair / STAGE + 2 && i * STAGE < p.length; i++) {
                if (i == 0)
                    copy_async_wait<1>();
                else
                    copy_async_wait<0>();
                wgmma_publish();
                __syncthreads(); /* stage i is here */
                T *stage = stages + (i & 1) * 2 * STAGE * D, *ds = ds_tile + (i & 1) * KEYS * STAGE;
                uint64_t queries = wgmma_tile(stage), douts = wgmma_tile(stage + STAGE * D);
                bool more = !once && i > 0 && (i + 1) * STAGE < p.length;
                float2 coming = {};
                auto copy_next = [&]() {
                    if (!more) return;
                    wgmma_meet<THREADS>(); /* stage i − 1 is no longer read */
                    copy_stage(i + 1);
                    if (thread < STAGE) coming = stats_of((i + 1) * STAGE + thread);
                };
                if (!has_keys)
                    copy_next();
                else
                    CUDA_UNROLL
                for (int part = 0; part < STAGE / N; part++) {
                    float x[tiles][2][4], dp[tiles][2][4];
                    typename AttentionDropout<T>::Turned draws[tiles] = {};
                    wgmma_fence();
                    wgmma_64xNx64<T, N>(x[0][0], keys, queries + part * tiles * WGMMA_BELOW);
                    wgmma_64xNx64<T, N>(dp[0][0], values, douts + part * tiles * WGMMA_BELOW);
                    wgmma_commit();
                    if (a.threshold) CUDA_UNROLL
                    for (int t = 0; t < tiles; t++)
                        draws[t] = dropout.tile_turned(i * (STAGE / 16) + part * tiles + t, first / 16);
                    wgmma_wait<N>(x[0][0]);
                    wgmma_wait<N>(dp[0][0]);
                    if (!once) wait_sums();
                    if (part == 0) copy_next();
                    uint32_t probs[tiles][4], ds_pairs[tiles][4]; /* rounded */
                    CUDA_UNROLL
                    for (int t = 0; t < tiles; t++) {
                        if (p.length - first < 16) attention_mask_rows(x[t], p.length - first);
                        const float4 *of =
                            reinterpret_cast<const float4 *>(stats + (i & 1) * STAGE + part * N + 16 * t) + c;
                        const float4 two[2] = {of[0], of[4]}; /* of queries 8·n + 2·c and the next */
                        CUDA_UNROLL
                        for (int j = 0; j < 8; j++) {
                            int n = j / 4, r = j % 4;
                            float lse = r % 2 ? two[n].z : two[n].x, dot = r % 2 ? two[n].w : two[n].y;
                            float prob = cuda_exp2(fmaf(x[t][n][r], to_log2, -lse));
                            bool dropped = dropout.drops(draws[t], n, r);
                            x[t][n][r] = dropped ? 0 : prob;
                            dp[t][n][r] = prob * ((dropped ? 0 : dp[t][n][r] * a.keep_scale) - dot);
                        }
                        int at = Tile::on(Tile::at(16 * warp + g, 2 * c), part * tiles + t);
                        CUDA_UNROLL
                        for (int j = 0; j < 4; j++) {
                            probs[t][j] = mma_pair<T>(x[t][j / 2][j % 2 * 2], x[t][j / 2][j % 2 * 2 + 1]);
                            ds_pairs[t][j] = mma_pair<T>(dp[t][j / 2][j % 2 * 2], dp[t][j / 2][j % 2 * 2 + 1]);
                            *reinterpret_cast<uint32_t *>(ds + (at ^ j / 2 * 8) + j % 2 * 8 * STAGE) = ds_pairs[t][j];
                        }
                    }
                    wgmma_fence<tiles>(sum_v[0], probs[0]);
                    wgmma_fence<tiles>(sum_k[0], ds_pairs[0]);
                    wgmma_64x64_turned<T, tiles>(sum_v[0], probs, douts + part * tiles * WGMMA_BELOW);
                    wgmma_64x64_turned<T, tiles>(sum_k[0], ds_pairs, queries + part * tiles * WGMMA_BELOW);
                    wgmma_commit();
                    if (once) wait_sums();
                }
                if (more && thread < STAGE) stats[((i + 1) & 1) * STAGE + thread] = coming;
            }

            if (!once) wait_sums();
            wgmma_publish();
            __syncthreads(); /* dS of two stages is here */
            int own = pair / STAGE + group, row = own * STAGE + 16 * (warp % 4);
            T *own_ds = ds_tile + group * KEYS * STAGE;
            float sum[D / 8][4] = {};
            float4 *kept = dq_sums + (own * 4 + warp % 4) * (D / 8) * CUDA_WARP + lane;
            if (own * STAGE < p.length) {
                if (!once && pass > 0) CUDA_UNROLL
                for (int j = 0; j < D / 8; j++) {
                    float4 y = kept[j * CUDA_WARP];
                    sum[j][0] = y.x, sum[j][1] = y.y, sum[j][2] = y.z, sum[j][3] = y.w;
                }
                wgmma_fence<0>(sum[0], nullptr);
                uint64_t scores = wgmma_tile(own_ds), all_keys = wgmma_tile(k_tile);
                wgmma_64x64x64_both_turned<T>(sum[0], scores, all_keys);
                wgmma_commit();
                wgmma_wait<64>(sum[0]);
                if (n_keys > 64) {
                    wgmma_fence<0>(sum[0], nullptr);
                    wgmma_64x64x64_both_turned<T>(sum[0], scores + 4 * WGMMA_BELOW, all_keys + 4 * WGMMA_BELOW);
                    wgmma_commit();
                    wgmma_wait<64>(sum[0]);
                }
                if (!last) CUDA_UNROLL
                for (int j = 0; j < D / 8; j++)
                    kept[j * CUDA_WARP] = make_float4(sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
            }
            if (!last) continue;
            __syncthreads(); /* dS is no longer read */
            const float factor[2] = {a.scale, a.scale};
            T *own_rows = own_ds + 16 * (warp % 4) * D;
            if (row >= p.length) continue;
            Tile::store(own_rows, sum, factor, dq + int64_t{p.start + row} * width, width, p.length - row, a);
            if (a.sums) sums.add_q(own_rows);
        }
        __syncthreads(); /* k and v are no longer read */
        if (first >= p.length) continue;
        const float factor_k[2] = {a.scale, a.scale}, factor_v[2] = {a.keep_scale, a.keep_scale};
        Tile::store(k_tile + 16 * warp * D, sum_k, factor_k, dk + int64_t{p.start + first} * width, width,
                    p.length - first, a);
        Tile::store(v_tile + 16 * warp * D, sum_v, factor_v, dv + int64_t{p.start + first} * width, width,
                    p.length - first, a);
        if (!a.sums) continue;
        sums.add_k(k_tile + 16 * warp * D);
        sums.add_v(v_tile + 16 * warp * D);
    }
    if (a.sums) sums.leave(a, reinterpret_cast<float *>(stages));
}

template <typename T, bool once>
__global__ void __launch_bounds__(THREADS, once ? 2 : 1) attention_bwd_wgmma_kernel(Attention<T> a)
{
    if constexpr (wgmma_there) {
        a.aligned = true; /* attention_is_native */
        attention_keys<T, once>(a);
    } else
        wgmma_absent();
}

/* ---- calls ---- */

template <typename T> static Status launch(const OpCall *call, const RowCounts *rows)
{
    int longest = call->attr.attention.longest;
    Attention<T> a = attention_bwd_of<T>(call, rows);
    dim3 grid = attention_sequences_grid(a);
    size_t shared = shared_bytes(longest);
    return longest <= KEYS ? CUDA_LAUNCH((attention_bwd_wgmma_kernel<T, true>), grid, THREADS, shared, a)
                           : CUDA_LAUNCH((attention_bwd_wgmma_kernel<T, false>), grid, THREADS, shared, a);
}

Status attention_bwd_wgmma(const OpCall *call, const RowCounts *rows)
{
    return IN(call, ATTENTION_BWD, qkv)->dtype == BF16 ? launch<__nv_bfloat16>(call, rows) : launch<__half>(call, rows);
}
