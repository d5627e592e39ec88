#include "commands/plan.h"

/* X(name, value, unit, reason): assumptions of predicted times, not measured yet. A measurement corrects its row. */
#define ASSUMPTION_LIST(X)                                                                                             \
    X(PRODUCT_SHARE, 0.80, "of the peak", "790 of 989 TFLOP/s is a large bf16 product on an H200")                     \
    X(F32_SHARE, 0.80, "of the peak", "products on the plain fp32 units; no tensor cores, no TF32")                    \
    X(PRODUCT_RAMP, 4e-6, "s a product", "its first tiles wait for memory, its last ones leave the others idle")       \
    X(TILE_COLUMNS, 256, "columns", "of a product's tile of 128 rows, or turned: the fastest kernels for Hopper")      \
    X(TILE_FEWER, 192, "columns",                                                                                      \
      "or so many: public profiles of H100s name kernels of 128x192 and 192x128; the faster is timed and taken")       \
    X(SPLIT_BYTES, 134217728, "bytes", "cuBLASLt's workspace bounds the parts of a weight gradient")                   \
    X(MEMORY_SHARE, 0.83, "of the peak", "elementwise kernels reach 4.0 of an H200's 4.8 TB/s")                        \
    X(NORM_SHARE, 0.67, "of the peak",                                                                                 \
      "3.0 to 3.4 TB/s are expected of LayerNorm: a row waits for its loads, for two sums, for its stores")            \
    X(ATTENTION_LONG, 0.366, "of the peak",                                                                            \
      "mma.sync kernels like FlashAttention-2's on an H100: 282 TFLOP/s forward at 512 tokens")                        \
    X(ATTENTION_BACK, 0.183, "of the peak", "198 TFLOP/s at 512 tokens, of which 7 products for 5 counted leave 5/7")  \
    X(ATTENTION_HALF, 146, "tokens", "sequences of this length reach half of the rate of long ones")                   \
    X(ATTENTION_DROPOUT, 0.81, "of the rate without",                                                                  \
      "forward issues 783 instructions per 64 keys with dropout: 310 TFLOP/s at most at 1.755 GHz, 73 % of it likely") \
    X(ATTENTION_WHOLE, 1.3, "of the rate in two",                                                                      \
      "in one kernel 1348 instructions and 456 cycles of shared memory, in two 2103 and 554: between 1.21 and 1.56")   \
    X(ATTENTION_WGMMA, 1.3, "of the rate",                                                                             \
      "with CAIRN_CUDA_NATIVE_ATTENTION=1 on Hopper, heads of at most 64, forward: 538 instructions per 64 keys, "     \
      "1.45 times the ceiling by issue")                                                                               \
    X(ATTENTION_WGMMA_BACK, 1.4, "of the rate in one",                                                                 \
      "the same, backward in one kernel: 1.6 times the lower of the ceilings by issue and by shared memory")           \
    X(FUSED_SHARE, 0.9, "of the rate",                                                                                 \
      "with CAIRN_CUDA_FUSED_GELU=1, FFN-up and FFN-down's gradient: a guess, since one tile serves all shapes")       \
    X(GELU_CYCLES, 6200, "cycles a tile",                                                                              \
      "of FFN-up's epilogue there: 3717 instructions of a warp alone, at 0.6 a cycle; hidden behind the "              \
      "products of another tile, 8 cycles a term")                                                                     \
    X(GELU_BACK_CYCLES, 9000, "cycles a tile", "of that of FFN-down's gradient: 5400 instructions")                    \
    X(SWEEP_SECONDS, 5e-7, "s a row",                                                                                  \
      "K-FAC's inverse: three barriers, a root, a quotient and two substitutions a row, some 850 cycles in a chain")   \
    X(SORT_SECONDS, 1e-4, "s", "the embedding gradient's sort is a chain of 128 dependent rounds")                     \
    X(KERNEL_SECONDS, 1.2e-6, "s a kernel", "from one kernel to the next inside a captured graph")                     \
    X(CONTEXT_BYTES, 629145600, "bytes", "CUDA's context, cuBLASLt and our kernels, as seen on Hopper")

enum {
#define X(name, ...) ASSUMED_##name,
    ASSUMPTION_LIST(X)
#undef X
};
static const struct {
    const char *name, *unit, *reason;
    double value;
} assumptions[] = {
#define X(name, value, unit, reason) {#name, unit, reason, value},
    ASSUMPTION_LIST(X)
#undef X
};
#define ASSUMED(name) (assumptions[ASSUMED_##name].value)

