/* Progress as state.json, and the saver's calls. */
#include "train/saving.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "state/checkpoint.h"

struct Saving {
    const TrainJob *job;
    Saver saver;
    CheckpointFile *files;
    const float *fetched[N_STATE_ARRAYS]; // (params.size) each
    bool own;                             /* they are copies, to be freed: of a device, without a save buffer */
    double stopped;                       /* when training stopped for it */
};

void saving_state(const TrainJob *job, const TrainProgress *p, Buf *out)
{
    const Session *s = job->session;
    buf_printf(out, "{\"format\": 1, \"step\": %lld, \"batch\": %lld, \"finished\": %s,\n", (long long)p->step,
               (long long)p->batch, p->finished ? "true" : "false");
    buf_puts(out, " \"loss_sum\": ");
    buf_double(out, p->loss_sum);
    buf_puts(out, ", \"last_loss\": ");
    buf_double(out, p->last_loss);
    buf_puts(out, ", \"best_metric\": ");
    buf_double(out, p->best_metric); /* NaN: null */
    buf_printf(out, ", \"best_step\": %lld, \"evaluated\": %lld, \"evaluated_samples\": %lld,\n \"norm_forms\": [",
               (long long)p->best_step, (long long)p->evaluated, (long long)p->evaluated_samples);
    for (int i = 0; i < 2 * s->model->config.layers + 1; i++) buf_printf(out, "%s%d", i ? ", " : "", s->norm_forms[i]);
    buf_puts(out, "],\n");
    if (s->scaling.scale > 0) {
        buf_puts(out, " \"loss_scale\": {\"scale\": ");
        buf_double(out, (double)s->scaling.scale);
        buf_printf(out, ", \"good\": %d, \"skipped\": %lld},\n", s->scaling.good, (long long)s->scaling.skipped);
    }
    buf_printf(out, " \"fingerprint\": %s,\n \"config\": %s}\n", job->fingerprint, job->config_json);
}

Status saving_open(Saving **saving, const TrainJob *job)
{
    Saving *s = mem_alloc(sizeof *s);
    s->job = job;
    s->files = mem_array((size_t)job->n_files, sizeof *s->files);
    for (int i = 0; i < job->n_files; i++)
        s->files[i] = (CheckpointFile){job->files[i].name, job->files[i].data, job->files[i].size};
    Status status = saver_init(&s->saver, job->output_dir, (int)job->config->keep, session_save_buffer(job->session));
    if (status != OK) {
        saving_close(s);
        return status;
    }
    *saving = s;
    return OK;
}

void saving_settle(Saving *s)
{
    s->stopped = clock_monotonic();
    (void)saver_wait(&s->saver);
}

static void drop_fetched(Saving *s)
{
    for (StateArray a = 0; a < N_STATE_ARRAYS; a++) {
        if (s->own && s->fetched[a]) session_read_done(s->job->session, s->fetched[a]);
        s->fetched[a] = NULL;
    }
    s->own = false;
}

Status saving_fetch(Saving *s, const float **weights)
{
    const Session *session = s->job->session;
    float *buffer = session_save_buffer(session);
    bool device = session->options.backend->device;
    drop_fetched(s);
    s->own = device && !buffer;
    if (!session_sharded(session)) s->stopped = device ? clock_monotonic() : 0;
    if (device || session_sharded(session))
        (void)saver_wait(&s->saver); /* where that one failed, the saver has said so: this save makes up for it */
    for (StateArray a = 0; a < N_STATE_ARRAYS; a++) {
        float *room = buffer ? buffer + a * session->model->params.size : NULL;
        if (a != STATE_WEIGHTS && session_sharded(session))
            s->fetched[a] = room; /* collected there already */
        else
            TRY(session_read(session, a, device ? room : NULL, &s->fetched[a]));
    }
    *weights = s->fetched[STATE_WEIGHTS];
    return OK;
}

Status saving_begin(Saving *s, const TrainProgress *progress)
{
    Buf text = {0};
    CHECK(s->fetched[STATE_WEIGHTS], "saving_begin without saving_fetch");
    saving_state(s->job, progress, &text);
    TrainingState state = {.params = &s->job->session->model->params,
                           .step = progress->step,
                           .weights = s->fetched[STATE_WEIGHTS],
                           .m = s->fetched[STATE_M],
                           .v = s->fetched[STATE_V],
                           .stopped = s->stopped,
                           .state = text.data,
                           .state_size = text.len,
                           .files = s->files,
                           .n_files = s->job->n_files};
    Status status = saver_begin(&s->saver, &state); /* without a buffer it returns when all is written */
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
    free(s->files);
    free(s);
}

double saving_reserve(const Saving *s)
{
    const SaverStats *stats = &s->saver.stats;
    double bytes = (double)checkpoint_bytes(&s->job->session->model->params);
    double guess = bytes / 100e6; /* before the first save: a slow disk */
    double seen = stats->saved ? (stats->stalled_s + stats->background_s) / stats->saved : guess;
    return 1 + 2 * seen;
}

double saving_longest_stall(const Saving *s) { return s->saver.stats.longest_stall_s; }
