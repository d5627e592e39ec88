/* ATTENTION_BWD by tcgen05 (tcgen.cuh), for bf16 and fp16 on Blackwell and sequences of at most 512 rows: the formulas,
   roundings, draws and order of attention_bwd_whole.cu in other products. A block has a head of a sequence. It holds
   128 keys, each in a lane of tensor memory, and the queries stream past in stages of 64; where the sequence has more
   keys, the block passes over the queries again for the next ones.

   One thread starts Sᵀ = k·qᵀ and dPᵀ = v·doᵀ of a stage, from shared memory, and the others draw their dropout
   meanwhile. A key's row of Sᵀ and dPᵀ has two threads, for 32 queries each. Pᵀ and dSᵀ, rounded to T, overwrite Sᵀ and
   are the next products' operands there: dv += Pᵀ·do, dk += dSᵀ·q. dSᵀ goes to shared memory too, from where it comes
   turned as the operand of dq of two stages, 128 queries. All sums stay in tensor memory, dq from pass to pass. So a
   block has all 512 columns, or, where the sequence has one pass, 256, and then shares the multiprocessor. */
#include "kernels/cuda/attention_sums.cuh"
#include "kernels/cuda/attention_tcgen.cuh"

#define THREADS (2 * TCGEN_ROWS)
#define KEYS    TCGEN_ROWS
#define D       64  /* columns of a tile; narrower heads have zeros there */
#define STAGE   64  /* queries */
#define LONGEST 512 /* sequence: attention_native.cu */

/* Shared memory, in elements from a place of wgmma_align on: k, v, dSᵀ of two stages, two stages of q and do; then
   log-sum-exp in base 2 and do·o of the queries; and of each thread the sums of dk and dv for db, from pass to pass,
   which would take registers from the loop over the queries. */
#define V_AT      (KEYS * D)
#define DS_AT     (2 * KEYS * D)
#define STAGES_AT (DS_AT + 2 * KEYS * STAGE)
#define STATS_AT  (STAGES_AT + 4 * STAGE * D)

/* Columns of tensor memory: Sᵀ, of 16 queries each, which become eight of Pᵀ and eight of dSᵀ; dPᵀ; dk; dv; and dq, 64
   for 128 queries. In the only pass dq is made when all of dPᵀ was read, and has its place. */
#define DP_AT 64
#define DK_AT 128
#define DV_AT 192
#define DQ_AT 256

/* The draws of a key for 16 queries: those of queries g and g + 8 in the halves of word[g]. Keys 2c, 2c + 1, 2c + 8 and
   2c + 9 of a tile need parts of the same eight calls. So each of their lanes makes two, g = n and n + 4 of the four n,
   and they exchange: first the words of keys below and from 8 on, then the halves of even and odd keys. */
struct KeyDraws {
    uint32_t word[8];
};

template <typename T>
__device__ static inline KeyDraws draw_key(const AttentionDropout<T> &dropout, int query_tile, int key_tile)
{
    uint32_t lane = threadIdx.x % CUDA_WARP;
    bool odd = lane % 2, right = lane / 8 % 2; /* the key in its tile */
    KeyDraws draws;
    CUDA_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        Philox4 made =
            dropout_tile_call(&dropout.site, dropout.head, dropout.sequence, static_cast<uint32_t>(query_tile),
                              2 * right + odd + 4 * i, static_cast<uint32_t>(key_tile), lane % 8 / 2);
        uint32_t word[2][2]; /* [n / 2][query / 8] */
        CUDA_UNROLL
        for (int below = 0; below < 2; below++) {
            uint32_t mine = right ? made.v[2 * below + 1] : made.v[2 * below];
            uint32_t other = __shfl_xor_sync(CUDA_FULL, right ? made.v[2 * below] : made.v[2 * below + 1], 8);
            word[0][below] = right ? other : mine;
            word[1][below] = right ? mine : other;
        }
        CUDA_UNROLL
        for (int n = 0; n < 2; n++) {
            uint32_t low = (word[n][0] & 0xffffu) | word[n][1] << 16;
            uint32_t high = word[n][0] >> 16 | (word[n][1] & 0xffff0000u);
            uint32_t mine = odd ? high : low, other = __shfl_xor_sync(CUDA_FULL, odd ? low : high, 1);
            draws.word[4 * i + 2 * n] = odd ? other : mine;
            draws.word[4 * i + 2 * n + 1] = odd ? mine : other;
        }
    }
    return draws;
}

