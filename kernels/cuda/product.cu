/* Products by cuBLASLt, which is loaded when the backend is opened: without it the program starts, and the message says
   what is missing. Its matrices are column-major: our row-major c = a·b is its cᵀ = bᵀ·aᵀ, so operands change places.
 */
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/product.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <map>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/choices.h"

#define LIBRARY_VERSION(major) "libcublasLt.so." #major
#define LIBRARY_OF(major)      LIBRARY_VERSION(major)
#define LIBRARY                LIBRARY_OF(CUBLAS_VER_MAJOR)

#define LT_LIST(X)                                                                                                     \
    X(cublasLtCreate)                                                                                                  \
    X(cublasLtDestroy)                                                                                                 \
    X(cublasLtGetVersion)                                                                                              \
    X(cublasLtGetStatusName)                                                                                           \
    X(cublasLtMatmul)                                                                                                  \
    X(cublasLtMatmulDescCreate)                                                                                        \
    X(cublasLtMatmulDescDestroy)                                                                                       \
    X(cublasLtMatmulDescSetAttribute)                                                                                  \
    X(cublasLtMatrixLayoutCreate)                                                                                      \
    X(cublasLtMatrixLayoutDestroy)                                                                                     \
    X(cublasLtMatmulPreferenceCreate)                                                                                  \
    X(cublasLtMatmulPreferenceDestroy)                                                                                 \
    X(cublasLtMatmulPreferenceSetAttribute)                                                                            \
    X(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
    X(cublasLtMatmulAlgoCheck)                                                                                         \
    X(cublasLtMatmulAlgoConfigGetAttribute)

static struct {
#define X(function) decltype(&::function) function;
    LT_LIST(X)
#undef X
} lt;

#define CANDIDATES 12
#define ALIGNMENT  16u                 /* of operands, in bytes */
#define BIAS_ROOM  ((size_t)256 << 10) /* of the workspace: a bias rounded to c's type */

typedef enum { BY_LIBRARY, BY_LOOPS } Maker;

/* What is prepared for a shape. */
typedef struct {
    Maker maker;
    bool timed, bias_rounded;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c; /* of the library's a and b: our b and a */
    cublasLtMatmulAlgo_t algorithm;
} Prepared;

static struct {
    void *library;
    cublasLtHandle_t handle;
    size_t workspace;
    bool tf32;
    bool any_order; /* CAIRN_CUDA_ANY_ORDER: also algorithms that add in an order of chance, to see what a fixed one
                       costs */
    char describe[64];
    std::map<ProductKey, Prepared> prepared;
} products;

const char *product_describe(void) { return products.describe; }
size_t product_workspace(void) { return products.workspace + BIAS_ROOM; }

static Status check(cublasStatus_t status, const char *what)
{
    return status == CUBLAS_STATUS_SUCCESS ? OK
                                           : fail(E_FAIL, "cuBLASLt: %s: %s", what, lt.cublasLtGetStatusName(status));
}

/* ---- opening ---- */

static Status load(void)
{
    if (!products.library) products.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!products.library)
        return fail(E_USAGE,
                    "backend 'cuda': cuBLASLt cannot be loaded: %s. Install CUDA %d's libraries, or name their folder "
                    "in LD_LIBRARY_PATH",
                    dlerror(), CUBLAS_VER_MAJOR);
    const char *missing = NULL;
#define X(function)                                                                                                    \
    *reinterpret_cast<void **>(&lt.function) = dlsym(products.library, #function);                                     \
    if (!lt.function) missing = #function;
    LT_LIST(X)
#undef X
    if (missing)
        return fail(E_USAGE,
                    "backend 'cuda': %s is too old: it has no %s. Install CUDA %d's libraries, or name their folder in "
                    "LD_LIBRARY_PATH",
                    LIBRARY, missing, CUBLAS_VER_MAJOR);
    size_t version = lt.cublasLtGetVersion();
    if (version / 10000 >= CUBLAS_VER_MAJOR) return OK;
    return fail(E_USAGE,
                "backend 'cuda': %s is too old: it is of version %zu.%zu, and %d.0 or newer is needed. Install CUDA "
                "%d's libraries, or name their folder in LD_LIBRARY_PATH",
                LIBRARY, version / 10000, version / 100 % 100, CUBLAS_VER_MAJOR, CUBLAS_VER_MAJOR);
}

/* NVIDIA's recommended workspace: 32 MiB from sm_90 on, else 8 MiB. */
static size_t advised_workspace(int major) { return (size_t)(major >= 9 ? 32 : 8) << 20; }

void product_imagine(int major)
{
    if (!products.handle) products.workspace = advised_workspace(major);
}

Status product_open(bool tf32)
{
    if (products.handle && tf32 != products.tf32)
        return fail(E_USAGE, "backend 'cuda': it is open with products of fp32 made in another way; close it first");
    TRY(load());
    if (products.handle) return OK;
    products.tf32 = tf32;
    TRY(check(lt.cublasLtCreate(&products.handle), "creating a handle"));
    const DeviceInfo *gpu = device_info();
    int version = (int)lt.cublasLtGetVersion();
    const char *any_order = getenv("CAIRN_CUDA_ANY_ORDER");
    products.any_order = any_order && *any_order && strcmp(any_order, "0") != 0;
    products.workspace = advised_workspace(gpu->major);
    snprintf(products.describe, sizeof products.describe, "cuBLASLt %d.%d.%d%s%s", version / 10000, version / 100 % 100,
             version % 100, tf32 ? ", TF32" : "", products.any_order ? ", sums in any order" : "");
    char *about = mem_printf("%s, sm_%d%d, %d multiprocessors, %s", gpu->name, gpu->major, gpu->minor,
                             gpu->multiprocessors, products.describe);
    choices_open(about);
    free(about);
    return OK;
}

static void forget(Prepared *p)
{
    if (p->desc) lt.cublasLtMatmulDescDestroy(p->desc);
    if (p->a) lt.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) lt.cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) lt.cublasLtMatrixLayoutDestroy(p->c);
    *p = {};
}

