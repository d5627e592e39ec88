/* Saving, beside training or while it waits. */

#include "base/thread.h"
#include "state/checkpoint/checkpoint_internal.h"

/* A save in progress, with a copy of its text. */
struct Save {
    CheckpointWriting writing;
    int keep;
    char *text;
    /* the outcome */
    Status status;
    char *message, *note;
    double seconds;
};

static void save_end(struct Save *save)
{
    double start = clock_monotonic();
    if (save->status != OK) (void)fail(save->status, "%s", save->message); /* perhaps of another thread */
    save->status = checkpoint_end(&save->writing, save->status, save->keep, &save->note);
    if (save->status != OK && !save->message) save->message = mem_strdup(status_message());
    save->seconds = clock_monotonic() - start;
}

static void *save_thread(void *save)
{
    save_end(save);
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
        if (save->note) log_warn("checkpoint-%" PRId64 " is saved, but: %s", save->writing.state.step, save->note);
    } else {
        s->stats.failed++;
        s->last_message = mem_strdup(save->message);
        log_warn("checkpoint-%" PRId64 " could not be saved, earlier checkpoints stay: %s", save->writing.state.step,
                 save->message);
        if (save->note) log_warn("and: %s", save->note);
    }
    MEM_FREE(save->message, save->note, save->text, save);
}

static void saver_join(Saver *s)
{
    if (!s->running) return;
    pthread_join(s->thread, NULL);
    saver_record(s);
}

Status saver_init(Saver *s, const char *out, int keep)
{
    *s = (Saver){.keep = keep};
    TRY(file_make_directories(out));
    TRY(checkpoint_remove_leftovers(out));
    s->out = mem_strdup(out);
    return OK;
}

Status saver_begin(Saver *s, const TrainingState *state)
{
    CHECK(s->out, "saver_begin without saver_init");
    saver_join(s);
    struct Save *save = s->save = mem_alloc(sizeof *save);
    TrainingState t = *state;
    t.state = save->text = mem_strndup(state->state, state->state_size);
    save->keep = s->keep;
    save->status = checkpoint_begin(&save->writing, s->out, &t);
    if (save->status != OK) save->message = mem_strdup(status_message());
    bool fills = t.fill && save->status == OK && save->writing.existing != SAME;
    s->running = t.beside && thread_start(&s->thread, save_thread, save) == OK;
    s->filling = s->running && fills;
    if (s->running) return OK;
    save_end(save);
    saver_record(s);
    return saver_wait(s);
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
