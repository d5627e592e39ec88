#include "exec/pipeline.h"

#include "exec/pipeline_internal.h"

static int micros_of(const ExecPipeline *p, int chunk)
{
    return p->pass->micros[pipeline_direction(&p->o.shape, chunk)];
}

/* ---- life ---- */

Status exec_pipeline_open(const ExecPipelineOptions *options, ExecPipeline **pipeline)
{
    ExecPipeline *p = *pipeline = mem_alloc(sizeof *p);
    p->o = *options;
    return pipeline_open_links(p);
}

/* Keeps the message of the failure that comes before it. */
void exec_pipeline_close(ExecPipeline *p)
{
    if (!p) return;
    char *why = mem_strdup(status_message());
    pipeline_close_links(p);
    (void)fail(E_FAIL, "%s", why);
    MEM_FREE(why, p->works, p);
}

void exec_pipeline_seconds(const ExecPipeline *p, double *all, double *idle)
{
    *all = p->all;
    *idle = p->idle;
}

void exec_pipeline_note(ExecPipeline *p, bool notes)
{
    p->notes = notes;
    p->n_works = 0;
}

const ExecWork *exec_pipeline_works(const ExecPipeline *p, int *n)
{
    *n = p->n_works;
    return p->works;
}

/* ---- works ---- */

bool pipeline_wanted(const ExecPipeline *p, const Work *w)
{
    if (w->kind >= N_WORKS) return true;
    return w->micro < micros_of(p, w->chunk) && (!p->pass->forward || w->kind == WORK_FORWARD);
}

static void note_work(ExecPipeline *p, const Work *w, double start, double waited)
{
    bool inverse = w->kind == WORK_INVERSE;
    int direction = pipeline_direction(&p->o.shape, w->chunk);
    bool known = !inverse && w->micro < p->pass->micros[direction]; /* a statistic may be of an earlier step */
    if (!p->notes) return;
    MEM_PUSH(p->works, p->n_works, p->cap_works,
             (ExecWork){.kind = w->kind,
                        .stage = pipeline_stage(&p->o.shape, p->o.place, w->chunk),
                        .direction = direction,
                        .micro = inverse ? -1 : p->pass->first + w->micro,
                        .tokens = !known ? 0 : p->pass->rows[direction][w->micro].count[ROWS_TOKENS],
                        .begin = start + waited,
                        .end = clock_monotonic()});
}

static Status run_order_work(ExecPipeline *p, const Work *w)
{
    const ExecLinks links = {pipeline_pass, p};
    const RowCounts *rows = &p->pass->rows[pipeline_direction(&p->o.shape, w->chunk)][w->micro];
    p->chunk = w->chunk;
    p->micro = w->micro;
    if (w->kind == WORK_FORWARD) TRY(p->o.fill(p->o.self, w->chunk, w->micro, w->slot));
    if (w->kind != WORK_FORWARD && p->o.divide) p->o.divide(p->o.self, w->chunk, w->micro);
    bool last = p->pass->last && w->micro == micros_of(p, w->chunk) - 1;
    return exec_run_work(p->o.chunks[w->chunk], w->kind, w->slot, rows, &links, last);
}

/* A device ends a work before the next one begins, so that its time is its own and no wait for a boundary is counted
   while it computes. */
static Status run_work(ExecPipeline *p, const Work *w)
{
    double start = clock_monotonic(), before = p->idle;
    Status status = w->kind < N_WORKS ? run_order_work(p, w) : p->o.item(p->o.self, w);
    if (status == OK) status = p->carrier->worked(p);
    note_work(p, w, start, p->idle - before);
    if (p->o.ran) p->o.ran(p->o.self, w, clock_monotonic() - start - (p->idle - before));
    return status;
}

/* By micro-batch, then F before B, F down the stages and B up. */
static int64_t order_of(const ExecPipeline *p, const Work *w)
{
    int stages = pipeline_stages(&p->o.shape), stage = pipeline_stage(&p->o.shape, p->o.place, w->chunk);
    int64_t back = w->kind != WORK_FORWARD;
    return ((int64_t)w->micro * 2 + back) * stages + (back ? stages - 1 - stage : stage);
}

/* Notes the earliest value that is not finite; the works go on. */
static Status note_bad(const ExecPipeline *p, const Work *w, Status status, int64_t *earliest, char **why)
{
    if (status != E_NUMERIC) return status;
    if (*why && *earliest <= order_of(p, w)) return OK;
    free(*why);
    *earliest = order_of(p, w);
    *why = mem_printf("micro-batch %d, stage %d: %s", w->micro, pipeline_stage(&p->o.shape, p->o.place, w->chunk),
                      status_message());
    return OK;
}

/* Graphs of the works are made now, when no message waits on the device: while it makes one CUDA may wait until the
   device is idle, and a message may wait for a rank that waits for this one. */
static Status prepare_works(ExecPipeline *p)
{
    for (const Work *w = p->order; w < p->order + p->n_order; w++) {
        if (w->kind >= N_WORKS || !pipeline_wanted(p, w)) continue;
        const RowCounts *rows = &p->pass->rows[pipeline_direction(&p->o.shape, w->chunk)][w->micro];
        TRY(exec_prepare_work(p->o.chunks[w->chunk], w->kind, w->slot, rows));
    }
    return OK;
}

static void set_captures(const ExecPipeline *p, bool captures)
{
    for (int k = 0; k < p->o.shape.chunks; k++) exec_set_captures(p->o.chunks[k], captures);
}

Status exec_pipeline_run(ExecPipeline *p, const ExecPass *of, int64_t *when)
{
    const Schedule *s = of->schedule;
    CHECK(s->shape.kind == p->o.shape.kind && s->shape.places == p->o.shape.places &&
              s->shape.micros <= p->o.shape.micros,
          "a schedule of another pipeline");
    double start = clock_monotonic();
    int64_t earliest = INT64_MAX;
    char *why = NULL;
    Status status = OK;
    p->pass = of;
    p->order = of->works ? of->works : s->works + s->first[p->o.place];
    p->n_order = of->works ? of->n_works : s->first[p->o.place + 1] - s->first[p->o.place];
    TRY_DONE(prepare_works(p));
    set_captures(p, false);
    TRY_DONE(pipeline_begin_links(p));
    for (const Work *w = p->order; w < p->order + p->n_order; w++)
        if (pipeline_wanted(p, w)) TRY_DONE(note_bad(p, w, run_work(p, w), &earliest, &why));
    if (p->carrier->ended) TRY_DONE(p->carrier->ended(p));
    p->all += clock_monotonic() - start;
    if (when) *when = earliest;
    if (why) status = fail(E_NUMERIC, "%s", why);
done:
    set_captures(p, true);
    if (status != OK && !why && p->carrier->broken) p->carrier->broken(p);
    free(why);
    return status;
}
