/* The audit passes: what backward makes again must have the bits of the first time, and weights and moments those that
   the update gave them. */

#include "plan/rewrite.h"

typedef struct {
    Plan *p;
    Rewrite r;
    TensorId
        *sums; /* (tensors before the pass): of a tensor that is made twice, its sums of the first time; else NONE */
    TensorId audit;
} AuditPass;

/* Made again in backward: the tensor that it replaces has the same bits. */
static bool is_again(const Plan *p, TensorId t)
{
    return t != NONE && p->tensors[t].region == REGION_ACT && p->tensors[t].original != NONE;
}

static TensorId emit_digest(const AuditPass *pass, const Instr *maker, InstrId origin, TensorId x)
{
    const Tensor of = pass->p->tensors[x];
    TensorId sums = plan_tensor(pass->p, REGION_ACT, I64, of.rows, 1, "%.42s.sums", of.name);
    pass->p->tensors[sums].layer = of.layer;
    InstrId i = plan_emit(pass->p, OP_DIGEST, maker->phase, maker->layer, (OpAttr){0}, IDS(x), IDS(sums));
    pass->p->instrs[i].origin = origin;
    return sums;
}

static void emit_compare(const AuditPass *pass, const Instr *maker, InstrId origin, TensorId again)
{
    TensorId first = pass->sums[pass->p->tensors[again].original];
    TensorId sums = emit_digest(pass, maker, origin, again);
    InstrId i = plan_emit(pass->p, OP_COMPARE, maker->phase, maker->layer, (OpAttr){.compare = {again}},
                          IDS(first, sums), IDS(pass->audit));
    pass->p->instrs[i].origin = origin;
}

/* Appends old instr i, and what checks its outputs. `wanted`: (tensors) whose first sums are needed. */
static void keep_audited(AuditPass *pass, InstrId i, const bool *wanted)
{
    const Instr maker = rewrite_old(&pass->r, i);
    InstrId kept = rewrite_keep(&pass->r, i, maker);
    for (int k = 0; k < OP_MAX_OUT; k++) {
        TensorId t = maker.out[k];
        if (t == NONE) continue;
        if (wanted[t]) pass->sums[t] = emit_digest(pass, &maker, kept, t);
        if (is_again(pass->p, t)) emit_compare(pass, &maker, kept, t);
    }
}

TensorId plan_audit(Plan *p)
{
    size_t n = (size_t)p->n_tensors;
    AuditPass pass = {.p = p, .sums = mem_array(n, sizeof(TensorId)), .audit = NONE};
    bool *wanted = mem_array(n, sizeof *wanted), any = false;
    for (TensorId t = 0; t < (TensorId)n; t++) {
        pass.sums[t] = NONE;
        if (!is_again(p, t)) continue;
        wanted[p->tensors[t].original] = any = true;
    }
    if (any) {
        pass.audit = plan_tensor(p, REGION_OUTPUT, U8, rows_fixed(1), sizeof(AuditFound), "audit");
        rewrite_begin(&pass.r, p);
        for (InstrId i = 0; i < pass.r.n; i++) keep_audited(&pass, i, wanted);
        rewrite_end(&pass.r);
    }
    MEM_FREE(pass.sums, wanted);
    return pass.audit;
}

/* ---- weights and moments ---- */

/* Elements [begin, end) of a flat array, as rows. */
static TensorId view(Plan *p, TensorId array, int64_t begin, int64_t end, int64_t cols)
{
    const Tensor of = p->tensors[array];
    TensorId t = plan_tensor(p, of.region, of.dtype, rows_fixed((end - begin) / cols), cols, "%.40s.%lld", of.name,
                             (long long)begin);
    p->tensors[t].offset = of.offset + (size_t)begin * dtype_size(of.dtype);
    p->tensors[t].original = array;
    return t;
}

/* Evaluation uses the memory of outputs between steps; the moments' is the training's own. */
static TensorId kept_sums(Plan *p, TensorId x)
{
    size_t end = 0;
    for (TensorId t = 0; t < p->n_tensors; t++) {
        size_t after = p->tensors[t].offset + plan_tensor_bytes(p, t, &p->capacity);
        if (p->tensors[t].region == REGION_MOMENT && after > end) end = after;
    }
    TensorId sums = plan_tensor(p, REGION_MOMENT, I64, p->tensors[x].rows, 1, "%.40s.sums", p->tensors[x].name);
    p->tensors[sums].offset = (end + 63) / 64 * 64;
    return sums;
}

static InstrId digest(Plan *p, TensorId x, TensorId sums)
{
    return plan_emit(p, OP_DIGEST, PHASE_UPDATE, NONE, (OpAttr){0}, IDS(x), IDS(sums));
}

void plan_watch(Plan *p, const TensorId *arrays, int n, PlanWatch *w)
{
    TensorId *parts = mem_array(2 * (size_t)n, sizeof *parts), *sums = mem_array(2 * (size_t)n, sizeof *sums);
    *w = (PlanWatch){.sums = {NONE, NONE}};
    p->note = (Range){p->n_instrs, 0};
    for (int i = 0; i < n; i++) {
        int64_t size = p->tensors[arrays[i]].rows.extra, whole = size / WATCHED_ROW * WATCHED_ROW;
        TensorId *part = &parts[2 * i];
        part[0] = whole > 0 ? view(p, arrays[i], 0, whole, WATCHED_ROW) : NONE;
        part[1] = size > whole ? view(p, arrays[i], whole, size, size - whole) : NONE;
        for (int k = 0; k < 2; k++) {
            if (part[k] == NONE) continue;
            sums[2 * i + k] = kept_sums(p, part[k]);
            digest(p, part[k], sums[2 * i + k]);
            if (i == 0) w->sums[k] = sums[k];
        }
    }
    p->note.count = p->n_instrs - p->note.first;
    p->check = (Range){p->n_instrs, 0};
    w->changed = plan_tensor(p, REGION_OUTPUT, U8, rows_fixed(1), sizeof(AuditFound), "changed");
    plan_emit(p, OP_ZERO, PHASE_UPDATE, NONE, (OpAttr){0}, NO_IDS, IDS(w->changed));
    for (int k = 0; k < 2 * n; k++) {
        if (parts[k] == NONE) continue;
        TensorId now =
            plan_tensor(p, REGION_OUTPUT, I64, p->tensors[parts[k]].rows, 1, "%.40s.now", p->tensors[parts[k]].name);
        digest(p, parts[k], now);
        plan_emit(p, OP_COMPARE, PHASE_UPDATE, NONE, (OpAttr){.compare = {parts[k]}}, IDS(sums[k], now),
                  IDS(w->changed));
    }
    p->check.count = p->n_instrs - p->check.first;
    MEM_FREE(parts, sums);
}
