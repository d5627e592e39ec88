/* A survivor of a lost rank, as src/train/keep/team.c, survive.c, team_write.c and spare.c drive its machine; and what
   must hold between survivors. */
#include "rank.h"

/* team.c, survive.c */
#define MEET_S   5.0
#define ANSWER_S 30.0
#define END_S    120.0
#define LOOK_S   2.0

/* ---- what must hold ---- */

static bool calm(void)
{
    for (int k = 0; k < N_FAULT_KINDS; k++)
        if (w.kinds[k] && k != FAULT_KILL) return false;
    return true;
}

/* Whether that rank takes part, and this one knows so. */
bool survivor_takes_part(const Trainer *t, const Trainer *its)
{
    const Survivor *s = &its->team;
    bool announced = s->begun && s->began + w.schedule.delay + 0.01 < w.now;
    return proc_runs(its->proc) && announced && s->able && !s->x.over && !its->ends && !troubled(t->proc, its->proc);
}

/* Two lead at the same time only where one of them did not know that the other one is there. */
static void check_leaders(const Trainer *t)
{
    for (int r = 0; r < t->size; r++) {
        const Trainer *its = trainer_of(t, r);
        if (r == t->rank || !proc_runs(its->proc) || its->ends || !its->team.begun) continue;
        if (!its->team.x.leads || its->team.x.over) continue;
        bool missed = (t->team.missed >> r | its->team.missed >> t->rank) & 1;
        must(missed && troubled(t->proc, its->proc), "ranks %d and %d both lead", r, t->rank);
    }
}

/* Where ranks have only died, nobody waits in vain: one leads soon behind the last news. */
static void check_soon(const Trainer *t)
{
    double last = w.disturbed;
    for (int r = 0; r < t->size; r++) {
        const Trainer *its = trainer_of(t, r);
        if (!proc_runs(its->proc)) continue;
        if (!its->team.begun || its->wait != WAITS_TEAM) return; /* it may be busy */
        last = fmax(last, fmax(its->team.began, its->team.freed));
    }
    must(!calm() || w.now <= last + 1 + 4 * w.schedule.delay, "rank %d leads only %g s after the last news", t->rank,
         w.now - last);
}

/* All that can write follow it, or were waited for. */
static void check_followers(const Trainer *t)
{
    const TeamState *x = &t->team.x;
    for (int r = 0; r < t->size && !x->met; r++) {
        const TeamRank *its = &x->ranks[r];
        if (r == t->rank || !its->here || !its->able || its->gone || its->left) continue;
        must((trainer_of(t, r)->team.followed >> t->rank) & 1, "rank %d leads, and rank %d does not follow", t->rank,
             r);
    }
}

static void begin_to_lead(Trainer *t)
{
    Survivor *s = &t->team;
    trace(t->proc, "leads");
    s->led_at = w.now;
    for (int r = 0; r < t->size; r++)
        if (s->x.met || s->x.ranks[r].gone || s->x.ranks[r].left) s->missed |= UINT64_C(1) << r;
    check_leaders(t);
    check_followers(t);
    check_soon(t);
}

static void check_drop(const Trainer *t, int writer)
{
    const Trainer *its = trainer_of(t, writer);
    const Survivor *s = &its->team;
    bool may = !proc_runs(its->proc) || its->ends || s->x.over || s->x.leads || s->failed ||
               troubled(t->proc, its->proc) || s->x.ranks[t->rank].gone || w.now >= t->team.wrote + ANSWER_S;
    must(may, "rank %d leaves rank %d out", t->rank, writer);
    bool closed = its->proc->life == PROC_DEAD && !its->proc->vanished, leads = proc_runs(its->proc) && s->x.leads;
    bool failed = proc_runs(its->proc) && !s->written && s->job.rank == t->rank && s->plan.parts[writer];
    if (is_cut(t->proc->host, its->proc->host) || !(closed || leads || failed)) return;
    double last = closed ? its->proc->since : leads ? s->led_at : s->told;
    double touch = w.healed[t->proc->host][its->proc->host];
    last = fmax(fmax(fmax(last, touch), fmax(t->team.wrote, t->hung)), t->proc->thawed);
    must(w.now <= last + 1 + 2 * w.schedule.delay, "rank %d waits for rank %d, which %s", t->rank, writer,
         closed  ? "has ended"
         : leads ? "leads"
                 : "has failed");
}

