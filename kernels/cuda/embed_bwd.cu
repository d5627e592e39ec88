/* EMBED_BWD, without atomics: for each of the three tables the tokens are sorted by its index (stable, one block a
   table). A block takes 32 neighbours of that order, makes each token's gradient again from the tables and dx, as the
   forward did, and sums runs of one index. A run that ends within the block's tokens is added to the table at once; one
   that continues beyond them leaves a piece, and another kernel adds the pieces of a run. The pass over the types also
   sums γ's and β's gradients, and runs without their table too. So each sum's order depends on the tokens alone. A
   token that names no row of some table adds nothing. Bytes per element in bf16: 18 (thrice word and dx), 2 for pieces
   and parts at most, and 8 per element of each table row that some token names; scratch is 1 byte per element of x. */
#include "kernels/cuda/embed.cuh"

#include "kernels/cuda/cuda.h"

/* ---- scratch ---- */

enum {
    CHUNK = 32 /* tokens of a block */,
    PIECES = 2 /* of a chunk: a run that began before it, one that continues */
};

struct EmbedSorted {
    int32_t *order, *key, *spare; // (T): tokens in the order of their keys; these keys
};

struct EmbedBwd {
    Embed e;
    EmbedSorted sorted[N_TABLES];
    float *gradient[N_TABLES]; // (n, H)
    float *pieces;             // (tables, chunks, 2, H)
    float *parts;              // (chunks, 2, H): of γ's and β's gradients
    int64_t chunks;
};

/* Lays scratch out; returns its bytes. */
static size_t embed_bwd_scratch(const OpCall *call, EmbedBwd *b)
{
    unsigned char *base = static_cast<unsigned char *>(call->scratch);
    size_t bytes = 0;
    auto take = [&](int64_t n) {
        unsigned char *p = base ? base + bytes : nullptr;
        bytes += ((size_t)n * 4 + 63) / 64 * 64;
        return p;
    };
    b->chunks = (b->e.rows + CHUNK - 1) / CHUNK;
    for (int i = 0; i < N_TABLES; i++) {
        b->sorted[i].order = reinterpret_cast<int32_t *>(take(b->e.rows));
        b->sorted[i].key = reinterpret_cast<int32_t *>(take(b->e.rows));
        b->sorted[i].spare = reinterpret_cast<int32_t *>(take(b->e.rows));
    }
    b->pieces = reinterpret_cast<float *>(take(N_TABLES * b->chunks * PIECES * b->e.cols));
    b->parts = reinterpret_cast<float *>(take(b->chunks * 2 * b->e.cols));
    return bytes;
}

size_t cuda_embed_bwd_scratch(const OpCall *call, const RowCounts *rows)
{
    EmbedBwd b = {};
    b.e = embed_of(call, rows);
    return embed_bwd_scratch(call, &b);
}

/* ---- sorting: one block per table, from the lowest digit up ---- */

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, SORT_WARPS = 32, SORT_THREADS = SORT_WARPS * CUDA_WARP };
enum { SORT_EACH = DIGITS * SORT_WARPS / SORT_THREADS }; /* counts that a thread sums */

/* The row of the table that the token names; the number of rows if it names none. */
__device__ static inline int32_t embed_key(const EmbedTable &t, int32_t token)
{
    int32_t at = t.index[token];
    return at >= 0 && at < t.n ? at : (int32_t)t.n;
}

/* Lanes of the warp that have the same digit; of those with `there` only. All lanes must call. */
__device__ static inline unsigned same_digit(int digit, bool there)
{
    unsigned peers = __ballot_sync(CUDA_FULL, there);
    CUDA_UNROLL for (int bit = 0; bit < DIGIT_BITS; bit++)
    {
        unsigned set = __ballot_sync(CUDA_FULL, digit >> bit & 1);
        peers &= digit >> bit & 1 ? set : ~set;
    }
    return peers;
}

