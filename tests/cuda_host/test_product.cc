/* The real product.cu with a cuBLASLt that is missing, too old, or does not start: the message has a remedy, and a
   second attempt succeeds. Which algorithm is chosen, with a library that computes nothing and a clock of its own.
   Products by cuBLASLt need a GPU; product_loops.cu, and the choice of it, run here. */
#include "kernels/cuda/kernel.cuh"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

/* ---- the library that dlopen finds ---- */

static struct {
    bool missing;
    const char *without; /* a function that it lacks */
    size_t version;
    cublasStatus_t create;
    bool describes; /* products */
    int handles;
    int proposals; /* its algorithms, of which each takes so many seconds */
    double takes[3];
    bool refuses;    /* an algorithm that it has not proposed for this shape */
    int ran[3], now; /* how often each ran; the last */
    double clock;
} library;

static cublasStatus_t create(cublasLtHandle_t *handle)
{
    if (library.create != CUBLAS_STATUS_SUCCESS) return library.create;
    library.handles++;
    *handle = reinterpret_cast<cublasLtHandle_t>(&library);
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t destroy(cublasLtHandle_t)
{
    library.handles--;
    return CUBLAS_STATUS_SUCCESS;
}
static size_t version(void) { return library.version; }
static const char *name_of(cublasStatus_t) { return "NAME_OF_THE_STATUS"; }

static cublasStatus_t propose(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int most,
                              cublasLtMatmulHeuristicResult_t found[], int *n)
{
    if (library.proposals == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (*n = 0; *n < most && *n < library.proposals; ++*n) {
        found[*n] = {};
        found[*n].algo.data[0] = (uint64_t)*n;
    }
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t read_config(const cublasLtMatmulAlgo_t *, cublasLtMatmulAlgoConfigAttributes_t, void *scheme,
                                  size_t size, size_t *written)
{
    memset(scheme, 0, size); /* sums in one go */
    *written = size;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t check_algorithm(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                      const cublasLtMatmulAlgo_t *, cublasLtMatmulHeuristicResult_t *result)
{
    *result = {};
    return library.refuses ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t multiply(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,
                               cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t, const void *, const void *,
                               cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t,
                               const cublasLtMatmulAlgo_t *algorithm, void *, size_t, cudaStream_t)
{
    library.now = (int)algorithm->data[0];
    library.ran[library.now]++;
    library.clock += library.takes[library.now];
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t describe(void)
{
    return library.describes ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INTERNAL_ERROR;
}

static void *find_library(const char *name, int)
{
    return library.missing || !strstr(name, "libcublasLt.so.") ? NULL : &library;
}
static char *library_error(void)
{
    static char text[] = "libcublasLt.so: cannot open shared object file";
    return text;
}
static void *find_function(void *, const char *name)
{
    if (library.without && strcmp(name, library.without) == 0) return NULL;
    if (strcmp(name, "cublasLtCreate") == 0) return reinterpret_cast<void *>(create);
    if (strcmp(name, "cublasLtDestroy") == 0) return reinterpret_cast<void *>(destroy);
    if (strcmp(name, "cublasLtGetVersion") == 0) return reinterpret_cast<void *>(version);
    if (strcmp(name, "cublasLtGetStatusName") == 0) return reinterpret_cast<void *>(name_of);
    if (strcmp(name, "cublasLtMatmulAlgoGetHeuristic") == 0) return reinterpret_cast<void *>(propose);
    if (strcmp(name, "cublasLtMatmulAlgoConfigGetAttribute") == 0) return reinterpret_cast<void *>(read_config);
    if (strcmp(name, "cublasLtMatmulAlgoCheck") == 0) return reinterpret_cast<void *>(check_algorithm);
    if (strcmp(name, "cublasLtMatmul") == 0) return reinterpret_cast<void *>(multiply);
    return reinterpret_cast<void *>(describe);
}

#define dlopen  find_library
#define dlsym   find_function
#define dlerror library_error
#include "kernels/cuda/choices.cu"
#include "kernels/cuda/product.cu"
#include "kernels/cuda/product_loops.cu"
#include "kernels/cuda/product_trial.cu"

#include "cuda_host/testing_host.h"

/* ---- the rest that it is linked with ---- */

extern "C" {
cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = reinterpret_cast<cudaEvent_t>(new double());
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete reinterpret_cast<double *>(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    *reinterpret_cast<double *>(event) = library.clock;
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    *milliseconds = (float)(1e3 * (*reinterpret_cast<double *>(end) - *reinterpret_cast<double *>(start)));
    return cudaSuccess;
}

const DeviceInfo *device_info(void)
{
    static DeviceInfo info;
    info.major = 9;
    return &info;
}
Status device_wait(Device *) { return OK; }
Status cuda_clear(void *p, size_t bytes)
{
    memset(p, 0, bytes);
    return OK;
}
static bool room;
Status device_alloc(Device *, size_t bytes, void **p)
{
    *p = room ? calloc(bytes, 1) : NULL;
    return *p ? OK : status_fail(E_MEMORY, "no device");
}
void device_release(Device *, void *p, size_t) { free(p); }
void *device_stream(Device *) { return NULL; }
}

/* ---- the tests ---- */

static int set_up(void **state)
{
    (void)state;
    library = {};
    library.version = CUBLAS_VER_MAJOR * 10000 + 100;
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    products.library = NULL;
    return 0;
}

static void open_fails(Status status, const char *said)
{
    assert_status(product_open(false), status);
    assert_message(said);
    assert_int_equal(library.handles, 0);
    assert_null(kept.about); /* no choices are open */
    set_up(NULL);
    assert_ok(product_open(false));
    assert_non_null(strstr(product_describe(), "cuBLASLt "));
    product_close();
    assert_int_equal(library.handles, 0);
}

static void test_missing(void **state)
{
    (void)state;
    library.missing = true;
    open_fails(
        E_USAGE,
        "backend 'cuda': cuBLASLt cannot be loaded: libcublasLt.so: cannot open shared object file. Install CUDA");
}

static void test_too_old(void **state)
{
    (void)state;
    library.without = "cublasLtMatmulAlgoCheck";
    open_fails(E_USAGE, ".1 without cublasLtMatmulAlgoCheck; ");
    library.version = (CUBLAS_VER_MAJOR - 1) * 10000 + 803;
    char *said =
        mem_printf("is too old: version %d.8; %d.0 or newer is needed", CUBLAS_VER_MAJOR - 1, CUBLAS_VER_MAJOR);
    open_fails(E_USAGE, said);
    free(said);
}

static void test_does_not_start(void **state)
{
    (void)state;
    library.create = CUBLAS_STATUS_NOT_INITIALIZED;
    open_fails(E_FAIL, "cuBLASLt: creating a handle: NAME_OF_THE_STATUS");
}

static void test_one_way(void **state)
{
    (void)state;
    assert_ok(product_open(false));
    assert_status(product_open(true), E_USAGE);
    assert_message("it is open with products of fp32 made in another way");
    product_close();
    assert_ok(product_open(true));
    assert_non_null(strstr(product_describe(), "TF32"));
    product_close();
}

/* The fallback for odd shapes: every way to store the operands, with a bias, or an old c to add to or to begin. */
static void test_loops(void **state)
{
    (void)state;
    enum { M = 67, N = 35, K = 5 };
    uint64_t seed = 7;
    float a[M * K], b[K * N], bias[N], c[M * N], expected[M * N];
    for (float &x : a) x = testing_value(&seed);
    for (float &x : b) x = testing_value(&seed);
    for (float &x : bias) x = testing_value(&seed);
    for (int kind = 0; kind < 12; kind++) {
        bool a_transposed = kind & 1, b_transposed = kind & 2, accumulate = kind >= 4, begins = kind >= 8;
        Product p = {{M, N, K, a_transposed ? M : K, b_transposed ? K : N, N, a_transposed, b_transposed, accumulate,
                      accumulate ? BIAS_NONE : BIAS_F32, F32, F32},
                     a,
                     b,
                     c,
                     bias,
                     NULL,
                     false,
                     begins};
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float sum = 0;
                c[i * N + j] = testing_value(&seed);
                for (int l = 0; l < K; l++)
                    sum = fmaf(a[a_transposed ? l * M + i : i * K + l], b[b_transposed ? j * K + l : l * N + j], sum);
                expected[i * N + j] = sum + (begins ? 0 : accumulate ? c[i * N + j] : bias[j]);
                if (begins) c[i * N + j] = NAN;
            }
        assert_ok(product_by_loops(&p));
        assert_memory_equal(c, expected, sizeof c);
        p.shape.k = 0; /* a product over nothing */
        if (begins) memset(expected, 0, sizeof expected);
        assert_ok(product_empty(&p));
        assert_memory_equal(c, expected, sizeof c);
    }
}

static char logged[128];
static void keep_line(const char *line, size_t size) { snprintf(logged, sizeof logged, "%.*s", (int)size, line); }

/* Products that cuBLASLt has no algorithm for: each shape counts once in the line at the end. */
static void test_no_algorithm(void **state)
{
    (void)state;
    float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, c[4];
    library.describes = true;
    assert_ok(product_open(false));
    for (int i = 0; i < 4; i++) {
        int64_t m = i % 2 + 1;
        Product p = {{m, 2, 2, 2, 2, 2, false, false, false, BIAS_NONE, F32, F32}, a, b, c, NULL, NULL, 0, false};
        assert_ok(product_prepare(&p));
        assert_ok(product_run(&p));
        assert_true(c[0] == 19 && c[1] == 22 && (m == 1 || (c[2] == 43 && c[3] == 50)));
    }
    log_set_sink(keep_line);
    product_close();
    log_set_sink(NULL);
    assert_string_equal(logged, "2 of 2 products were computed by plain loops\n");
}

/* Prepares m rows where the largest bucket has `most`, runs that once, and returns the algorithm. */
static int algorithm_of(int64_t m, int64_t most)
{
    float memory[16];
    Product p = {};
    p.shape.m = m;
    p.shape.n = p.shape.k = p.shape.lda = p.shape.ldb = p.shape.ldc = 8;
    p.shape.in = p.shape.out = BF16;
    p.a = p.b = p.c = memory;
    p.most = most;
    assert_ok(product_prepare(&p));
    library.now = -1;
    assert_ok(product_run(&p));
    return library.now;
}

static int lines;
static void count_lines(const char *line, size_t size)
{
    keep_line(line, size);
    lines++;
}

/* The largest bucket is timed, and the smaller ones take its algorithm, whichever plan came before; a later run takes
   the choices of the file. */
static void test_choosing(void **state)
{
    (void)state;
    char *folder = testing_directory();
    const double slow_first[3] = {3, 1, 2}, slow_last[3] = {1, 2, 3};
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    library.describes = true;
    library.proposals = 3;
    memcpy(library.takes, slow_first, sizeof slow_first);
    lines = 0;
    log_set_sink(count_lines);
    assert_ok(product_open(false));
    assert_int_equal(algorithm_of(64, 64), 1);
    assert_int_equal(library.ran[2], 2); /* far slower: loaded, and timed once */
    int timed = library.ran[0];
    assert_true(timed > 2);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(logged, "timing the algorithms of cuBLASLt "));
    assert_non_null(strstr(logged, folder));
    assert_int_equal(algorithm_of(32, 64), 1);
    assert_int_equal(library.ran[0], timed);
    library.refuses = true;
    assert_int_equal(algorithm_of(16, 64), 0); /* the first proposal */
    library.refuses = false;
    assert_int_equal(library.ran[0], timed + 2);
    product_close();

    memcpy(library.takes, slow_last, sizeof slow_last);
    assert_ok(product_open(false));
    assert_int_equal(algorithm_of(32, 64), 0); /* the largest is not known: the first proposal */
    assert_int_equal(algorithm_of(64, 64), 1);
    product_close();
    assert_int_equal(lines, 1);
    for (int again = 0; again < 2; again++) { /* another plan's largest bucket has its own choice */
        assert_ok(product_open(false));
        assert_int_equal(algorithm_of(32, 32), 0);
        assert_int_equal(algorithm_of(64, 64), 1);
        assert_int_equal(algorithm_of(32, 64), 1);
        assert_int_equal(algorithm_of(32, 32), 0);
        assert_int_equal(algorithm_of(16, 32), 0);
        product_close();
    }
    assert_int_equal(lines, 2);
    log_set_sink(NULL);
    unsetenv("XDG_CACHE_HOME");
    assert_ok(file_remove_tree(folder));
    free(folder);
}

/* One of each type, so that the library has loaded what it needs. */
static void test_first(void **state)
{
    (void)state;
    library.describes = true;
    assert_ok(product_open(false));
    assert_status(product_first(), E_MEMORY);
    room = true;
    assert_ok(product_first());
    room = false;
    log_set_sink(keep_line);
    product_close();
    log_set_sink(NULL);
    assert_string_equal(logged, "3 of 3 products were computed by plain loops\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_missing, set_up),        cmocka_unit_test_setup(test_too_old, set_up),
        cmocka_unit_test_setup(test_does_not_start, set_up), cmocka_unit_test_setup(test_one_way, set_up),
        cmocka_unit_test_setup(test_loops, set_up),          cmocka_unit_test_setup(test_no_algorithm, set_up),
        cmocka_unit_test_setup(test_first, set_up),          cmocka_unit_test_setup(test_choosing, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
