/* The switch CAIRN_CUDA_FUSED_GELU, and calls of LINEAR and LINEAR_DGRAD as one kernel with GELU. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/fused_gelu.h"

static bool chosen;

static bool asked(void) { return env_is_on("CAIRN_CUDA_FUSED_GELU"); }

Status fused_gelu_open(void)
{
    const DeviceInfo *d = device_info();
    chosen = false;
    if (!asked()) return OK;
    if (d->major != 9 || d->minor != 0)
        return fail(E_USAGE,
                    "CAIRN_CUDA_FUSED_GELU: it is for GPUs of compute capability 9.0 (Hopper), and %s has %d.%d; unset "
                    "it",
                    d->name, d->major, d->minor);
    if (!fused_gelu_library())
        return fail(E_USAGE, "CAIRN_CUDA_FUSED_GELU: this build has no CUTLASS, or no code for sm_90a; build with "
                             "-DWITH_CUTLASS=ON and CAIRN_CUDA_ARCHITECTURES=90a (docs/gpu.md), or unset it");
    TRY(fused_gelu_load());
    chosen = true;
    return OK;
}

void fused_gelu_imagine(int major) { chosen = asked() && major == 9; }

const char *fused_gelu_describe(void)
{
    static char text[64];
    snprintf(text, sizeof text, ", GELU in products (%s)", chosen ? fused_gelu_library() : "");
    return chosen ? text : "";
}

bool fused_gelu_takes(const OpCall *call)
{
    bool forward = call->op == OP_LINEAR;
    int64_t n = call->out[0].cols, k = call->in[0].cols;
    return chosen && call->attr.linear.gelu == GELU_ERF && call->out[0].dtype == BF16 &&
           (!forward || IN(call, LINEAR, bias)->dtype == BF16) && n % FUSED_COLUMNS == 0 && k % 8 == 0;
}

static int64_t tiles_of(int64_t rows) { return (rows + FUSED_ROWS - 1) / FUSED_ROWS; }

size_t fused_gelu_scratch(const OpCall *call, const RowCounts *rows)
{
    if (call->op != OP_LINEAR_DGRAD || !operand_present(OUT(call, LINEAR_DGRAD, db))) return 0;
    return (size_t)(tiles_of(rows_in(call->in[0].rows, rows)) * call->out[0].cols) * sizeof(float);
}

static Status backward(const OpCall *call, const RowCounts *rows, FusedGelu *f)
{
    const Operand *db = OUT(call, LINEAR_DGRAD, db);
    void *scratch = cuda_scratch(call, fused_gelu_scratch(call, rows));
    f->w = IN(call, LINEAR_DGRAD, w)->data;
    f->pre = IN(call, LINEAR_DGRAD, pre)->data;
    f->g = OUT(call, LINEAR_DGRAD, g)->data;
    if (operand_present(db)) f->parts = static_cast<float *>(scratch);
    if (f->m > 0) TRY(fused_gelu_backward(f));
    if (!f->parts) return OK;
    return columns_add_parts(f->parts, tiles_of(f->m), f->n, {{cuda_data<float>(db)}, BEGINS(call, LINEAR_DGRAD, db)});
}

Status fused_gelu(const OpCall *call, const RowCounts *rows)
{
    FusedGelu f = {};
    f.m = (int)rows_in(call->in[0].rows, rows);
    f.n = (int)call->out[0].cols, f.k = (int)call->in[0].cols;
    f.a = call->in[0].data, f.out = call->out[0].data;
    for (int i = 0; i < OP_MAX_IN; i++) CHECK(on_16(call->in[i].data), "operands of a product lie on 16 bytes");
    for (int i = 0; i < 2; i++) CHECK(on_16(call->out[i].data), "results of a product lie on 16 bytes");
    if (call->op == OP_LINEAR_DGRAD) return backward(call, rows, &f);
    f.w = IN(call, LINEAR, w)->data, f.bias = IN(call, LINEAR, bias)->data;
    f.g = OUT(call, LINEAR, g)->data;
    return f.m > 0 ? fused_gelu_forward(&f) : OK;
}