template <typename T> __device__ static inline void attention_keys(const Attention<T> &a)
{
    typedef AttentionTile<T, D> Tile; /* dSᵀ's too: a row per key, a column per query of a stage */
    typedef AttentionSums<T, D, THREADS> Sums;
    static_assert(Tile::step == STAGE && sizeof(T) == 2, "tcgen05's tiles");
    CUDA_SHARED_DYNAMIC(T, shared);
    CUDA_SHARED(uint64_t, barrier, [1]);
    CUDA_SHARED(uint32_t, tensor, [1]);
    T *k_tile = wgmma_align(shared), *v_tile = k_tile + V_AT, *ds_tile = k_tile + DS_AT, *stages = k_tile + STAGES_AT;
    float2 *stats = reinterpret_cast<float2 *>(k_tile + STATS_AT);
    float4 *kept = reinterpret_cast<float4 *>(stats + LONGEST) + threadIdx.x;
    AttentionPlace p;
    if (!Tile::template begin_whole<THREADS>(a, &p)) return Sums::leave_none(a);

    int thread = static_cast<int>(threadIdx.x), lane = thread % CUDA_WARP, warp = attention_warp();
    int own_row = CUDA_WARP * (warp % 4), part = 32 * (warp / 4); /* the warp's keys of a pass, queries of a stage */
    int head = static_cast<int>(blockIdx.y), hidden = a.heads * a.head_dim, width = 3 * hidden;
    T *dq = a.to + int64_t{p.start} * width + head * a.head_dim, *dk = dq + hidden, *dv = dk + hidden;
    const T *q = a.qkv + int64_t{p.start} * width + head * a.head_dim;
    const T *dout = a.dout + int64_t{p.start} * hidden + head * a.head_dim;
    auto copy_stage = [&](int i) {
        Tile::template copy_stage_aligned<THREADS>(stages, i, q, width, dout, hidden, p.length, a);
    };
    uint32_t columns = p.length <= KEYS ? DQ_AT : 512;
    attention_stats<T, D, THREADS>(stats, (p.length + STAGE - 1) / STAGE * STAGE, a, p);
    if (warp == 0) tcgen_alloc(tensor, columns); /* waits for the block before, if both need all */
    if (thread == 0) tcgen_barrier_init(barrier);
    tcgen_before_sync();

    AttentionDropout<T> dropout(a, p);
    float to_log2 = a.scale * LOG2_E;
    uint64_t keys = tcgen_tile(k_tile), values = tcgen_tile(v_tile);
    uint64_t scores = tcgen_tiles(ds_tile, KEYS * STAGE * sizeof(T));
    uint32_t x_at = 0, dq_at = 0, own = 0; /* in tensor memory */
    /* Stores the warp's rows from `row` on, and adds those that there are in tiles of 16. */
    auto store = [&](T *tile, uint32_t sums, float factor, T *to, int row, auto add) {
        if (row >= p.length) return;
        tile += own_row * D;
        attention_store_sums<T, D, 32>(tile, sums, factor, to + row * width, width, p.length - row, a, part);
        if (a.sums) add(tile);
        if (a.sums && row + 16 < p.length) add(tile + 16 * D);
    };
    CUDA_ROLL
    for (int pass = 0; pass < p.length; pass += KEYS) {
        int first = pass + own_row, n_keys = min(p.length - pass, KEYS); /* first: of the warp's keys */
        __syncthreads(); /* the pass before has ended; tensor memory and the barrier are here */
        Tile::template copy_aligned<KEYS, THREADS>(k_tile, q + hidden + pass * width, width, n_keys, a);
        Tile::template copy_aligned<KEYS, THREADS>(v_tile, q + 2 * hidden + pass * width, width, n_keys, a);
        copy_stage(0);
        x_at = *tensor;
        dq_at = x_at + (p.length <= KEYS ? DP_AT : DQ_AT);
        own = tcgen_own(x_at, warp) + static_cast<uint32_t>(part);
        CUDA_ROLL
        for (int i = 0; i * STAGE < p.length; i++) {
            int n_queries = min(p.length - i * STAGE, STAGE);
            bool more = (i + 1) * STAGE < p.length;
            T *stage = stages + (i & 1) * 2 * STAGE * D, *ds = ds_tile + (i & 1) * KEYS * STAGE;
            uint64_t queries = tcgen_tile(stage), douts = tcgen_tile(stage + STAGE * D);
            copy_async_wait<0>();
            tcgen_publish();
            if (i > 0) tcgen_wait(barrier, 1);
            __syncthreads(); /* stage i is here; stage i − 1 and its Pᵀ and dSᵀ are no longer read */
            if (warp == 0 && tcgen_elect()) {
                tcgen_after_sync();
                CUDA_UNROLL
                for (int k = 0; k < D / 16; k++)
                    tcgen_128x64x16<T>(x_at, keys + k * WGMMA_RIGHT, queries + k * WGMMA_RIGHT, k > 0);
                CUDA_UNROLL
                for (int k = 0; k < D / 16; k++)
                    tcgen_128x64x16<T>(x_at + DP_AT, values + k * WGMMA_RIGHT, douts + k * WGMMA_RIGHT, k > 0);
                tcgen_commit(barrier);
            }
            if (more) copy_stage(i + 1);
            KeyDraws draws[2] = {};
            if (a.threshold && first < p.length) CUDA_UNROLL
            for (int t = 0; t < 2; t++) draws[t] = draw_key(dropout, (i * STAGE + part) / 16 + t, (first + lane) / 16);
            tcgen_wait(barrier, 0);
            tcgen_after_sync();
            if (first < p.length) CUDA_UNROLL
            for (int t = 0; t < 2; t++) {
                if (part + 16 * t >= n_queries) continue;
                uint32_t at = own + static_cast<uint32_t>(16 * t), probs[8], ds_pairs[8]; /* rounded */
                float x[16], dp[16];
                tcgen_load16(x, at);
                tcgen_load16(dp, at + DP_AT);
                if (first + CUDA_WARP > p.length) CUDA_UNROLL
                for (int j = 0; j < 16; j++)
                    if (first + lane >= p.length) x[j] = -INFINITY;
                const float4 *of = reinterpret_cast<const float4 *>(stats + i * STAGE + part + 16 * t);
                CUDA_UNROLL
                for (int j = 0; j < 8; j++) {
                    float4 two = of[j]; /* of queries 2·j and the next */
                    CUDA_UNROLL
                    for (int r = 0; r < 2; r++) {
                        int k = 2 * j + r;
                        uint32_t word = draws[t].word[k % 8];
                        float prob = cuda_exp2(fmaf(x[k], to_log2, r ? -two.z : -two.x));
                        bool dropped = (k / 8 ? word : word << 16) < dropout.limit;
                        x[k] = dropped ? 0 : prob;
                        dp[k] = prob * ((dropped ? 0 : dp[k] * a.keep_scale) - (r ? two.w : two.y));
                    }
                    probs[j] = mma_pair<T>(x[2 * j], x[2 * j + 1]);
                    ds_pairs[j] = mma_pair<T>(dp[2 * j], dp[2 * j + 1]);
                }
                tcgen_store8(at, probs);
                tcgen_store8(at + 8, ds_pairs);
                CUDA_UNROLL
                for (int h = 0; h < 2; h++) {
                    const uint32_t *of_eight = ds_pairs + 4 * h;
                    T *to = ds + Tile::at(own_row + lane, part + 16 * t + 8 * h);
                    *as_chunk(reinterpret_cast<uint32_t *>(to)) = {
                        {of_eight[0], of_eight[1], of_eight[2], of_eight[3]}};
                }
            }
            tcgen_stored();
            tcgen_before_sync();
            tcgen_publish();
            __syncthreads(); /* Pᵀ and dSᵀ are here */
            if (warp == 0 && tcgen_elect()) {
                tcgen_after_sync();
                CUDA_ROLL
                for (int t = 0; 16 * t < n_queries; t++) {
                    uint32_t probs = x_at + static_cast<uint32_t>(16 * t);
                    bool add = i > 0 || t > 0;
                    tcgen_128x64x16_turned<T>(x_at + DV_AT, probs, douts + t * WGMMA_BELOW, add);
                    tcgen_128x64x16_turned<T>(x_at + DK_AT, probs + 8, queries + t * WGMMA_BELOW, add);
                }
                if (i % 2 == 1 || !more) CUDA_ROLL
                for (int t = 0; 16 * t < n_keys; t++)
                    tcgen_128x64x16_both_turned<T>(dq_at + static_cast<uint32_t>(i / 2 * D), scores + t * WGMMA_BELOW,
                                                   keys + t * WGMMA_BELOW, pass > 0 || t > 0);
                tcgen_commit(barrier);
            }
        }
        tcgen_wait(barrier, 1);
        tcgen_after_sync();
        Sums sums;
        store(k_tile, own + DK_AT, a.scale, dk, first, [&](const T *rows) { sums.template add_k<32>(rows, part); });
        store(v_tile, own + DV_AT, a.keep_scale, dv, first,
              [&](const T *rows) { sums.template add_v<32>(rows, part); });
        sums.keep(kept, pass > 0);
    }
    Sums sums;
    CUDA_ROLL
    for (int row = own_row, j = 0; row < p.length; row += 2 * STAGE, j += D)
        store(ds_tile, own + (dq_at - x_at) + static_cast<uint32_t>(j), a.scale, dq, row,
              [&](const T *rows) { sums.template add_q<32>(rows, part); });
    if (a.sums) {
        sums.keep(kept, true);
        sums.leave(a, reinterpret_cast<float *>(stages));
    }
    __syncthreads(); /* tensor memory is no longer read */
    tcgen_after_sync();
    if (warp == 0) tcgen_free(x_at, columns);
}

template <typename T> __global__ void __launch_bounds__(THREADS, 2) attention_bwd_tcgen_kernel(Attention<T> a)
{
    if constexpr (tcgen_there) {
        a.aligned = true; /* attention_is_native */
        attention_keys(a);
    } else
        tcgen_absent();
}

/* ---- calls ---- */

template <typename T> static Status launch(const OpCall *call, const RowCounts *rows)
{
    Attention<T> a = attention_bwd_of<T>(call, rows);
    size_t shared = WGMMA_ALIGN + STATS_AT * sizeof(T) + LONGEST * sizeof(float2) + THREADS * sizeof(float4);
    return CUDA_LAUNCH((attention_bwd_tcgen_kernel<T>), attention_sequences_grid(a), THREADS, shared, a);
}

Status attention_bwd_tcgen(const OpCall *call, const RowCounts *rows)
{
    return IN(call, ATTENTION_BWD, qkv)->dtype == BF16 ? launch<__nv_bfloat16>(call, rows) : launch<__half>(call, rows);
}
