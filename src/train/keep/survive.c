#include "train/keep/survive.h"

#include "base/lock.h"
#include "base/test_switch.h"
#include "comm/meet/report.h"
#include "comm/meet/store.h"
#include "state/snapshot/snapshot.h"
#include "train/keep/spare.h"
#include "train/keep/team.h"
#include "train/ranks/ranks.h"

#define WAIT_MOST 5.0 /* seconds for the others to announce themselves */
/* Seconds for the folder's lock: of a process that was just killed, or is frozen; and of others, if the store died with
   rank 0 and all survivors try to save. These use one spare folder, each after the other. */
#define LOCK_WAIT 1.0
#define LOCK_MOST 10.0

/* Compares run numbers, because the same path may be another folder on another host. */
static bool same_folder(const char *output_dir, Digest run)
{
    Digest here;
    return snapshot_run(output_dir, false, false, &here) == OK && snapshot_run_known(here) && digest_equal(here, run);
}

typedef struct {
    const Run *run;
    Saving *saving;
    bool here;         /* the run's folder is on this rank's host */
    bool scattered;    /* no rank holds the whole state, so the save comes from memory */
    RunSnapshots held; /* in this host's memory */
    Team team;
    SnapshotSet set;            /* the leader's choice among all members' pieces */
    int64_t step;               /* that this rank can save */
    FolderLock lock, *own_lock; /* own_lock: the run's, which rank 0 has */
    int place;                  /* the leader's: SPARE_NONE or the spare folder that it writes into */
    char *folder;               /* its path */
    bool saved;                 /* the leader's: the step is on disk */
    Buf missing;                /* the gaps of newer generations in all members' memory */
    Buf why;                    /* text for the user: the rank that saves, or the reason why none does */
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
   this rank was frozen. Waits for the end of a save in the background, which may be newer. */
static bool saved_already(Survivor *s)
{
    if (s->scattered) saving_join(s->saving);
    int64_t step = spare_saved(s->run->c->output_dir, s->step);
    s->saved = step >= 0;
    if (s->saved) buf_printf(&s->why, "Step %lld is saved already", (long long)step);
    return s->saved;
}

/* Announces this rank, and finds the rank that leads the save. */
static void meet(Survivor *s, int round)
{
    const Run *run = s->run;
    Comm *c = ranks_comm(run->ranks);
    double half = run->c->peer_timeout / 2, most = test_seconds("SURVIVE", WAIT_MOST);
    TeamMember mine = {.rank = c->rank, .step = s->scattered ? s->held.set.step : s->step};
    if (s->scattered) mine.pieces = snapshot_pieces(&s->held.list, run->progress.run, c->rank, &mine.count);
    s->here = same_folder(run->c->output_dir, run->progress.run);
    team_meet(&s->team, c, round, s->here && (!s->scattered || mine.count), mine, half < most ? half : most);
}

/* Chooses of a scattered state the newest generation that the members' memories hold together. */
static bool choose_generation(Survivor *s)
{
    snapshot_set_free(&s->set);
    buf_free(&s->missing);
    bool found = team_choose(&s->team, &s->set, &s->missing);
    s->step = s->set.step;
    return found;
}

static Status read_own(void *session, int array, int64_t begin, int64_t end, float *to)
{
    return session_read_range(session, array, begin, end, to);
}

static TeamSource source_of(Survivor *s)
{
    const Session *session = &s->run->session;
    return (TeamSource){.out = s->folder ? s->folder : s->run->c->output_dir,
                        .place = s->place,
                        .params = &session->model->params,
                        .read = read_own,
                        .context = (void *)(uintptr_t)session,
                        .list = &s->held.list,
                        .plan = s->set.pieces,
                        .n_plan = s->set.world};
}

static Status save_with_team(Survivor *s, SurviveSave save, void *context)
{
    TeamFill fill = {&s->team, source_of(s), s->step};
    SurviveFrom from = {.folder = s->folder,
                        .list = &s->held.list,
                        .set = s->scattered ? &s->set : NULL,
                        .rank = ranks_rank(s->run->ranks)};
    if (s->team.count > 1) {
        from.fill = team_fill;
        from.fill_context = &fill;
    }
    return save(context, &from);
}

/* The output folder, if its lock can be had in time, else a spare one. */
static Status take_folder(Survivor *s)
{
    const char *out = s->run->c->output_dir;
    double wait = test_seconds("SPARE_WAIT", s->team.deaf ? LOCK_MOST : LOCK_WAIT);
    Status status = OK;
    if (!s->own_lock->open)
        status = s->team.deaf ? spare_take(&s->lock, out, wait, LOCK_MOST, 1, &s->place)
                              : spare_take(&s->lock, out, wait, 0, ranks_size(s->run->ranks), &s->place);
    s->folder = spare_path(out, s->place);
    return status;
}

/* Takes a folder's lock, and saves if no folder has the step. Members that fail are left out of the next attempt; a
   leader with the whole state has written it alone then. */
static void lead(Survivor *s, SurviveSave save, void *context, bool *done)
{
    const Run *run = s->run;
    bool locked = s->own_lock->open;
    if (take_folder(s) != OK) {
        buf_printf(&s->why, "Nothing is saved: %s", status_message());
        return;
    }
    bool told = s->place == SPARE_NONE;
    test_at("lead", ranks_rank(run->ranks));
    team_hear_again(&s->team);
    for (;;) {
        int members = s->team.count;
        if (s->scattered && !choose_generation(s)) {
            explain_no_save(s);
            return;
        }
        if ((!locked || s->scattered) && saved_already(s)) return;
        if (!told) log_warn("%s is in use by another process; this rank saves in %s", run->c->output_dir, s->folder);
        told = true;
        *done = save_with_team(s, save, context) == OK;
        if (*done || !s->scattered || members == 1) break;
        log_warn("%s; this rank tries again without them", status_message());
        if (s->team.count == members) team_part(&s->team);
    }
    s->saved = *done;
    if (*done)
        buf_printf(&s->why, "Step %lld of %lld is saved in %s", (long long)s->step,
                   (long long)run->schedule.total_steps, s->folder);
    if (*done && s->team.writers > 1) buf_printf(&s->why, " by %d ranks", s->team.writers);
    if (!*done) buf_printf(&s->why, "Step %lld could not be saved: %s", (long long)s->step, status_message());
}

/* False: the leader is gone, and its save may not have ended. */
static bool follow(Survivor *s)
{
    TeamSource source = source_of(s);
    const char *leader = comm_peer_name(ranks_comm(s->run->ranks), s->team.leader);
    int64_t step;
    Status part;
    if (s->own_lock->open) { /* rank 0's, which does not lead */
        saving_join(s->saving);
        lock_release(s->own_lock);
    }
    test_at_number("follow", s->team.leader, ranks_rank(s->run->ranks));
    TeamEnd end = team_follow(&s->team, &source, &step, &part);
    if (end == TEAM_LEFT) {
        log_warn("%s leads the save no more: it has ended or is frozen", leader);
        if (!s->team.deaf) report_to_agent(REPORT_FROZEN, s->team.leader, false);
        return false;
    }
    if (step < 0)
        buf_printf(&s->why, "%s %s", leader,
                   end == TEAM_SAVED    ? "has the state on disk"
                   : end == TEAM_FAILED ? "saved nothing"
                                        : "saves the state if it can");
    else
        buf_printf(&s->why, "%s %s step %lld%s", leader,
                   end == TEAM_SAVED    ? "saved"
                   : end == TEAM_FAILED ? "could not save"
                                        : "still saves",
                   (long long)step, part == OK ? "" : ", without this rank's part");
    if (step >= 0 && !s->scattered && step != s->step)
        buf_printf(&s->why, " (this rank has step %lld)", (long long)s->step);
    return true;
}

Status survive(Run *run, Snapshots *snapshots, Saving *saving, SurviveSave save, void *context, bool *saved)
{
    char *lost = mem_strdup(status_message());
    Comm *c = ranks_comm(run->ranks);
    Survivor s = {.run = run,
                  .own_lock = &run->lock,
                  .saving = saving,
                  .place = SPARE_NONE,
                  .scattered = session_scattered(&run->session),
                  .step = run->progress.step};
    bool done = false;
    log_warn("%s; saving the run's state if possible", lost);
    saving_give_up(saving);
    if (c->store) store_hurry(c->store, WAIT_MOST);
    if (s.scattered) snapshots_gather(snapshots, &s.held);
    meet(&s, 0);
    /* A round ends so only with another rank's end. */
    while (s.team.leader >= 0 && s.team.leader != c->rank && !follow(&s)) {
        int round = s.team.round + 1;
        team_free(&s.team);
        meet(&s, round);
    }
    if (s.team.leader < 0) {
        if (s.scattered && s.held.missing.len && s.held.set.generation == 0) buf_puts(&s.missing, s.held.missing.data);
        explain_no_save(&s);
    } else if (s.team.leader == c->rank) {
        lead(&s, save, context, &done);
        team_end(&s.team, s.saved);
        lock_release(&s.lock);
    }
    team_leave(&s.team, s.saved ? s.step : -1);
    *saved = done && !s.scattered;
    (void)fail(E_PEER, "%s. %s; the same command resumes there", lost, s.why.data);
    team_free(&s.team);
    snapshot_set_free(&s.set);
    run_snapshots_free(&s.held);
    BUF_FREE(&s.missing, &s.why);
    MEM_FREE(s.folder, lost);
    return E_PEER;
}
