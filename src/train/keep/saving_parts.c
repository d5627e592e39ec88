#include "train/keep/saving_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/test_switch.h"
#include "base/thread.h"

/* What a rank says about its part. */
typedef struct PartSaid {
    int32_t status;
    Digest digest;
    double seconds;
    char message[1024];
} PartSaid;

void saving_parts_init(SavingParts *p, const Run *run)
{
    *p = (SavingParts){.run = run, .holding = &run->session.plan.input.place->holding};
    thread_lock_init(&p->lock, &p->changed);
}

void saving_parts_free(SavingParts *p)
{
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    MEM_FREE(p->message, p->said);
}

void saving_parts_prepare(SavingParts *p, bool alone)
{
    p->part = holding_written(p->holding, ranks_rank(p->run->ranks));
    p->buffer = alone ? NULL : session_written(&p->run->session);
    p->step = p->run->progress.step;
    p->caller = pthread_self();
    free(p->said);
    p->said = NULL;
}

/* ---- this rank's part ---- */

/* For tests: the disk is full for this rank and step, CAIRN_TEST_FULL="STEP RANK". */
static bool is_full(const SavingParts *p)
{
    const char *text = test_switch("FULL");
    long long step, rank;
    return text && sscanf(text, "%lld %lld", &step, &rank) == 2 && step == p->step && rank == ranks_rank(p->run->ranks);
}

Status saving_parts_read(void *parts, int array, int64_t begin, int64_t end, float *to)
{
    const SavingParts *p = parts;
    const Intervals *part = p->part.part[array == SESSION_SETS];
    if (atomic_load(&p->given_up)) return fail(E_STOPPED, "the part is given up");
    errno = ENOSPC;
    if (is_full(p)) return fail(E_IO, "%s: cannot write: %m", p->run->c->output_dir);
    if (!p->buffer) return session_read_range(&p->run->session, array, begin, end, to);
    memcpy(to, p->buffer + array * p->part.part[SPACE_MODEL]->size + intervals_before(part, begin),
           (size_t)(end - begin) * sizeof *to);
    return OK;
}

static void note_end(SavingParts *p, Status status)
{
    p->status = status;
    if (status != OK) p->message = mem_strdup(status_message());
    atomic_store(&p->written, true);
}

static void write_part(SavingParts *p)
{
    double start = clock_monotonic();
    test_at_number("part", p->step, ranks_rank(p->run->ranks));
    Status status = checkpoint_part_write(p->file, saving_parts_read, p, &p->digest);
    p->seconds = clock_monotonic() - start;
    note_end(p, status);
}

static void *part_thread(void *parts)
{
    write_part(parts);
    return NULL;
}

void saving_parts_begin(SavingParts *p)
{
    p->digest = digest_of("", 0);
    p->seconds = 0;
    p->pending = true;
    free(p->message);
    p->message = NULL;
    atomic_store(&p->written, false);
    Status status = OK;
    bool writes = holding_written_bytes(p->holding, ranks_rank(p->run->ranks)) > 0;
    if (writes) status = checkpoint_part_open(p->run->c->output_dir, p->step, &p->part, &p->file);
    if (status != OK || !writes) {
        note_end(p, status);
        return;
    }
    p->running = p->buffer && thread_start(&p->thread, part_thread, p) == OK;
    if (!p->running) write_part(p);
}

bool saving_parts_busy(const SavingParts *p) { return p->pending && !atomic_load(&p->written); }

void saving_parts_join(SavingParts *p)
{
    if (p->running) pthread_join(p->thread, NULL);
    p->running = false;
}

/* ---- all parts ---- */

Status saving_parts_end(SavingParts *p)
{
    size_t bytes = sizeof(PartSaid);
    if (!p->pending) return OK;
    saving_parts_join(p);
    PartSaid *said = mem_alloc(bytes);
    *said = (PartSaid){.status = (int32_t)p->status, .digest = p->digest, .seconds = p->seconds};
    if (p->status != OK) snprintf(said->message, sizeof said->message, "%s", p->message);
    log_debug("checkpoint-%lld: this rank wrote %zu bytes in %.3g s", (long long)p->step,
              p->status == OK ? holding_written_bytes(p->holding, ranks_rank(p->run->ranks)) : 0, p->seconds);
    Status status = ranks_gather(p->run->ranks, (void **)&said, &bytes);
    if (status == OK) p->pending = false;
    if (status == OK && ranks_first(p->run->ranks)) {
        pthread_mutex_lock(&p->lock);
        p->said = said;
        pthread_cond_signal(&p->changed);
        pthread_mutex_unlock(&p->lock);
        return OK;
    }
    free(said);
    return status;
}

void saving_parts_give_up(SavingParts *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->given_up, true);
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* ---- rank 0's saver ---- */

/* The files against what the ranks said. */
static Status check_files(const SavingParts *p, const TrainingState *t, CheckpointFilled *filled)
{
    const Holding *h = p->holding;
    const Comm *comm = ranks_comm(p->run->ranks);
    const Intervals *const parts[N_SPACES] = {h->writes[SPACE_MODEL], h->writes[SPACE_SETS]};
    int n = holding_ranks(h);
    for (int r = 0; r < n; r++)
        if (p->said[r].status != OK)
            return fail((Status)p->said[r].status, "%s%s%s", r ? comm_peer_name(comm, r) : "", r ? ": " : "",
                        p->said[r].message);
    Digest *digests = mem_array((size_t)n, sizeof *digests);
    bool *wrong = mem_array((size_t)n, sizeof *wrong);
    for (int r = 0; r < n; r++) digests[r] = p->said[r].digest;
    Status status = checkpoint_check_parts(p->run->c->output_dir, t, parts, digests, n, wrong, filled);
    for (int r = n - 1; r >= 0; r--)
        if (wrong[r]) status = status_context(status, "the part of %s", comm_peer_name(comm, r));
    MEM_FREE(digests, wrong);
    return status;
}

Status saving_parts_fill(void *parts, const TrainingState *t, CheckpointFilled *filled)
{
    SavingParts *p = parts;
    double start = clock_monotonic(), most = 0;
    if (pthread_equal(pthread_self(), p->caller)) return fail(E_MEMORY, "there is no thread that could wait for parts");
    pthread_mutex_lock(&p->lock);
    while (!p->said && !atomic_load(&p->given_up)) pthread_cond_wait(&p->changed, &p->lock);
    bool all = p->said;
    pthread_mutex_unlock(&p->lock);
    if (!all) return fail(E_PEER, "not all ranks wrote their parts");
    for (int r = 0; r < ranks_size(p->run->ranks); r++)
        if (p->said[r].seconds > most) most = p->said[r].seconds;
    double idle = clock_monotonic() - start - most;
    if (idle > 0) atomic_store(&p->idle_s, atomic_load(&p->idle_s) + idle);
    return check_files(p, t, filled);
}