/* A leader that is gone is reported before the next one is followed. */
void survivor_check_follow(const Trainer *t)
{
    const Survivor *s = &t->team;
    must(s->follows < 0 || s->x.ranks[s->follows].left || !s->x.ranks[s->follows].gone,
         "rank %d does not report rank %d", t->rank, s->follows);
}

/* Whether that rank will announce itself, and this one has to wait for it. */
static bool may_come(const Trainer *t, const Trainer *its)
{
    const Survivor *s = &its->team;
    bool known = (s->begun && !s->able) || t->team.x.ranks[its->rank].gone;
    bool waits = w.now < t->team.told + t->team.x.times.meet_s;
    return waits && !known && proc_runs(its->proc) && !its->ends && !s->x.over && !troubled(t->proc, its->proc);
}

static void check_end(const Trainer *t, const TeamAction *a)
{
    const Survivor *s = &t->team;
    bool saved = a->end == TEAM_SAVED || a->end == TEAM_FOUND;
    double news = fmax(fmax(s->told, s->freed), t->proc->thawed);
    trace(t->proc, "its save ends: %d by rank %d, step %" PRId64, (int)a->end, a->rank, a->step);
    must(!saved || disk_newest(a->step) >= 0, "rank %d says that step %" PRId64 " is saved", t->rank, a->step);
    must(!saved || a->rank == s->follows || a->step >= s->has_step, "rank %d ends with an earlier step", t->rank);
    must(a->end != TEAM_UNCLEAR || w.now >= s->told + END_S, "rank %d ends after %g s without news", t->rank,
         w.now - s->told);
    must(s->x.leads || w.now <= news + END_S + MEET_S + LOOK_S, "rank %d ends only %g s after the last news", t->rank,
         w.now - news);
    for (int r = 0; r < t->size && a->end == TEAM_NOBODY; r++) {
        must(r == t->rank || !survivor_takes_part(t, trainer_of(t, r)), "rank %d ends though rank %d can write",
             t->rank, r);
        must(r == t->rank || !may_come(t, trainer_of(t, r)), "rank %d ends though rank %d may come", t->rank, r);
    }
    if (!w.schedule.scattered)
        must(!calm() || (a->end != TEAM_FAILED && a->end != TEAM_NOTHING),
             "rank %d has the state, and does not save it", t->rank);
}

void survivor_give(Trainer *t, TeamEvent e)
{
    Survivor *s = &t->team;
    bool led = s->x.leads;
    team_on(&s->x, &e, w.now);
    if (s->x.leads && !led) begin_to_lead(t);
    must(!led || s->x.leads, "rank %d leads no more", t->rank);
    must(!s->x.leads || s->able, "rank %d leads, which cannot write", t->rank);
    must(e.kind != TEAM_TIME || s->x.over || s->x.leads || s->x.wake < INFINITY, "rank %d waits for nothing", t->rank);
}

/* ---- its mail ---- */

void survivor_hears(Trainer *t, int from, const char *data, size_t size)
{
    Post *m = sim_alloc(sizeof *m);
    *m = (Post){.from = from, .data = data, .size = size};
    *t->team.mail_end = m;
    t->team.mail_end = &m->next;
}