/* count (warps, digits): how many, of each warp and digit → how many come before them, digits first, then warps. */
__device__ static inline void count_before(int32_t *count, int32_t *totals)
{
    int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    int digit = (int)threadIdx.x * SORT_EACH / SORT_WARPS, first = (int)threadIdx.x * SORT_EACH % SORT_WARPS;
    int32_t mine[SORT_EACH], all = 0;
    CUDA_UNROLL for (int i = 0; i < SORT_EACH; i++)
    {
        mine[i] = count[(first + i) * DIGITS + digit];
        all += mine[i];
    }
    int32_t before = all; /* the sum of the lanes up to this one */
    for (int step = 1; step < CUDA_WARP; step *= 2) {
        int32_t other = __shfl_up_sync(CUDA_FULL, before, (unsigned)step);
        if (lane >= step) before += other;
    }
    if (lane == CUDA_WARP - 1) totals[warp] = before;
    __syncthreads();
    before -= all;
    for (int w = 0; w < warp; w++) before += totals[w];
    CUDA_UNROLL for (int i = 0; i < SORT_EACH; i++)
    {
        count[(first + i) * DIGITS + digit] = before;
        before += mine[i];
    }
    __syncthreads();
}

/* Each warp has a part of the tokens in their order so far. It counts its digits, sums the counts before them, and
   reads its part again to place the tokens. */
__global__ void __launch_bounds__(SORT_THREADS) embed_sort_kernel(EmbedBwd b)
{
    CUDA_SHARED(int32_t, count, [SORT_WARPS * DIGITS]);
    CUDA_SHARED(int32_t, totals, [SORT_WARPS]);
    EmbedTable table = b.e.table[blockIdx.x];
    EmbedSorted s = b.sorted[blockIdx.x];
    int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP, passes = 1;
    int64_t n = embed_tokens(b.e), each = (n + SORT_THREADS - 1) / SORT_THREADS * CUDA_WARP;
    int64_t first = warp * each, end = min(first + each, n);
    for (int64_t reach = DIGITS; reach <= table.n; reach *= DIGITS) passes++;
    const int32_t *from = nullptr; /* the tokens as they come */
    int32_t *own = count + warp * DIGITS;
    for (int pass = 0; pass < passes; pass++) {
        int32_t *to = (passes - pass) % 2 ? s.order : s.spare;
        for (int i = (int)threadIdx.x; i < SORT_WARPS * DIGITS; i += SORT_THREADS) count[i] = 0;
        __syncthreads();
        for (int place = 0; place < 2; place++) {
            for (int64_t i = first; i < end; i += CUDA_WARP) {
                bool there = i + lane < end;
                int32_t token = !there ? 0 : from ? from[i + lane] : (int32_t)(i + lane);
                int32_t key = there ? embed_key(table, token) : 0;
                int digit = key >> (pass * DIGIT_BITS) & (DIGITS - 1);
                unsigned peers = same_digit(digit, there), lower = peers & ((1u << lane) - 1);
                int32_t at = there ? own[digit] + __popc(lower) : 0;
                if (there && place) {
                    to[at] = token;
                    if (pass == passes - 1) s.key[at] = key;
                }
                __syncwarp();
                if (there && lower == 0) own[digit] += __popc(peers);
                __syncwarp();
            }
            __syncthreads();
            if (!place) count_before(count, totals);
        }
        from = to;
    }
}

/* ---- sums of runs ---- */

/* Chunk c of the sorted tokens of a table: positions first … first + n − 1. */
struct EmbedChunk {
    int64_t first;
    int n;
    int32_t before, behind; /* the keys next to it; −1: none */
};

__device__ static inline EmbedChunk embed_chunk(const EmbedBwd &b, int table, int64_t c)
{
    int64_t first = c * CHUNK, left = embed_tokens(b.e) - first;
    int n = left < 0 ? 0 : left < CHUNK ? (int)left : (int)CHUNK;
    const int32_t *key = b.sorted[table].key;
    return {first, n, n && first > 0 ? key[first - 1] : -1, left > CHUNK ? key[first + CHUNK] : -1};
}

__device__ static inline float *embed_piece(const EmbedBwd &b, int table, int64_t c, int which)
{
    return b.pieces + ((table * b.chunks + c) * PIECES + which) * b.e.cols;
}

