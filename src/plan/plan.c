/* The arrays of a plan and how they are filled. */
#include "plan/rewrite.h"

const char *region_name(Region r)
{
    static const char *const names[N_REGIONS] = {
#define X(name, text) [REGION_##name] = text,
        REGION_LIST(X)
#undef X
    };
    return names[r];
}

void plan_init(Plan *p, RowCounts capacity, int n_layers, Dtype compute)
{
    *p = (Plan){.capacity = capacity, .n_layers = (int16_t)n_layers, .compute = compute, .copies = NONE};
}

void plan_free(Plan *p)
{
    MEM_FREE(p->tensors, p->instrs);
    *p = (Plan){0};
}

TensorId plan_tensor(Plan *p, Region region, Dtype dtype, Rows rows, int64_t cols, const char *format, ...)
{
    char name[sizeof((Tensor *)0)->name]; /* its arguments may be names in the array, which moves */
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    CHECK(cols > 0 && rows.extra >= 0 && (rows.kind != ROWS_FIXED || rows.extra > 0), "empty tensor '%s'", format);
    MEM_GROW(p->tensors, p->n_tensors, p->cap_tensors);
    Tensor *t = &p->tensors[p->n_tensors];
    *t = (Tensor){.dtype = dtype,
                  .rows = rows,
                  .cols = cols,
                  .region = region,
                  .layer = NONE,
                  .part = PART_ALWAYS,
                  .grad = NONE,
                  .twin = NONE,
                  .original = NONE,
                  .shares = NONE,
                  .slot = NONE,
                  .first = NONE,
                  .last = NONE};
    memcpy(t->name, name, sizeof name);
    t->bytes = plan_tensor_bytes(p, p->n_tensors, &p->capacity);
    return p->n_tensors++;
}

size_t plan_tensor_bytes(const Plan *p, TensorId id, const RowCounts *rows)
{
    const Tensor *t = &p->tensors[id];
    if (t->region == REGION_COPY) return t->bytes; /* the backend's packed size */
    return (size_t)rows_in(t->rows, rows) * (size_t)t->cols * dtype_size(t->dtype);
}

/* Copies a list that ends with PLAN_END into an instr's operands and checks it against the op's table. */
static void fill_operands(const Plan *p, Op op, TensorId *to, int max, const TensorId *list, const OperandInfo *infos,
                          int n)
{
    int i = 0;
    for (; list[i] != PLAN_END; i++) {
        CHECK(i < n, "%s: more operands than its table has (%d)", op_info(op)->name, n);
        CHECK(list[i] >= NONE && list[i] < p->n_tensors, "%s: tensor %d does not exist", op_info(op)->name, list[i]);
        CHECK(list[i] != NONE || infos[i].optional, "%s: operand '%s' is required", op_info(op)->name, infos[i].name);
        to[i] = list[i];
    }
    CHECK(i == n, "%s: %d operands given, its table has %d", op_info(op)->name, i, n);
    for (; i < max; i++) to[i] = NONE;
}

InstrId plan_emit(Plan *p, Op op, Phase phase, int layer, OpAttr attr, const TensorId *in, const TensorId *out)
{
    const OpInfo *info = op_info(op);
    Instr i = {.op = op, .attr = attr, .phase = phase, .layer = (int16_t)layer, .wait = {NONE, NONE}, .origin = NONE};
    fill_operands(p, op, i.in, OP_MAX_IN, in, info->in, info->n_in);
    fill_operands(p, op, i.out, OP_MAX_OUT, out, info->out, info->n_out);
    return plan_append(p, i);
}

TensorId plan_copy(Plan *p, TensorId weight, bool transposed, size_t bytes)
{
    const Tensor w = p->tensors[weight];
    TensorId c = plan_tensor(p, REGION_COPY, p->compute, w.rows, w.cols, "%.44s%s", w.name, transposed ? ".t" : ".c");
    p->tensors[c].original = weight;
    p->tensors[c].grad = w.grad;
    p->tensors[c].layer = w.layer;
    p->tensors[c].bytes = bytes;
    return c;
}

void plan_place_copies(Plan *p)
{
    int64_t end = 0;
    for (TensorId c = 0; c < p->n_tensors; c++) {
        if (p->tensors[c].region != REGION_COPY) continue;
        const Tensor *w = &p->tensors[p->tensors[c].original];
        int64_t first = (int64_t)(w->offset / sizeof(float)), n = w->rows.extra * w->cols;
        CHECK(p->tensors[c].bytes == (size_t)n * dtype_size(p->compute), "the copy of '%s' has a layout of its own",
              w->name);
        p->tensors[c].offset = (size_t)first * dtype_size(p->compute);
        if (first + n > end) end = first + n;
    }
    if (end == 0) return;
    p->copies = plan_tensor(p, REGION_COPY, p->compute, rows_fixed(end), 1, "copies");
    p->tensors[p->copies].bytes = (size_t)end * dtype_size(p->compute);
    TensorId copied = plan_tensor(p, REGION_WEIGHT, F32, rows_fixed(end), 1, "weights.copied");
    p->tensors[p->copies].original = copied;
}

