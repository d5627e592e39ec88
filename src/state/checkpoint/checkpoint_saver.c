/* Saving in the background: copy the state, return to training, and let a thread write. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "base/thread.h"
#include "state/checkpoint/checkpoint_internal.h"

/* A save in progress. It owns copies of everything but the floats, which are in the saver's buffer. */
struct Save {
    TrainingState state;
    ModelFile *files;
    char *out;
    int keep;
    /* the outcome */
    Status status;
    char *message, *note;
    double seconds;
};

/* ---- Copying with several threads: one core does not saturate the memory ---- */

typedef struct {
    float *to;
    const float *from;
} CopyJob;

static void copy_range(void *arg, size_t begin, size_t end)
{
    const CopyJob *job = arg;
    memcpy(job->to + begin, job->from + begin, (end - begin) * sizeof *job->to);
}

static void copy_floats(float *to, const float *from, size_t count)
{
    enum { GRAIN = 1 << 20 };
    if (to == from) return;
    parallel_ranges(count, GRAIN, copy_range, &(CopyJob){to, from});
}

/* ---- The save ---- */

static struct Save *save_new(const Saver *s, const TrainingState *state)
{
    struct Save *save = mem_alloc(sizeof *save);
    save->state = *state;
    save->out = mem_strdup(s->out);
    save->keep = s->keep;
    if (!s->buffer) return save;
    char *text = mem_alloc(state->state_size);
    memcpy(text, state->state, state->state_size);
    save->state.state = text;
    save->files = mem_array((size_t)state->n_files, sizeof *save->files);
    for (int i = 0; i < state->n_files; i++) {
        void *data = mem_alloc(state->files[i].size);
        if (state->files[i].size > 0) memcpy(data, state->files[i].data, state->files[i].size);
        save->files[i] = (ModelFile){mem_strdup(state->files[i].name), data, state->files[i].size};
    }
    save->state.files = save->files;
    size_t n = (size_t)state->params->size;
    copy_floats(s->buffer, state->weights, n);
    copy_floats(s->buffer + n, state->m, n);
    copy_floats(s->buffer + 2 * n, state->v, n);
    save->state.weights = s->buffer;
    save->state.m = s->buffer + n;
    save->state.v = s->buffer + 2 * n;
    CHECK(!state->read_sets, "a save in the background reads K-FAC's sets from the buffer");
    if (state->sets) copy_floats(s->buffer + 3 * n, state->sets, (size_t)state->kfac->size);
    if (state->sets) save->state.sets = s->buffer + 3 * n;
    return save;
}

static void save_free(struct Save *save)
{
    if (save->files) {
        for (int i = 0; i < save->state.n_files; i++) {
            free((void *)(uintptr_t)save->files[i].name);
            free((void *)(uintptr_t)save->files[i].data);
        }
        free((void *)(uintptr_t)save->state.state);
        free(save->files);
    }
    MEM_FREE(save->message, save->note, save->out, save);
}

static void save_write(struct Save *save)
{
    double start = clock_monotonic();
    save->status = checkpoint_write(save->out, &save->state, save->keep, &save->note);
    if (save->status != OK) save->message = mem_strdup(status_message());
    save->seconds = clock_monotonic() - start;
}

static void *save_thread(void *save)
{
    save_write(save);
    return NULL;
}

/* Records the outcome of s->save, and frees it. */
static void saver_record(Saver *s)
{
    struct Save *save = s->save;
    s->save = NULL;
    s->last = save->status;
    if (s->running) s->stats.background_s += save->seconds;
    s->running = false;
    free(s->last_message);
    s->last_message = NULL;
    if (save->status == OK) {
        s->stats.saved++;
        if (save->note) log_warn("checkpoint-%" PRId64 " is saved, but: %s", save->state.step, save->note);
    } else {
        s->stats.failed++;
        s->last_message = mem_strdup(save->message);
        log_warn("checkpoint-%" PRId64 " could not be saved, earlier checkpoints stay: %s", save->state.step,
                 save->message);
        if (save->note) log_warn("and: %s", save->note);
    }
    save_free(save);
}

static void saver_join(Saver *s)
{
    if (!s->running) return;
    pthread_join(s->thread, NULL);
    saver_record(s);
}

/* ---- The saver ---- */

Status saver_init(Saver *s, const char *out, int keep, float *buffer)
{
    *s = (Saver){.keep = keep, .buffer = buffer};
    TRY(file_make_directories(out));
    TRY(checkpoint_remove_leftovers(out));
    s->out = mem_strdup(out);
    return OK;
}

Status saver_begin(Saver *s, const TrainingState *state)
{
    double start = state->stopped > 0 ? state->stopped : clock_monotonic();
    Status status = OK;
    CHECK(s->out, "saver_begin without saver_init");
    saver_join(s);
    s->save = save_new(s, state);
    s->running = s->buffer && thread_start(&s->thread, save_thread, s->save) == OK;
    if (!s->running) {
        save_write(s->save);
        saver_record(s);
        status = s->last == OK ? OK : fail(s->last, "%s", s->last_message);
    }
    double stall = clock_monotonic() - start;
    s->stats.stalled_s += stall;
    if (stall > s->stats.longest_stall_s) s->stats.longest_stall_s = stall;
    return status;
}

bool saver_poll(Saver *s)
{
    if (s->running && pthread_tryjoin_np(s->thread, NULL) == 0) saver_record(s);
    return s->running;
}

Status saver_wait(Saver *s)
{
    saver_join(s);
    return s->last == OK ? OK : fail(s->last, "%s", s->last_message);
}

void saver_free(Saver *s)
{
    if (!s->out) return;
    saver_join(s);
    MEM_FREE(s->last_message, s->out);
    *s = (Saver){0};
}