void device_assumptions(const DeviceSpec *d, Buf *out)
{
    buf_printf(out, "assumed of the %s, beside its data sheet:\n", d->name);
    for (size_t i = 0; i < sizeof assumptions / sizeof *assumptions; i++)
        buf_printf(out, "  %-18s %-11.6g %-20s %s\n", assumptions[i].name, assumptions[i].value, assumptions[i].unit,
                   assumptions[i].reason);
}

/* Peaks and memory from NVIDIA's data sheets (dense, SXM, T4 PCIe; fp32 without tensor cores; V100 and T4 have fp16
   only, and a V100 is older than the backend takes). memory_bytes: nvidia-smi's figure less the driver's share.
   Attention on a B200: an H100's rates, because our kernels use no newer instructions. link_bytes: PCIe 5.0 × 16 gives
   about 50 GB/s, 4.0 half of it, 3.0 a quarter. */
#define TERA 1e12
#define GIB  1073741824.0
static const DeviceSpec devices[] = {
    {"h200", 9, 0, 132, 989 * TERA, 67 * TERA, 4.8 * TERA, 139 * GIB, 989 * TERA, 50e9},
    {"h100", 9, 0, 132, 989 * TERA, 67 * TERA, 3.35 * TERA, 79 * GIB, 989 * TERA, 50e9},
    {"a100", 8, 0, 108, 312 * TERA, 19.5 * TERA, 2.04 * TERA, 79 * GIB, 312 * TERA, 25e9},
    {"b200", 10, 0, 148, 2250 * TERA, 75 * TERA, 8.0 * TERA, 178 * GIB, 989 * TERA, 50e9},
    {"v100", 7, 0, 80, 125 * TERA, 15.7 * TERA, 0.9 * TERA, 31 * GIB, 125 * TERA, 12e9},
    {"t4", 7, 5, 40, 65 * TERA, 8.1 * TERA, 0.32 * TERA, 14.5 * GIB, 65 * TERA, 12e9},
};

Status device_find(const char *name, const DeviceSpec **device)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (strcasecmp(name, devices[i].name) != 0) continue;
        *device = &devices[i];
        return OK;
    }
    return fail(E_USAGE, "--device '%s' is unknown; expected h200, h100, a100, b200, v100 or t4", name);
}

Status device_switches(const DeviceSpec *d)
{
    static const char *const of_hopper[] = {"CAIRN_CUDA_NATIVE_ATTENTION", "CAIRN_CUDA_FUSED_GELU"};
    for (size_t i = 0; i < sizeof of_hopper / sizeof *of_hopper; i++)
        if (env_is_on(of_hopper[i]) && d->major != 9)
            return fail(E_USAGE,
                        "%s: it is for GPUs of compute capability 9.0 (h100, h200), and the %s has %d.%d; unset it",
                        of_hopper[i], d->name, d->major, d->minor);
    return OK;
}

Dtype device_compute(const DeviceSpec *d) { return d->major < 8 ? F32 : BF16; }

double device_peak(const DeviceSpec *d, Dtype compute) { return compute == F32 ? d->f32_peak : d->bf16_peak; }

size_t device_context_bytes(void) { return (size_t)ASSUMED(CONTEXT_BYTES); }

/* Where the cuda backend has ATTENTION_BWD in one kernel (kernels/cuda/attention_bwd_whole.cu), on Hopper. */
static bool attention_is_whole(const OpCall *call)
{
    enum { LONGEST = 512, COLUMNS = 64 };
    int longest = call->attr.attention.longest;
    return dtype_size(IN(call, ATTENTION_BWD, qkv)->dtype) == 2 && longest > 0 && longest <= LONGEST &&
           call->attr.attention.head_dim <= COLUMNS;
}

