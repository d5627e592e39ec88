/* The real product.cu where cuBLASLt is missing, too old, or does not start: the message has a remedy, and a second
   attempt succeeds. Products by cuBLASLt need a GPU; product_loops.cu, and the choice of it, run here. */
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
    bool describes; /* products, for which it has no algorithm */
    int handles;
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
static cublasStatus_t no_algorithm(void) { return CUBLAS_STATUS_NOT_SUPPORTED; }
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
    if (strcmp(name, "cublasLtMatmulAlgoGetHeuristic") == 0) return reinterpret_cast<void *>(no_algorithm);
    return reinterpret_cast<void *>(describe);
}

#define dlopen  find_library
#define dlsym   find_function
#define dlerror library_error
#include "kernels/cuda/product.cu"
#include "kernels/cuda/product_loops.cu"
#include "kernels/cuda/product_trial.cu"

#include "cuda_host/testing_host.h"

/* ---- the rest that it is linked with ---- */

extern "C" {
cudaError_t cudaEventCreate(cudaEvent_t *) { return cudaErrorNoDevice; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaErrorNoDevice; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaErrorNoDevice; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaErrorNoDevice; }
cudaError_t cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t) { return cudaErrorNoDevice; }

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
static int choices; /* open */
void choices_open(const char *) { choices++; }
void choices_close(void) { choices = 0; }
bool choices_kept(void) { return false; }
bool choices_find(const ProductShape *, Choice *) { return false; }
void choices_add(const ProductShape *, const Choice *) {}
void choices_save(void) {}
ProductKey product_key(const ProductShape *s) { return {s->m, s->n, s->k, s->in}; }

/* ---- the tests ---- */

static int set_up(void **state)
{
    (void)state;
    library = {};
    library.version = CUBLAS_VER_MAJOR * 10000 + 100;
    products.library = NULL;
    return 0;
}

static void open_fails(Status status, const char *said)
{
    assert_status(product_open(false), status);
    assert_message(said);
    assert_int_equal(library.handles, 0);
    assert_int_equal(choices, 0);
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
        Product p = {{m, 2, 2, 2, 2, 2, false, false, false, BIAS_NONE, F32, F32}, a, b, c, NULL, NULL, false, false};
        assert_ok(product_prepare(&p));
        assert_ok(product_run(&p));
        assert_true(c[0] == 19 && c[1] == 22 && (m == 1 || (c[2] == 43 && c[3] == 50)));
    }
    log_set_sink(keep_line);
    product_close();
    log_set_sink(NULL);
    assert_string_equal(logged, "2 of 2 products were computed by plain loops\n");
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
        cmocka_unit_test_setup(test_first, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
