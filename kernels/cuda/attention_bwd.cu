/* ATTENTION_BWD in two kernels, each making P again from the log-sum-exp: one over blocks of queries for dq, that also
   gives D = do·o, then one over blocks of keys for dk and dv. Two products more than one kernel would need, but every
   sum is made by one warp in one order, without atomics. With P = exp(s − lse) and m the dropout factors:
       dS = P∘((do·vᵀ)∘m − D),  dq = scale·dS·k,  dk = scale·dSᵀ·q,  dv = (P∘m)ᵀ·do.
   P∘m and dS are rounded to T for the second products. */
#include "kernels/cuda/attention_tiles.cuh"

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.h"

/* do·o of the warp's row lane / 2, in both its lanes: each adds every other 16 bytes. `dout` is 16 rows of shared
   memory. */
template <typename T, int D>
__device__ static inline float dot_of(const Attention<T> &a, const T *dout, const T *o, int hidden, int n)
{
    constexpr int chunk = AttentionTile<T, D>::chunk;
    int lane = static_cast<int>(threadIdx.x) % CUDA_WARP, row = lane / 2;
    float dot = 0;
    CUDA_ROLL
    for (int column = lane % 2 * chunk; row < n && column < a.head_dim; column += 2 * chunk) {
        const T *from = o + row * hidden + column;
        AttentionChunk<T> x = {};
        if (a.aligned)
            x = *as_chunk(from);
        else
            for (int i = 0; i < chunk; i++)
                if (column + i < a.head_dim) x.v[i] = from[i];
        AttentionChunk<T> y = *as_chunk(dout + AttentionTile<T, D>::at(row, column));
        CUDA_UNROLL
        for (int i = 0; i < chunk; i++) dot = fmaf(to_float(x.v[i]), to_float(y.v[i]), dot);
    }
    return dot + __shfl_xor_sync(CUDA_FULL, dot, 1);
}

