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

static void free_other(RunPlan *p)
{
    if (p->other) run_plan_free(p->other);
    free(p->other);
    p->other = NULL;
}

void run_plan_free(RunPlan *p)
{
    for (int k = 0; p->chunk && k < chunks_of(p); k++) {
        plan_free(&p->chunk[k].train);
        plan_free(&p->chunk[k].eval);
    }
    MEM_FREE(p->chunk, p->segments);
    layer_choice_free(&p->layers);
    free_other(p);
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

size_t run_plan_saved_bytes(const RunPlan *p)
{
    const Holding *h = &p->input.place->holding;
    return holding_written_bytes(h, h->rank);
}

static PlanCouple couple_of(const Coupling *c, int64_t hidden)
{
    return (PlanCouple){.apart = coupling_apart(c),
                        .cols = hidden,
                        .texts = c->texts,
                        .entropy = c->loss == COUPLE_INFONCE,
                        .symmetric = c->symmetric};
}

static PlanRequest request_of(const RunPlan *p, int chunk, bool training)
{
    const RankPlace *place = p->input.place;
    PlanRequest r = plan_input_request(&p->input, training);
    r.model = &place->chunks[chunk];
    r.kfac = training ? &place->kfac : NULL;
    r.capacity = plan_capacity(training ? p->micro : p->eval_micro);
    r.emit.layers = &p->layers;
    if (training && p->save_buffer) r.save_bytes = run_plan_saved_bytes(p);
    if (training && chunk == 0) r.room = place->room;
    r.slice = training ? holding_slice(&place->holding) : NULL;
    r.emit.waiting = p->input.virtual.waiting;
    r.emit.apart = p->input.virtual.ranks > 0;
    if (training && p->input.coupling) {
        r.couple = couple_of(p->input.coupling, r.model->config.hidden);
        r.emit.unit = p->input.coupling->loss != COUPLE_TRIPLET;
    }
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
    if (training) free_other(p);
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

/* p's choices, but of what layers keep. */
static Status make_like(const RunPlan *p, const LayerChoice *layers, const uint8_t *norm_forms, RunPlan *like)
{
    *like = *p;
    layer_choice_init(&like->layers, n_layers(p), norm_forms);
    memcpy(like->layers.keeps, layers->keeps, (size_t)n_layers(p) * sizeof *layers->keeps);
    memcpy(like->layers.policy, layers->policy, sizeof layers->policy);
    like->chunk = mem_array((size_t)chunks_of(p), sizeof *like->chunk);
    like->segments = NULL;
    like->other = NULL;
    return run_plan_make(like);
}

static void take_larger(RunPlan *p, const size_t bytes[N_REGIONS])
{
    for (int r = 0; r < N_REGIONS; r++)
        if (bytes[r] > p->bytes[r]) p->bytes[r] = bytes[r];
}

void run_plan_set_buffer(RunPlan *p, bool save_buffer)
{
    p->save_buffer = save_buffer;
    p->chunk->train.region_bytes[REGION_SAVE] = save_buffer ? run_plan_saved_bytes(p) : 0;
    add_bytes(p);
}

/* Nothing that stays from step to step moves. */
static void check_places(const Plan *a, const Plan *b)
{
    static const Region stay[] = {REGION_WEIGHT, REGION_COPY, REGION_GRAD, REGION_MOMENT, REGION_KFAC};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        CHECK(a->region_bytes[stay[i]] == b->region_bytes[stay[i]], "region %s of the plan for saves differs",
              region_name(stay[i]));
}

Status run_plan_make_other(RunPlan *p, const LayerChoice *layers)
{
    RunPlan *other = mem_alloc(sizeof *other);
    run_plan_set_buffer(p, false);
    Status status = make_like(p, layers, p->layers.norm_forms, other);
    p->other = other;
    TRY(status);
    check_places(&p->chunk->train, &other->chunk->train);
    other->bound = (PlanCertificate){0};
    other->buffer_at = other->bytes[REGION_ACT];
    other->bytes[REGION_ACT] += run_plan_saved_bytes(p);
    other->chunk->train.region_bytes[REGION_ACT] = other->bytes[REGION_ACT];
    take_larger(p, other->bytes);
    return OK;
}

void run_plan_drop_other(RunPlan *p)
{
    free_other(p);
    run_plan_set_buffer(p, true);
}

Status run_plan_with_forms(const RunPlan *p, const uint8_t *norm_forms, RunPlan *with)
{
    TRY(make_like(p, &p->layers, norm_forms, with));
    if (p->other) TRY(run_plan_make_other(with, &p->other->layers));
    take_larger(with, p->bytes);
    (void)accounts_set_peaks(&with->accounts, with->bytes);
    if (!p->other) return OK;
    with->other->step_s = p->other->step_s;
    with->other->accounts = with->accounts;
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

void run_plan_put_saves(const RunPlan *p, Buf *out)
{
    if (run_plan_waits(p)) buf_puts(out, "training waits");
    if (!p->other) return;
    buf_printf(out, "recompute %s", p->other->layers.policy);
    run_plan_put_step(p->other, out);
}

void run_plan_describe(const RunPlan *p, Buf *out)
{
    const Accounts *a = &p->accounts;
    buf_printf(out, "plan: recompute %s, %s on %s", p->layers.policy,
               backend_precision(p->input.backend, p->input.compute), p->input.backend->name);
    if (p->micro.tokens) buf_printf(out, ", micro-batches of up to %lld tokens", (long long)p->micro.tokens);
    if (p->input.coupling && p->micros > 1)
        buf_printf(out, ", forward twice in %.0f of %.0f", ceil(p->micros) - 1, ceil(p->micros));
    buf_printf(out, ", a peak of %.1f MiB", MIB(run_plan_peak(p)));
    if (a->n > 1) buf_printf(out, " on the device and %.1f MiB beside it", MIB(a->row[a->n - 1].peak));
    run_plan_put_step(p, out);
    if (p->other) buf_puts(out, "; while a save is written ");
    if (p->other) run_plan_put_saves(p, out);
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
    const char *saves = p->other ? SHORT_TEXT("   (while a save is written, the save buffer of %.1f MiB is in it)",
                                              MIB(run_plan_saved_bytes(p)))
                                 : "";
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (p->bytes[shown[i]] && (account_has(first, shown[i]) || !own))
            put_row(out, region_name(shown[i]), p->bytes[shown[i]], shown[i] == REGION_ACT ? saves : "");
    if (machine->snapshots) put_row(out, "snapshots", machine->snapshots, own ? "   of the machine" : "");
    put_row(out, "process", first->held, own ? "   (driver and libraries)" : "   (program, libraries, data)");
    put_row(out, "peak", first->peak, own ? "   of the device" : "");
    if (own)
        put_row(out, "", machine->peak,
                SHORT_TEXT("   of the machine (program, data, the state that is being saved%s)",
                           p->bytes[REGION_HOST] ? ", offloaded tensors" : ""));
}
