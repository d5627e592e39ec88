/* ATTENTION_BWD in one kernel, for sequences of at most 512 rows in bf16 and fp16, with heads of at most 64 columns: a
   block has a head of a sequence. A warp holds 16 keys, and the queries stream past in stages of 64. Where the sequence
   has more keys than the block holds, the block passes over the queries again for the next ones. A warp adds dk and dv
   in registers and leaves dS of its keys in shared memory; when all have, a warp adds dq of 16 of the stage's queries
   over the pass's keys, which from one pass to the next is kept in shared memory, in fp32. So P and the dropout factors
   are made once, and products are five, not seven. Formulas and roundings are those of attention_bwd.cu; every sum is
   made in the order of keys or queries, without atomics.

   Counted (docs/gpu.md) for 64 queries and 16 keys, as a mean of the passes: 1348 instructions and 456 cycles of shared
   memory with 4 warps at 128 tokens, 1308 and 430 with 8 at 512. sass.tsv counts passes in which dq is complete. */
#include <string.h>

#include "kernels/cuda/attention_sums.cuh"

#include "kernels/cuda/cuda.h"

template <typename T, int D, int WARPS> struct AttentionWhole {
    typedef AttentionTile<T, D> Tile;
    typedef AttentionTile<T, 64> Scores; /* dSᵀ: a row per key, a column per query of a stage */
    static constexpr int threads = WARPS * CUDA_WARP, keys = 16 * WARPS;
    static_assert(Tile::step == 64 && sizeof(T) == 2, "stages have 64 queries");
    static constexpr int parts = WARPS >= 8 ? 2 : 1; /* of dq's columns, for a warp each */

    /* Elements: k, v, then dSᵀ, in v's place where that is as long, then the stages. */
    static constexpr int v_at = keys * D, ds_at = D == 64 ? v_at : 2 * v_at, stages_at = ds_at + keys * 64,
                         end = stages_at + 4 * Tile::step * D;
    static size_t bytes(int longest)
    {
        int rows = (longest + 63) / 64 * 64;
        return end * sizeof(T) + static_cast<size_t>(rows) * (2 + (longest > keys ? D : 0)) * sizeof(float);
    }
};

