/* ATTENTION by wgmma (wgmma.cuh), for bf16 and fp16 on Hopper: attention.cu's formulas, roundings, draws and order over
   stages of keys, in other products. A block has 128 queries of a head, 64 a warpgroup. Scores of 64 keys are one
   series of products, with queries and keys in shared memory; while they run the warps draw their dropout. The
   probabilities, rounded to T, are the next product's operand from registers, and it runs until the next stage is
   awaited.

   The queries are in shared memory and not in registers because ptxas 13.0 gave the registers of both series to the
   probabilities, in a loop that keeps the queries. */
#include <string.h>

#include "kernels/cuda/attention_tiles.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/wgmma.cuh"

#define GROUPS  2 /* warpgroups of a block */
#define THREADS (GROUPS * WGMMA_THREADS)
#define ROWS    (GROUPS * 64)
#define D       64 /* columns of a tile; narrower heads have zeros there */

template <typename T> __device__ static inline void attention_rows(const Attention<T> &a)
{
    typedef AttentionTile<T, D> Tile;
    constexpr int step = Tile::step, tiles = step / 16;
    static_assert(step == 64 && sizeof(T) == 2, "wgmma's tiles");
    CUDA_SHARED_DYNAMIC(T, shared);
    T *own_tile = wgmma_align(shared), *stages = own_tile + ROWS * D; // (2, keys and values, step, D)
    AttentionPlace p;
    if (!Tile::template begin<ROWS, THREADS>(a, &p)) return;

    int thread = static_cast<int>(threadIdx.x), lane = thread % CUDA_WARP, g = lane / 4, c = lane % 4;
    int warp = __shfl_sync(CUDA_FULL, thread / CUDA_WARP, 0), group = warp / 4;
    int head = static_cast<int>(blockIdx.y), hidden = a.heads * a.head_dim, width = 3 * hidden;
    T *o = a.to + head * a.head_dim;
    const T *q = a.qkv + int64_t{p.start} * width + head * a.head_dim;
    auto copy_stage = [&](int i) {
        Tile::template copy_stage_aligned<THREADS>(stages, i, q + hidden, width, q + 2 * hidden, width, p.length, a);
    };
    Tile::template copy_aligned<ROWS, THREADS>(own_tile, q + p.first * width, width, p.length - p.first, a);
    copy_stage(0);

    int first = p.first + 16 * warp;                 /* the warp's first query */
    bool has_rows = p.first + 64 * group < p.length; /* the warpgroup: its warps go together */
    uint64_t queries = wgmma_tile(own_tile + 64 * group * D);
    AttentionDropout<T> dropout(a, p);
    float sum[D / 8][4] = {}, total[2] = {0, 0}, top[2] = {-INFINITY, -INFINITY};
    float to_log2 = a.scale * LOG2_E;
    CUDA_ROLL
    for (int i = 0; i * step < p.length; i++) {
        copy_async_wait<0>();
        wgmma_publish();
        wgmma_wait<64>(sum[0]);
        __syncthreads(); /* stage i is here, and stage i − 1 is no longer read */
        if ((i + 1) * step < p.length) copy_stage(i + 1);
        if (!has_rows) continue;

        const T *stage = stages + (i & 1) * 2 * step * D;
        uint64_t keys = wgmma_tile(stage), values = wgmma_tile(stage + step * D);
        float x[tiles][2][4];
        wgmma_fence();
        wgmma_64xNx64<T, 64>(x[0][0], queries, keys);
        wgmma_commit();
        Philox4 draws[tiles] = {};
        if (a.threshold) CUDA_UNROLL
        for (int t = 0; t < tiles; t++) draws[t] = dropout.tile(first / 16, i * tiles + t);
        wgmma_wait<64>(x[0][0]);

        int n_keys = p.length - i * step;
        float high[2] = {top[0], top[1]}, base[2];
        CUDA_UNROLL
        for (int t = 0; t < tiles; t++) {
            if (n_keys - 16 * t < 16) attention_mask(x[t], n_keys - 16 * t);
            CUDA_UNROLL
            for (int j = 0; j < 8; j++) high[j % 4 / 2] = fmaxf(high[j % 4 / 2], x[t][j / 4][j % 4]);
        }
        attention_raise<D>(top, high, total, sum, to_log2, base);
        uint32_t probs[tiles][4]; /* rounded */
        CUDA_UNROLL
        for (int t = 0; t < tiles; t++) {
            CUDA_UNROLL
            for (int j = 0; j < 8; j++) {
                int n = j / 4, r = j % 4;
                x[t][n][r] = cuda_exp2(fmaf(x[t][n][r], to_log2, base[r / 2]));
                total[r / 2] += x[t][n][r];
                if (dropout.drops(draws[t], n, r)) x[t][n][r] = 0;
            }
            CUDA_UNROLL
            for (int j = 0; j < 4; j++) probs[t][j] = mma_pair<T>(x[t][j / 2][j % 2 * 2], x[t][j / 2][j % 2 * 2 + 1]);
        }
        wgmma_fence<tiles>(sum[0], probs[0]);
        wgmma_64x64_turned<T, tiles>(sum[0], probs, values);
        wgmma_commit();
    }
    wgmma_wait<64>(sum[0]);
    __syncthreads(); /* the queries are no longer read */
    if (first >= p.length) return;

    float factor[2];
    CUDA_UNROLL
    for (int second = 0; second < 2; second++) {
        total[second] = attention_row_sum(total[second]);
        factor[second] = a.keep_scale / total[second];
        int row = first + g + 8 * second;
        if (c == 0 && row < p.length)
            a.lse[int64_t{p.start + row} * a.heads + head] = fmaf(top[second], a.scale, logf(total[second]));
    }
    Tile::store(own_tile + 16 * warp * D, sum, factor, o + int64_t{p.start + first} * hidden, hidden, p.length - first,
                a);
}

