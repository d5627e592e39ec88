/* ATTENTION by tcgen05 (tcgen.cuh), for bf16 and fp16 on Blackwell: attention.cu's formulas, roundings, draws and order
   over stages of keys, in other products. A block has 128 queries of a head, a thread each, which reads its row's
   scores of 64 keys from tensor memory and so needs no other thread for its maximum and sum. The probabilities, rounded
   to T, overwrite the scores there and are the next product's operand. The sums with the values stay in tensor memory;
   a warp rescales its rows when a maximum of theirs has risen. */
#include "kernels/cuda/attention_tcgen.cuh"

#define ROWS    TCGEN_ROWS /* and threads */
#define D       64         /* columns of a tile; narrower heads have zeros there */
#define COLUMNS 128        /* of tensor memory: scores or probabilities, then sums */

/* The draws of a query for 16 keys: keys 8·n + 2·c and the next in the halves of word[c][n]. Queries g and g + 8 of a
   tile need halves of the same four calls; so each of their lanes makes two and they exchange. */
struct QueryDraws {
    uint32_t word[4][2];
};

template <typename T>
__device__ static inline QueryDraws draw_query(const AttentionDropout<T> &dropout, int query_tile, int key_tile)
{
    uint32_t lane = threadIdx.x % CUDA_WARP;
    bool below = lane / 8 % 2; /* query g + 8 */
    QueryDraws draws;
    CUDA_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        Philox4 made =
            dropout_tile_call(&dropout.site, dropout.head, dropout.sequence, static_cast<uint32_t>(query_tile),
                              lane % 8, static_cast<uint32_t>(key_tile), 2 * i + below);
        CUDA_UNROLL
        for (int n = 0; n < 2; n++) {
            uint32_t mine = below ? made.v[2 + n] : made.v[n];
            uint32_t other = __shfl_xor_sync(CUDA_FULL, below ? made.v[n] : made.v[2 + n], 8);
            draws.word[2 * i][n] = below ? other : mine;
            draws.word[2 * i + 1][n] = below ? mine : other;
        }
    }
    return draws;
}

/* n probabilities from scores, and their sum added to total. */
template <int n> __device__ static inline void probabilities(float x[n], float total[2], float to_log2, float base)
{
    CUDA_UNROLL
    for (int j = 0; j < n; j++) {
        x[j] = cuda_exp2(fmaf(x[j], to_log2, base));
        total[j % 2] += x[j];
    }
}

/* A thread's own row of `n` sums in tensor memory, times `factor`. */
template <unsigned n> __device__ static inline void rescale(uint32_t sums, float factor)
{
    CUDA_ROLL
    for (unsigned j = 0; j < n; j += 16) {
        float sum[16];
        tcgen_load16(sum, sums + j);
        CUDA_UNROLL
        for (int k = 0; k < 16; k++) sum[k] *= factor;
        tcgen_store16(sums + j, sum);
    }
}