/* Kernels that the cuda backend launches for a call. */
static int kernels_of(const GpuRates *gpu, const OpCall *call, const RowCounts *rows)
{
    enum { MLM_CHUNK = 1024, SWEEP_SIDE = 64 }; /* rows */
    int64_t chunks;
    bool whole;
    switch (call->op) {
    case OP_LINEAR_WGRAD: /* the product, db's parts, their sum */
        return operand_present(OUT(call, LINEAR_WGRAD, db)) ? 3 : 1;
    case OP_LINEAR_DGRAD: /* the product, with pre the sum of db's parts */
        return operand_present(OUT(call, LINEAR_DGRAD, db)) ? 2 : 1;
    case OP_GELU_BWD: /* the rows, the sum of db's parts */
        return operand_present(OUT(call, GELU_BWD, db)) ? 2 : 1;
    case OP_ATTENTION_BWD: /* dq; dk and dv; db's parts, unless one kernel leaves them, and their sum */
        whole = gpu->attention_is_whole(call);
        if (!operand_present(OUT(call, ATTENTION_BWD, db))) return whole ? 1 : 2;
        return whole ? 2 : 4;
    case OP_ADDNORM_BWD: /* the rows, the sum of the parts of γ, β and db */
    case OP_LAMB:
    case OP_GRAD_NORM:
        return 2;
    case OP_CURVATURE: /* the real rows, the product */
        return 2;
    case OP_INVERT: /* traces, sums, two for each step, another try, the result */
        chunks = (op_inverse_side(call) + SWEEP_SIDE - 1) / SWEEP_SIDE;
        return (int)(2 * chunks) + 4;
    case OP_PRECONDITION: /* two products, the bias, the result */
        return 4;
    case OP_EMBED_BWD: /* sort, rows, pieces, the sum of γ's and β's parts */
        return 4;
    case OP_MLM_XENT: /* per chunk logits, softmax, dh, db, dw; then the losses */
        chunks = (rows_in(IN(call, MLM_XENT, h)->rows, rows) + MLM_CHUNK - 1) / MLM_CHUNK;
        return (int)chunks * (operand_present(OUT(call, MLM_XENT, dh)) ? 5 : 2) + 1;
    default:
        return 1;
    }
}

/* The factor of attention's rate, where the cuda backend takes it by wgmma (kernels/cuda/attention_wgmma.cu); else
   1. */
static double attention_native(const DeviceSpec *d, double by_wgmma)
{
    return d->major == 9 && env_is_on("CAIRN_CUDA_NATIVE_ATTENTION") ? by_wgmma : 1;
}

static GpuRates gpu_rates(const DeviceSpec *d)
{
    return (GpuRates){.attention_dropout = ASSUMED(ATTENTION_DROPOUT),
                      .attention_whole = ASSUMED(ATTENTION_WHOLE) * attention_native(d, ASSUMED(ATTENTION_WGMMA_BACK)),
                      .norm_bytes = ASSUMED(NORM_SHARE) * d->memory_peak,
                      .fused_share = ASSUMED(FUSED_SHARE),
                      .gelu_cycles = {ASSUMED(GELU_CYCLES), ASSUMED(GELU_BACK_CYCLES)},
                      .product_ramp = ASSUMED(PRODUCT_RAMP),
                      .multiprocessors = d->multiprocessors,
                      .tile_columns = {(int)ASSUMED(TILE_COLUMNS), (int)ASSUMED(TILE_FEWER)},
                      .split_bytes = ASSUMED(SPLIT_BYTES),
                      .sort_seconds = ASSUMED(SORT_SECONDS),
                      .f32_flops = ASSUMED(F32_SHARE) * d->f32_peak,
                      .sweep_seconds = ASSUMED(SWEEP_SECONDS),
                      .kernels = kernels_of,
                      .attention_is_whole = attention_is_whole};
}

void device_rates(const DeviceSpec *d, Dtype compute, CostRates *rates)
{
    static GpuRates of[sizeof devices / sizeof *devices];
    GpuRates *gpu = &of[d - devices];
    *gpu = gpu_rates(d);
    *rates = (CostRates){.product_flops =
                             compute == F32 ? ASSUMED(F32_SHARE) * d->f32_peak : ASSUMED(PRODUCT_SHARE) * d->bf16_peak,
                         .bytes = ASSUMED(MEMORY_SHARE) * d->memory_peak,
                         .overhead = ASSUMED(KERNEL_SECONDS),
                         .half_length = ASSUMED(ATTENTION_HALF),
                         .link_out = d->link_bytes,
                         .link_in = d->link_bytes,
                         .gpu = gpu};
    if (compute != F32) {
        rates->attention_flops[0] = ASSUMED(ATTENTION_LONG) * d->attention_peak;
        rates->attention_flops[1] = ASSUMED(ATTENTION_BACK) * d->attention_peak;
        rates->attention_flops[0] *= attention_native(d, ASSUMED(ATTENTION_WGMMA));
    }
    snprintf(rates->source, sizeof rates->source, "predicted: the %s's data sheet, not measured%s", d->name,
             d->major * 10 + d->minor < 75 ? "; predicted only: the cuda backend needs 7.5" : "");
}

bool device_table(const DeviceSpec *d, Backend *table)
{
    if (backend_table("cuda", table) != OK) return false;
    if (table->imagine) table->imagine(d->major);
    return true;
}