template <typename T> __global__ void __launch_bounds__(THREADS, 2) attention_wgmma_kernel(Attention<T> a)
{
    if constexpr (wgmma_there)
        attention_rows(a);
    else
        wgmma_absent();
}

/* ---- calls ---- */

static bool chosen;

Status attention_native_open(void)
{
    const DeviceInfo *d = device_info();
    chosen = false;
    if (!env_is_on("CAIRN_CUDA_NATIVE_ATTENTION")) return OK;
    if (d->major != 9 || d->minor != 0)
        return fail(E_USAGE,
                    "CAIRN_CUDA_NATIVE_ATTENTION: it is for GPUs of compute capability 9.0 (wgmma), and %s has "
                    "%d.%d; unset it",
                    d->name, d->major, d->minor);
    if (!wgmma_is_built)
        return fail(E_USAGE, "CAIRN_CUDA_NATIVE_ATTENTION: this build has no code for sm_90a; build with "
                             "CAIRN_CUDA_ARCHITECTURES=90a, or unset it");
    chosen = true;
    return OK;
}

const char *attention_native_products(void) { return chosen ? "by wgmma" : NULL; }

/* Both ops have tiles of 64 columns. */
bool attention_is_native(const OpCall *call)
{
    int32_t head_dim = call->attr.attention.head_dim;
    return chosen && dtype_size(IN(call, ATTENTION, qkv)->dtype) == 2 && head_dim <= 64 && head_dim % 8 == 0;
}

bool attention_bwd_is_native(const OpCall *call)
{
    enum { LONGEST = 512 };
    int longest = call->attr.attention.longest;
    return attention_is_native(call) && longest >= 1 && longest <= LONGEST && !attention_in_two_passes();
}

template <typename T> static Status launch(const OpCall *call, const RowCounts *rows)
{
    Attention<T> a = attention_fwd_of<T>(call, rows);
    size_t shared = WGMMA_ALIGN + (ROWS + 4 * AttentionTile<T, D>::step) * D * sizeof(T);
    return CUDA_LAUNCH((attention_wgmma_kernel<T>), attention_grid<ROWS>(a), THREADS, shared, a);
}

Status attention_wgmma(const OpCall *call, const RowCounts *rows)
{
    return IN(call, ATTENTION, qkv)->dtype == BF16 ? launch<__nv_bfloat16>(call, rows) : launch<__half>(call, rows);
}
