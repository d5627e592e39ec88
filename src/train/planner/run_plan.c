#include "train/planner/run_plan.h"

#include "exec/exec.h"
#include "train/parts/place.h"

static int n_layers(const RunPlan *p) { return p->input.model->config.layers; }

static int chunks_of(const RunPlan *p) { return place_chunks(p->input.place); }

void run_plan_init(RunPlan *p, const PlanInput *input)
{
    *p = (RunPlan){.input = *input};
    p->chunk = mem_array((size_t)chunks_of(p), sizeof *p->chunk);
    layer_choice_init(&p->layers, n_layers(p), input->norm_forms);
}

void run_plan_free(RunPlan *p)
{
    for (int k = 0; p->chunk && k < chunks_of(p); k++) {
        plan_free(&p->chunk[k].train);
        plan_free(&p->chunk[k].eval);
    }
    MEM_FREE(p->chunk, p->segments);
    layer_choice_free(&p->layers);
    *p = (RunPlan){0};
}

PlanRequest plan_input_request(const PlanInput *in, bool training)
{
    return (PlanRequest){.model = in->model,
                         .backend = in->backend,
                         .one_copy = in->imagined,
                         .compute = in->compute,
                         .audit = training && in->audit,
                         .watch = training && in->watch,
                         .emit = {.training = training, .twins = in->training},
                         .optimizer = in->optimizer};
}

/* Evaluation keeps nothing from one work to another. */
static void add_works(const RunPlan *p, int chunk, bool training, PlanRequest *r)
{
    static const int none[N_SLOTS] = {[SLOT_ACTIVATION] = 1};
    const RankPlace *of = p->input.place;
    r->slots = training ? of->slots[chunk] : none;
    r->split = training && pipeline_splits_backward(of->grid.shape.kind);
    r->whole = of->whole;
    r->packs = chunk > 0;
    r->stage = pipeline_stage(&of->grid.shape, of->number, chunk);
    r->emit.apart = of->both_uses;
    if (chunk > 0) r->save_bytes = 0;
    r->watch = r->watch && chunk == 0;
}

static PlanRequest request_of(const RunPlan *p, int chunk, bool training)
{
    const RankPlace *place = p->input.place;
    PlanRequest r = plan_input_request(&p->input, training);
    r.model = &place->chunks[chunk];
    r.kfac = training ? &place->kfac : NULL;
    r.capacity = plan_capacity(training ? p->micro : p->eval_micro);
    r.emit.layers = &p->layers;
    if (training && p->save_buffer) r.save_bytes = holding_written_bytes(&place->holding, place->holding.rank);
    if (training && chunk == 0) r.room = place->room;
    r.slice = training ? holding_slice(&place->holding) : NULL;
    r.emit.waiting = p->input.virtual.waiting;
    r.emit.apart = p->input.virtual.ranks > 0;
    if (place_has_works(place)) add_works(p, chunk, training, &r);
    if (training && grid_holders(&place->grid) > 1) r.holding = &place->holding;
    return r;
}

PlanRequest run_plan_request(const RunPlan *p, bool training) { return request_of(p, 0, training); }

/* Works of all chunks run one after another, in one scratch. Their plans count the same activations. */
static void add_bytes(RunPlan *p)
{
    Plan *train = &p->chunk->train;
    plan_bytes(train, &p->chunk->eval, p->bytes);
    for (int k = 1; k < chunks_of(p); k++) {
        size_t more[N_REGIONS];
        plan_bytes(&p->chunk[k].train, &p->chunk[k].eval, more);
        for (int r = 0; r < N_REGIONS; r++)
            if (memory_own_region((Region)r)) p->bytes[r] += more[r];
        if (more[REGION_SCRATCH] > p->bytes[REGION_SCRATCH]) p->bytes[REGION_SCRATCH] = more[REGION_SCRATCH];
    }
    const Plan *trains = p->input.training ? train : NULL, *eval = p->input.evaluation ? &p->chunk->eval : NULL;
    if (!place_has_works(p->input.place)) return;
    (trains ? train : &p->chunk->eval)->region_bytes[REGION_SCRATCH] = p->bytes[REGION_SCRATCH];
    p->bytes[REGION_COMM] += place_staging(p->input.place, trains, eval, false);
    p->bytes[REGION_ACT] += place_staging(p->input.place, trains, eval, true);
}

static void share_activations(RunPlan *p, bool training)
{
    int chunks = chunks_of(p);
    Plan **plans = mem_array((size_t)chunks, sizeof *plans);
    for (int k = 0; k < chunks; k++) plans[k] = training ? &p->chunk[k].train : &p->chunk[k].eval;
    if (chunks > 1) plan_share_activations(plans, chunks);
    free(plans);
}