/* Adds a token's gradient to `sum`, and to γ's and β's. */
template <typename T, typename S>
__device__ static inline void embed_add(const Embed &e, const T *dx, const EmbedToken &t, bool norms,
                                        float (&sum)[S::groups][GROUP], float (&dgamma)[S::groups][GROUP],
                                        float (&dbeta)[S::groups][GROUP], float *sums)
{
    int64_t n = e.cols;
    Dropout dropout = dropout_now(e.dropout, e.ctl);
    float xhat[S::groups][GROUP], ds[S::groups][GROUP];
    CUDA_UNROLL for (int i = 0; i < S::groups; i++) S::load(dx + t.row * n, i, n, ds[i]);
    float rstd = embed_xhat<S>(e, t, xhat, sums);
    CUDA_UNROLL for (int i = 0; i < S::groups; i++)
    {
        float gamma[GROUP] = {};
        S::load_constant(e.gamma, i, n, gamma);
        if (S::column(i) < n) drop_group(ds[i], dropout, S::column(i), t.at[POSITION], t.sequence);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++)
        {
            if (norms) {
                dgamma[i][k] += ds[i][k] * xhat[i][k];
                dbeta[i][k] += ds[i][k];
            }
            ds[i][k] *= gamma[k];
        }
    }
    row_normalise_bwd<S>(ds, xhat, rstd, n, sums);
    CUDA_UNROLL for (int i = 0; i < S::groups; i++) CUDA_UNROLL for (int k = 0; k < GROUP; k++) sum[i][k] += ds[i][k];
}

/* Blocks: (chunks, tables). */
template <typename T, typename S>
__global__ void __launch_bounds__(S::threads) embed_bwd_kernel(EmbedBwd b, const T *dx)
{
    CUDA_SHARED(float, sums, [S::warps]);
    CUDA_SHARED(EmbedToken, tokens, [CHUNK]);
    int64_t n = b.e.cols, c = blockIdx.x;
    int table = (int)blockIdx.y;
    bool norms = table == TYPE;
    EmbedChunk chunk = embed_chunk(b, table, c);
    if ((int)threadIdx.x < chunk.n)
        tokens[threadIdx.x] = embed_token(b.e, b.sorted[table].order[chunk.first + threadIdx.x]);
    __syncthreads();
    float sum[S::groups][GROUP] = {}, dgamma[S::groups][GROUP] = {}, dbeta[S::groups][GROUP] = {};
    const int32_t *key = b.sorted[table].key + chunk.first;
    bool began_before = chunk.n && key[0] == chunk.before;
    int readable = chunk.n + (chunk.behind >= 0); // keys; CHUNK + 1 where a chunk follows
    for (int i = 0; i < min(readable, int{CHUNK}); i++) {
        if (tokens[i].known) embed_add<T, S>(b.e, dx, tokens[i], norms, sum, dgamma, dbeta, sums);
        int32_t next = i + 1 < readable ? key[i + 1] : -1;
        bool continues = i + 1 == CHUNK && next == key[i];
        if (next == key[i] && !continues) continue;
        bool whole = !began_before && !continues, named = key[i] < b.e.table[table].n;
        float *to = whole ? b.gradient[table] + key[i] * n : embed_piece(b, table, c, began_before ? 0 : 1);
        CUDA_UNROLL for (int g = 0; g < S::groups; g++)
        {
            float old[GROUP] = {};
            if (whole && named) S::load(to, g, n, old);
            CUDA_UNROLL for (int k = 0; k < GROUP; k++)
            {
                old[k] += sum[g][k];
                sum[g][k] = 0;
            }
            if (named) S::store(to, g, n, old);
        }
        began_before = false;
    }
    if (!norms) return;
    CUDA_UNROLL for (int i = 0; i < S::groups; i++)
    {
        S::store(b.parts + c * 2 * n, i, n, dgamma[i]);
        S::store(b.parts + (c * 2 + 1) * n, i, n, dbeta[i]);
    }
}

/* The pieces of the run that begins in this block's chunk and continues, if there is one: a warp adds every eighth,
   then the warps from first to last. Blocks: (chunks, columns / 256, tables). */
enum { PIECE_WARPS = 8, PIECE_THREADS = PIECE_WARPS * CUDA_WARP, PIECE_COLS = CUDA_WARP * GROUP };

