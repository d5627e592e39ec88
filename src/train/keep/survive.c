#include "train/keep/survive.h"

#include "base/lock.h"
#include "base/test_switch.h"
#include "comm/meet/report.h"
#include "state/snapshot/snapshot.h"
#include "train/keep/spare.h"
#include "train/keep/team.h"
#include "train/ranks/ranks.h"

#define LOCK_WAIT 1.0 /* seconds for the folder's lock, of a process that was just killed or is frozen */

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
    Status part;                /* of this rank's part of the leader's plan */
    FolderLock lock, *own_lock; /* own_lock: the run's, which rank 0 has */
    bool kept;                  /* the leader's: it has held own_lock since the run began */
    int place;                  /* the leader's: SPARE_NONE or the spare folder that it writes into */
    char *folder;               /* its path */
    bool saved;                 /* the leader's: the step is on disk */
    char *failed;               /* the leader's: the message of its last try */
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
    if (step >= 0) buf_printf(&s->why, "Step %lld is saved already", (long long)step);
    return step >= 0;
}

static void begin(Survivor *s)
{
    const Run *run = s->run;
    Comm *c = ranks_comm(run->ranks);
    SnapshotPiece *pieces = NULL;
    int count = 0;
    if (s->scattered) pieces = snapshot_pieces(&s->held.list, run->progress.run, c->rank, &count);
    s->here = same_folder(run->c->output_dir, run->progress.run);
    team_begin(&s->team, c, s->scattered, s->here && (!s->scattered || count),
               s->scattered ? s->held.set.step : s->step, pieces, count);
    free(pieces);
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
    if (!team_alone(&s->team)) {
        from.fill = team_fill;
        from.fill_context = &fill;
    }
    return save(context, &from);
}

/* The output folder, if its lock can be had in time, else a spare one. */
static Status take_folder(Survivor *s)
{
    const char *out = s->run->c->output_dir;
    bool silent = watch_peer(comm_watch(ranks_comm(s->run->ranks)), 0, 0) == PEER_SILENT; /* it had the lock */
    double wait = silent ? 0 : test_seconds("SPARE_WAIT", LOCK_WAIT);
    s->kept = s->own_lock->open;
    if (!s->kept) TRY(spare_take(&s->lock, out, wait, ranks_size(s->run->ranks), &s->place));
    s->folder = spare_path(out, s->place);
    test_at("lead", ranks_rank(s->run->ranks));
    return OK;
}

/* A try of the leader. Takes a folder's lock before the first one, and saves if no folder has the step. */
static TeamEnd try(Survivor *s, SurviveSave save, void *context)
{
    const Run *run = s->run;
    bool first = !s->folder;
    if (s->failed) log_warn("%s; this rank tries again without them", s->failed);
    if (first && take_folder(s) != OK) {
        buf_printf(&s->why, "Nothing is saved: %s", status_message());
        return TEAM_NOTHING;
    }
    team_hear(&s->team);
    if (s->scattered && !choose_generation(s)) {
        explain_no_save(s);
        return TEAM_NOTHING;
    }
    if ((!s->kept || s->scattered) && saved_already(s)) return TEAM_FOUND;
    if (first && s->place != SPARE_NONE)
        log_warn("%s is in use by another process; this rank saves in %s", run->c->output_dir, s->folder);
    if (save_with_team(s, save, context) == OK) return TEAM_SAVED;
    free(s->failed);
    s->failed = mem_strdup(status_message());
    return TEAM_FAILED;
}

static void lead(Survivor *s, SurviveSave save, void *context)
{
    TeamEnd end = try(s, save, context);
    s->saved = end == TEAM_SAVED || end == TEAM_FOUND;
    test_at("end", ranks_rank(s->run->ranks));
    team_tell(&s->team, (TeamEvent){.kind = TEAM_TRIED, .end = end, .step = s->step});
}

static void follow(Survivor *s, int leader)
{
    if (s->own_lock->open) { /* rank 0's, which does not lead */
        saving_join(s->saving);
        lock_release(s->own_lock);
    }
    test_at_number("follow", leader, ranks_rank(s->run->ranks));
}

/* The end of a save that another rank led. */
static void explain_end(Survivor *s, TeamEnd end, int leader, int64_t step)
{
    static const char *const did[] = {[TEAM_SAVED] = "saved step",
                                      [TEAM_FAILED] = "could not save step",
                                      [TEAM_UNCLEAR] = "still saves step",
                                      [TEAM_FOUND] = "has the state on disk",
                                      [TEAM_NOTHING] = "saved nothing"};
    const char *name = comm_peer_name(ranks_comm(s->run->ranks), leader);
    buf_printf(&s->why, "%s %s", name, end == TEAM_UNCLEAR && step < 0 ? "saves the state if it can" : did[end]);
    if (end == TEAM_FOUND || end == TEAM_NOTHING || step < 0) return;
    buf_printf(&s->why, " %lld%s", (long long)step, s->part == OK ? "" : ", without this rank's part");
    if (!s->scattered && step != s->step) buf_printf(&s->why, " (this rank has step %lld)", (long long)s->step);
}

static void explain(Survivor *s, const TeamAction *a)
{
    if (a->end == TEAM_NOBODY) {
        if (s->held.missing.len && s->held.set.generation == 0) buf_puts(&s->missing, s->held.missing.data);
        explain_no_save(s);
    } else if (a->rank != ranks_rank(s->run->ranks)) {
        explain_end(s, a->end, a->rank, a->step);
    } else if (a->end == TEAM_SAVED) {
        buf_printf(&s->why, "Step %lld of %lld is saved in %s", (long long)s->step,
                   (long long)s->run->schedule.total_steps, s->folder);
        if (s->team.writers > 1) buf_printf(&s->why, " by %d ranks", s->team.writers);
    } else if (a->end == TEAM_FAILED) {
        buf_printf(&s->why, "Step %lld could not be saved: %s", (long long)s->step, s->failed);
    }
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
    if (s.scattered) snapshots_gather(snapshots, &s.held);
    begin(&s);
    for (TeamAction a; team_next(&s.team, &a); free(a.data)) {
        if (a.kind == TEAM_FOLLOW) follow(&s, a.rank);
        if (a.kind == TEAM_TRY) lead(&s, save, context);
        if (a.kind == TEAM_WRITE) {
            TeamSource source = source_of(&s);
            s.part = team_write(&s.team, &source, &a);
        }
        if (a.kind == TEAM_LOST) {
            log_warn("%s leads the save no more: it has ended or is frozen", comm_peer_name(c, a.rank));
            if (watch_peer(comm_watch(c), a.rank, 0) == PEER_SILENT) report_to_agent(REPORT_FROZEN, a.rank, false);
        }
        if (a.kind != TEAM_OVER) continue;
        explain(&s, &a);
        done = a.end == TEAM_SAVED && a.rank == c->rank;
        if (s.saved) report_to_agent(REPORT_SAVED, -1, false);
    }
    lock_release(&s.lock);
    *saved = done && !s.scattered;
    (void)fail(E_PEER, "%s. %s; the same command resumes there", lost, s.why.data);
    team_free(&s.team);
    snapshot_set_free(&s.set);
    run_snapshots_free(&s.held);
    BUF_FREE(&s.missing, &s.why);
    MEM_FREE(s.folder, s.failed, lost);
    return E_PEER;
}
