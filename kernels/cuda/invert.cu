/* INVERT: the symmetric sweep operator (Goodnight, 1979), block by block, in the upper triangle. A step has two
   launches: every column is solved with the Cholesky factor of the diagonal's block, which each thread block makes by
   itself; then every tile of the triangle takes its product of solved columns, or, in the rows and columns of the
   diagonal's block, the solution. Sums have one order.

   Whether a pivot was positive is known on the device alone. A matrix with a bad one is swept to its end all the same;
   then one thread block sweeps it again, with ten times the damping, as often as KFAC_TRIES allows: slow, and rare. So
   nothing waits for the host, and a graph can hold all of it. cuSOLVER has neither: its Cholesky factor leaves its
   verdict to the host, and its workspace is not known before there is a GPU. */
#include <math.h>

#include "kernels/cuda/sums.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/kfac.h"

enum {
    SIDE = 64,    /* of the diagonal's block, and of a tile */
    SOLVERS = 64, /* threads of a block that solve, a column each */
    GROUP = 8,    /* rows that are solved in registers */
    THREADS = 256,
    EACH = 4,              /* rows and columns of a tile that a thread has */
    ACROSS = SIDE / EACH,  /* threads along a tile */
    LOADED = 32,           /* rows of solved columns in shared memory at a time */
    STRIDE = SIDE + 4,     /* floats from row to row of the factor */
    PIVOT = SIDE * STRIDE, /* floats of the factor */
    SPACE = SIDE * SOLVERS /* of the columns that are solved; then of those of a tile's rows and columns */
};
static_assert(SPACE >= 2 * LOADED * SIDE, "both need room");
static_assert(THREADS == ACROSS * ACROSS, "a block's threads are a square");

/* What the device knows of a call. */
struct InvertState {
    double scale, gamma;
    float ready;       /* the output *ready after a success */
    int32_t good;      /* the matrix has a damping, and was not given up */
    int32_t bad_pivot; /* in its sweep */
};

struct Sweep {
    float *m;          // (n, n) upper triangle
    float *y, *z;      // (SIDE, n) rows of the diagonal's block, solved half and whole
    const float *sums; // (n, n)
    InvertState *state;
    int64_t n;
};

__device__ static inline int64_t sweep_steps(const Sweep &s) { return (s.n + SIDE - 1) / SIDE; }

/* ---- m = sums·scale + gamma·I ---- */

__device__ static inline void damp(const Sweep &s, double gamma, int64_t first, int64_t stride)
{
    float scale = (float)s.state->scale, diagonal = (float)gamma;
    for (int64_t i = first; i < s.n * s.n; i += stride) {
        float x = s.sums[i] * scale;
        s.m[i] = i / s.n == i % s.n ? x + diagonal : x;
    }
}

__global__ void damp_kernel(Sweep s)
{
    int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    damp(s, s.state->gamma, first, (int64_t)gridDim.x * THREADS);
}

/* ---- a step's columns ---- */

/* r (SIDE, STRIDE) = R and, below the diagonal, Rᵀ, with Rᵀ·R the diagonal's block, by THREADS threads; on the diagonal
   are the reciprocals. Beyond the matrix it is an identity. False: a pivot is not positive. */
__device__ static inline bool factor_pivot(const Sweep &s, int64_t first, float *r)
{
    bool positive = true;
    int down = (int)threadIdx.x / ACROSS, across = (int)threadIdx.x % ACROSS;
    for (int i = (int)threadIdx.x; i < SIDE * SIDE; i += THREADS) {
        int row = i / SIDE, column = i % SIDE;
        bool inside = first + row < s.n && first + column < s.n && column >= row;
        r[row * STRIDE + column] = inside ? s.m[(first + row) * s.n + first + column] : row == column;
    }
    __syncthreads();
    for (int p = 0; p < SIDE; p++) {
        float d = r[p * STRIDE + p], reciprocal = 1 / sqrtf(d);
        positive = positive && d > 0 && d <= FLT_MAX;
        __syncthreads();
        for (int j = p + (int)threadIdx.x; j < SIDE; j += THREADS)
            r[j * STRIDE + p] = r[p * STRIDE + j] = j == p ? reciprocal : r[p * STRIDE + j] * reciprocal;
        __syncthreads();
        for (int row = p + 1 + down; row < SIDE; row += ACROSS)
            for (int column = p + 1 + across; column < SIDE; column += ACROSS)
                if (column >= row)
                    r[row * STRIDE + column] =
                        fmaf(-r[p * STRIDE + row], r[p * STRIDE + column], r[row * STRIDE + column]);
        __syncthreads();
    }
    return positive;
}