template <typename T, int D, int WARPS>
__global__ void __launch_bounds__(WARPS *CUDA_WARP, WARPS == 4 ? 2 : 1)
    attention_bwd_kernel(Attention<T> a, int longest)
{
    typedef AttentionWhole<T, D, WARPS> Whole;
    typedef typename Whole::Tile Tile;
    typedef typename Whole::Scores Scores;
    typedef AttentionSums<T, D, Whole::threads> Sums;
    CUDA_SHARED_DYNAMIC(T, shared);
    T *k_tile = shared, *v_tile = shared + Whole::v_at, *ds_tile = shared + Whole::ds_at;
    T *stages = shared + Whole::stages_at; // (2, q and do, 64, D)
    int rows = (longest + 63) / 64 * 64;
    float2 *stats = reinterpret_cast<float2 *>(shared + Whole::end); // (rows): lse in base 2, dot
    float4 *dq_sums = reinterpret_cast<float4 *>(stats + rows);      // (rows / 16, D / 8, lanes)

    AttentionPlace p;
    if (!Tile::template begin_whole<Whole::threads>(a, &p)) return Sums::leave_none(a);
    int thread = static_cast<int>(threadIdx.x), lane = thread % CUDA_WARP, g = lane / 4, c = lane % 4;
    int warp = __shfl_sync(CUDA_FULL, thread / CUDA_WARP, 0), head = static_cast<int>(blockIdx.y);
    int hidden = a.heads * a.head_dim, width = 3 * hidden;
    T *dq = a.to + head * a.head_dim, *dk = dq + hidden, *dv = dk + hidden;
    const T *q = a.qkv + int64_t{p.start} * width + head * a.head_dim;
    const T *dout = a.dout + int64_t{p.start} * hidden + head * a.head_dim;
    attention_stats<T, D, Whole::threads>(stats, rows, a, p);

    AttentionDropout<T> dropout(a, p);
    dropout.keep_key();
    float to_log2 = a.scale * LOG2_E;
    T *my_k = k_tile + 16 * warp * D, *my_v = v_tile + 16 * warp * D;
    Sums sums;
    CUDA_ROLL
    for (int pass = 0; pass < p.length; pass += Whole::keys) {
        int first = pass + 16 * warp, n_keys = min(p.length - pass, Whole::keys); /* first: of the warp's keys */
        bool last = pass + Whole::keys >= p.length;                               /* dq is complete */
        AttentionOwn<T, D, true> own_k, own_v;
        float sum_k[D / 8][4] = {}, sum_v[D / 8][4] = {};
        __syncthreads(); /* the pass before has ended */
        Tile::template copy<Whole::threads>(k_tile, q + hidden + pass * width, width, q + 2 * hidden + pass * width,
                                            width, n_keys, Whole::keys, a);
        Tile::template copy_stage<Whole::threads>(stages, 0, q, width, dout, hidden, p.length, a);
        CUDA_ROLL
        for (int i = 0; i * 64 < p.length; i++) {
            copy_async_wait<0>();
            __syncthreads(); /* stage i is here; stage i − 1 and dS are no longer read */
            if ((i + 1) * 64 < p.length)
                Tile::template copy_stage<Whole::threads>(stages, i + 1, q, width, dout, hidden, p.length, a);
            if (i == 0 && first < p.length) {
                own_k.load_rows(my_k);
                own_v.load_rows(my_v);
                __syncwarp(); /* dS may take v's place */
            }
            T *queries = stages + (i & 1) * 128 * D, *douts = queries + 64 * D;
            int n_queries = min(p.length - i * 64, 64);
            if (first < p.length) {
                CUDA_ROLL
                for (int t = 0; t < 4; t++) {
                    if (16 * t >= n_queries) continue;
                    float x[2][4], dp[2][4];
                    own_k.multiply(x, queries + 16 * t * D);
                    if (p.length - first < 16) attention_mask_rows(x, p.length - first);
                    own_v.multiply(dp, douts + 16 * t * D);
                    typename AttentionDropout<T>::Turned draws = {};
                    if (a.threshold) draws = dropout.tile_turned(i * 4 + t, first / 16);
                    const float4 *of = reinterpret_cast<const float4 *>(stats + i * 64 + 16 * t) + c;
                    const float4 two[2] = {of[0], of[4]}; /* of queries 8·n + 2·c and the next */
                    CUDA_UNROLL
                    for (int j = 0; j < 8; j++) {
                        int n = j / 4, r = j % 4;
                        float lse = r % 2 ? two[n].z : two[n].x, dot = r % 2 ? two[n].w : two[n].y;
                        float prob = cuda_exp2(fmaf(x[n][r], to_log2, -lse));
                        bool dropped = dropout.drops(draws, n, r);
                        x[n][r] = dropped ? 0 : prob;
                        dp[n][r] = prob * ((dropped ? 0 : dp[n][r] * a.keep_scale) - dot);
                    }
                    attention_add<T, D>(sum_v, x, douts + 16 * t * D);
                    attention_add<T, D>(sum_k, dp, queries + 16 * t * D);
                    int at = Scores::on(Scores::at(16 * warp + g, 2 * c), t);
                    CUDA_UNROLL
                    for (int j = 0; j < 4; j++)
                        *reinterpret_cast<uint32_t *>(ds_tile + (at ^ j / 2 * 8) + j % 2 * 8 * 64) =
                            mma_pair<T>(dp[j / 2][j % 2 * 2], dp[j / 2][j % 2 * 2 + 1]);
                }
            }
            __syncthreads(); /* dS is here */
            int tile = warp % 4, part = warp / 4;
            if (part < Whole::parts && 16 * tile < n_queries) {
                constexpr int columns = D / Whole::parts;
                float sum[columns / 8][4] = {};
                float4 *kept = dq_sums + (((i * 4 + tile) * (D / 8)) + part * (columns / 8)) * CUDA_WARP + lane;
                if (pass > 0) CUDA_UNROLL
                for (int j = 0; j < columns / 8; j++) {
                    float4 y = kept[j * CUDA_WARP];
                    sum[j][0] = y.x, sum[j][1] = y.y, sum[j][2] = y.z, sum[j][3] = y.w;
                }
                const T *scores = ds_tile + Scores::on(Scores::at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8), tile);
                int key = Tile::at(lane % 16, lane / 16 * 8);
                CUDA_UNROLL
                for (int t = 0; t < WARPS; t++) {
                    if (16 * t >= n_keys) continue;
                    uint32_t mine[4];
                    mma_load4_transposed(mine, scores + 16 * t * 64);
                    CUDA_UNROLL
                    for (int j = 0; j < columns / 16; j++) {
                        uint32_t b[4];
                        mma_load4_transposed(b, k_tile + Tile::on(key, part * (columns / 16) + j) + 16 * t * D);
                        mma_16x8x16<T>(sum[2 * j], mine, b, sum[2 * j]);
                        mma_16x8x16<T>(sum[2 * j + 1], mine, b + 2, sum[2 * j + 1]);
                    }
                }
                if (last) { /* through the queries, which are no longer read */
                    const float factor[2] = {a.scale, a.scale};
                    int row = i * 64 + 16 * tile;
                    Tile::template store<columns>(queries + 16 * tile * D, sum, factor,
                                                  dq + int64_t{p.start + row} * width, width, p.length - row, a,
                                                  part * columns);
                    if (a.sums) sums.template add_q<columns>(queries + 16 * tile * D, part * columns);
                } else
                    CUDA_UNROLL
                for (int j = 0; j < columns / 8; j++)
                    kept[j * CUDA_WARP] = make_float4(sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
            }
        }
        __syncthreads(); /* k and dS are no longer read */
        if (first >= p.length) continue;
        const float factor_k[2] = {a.scale, a.scale}, factor_v[2] = {a.keep_scale, a.keep_scale};
        Tile::store(my_k, sum_k, factor_k, dk + int64_t{p.start + first} * width, width, p.length - first, a);
        Tile::store(my_v, sum_v, factor_v, dv + int64_t{p.start + first} * width, width, p.length - first, a);
        if (!a.sums) continue;
        sums.add_k(my_k);
        sums.add_v(my_v);
    }
    if (a.sums) sums.leave(a, reinterpret_cast<float *>(stages));
}

