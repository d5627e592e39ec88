/* A survivor that leads, as src/train/keep/survive.c, team_write.c and spare.c do it. */
#include "rank.h"

#define LOCK_S 1.0 /* survive.c: LOCK_WAIT */
#define POLL_S 0.1

static void tried(Trainer *t, TeamEnd end)
{
    Survivor *s = &t->team;
    s->saved = end == TEAM_SAVED || end == TEAM_FOUND;
    if (end == TEAM_FAILED && !s->lacks) s->left_out = ~(UINT64_C(1) << t->rank); /* it may go on, alone */
    s->drops = s->drops || end == TEAM_FAILED;
    if (s->writes) disk_give_up(t->proc, s->place);
    s->writes = false;
    survivor_give(t, (TeamEvent){.kind = TEAM_TRIED, .end = end, .step = s->step});
    survivor_turn(t);
}

static void prune(Trainer *t)
{
    if (comes_to(t, POINT_PRUNE, 0, prune)) return;
    disk_prune(t->proc, t->team.place, t->team.step, w.schedule.keep);
    tried(t, TEAM_SAVED);
}

static void name(Trainer *t)
{
    if (comes_to(t, POINT_NAME, 0, name)) return;
    disk_name(t->proc, t->team.place, t->team.step);
    prune(t);
}

/* It has written all by itself, or has read what all wrote. */
static void commit(Trainer *t)
{
    Survivor *s = &t->team;
    if (s->lacks && disk_fails(t->proc)) {
        tried(t, TEAM_FAILED);
        return;
    }
    if (s->lacks) disk_write(t->proc, s->place, s->step, all_parts(t), s->plan.content);
    name(t);
}

void survivor_gathered(Trainer *t)
{
    Survivor *s = &t->team;
    uint64_t others = all_parts(t) & ~s->plan.parts[t->rank];
    if (comes_to(t, POINT_GATHERED, 0, survivor_gathered)) return;
    must(s->lacks || s->answered == others, "rank %d took parts %" PRIx64 " of %" PRIx64, t->rank, s->answered, others);
    if (s->lacks && w.schedule.scattered)
        tried(t, TEAM_FAILED);
    else
        wait_until(t, w.now + (s->lacks ? survivor_seconds(t, all_parts(t)) : uniform(0.01, 0.3)), commit);
}

static void end_own_part(Trainer *t)
{
    Survivor *s = &t->team;
    bool failed = disk_fails(t->proc);
    s->wrote = w.now;
    if (failed && (w.schedule.scattered || !s->x.asked)) {
        tried(t, TEAM_FAILED);
    } else if (failed) { /* it tries to write all by itself */
        s->lacks = true;
        wait_until(t, w.now + survivor_seconds(t, all_parts(t)), commit);
    } else {
        disk_write(t->proc, s->place, s->step, s->plan.parts[t->rank], s->plan.content);
        if (s->x.asked) survivor_give(t, (TeamEvent){.kind = TEAM_WROTE, .rank = t->rank});
        if (s->x.asked)
            survivor_turn(t);
        else
            name(t);
    }
}

static void write_own(Trainer *t)
{
    if (t->team.x.asked && comes_to(t, POINT_PLANNED, 0, write_own)) return;
    wait_until(t, w.now + survivor_seconds(t, t->team.plan.parts[t->rank]), end_own_part);
}

/* Every rank that takes part is counted. */
static bool counts(const Trainer *t, int rank)
{
    const Survivor *s = &t->team;
    const Trainer *its = trainer_of(t, rank);
    bool counted = team_has(&s->x, rank);
    if (rank == t->rank) return true;
    must(counted || s->drops || its->team.x.leads || !survivor_takes_part(t, its), "rank %d does not count rank %d",
         t->rank, rank);
    must(!counted || !((s->left_out >> rank) & 1), "rank %d asks rank %d again", t->rank, rank);
    must(!counted || !s->x.ranks[rank].left, "rank %d counts rank %d, which has left", t->rank, rank);
    return counted;
}

/* The shares of a whole state, the leader's first. */
static int share_whole(Trainer *t, int32_t *writers)
{
    Survivor *s = &t->team;
    int n = 1;
    writers[0] = t->rank;
    for (int r = 0; r < t->size; r++)
        if (r != t->rank && counts(t, r) && s->x.ranks[r].step == s->step) writers[n++] = r;
    for (int i = 0; i < n; i++)
        for (int k = t->size * i / n; k < t->size * (i + 1) / n; k++) s->plan.parts[writers[i]] |= UINT64_C(1) << k;
    return n;
}

static const Memory *memory_of(const Trainer *t, int rank)
{
    const TeamRank *its = &t->team.x.ranks[rank];
    if (rank == t->rank) return &t->team.has;
    must(its->size == sizeof(Memory), "rank %d knows no slices of rank %d", t->rank, rank);
    return its->pieces;
}