/* x = R⁻ᵀ·x (DOWN) or R⁻¹·x, by substitution (kernels/cpu/kfac.c has the reason); x has a row every SOLVERS floats. */
template <bool DOWN> __device__ static inline void substitute(const float *r, float *x)
{
    for (int done = 0; done < SIDE; done += GROUP) {
        int group = DOWN ? done : SIDE - GROUP - done;
        float v[GROUP];
        CUDA_UNROLL for (int i = 0; i < GROUP; i++) v[i] = x[(group + i) * SOLVERS];
        CUDA_UNROLL for (int i = 0; i < GROUP; i++)
        {
            const int a = DOWN ? i : GROUP - 1 - i;
            v[a] *= r[(group + a) * STRIDE + group + a];
            CUDA_UNROLL for (int j = DOWN ? a + 1 : 0; j < (DOWN ? GROUP : a); j++) v[j] =
                fmaf(-r[(group + j) * STRIDE + group + a], v[a], v[j]);
        }
        CUDA_UNROLL for (int i = 0; i < GROUP; i++) x[(group + i) * SOLVERS] = v[i];
        for (int k = DOWN ? group + GROUP : 0; k < (DOWN ? SIDE : group); k++) {
            float sum = x[k * SOLVERS];
            CUDA_UNROLL for (int i = 0; i < GROUP; i++) sum = fmaf(-r[k * STRIDE + group + i], v[i], sum);
            x[k * SOLVERS] = sum;
        }
    }
}

/* y = R⁻ᵀ·w and z = R⁻¹·y of a column. w is the column in the rows of the diagonal's block, in its own columns that of
   an identity. `space`: SPACE floats, of which each of SOLVERS threads has a column. */
__device__ static inline void solve_column(const Sweep &s, int64_t first, int64_t column, const float *r, float *space)
{
    float *x = space + threadIdx.x;
    bool own = column >= first && column < first + SIDE;
    for (int i = 0; i < SIDE; i++) {
        int64_t row = first + i;
        float m = row >= s.n || own ? 0.0f : column < row ? s.m[column * s.n + row] : s.m[row * s.n + column];
        x[i * SOLVERS] = own && column == row ? 1.0f : m;
    }
    substitute<true>(r, x);
    for (int i = 0; i < SIDE; i++) s.y[i * s.n + column] = x[i * SOLVERS];
    substitute<false>(r, x);
    for (int i = 0; i < SIDE; i++) s.z[i * s.n + column] = x[i * SOLVERS];
}

__global__ void __launch_bounds__(THREADS) solve_kernel(Sweep s, int64_t step)
{
    CUDA_SHARED(__align__(16) float, pivot, [PIVOT]);
    CUDA_SHARED(float, space, [SPACE]);
    int64_t column = (int64_t)blockIdx.x * SOLVERS + threadIdx.x;
    bool positive = factor_pivot(s, step * SIDE, pivot);
    if (threadIdx.x < SOLVERS && column < s.n) solve_column(s, step * SIDE, column, pivot, space);
    if (blockIdx.x == 0 && threadIdx.x == 0 && !positive) s.state->bad_pivot = 1;
}

/* ---- a step's tiles ---- */

/* Tile (i, j) of the triangle, by THREADS threads. Elements below the diagonal are never read. */
__device__ static inline void sweep_tile(const Sweep &s, int64_t step, int64_t i, int64_t j, float *space)
{
    int64_t rows = i * SIDE, columns = j * SIDE, pivot = step * SIDE;
    int down = (int)threadIdx.x / ACROSS * EACH, across = (int)threadIdx.x % ACROSS * EACH;
    float sum[EACH][EACH] = {}, *left = space, *right = space + LOADED * SIDE;
    for (int part = 0; part < SIDE && i != step && j != step; part += LOADED) {
        __syncthreads();
        for (int e = (int)threadIdx.x; e < LOADED * SIDE; e += THREADS) {
            const float *y = s.y + (part + e / SIDE) * s.n;
            int64_t row = rows + e % SIDE, column = columns + e % SIDE;
            left[e] = row < s.n ? y[row] : 0.0f;
            right[e] = column < s.n ? y[column] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < LOADED; k++)
            CUDA_UNROLL for (int a = 0; a < EACH; a++) CUDA_UNROLL for (int b = 0; b < EACH; b++) sum[a][b] =
                fmaf(left[k * SIDE + down + a], right[k * SIDE + across + b], sum[a][b]);
    }
    CUDA_UNROLL for (int a = 0; a < EACH; a++) CUDA_UNROLL for (int b = 0; b < EACH; b++)
    {
        int64_t row = rows + down + a, column = columns + across + b;
        if (row >= s.n || column >= s.n) continue;
        float *m = &s.m[row * s.n + column];
        if (i == step)
            *m = j == step ? -s.z[(row - pivot) * s.n + column] : s.z[(row - pivot) * s.n + column];
        else
            *m = j == step ? s.z[(column - pivot) * s.n + row] : *m - sum[a][b];
    }
}

__global__ void __launch_bounds__(THREADS) tile_kernel(Sweep s, int64_t step)
{
    CUDA_SHARED(__align__(16) float, space, [SPACE]);
    if (blockIdx.y <= blockIdx.x) sweep_tile(s, step, blockIdx.y, blockIdx.x, space);
}

/* ---- a matrix with a bad pivot, by one thread block ---- */