Status run_plan_make_one(RunPlan *p, bool training)
{
    if (training) free(p->segments);
    if (training) p->segments = mem_array((size_t)p->input.place->held.params.count, sizeof *p->segments);
    for (int k = 0; k < chunks_of(p); k++) {
        ChunkPlans *of = &p->chunk[k];
        Plan *plan = training ? &of->train : &of->eval;
        PlanRequest r = request_of(p, k, training);
        plan_free(plan);
        TRY(plan_make(&r, plan, training ? &of->train_tensors : &of->eval_tensors,
                      training && k == 0 ? p->segments : NULL));
    }
    share_activations(p, training);
    add_bytes(p);
    return OK;
}

Status run_plan_make(RunPlan *p)
{
    if (p->input.evaluation) TRY(run_plan_make_one(p, false));
    return p->input.training ? run_plan_make_one(p, true) : OK;
}

Status run_plan_with_forms(const RunPlan *p, const uint8_t *norm_forms, RunPlan *other)
{
    *other = *p;
    layer_choice_init(&other->layers, n_layers(p), norm_forms);
    memcpy(other->layers.keeps, p->layers.keeps, (size_t)n_layers(p) * sizeof *p->layers.keeps);
    memcpy(other->layers.policy, p->layers.policy, sizeof p->layers.policy);
    other->chunk = mem_array((size_t)chunks_of(p), sizeof *other->chunk);
    other->segments = NULL;
    TRY(run_plan_make(other));
    for (int r = 0; r < N_REGIONS; r++)
        if (p->bytes[r] > other->bytes[r]) other->bytes[r] = p->bytes[r];
    (void)accounts_set_peaks(&other->accounts, other->bytes);
    return OK;
}

double run_plan_above_bound(const RunPlan *p)
{
    return p->bound.step_s > 0 && p->step_s > 0 ? fmax(p->step_s / p->bound.step_s - 1, 0) : -1;
}

void run_plan_put_step(const RunPlan *p, Buf *out)
{
    if (p->step_s > 0) buf_printf(out, ", %.3g s per step predicted", p->step_s);
    const double above = run_plan_above_bound(p);
    if (above >= BOUND_IS_MET)
        buf_printf(out, ", at most %.1f %% above the best possible", 100 * above);
    else if (above >= 0 && !layer_choice_keeps_all(&p->layers, n_layers(p)))
        buf_puts(out, ", the best possible");
}

void run_plan_describe(const RunPlan *p, Buf *out)
{
    const Accounts *a = &p->accounts;
    buf_printf(out, "plan: recompute %s, %s on %s", p->layers.policy,
               backend_precision(p->input.backend, p->input.compute), p->input.backend->name);
    if (p->micro.tokens) buf_printf(out, ", micro-batches of up to %lld tokens", (long long)p->micro.tokens);
    buf_printf(out, ", a peak of %.1f MiB", MIB(run_plan_peak(p)));
    if (a->n > 1) buf_printf(out, " on the device and %.1f MiB beside it", MIB(a->row[a->n - 1].peak));
    run_plan_put_step(p, out);
}

static void put_row(Buf *out, const char *name, size_t bytes, const char *what)
{
    buf_printf(out, "\n  %-12s %10.1f MiB%s", name, MIB(bytes), what);
}

void run_plan_table(const RunPlan *p, Buf *out)
{
    const Accounts *a = &p->accounts;
    const Account *first = &a->row[0], *machine = &a->row[a->n - 1];
    static const Region shown[] = {REGION_WEIGHT,  REGION_COPY,  REGION_GRAD,   REGION_MOMENT, REGION_ACT,
                                   REGION_SCRATCH, REGION_INPUT, REGION_OUTPUT, REGION_CONST,  REGION_SAVE,
                                   REGION_HOST,    REGION_COMM,  REGION_KFAC};
    bool own = a->n > 1;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (p->bytes[shown[i]] && (account_has(first, shown[i]) || !own))
            put_row(out, region_name(shown[i]), p->bytes[shown[i]], "");
    if (machine->snapshots) put_row(out, "snapshots", machine->snapshots, own ? "   of the machine" : "");
    put_row(out, "process", first->held, own ? "   (driver and libraries)" : "   (program, libraries, data)");
    put_row(out, "peak", first->peak, own ? "   of the device" : "");
    if (own)
        put_row(out, "", machine->peak,
                SHORT_TEXT("   of the machine (program, data, the state that is being saved%s)",
                           p->bytes[REGION_HOST] ? ", offloaded tensors" : ""));
}