void survivor_hear(Trainer *t)
{
    Survivor *s = &t->team;
    bool gone[SIM_RANKS];
    for (int r = 0; r < t->size; r++) gone[r] = rank_peer(t, r) != PEER_WELL; /* before the last look */
    while (s->mail) {
        Post *m = s->mail;
        s->mail = m->next;
        if (!s->mail) s->mail_end = &s->mail;
        survivor_give(t, (TeamEvent){.kind = TEAM_MAIL, .rank = m->from, .data = m->data, .size = m->size});
    }
    for (int r = 0; r < t->size; r++)
        if (gone[r] != s->x.ranks[r].gone)
            survivor_give(t, (TeamEvent){.kind = gone[r] ? TEAM_GONE : TEAM_BACK, .rank = r});
    survivor_give(t, (TeamEvent){.kind = TEAM_TIME});
}

void survivor_send(Trainer *t)
{
    Survivor *s = &t->team;
    for (; s->done < s->x.n_actions && s->x.actions[s->done].kind == TEAM_SEND; s->done++) {
        TeamAction *a = &s->x.actions[s->done];
        Letter l = {.word = SAY_SURVIVOR, .data = sim_alloc(a->size), .size = a->size};
        memcpy(l.data, a->data, a->size);
        free(a->data);
        a->data = NULL;
        if (t->open[a->rank]) say(t->proc, start_rank(t->proc->start, a->rank), l);
    }
}

/* ---- a writer ---- */

static void tell_written(Trainer *t)
{
    Survivor *s = &t->team;
    uint64_t part = s->plan.parts[t->rank];
    if (part && comes_to(t, POINT_WROTE, 0, tell_written)) return;
    s->told = s->freed = w.now;
    survivor_give(t, (TeamEvent){.kind = TEAM_WROTE,
                                 .rank = s->job.rank,
                                 .number = s->job.number,
                                 .data = s->written ? &part : NULL,
                                 .size = s->written ? sizeof part : 0});
    survivor_turn(t);
}

/* It writes where the leader's plan says, and nobody but that leader may hold the folder, as long as it leads. */
static void end_part(Trainer *t)
{
    Survivor *s = &t->team;
    const Trainer *leader = trainer_of(t, s->job.rank);
    bool leads = proc_runs(leader->proc) && leader->team.x.leads && !leader->team.x.over && !leader->ends;
    must(!leads || disk_held_by(leader->proc, s->plan.place),
         "rank %d writes in folder %d, which rank %d does not hold", t->rank, s->plan.place, s->job.rank);
    s->written = !disk_fails(t->proc);
    s->failed = s->failed || !s->written;
    s->wrongly = w.now < t->wrong;
    if (s->written && !s->wrongly)
        disk_write(t->proc, s->plan.place, s->job.step, s->plan.parts[t->rank], s->plan.content);
    tell_written(t);
}

double survivor_seconds(const Trainer *t, uint64_t parts)
{
    double share = (double)__builtin_popcountll(parts) / t->size;
    return disk_seconds(t->proc, w.schedule.write_s * share * uniform(0.5, 1.5));
}

static void write_part(Trainer *t)
{
    must(sees_folder(t), "rank %d is asked to write where its host has no folder", t->rank);
    if (comes_to(t, POINT_WRITE, 0, write_part)) return;
    wait_until(t, w.now + survivor_seconds(t, t->team.plan.parts[t->rank]), end_part);
}

static void take_plan(Trainer *t, const TeamAction *a)
{
    Survivor *s = &t->team;
    must(!s->x.ranks[a->rank].gone, "rank %d writes for rank %d, which is gone", t->rank, a->rank);
    must(a->size == sizeof s->plan, "rank %d has a plan of %zu bytes", t->rank, a->size);
    memcpy(&s->plan, a->data, sizeof s->plan);
    s->job = *a;
    s->job.data = NULL;
    s->written = true;
    if (!s->plan.parts[t->rank]) {
        tell_written(t);
        return;
    }
    must(w.schedule.scattered || (a->step == s->has_step && s->plan.content == s->content),
         "rank %d is asked for step %" PRId64 ", and has step %" PRId64, t->rank, a->step, s->has_step);
    write_part(t);
}

