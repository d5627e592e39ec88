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
    double stalled_s, longest_stall_s; /* of training: for all saves, for one of them */
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
    return saver_init(&s->saver, run->c->output_dir, (int)run->c->keep);
}

Status saving_open_alone(Saving **saving, const Run *run, const char *folder, CheckpointFill *fill, void *context)
{
    Saving *s = *saving = saving_new(run, true);
    s->fill = fill;
    s->fill_context = context;
    return saver_init(&s->saver, folder, (int)run->c->keep);
}

void saving_keep_one_more(Saving *s) { s->saver.keep += s->saver.keep > 0; } /* 0: all */

/* ---- a save ---- */

static Status explain_weights(const Saving *s, Status status)
{
    if (status != E_NUMERIC) return status;
    return fail(E_NUMERIC, "step %lld: after the update %s. Lower --learning-rate", (long long)s->run->progress.step,
                status_message());
}

static Status check_own_weights(const Session *s)
{
    const float *weights;
    TRY(session_read(s, STATE_WEIGHTS, &weights));
    Status status = session_check_range(s, 0, s->model->params.size, weights);
    session_read_done(s, weights);
    return status;
}

/* The saver of the rank that makes the files. `whole`: this rank writes all of the state. */
static Status begin_saver(Saving *s, bool whole)
{
    const Run *run = s->run;
    const Kfac *k = session_kfac_whole(&run->session);
    Buf text = {0};
    saving_state(run, &text);
    Status status = saver_begin(&s->saver, &(TrainingState){.params = &run->session.model->params,
                                                            .kfac = kfac_sets(k) ? &k->saved : NULL,
                                                            .step = run->progress.step,
                                                            .state = text.data,
                                                            .state_size = text.len,
                                                            .files = run->files,
                                                            .n_files = run->n_files,
                                                            .read = whole ? saving_parts_read : NULL,
                                                            .read_context = &s->parts,
                                                            .fill = whole ? s->fill : saving_parts_fill,
                                                            .fill_context = whole ? s->fill_context : &s->parts,
                                                            .beside = !whole || s->parts.buffer});
    buf_free(&text);
    return status;
}

static Status begin_alone(Saving *s)
{
    TRY(explain_weights(s, check_own_weights(&s->run->session)));
    saving_parts_prepare(&s->parts, true);
    return begin_saver(s, true);
}

/* Collective. */
static Status begin_together(Saving *s)
{
    const Session *session = &s->run->session;
    Ranks *ranks = s->run->ranks;
    bool whole = holding_writes_all(s->parts.holding, 0);
    if (session_kfac(session)) TRY(session_settle_kfac(session));
    TRY(saving_parts_end(&s->parts));
    if (s->makes) (void)saver_wait(&s->saver); /* which may read from the buffer; it has reported a failure */
    saving_parts_prepare(&s->parts, false);
    Status status = session_bring(session);
    if (status == OK) status = explain_weights(s, session_check_written(session));
    TRY(ranks_all(ranks, status));
    if (s->makes) status = begin_saver(s, whole);
    if (whole) return ranks_all(ranks, status);
    bool made = s->saver.filling; /* false: the save has ended, and failed, or the step is saved */
    TRY(ranks_broadcast(ranks, &made, sizeof made));
    if (made) saving_parts_begin(&s->parts);
    return OK;
}

Status saving_begin(Saving *s)
{
    double stopped = clock_monotonic();
    Status status = s->alone ? begin_alone(s) : begin_together(s);
    double stall = clock_monotonic() - stopped;
    s->stalled_s += stall;
    if (stall > s->longest_stall_s) s->longest_stall_s = stall;
    return status;
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
    double took = s->stalled_s + stats->background_s - atomic_load(&s->parts.idle_s);
    double seen = stats->saved ? took / stats->saved : guess;
    return 1 + 2 * seen;
}

double saving_longest_stall(const Saving *s) { return s->longest_stall_s; }