template <typename T, int D>
__global__ void __launch_bounds__(ATTENTION_THREADS, attention_blocks<T, D>) attention_dq_kernel(Attention<T> a)
{
    typedef AttentionTile<T, D> Tile;
    CUDA_SHARED_DYNAMIC(T, shared);
    T *q_tile = shared, *dout_tile = q_tile + ATTENTION_ROWS * D;
    T *stages = dout_tile + ATTENTION_ROWS * D; // (2, keys and values, step, D)
    AttentionPlace p;
    if (!attention_place(a, &p)) return;

    int head = static_cast<int>(blockIdx.y), warp = attention_warp();
    int lane = static_cast<int>(threadIdx.x) % CUDA_WARP, g = lane / 4;
    int hidden = a.heads * a.head_dim, width = 3 * hidden;
    T *dq = a.to + head * a.head_dim;
    Tile::clear(dq, width, p.gap_start, p.gap_end, a);
    if (p.first >= p.length) return;

    const T *q = a.qkv + int64_t{p.start} * width + head * a.head_dim;
    const T *dout = a.dout + int64_t{p.start} * hidden + head * a.head_dim,
            *o = a.o + int64_t{p.start} * hidden + head * a.head_dim;
    auto copy_stage = [&](int i) {
        Tile::copy_stage(stages, i, q + hidden, width, q + 2 * hidden, width, p.length, a);
    };
    Tile::copy(q_tile, q + p.first * width, width, dout + p.first * hidden, hidden, p.length - p.first, ATTENTION_ROWS,
               a);
    copy_async_commit();
    copy_stage(0);

    int first = p.first + 16 * warp; /* the warp's first query */
    T *my_q = q_tile + 16 * warp * D, *my_dout = dout_tile + 16 * warp * D;
    AttentionOwn<T, D, true> own_q, own_dout;
    AttentionDropout<T> dropout(a, p);
    float sum[D / 8][4] = {}, lse[2], dot[2] = {0, 0}; /* lse in base 2, infinite for no query: its P is 0 */
    float to_log2 = a.scale * LOG2_E;
    for (int second = 0; second < 2; second++) {
        int row = first + g + 8 * second;
        lse[second] = row < p.length ? a.lse[int64_t{p.start + row} * a.heads + head] * LOG2_E : INFINITY;
    }
    copy_async_wait<1>();
    __syncthreads(); /* the own rows are here, stage 0 is under way */
    if (first < p.length) {
        own_q.load_rows(my_q);
        own_dout.load_rows(my_dout);
        float row_dot = dot_of<T, D>(a, my_dout, o + first * hidden, hidden, p.length - first);
        for (int second = 0; second < 2; second++) dot[second] = __shfl_sync(CUDA_FULL, row_dot, 2 * g + 16 * second);
        if (lane % 2 == 0 && first + lane / 2 < p.length)
            a.dot[int64_t{head} * a.rows + p.start + first + lane / 2] = row_dot;
    }
    for (int i = 0; i * Tile::step < p.length; i++) {
        copy_async_wait<0>();
        __syncthreads(); /* stage i is here, and stage i − 1 is no longer read */
        if ((i + 1) * Tile::step < p.length) copy_stage(i + 1);
        if (first >= p.length) continue;

        const T *keys = stages + (i & 1) * 2 * Tile::step * D, *values = keys + Tile::step * D;
        int n_keys = min(p.length - i * Tile::step, Tile::step);
        CUDA_ROLL
        for (int t = 0; t < Tile::step / 16; t++) {
            if (16 * t >= n_keys) continue;
            float x[2][4], dp[2][4];
            own_q.multiply(x, keys + 16 * t * D);
            if (n_keys - 16 * t < 16) attention_mask(x, n_keys - 16 * t);
            own_dout.multiply(dp, values + 16 * t * D);
            Philox4 draws = {};
            if (a.threshold) draws = dropout.tile(first / 16, i * (Tile::step / 16) + t);
            CUDA_UNROLL
            for (int j = 0; j < 8; j++) {
                int n = j / 4, r = j % 4;
                float prob = cuda_exp2(fmaf(x[n][r], to_log2, -lse[r / 2]));
                float up = dropout.drops(draws, n, r) ? 0 : dp[n][r] * a.keep_scale;
                x[n][r] = prob * (up - dot[r / 2]);
            }
            attention_add<T, D>(sum, x, keys + 16 * t * D);
        }
    }
    if (first >= p.length) return;
    const float factor[2] = {a.scale, a.scale};
    Tile::store(my_q, sum, factor, dq + int64_t{p.start + first} * width, width, p.length - first, a);
}

/* Shorter stages where the block would need more than the 64 KiB that Turing has. */
template <typename T, int D>
using AttentionKeys = AttentionTile<T, D, D * sizeof(T) == 256 ? 16 : attention_step<T, D>>;