static void pack(Plan *p, TensorId c)
{
    const Tensor *w = &p->tensors[p->tensors[c].original];
    bool transposed = false;
    for (TensorId f = 0; f < p->n_tensors; f++) transposed |= p->tensors[f].twin == c;
    plan_emit(p, OP_PACK, PHASE_UPDATE, p->tensors[c].layer,
              (OpAttr){.pack = {.n = w->rows.extra, .k = w->cols, .transposed = transposed}},
              IDS(p->tensors[c].original), IDS(c));
}

void plan_pack(Plan *p, bool written)
{
    if (written) p->update.count = p->n_instrs - p->update.first;
    p->pack.first = p->n_instrs;
    for (TensorId c = 0, n = p->n_tensors; c < n; c++)
        if (p->tensors[c].region == REGION_COPY && (p->copies == NONE || c == p->copies)) pack(p, c);
    p->pack.count = p->n_instrs - p->pack.first;
    if (!written) p->update.count = p->n_instrs - p->update.first;
}

TensorId plan_find(const Plan *p, const char *name)
{
    for (TensorId t = 0; t < p->n_tensors; t++)
        if (strcmp(p->tensors[t].name, name) == 0) return t;
    return NONE;
}

InstrId plan_maker(const Plan *p, TensorId t)
{
    for (InstrId i = 0; i < p->n_instrs; i++)
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (p->instrs[i].out[k] == t) return i;
    return NONE;
}

static Operand operand(const Plan *p, TensorId t)
{
    if (t == NONE) return (Operand){0};
    return (Operand){.dtype = p->tensors[t].dtype, .rows = p->tensors[t].rows, .cols = p->tensors[t].cols};
}

void plan_call(const Plan *p, const Instr *instr, OpCall *call)
{
    *call = (OpCall){.op = instr->op, .attr = instr->attr};
    for (int i = 0; i < OP_MAX_IN; i++) call->in[i] = operand(p, instr->in[i]);
    for (int i = 0; i < OP_MAX_OUT; i++) call->out[i] = operand(p, instr->out[i]);
}

/* ---- bind ---- */

/* Scratch without a backend (`cairn plan --device`): generous sizes, as those of the cpu backend. */
static size_t estimate_scratch(const OpCall *call, const RowCounts *rows)
{
    size_t n_rows = (size_t)rows_in(call->in[0].rows, rows), cols = (size_t)call->in[0].cols, bytes = 0;
    size_t n_parts = (n_rows + 63) / 64, n_seqs = (size_t)rows->count[ROWS_SEQS];
    switch (call->op) {
    case OP_LINEAR_WGRAD:
        return (size_t)4 << 20;
    case OP_ATTENTION_BWD:
        if (operand_present(OUT(call, ATTENTION_BWD, db)))
            bytes = (n_parts > n_seqs ? n_parts : n_seqs) * cols * sizeof(float);
        return bytes + 4 * n_rows * (size_t)call->attr.attention.heads + ((size_t)4 << 20);
    case OP_GELU_BWD:
        return operand_present(OUT(call, GELU_BWD, db)) ? n_parts * cols * sizeof(float) : 0;
    case OP_ATTENTION:
        return (size_t)4 << 20;
    case OP_ADDNORM_BWD:
        return 2 * 64 * cols * sizeof(float);
    case OP_EMBED_BWD:
        return n_rows * 16 + 4 * 64 * cols * sizeof(float);
    case OP_CURVATURE:
        return n_rows * (size_t)call->attr.curvature.n * 4 + ((size_t)4 << 20);
    case OP_INVERT: {
        size_t side = (size_t)op_inverse_side(call);
        return side * (side + 3 * 128) * sizeof(float) + ((size_t)8 << 20);
    }
    case OP_PRECONDITION:
        return (size_t)(call->attr.kfac.k * call->attr.kfac.n) * sizeof(float) + ((size_t)8 << 20);
    case OP_MLM_XENT:
        return (n_rows < 1024 ? n_rows : 1024) * (size_t)call->attr.loss.n * sizeof(float);
    default:
        return 0;
    }
}

void plan_bind(Plan *p, OpScratch *(*scratch_of)(void *context, Op op), void *context)
{
    p->exact = scratch_of != NULL;
    for (InstrId i = 0; i < p->n_instrs; i++) {
        OpCall call;
        plan_call(p, &p->instrs[i], &call);
        OpScratch *scratch = scratch_of ? scratch_of(context, call.op) : estimate_scratch;
        p->instrs[i].scratch = scratch ? scratch(&call, &p->capacity) : 0;
    }
}
