/* Progress as state.json, and the saver's calls. */
#include "train/keep/saving.h"

#include <stdlib.h>

struct Saving {
    const Run *run;
    Saver saver;
    const float *fetched[N_STATE_ARRAYS]; // (params.size) each
    bool own;                             /* copies from a device, freed here, if there is no save buffer */
    double stopped;                       /* when training stopped for the save */
    Status (*fill)(void *context, const TrainingState *t);
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

Status saving_open(Saving **saving, const Run *run, const char *folder)
{
    Saving *s = *saving = mem_alloc(sizeof *s);
    s->run = run;
    return saver_init(&s->saver, folder, (int)run->c->keep, session_save_buffer(&run->session));
}

void saving_keep_one_more(Saving *s) { s->saver.keep += s->saver.keep > 0; } /* 0: all */

void saving_fill_by(Saving *s, Status (*fill)(void *context, const TrainingState *t), void *context)
{
    s->fill = fill;
    s->fill_context = context;
}

void saving_wait_buffer(Saving *s)
{
    s->stopped = clock_monotonic();
    (void)saver_wait(&s->saver);
}

static void drop_fetched(Saving *s)
{
    for (StateArray a = 0; a < N_STATE_ARRAYS; a++) {
        if (s->own && s->fetched[a]) session_read_done(&s->run->session, s->fetched[a]);
        s->fetched[a] = NULL;
    }
    s->own = false;
}

Status saving_fetch(Saving *s, const float **weights)
{
    const Session *session = &s->run->session;
    float *buffer = session_save_buffer(session);
    bool device = session->options.backend->device;
    drop_fetched(s);
    s->own = device && !buffer;
    if (!session_scattered(session)) s->stopped = device ? clock_monotonic() : 0;
    if (device || session_scattered(session))
        (void)saver_wait(&s->saver); /* the saver has reported a failure; this save replaces the failed one */
    for (StateArray a = 0; a < N_STATE_ARRAYS; a++)
        TRY(session_read(session, a, buffer ? buffer + a * session->model->params.size : NULL, &s->fetched[a]));
    *weights = s->fetched[STATE_WEIGHTS];
    return OK;
}

static Status read_sets(void *session, int64_t begin, int64_t end, float *to)
{
    return session_read_kfac(session, begin, end, to);
}

/* K-FAC's sets: in the save buffer, after the previous save ended; without a buffer read in pieces. Where this rank
   does not have all of them, they were collected in the buffer, or come from `fill`. */
static Status take_sets(Saving *s, TrainingState *state)
{
    const Session *session = &s->run->session;
    const Kfac *k = session_kfac_whole(session);
    float *buffer = session_kfac_buffer(session);
    bool all = session_has_all(session, SESSION_SETS);
    if (!kfac_sets(k)) return OK;
    if (!(state->stopped > 0)) state->stopped = clock_monotonic();
    (void)saver_wait(&s->saver);
    state->kfac = &k->saved;
    state->sets = buffer;
    if (!buffer && all) {
        state->read_sets = read_sets;
        state->read_context = (void *)(uintptr_t)session;
    }
    return buffer && all ? session_read_kfac(session, 0, k->saved.size, buffer) : OK;
}

Status saving_begin(Saving *s)
{
    Buf text = {0};
    CHECK(s->fetched[STATE_WEIGHTS], "saving_begin without saving_fetch");
    saving_state(s->run, &text);
    TrainingState state = {.params = &s->run->session.model->params,
                           .step = s->run->progress.step,
                           .weights = s->fetched[STATE_WEIGHTS],
                           .m = s->fetched[STATE_M],
                           .v = s->fetched[STATE_V],
                           .stopped = s->stopped,
                           .state = text.data,
                           .state_size = text.len,
                           .files = s->run->files,
                           .n_files = s->run->n_files,
                           .fill = s->fill,
                           .fill_context = s->fill_context};
    Status status = take_sets(s, &state);
    if (status == OK) status = saver_begin(&s->saver, &state); /* without a buffer it returns when it is durable */
    drop_fetched(s);
    buf_free(&text);
    return status;
}

bool saving_failed(Saving *s)
{
    int before = s->saver.stats.failed;
    saver_poll(&s->saver);
    return s->saver.stats.failed > before;
}

Status saving_wait(Saving *s) { return saver_wait(&s->saver); }

void saving_close(Saving *s)
{
    if (!s) return;
    saver_free(&s->saver);
    drop_fetched(s);
    free(s);
}

double saving_reserve(const Saving *s)
{
    const SaverStats *stats = &s->saver.stats;
    double bytes = (double)run_checkpoint_bytes(s->run);
    double guess = bytes / 100e6; /* before the first save: a slow disk */
    double seen = stats->saved ? (stats->stalled_s + stats->background_s) / stats->saved : guess;
    return 1 + 2 * seen;
}

double saving_longest_stall(const Saving *s) { return s->saver.stats.longest_stall_s; }
