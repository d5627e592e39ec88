/* Saves by one rank, or by several, each a part. Each rank writes its part in a thread, while training goes on. The
   ranks agree by votes that all parts are written; then rank 0 learns their digests, and its saver compares the files
   with them. */
#include "train/keep/saving.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/test_switch.h"
#include "base/thread.h"

/* What a rank says about its part. */
typedef struct {
    int32_t status;
    Digest digest;
    double seconds;
    char message[1024];
} PartSaid;

struct Saving {
    Run *run;
    const Holding *holding;
    bool alone, makes; /* saves by itself; makes the files: rank 0, or alone */
    Saver saver;       /* of the rank that makes the files */
    bool whole;        /* it writes all of the last save: its saver reads the buffer */
    int failures;      /* of the saver that saving_failed need not report */
    CheckpointFill *fill;
    void *fill_context;
    double stalled_s, longest_stall_s; /* of training: for all saves, for one of them */
    /* this rank's part, of its save buffer, or without one of its memory while training waits */
    HeldPart part;
    const float *buffer;
    int64_t step;
    bool pending; /* parts are being written: the same on all ranks */
    CheckpointPart *file;
    pthread_t thread;
    bool running;
    PartSaid mine;
    atomic_bool written, given_up; /* written: `mine` says how */
    /* rank 0's: for the thread of its saver */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t caller;
    PartSaid *said;        // (ranks) about their parts; NULL: not yet
    _Atomic double idle_s; /* that this thread waited for nothing but a vote, of all saves */
};

static Saving *saving_new(Run *run, bool alone)
{
    Saving *s = mem_alloc(sizeof *s);
    *s = (Saving){.run = run,
                  .holding = &run->session.plan.input.place->holding,
                  .alone = alone,
                  .makes = alone || ranks_first(run->ranks)};
    thread_lock_init(&s->lock, &s->changed);
    return s;
}

Status saving_open(Saving **saving, Run *run)
{
    Saving *s = *saving = saving_new(run, false);
    if (!s->makes) return OK;
    return saver_init(&s->saver, run->c->output_dir, (int)run->c->keep);
}

Status saving_open_alone(Saving **saving, Run *run, const char *folder, CheckpointFill *fill, void *context)
{
    Saving *s = *saving = saving_new(run, true);
    s->fill = fill;
    s->fill_context = context;
    return saver_init(&s->saver, folder, (int)run->c->keep);
}

void saving_keep_one_more(Saving *s) { s->saver.keep += s->saver.keep > 0; } /* 0: all */

/* ---- this rank's part ---- */

/* For tests: the disk is full for this rank and step, CAIRN_TEST_FULL="STEP RANK". */
static bool is_full(const Saving *s)
{
    const char *text = test_switch("FULL");
    long long step, rank;
    return text && sscanf(text, "%lld %lld", &step, &rank) == 2 && step == s->step && rank == ranks_rank(s->run->ranks);
}

/* For tests: while the file CAIRN_TEST_HOLD<rank> exists, this rank writes nothing of its save buffer. */
static void hold(const Saving *s)
{
    const char *path = test_switch("HOLD");
    char *name = path && s->buffer ? mem_printf("%s%d", path, ranks_rank(s->run->ranks)) : NULL;
    while (name && access(name, F_OK) == 0 && !atomic_load(&s->given_up)) (void)usleep(1000);
    free(name);
}

static Status read_part(void *saving, int array, int64_t begin, int64_t end, float *to)
{
    const Saving *s = saving;
    const Intervals *part = s->part.part[array == SESSION_SETS];
    hold(s);
    if (s->pending && atomic_load(&s->given_up)) return fail(E_STOPPED, "the part is given up");
    errno = ENOSPC;
    if (is_full(s)) return fail(E_IO, "%s: cannot write: %m", s->run->c->output_dir);
    if (!s->buffer) return session_read_range(&s->run->session, array, begin, end, to);
    memcpy(to, s->buffer + array * s->part.part[SPACE_MODEL]->size + intervals_before(part, begin),
           (size_t)(end - begin) * sizeof *to);
    return OK;
}

static void note_end(Saving *s, Status status)
{
    s->mine.status = (int32_t)status;
    if (status != OK) snprintf(s->mine.message, sizeof s->mine.message, "%s", status_message());
    atomic_store(&s->written, true);
}

static void write_part(Saving *s)
{
    double start = clock_monotonic();
    test_at_number("part", s->step, ranks_rank(s->run->ranks));
    Status status = checkpoint_part_write(s->file, read_part, s, &s->mine.digest);
    s->mine.seconds = clock_monotonic() - start;
    note_end(s, status);
}

static void *part_thread(void *saving)
{
    write_part(saving);
    return NULL;
}