/* The newest step whose slices the members have together; each slice by the first one that has it. */
static bool share_slices(Trainer *t)
{
    Survivor *s = &t->team;
    int64_t below = INT64_MAX;
    for (;;) {
        int64_t step = -1;
        uint64_t found = 0;
        Plan plan = {.place = s->place};
        for (int r = 0; r < t->size; r++)
            for (int k = 0; k < KEPT && counts(t, r); k++) {
                const Memory *m = memory_of(t, r);
                if (m->slices[k] && m->step[k] < below && m->step[k] > step) step = m->step[k];
            }
        if (step < 0) return false;
        for (int r = 0; r < t->size; r++)
            for (int k = 0; k < KEPT && counts(t, r); k++) {
                const Memory *m = memory_of(t, r);
                if (m->step[k] != step || !m->slices[k]) continue;
                plan.parts[r] = m->slices[k] & ~found;
                plan.content = m->content[k];
                found |= plan.parts[r];
            }
        below = step;
        if (found != all_parts(t)) continue;
        s->plan = plan;
        s->step = step;
        return true;
    }
}

static int slice_writers(const Trainer *t, int32_t *writers)
{
    int n = 0;
    for (int r = 0; r < t->size; r++)
        if (t->team.plan.parts[r] || r == t->rank) writers[n++] = r;
    return n;
}

/* Every member hears of the plan. */
static void check_told(const Trainer *t)
{
    const TeamState *x = &t->team.x;
    uint64_t told = 0;
    for (int i = t->team.done; i < x->n_actions; i++)
        if (x->actions[i].kind == TEAM_SEND) told |= UINT64_C(1) << x->actions[i].rank;
    for (int r = 0; r < t->size; r++)
        must(r == t->rank || !team_has(x, r) || (told >> r & 1), "rank %d does not tell rank %d its plan", t->rank, r);
}

/* Its saver, if it has one, has ended. */
static void begin_checkpoint(Trainer *t)
{
    Survivor *s = &t->team;
    bool alone = true;
    int32_t writers[SIM_RANKS];
    if (disk_has(s->place, s->step)) {
        tried(t, TEAM_SAVED);
        return;
    }
    for (int r = 0; r < t->size; r++) alone = alone && (r == t->rank || !counts(t, r));
    s->answered = 0;
    s->lacks = false;
    if (!w.schedule.scattered) s->plan = (Plan){.place = s->place, .content = s->content};
    int n = w.schedule.scattered ? slice_writers(t, writers) : share_whole(t, writers);
    disk_begin(t->proc, s->place, s->step, all_parts(t));
    s->writes = true;
    if (!alone)
        survivor_give(t, (TeamEvent){.kind = TEAM_PLANNED,
                                     .step = s->step,
                                     .data = &s->plan,
                                     .size = sizeof s->plan,
                                     .writers = writers,
                                     .n_writers = n});
    check_told(t);
    survivor_send(t);
    write_own(t);
}

static void look_for_saved(Trainer *t)
{
    Survivor *s = &t->team;
    int64_t found = disk_newest(s->step);
    if (found >= 0 && (!s->kept || w.schedule.scattered)) {
        s->step = found;
        tried(t, TEAM_FOUND);
    } else {
        wait_for(t, WAITS_SAVER, INFINITY, begin_checkpoint);
    }
}

static void choose(Trainer *t)
{
    survivor_hear(t);
    survivor_send(t);
    if (w.schedule.scattered && !share_slices(t))
        tried(t, TEAM_NOTHING);
    else if (w.schedule.scattered)
        wait_for(t, WAITS_SAVER, INFINITY, look_for_saved);
    else
        look_for_saved(t);
}

static void lead(Trainer *t)
{
    if (comes_to(t, POINT_LEAD, 0, lead)) return;
    t->team.took = true;
    choose(t);
}

/* The run's folder, else the first free spare one. */
static void take_folder(Trainer *t)
{
    Survivor *s = &t->team;
    s->place = DISK_MAIN;
    s->locked = !s->kept && disk_lock(t->proc, DISK_MAIN);
    if (!s->kept && !s->locked && w.now < s->lock_until) {
        wait_until(t, w.now + POLL_S, take_folder);
        return;
    }
    for (int n = 0; n < t->size && !s->kept && !s->locked; n++) {
        s->place = n;
        s->locked = disk_lock(t->proc, n);
    }
    if (s->kept || s->locked)
        lead(t);
    else
        tried(t, TEAM_NOTHING);
}

void survivor_try(Trainer *t)
{
    Survivor *s = &t->team;
    survivor_check_follow(t);
    must(w.schedule.scattered || !s->took, "rank %d tries again", t->rank);
    if (s->took) {
        choose(t);
        return;
    }
    s->kept = t->locked;
    s->lock_until = w.now + (rank_peer(t, 0) == PEER_SILENT ? 0 : LOCK_S);
    take_folder(t);
}
