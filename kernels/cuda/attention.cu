/* ATTENTION: softmax(q·kᵀ·scale) with dropout, times v, in one pass over a sequence's keys. Scores never leave
   registers; a row's maximum and sum are updated on the way, and the sums so far are rescaled when the maximum rises.
   The sum is of the fp32 probabilities before dropout; for the product with v they are rounded to T, as tensor cores
   need them. */
#include "kernels/cuda/attention_tiles.cuh"

#include "kernels/cuda/cuda.h"

template <typename T, int D>
__global__ void __launch_bounds__(ATTENTION_THREADS, attention_blocks<T, D>) attention_kernel(Attention<T> a)
{
    typedef AttentionTile<T, D> Tile;
    CUDA_SHARED_DYNAMIC(T, shared);
    T *own_tile = shared, *stages = shared + ATTENTION_ROWS * D; // (2, keys and values, step, D)
    AttentionPlace p;
    if (!Tile::begin(a, &p)) return;

    int head = static_cast<int>(blockIdx.y), warp = attention_warp();
    int lane = static_cast<int>(threadIdx.x) % CUDA_WARP, g = lane / 4, c = lane % 4;
    int hidden = a.heads * a.head_dim, width = 3 * hidden;
    T *o = a.to + head * a.head_dim;
    const T *q = a.qkv + int64_t{p.start} * width + head * a.head_dim;
    auto copy_stage = [&](int i) {
        Tile::copy_stage(stages, i, q + hidden, width, q + 2 * hidden, width, p.length, a);
    };
    Tile::copy(own_tile, q + p.first * width, width, nullptr, 0, p.length - p.first, ATTENTION_ROWS, a);
    copy_stage(0);

    constexpr int tiles = Tile::step / 16;
    int first = p.first + 16 * warp; /* the warp's first query */
    T *mine = own_tile + 16 * warp * D;
    AttentionOwn<T, D, true> own;
    AttentionDropout<T> dropout(a, p);
    float sum[D / 8][4] = {}, total[2] = {0, 0}, top[2] = {-INFINITY, -INFINITY};
    float to_log2 = a.scale * LOG2_E;
    for (int i = 0; i * Tile::step < p.length; i++) {
        copy_async_wait<0>();
        __syncthreads(); /* stage i is here, and stage i − 1 is no longer read */
        if (i == 0 && first < p.length) own.load_rows(mine);
        if ((i + 1) * Tile::step < p.length) copy_stage(i + 1);
        if (first >= p.length) continue;

        const T *keys = stages + (i & 1) * 2 * Tile::step * D, *values = keys + Tile::step * D;
        int n_keys = min(p.length - i * Tile::step, Tile::step);
        float x[tiles][2][4], high[2] = {top[0], top[1]};
        auto scores = [&](auto whole) { /* a whole stage has no branches, so that its products overlap */
                                        CUDA_UNROLL
                                        for (int t = 0; t < tiles; t++) {
                                            if (!whole.value && 16 * t >= n_keys) continue;
                                            own.multiply(x[t], keys + 16 * t * D);
                                            if (!whole.value && n_keys - 16 * t < 16)
                                                attention_mask(x[t], n_keys - 16 * t);
                                            CUDA_UNROLL
                                            for (int j = 0; j < 8; j++)
                                                high[j % 4 / 2] = fmaxf(high[j % 4 / 2], x[t][j / 4][j % 4]);
                                        }
        };
        if (n_keys == Tile::step)
            scores(std::true_type{});
        else
            scores(std::false_type{});
        float base[2];
        attention_raise<D>(top, high, total, sum, to_log2, base);
        CUDA_UNROLL
        for (int t = 0; t < tiles; t++) {
            if (16 * t >= n_keys) continue;
            CUDA_UNROLL
            for (int j = 0; j < 8; j++) {
                int n = j / 4, r = j % 4;
                x[t][n][r] = cuda_exp2(fmaf(x[t][n][r], to_log2, base[r / 2]));
                total[r / 2] += x[t][n][r];
            }
            CUDA_NOW(total[0]);
            CUDA_NOW(total[1]);
            if (a.threshold) {
                Philox4 draws = dropout.tile(first / 16, i * tiles + t);
                CUDA_UNROLL
                for (int j = 0; j < 8; j++)
                    if (dropout.drops(draws, j / 4, j % 4)) x[t][j / 4][j % 4] = 0;
            }
            attention_add<T, D>(sum, x[t], values + 16 * t * D);
        }
    }
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
    Tile::store(mine, sum, factor, o + int64_t{p.start + first} * hidden, hidden, p.length - first, a);
}

template <typename T, int D> static Status attention_launch(const Attention<T> &a)
{
    size_t shared = (ATTENTION_ROWS + 4 * AttentionTile<T, D>::step) * D * sizeof(T);
    return CUDA_LAUNCH((attention_kernel<T, D>), attention_grid(a), ATTENTION_THREADS, shared, a);
}

/* Prepares ATTENTION and ATTENTION_BWD. */
Status cuda_attention_prepare(const OpCall *call, const RowCounts *buckets, int n)
{
    int32_t head_dim = call->attr.attention.head_dim;
    if (attention_by_cudnn(call)) return attention_cudnn_prepare(call, buckets, n);
    const size_t shared = device_info()->shared, wide = 96 << 10; /* the backward of heads above 64 in fp32 */
    if (call->op == OP_ATTENTION_BWD && head_dim > 64 && IN(call, ATTENTION_BWD, qkv)->dtype == F32 && shared < wide)
        return fail(E_USAGE,
                    "attention: heads of %d columns in fp32 need more shared memory than the %zu KiB of %s; use "
                    "--precision fp16, or more heads (num_attention_heads in config.json)",
                    head_dim, shared >> 10, device_info()->name);
    if (head_dim <= ATTENTION_HEAD_DIM) return OK;
    return fail(E_USAGE,
                "attention: heads have %d columns; the cuda backend has kernels for at most %d. Use more heads "
                "(num_attention_heads in config.json) or --backend cpu",
                head_dim, ATTENTION_HEAD_DIM);
}

size_t cuda_attention_scratch(const OpCall *call, const RowCounts *rows)
{
    return attention_by_cudnn(call) ? attention_cudnn_scratch(call, rows) : 0;
}

Status cuda_attention(const OpCall *call, const RowCounts *rows)
{
    if (attention_by_cudnn(call)) return attention_cudnn(call, rows);
    if (attention_is_native(call)) return attention_wgmma(call, rows);
    CUDA_BY_TYPE(IN(call, ATTENTION, qkv)->dtype, T, {
        Attention<T> a = attention_fwd_of<T>(call, rows);
        return a.head_dim <= 32   ? attention_launch<T, 32>(a)
               : a.head_dim <= 64 ? attention_launch<T, 64>(a)
                                  : attention_launch<T, 128>(a);
    });
}
