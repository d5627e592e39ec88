#include "train/survive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/checkpoint.h"
#include "state/lock.h"
#include "state/snapshot.h"
#include "train/ranks.h"

#define SAVE_MOST 30.0 /* seconds that the others wait for the saving rank: a launcher may end all when one ends */
#define WAIT_MOST 5.0  /* seconds for the others to announce themselves */
#define LOCK_MOST 10.0 /* seconds for the folder's lock: if the store died with rank 0, all survivors try to save */

#define SAVED "survivors-saved"

/* The lowest rank that announces in time that it can save, and its step; `able`: this rank can. NONE: no rank can. If
   the store is lost too (*deaf), each able rank elects itself. */
static int find_saver(Comm *c, bool able, int64_t mine, double within, int64_t *step, bool *deaf)
{
    int most = able ? c->rank : c->size, last = able ? c->rank : NONE;
    char name[64];
    double until = clock_monotonic() + within;
    *step = mine;
    snprintf(name, sizeof name, "survivor-%d", c->rank);
    *deaf = !c->store || (able && store_set(c->store, name, &mine, sizeof mine) != OK);
    if (*deaf) return last;
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

/* Compares run numbers, because the same path may be another folder on another host. */
static bool same_folder(const char *output_dir, Digest run)
{
    Digest here;
    return snapshot_run(output_dir, false, false, &here) == OK && snapshot_run_known(here) && digest_equal(here, run);
}

/* Releases the ranks that wait for this one. */
static void announce(Comm *c)
{
    if (c->store && store_set(c->store, SAVED, "1", 1) != OK) log_debug("%s", status_message());
}

typedef struct {
    const Run *run;
    Saving *saving;
    bool scattered; /* no rank holds the whole state, so the save comes from memory */
    Persist held;
    int64_t step; /* that this rank can save */
    FolderLock lock;
    Buf why; /* text for the user: the rank that saves, or the reason why none does */
} Survivor;

/* Explains why no surviving rank can save. */
static void explain_no_save(Survivor *s)
{
    if (!s->scattered)
        buf_printf(&s->why, "No surviving rank has the run's folder %s: the next run resumes from memory",
                   s->run->c->output_dir);
    else if (s->held.set.generation)
        buf_printf(&s->why,
                   "Nothing is saved, because the run's folder %s is not here: the next run resumes from memory",
                   s->run->c->output_dir);
    else if (s->held.missing.len)
        buf_printf(&s->why,
                   "Nothing is saved, because no surviving host has a whole generation in memory (here %s): the next "
                   "run resumes from the memory of all hosts together, or else from the newest checkpoint",
                   s->held.missing.data);
    else
        buf_puts(&s->why,
                 "Nothing is saved, because no rank has the whole state and no snapshot was taken: the next run "
                 "resumes from the newest checkpoint");
}

/* Whether a good checkpoint of this step or a later one exists: another rank saved it, or the run was restarted while
   this rank was frozen. Waits for rank 0's save in the background, which may be newer. */
static bool saved_already(Survivor *s)
{
    CheckpointList list = {0};
    bool saved = false;
    if (s->saving && s->scattered) (void)saving_wait(s->saving);
    if (checkpoint_find(s->run->c->output_dir, &list) != OK) return false;
    for (int i = 0; i < list.count && list.items[i].step >= s->step && !saved; i++) {
        saved = checkpoint_verify(list.items[i].path, NULL, NULL) == OK;
        if (saved) buf_printf(&s->why, "Step %lld is saved already", (long long)list.items[i].step);
    }
    checkpoint_list_free(&list);
    return saved;
}

/* Whether this rank saves; if so, it holds the folder's lock. */
static bool claim_save(Survivor *s)
{
    Comm *c = ranks_comm(s->run->ranks);
    double half = s->run->c->peer_timeout / 2;
    int64_t step;
    bool able = (!s->scattered || s->held.set.generation) && same_folder(s->run->c->output_dir, s->run->progress.run),
         deaf;
    int who = find_saver(c, able, s->step, half < WAIT_MOST ? half : WAIT_MOST, &step, &deaf);
    if (who == NONE) {
        explain_no_save(s);
        return false;
    }
    if (who != c->rank) {
        void *data = NULL;
        size_t size;
        (void)store_get(c->store, SAVED, SAVE_MOST, &data, &size);
        free(data);
        buf_printf(&s->why, "%s saves step %lld", comm_peer_name(c, who), (long long)step);
        return false;
    }
    if (c->rank > 0 && lock_take_within(&s->lock, s->run->c->output_dir, deaf ? LOCK_MOST : 0) != OK) {
        buf_printf(&s->why, "Nothing is saved: %s", status_message());
        announce(c);
        return false;
    }
    if ((c->rank > 0 || s->scattered) && saved_already(s)) {
        announce(c);
        lock_release(&s->lock);
        return false;
    }
    return true;
}

Status survive(const Run *run, Snapshots *snapshots, Saving *saving, SurviveSave save, void *context, bool *saved)
{
    char *lost = mem_strdup(status_message());
    Comm *c = ranks_comm(run->ranks);
    Survivor s = {
        .run = run, .saving = saving, .scattered = session_scattered(&run->session), .step = run->progress.step};
    *saved = false;
    log_warn("%s; saving the run's state if possible", lost);
    if (c->store) store_hurry(c->store, WAIT_MOST);
    if (s.scattered) {
        snapshots_gather(snapshots, &s.held);
        s.step = s.held.set.step;
    }
    if (claim_save(&s)) {
        bool good = (s.scattered ? save(context, &s.held.list, &s.held.set) : save(context, NULL, NULL)) == OK;
        if (good)
            buf_printf(&s.why, "Step %lld of %lld is saved in %s", (long long)s.step,
                       (long long)run->schedule.total_steps, run->c->output_dir);
        else
            buf_printf(&s.why, "Step %lld could not be saved: %s", (long long)s.step, status_message());
        *saved = good && !s.scattered;
        announce(c);
        lock_release(&s.lock);
    }
    (void)fail(E_PEER, "%s. %s; the same command resumes there", lost, s.why.data);
    persist_free(&s.held);
    buf_free(&s.why);
    free(lost);
    return E_PEER;
}
