/* The products of a BERT-Large step alone, as cuBLASLt makes them: the figures that say what a step can reach.

       bench_products [FILE] [ROWS] [MASKED]

   ROWS (32768: 256 × 128 tokens) are those of the layers, MASKED (5120) those of the word decoder. For each product up
   to 64 proposals of cuBLASLt are timed: first of all products those with reductions in a fixed order (what Cairn
   takes), then those with any other, last of the weight gradients those with the bias gradient in the epilogue
   (BGRADB). A proposal that is far slower than the best one before it is timed for one round in place of three.
   Operands hold small random numbers, because zeros run faster. One JSON line per proposal goes to FILE (standard
   output without), flushed:
   {"kind": "product", "case": "qkv forward", "order": "fixed", "tile": …, "split_k": …, "waves": …, "ms": …}. */
#include <algorithm>
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

namespace
{

constexpr int CANDIDATES = 64, ROUNDS = 3, REPEAT = 5;
constexpr float HOPELESS = 1.5f; /* times the best */
constexpr size_t WORKSPACE = (size_t)128 << 20;

/* What is asked for. `again`: proposals with a fixed order too, which were timed before. */
struct Pass {
    const char *order;
    uint32_t schemes;
    bool again, bias_gradient;
};
const Pass passes[] = {{"fixed", CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, true, false},
                       {"other", CUBLASLT_REDUCTION_SCHEME_MASK, false, false},
                       {"fixed, BGRADB", CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, true, true}};

struct Product {
    const char *layer, *kind;
    int64_t m, n, k; /* as cuBLASLt sees it: column-major, D is (m, n) */
    bool a_transposed, b_transposed, gradient;
};

cublasLtHandle_t handle;
void *a, *b, *d, *workspace, *bias;
FILE *out;

bool good(cudaError_t e, const char *what)
{
    if (e != cudaSuccess) fprintf(stderr, "bench_products: %s: %s\n", what, cudaGetErrorString(e));
    return e == cudaSuccess;
}

__global__ void fill(uint16_t *x, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t random = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 7) * 40503u;
        float small = (float)(int32_t)random * 0x1p-37f;
        x[i] = (uint16_t)(__float_as_uint(small) >> 16); /* bf16 */
    }
}

struct Described {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    ~Described()
    {
        if (product) cublasLtMatmulDescDestroy(product);
        for (cublasLtMatrixLayout_t l : {a, b, d})
            if (l) cublasLtMatrixLayoutDestroy(l);
    }
};

