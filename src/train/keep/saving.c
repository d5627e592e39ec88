/* Progress as state.json; saves by one rank, or by several, each a part. */
#include "train/keep/saving.h"

#include <stdlib.h>

#include "train/keep/saving_parts.h"

struct Saving {
    const Run *run;
    bool alone, makes; /* saves by itself; makes the files: rank 0, or alone */
    Saver saver;       /* of the rank that makes the files */
    SavingParts parts; /* with several writers */
    CheckpointFill *fill;
    void *fill_context;
};

void saving_state(const Run *run, Buf *out)
{
    const Session *s = &run->session;
    const TrainProgress *p = &run->progress;
    buf_printf(out, "{\"format\": %d, \"step\": %lld, \"batch\": %lld, \"skipped\": %lld, \"finished\": %s,\n",
               SAVING_FORMAT, (long long)p->step, (long long)p->batch, (long long)(p->batch - p->step),
               p->finished ? "true" : "false");
    buf_puts(out, " \"loss_sum\": ");
    buf_double(out, p->loss_sum);
    buf_member(out, "last_loss", p->last_loss);
    buf_member(out, "best_metric", p->best_metric); /* NaN: null */
    buf_printf(out, ", \"best_step\": %lld, \"evaluated\": %lld, \"evaluated_samples\": %lld,\n \"norm_forms\": [",
               (long long)p->best_step, (long long)p->evaluated, (long long)p->evaluated_samples);
    for (int i = 0; i < 2 * s->model->config.layers + 1; i++)
        buf_printf(out, "%s%d", i ? ", " : "", s->plan.layers.norm_forms[i]);
    buf_puts(out, "],\n");
    if (s->scaling.scale > 0) {
        buf_puts(out, " \"loss_scale\": {\"scale\": ");
        buf_double(out, (double)s->scaling.scale);
        buf_printf(out, ", \"good\": %d},\n", s->scaling.good);
    }
    buf_printf(out, " \"fingerprint\": %s,\n \"config\": %s}\n", run->fingerprint.data, run->config_json.data);
}

static Saving *saving_new(const Run *run, bool alone)
{
    Saving *s = mem_alloc(sizeof *s);
    *s = (Saving){.run = run, .alone = alone, .makes = alone || ranks_first(run->ranks)};
    saving_parts_init(&s->parts, run);
    return s;
}

Status saving_open(Saving **saving, const Run *run)
{
    Saving *s = *saving = saving_new(run, false);
    if (!s->makes) return OK;
    return saver_init(&s->saver, run->c->output_dir, (int)run->c->keep, session_save_buffer(&run->session));
}

Status saving_open_alone(Saving **saving, const Run *run, const char *folder, CheckpointFill *fill, void *context)
{
    Saving *s = *saving = saving_new(run, true);
    s->fill = fill;
    s->fill_context = context;
    return saver_init(&s->saver, folder, (int)run->c->keep, NULL);
}

void saving_keep_one_more(Saving *s) { s->saver.keep += s->saver.keep > 0; } /* 0: all */

/* ---- a save ---- */

/* Without the tensors; `text` becomes state.json's. */
static TrainingState state_of(const Saving *s, double stopped, Buf *text)
{
    const Kfac *k = session_kfac_whole(&s->run->session);
    saving_state(s->run, text);
    return (TrainingState){.params = &s->run->session.model->params,
                           .kfac = kfac_sets(k) ? &k->saved : NULL,
                           .step = s->run->progress.step,
                           .stopped = stopped,
                           .state = text->data,
                           .state_size = text->len,
                           .files = s->run->files,
                           .n_files = s->run->n_files,
                           .fill = s->fill,
                           .fill_context = s->fill_context};
}

static Status explain_weights(const Saving *s, Status status)
{
    if (status != E_NUMERIC) return status;
    return fail(E_NUMERIC, "step %lld: after the update %s. Lower --learning-rate", (long long)s->run->progress.step,
                status_message());
}

static Status read_sets(void *session, int64_t begin, int64_t end, float *to)
{
    return session_read_kfac(session, begin, end, to);
}

/* What session_bring brought to the save buffer. */
static void take_brought(const Session *s, TrainingState *state)
{
    int64_t n = s->model->params.size;
    const float *buffer = session_save_buffer(s);
    state->weights = buffer;
    state->m = buffer + n;
    state->v = buffer + 2 * n;
    if (state->kfac) state->sets = session_kfac_buffer(s);
}

/* Where this rank has the state, without a buffer. Sets that it does not have come from `fill`. */
static Status take_own(const Session *s, TrainingState *state)
{
    TRY(session_read(s, STATE_WEIGHTS, &state->weights));
    TRY(session_read(s, STATE_M, &state->m));
    TRY(session_read(s, STATE_V, &state->v));
    if (!state->kfac || !session_has_all(s, SESSION_SETS)) return OK;
    state->read_sets = read_sets;
    state->read_context = (void *)(uintptr_t)s;
    return OK;
}

