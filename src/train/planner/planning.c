#include "train/planner/planning.h"

#define ROW_MULTIPLE 64 /* every backend's buckets hold it */

RowCounts plan_capacity(MicroCapacity micro)
{
    RowCounts rows = {0};
    rows.count[ROWS_TOKENS] = (micro.tokens + ROW_MULTIPLE - 1) / ROW_MULTIPLE * ROW_MULTIPLE;
    rows.count[ROWS_SEQS] = micro.seqs;
    rows.count[ROWS_MASKED] = micro.masked;
    rows.count[ROWS_READ] = micro.seqs + micro.masked;
    return rows;
}

static OpScratch *scratch_of(void *context, Op op) { return ((const Backend *)context)->op[op].scratch; }

/* Where no backend is at hand: copies as large as the weight in the compute type. */
static size_t plain_copy_bytes(Dtype compute, int64_t n, int64_t k, bool transposed)
{
    (void)transposed;
    return (size_t)n * (size_t)k * dtype_size(compute);
}

static size_t one_copy_bytes(Dtype compute, int64_t n, int64_t k, bool transposed)
{
    return transposed ? 0 : plain_copy_bytes(compute, n, k, false);
}

static bool for_device(const PlanRequest *r) { return r->one_copy || (r->backend && r->backend->device); }

static bool has_kfac(const PlanRequest *r) { return r->emit.training && kfac_sets(r->kfac) > 0; }

/* A device's gradients and factors go through the host's memory, with all branches of a tree. */
static size_t exchange_bytes(const PlanRequest *r)
{
    size_t copies = for_device(r) ? (size_t)(r->room.largest * r->room.branches) : 0;
    return r->room.scratch + copies * sizeof(float);
}

/* 0: all. */
static int64_t moments_held(const PlanRequest *r)
{
    if (!r->emit.training || !r->slice) return 0;
    return r->slice->size > 0 ? r->slice->size : 1;
}

static size_t (*copy_bytes_of(const PlanRequest *r))(Dtype, int64_t, int64_t, bool)
{
    return r->backend ? r->backend->copy_bytes : r->one_copy ? one_copy_bytes : plain_copy_bytes;
}

/* Copies lie as their weights, and the plan has all of them, where a place's chunks have some each. */
static bool has_flat_copies(const PlanRequest *r)
{
    return for_device(r) && !r->slots && copy_bytes_of(r)(r->compute, 1, 1, true) == 0;
}

/* A copy, of which this plan sets the tensors. The caller frees its linears. */
static KfacPlan kfac_of(const PlanRequest *r)
{
    KfacPlan k = r->kfac->plan;
    k.more = r->packs;
    k.linears = mem_array((size_t)k.n, sizeof *k.linears);
    memcpy(k.linears, r->kfac->plan.linears, (size_t)k.n * sizeof *k.linears);
    return k;
}

/* REDUCEs behind the last gradients of each piece, and of losses, which a pipeline sums behind its works. */
static void add_sums(const PlanRequest *r, Plan *p, const ModelTensors *t)
{
    const Pieces *pieces = &r->holding->mine;
    Interval *buckets = mem_array((size_t)pieces->n, sizeof *buckets);
    for (int b = 0; b < pieces->n; b++)
        if (pieces->pieces[b].stage == r->stage)
            buckets[b] = (Interval){pieces->pieces[b].begin, pieces->pieces[b].end};
    plan_reduce(p, t->grads, r->slots ? NONE : t->stats, buckets, pieces->n);
    free(buckets);
}

Status plan_make(const PlanRequest *r, Plan *p, ModelTensors *t, Segment *segments)
{
    Status status = OK;
    Segment *own = NULL;
    KfacPlan kfac = {0};
    EmitOptions emit = r->emit;
    plan_init(p, r->capacity, r->model->config.layers, r->compute);
    emit.copy_bytes = copy_bytes_of(r);
    emit.rounded_biases = for_device(r);
    emit.all_rows = has_kfac(r); /* whose statistics are of all tokens */
    emit.moments = moments_held(r);
    emit.received = r->room.received;
    bert_emit(r->model, p, &emit, t);
    if (has_flat_copies(r)) plan_place_copies(p);
    t->audit = NONE;
    if (emit.training) {
        plan_backward(p, for_device(r)); /* on a host, kernels would read dy once more all the same */
        plan_recompute(p, emit.layers->keeps);
        if (r->backend && r->backend->fuses) plan_fuse(p, r->backend->fuses);
        if (r->audit) t->audit = plan_audit(p);
        plan_offload(p, emit.layers->keeps);
        if (has_kfac(r)) {
            kfac = kfac_of(r);
            plan_kfac(p, &kfac, t->ctl);
        }
    }
    if (r->slots) plan_cut(p, r->slots, r->split);
    if (emit.training && r->holding && !(r->slots && for_device(r))) add_sums(r, p, t);
    /* a host's kernels add alike; works of several micro-batches run one among another */
    plan_begin(p, t->stats, t->cleared, t->audit, for_device(r) && !r->slots);
    t->step_ctl = r->slots ? plan_tensor(p, REGION_CONST, U8, rows_fixed(1), sizeof(Ctl), "step.ctl") : t->ctl;
    if (r->couple.texts > 0) {
        t->couple = r->couple;
        t->couple.copy_bytes = emit.copy_bytes;
        plan_couple(p, &t->couple, t->stats, t->step_ctl);
    }
    if (r->sketch) {
        plan_liveness(p);
        goto done;
    }
    if (has_kfac(r)) plan_kfac_ranges(p, &kfac, t->grads, t->step_ctl);
    if (emit.training && !segments) segments = own = mem_array((size_t)r->model->params.count, sizeof *segments);
    if (emit.training && !r->packs)
        optim_emit(p, r->model, r->whole, t, &r->optimizer, r->slice, segments);
    else
        plan_pack(p, false);
    if (emit.training && r->watch)
        plan_watch(p, (const TensorId[]){t->weights, t->moments_m, t->moments_v}, 3, &t->watch);
    plan_bind(p, r->backend ? scratch_of : NULL, (void *)r->backend);
    plan_liveness(p);
    plan_layout(p);
    if (emit.training) p->region_bytes[REGION_SAVE] = r->save_bytes;
    if (emit.training) p->region_bytes[REGION_COMM] = exchange_bytes(r);
    TRY_DONE(plan_verify(p));
done:
    MEM_FREE(own, kfac.linears);
    if (status != OK) plan_free(p);
    return status;
}

void plan_bytes(const Plan *training, const Plan *evaluation, size_t bytes[N_REGIONS])
{
    const Plan *plans[] = {training, evaluation};
    memset(bytes, 0, N_REGIONS * sizeof *bytes);
    for (int i = 0; i < 2; i++)
        for (int r = 0; plans[i] && r < N_REGIONS; r++)
            if (plans[i]->region_bytes[r] > bytes[r]) bytes[r] = plans[i]->region_bytes[r];
}