template <typename T, int D, bool held>
__global__ void __launch_bounds__(ATTENTION_THREADS, D <= 64 ? 3 : 2) attention_dkv_kernel(Attention<T> a)
{
    typedef AttentionKeys<T, D> Tile;
    CUDA_SHARED_DYNAMIC(T, shared);
    T *k_tile = shared, *v_tile = k_tile + ATTENTION_ROWS * D;
    T *stages = v_tile + ATTENTION_ROWS * D;                              // (2, q and do, step, D)
    float *rows = reinterpret_cast<float *>(stages + 4 * Tile::step * D); // (2, lse in base 2 and dot, step)
    AttentionPlace p;
    if (!attention_place(a, &p)) return;

    int head = static_cast<int>(blockIdx.y), warp = attention_warp();
    int thread = static_cast<int>(threadIdx.x), c = thread % 4;
    int hidden = a.heads * a.head_dim, width = 3 * hidden;
    T *dk = a.to + hidden + head * a.head_dim, *dv = dk + hidden;
    Tile::clear(dk, width, p.gap_start, p.gap_end, a);
    Tile::clear(dv, width, p.gap_start, p.gap_end, a);
    if (p.first >= p.length) return;

    const T *q = a.qkv + int64_t{p.start} * width + head * a.head_dim;
    const T *dout = a.dout + int64_t{p.start} * hidden + head * a.head_dim;
    float lse = INFINITY, dot = 0; /* of the query of the coming stage that this thread carries */
    auto copy_stage = [&](int i) {
        Tile::copy_stage(stages, i, q, width, dout, hidden, p.length, a);
        int row = i * Tile::step + thread;
        bool there = thread < Tile::step && row < p.length;
        lse = there ? a.lse[int64_t{p.start + row} * a.heads + head] : INFINITY;
        dot = there ? a.dot[int64_t{head} * a.rows + p.start + row] : 0;
    };
    auto put_rows = [&](int i) {
        if (thread >= Tile::step) return;
        rows[(i & 1) * 2 * Tile::step + thread] = lse * LOG2_E;
        rows[(i & 1) * 2 * Tile::step + Tile::step + thread] = dot;
    };
    Tile::copy(k_tile, q + hidden + p.first * width, width, q + 2 * hidden + p.first * width, width, p.length - p.first,
               ATTENTION_ROWS, a);
    copy_stage(0);
    put_rows(0);

    int first = p.first + 16 * warp; /* the warp's first key */
    T *my_k = k_tile + 16 * warp * D, *my_v = v_tile + 16 * warp * D;
    AttentionOwn<T, D, held> own_k, own_v;
    AttentionDropout<T> dropout(a, p);
    dropout.keep_key();
    float sum_k[D / 8][4] = {}, sum_v[D / 8][4] = {};
    float to_log2 = a.scale * LOG2_E;
    for (int i = 0; i * Tile::step < p.length; i++) {
        copy_async_wait<0>();
        __syncthreads(); /* stage i is here, and stage i − 1 is no longer read */
        bool more = (i + 1) * Tile::step < p.length;
        if (more) copy_stage(i + 1);
        if (first < p.length) {
            if (i == 0) {
                own_k.load_rows(my_k);
                own_v.load_rows(my_v);
            }
            const T *queries = stages + (i & 1) * 2 * Tile::step * D, *douts = queries + Tile::step * D;
            const float *stats = rows + (i & 1) * 2 * Tile::step + 2 * c; /* from the lane's first query on */
            int n_queries = min(p.length - i * Tile::step, Tile::step);
            CUDA_ROLL
            for (int t = 0; t < Tile::step / 16; t++) {
                if (16 * t >= n_queries) continue;
                float x[2][4], dp[2][4];
                const float *lse_at = stats + 16 * t, *dot_at = lse_at + Tile::step;
                own_k.multiply(x, queries + 16 * t * D);
                own_v.multiply(dp, douts + 16 * t * D);
                typename AttentionDropout<T>::Turned draws = {};
                if (a.threshold) draws = dropout.tile_turned(i * (Tile::step / 16) + t, first / 16);
                CUDA_UNROLL
                for (int j = 0; j < 8; j++) {
                    int n = j / 4, r = j % 4, query = 8 * n + r % 2;
                    float prob = cuda_exp2(fmaf(x[n][r], to_log2, -lse_at[query]));
                    bool dropped = dropout.drops(draws, n, r);
                    x[n][r] = dropped ? 0 : prob;
                    dp[n][r] = prob * ((dropped ? 0 : dp[n][r] * a.keep_scale) - dot_at[query]);
                }
                attention_add<T, D>(sum_v, x, douts + 16 * t * D);
                attention_add<T, D>(sum_k, dp, queries + 16 * t * D);
            }
        }
        if (more) put_rows(i + 1);
    }
    if (first >= p.length) return;
    const float factor_k[2] = {a.scale, a.scale}, factor_v[2] = {a.keep_scale, a.keep_scale};
    Tile::store(my_k, sum_k, factor_k, dk + int64_t{p.start + first} * width, width, p.length - first, a);
    Tile::store(my_v, sum_v, factor_v, dv + int64_t{p.start + first} * width, width, p.length - first, a);
}

