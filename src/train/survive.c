#include "train/survive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/snapshot.h"
#include "train/ranks.h"

#define SAVE_MOST 30.0 /* seconds that the others wait for the one that saves: a launcher may end all when one ends */
#define WAIT_MOST 5.0  /* seconds for the others to say that they live */

#define SAVED "survivors-saved"

/* The lowest rank that says so in time, with the step that it has. */
static int lowest(Comm *c, int64_t mine, double within, int64_t *step)
{
    char name[64];
    double until = clock_monotonic() + within;
    *step = mine;
    snprintf(name, sizeof name, "survivor-%d", c->rank);
    if (!c->store || store_set(c->store, name, &mine, sizeof mine) != OK) return c->rank;
    for (int r = 0; r < c->rank; r++) {
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
    return c->rank;
}

/* On another host the folder of that name may be another one. */
static bool same_folder(const TrainJob *job, Digest run)
{
    Digest here;
    return snapshot_run(job->output_dir, false, false, &here) == OK && snapshot_run_known(here) &&
           digest_equal(here, run);
}

void survive_claim(const TrainJob *job, const TrainProgress *progress, bool *mine, FolderLock *lock, Buf *why)
{
    Comm *c = ranks_comm(job->session->options.ranks);
    double half = job->config->peer_timeout / 2;
    int64_t step;
    *mine = false;
    int who = lowest(c, progress->step, half < WAIT_MOST ? half : WAIT_MOST, &step);
    if (who != c->rank) {
        void *data = NULL;
        size_t size;
        buf_printf(why, "%s saves step %lld", comm_peer_name(c, who), (long long)step);
        (void)store_get(c->store, SAVED, SAVE_MOST, &data, &size);
        free(data);
        return;
    }
    if (!same_folder(job, progress->run)) {
        buf_printf(why, "no rank that lives has the run's folder %s; what memory holds is gone on from",
                   job->output_dir);
        return;
    }
    if (c->rank > 0 && lock_take(lock, job->output_dir) != OK) {
        buf_printf(why, "nothing is saved: %s", status_message());
        return;
    }
    *mine = true;
}

void survive_done(const TrainJob *job)
{
    Comm *c = ranks_comm(job->session->options.ranks);
    if (c->store && store_set(c->store, SAVED, "1", 1) != OK) log_debug("%s", status_message());
}
