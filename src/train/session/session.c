#include "train/session/session.h"

#include "base/machine_memory.h"
#include "train/session/session_pipeline.h"

size_t session_memory_used(const Session *s)
{
    Device *d = s->options.backend->device;
    return d ? d->used(d) : process_resident();
}

/* The update's tables: of what the rank has, owns, and of the whole model, as far as the plan reads them. */
static Status upload_segments(Session *s)
{
    const PlanInput *in = &s->plan.input;
    const Intervals *slice = holding_slice(&in->place->holding);
    const Model *held = &in->place->held;
    const ModelTensors *t = &s->plan.chunk->train_tensors;
    int most = s->model->params.count + (slice ? slice->count : 0);
    TRY(exec_upload(s->train[0], t->segments, s->plan.segments, (size_t)held->params.count * sizeof(Segment)));
    Segment *own = mem_array((size_t)most, sizeof *own);
    Status status = OK;
    if (t->own_segments != NONE) {
        int64_t n = optim_own_segments(held, s->model, &in->optimizer, slice, own);
        status = exec_upload(s->train[0], t->own_segments, own, (size_t)(n > 0 ? n : 1) * sizeof *own);
    }
    if (t->whole_segments != NONE && status == OK) {
        optim_own_segments(s->model, s->model, &in->optimizer, NULL, own);
        status = exec_upload(s->train[0], t->whole_segments, own, (size_t)s->model->params.count * sizeof *own);
    }
    free(own);
    return status;
}

/* Collective. Products are timed on rank 0 alone: choices of their own would give the next run other bits. */
static Status share_choices(Session *s)
{
    const Backend *b = s->options.backend;
    Buf text = {0};
    if (!s->options.ranks || !b->give_choices) return OK;
    bool first = ranks_first(s->options.ranks);
    if (first) b->give_choices(&text);
    Status status = ranks_broadcast_text(s->options.ranks, &text);
    if (status == OK && !first) b->take_choices(&text);
    buf_free(&text);
    return status;
}

int session_chunks(const Session *s) { return place_chunks(s->plan.input.place); }

static Status bind_chunk(Session *s, int k)
{
    const PlanInput *in = &s->plan.input;
    const ExecOptions eval = {.poison = s->options.poison, .stop = s->options.stop};
    ExecOptions train = eval;
    if (s->options.ranks) { /* one that stopped within a step would leave the others alone in it */
        train.stop = NULL;
        train.ranks = &s->exec_ranks;
    }
    train.virtual_ranks = in->virtual.ranks;
    if (in->training) TRY(exec_init(&s->train[k], &s->plan.chunk[k].train, &s->memory[k], train));
    return in->evaluation ? exec_init(&s->eval[k], &s->plan.chunk[k].eval, &s->memory[k], eval) : OK;
}

static Status bind_plans(Session *s)
{
    bool first = ranks_first(s->options.ranks);
    if (!first) TRY(share_choices(s));
    for (int k = 0; k < session_chunks(s); k++) TRY(bind_chunk(s, k));
    if (s->plan.input.training) TRY(exec_open_lane(s->train, session_chunks(s)));
    if (s->plan.input.training) TRY(upload_segments(s));
    TRY(pipeline_bind(s));
    return first ? share_choices(s) : OK;
}

void session_comm_seconds(const Session *s, double *busy, double *waited)
{
    double now_busy = 0, now_waited = 0;
    if (s->train && s->train[0]) exec_comm_seconds(s->train[0], &now_busy, &now_waited);
    *busy = s->comm_busy + now_busy;
    *waited = s->comm_waited + now_waited;
}

static void unbind(Session *s)
{
    pipeline_unbind(s->pipeline);
    session_comm_seconds(s, &s->comm_busy, &s->comm_waited);
    for (int k = s->train ? session_chunks(s) - 1 : -1; k >= 0; k--) { /* the first closes the lane of all */
        exec_free(s->train[k]);
        exec_free(s->eval[k]);
        s->train[k] = s->eval[k] = NULL;
    }
}

CommDevice *session_holders_device(const Session *s) { return s->options.devices ? s->options.devices->holders : NULL; }

static Status meet(void *self) { return ranks_meet(self); }

static Status connect_holders(Session *s)
{
    const RankPlace *place = s->plan.input.place;
    const Grid *g = &place->grid;
    Ranks *ranks = s->options.ranks;
    ExecRanks *r = &s->exec_ranks;
    int rank = ranks_rank(ranks), low = grid_first_stage(g, rank);
    if (!ranks || !s->plan.input.training) return OK;
    *r = (ExecRanks){.comm_device = session_holders_device(s),
                     .holding = &place->holding,
                     .later = place_tied(place),
                     .factors = session_kfac(s) ? &session_kfac(s)->pieces : NULL,
                     .scratch = place->room.scratch,
                     .stride = place->room.largest,
                     .meet = place_has_works(place) ? NULL : meet, /* whose ranks meet before the first work */
                     .self = ranks};
    if (!place_has_works(place)) { /* its own, for sums beside works, and of all: a split one cannot tell who is late */
        TRY(ranks_connect(ranks, &r->holders[0]));
        r->comm = r->holders[0];
        return OK;
    }
    r->comm = ranks_comm(ranks);
    TRY(ranks_meet(ranks));
    for (int k = 0; k < g->directions && grid_holders(g) > 1; k++)
        TRY(comm_split(ranks_comm(ranks), grid_holder(g, low, 0),
                       grid_holder_number(g, k ? g->stages - 1 - low : low, rank), &r->holders[k]));
    return OK;
}