void product_close(void)
{
    choices_close();
    for (auto &p : products.prepared) forget(&p.second);
    products.prepared.clear();
    if (products.handle) lt.cublasLtDestroy(products.handle);
    products.handle = NULL;
}

/* ---- without the library: for the odd shape that it does not take ---- */

template <typename T, typename C>
__global__ void loops_kernel(const T *a, const T *b, C *c, const float *bias, int64_t m, int64_t n, int64_t k,
                             int64_t a_row, int64_t a_step, int64_t b_column, int64_t b_step, int64_t ldc,
                             bool accumulate)
{
    int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (j >= n) return;
    for (; i < m; i += (int64_t)gridDim.y * blockDim.y) {
        float sum = 0;
        for (int64_t l = 0; l < k; l++)
            sum = fmaf(to_float(a[i * a_row + l * a_step]), to_float(b[j * b_column + l * b_step]), sum);
        if (bias) sum += bias[j];
        if (accumulate) sum += to_float(c[i * ldc + j]);
        c[i * ldc + j] = from_float<C>(sum);
    }
}

template <typename T, typename C> static Status by_loops(const ProductShape *s, const ProductData *d)
{
    int64_t down = (s->m + 7) / 8;
    dim3 block(32, 8), grid((unsigned)((s->n + 31) / 32), (unsigned)(down < 65535 ? down : 65535));
    return CUDA_LAUNCH((loops_kernel<T, C>), grid, block, 0, static_cast<const T *>(d->a), static_cast<const T *>(d->b),
                       static_cast<C *>(d->c), s->bias == BIAS_ADDED ? d->bias : NULL, s->m, s->n, s->k,
                       s->a_transposed ? 1 : s->lda, s->a_transposed ? s->lda : 1, s->b_transposed ? s->ldb : 1,
                       s->b_transposed ? 1 : s->ldb, s->ldc, s->accumulate);
}

/* ---- with it ---- */

template <typename T> __global__ void round_kernel(const float *from, T *to, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from_float<T>(from[i]);
}

static cudaDataType_t type_of(Dtype dtype)
{
    return dtype == F32 ? CUDA_R_32F : dtype == BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

template <typename T> static Status desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, T value)
{
    return check(lt.cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof value), "describing a product");
}

static Status layout(cublasLtMatrixLayout_t *l, Dtype dtype, int64_t rows, int64_t columns, bool transposed, int64_t ld)
{
    return check(lt.cublasLtMatrixLayoutCreate(l, type_of(dtype), (uint64_t)(transposed ? columns : rows),
                                               (uint64_t)(transposed ? rows : columns), ld),
                 "describing a matrix");
}

static Status describe(const ProductShape *s, bool bias_rounded, Prepared *p)
{
    *p = {};
    p->bias_rounded = bias_rounded;
    bool tf32 = products.tf32 && s->in == F32;
    TRY(check(
        lt.cublasLtMatmulDescCreate(&p->desc, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing a product"));
    TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, s->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, s->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    if (s->bias == BIAS_ADDED) {
        TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
        TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)type_of(bias_rounded ? s->out : F32)));
        TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void *>((uintptr_t)ALIGNMENT)));
    }
    TRY(layout(&p->a, s->in, s->n, s->k, s->b_transposed, s->ldb));
    TRY(layout(&p->b, s->in, s->k, s->m, s->a_transposed, s->lda));
    return layout(&p->c, s->out, s->n, s->m, false, s->ldc);
}