/* ---- calls ---- */

#define LONGEST 512
#define FEW     128 /* to this length a block has four warps, two blocks a multiprocessor; then eight, and one */

template <int D> static size_t shared_bytes(int longest)
{
    return longest <= FEW ? AttentionWhole<__half, D, 4>::bytes(longest) : AttentionWhole<__half, D, 8>::bytes(longest);
}

bool attention_in_two_passes(void) { return env_is_on("CAIRN_CUDA_TWO_PASSES"); }

bool attention_bwd_is_whole(const OpCall *call)
{
    int longest = call->attr.attention.longest, head_dim = call->attr.attention.head_dim;
    if (dtype_size(IN(call, ATTENTION_BWD, qkv)->dtype) != 2 || longest < 1 || longest > LONGEST) return false;
    if (attention_in_two_passes()) return false;
    size_t most = device_info()->shared;
    return head_dim <= 32 ? shared_bytes<32>(longest) <= most : head_dim <= 64 && shared_bytes<64>(longest) <= most;
}

template <typename T, int D, int WARPS> static Status whole_launch(const Attention<T> &a, int longest)
{
    return CUDA_LAUNCH((attention_bwd_kernel<T, D, WARPS>), attention_sequences_grid(a), WARPS * CUDA_WARP,
                       (AttentionWhole<T, D, WARPS>::bytes(longest)), a, longest);
}

template <typename T> static Status whole(const OpCall *call, const RowCounts *rows)
{
    int longest = call->attr.attention.longest;
    Attention<T> a = attention_bwd_of<T>(call, rows);
    if (a.head_dim <= 32)
        return longest <= FEW ? whole_launch<T, 32, 4>(a, longest) : whole_launch<T, 32, 8>(a, longest);
    return longest <= FEW ? whole_launch<T, 64, 4>(a, longest) : whole_launch<T, 64, 8>(a, longest);
}

Status attention_bwd_whole(const OpCall *call, const RowCounts *rows)
{
    return IN(call, ATTENTION_BWD, qkv)->dtype == BF16 ? whole<__nv_bfloat16>(call, rows) : whole<__half>(call, rows);
}