bool describe(const Product &p, bool bias_gradient, Described *t)
{
    cublasOperation_t ta = p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, tb = p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BGRADB;
    int64_t lda = p.a_transposed ? p.k : p.m, ldb = p.b_transposed ? p.n : p.k;
    bool fine = cublasLtMatmulDescCreate(&t->product, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
    auto set = [&](cublasLtMatmulDescAttributes_t what, const void *value, size_t size) {
        fine = fine && cublasLtMatmulDescSetAttribute(t->product, what, value, size) == CUBLAS_STATUS_SUCCESS;
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    set(CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    if (bias_gradient) {
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    }
    cudaDataType_t result = p.gradient ? CUDA_R_32F : CUDA_R_16BF;
    return fine &&
           cublasLtMatrixLayoutCreate(&t->a, CUDA_R_16BF, p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k,
                                      lda) == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatrixLayoutCreate(&t->b, CUDA_R_16BF, p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n,
                                      ldb) == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatrixLayoutCreate(&t->d, result, p.m, p.n, p.m) == CUBLAS_STATUS_SUCCESS;
}

/* Milliseconds of one run, the median of some rounds, or one where that is far above the best (negative: there is none
   yet); negative: it does not run. */
float time_of(const Product &p, const Described &t, const cublasLtMatmulAlgo_t *algorithm, float best)
{
    const float one = 1, beta = p.gradient ? 1 : 0;
    float rounds[ROUNDS] = {};
    int n = 0;
    cudaEvent_t start, end;
    cudaEventCreate(&start);
    cudaEventCreate(&end);
    auto run = [&] {
        return cublasLtMatmul(handle, t.product, &one, a, t.a, b, t.b, &beta, d, t.d, d, t.d, algorithm, workspace,
                              WORKSPACE, nullptr) == CUBLAS_STATUS_SUCCESS;
    };
    bool fine = run();
    while (fine && n < ROUNDS && (n == 0 || best < 0 || rounds[0] < HOPELESS * best * REPEAT)) {
        cudaEventRecord(start, nullptr);
        for (int i = 0; fine && i < REPEAT; i++) fine = run();
        cudaEventRecord(end, nullptr);
        fine = fine && cudaEventSynchronize(end) == cudaSuccess &&
               cudaEventElapsedTime(&rounds[n++], start, end) == cudaSuccess;
    }
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    if (!fine) return -1;
    std::sort(rounds, rounds + n);
    return rounds[n / 2] / REPEAT;
}

template <typename T> T configured(const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t what)
{
    T value = 0;
    size_t written;
    (void)cublasLtMatmulAlgoConfigGetAttribute(algorithm, what, &value, sizeof value, &written);
    return value;
}

int propose(const Described &t, uint32_t schemes, cublasLtMatmulHeuristicResult_t *found)
{
    cublasLtMatmulPreference_t preference;
    size_t most = WORKSPACE;
    int n = 0;
    if (cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS) return 0;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                         sizeof schemes);
    if (cublasLtMatmulAlgoGetHeuristic(handle, t.product, t.a, t.b, t.d, t.d, preference, CANDIDATES, found, &n) !=
        CUBLAS_STATUS_SUCCESS)
        n = 0;
    cublasLtMatmulPreferenceDestroy(preference);
    return n;
}

bool has_fixed_order(const cublasLtMatmulAlgo_t *algorithm)
{
    uint32_t scheme = configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    return scheme == CUBLASLT_REDUCTION_SCHEME_NONE || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

void measure(const Product &p, const Pass &pass)
{
    static cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    Described t;
    int n = describe(p, pass.bias_gradient, &t) ? propose(t, pass.schemes, found) : 0;
    float best = -1;
    for (int i = 0; i < n; i++) {
        const cublasLtMatmulAlgo_t *algorithm = &found[i].algo;
        if (found[i].state != CUBLAS_STATUS_SUCCESS || (!pass.again && has_fixed_order(algorithm))) continue;
        float ms = time_of(p, t, algorithm, best);
        if (ms < 0) continue;
        if (best < 0 || ms < best) best = ms;
        fprintf(
            out,
            "{\"kind\": \"product\", \"case\": \"%s %s\", \"order\": \"%s\", \"m\": %lld, \"n\": %lld, \"k\": %lld, "
            "\"proposal\": %d, \"tile\": %u, \"stages\": %u, \"split_k\": %d, \"scheme\": %u, \"swizzle\": %u, "
            "\"waves\": %.3f, \"workspace\": %zu, \"ms\": %.5f, \"tflops\": %.1f}\n",
            p.layer, p.kind, pass.order, (long long)p.m, (long long)p.n, (long long)p.k, i,
            configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID),
            configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID),
            configured<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
            configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
            configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING), (double)found[i].wavesCount,
            found[i].workspaceSize, (double)ms, 2e-9 * (double)p.m * (double)p.n * (double)p.k / (double)ms);
        fflush(out);
    }
    printf("%-8s %-9s %-13s ", p.layer, p.kind, pass.order);
    if (best < 0)
        printf("no further proposal\n");
    else
        printf("%8.4f ms, %6.1f TFLOP/s\n", (double)best,
               2e-9 * (double)p.m * (double)p.n * (double)p.k / (double)best);
    fflush(stdout);
}

} // namespace

int main(int argc, char **argv)
{
    const int64_t rows = argc > 2 ? atoll(argv[2]) : 32768, masked = argc > 3 ? atoll(argv[3]) : 5120;
    static const struct {
        const char *name;
        int64_t out, in;
    } layers[] = {
        {"qkv", 3072, 1024}, {"out", 1024, 1024}, {"up", 4096, 1024}, {"down", 1024, 4096}, {"decoder", 30528, 1024}};
    size_t largest = (size_t)(rows * 4096 > masked * 30528 ? rows * 4096 : masked * 30528);
    out = argc > 1 ? fopen(argv[1], "a") : stdout;
    if (!out) return fprintf(stderr, "bench_products: cannot write %s\n", argv[1]), 1;
    if (!good(cudaMalloc(&a, largest * 2), "memory") || !good(cudaMalloc(&b, largest * 2), "memory") ||
        !good(cudaMalloc(&d, largest * 4), "memory") || !good(cudaMalloc(&workspace, WORKSPACE), "memory") ||
        !good(cudaMalloc(&bias, 30528 * 4), "memory"))
        return 1;
    fill<<<1024, 256>>>((uint16_t *)a, largest);
    fill<<<1024, 256>>>((uint16_t *)b, largest);
    if (!good(cudaMemset(d, 0, largest * 4), "memory") || !good(cudaDeviceSynchronize(), "filling")) return 1;
    if (cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS) return fprintf(stderr, "bench_products: no cuBLASLt\n"), 1;
    for (const Pass &pass : passes)
        for (const auto &l : layers) {
            int64_t t = l.out == 30528 ? masked : rows;
            if (!pass.bias_gradient) measure({l.name, "forward", l.out, t, l.in, true, false, false}, pass);
            if (!pass.bias_gradient) measure({l.name, "dgrad", l.in, t, l.out, false, false, false}, pass);
            measure({l.name, "wgrad", l.in, l.out, t, false, true, true}, pass);
        }
    bool well = good(cudaDeviceSynchronize(), "the products");
    cublasLtDestroy(handle);
    return fclose(out) == 0 && well ? 0 : 1;
}