/* Sums in one go, or in parts that are kept in fp32 and added in a step of their own: both have a fixed order. */
static bool fixed_order(const cublasLtMatmulAlgo_t *algorithm)
{
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_MASK;
    size_t written = 0;
    if (products.any_order) return true;
    return lt.cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                                   sizeof scheme, &written) == CUBLAS_STATUS_SUCCESS &&
           (scheme == CUBLASLT_REDUCTION_SCHEME_NONE || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

/* The library's proposals, best first by its own estimate; 0 where it cannot make this product. */
static int propose(const Prepared *p, cublasLtMatmulHeuristicResult_t found[CANDIDATES])
{
    cublasLtMatmulPreference_t preference = NULL;
    const uint32_t alignment = ALIGNMENT;
    const uint32_t schemes =
        products.any_order ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint64_t workspace = products.workspace;
    int n = 0, kept = 0;
    if (lt.cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS) return 0;
    auto wish = [&](cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t size) {
        (void)lt.cublasLtMatmulPreferenceSetAttribute(preference, what, value, size);
    };
    wish(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    wish(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment);
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment);
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment);
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment);
    if (lt.cublasLtMatmulAlgoGetHeuristic(products.handle, p->desc, p->a, p->b, p->c, p->c, preference, CANDIDATES,
                                          found, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    lt.cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= products.workspace &&
            fixed_order(&found[i].algo))
            found[kept++] = found[i];
    return kept;
}

static Status product_multiply(const ProductShape *s, const Prepared *p, const ProductData *d)
{
    const float one = 1, beta = s->accumulate ? 1 : 0;
    if (p->maker == BY_LOOPS) {
        CUDA_BY_TYPE(s->in, T, {
            if (s->out == F32) return by_loops<T, float>(s, d);
            return by_loops<T, T>(s, d);
        });
    }
    if (s->bias == BIAS_ADDED) {
        const void *bias = d->bias;
        if (p->bias_rounded) {
            void *room = static_cast<char *>(d->workspace) + products.workspace;
            CUDA_BY_TYPE(s->out, T,
                         TRY(CUDA_LAUNCH((round_kernel<T>), (unsigned)((s->n + 255) / 256), 256, 0, d->bias,
                                         static_cast<T *>(room), s->n)));
            bias = room;
        }
        TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
    }
    return check(lt.cublasLtMatmul(products.handle, p->desc, &one, d->b, p->a, d->a, p->b, &beta, d->c, p->c, d->c,
                                   p->c, &p->algorithm, d->workspace, products.workspace, (cudaStream_t)cuda_stream()),
                 "a product");
}

/* ---- choosing ---- */

#define ROUNDS 3
#define REPEAT 4

/* Seconds of one run: the best of some rounds. Negative: it cannot be run. */
static double seconds_of(const ProductShape *s, const Prepared *p, const ProductData *d, cudaEvent_t start,
                         cudaEvent_t end)
{
    cudaStream_t stream = (cudaStream_t)cuda_stream();
    double best = -1;
    if (product_multiply(s, p, d) != OK) return -1;
    for (int round = 0; round < ROUNDS; round++) {
        float milliseconds = 0;
        if (cudaEventRecord(start, stream) != cudaSuccess) return -1;
        for (int i = 0; i < REPEAT; i++)
            if (product_multiply(s, p, d) != OK) return -1;
        if (cudaEventRecord(end, stream) != cudaSuccess || cudaEventSynchronize(end) != cudaSuccess ||
            cudaEventElapsedTime(&milliseconds, start, end) != cudaSuccess)
            return -1;
        double seconds = (double)milliseconds * 1e-3 / REPEAT;
        if (best < 0 || seconds < best) best = seconds;
    }
    return best;
}

template <typename T> __global__ void small_numbers_kernel(T *x, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        x[i] = from_float<T>((float)(int32_t)((uint32_t)i * 2654435761u ^ (uint32_t)(i >> 7) * 40503u) * 0x1p-37f);
}

/* A matrix of small random numbers in memory of its own (`own`): zeros, which operands hold when a plan is bound, run
   faster. Without that memory it is the operand itself, and `own` is NULL. */
static const void *filled(Dtype dtype, int64_t elements, const void *operand, void **own)
{
    Status status = device_alloc(NULL, (size_t)elements * dtype_size(dtype), own);
    if (status == OK)
        CUDA_BY_TYPE(dtype, T,
                     status = CUDA_LAUNCH((small_numbers_kernel<T>), 1024, 256, 0, static_cast<T *>(*own), elements));
    else
        *own = NULL;
    if (status == OK) return *own;
    device_release(NULL, *own, 0);
    *own = NULL;
    return operand;
}

