#include "train/survive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/checkpoint.h"
#include "state/lock.h"
#include "state/snapshot.h"
#include "train/ranks.h"

#define SAVE_MOST 30.0 /* seconds that the others wait for the one that saves: a launcher may end all when one ends */
#define WAIT_MOST 5.0  /* seconds for the others to say that they live */

#define SAVED "survivors-saved"

/* The lowest rank that can save and says so in time, with the step that it has; `able`: this one can. NONE: there is
   none. */
static int lowest(Comm *c, bool able, int64_t mine, double within, int64_t *step)
{
    int most = able ? c->rank : c->size, last = able ? c->rank : NONE;
    char name[64];
    double until = clock_monotonic() + within;
    *step = mine;
    snprintf(name, sizeof name, "survivor-%d", c->rank);
    if (!c->store || (able && store_set(c->store, name, &mine, sizeof mine) != OK)) return last;
    for (int r = 0; r < most; r++) {
        if (r == c->rank) continue;
        void *data = NULL;
        size_t size = 0;
        double left = until - clock_monotonic();
        snprintf(name, sizeof name, "survivor-%d", r);
        Status status = store_get(c->store, name, left > 0.05 ? left : 0.05, &data, &size);
        bool there = status == OK && size == sizeof *step;
        if (there) memcpy(step, data, sizeof *step);
        free(data);
        if (there) return r;
    }
    return last;
}

/* On another host the folder of that name may be another one. */
static bool same_folder(const TrainJob *job, Digest run)
{
    Digest here;
    return snapshot_run(job->output_dir, false, false, &here) == OK && snapshot_run_known(here) &&
           digest_equal(here, run);
}

/* Is a good checkpoint of a later step there? Others saved it, or the run was started again while this rank was away.
 */
static bool went_beyond(const char *output_dir, int64_t step, int64_t *newest)
{
    CheckpointList list = {0};
    bool beyond = false;
    if (checkpoint_find(output_dir, &list) != OK) return false;
    for (int i = 0; i < list.count && list.items[i].step > step && !beyond; i++) {
        beyond = checkpoint_verify(list.items[i].path, NULL, NULL) == OK;
        *newest = list.items[i].step;
    }
    checkpoint_list_free(&list);
    return beyond;
}

/* Nobody need wait for this rank any longer. */
static void announce(Comm *c)
{
    if (c->store && store_set(c->store, SAVED, "1", 1) != OK) log_debug("%s", status_message());
}

/* Is it this rank that saves? `why`: text for people, who does it, or why nobody here does. */
static bool claim(const TrainJob *job, const TrainProgress *progress, FolderLock *lock, Buf *why)
{
    const Session *session = job->session;
    Comm *c = ranks_comm(session->options.ranks);
    double half = job->config->peer_timeout / 2;
    int64_t step;
    if (session_sharded(session) || (session->options.backend->device && !session_save_buffer(session))) {
        buf_puts(why, "What memory holds, or else the newest checkpoint, is gone on from");
        return false;
    }
    int who = lowest(c, same_folder(job, progress->run), progress->step, half < WAIT_MOST ? half : WAIT_MOST, &step);
    if (who == NONE) {
        buf_printf(why, "No rank that lives has the run's folder %s: what memory holds is gone on from",
                   job->output_dir);
        return false;
    }
    if (who != c->rank) {
        void *data = NULL;
        size_t size;
        (void)store_get(c->store, SAVED, SAVE_MOST, &data, &size);
        free(data);
        buf_printf(why, "%s saves step %lld", comm_peer_name(c, who), (long long)step);
        return false;
    }
    if (c->rank > 0 && lock_take(lock, job->output_dir) != OK) {
        buf_printf(why, "Nothing is saved: %s", status_message());
        announce(c);
        return false;
    }
    if (c->rank > 0 && went_beyond(job->output_dir, progress->step, &step)) {
        buf_printf(why, "Step %lld is saved already", (long long)step);
        announce(c);
        lock_release(lock);
        return false;
    }
    return true;
}

Status survive(const TrainJob *job, const TrainProgress *progress, Status (*save)(void *), void *context, bool *saved)
{
    char *lost = mem_strdup(status_message());
    Comm *c = ranks_comm(job->session->options.ranks);
    FolderLock lock = {0};
    Buf text = {0};
    *saved = false;
    if (claim(job, progress, &lock, &text)) {
        *saved = save(context) == OK;
        if (*saved)
            buf_printf(&text, "Step %lld of %lld is saved in %s", (long long)progress->step,
                       (long long)job->schedule.total_steps, job->output_dir);
        else
            buf_printf(&text, "Step %lld could not be saved: %s", (long long)progress->step, status_message());
        announce(c);
        lock_release(&lock);
    }
    (void)fail(E_PEER, "%s. %s; the same command goes on from there", lost, text.data);
    buf_free(&text);
    free(lost);
    return E_PEER;
}

Status survive_share(TrainJob *job, Buf *fingerprint, Buf *config)
{
    Ranks *ranks = job->session->options.ranks;
    if (!ranks) return OK;
    if (ranks_first(ranks)) {
        buf_puts(fingerprint, job->fingerprint);
        buf_puts(config, job->config_json);
    }
    TRY(ranks_broadcast_text(ranks, fingerprint));
    TRY(ranks_broadcast_text(ranks, config));
    job->fingerprint = fingerprint->data;
    job->config_json = config->data;
    return OK;
}