/* ---- actions ---- */

static void followed(Trainer *t)
{
    if (comes_to(t, POINT_FOLLOW, 0, followed)) return;
    survivor_turn(t);
}

static void release(Trainer *t)
{
    t->team.freed = w.now;
    disk_release(t->proc, DISK_MAIN);
    t->locked = false;
    followed(t);
}

static void follow(Trainer *t, int leader)
{
    survivor_check_follow(t);
    trace(t->proc, "follows rank %d", leader);
    t->team.follows = leader;
    t->team.followed |= UINT64_C(1) << leader;
    t->team.told = w.now;
    if (t->locked)
        wait_for(t, WAITS_SAVER, INFINITY, release);
    else
        followed(t);
}

static void leave_out(Trainer *t, int writer)
{
    t->team.lacks = t->team.drops = true;
    t->team.left_out |= UINT64_C(1) << writer;
}

static void take_answer(Trainer *t, const TeamAction *a)
{
    Survivor *s = &t->team;
    uint64_t part = 0;
    if (a->size == sizeof part) memcpy(&part, a->data, sizeof part);
    must(part == s->plan.parts[a->rank] && s->writes, "rank %d takes an answer of rank %d to another plan", t->rank,
         a->rank);
    if (!part || !trainer_of(t, a->rank)->team.wrongly) {
        s->answered |= part;
        return;
    }
    leave_out(t, a->rank); /* what it reads is not what that rank has said */
    survivor_give(t, (TeamEvent){.kind = TEAM_REFUSED, .rank = a->rank});
}

static void lose_leader(Trainer *t, int leader)
{
    const Trainer *its = trainer_of(t, leader);
    must(its->proc->life == PROC_DEAD || its->leaving || troubled(t->proc, its->proc), "rank %d is well", leader);
    trace(t->proc, "rank %d leads no more", leader);
    t->team.follows = -1;
    t->team.told = w.now;
    if (rank_peer(t, leader) == PEER_SILENT) report(t, REPORT_FROZEN, leader, false);
}

static void tell_story(const Trainer *t, const TeamAction *a)
{
    if (a->rank != t->rank) return;
    if (a->end == TEAM_SAVED)
        story("step %" PRId64 " saved by rank %d%s", a->step, t->rank, t->team.place == DISK_MAIN ? "" : " beside");
    if (a->end == TEAM_FOUND) story("rank %d finds step %" PRId64, t->rank, a->step);
    if (a->end == TEAM_FAILED || a->end == TEAM_NOTHING)
        story("rank %d %s", t->rank, a->end == TEAM_FAILED ? "could not save" : "had nothing to save");
}

static void end_save(Trainer *t, const TeamAction *a)
{
    check_end(t, a);
    t->stands = w.schedule.standby > 0 && (a->end == TEAM_SAVED || a->end == TEAM_FOUND);
    tell_story(t, a);
    if (!t->team.saved) return;
    must(disk_newest(t->team.step) >= 0, "rank %d reports a save, and there is none", t->rank);
    report(t, REPORT_SAVED, -1, false);
}

/* True: it does not take long. */
static bool perform(Trainer *t, const TeamAction *a)
{
    switch (a->kind) {
    case TEAM_SEND:
        break;
    case TEAM_FOLLOW:
        follow(t, a->rank);
        return false;
    case TEAM_LOST:
        lose_leader(t, a->rank);
        break;
    case TEAM_WRITE:
        take_plan(t, a);
        return false;
    case TEAM_TRY:
        survivor_try(t);
        return false;
    case TEAM_TAKE:
        take_answer(t, a);
        break;
    case TEAM_DROP:
        check_drop(t, a->rank);
        leave_out(t, a->rank);
        trace(t->proc, "leaves out rank %d: %s", a->rank, a->why);
        break;
    case TEAM_GATHERED:
        survivor_gathered(t);
        return false;
    case TEAM_OVER:
        end_save(t, a);
        break;
    }
    return true;
}