template <typename T> __device__ static inline void attention_rows(const Attention<T> &a)
{
    typedef AttentionTile<T, D> Tile;
    constexpr int step = Tile::step, tiles = step / 16;
    static_assert(step == 64 && sizeof(T) == 2, "tcgen05's tiles");
    CUDA_SHARED_DYNAMIC(T, shared);
    CUDA_SHARED(uint64_t, barrier, [1]);
    CUDA_SHARED(uint32_t, tensor, [1]);
    T *own_tile = wgmma_align(shared), *stages = own_tile + ROWS * D; // (2, keys and values, step, D)
    AttentionPlace p;
    if (!Tile::template begin<ROWS, ROWS>(a, &p)) return;

    int thread = static_cast<int>(threadIdx.x), warp = attention_warp();
    int head = static_cast<int>(blockIdx.y), hidden = a.heads * a.head_dim, width = 3 * hidden;
    T *o = a.to + head * a.head_dim;
    if (warp == 0) tcgen_alloc(tensor, COLUMNS);
    if (thread == 0) tcgen_barrier_init(barrier);
    const T *q = a.qkv + int64_t{p.start} * width + head * a.head_dim;
    auto copy_stage = [&](int i) {
        Tile::template copy_stage_aligned<ROWS>(stages, i, q + hidden, width, q + 2 * hidden, width, p.length, a);
    };
    Tile::template copy_aligned<ROWS, ROWS>(own_tile, q + p.first * width, width, p.length - p.first, a);
    copy_stage(0);
    tcgen_before_sync();
    __syncthreads();
    tcgen_after_sync();

    uint32_t scores = *tensor, sums = scores + step, own_scores = tcgen_own(scores, warp);
    uint32_t own_sums = own_scores + step;
    int first = p.first + CUDA_WARP * warp, row = p.first + thread; /* the warp's first query; the thread's */
    uint64_t queries = tcgen_tile(own_tile);
    AttentionDropout<T> dropout(a, p);
    float total[2] = {0, 0}, top = -INFINITY, to_log2 = a.scale * LOG2_E;
    CUDA_ROLL
    for (int i = 0; i * step < p.length; i++) {
        const T *stage = stages + (i & 1) * 2 * step * D;
        int n_keys = min(p.length - i * step, step);
        copy_async_wait<0>();
        tcgen_publish();
        if (i > 0) tcgen_wait(barrier, 1);
        __syncthreads(); /* stage i is here, and stage i − 1 and its probabilities are no longer read */
        if (warp == 0 && tcgen_elect()) {
            uint64_t keys = tcgen_tile(stage);
            tcgen_after_sync();
            CUDA_UNROLL
            for (int k = 0; k < D / 16; k++)
                tcgen_128x64x16<T>(scores, queries + k * WGMMA_RIGHT, keys + k * WGMMA_RIGHT, k > 0);
            tcgen_commit(barrier);
        }
        if ((i + 1) * step < p.length) copy_stage(i + 1);
        tcgen_wait(barrier, 0);
        if (first < p.length) {
            float x[step], high = top;
            tcgen_after_sync();
            tcgen_load64(x, own_scores);
            if (n_keys < step) CUDA_UNROLL
            for (int j = 0; j < step; j++)
                if (j >= n_keys) x[j] = -INFINITY;
            CUDA_UNROLL
            for (int j = 0; j < step; j++) high = fmaxf(high, x[j]);
            float shrink = cuda_exp2((top - high) * to_log2), base = -high * to_log2;
            if (i > 0 && __any_sync(CUDA_FULL, high > top)) rescale<D>(own_sums, shrink);
            total[0] *= shrink;
            total[1] *= shrink;
            top = high;
            CUDA_UNROLL
            for (int t = 0; t < tiles; t++) {
                if (16 * t >= n_keys) continue;
                probabilities<16>(x + 16 * t, total, to_log2, base);
                if (a.threshold) {
                    QueryDraws draws = draw_query(dropout, (first + thread % CUDA_WARP) / 16, i * tiles + t);
                    CUDA_UNROLL
                    for (int j = 0; j < 16; j++) {
                        uint32_t word = draws.word[j % 8 / 2][j / 8];
                        if ((j % 2 ? word : word << 16) < dropout.limit) x[16 * t + j] = 0;
                    }
                }
                uint32_t probs[8]; /* rounded */
                CUDA_UNROLL
                for (int j = 0; j < 8; j++) probs[j] = mma_pair<T>(x[16 * t + 2 * j], x[16 * t + 2 * j + 1]);
                tcgen_store8(own_scores + static_cast<uint32_t>(8 * t), probs);
            }
            tcgen_stored();
            tcgen_before_sync();
        }
        __syncthreads(); /* the probabilities are there */
        if (warp == 0 && tcgen_elect()) {
            uint64_t values = tcgen_tile(stage + step * D);
            tcgen_after_sync();
            CUDA_ROLL
            for (int t = 0; 16 * t < n_keys; t++)
                tcgen_128x64x16_turned<T>(sums, scores + static_cast<uint32_t>(8 * t), values + t * WGMMA_BELOW,
                                          i > 0 || t > 0);
            tcgen_commit(barrier);
        }
    }
    tcgen_wait(barrier, 1);
    tcgen_after_sync();
    if (first < p.length) {
        float sum = total[0] + total[1], factor = a.keep_scale / sum;
        if (row < p.length) a.lse[int64_t{p.start + row} * a.heads + head] = fmaf(top, a.scale, logf(sum));
        attention_store_sums<T, D, D>(own_tile + CUDA_WARP * warp * D, own_sums, factor,
                                      o + int64_t{p.start + first} * hidden, hidden, p.length - first, a);
    }
    __syncthreads(); /* tensor memory is no longer read */
    tcgen_after_sync();
    if (warp == 0) tcgen_free(scores, COLUMNS);
}

template <typename T> __global__ void __launch_bounds__(ROWS, 4) attention_tcgen_kernel(Attention<T> a)
{
    if constexpr (tcgen_there)
        attention_rows(a);
    else
        tcgen_absent();
}

/* ---- calls ---- */

template <typename T> static Status launch(const OpCall *call, const RowCounts *rows)
{
    Attention<T> a = attention_fwd_of<T>(call, rows);
    size_t shared = WGMMA_ALIGN + (ROWS + 4 * AttentionTile<T, D>::step) * D * sizeof(T);
    return CUDA_LAUNCH((attention_tcgen_kernel<T>), attention_grid<ROWS>(a), ROWS, shared, a);
}

Status attention_tcgen(const OpCall *call, const RowCounts *rows)
{
    return IN(call, ATTENTION, qkv)->dtype == BF16 ? launch<__nv_bfloat16>(call, rows) : launch<__half>(call, rows);
}
