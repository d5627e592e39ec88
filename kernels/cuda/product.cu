/* Products by cuBLASLt, which is loaded when the backend is opened, so that the program starts without it. Its matrices
   are column-major: our row-major c = a·b is its cᵀ = bᵀ·aᵀ, so a and b are swapped. */
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

#define CANDIDATES 64  /* that are timed */
#define ALIGNMENT  16u /* of operands, in bytes */

/* How a shape is computed. */
typedef struct {
    bool by_loops, decided; /* decided: timing would not change it */
    bool ran;               /* so its kernels are loaded */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c; /* of the library's a and b: our b and a */
    cublasLtMatmulAlgo_t algorithm;
} Prepared;

/* A shape, and that of its largest bucket. */
typedef std::pair<ProductKey, ProductKey> PreparedKey;

static struct {
    void *library;
    cublasLtHandle_t handle;
    size_t workspace;
    bool tf32;
    bool any_order; /* CAIRN_CUDA_ANY_ORDER: also algorithms without a fixed order of sums, to measure its cost */
    bool told;      /* that algorithms are timed */
    char describe[64];
    std::map<PreparedKey, Prepared> prepared;
} products;

const char *product_describe(void) { return products.describe; }
size_t product_workspace(void) { return products.workspace; }

static Status lt_check(cublasStatus_t status, const char *what)
{
    return status == CUBLAS_STATUS_SUCCESS ? OK
                                           : fail(E_FAIL, "cuBLASLt: %s: %s", what, lt.cublasLtGetStatusName(status));
}

/* ---- opening ---- */

static Status load_cublaslt(void)
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
    size_t version = lt.cublasLtGetVersion ? lt.cublasLtGetVersion() : 0;
    if (!missing && version / 10000 >= CUBLAS_VER_MAJOR) return OK;
    return fail(E_USAGE,
                "backend 'cuda': %s is too old: version %zu.%zu%s%s; %d.0 or newer is needed. Install CUDA %d's "
                "libraries, or name their folder in LD_LIBRARY_PATH",
                LIBRARY, version / 10000, version / 100 % 100, missing ? " without " : "", missing ? missing : "",
                CUBLAS_VER_MAJOR, CUBLAS_VER_MAJOR);
}

/* NVIDIA advises 32 MiB from sm_90 on, else 8 MiB. 128 MiB hold eight parts in fp32 of BERT-Large's largest weight
   gradient, whose own tiles leave multiprocessors idle. */
static size_t chosen_workspace(int major) { return (size_t)(major >= 9 ? 128 : 8) << 20; }

void product_imagine(int major)
{
    if (!products.handle) products.workspace = chosen_workspace(major);
}

Status product_open(bool tf32)
{
    if (products.handle && tf32 != products.tf32)
        return fail(E_USAGE, "backend 'cuda': it is open with products of fp32 made in another way; close it first");
    TRY(load_cublaslt());
    if (products.handle) return OK;
    products.tf32 = tf32;
    TRY(lt_check(lt.cublasLtCreate(&products.handle), "creating a handle"));
    const DeviceInfo *gpu = device_info();
    int version = (int)lt.cublasLtGetVersion();
    products.any_order = env_is_on("CAIRN_CUDA_ANY_ORDER");
    products.workspace = chosen_workspace(gpu->major);
    snprintf(products.describe, sizeof products.describe, "cuBLASLt %d.%d.%d%s%s", version / 10000, version / 100 % 100,
             version % 100, tf32 ? ", TF32" : "", products.any_order ? ", sums in any order" : "");
    char *about = mem_printf("%s, sm_%d%d, %d multiprocessors, %s", gpu->name, gpu->major, gpu->minor,
                             gpu->multiprocessors, products.describe);
    choices_open(about);
    free(about);
    return OK;
}

static void free_prepared(Prepared *p)
{
    if (p->desc) lt.cublasLtMatmulDescDestroy(p->desc);
    for (cublasLtMatrixLayout_t layout : {p->a, p->b, p->c})
        if (layout) lt.cublasLtMatrixLayoutDestroy(layout);
    *p = {};
}

void product_close(void)
{
    choices_close();
    int by_loops = 0;
    for (auto &p : products.prepared) {
        by_loops += p.second.by_loops;
        free_prepared(&p.second);
    }
    if (by_loops) log_info("%d of %zu products were computed by plain loops", by_loops, products.prepared.size());
    products.prepared.clear();
    products.told = false;
    if (products.handle) lt.cublasLtDestroy(products.handle);
    products.handle = NULL;
}

/* ---- products ---- */

static cudaDataType_t type_of(Dtype dtype)
{
    return dtype == F32 ? CUDA_R_32F : dtype == BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

template <typename T> static Status desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, T value)
{
    return lt_check(lt.cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof value), "describing a product");
}