__global__ void __launch_bounds__(THREADS, 1) sweep_again_kernel(Sweep s)
{
    CUDA_SHARED(__align__(16) float, pivot, [PIVOT]);
    CUDA_SHARED(__align__(16) float, space, [SPACE]);
    bool positive = !s.state->bad_pivot || !s.state->good;
    double gamma = s.state->gamma;
    for (int tried = 1; tried < KFAC_TRIES && !positive; tried++) {
        damp(s, gamma *= 10, threadIdx.x, THREADS);
        __syncthreads();
        positive = true;
        for (int64_t step = 0; step < sweep_steps(s) && positive; step++) {
            positive = factor_pivot(s, step * SIDE, pivot);
            for (int64_t column = threadIdx.x; threadIdx.x < SOLVERS && column < s.n; column += SOLVERS)
                solve_column(s, step * SIDE, column, pivot, space);
            __syncthreads();
            for (int64_t i = 0; i < sweep_steps(s); i++)
                for (int64_t j = i; j < sweep_steps(s); j++) sweep_tile(s, step, i, j, space);
            __syncthreads();
        }
    }
    if (threadIdx.x == 0 && !positive) s.state->good = 0;
}

/* ---- the op ---- */

__device__ static inline double block_trace(const float *sums, int64_t n, double *shared)
{
    double mine = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) mine += (double)sums[i * n + i];
    return block_sum_double(mine, shared);
}

/* One block. Of B the damping is in `ready`. */
__global__ void begin_kernel(InvertState *state, const float *a, const float *b, const float *ready, OpAttr attr,
                             const Ctl *ctl)
{
    CUDA_SHARED(double, shared, [32]);
    double traces[2] = {0, 0}, scale[2], gamma[2] = {0, 0};
    for (int i = 0; i < 2 && !attr.kfac.of_output; i++)
        traces[i] = block_trace(i ? b : a, i ? attr.kfac.n : attr.kfac.k, shared);
    if (threadIdx.x != 0) return;
    kfac_scales(ctl, scale);
    if (attr.kfac.of_output)
        *state = {scale[1], (double)*ready, 1.0f, *ready > 0, 0};
    else
        *state = {scale[0], 0, 0, kfac_damping(attr, traces, scale, gamma), 0};
    if (attr.kfac.of_output) return;
    state->gamma = gamma[0];
    state->ready = (float)gamma[1];
}

/* to = −m, both triangles. */
__global__ void mirror_kernel(Sweep s, float *to, float *ready)
{
    int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (int64_t i = first; i < s.n * s.n; i += (int64_t)gridDim.x * THREADS) {
        int64_t row = i / s.n, column = i % s.n;
        to[i] = -(row <= column ? s.m[i] : s.m[column * s.n + row]);
    }
    if (first == 0) *ready = s.state->good ? s.state->ready : 0.0f;
}

struct InvertScratch {
    InvertState *state;
    float *m, *y, *z;
    size_t bytes;
};

static InvertScratch invert_scratch(const OpCall *call)
{
    unsigned char *base = static_cast<unsigned char *>(call->scratch);
    int64_t n = op_inverse_side(call);
    size_t state = cuda_align(sizeof(InvertState)), rows = cuda_align((size_t)(SIDE * n) * sizeof(float));
    size_t matrix = cuda_align((size_t)(n * n) * sizeof(float));
    auto at = [&](size_t offset) { return reinterpret_cast<float *>(base + state + offset); };
    return {reinterpret_cast<InvertState *>(base), at(0), at(matrix), at(matrix + rows), state + matrix + 2 * rows};
}

size_t cuda_invert_scratch(const OpCall *call, const RowCounts *) { return invert_scratch(call).bytes; }

Status cuda_invert(const OpCall *call, const RowCounts *)
{
    InvertScratch x = invert_scratch(call);
    const Operand *from = IN(call, INVERT, from);
    float *a = cuda_data<float>(OUT(call, INVERT, a)), *b = cuda_data<float>(OUT(call, INVERT, b));
    float *ready = cuda_data<float>(OUT(call, INVERT, ready)), *to = call->attr.kfac.of_output ? b : a;
    const float *of_a = operand_present(from) ? cuda_data<const float>(from) : a;
    Sweep s = {x.m, x.y, x.z, call->attr.kfac.of_output ? b : of_a, x.state, op_inverse_side(call)};
    int64_t steps = (s.n + SIDE - 1) / SIDE;
    unsigned all = min(cuda_blocks(s.n * s.n, THREADS), 4096u);
    (void)cuda_scratch(call, x.bytes);
    TRY(CUDA_LAUNCH((begin_kernel), 1, THREADS, 0, x.state, of_a, b, ready, call->attr, op_ctl(call)));
    TRY(CUDA_LAUNCH((damp_kernel), all, THREADS, 0, s));
    for (int64_t step = 0; step < steps; step++) {
        TRY(CUDA_LAUNCH((solve_kernel), cuda_blocks(s.n, SOLVERS), THREADS, 0, s, step));
        TRY(CUDA_LAUNCH((tile_kernel), dim3((unsigned)steps, (unsigned)steps), THREADS, 0, s, step));
    }
    TRY(CUDA_LAUNCH((sweep_again_kernel), 1, THREADS, 0, s));
    return CUDA_LAUNCH((mirror_kernel), all, THREADS, 0, s, to, ready);
}