/* The plans of a chunk, which share its memory. */
enum { SHARING = 3 };
static void find_plans(const Session *s, int k, const Plan *plans[SHARING])
{
    const RunPlan *p = &s->plan;
    plans[0] = &p->chunk[k].train;
    plans[1] = &p->chunk[k].eval;
    plans[2] = p->other ? &p->other->chunk[k].train : NULL;
}

static Status open_memory(Session *s)
{
    const Plan *plans[SHARING];
    for (int k = 0; k < session_chunks(s); k++) {
        find_plans(s, k, plans);
        TRY(memory_init(&s->memory[k], s->options.backend, k > 0 ? s->memory : NULL, plans, SHARING));
    }
    return OK;
}

Status session_open(Session *s, RunPlan *plan, const SessionOptions *options)
{
    Status status = OK;
    *s = (Session){.model = plan->input.model, .options = *options, .plan = *plan};
    *plan = (RunPlan){0};
    s->ctl = (Ctl){.dropout_key = options->seed ^ PHILOX_DROPOUT, .bias1 = 1, .bias2 = 1};
    s->memory = mem_array((size_t)session_chunks(s), sizeof *s->memory);
    s->train = mem_array((size_t)session_chunks(s), sizeof *s->train);
    s->eval = mem_array((size_t)session_chunks(s), sizeof *s->eval);
    TRY_DONE(open_memory(s));
    TRY_DONE(connect_holders(s));
    TRY_DONE(pipeline_open(s));
    TRY_DONE(bind_plans(s));
    TRY_DONE(session_set_scaling(s, (LossScaling){.scale = s->plan.input.optimizer.loss_scale}));
done:
    if (status != OK) session_close(s);
    return status;
}

void session_close(Session *s)
{
    comm_device_abort(session_holders_device(s)); /* sums of a failed step may be pending */
    unbind(s);
    session_free_filled(s);
    pipeline_close(s->pipeline);
    for (int k = s->memory ? session_chunks(s) : 0; k > 0; k--) memory_free(&s->memory[k - 1]);
    MEM_FREE(s->memory, s->train, s->eval);
    for (int k = 0; k < 2; k++) comm_close(s->exec_ranks.holders[k]);
    comm_close(s->pipeline_comm);
    run_plan_free(&s->plan);
    *s = (Session){0};
}

bool session_saves(const Session *s) { return s->plan.buffer_at > 0; }

Status session_set_saves(Session *s, bool saves)
{
    RunPlan *other = s->plan.other;
    if (!other || session_saves(s) == saves) return OK;
    unbind(s);
    RunPlan now = *other;
    *other = s->plan;
    other->other = NULL;
    s->plan = now;
    s->plan.other = other;
    return bind_plans(s); /* of a host, where no choices are shared */
}

/* Only activations can change in size, and not by much; the regions that hold state stay where they are. */
Status session_check_forms(Session *s, bool *changed)
{
    Status status = OK;
    RunPlan with = {0};
    const Plan *plans[SHARING];
    size_t n = (size_t)(2 * s->model->config.layers + 1);
    uint8_t *forms = mem_alloc(n);
    CHECK(!session_saves(s), "the save buffer is in use");
    TRY_DONE(session_norm_forms(s, forms));
    *changed = memcmp(forms, s->plan.layers.norm_forms, n) != 0;
    if (!*changed) goto done;
    TRY_DONE(run_plan_with_forms(&s->plan, forms, &with));
    unbind(s);
    run_plan_free(&s->plan);
    s->plan = with;
    with = (RunPlan){0};
    for (int k = 0; k < session_chunks(s); k++) {
        find_plans(s, k, plans);
        TRY_DONE(memory_grow(&s->memory[k], plans, SHARING));
    }
    TRY_DONE(bind_plans(s));
    status = session_ready(s);
done:
    run_plan_free(&with);
    free(forms);
    return status;
}

static bool has_scaling(const Session *s) { return s->train[0] && s->plan.chunk->train_tensors.scaling != NONE; }

Status session_set_scaling(Session *s, LossScaling scaling)
{
    if (!has_scaling(s)) return OK;
    CHECK(scaling.scale >= LOSS_SCALE_LEAST && scaling.scale <= LOSS_SCALE_MOST, "a loss scale of %g",
          (double)scaling.scale);
    s->scaling = scaling;
    return exec_upload(s->train[0], s->plan.chunk->train_tensors.scaling, &scaling, sizeof scaling);
}

bool session_scale_is_dynamic(const Session *s) { return has_scaling(s) && s->plan.input.optimizer.scale_growth > 0; }