static void drop_own(const Session *s, const TrainingState *state)
{
    if (state->weights) session_read_done(s, state->weights);
    if (state->m) session_read_done(s, state->m);
    if (state->v) session_read_done(s, state->v);
}

/* This rank writes all of the state. */
static Status write_whole(Saving *s, double stopped)
{
    const Session *session = &s->run->session;
    bool brought = !s->alone && session_save_buffer(session);
    Buf text = {0};
    Status status = OK;
    TrainingState state = state_of(s, stopped, &text);
    if (brought)
        take_brought(session, &state);
    else
        status = take_own(session, &state);
    if (status == OK)
        status = explain_weights(s, session_check_range(session, 0, session->model->params.size, state.weights));
    if (status == OK) status = saver_begin(&s->saver, &state);
    if (!brought) drop_own(session, &state);
    buf_free(&text);
    return status;
}

/* Collective: rank 0 writes for all. */
static Status begin_whole(Saving *s, double stopped)
{
    Status status = OK;
    if (s->alone) return write_whole(s, stopped);
    if (s->makes) (void)saver_wait(&s->saver); /* which reads from the buffer; it has reported a failure */
    status = session_bring(&s->run->session);
    if (status == OK && s->makes) status = write_whole(s, stopped);
    return ranks_all(s->run->ranks, status);
}

/* Rank 0's saver goes on to where the others write. False: the save has ended, and failed, or the step is saved. */
static bool make_files(Saving *s, double stopped)
{
    Buf text = {0};
    (void)saver_wait(&s->saver); /* it has reported a failure; this save replaces the failed one */
    saving_parts_prepare(&s->parts);
    TrainingState state = state_of(s, stopped, &text);
    state.fill = saving_parts_fill;
    state.fill_context = &s->parts;
    (void)saver_begin(&s->saver, &state);
    buf_free(&text);
    return s->saver.filling;
}

/* Collective. */
static Status begin_parts(Saving *s, double stopped)
{
    Ranks *ranks = s->run->ranks;
    SaverStats *stats = &s->saver.stats;
    double before = stats->stalled_s;
    TRY(saving_parts_end(&s->parts));
    Status status = session_bring(&s->run->session);
    if (status == OK) status = explain_weights(s, session_check_written(&s->run->session));
    TRY(ranks_all(ranks, status));
    bool made = s->makes && make_files(s, stopped);
    TRY(ranks_broadcast(ranks, &made, sizeof made));
    if (made) saving_parts_begin(&s->parts);
    double stall = clock_monotonic() - stopped;
    stats->stalled_s = before + stall;
    if (stall > stats->longest_stall_s) stats->longest_stall_s = stall;
    return OK;
}

Status saving_begin(Saving *s)
{
    double stopped = clock_monotonic();
    const Session *session = &s->run->session;
    bool whole = s->alone || holding_writes_all(s->parts.holding, 0);
    if (!s->alone && session_kfac(session)) TRY(session_settle_kfac(session));
    return whole ? begin_whole(s, stopped) : begin_parts(s, stopped);
}

void saving_vote(const Saving *s)
{
    if (s && saving_parts_busy(&s->parts)) ranks_vote(s->run->ranks, VOTE_SAVE_BUSY);
}

Status saving_step(Saving *s)
{
    if (!s || !s->parts.pending) return OK;
    bool busy = ranks_agreed(s->run->ranks, VOTE_SAVE_BUSY);
    ranks_clear(s->run->ranks, VOTE_SAVE_BUSY);
    return busy ? OK : saving_parts_end(&s->parts);
}

bool saving_failed(Saving *s)
{
    int before = s->saver.stats.failed;
    saver_poll(&s->saver);
    return s->saver.stats.failed > before;
}

Status saving_wait(Saving *s)
{
    TRY(saving_parts_end(&s->parts));
    Status status = s->makes ? saver_wait(&s->saver) : OK;
    return s->alone ? status : ranks_all(s->run->ranks, status);
}

void saving_give_up(Saving *s) { saving_parts_give_up(&s->parts); }

void saving_join(Saving *s)
{
    saving_parts_join(&s->parts);
    if (s->makes) (void)saver_wait(&s->saver);
}

void saving_close(Saving *s)
{
    if (!s) return;
    saving_give_up(s);
    saving_join(s);
    saver_free(&s->saver);
    saving_parts_free(&s->parts);
    free(s);
}

double saving_reserve(const Saving *s)
{
    const SaverStats *stats = &s->saver.stats;
    double bytes = (double)run_checkpoint_bytes(s->run);
    double guess = bytes / 100e6; /* before the first save: a slow disk */
    double took = stats->stalled_s + stats->background_s - atomic_load(&s->parts.idle_s);
    double seen = stats->saved ? took / stats->saved : guess;
    return 1 + 2 * seen;
}

double saving_longest_stall(const Saving *s) { return s->saver.stats.longest_stall_s; }