template <typename T, int D> static Status attention_bwd_launch(const Attention<T> &a)
{
    auto shared = [](int step) { return (2 * ATTENTION_ROWS + 4 * step) * D * sizeof(T); };
    int step = AttentionKeys<T, D>::step;
    TRY(CUDA_LAUNCH((attention_dq_kernel<T, D>), attention_grid(a), ATTENTION_THREADS,
                    shared(AttentionTile<T, D>::step), a));
    return CUDA_LAUNCH((attention_dkv_kernel<T, D, (D <= 64)>), attention_grid(a), ATTENTION_THREADS,
                       shared(step) + 4 * step * sizeof(float), a);
}

/* ---- scratch: what the kernels need, and behind it db's parts, of sequences or of rows. There is room for either: a
   plan for a device that is not here does not know which kernels that device takes ---- */

size_t attention_bwd_own_scratch(const OpCall *call, const RowCounts *rows)
{
    if (attention_by_cudnn(call)) return attention_cudnn_scratch(call, rows);
    return static_cast<size_t>(rows_in(IN(call, ATTENTION_BWD, qkv)->rows, rows)) *
           static_cast<size_t>(call->attr.attention.heads) * sizeof(float); /* `dot` */
}

bool attention_bwd_leaves_sums(const OpCall *call)
{
    if (!operand_present(OUT(call, ATTENTION_BWD, db)) || attention_by_cudnn(call)) return false;
    return attention_bwd_is_native(call) || attention_bwd_is_whole(call);
}

size_t cuda_attention_bwd_scratch(const OpCall *call, const RowCounts *rows)
{
    const Operand *qkv = IN(call, ATTENTION_BWD, qkv), *spans = IN(call, ATTENTION_BWD, spans);
    size_t own = attention_bwd_own_scratch(call, rows);
    if (!operand_present(OUT(call, ATTENTION_BWD, db))) return own;
    size_t of_sequences = static_cast<size_t>(rows_in(spans->rows, rows) * qkv->cols) * sizeof(float);
    size_t of_rows = columns_scratch(rows_in(qkv->rows, rows), qkv->cols);
    return own + (of_sequences > of_rows ? of_sequences : of_rows);
}

/* ---- calls ---- */

static Status attention_bwd(const OpCall *call, const RowCounts *rows)
{
    if (attention_by_cudnn(call)) return attention_cudnn(call, rows);
    if (attention_bwd_is_native(call)) return attention_bwd_wgmma(call, rows);
    if (attention_bwd_is_whole(call)) return attention_bwd_whole(call, rows);
    CUDA_BY_TYPE(IN(call, ATTENTION_BWD, qkv)->dtype, T, {
        Attention<T> a = attention_bwd_of<T>(call, rows);
        return a.head_dim <= 32   ? attention_bwd_launch<T, 32>(a)
               : a.head_dim <= 64 ? attention_bwd_launch<T, 64>(a)
                                  : attention_bwd_launch<T, 128>(a);
    });
}

Status cuda_attention_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *dqkv = OUT(call, ATTENTION_BWD, dqkv), *db = OUT(call, ATTENTION_BWD, db);
    bool begun = BEGINS(call, ATTENTION_BWD, db);
    TRY(attention_bwd(call, rows));
    if (!operand_present(db)) return OK;
    void *parts = static_cast<char *>(call->scratch) + attention_bwd_own_scratch(call, rows);
    if (!attention_bwd_leaves_sums(call)) return columns_add(dqkv, rows, db, begun, parts);
    return columns_add_parts(static_cast<const float *>(parts), rows_in(IN(call, ATTENTION_BWD, spans)->rows, rows),
                             dqkv->cols, {{cuda_data<float>(db)}, begun});
}
