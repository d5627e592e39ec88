#include "train/survive.h"

#include <stdlib.h>
#include <string.h>

#include "state/checkpoint.h"
#include "state/lock.h"
#include "state/snapshot.h"
#include "train/ranks.h"
#include "train/team.h"

#define WAIT_MOST 5.0  /* seconds for the others to announce themselves */
#define LOCK_MOST 10.0 /* seconds for the folder's lock: if the store died with rank 0, all survivors try to save */

/* Compares run numbers, because the same path may be another folder on another host. */
static bool same_folder(const char *output_dir, Digest run)
{
    Digest here;
    return snapshot_run(output_dir, false, false, &here) == OK && snapshot_run_known(here) && digest_equal(here, run);
}

typedef struct {
    const Run *run;
    Saving *saving;
    bool here;      /* the run's folder is on this rank's host */
    bool scattered; /* no rank holds the whole state, so the save comes from memory */
    Persist held;   /* in this host's memory */
    Team team;
    SnapshotSet set; /* the leader's choice among all members' pieces */
    int64_t step;    /* that this rank can save */
    FolderLock lock;
    Buf missing; /* the gaps of newer generations in all members' memory */
    Buf why;     /* text for the user: the rank that saves, or the reason why none does */
} Survivor;

/* Explains why no surviving rank can save. */
static void explain_no_save(Survivor *s)
{
    if (!s->scattered)
        buf_printf(&s->why, "No surviving rank has the run's folder %s: the next run resumes from memory",
                   s->run->c->output_dir);
    else if (!s->here)
        buf_printf(&s->why,
                   "Nothing is saved, because the run's folder %s is not here: the next run resumes from memory",
                   s->run->c->output_dir);
    else if (s->missing.len)
        buf_printf(&s->why,
                   "Nothing is saved, because the surviving hosts have no whole generation in memory (%s): the next "
                   "run resumes from the memory of all hosts together, or else from the newest checkpoint",
                   s->missing.data);
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

/* Announces this rank, and finds the rank that leads the save. */
static void meet(Survivor *s)
{
    const Run *run = s->run;
    Comm *c = ranks_comm(run->ranks);
    double half = run->c->peer_timeout / 2;
    TeamMember mine = {.rank = c->rank, .step = s->step};
    if (s->scattered) mine.pieces = snapshot_pieces(&s->held.list, run->progress.run, c->rank, &mine.count);
    s->here = same_folder(run->c->output_dir, run->progress.run);
    team_meet(&s->team, c, s->here && (!s->scattered || mine.count), mine, half < WAIT_MOST ? half : WAIT_MOST);
}

/* Of a scattered state: the newest generation that the members' memories hold together. */
static bool choose_generation(Survivor *s)
{
    int count;
    SnapshotPiece *pieces = team_pieces(&s->team, &count);
    snapshot_choose(pieces, count, &s->set, &s->missing);
    free(pieces);
    s->step = s->set.step;
    return s->set.generation != 0;
}

static Status read_own(void *session, int array, int64_t begin, int64_t end, float *to)
{
    return session_read_range(session, (StateArray)array, begin, end, to);
}

static TeamSource source_of(Survivor *s)
{
    const Session *session = &s->run->session;
    return (TeamSource){.out = s->run->c->output_dir,
                        .params = &session->whole->params,
                        .read = read_own,
                        .context = (void *)(uintptr_t)session,
                        .list = &s->held.list,
                        .plan = s->set.pieces,
                        .n_plan = s->set.world};
}

static Status save_as_leader(Survivor *s, SurviveSave save, void *context)
{
    int rank = ranks_rank(s->run->ranks);
    TeamFill fill = {&s->team, source_of(s), s->step};
    SurviveFrom from = {.list = &s->held.list, .set = s->scattered ? &s->set : NULL, .rank = rank};
    if (s->team.count > 1) {
        from.fill = team_fill;
        from.fill_context = &fill;
    }
    Status status = save(context, &from);
    bool again = status != OK && from.fill && s->scattered && s->held.set.generation; /* this host has every slice */
    if (!again) return status;
    log_warn("%s; this rank saves what its host has", status_message());
    s->step = s->held.set.step;
    for (int i = 0; i < s->held.set.world; i++) s->held.set.pieces[i].rank = rank;
    return save(context, &(SurviveFrom){.list = &s->held.list, .set = &s->held.set, .rank = rank});
}

/* Saves, if it holds the folder's lock and the folder lacks the step. *done: a save was made. */
static void lead(Survivor *s, SurviveSave save, void *context, bool *done)
{
    const Run *run = s->run;
    if (s->scattered && !choose_generation(s)) {
        explain_no_save(s);
        return;
    }
    if (!ranks_first(run->ranks) &&
        lock_take_within(&s->lock, run->c->output_dir, s->team.deaf ? LOCK_MOST : 0) != OK) {
        buf_printf(&s->why, "Nothing is saved: %s", status_message());
        return;
    }
    if ((!ranks_first(run->ranks) || s->scattered) && saved_already(s)) return;
    *done = save_as_leader(s, save, context) == OK;
    if (*done)
        buf_printf(&s->why, "Step %lld of %lld is saved in %s", (long long)s->step,
                   (long long)run->schedule.total_steps, run->c->output_dir);
    if (*done && s->team.writers > 1) buf_printf(&s->why, " by %d ranks", s->team.writers);
    if (!*done) buf_printf(&s->why, "Step %lld could not be saved: %s", (long long)s->step, status_message());
}

static void follow(Survivor *s)
{
    TeamSource source = source_of(s);
    const char *leader = comm_peer_name(ranks_comm(s->run->ranks), s->team.leader);
    int64_t step;
    Status status = team_follow(&s->team, &source, &step);
    if (step < 0)
        buf_printf(&s->why, "%s saves the state if it can", leader);
    else
        buf_printf(&s->why, "%s saves step %lld%s", leader, (long long)step,
                   status == OK ? "" : ", without this rank's part");
    if (step >= 0 && !s->scattered && step != s->step)
        buf_printf(&s->why, " (this rank has step %lld)", (long long)s->step);
}

Status survive(const Run *run, Snapshots *snapshots, Saving *saving, SurviveSave save, void *context, bool *saved)
{
    char *lost = mem_strdup(status_message());
    Comm *c = ranks_comm(run->ranks);
    Survivor s = {
        .run = run, .saving = saving, .scattered = session_scattered(&run->session), .step = run->progress.step};
    bool done = false;
    log_warn("%s; saving the run's state if possible", lost);
    if (c->store) store_hurry(c->store, WAIT_MOST);
    if (s.scattered) snapshots_gather(snapshots, &s.held);
    meet(&s);
    if (s.team.leader < 0) {
        if (s.scattered && s.held.missing.len && s.held.set.generation == 0) buf_puts(&s.missing, s.held.missing.data);
        explain_no_save(&s);
    } else if (s.team.leader != c->rank) {
        follow(&s);
    } else {
        lead(&s, save, context, &done);
        team_end(&s.team);
        lock_release(&s.lock);
    }
    *saved = done && !s.scattered;
    (void)fail(E_PEER, "%s. %s; the same command resumes there", lost, s.why.data);
    team_free(&s.team);
    snapshot_set_free(&s.set);
    persist_free(&s.held);
    buf_free(&s.missing);
    buf_free(&s.why);
    free(lost);
    return E_PEER;
}