static void over(Trainer *t)
{
    if (comes_to(t, POINT_OVER, 0, over)) return;
    leave(t, 77);
}

/* team_next, and the loop around it. */
void survivor_turn(Trainer *t)
{
    Survivor *s = &t->team;
    for (bool heard = false;;) {
        survivor_send(t);
        if (s->done < s->x.n_actions) {
            TeamAction a = s->x.actions[s->done];
            s->x.actions[s->done++].data = NULL;
            char *data = a.size ? sim_alloc(a.size) : a.data;
            if (a.size) memcpy(data, a.data, a.size);
            free(a.data);
            a.data = data;
            if (!perform(t, &a)) return;
            if (a.kind == TEAM_TAKE) heard = false; /* the answer may be refused */
            continue;
        }
        s->done = s->x.n_actions = 0;
        if (s->x.over) {
            over(t);
            return;
        }
        if (heard) break;
        survivor_hear(t);
        heard = true;
    }
    must(s->x.wake > w.now, "rank %d waits for what is over", t->rank);
    wait_for(t, WAITS_TEAM, fmin(s->x.wake, w.now + LOOK_S), survivor_turn);
}

/* ---- its begin ---- */

static void announced(Trainer *t)
{
    if (comes_to(t, POINT_ANNOUNCED, 0, announced)) return;
    survivor_turn(t);
}

static void announce(Trainer *t)
{
    Survivor *s = &t->team;
    if (comes_to(t, POINT_MEET, 0, announce)) return;
    s->begun = true;
    s->began = s->told = w.now;
    survivor_give(
        t,
        (TeamEvent){.kind = TEAM_BEGIN, .able = s->able, .step = s->has_step, .data = &s->has, .size = sizeof s->has});
    survivor_send(t);
    announced(t);
}

/* What is in the memory of this rank's host, also of ranks that have died. */
static void gather_memory(Trainer *t)
{
    Memory *all = &t->team.has;
    for (int r = 0; r < t->size; r++) {
        const Trainer *its = trainer_of(t, r);
        for (int k = 0; k < KEPT && its->proc->host == t->proc->host; k++) {
            const Memory *m = &its->memory;
            int i = 0;
            if (!m->slices[k]) continue;
            while (i < KEPT - 1 && all->slices[i] && all->step[i] != m->step[k]) i++;
            must(!all->slices[i] || all->step[i] == m->step[k], "the ranks of a host are more than a step apart");
            all->step[i] = m->step[k];
            all->content[i] = m->content[k];
            all->slices[i] |= m->slices[k];
        }
    }
}

void survive(Trainer *t)
{
    Survivor *s = &t->team;
    double meet_s = fmin(w.schedule.timeout / 2, MEET_S);
    trace(t->proc, "survives at step %" PRId64, t->step);
    t->trains = false;
    t->survives = true;
    team_state_init(&s->x, t->rank, t->size, w.schedule.scattered, (TeamTimes){meet_s, ANSWER_S, END_S});
    saver_give_up(t);
    s->follows = -1;
    s->freed = -INFINITY;
    s->led_at = INFINITY;
    s->has_step = s->step = t->step;
    s->content = t->content;
    s->able = sees_folder(t);
    if (w.schedule.scattered) {
        gather_memory(t);
        s->able = s->able && s->has.slices[0];
        s->has_step = s->step = 0;
        for (int k = 0; k < KEPT; k++)
            if (s->has.slices[k] == all_parts(t) && s->has.step[k] > s->step) s->has_step = s->step = s->has.step[k];
    }
    announce(t);
}

void survivor_free(Trainer *t)
{
    if (t->survives) team_state_free(&t->team.x);
}