static Status lt_layout(cublasLtMatrixLayout_t *l, Dtype dtype, int64_t rows, int64_t columns, bool transposed,
                        int64_t ld)
{
    return lt_check(lt.cublasLtMatrixLayoutCreate(l, type_of(dtype), (uint64_t)(transposed ? columns : rows),
                                                  (uint64_t)(transposed ? rows : columns), ld),
                    "describing a matrix");
}

static Status describe_product(const ProductShape *s, Prepared *p)
{
    cublasComputeType_t type = products.tf32 && s->in == F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    TRY(lt_check(lt.cublasLtMatmulDescCreate(&p->desc, type, CUDA_R_32F), "describing a product"));
    TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, s->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, s->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    if (s->bias != BIAS_NONE) {
        TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
        TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                     (int32_t)type_of(s->bias == BIAS_F32 ? F32 : s->out)));
        TRY(desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void *>((uintptr_t)ALIGNMENT)));
    }
    TRY(lt_layout(&p->a, s->in, s->n, s->k, s->b_transposed, s->ldb));
    TRY(lt_layout(&p->b, s->in, s->k, s->m, s->a_transposed, s->lda));
    return lt_layout(&p->c, s->out, s->n, s->m, false, s->ldc);
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
static int lt_proposals(const Prepared *p, cublasLtMatmulHeuristicResult_t found[CANDIDATES])
{
    cublasLtMatmulPreference_t preference = NULL;
    int n = 0, usable = 0;
    if (lt.cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS) return 0;
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
        (void)lt.cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{products.workspace});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           (uint32_t)(products.any_order ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (auto what : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        prefer(what, uint32_t{ALIGNMENT});
    if (lt.cublasLtMatmulAlgoGetHeuristic(products.handle, p->desc, p->a, p->b, p->c, p->c, preference, CANDIDATES,
                                          found, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    lt.cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= products.workspace &&
            fixed_order(&found[i].algo))
            found[usable++] = found[i];
    return usable;
}

static Status product_multiply(const Product *p, const Prepared *how)
{
    const float one = 1, beta = p->shape.accumulate && !p->begins ? 1 : 0;
    if (how->by_loops) return product_by_loops(p);
    if (p->shape.bias != BIAS_NONE) TRY(desc_set(how->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias));
    return lt_check(lt.cublasLtMatmul(products.handle, how->desc, &one, p->b, how->a, p->a, how->b, &beta, p->c, how->c,
                                      p->c, how->c, &how->algorithm, p->workspace, products.workspace,
                                      (cudaStream_t)device_stream(NULL)),
                    "a product");
}

/* ---- choosing ---- */

#define ROUNDS     3
#define REPEAT     4
#define FAR_SLOWER 1.25

/* Seconds of one of n runs in a row; negative: it cannot be run. */
static double seconds_of(const Product *p, const Prepared *how, int n, cudaEvent_t start, cudaEvent_t end)
{
    cudaStream_t stream = (cudaStream_t)device_stream(NULL);
    float milliseconds = 0;
    bool ran = cudaEventRecord(start, stream) == cudaSuccess;
    for (int i = 0; i < n && ran; i++) ran = product_multiply(p, how) == OK;
    ran = ran && cudaEventRecord(end, stream) == cudaSuccess && cudaEventSynchronize(end) == cudaSuccess &&
          cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess;
    return ran ? (double)milliseconds * 1e-3 / n : -1;
}

/* The best of some rounds. Negative: it cannot be run, or a single run is far slower than `*single`, that of the
   fastest so far, unless this is negative. Else `*single` becomes its own. */
static double best_seconds(const Product *p, const Prepared *how, double *single, cudaEvent_t start, cudaEvent_t end)
{
    if (product_multiply(p, how) != OK) return -1; /* loads it */
    double once = seconds_of(p, how, 1, start, end), best = -1;
    if (once < 0 || (*single >= 0 && once > FAR_SLOWER * *single)) return -1;
    for (int round = 0; round < ROUNDS; round++) {
        double seconds = seconds_of(p, how, REPEAT, start, end);
        if (seconds < 0) return -1;
        if (best < 0 || seconds < best) best = seconds;
    }
    *single = once;
    return best;
}

/* Times the proposals and keeps the fastest. */
static Status time_all(const Product *p, Prepared *how, const cublasLtMatmulHeuristicResult_t *found, int n)
{
    const ProductShape *s = &p->shape;
    Product trial = *p;
    void *a = NULL, *b = NULL;
    cudaEvent_t start = NULL, end = NULL;
    double best = -1, single = -1;
    int fastest = 0;
    if (!products.told)
        log_info("timing the algorithms of %s on this GPU; %s keeps the choices", products.describe, choices_path());
    products.told = true;
    trial.a = product_random(s->in, s->lda * (s->a_transposed ? s->k : s->m), p->a, &a);
    trial.b = product_random(s->in, s->ldb * (s->b_transposed ? s->n : s->k), p->b, &b);
    (void)cudaEventCreate(&start);
    (void)cudaEventCreate(&end);
    for (int i = 0; i < n && start && end; i++) {
        how->algorithm = found[i].algo;
        double once = single, seconds = best_seconds(&trial, how, &once, start, end);
        if (seconds < 0 || (best >= 0 && seconds >= best)) continue;
        best = seconds;
        single = once;
        fastest = i;
    }
    if (start) (void)cudaEventDestroy(start);
    if (end) (void)cudaEventDestroy(end);
    Status status = device_wait(NULL); /* a device that failed meanwhile */
    device_release(NULL, a, 0);
    device_release(NULL, b, 0);
    TRY(status);
    how->algorithm = found[fastest].algo;
    Choice choice = {{0}, best};
    static_assert(sizeof choice.algorithm == sizeof how->algorithm, "a choice holds cuBLASLt's algorithm");
    memcpy(choice.algorithm, &how->algorithm, sizeof how->algorithm);
    if (best >= 0) choices_add(&p->shape, &choice);
    return OK;
}

/* The algorithm of an earlier run or of the largest bucket, if the library runs it for this shape. */
static bool take_algorithm(const void *algorithm, bool decided, Prepared *how)
{
    cublasLtMatmulHeuristicResult_t result;
    memcpy(&how->algorithm, algorithm, sizeof how->algorithm);
    bool takes = lt.cublasLtMatmulAlgoCheck(products.handle, how->desc, how->a, how->b, how->c, how->c, &how->algorithm,
                                            &result) == CUBLAS_STATUS_SUCCESS &&
                 result.workspaceSize <= products.workspace;
    how->decided = takes && decided;
    return takes;
}

static bool chosen_before(const Product *p, const PreparedKey &key, Prepared *how)
{
    Choice choice;
    if (key.first == key.second) return choices_find(&p->shape, &choice) && take_algorithm(choice.algorithm, true, how);
    auto largest = products.prepared.find({key.second, key.second});
    return largest != products.prepared.end() && !largest->second.by_loops &&
           take_algorithm(&largest->second.algorithm, largest->second.decided, how);
}

static Status choose_algorithm(const Product *p, const PreparedKey &key, bool timing, Prepared *how)
{
    const ProductShape *s = &p->shape;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    free_prepared(how);
    TRY(describe_product(s, how));
    if (chosen_before(p, key, how)) return OK;
    int n = lt_proposals(how, found);
    if (n == 0) {
        double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
        log_printf(flops > 1e9 ? LOG_WARN : LOG_DEBUG,
                   "cuBLASLt has no %s product of %lld × %lld × %lld; plain loops compute it%s", dtype_name(s->in),
                   (long long)s->m, (long long)s->n, (long long)s->k, flops > 1e9 ? ", far slower" : "");
        how->by_loops = how->decided = true;
        return OK;
    }
    how->algorithm = found[0].algo;
    how->decided = timing;
    /* without a file for the choice the next run would time again, choose another algorithm and have other bits */
    return timing && n > 1 && key.first == key.second && choices_kept() ? time_all(p, how, found, n) : OK;
}

static Status product_choose(const Product *p, bool timing, Prepared **how)
{
    const ProductShape *s = &p->shape;
    CHECK(s->out == s->in || s->out == F32, "a product of %s in %s", dtype_name(s->in), dtype_name(s->out));
    CHECK(!s->accumulate || s->bias == BIAS_NONE, "a product that accumulates adds no bias");
    const ProductShape largest = product_largest(p);
    const PreparedKey key = {product_key(s), product_key(&largest)};
    *how = &products.prepared[key];
    if ((*how)->decided || ((*how)->desc && !timing)) return OK;
    Status status = choose_algorithm(p, key, timing, *how);
    if (status != OK) {
        free_prepared(*how);
        products.prepared.erase(key);
    }
    return status;
}

static bool is_empty(const ProductShape *s) { return s->m == 0 || s->n == 0 || s->k == 0; }

/* A kernel of the library is loaded at its first use, for which CUDA may wait until the GPU is idle: not in a
   pipeline's step, where a message may be waiting for a rank that waits for this one. With β = 0 it may be another. */
Status product_prepare(const Product *p)
{
    Prepared *how;
    Product begun = *p;
    bool runs = p->a && p->b && p->c;
    if (is_empty(&p->shape)) return OK;
    TRY(product_choose(p, runs, &how));
    if (!runs || how->ran || how->by_loops) return OK;
    how->ran = true;
    begun.begins = true;
    if (p->shape.accumulate) TRY(product_multiply(&begun, how));
    return product_multiply(p, how);
}

Status product_run(const Product *p)
{
    const ProductShape *s = &p->shape;
    Prepared *how;
    CHECK(s->k > 0 || s->accumulate || s->m == 0 || s->n == 0, "a product over nothing");
    if (is_empty(s)) return product_empty(p);
    TRY(product_choose(p, false, &how));
    choices_save(); /* once, after the last bind */
    return product_multiply(p, how);
}