/* On all ranks, once the files are made. */
static void begin_part(Saving *s)
{
    s->mine = (PartSaid){.digest = digest_of("", 0)};
    s->pending = true;
    atomic_store(&s->written, false);
    Status status = OK;
    bool writes = holding_written_bytes(s->holding, ranks_rank(s->run->ranks)) > 0;
    if (writes) status = checkpoint_part_open(s->run->c->output_dir, s->step, &s->part, &s->file);
    if (status != OK || !writes) {
        note_end(s, status);
        return;
    }
    s->running = s->buffer && thread_start(&s->thread, part_thread, s) == OK;
    if (!s->running) write_part(s);
}

static void join_part(Saving *s)
{
    if (s->running) pthread_join(s->thread, NULL);
    s->running = false;
}

/* ---- all parts ---- */

/* Collective. Waits for the parts that are being written; rank 0's saver goes on with what the ranks say. */
static Status end_parts(Saving *s)
{
    if (!s->pending) return OK;
    join_part(s);
    PartSaid *said = mem_array((size_t)ranks_size(s->run->ranks), sizeof *said);
    log_debug("checkpoint-%lld: this rank wrote %zu bytes in %.3g s", (long long)s->step,
              s->mine.status == OK ? holding_written_bytes(s->holding, ranks_rank(s->run->ranks)) : 0, s->mine.seconds);
    Status status = ranks_allgather(s->run->ranks, &s->mine, sizeof *said, said);
    if (status == OK) s->pending = false;
    if (status == OK && ranks_first(s->run->ranks)) {
        pthread_mutex_lock(&s->lock);
        s->said = said;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
        return OK;
    }
    free(said);
    return status;
}

/* ---- rank 0's saver ---- */

/* The files against what the ranks said. */
static Status check_files(const Saving *s, const TrainingState *t, CheckpointFilled *filled)
{
    const Holding *h = s->holding;
    const Comm *comm = ranks_comm(s->run->ranks);
    const Intervals *const parts[N_SPACES] = {h->writes[SPACE_MODEL], h->writes[SPACE_SETS]};
    int n = holding_ranks(h);
    for (int r = 0; r < n; r++)
        if (s->said[r].status != OK)
            return fail((Status)s->said[r].status, "%s%s%s", r ? comm_peer_name(comm, r) : "", r ? ": " : "",
                        s->said[r].message);
    Digest *digests = mem_array((size_t)n, sizeof *digests);
    bool *wrong = mem_array((size_t)n, sizeof *wrong);
    for (int r = 0; r < n; r++) digests[r] = s->said[r].digest;
    Status status = checkpoint_check_parts(s->run->c->output_dir, t, parts, digests, n, wrong, filled);
    for (int r = n - 1; r >= 0; r--)
        if (wrong[r]) status = status_context(status, "the part of %s", comm_peer_name(comm, r));
    MEM_FREE(digests, wrong);
    return status;
}

static Status fill_parts(void *saving, const TrainingState *t, CheckpointFilled *filled)
{
    Saving *s = saving;
    double start = clock_monotonic(), most = 0;
    if (pthread_equal(pthread_self(), s->caller)) return fail(E_MEMORY, "there is no thread that could wait for parts");
    pthread_mutex_lock(&s->lock);
    while (!s->said && !atomic_load(&s->given_up)) pthread_cond_wait(&s->changed, &s->lock);
    bool all = s->said;
    pthread_mutex_unlock(&s->lock);
    if (!all) return fail(E_PEER, "not all ranks wrote their parts");
    for (int r = 0; r < ranks_size(s->run->ranks); r++)
        if (s->said[r].seconds > most) most = s->said[r].seconds;
    double idle = clock_monotonic() - start - most;
    if (idle > 0) atomic_store(&s->idle_s, atomic_load(&s->idle_s) + idle);
    return check_files(s, t, filled);
}

/* ---- a save ---- */

static Status explain_weights(const Saving *s, Status status)
{
    if (status != E_NUMERIC) return status;
    return fail(E_NUMERIC, "step %lld: after the update %s. Lower --learning-rate", (long long)s->run->progress.step,
                status_message());
}

static Status check_own_weights(const Session *s)
{
    enum { BLOCK = 1 << 18 };
    int64_t n = s->model->params.size;
    float *block = mem_array(BLOCK, sizeof *block);
    Status status = OK;
    for (int64_t at = 0; at < n && status == OK; at += BLOCK) {
        int64_t end = at + BLOCK < n ? at + BLOCK : n;
        status = session_read_range(s, STATE_WEIGHTS, at, end, block);
        if (status == OK) status = session_check_range(s, at, end, block);
    }
    free(block);
    return status;
}