static Status time_each(const ProductShape *s, Prepared *p, const ProductData *d,
                        const cublasLtMatmulHeuristicResult_t *found, int n)
{
    cudaEvent_t start = NULL, end = NULL;
    double best = -1;
    int fastest = 0;
    (void)cudaEventCreate(&start);
    (void)cudaEventCreate(&end);
    for (int i = 0; i < n && start && end; i++) {
        p->algorithm = found[i].algo;
        double seconds = seconds_of(s, p, d, start, end);
        if (seconds < 0 || (best >= 0 && seconds >= best)) continue;
        best = seconds;
        fastest = i;
    }
    if (start) (void)cudaEventDestroy(start);
    if (end) (void)cudaEventDestroy(end);
    TRY(cuda_wait()); /* a device that failed meanwhile */
    p->algorithm = found[fastest].algo;
    Choice choice = {{0}, best};
    static_assert(sizeof choice.algorithm == sizeof p->algorithm, "a choice holds cuBLASLt's algorithm");
    memcpy(choice.algorithm, &p->algorithm, sizeof p->algorithm);
    if (best >= 0) choices_add(s, &choice);
    return OK;
}

/* Times the proposals and keeps the fastest. */
static Status time_all(const ProductShape *s, Prepared *p, const ProductData *d,
                       const cublasLtMatmulHeuristicResult_t *found, int n)
{
    ProductData trial = *d;
    void *a, *b;
    trial.a = filled(s->in, s->lda * (s->a_transposed ? s->k : s->m), d->a, &a);
    trial.b = filled(s->in, s->ldb * (s->b_transposed ? s->n : s->k), d->b, &b);
    Status status = time_each(s, p, &trial, found, n);
    device_release(NULL, a, 0);
    device_release(NULL, b, 0);
    return status;
}

/* What an earlier run chose, if the library still takes it. */
static bool chosen_before(const ProductShape *s, Prepared *p)
{
    Choice choice;
    cublasLtMatmulHeuristicResult_t result;
    if (!choices_find(s, &choice)) return false;
    memcpy(&p->algorithm, choice.algorithm, sizeof p->algorithm);
    if (lt.cublasLtMatmulAlgoCheck(products.handle, p->desc, p->a, p->b, p->c, p->c, &p->algorithm, &result) !=
            CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > products.workspace)
        return false;
    p->timed = true;
    return true;
}

static Status choose(const ProductShape *s, const ProductData *d, Prepared *p)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int n = 0;
    for (int rounded = 0; rounded < 2 && n == 0; rounded++) {
        if (rounded && (s->bias == BIAS_NONE || s->out == F32 || (size_t)s->n * dtype_size(s->out) > BIAS_ROOM)) break;
        forget(p);
        TRY(describe(s, rounded, p));
        n = propose(p, found);
    }
    if (n == 0) {
        double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
        log_printf(flops > 1e9 ? LOG_WARN : LOG_DEBUG,
                   "cuBLASLt has no %s product of %lld × %lld × %lld; plain loops compute it%s", dtype_name(s->in),
                   (long long)s->m, (long long)s->n, (long long)s->k,
                   flops > 1e9 ? ", at a small part of the speed" : "");
        p->maker = BY_LOOPS;
        p->timed = true;
        return OK;
    }
    if (chosen_before(s, p)) return OK;
    p->algorithm = found[0].algo;
    p->timed = d != NULL;
    /* timing that nobody remembers would give other bits in the next run */
    return d && n > 1 && choices_kept() ? time_all(s, p, d, found, n) : OK;
}

static Status product_choose(const ProductShape *s, const ProductData *d, Prepared **prepared)
{
    CHECK(s->out == s->in || s->out == F32, "a product of %s in %s", dtype_name(s->in), dtype_name(s->out));
    CHECK(!s->accumulate || s->bias == BIAS_NONE, "a product that accumulates adds no bias");
    Prepared *p = &products.prepared[product_key(s)];
    *prepared = p;
    if (p->timed || (p->desc && !d)) return OK;
    Status status = choose(s, d, p);
    if (status != OK) {
        forget(p);
        products.prepared.erase(product_key(s));
    }
    return status;
}

static bool empty(const ProductShape *s) { return s->m == 0 || s->n == 0 || s->k == 0; }

Status product_prepare(const ProductShape *s)
{
    Prepared *p;
    return empty(s) ? OK : product_choose(s, NULL, &p);
}

Status product_prepare_on(const ProductShape *s, const ProductData *d)
{
    Prepared *p;
    return empty(s) ? OK : product_choose(s, d, &p);
}

Status product_run(const ProductShape *s, const void *a, const void *b, void *c, const float *bias, void *workspace)
{
    Prepared *p;
    CHECK(s->k > 0 || s->accumulate || s->m == 0 || s->n == 0, "a product over nothing");
    if (empty(s)) return OK;
    TRY(product_choose(s, NULL, &p));
    choices_save(); /* once, after the last bind */
    ProductData d = {a, b, c, bias, workspace};
    return product_multiply(s, p, &d);
}
