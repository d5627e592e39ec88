/* Saving in the background: copy the state, return to training, and let a thread write. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "base/thread.h"
#include "state/checkpoint/checkpoint_internal.h"

/* A save in progress. In the background it owns copies of everything but the floats, which are in the saver's buffer,
   or come from the state's `fill`. */
struct Save {
    TrainingState state;
    CheckpointFill *fill; /* the state's, and its context */
    void *fill_context;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool filling, ended; /* `fill` was called */
    ModelFile *files;
    char *out;
    int keep;
    /* the outcome */
    Status status;
    char *message, *note;
    double seconds;
};

/* ---- The save ---- */

/* Tensors that `fill` alone has are in no memory that training changes. */
static bool in_background(const Saver *s, const TrainingState *state)
{
    return s->buffer || (state->fill && !state->weights);
}

static void set_flag(struct Save *save, bool *flag)
{
    pthread_mutex_lock(&save->lock);
    *flag = true;
    pthread_cond_signal(&save->changed);
    pthread_mutex_unlock(&save->lock);
}

static Status fill(void *save, const TrainingState *t, CheckpointFilled *filled)
{
    struct Save *of = save;
    set_flag(of, &of->filling);
    return of->fill(of->fill_context, t, filled);
}

/* False: the save has ended before. */
static bool await_filling(struct Save *save)
{
    pthread_mutex_lock(&save->lock);
    while (!save->filling && !save->ended) pthread_cond_wait(&save->changed, &save->lock);
    bool filling = save->filling;
    pthread_mutex_unlock(&save->lock);
    return filling;
}

static struct Save *save_new(const Saver *s, const TrainingState *state)
{
    struct Save *save = mem_alloc(sizeof *save);
    save->state = *state;
    save->out = mem_strdup(s->out);
    save->keep = s->keep;
    thread_lock_init(&save->lock, &save->changed);
    save->fill = state->fill;
    save->fill_context = state->fill_context;
    if (state->fill) save->state.fill = fill;
    save->state.fill_context = save;
    if (!in_background(s, state)) return save;
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
    if (!s->buffer) return save;
    size_t n = (size_t)state->params->size;
    parallel_copy(s->buffer, state->weights, n);
    parallel_copy(s->buffer + n, state->m, n);
    parallel_copy(s->buffer + 2 * n, state->v, n);
    save->state.weights = s->buffer;
    save->state.m = s->buffer + n;
    save->state.v = s->buffer + 2 * n;
    CHECK(!state->read_sets, "a save in the background reads K-FAC's sets from the buffer");
    if (state->sets) parallel_copy(s->buffer + 3 * n, state->sets, (size_t)state->kfac->size);
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
    pthread_mutex_destroy(&save->lock);
    pthread_cond_destroy(&save->changed);
    MEM_FREE(save->message, save->note, save->out, save);
}

static void save_write(struct Save *save)
{
    double start = clock_monotonic();
    save->status = checkpoint_write(save->out, &save->state, save->keep, &save->note);
    if (save->status != OK) save->message = mem_strdup(status_message());
    save->seconds = clock_monotonic() - start;
    set_flag(save, &save->ended);
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
    s->running = in_background(s, state) && thread_start(&s->thread, save_thread, s->save) == OK;
    s->filling = s->running && state->fill && await_filling(s->save);
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