__global__ void __launch_bounds__(PIECE_THREADS) embed_pieces_kernel(EmbedBwd b, bool wide)
{
    CUDA_SHARED(float, sums, [PIECE_WARPS][PIECE_COLS]);
    int table = (int)blockIdx.z, lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    int64_t c = blockIdx.x, n = b.e.cols, column = (int64_t)blockIdx.y * PIECE_COLS + lane * GROUP;
    EmbedChunk chunk = embed_chunk(b, table, c);
    if (chunk.n < CHUNK || chunk.behind < 0) return;
    const int32_t *key = b.sorted[table].key;
    int32_t run = key[chunk.first + CHUNK - 1];
    if (run != chunk.behind || run == chunk.before || run >= b.e.table[table].n) return;
    int64_t low = c + 1, high = b.chunks; /* the run is in chunk `low`, in `high` not */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (middle * CHUNK < embed_tokens(b.e) && key[middle * CHUNK] == run)
            low = middle;
        else
            high = middle;
    }
    float sum[GROUP] = {};
    CUDA_UNROLL for (int64_t i = c + warp; i <= low; i += PIECE_WARPS)
    {
        float v[GROUP] = {};
        if (column < n) load_group(embed_piece(b, table, i, i == c ? 1 : 0) + column, n - column, wide, v);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) sum[k] += v[k];
    }
    CUDA_UNROLL for (int k = 0; k < GROUP; k++) sums[warp][k * CUDA_WARP + lane] = sum[k];
    __syncthreads();
    if (warp != 0 || column >= n) return;
    float *to = b.gradient[table] + run * n + column, all[GROUP];
    load_group(to, n - column, wide, all);
    CUDA_UNROLL for (int k = 0; k < GROUP; k++)
    {
        float added = 0;
        CUDA_UNROLL for (int w = 0; w < PIECE_WARPS; w++) added += sums[w][k * CUDA_WARP + lane];
        all[k] += added;
    }
    store_group(to, n - column, wide, all);
}

/* ---- the op ---- */

/* ROWS_BY_SHAPE for blocks of one row. */
#define EMBED_BWD_BY_SHAPE(cols_, whole_, S, ...)                                                                      \
    do {                                                                                                               \
        ROWS_CASE(!(whole_) && (cols_) <= 1024, 4, 1, false, S, __VA_ARGS__)                                           \
        ROWS_CASE(!(whole_), 16, 2, false, S, __VA_ARGS__)                                                             \
        ROWS_CASE((cols_) <= 1024, 4, 1, true, S, __VA_ARGS__)                                                         \
        ROWS_CASE((cols_) <= 2048, 8, 1, true, S, __VA_ARGS__)                                                         \
        ROWS_SHAPE(16, 2, true, S, __VA_ARGS__)                                                                        \
    } while (0)

template <typename T> static Status embed_bwd(const OpCall *call, const RowCounts *rows)
{
    const T *dx = cuda_data<const T>(IN(call, EMBED_BWD, dx));
    EmbedBwd b = {};
    b.e = embed_of(call, rows);
    (void)cuda_scratch(call, embed_bwd_scratch(call, &b));
    b.gradient[WORD] = cuda_data<float>(OUT(call, EMBED_BWD, dword));
    b.gradient[POSITION] = cuda_data<float>(OUT(call, EMBED_BWD, dposition));
    b.gradient[TYPE] = cuda_data<float>(OUT(call, EMBED_BWD, dtype));
    int64_t cols = b.e.cols;
    bool whole = embed_whole(b.e) && on_16(dx, b.pieces, b.gradient[WORD], b.gradient[POSITION], b.gradient[TYPE]);
    TRY(CUDA_LAUNCH((embed_sort_kernel), N_TABLES, SORT_THREADS, 0, b));
    EMBED_BWD_BY_SHAPE(
        cols, whole, S,
        TRY(CUDA_LAUNCH((embed_bwd_kernel<T, S>), dim3((unsigned)b.chunks, N_TABLES), S::threads, 0, b, dx)));
    unsigned tiles = (unsigned)((cols + PIECE_COLS - 1) / PIECE_COLS);
    TRY(CUDA_LAUNCH((embed_pieces_kernel), dim3((unsigned)b.chunks, tiles, N_TABLES), PIECE_THREADS, 0, b, whole));
    return columns_add_parts(
        b.parts, b.chunks, cols,
        {{cuda_data<float>(OUT(call, EMBED_BWD, dgamma)), cuda_data<float>(OUT(call, EMBED_BWD, dbeta))}});
}

Status cuda_embed_bwd(const OpCall *call, const RowCounts *rows)
{
    TRY(rows_check(call, IN(call, EMBED_BWD, dx)->cols));
    CUDA_BY_TYPE(IN(call, EMBED_BWD, dx)->dtype, T, return embed_bwd<T>(call, rows));
}