/* Before a save of the state as it is now. */
static void prepare(Saving *s)
{
    s->part = holding_written(s->holding, ranks_rank(s->run->ranks));
    s->buffer = s->alone ? NULL : session_written(&s->run->session);
    s->step = s->run->progress.step;
    s->caller = pthread_self();
    free(s->said);
    s->said = NULL;
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
                                                            .read = whole ? read_part : NULL,
                                                            .read_context = s,
                                                            .fill = whole ? s->fill : fill_parts,
                                                            .fill_context = whole ? s->fill_context : s,
                                                            .beside = !whole || s->buffer});
    buf_free(&text);
    return status;
}

/* The plan that leaves room for the buffer, where there is one, or the usual one. */
static Status use_plan(const Saving *s, bool saves)
{
    Session *session = &s->run->session;
    bool before = session_saves(session);
    TRY(session_set_saves(session, saves));
    if (session_saves(session) != before)
        log_debug("step %lld: steps run by recompute %s%s", (long long)s->run->progress.step,
                  session->plan.layers.policy, saves ? " while a save is written" : "");
    return OK;
}

static Status begin_alone(Saving *s)
{
    TRY(explain_weights(s, check_own_weights(&s->run->session)));
    prepare(s);
    return begin_saver(s, true);
}

/* Collective. */
static Status begin_together(Saving *s)
{
    const Session *session = &s->run->session;
    Ranks *ranks = s->run->ranks;
    bool whole = s->whole = holding_writes_all(s->holding, 0);
    if (session_kfac(session)) TRY(session_settle_kfac(session));
    TRY(end_parts(s));
    if (s->makes) (void)saver_wait(&s->saver); /* which may read from the buffer; it has reported a failure */
    TRY(use_plan(s, true));
    prepare(s);
    Status status = session_bring(session);
    if (status == OK) status = explain_weights(s, session_check_written(session));
    TRY(ranks_all(ranks, status));
    if (s->makes) status = begin_saver(s, whole);
    if (whole) return ranks_all(ranks, status);
    bool made = s->saver.filling; /* false: the save has ended, and failed, or the step is saved */
    TRY(ranks_broadcast(ranks, &made, sizeof made));
    if (made) begin_part(s);
    return OK;
}

Status saving_begin(Saving *s)
{
    double stopped = clock_monotonic();
    Status status = s->alone ? begin_alone(s) : begin_together(s);
    s->failures = s->saver.stats.failed; /* this one's is the status */
    double stall = clock_monotonic() - stopped;
    s->stalled_s += stall;
    if (stall > s->longest_stall_s) s->longest_stall_s = stall;
    return status;
}

void saving_vote(const Saving *s)
{
    if (s && s->pending && !atomic_load(&s->written)) ranks_vote(s->run->ranks, VOTE_SAVE_BUSY);
}

Status saving_step(Saving *s)
{
    if (!s || !s->pending) return OK;
    bool busy = ranks_agreed(s->run->ranks, VOTE_SAVE_BUSY);
    ranks_clear(s->run->ranks, VOTE_SAVE_BUSY);
    return busy ? OK : end_parts(s);
}

bool saving_failed(Saving *s)
{
    int before = s->failures;
    saver_poll(&s->saver);
    s->failures = s->saver.stats.failed;
    return s->failures > before;
}

/* The buffer is read by the thread of this rank's part, or where one rank writes all by its saver's. */
static bool reads_buffer(Saving *s)
{
    if (s->running) return !atomic_load(&s->written);
    return s->whole && s->makes && saver_poll(&s->saver);
}

Status saving_leave(Saving *s, bool wait)
{
    if (!s || !session_saves(&s->run->session)) return OK;
    if (wait) join_part(s);
    if (wait && s->whole && s->makes) (void)saver_wait(&s->saver);
    return reads_buffer(s) ? OK : use_plan(s, false);
}

Status saving_wait(Saving *s)
{
    TRY(end_parts(s));
    Status status = s->makes ? saver_wait(&s->saver) : OK;
    if (s->alone) return status;
    TRY(ranks_all(s->run->ranks, status));
    return use_plan(s, false);
}

void saving_give_up(Saving *s)
{
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->given_up, true);
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void saving_join(Saving *s)
{
    join_part(s);
    if (s->makes) (void)saver_wait(&s->saver);
}

void saving_close(Saving *s)
{
    if (!s) return;
    saving_give_up(s);
    saving_join(s);
    saver_free(&s->saver);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    MEM_FREE(s->said, s);
}

double saving_seconds(const Saving *s)
{
    const SaverStats *stats = &s->saver.stats;
    double took = s->stalled_s + stats->background_s - atomic_load(&s->idle_s);
    return stats->saved ? took / stats->saved : (double)run_checkpoint_bytes(s->run) / 100e6; /* a slow disk */
}

double saving_reserve(const Saving *s) { return 1 + 2 * saving_seconds(s); }

double saving_longest_stall(const Saving *s) { return s->longest_stall_s; }
