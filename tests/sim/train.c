/* A rank's life: it meets the others, reads the state, trains, saves and ends, as src/comm/mesh/comm.c,
   src/train/run/run.c, src/train/loop and src/train/keep/saving.c do it. */
#include "rank.h"

#define RENDEZVOUS_S 300.0 /* --connect-timeout */
#define LINES_S      22.0  /* peers.c: CONNECT_S */
#define ROUND_S      6.0   /* peers.c: what PREFLIGHT_S leaves */
#define PROBE_S      1.0   /* watch.c */
#define LOCK_S       10.0  /* lock.c: WAIT_S */
#define POLL_S       0.2   /* of a lock; lock.c looks more often */
#define SAVE_AGAIN_S 60.0  /* loop_between.c */

/* ---- the end ---- */

static void ended(Trainer *t)
{
    t->wait = WAITS_NOT;
    if (t->stands)
        standby_stand(t->proc);
    else
        proc_end(t->proc, t->code, 0);
}

static void close_lines(Trainer *t)
{
    if (comes_to(t, POINT_EXIT, 0, close_lines)) return;
    if (t->watching) leave_watch(t);
    wait_until(t, w.now + uniform(0, 0.3), ended);
}

static void leave_with(Trainer *t, int code)
{
    t->code = code;
    close_lines(t);
}

static void release_locks(Trainer *t)
{
    Proc *p = t->proc;
    for (int place = DISK_MAIN; place < t->size; place++) {
        bool has = (place == DISK_MAIN && t->locked) || (t->team.locked && t->team.place == place);
        if (!has) continue;
        disk_give_up(p, place);
        disk_release(p, place);
    }
    t->locked = t->team.locked = false;
}

/* The last meeting may fail: the work is done. */
static void last_meeting(Trainer *t) { close_lines(t); }

/* Its saver has ended. */
static void say_end(Trainer *t)
{
    int code = t->code;
    release_locks(t);
    if (t->met && code == 1) say_to_all(t, (Letter){.word = SAY_ENDED});
    if (t->met && (code == 0 || code == 75))
        meet(t, last_meeting);
    else
        close_lines(t);
    t->code = code;
}

void leave(Trainer *t, int code)
{
    trace(t->proc, "is about to end with %d", code);
    t->ends = true;
    t->trains = false;
    t->code = code;
    saver_give_up(t);
    if (code < 0) /* without a word */
        leave_with(t, 1);
    else
        wait_for(t, WAITS_SAVER, INFINITY, say_end);
}

void peer_lost(Trainer *t)
{
    if (t->ends)
        close_lines(t);
    else if (t->trains)
        survive(t);
    else
        leave(t, t->signal && !t->met ? 75 : 77);
}

/* ---- meeting the others ---- */

static void no_answer(Trainer *t) { leave(t, t->signal ? 75 : 77); }

void come(Trainer *t)
{
    Proc *p = t->proc, *launcher = p->parent->parent;
    if (t->signal) {
        leave(t, 75);
        return;
    }
    line_open(p, launcher);
    say(p, launcher, (Letter){.word = SAY_COME, .rank = t->rank});
    wait_for(t, WAITS_GO, w.now + RENDEZVOUS_S, no_answer);
}

static void opened(Trainer *t, int code);
static void look(Trainer *t);

/* peers.c: the ranks that this one does not reach, or by which it is not reached. */
static void report_unreached(Trainer *t)
{
    for (int r = 0; r < t->size; r++)
        if (t->start->unreached[t->rank] >> r & 1) report(t, REPORT_SILENT, r, false);
}

/* clock_suspended. */
static double suspended_s(const Trainer *t) { return w.now > t->due + 2 ? w.now - t->due : 0; }

static void met(Trainer *t)
{
    if (!t->judged && t->start->connected < t->size && suspended_s(t) > 0) {
        wait_for(t, WAITS_ROUND, w.now + ROUND_S, met);
        return;
    }
    if (t->judged && t->start->connected == t->size) { /* gloo_open fails */
        t->met = true;
        report(t, REPORT_MET, -1, false);
        report_loss(t);
    }
    if (t->judged || t->start->connected < t->size || t->start->failed) {
        if (!t->judged && t->start->connected == t->size) report_unreached(t);
        peer_lost(t);
        return;
    }
    t->met = true;
    line_close(t->proc, t->proc->parent->parent);
    if (t->size > 1) report(t, REPORT_MET, -1, false);
    if (t->signal) rank_behaviour.signalled(t->proc, t->signal);
    all(t, 0, opened);
}

/* All say whom they have reached, by the launcher's rendezvous. */
static void tell_reached(Trainer *t)
{
    Start *s = t->start;
    s->connected++;
    for (int r = 0; r < t->size; r++)
        if (r != t->rank && !t->open[r] && t->watch.peers[r].life != PEER_LEFT && !t->judged)
            s->unreached[t->rank] |= UINT64_C(1) << r;
    s->failed = s->failed || s->unreached[t->rank];
    for (int r = 0; r < t->size && s->connected == t->size; r++) {
        Proc *q = start_rank(t->proc->start, r);
        proc_wake(q, w.now + uniform(0, w.schedule.delay));
    }
    wait_for(t, WAITS_ROUND, t->lock_until + ROUND_S, met);
}

static void look(Trainer *t)
{
    t->lock_until += suspended_s(t);
    if (t->judged || knows_all(t) || w.now >= t->lock_until) {
        tell_reached(t);
        return;
    }
    look_for_ended(t);
    wait_for(t, WAITS_LINES, fmin(w.now + PROBE_S, t->lock_until), look);
}

void connected(Trainer *t)
{
    if (t->size == 0) {
        no_answer(t);
        return;
    }
    t->lock_until = w.now + LINES_S;
    begin_watch(t);
    wait_for(t, WAITS_LINES, w.now + PROBE_S, look);
}

/* ---- the folder, and the state ---- */

bool sees_folder(const Trainer *t) { return w.schedule.shared || t->proc->host == 0; }

uint64_t all_parts(const Trainer *t) { return t->size == 64 ? ~UINT64_C(0) : (UINT64_C(1) << t->size) - 1; }

static uint64_t mixed(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ b * UINT64_C(0x9e3779b97f4a7c15)) + UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 30) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void step(Trainer *t);

static void begin_steps(Trainer *t, int code)
{
    (void)code;
    t->trains = true;
    if (t->rank == 0) report(t, REPORT_TRAINS, -1, false);
    step(t);
}

static void have_read(Trainer *t) { all(t, 0, begin_steps); }

static void read_state(Trainer *t)
{
    if (comes_to(t, POINT_LOAD, 0, read_state)) return;
    wait_until(t, w.now + uniform(0, 0.3), have_read);
}

/* Rank 0 has locked the folder, and has sent the step and content of its newest checkpoint. */
static void take_state(Trainer *t, int code)
{
    const Exchange *x = last_exchange(t);
    if (code) {
        leave(t, code);
        return;
    }
    t->step = x->value < 0 ? 0 : x->value;
    t->content = t->step ? x->sum : 1;
    t->share = 0;
    if (t->rank == 0) trace(t->proc, "begins at step %" PRId64, t->step);
    if (t->rank == 0 && t->step > 0) story("from step %" PRId64, t->step);
    if (t->step >= w.schedule.steps)
        leave(t, 0);
    else
        read_state(t);
}

static void take_folder(Trainer *t)
{
    Proc *p = t->proc;
    int code = 0;
    t->locked = t->locked || disk_lock(p, DISK_MAIN);
    bool joined = t->locked && disk_join(p);
    if (!joined && !t->signal && w.now < t->lock_until) {
        wait_until(t, w.now + POLL_S, take_folder);
        return;
    }
    t->share = 0;
    if (joined)
        t->value = disk_resume(p, &t->share);
    else
        code = t->signal ? 75 : 1;
    all(t, code, take_state);
}

static void opened(Trainer *t, int code)
{
    (void)code;
    t->lock_until = w.now + LOCK_S;
    if (t->rank == 0)
        take_folder(t);
    else
        all(t, 0, take_state);
}

/* ---- the saver of rank 0, and parts: beside the training ---- */

static void fail_save(Trainer *t)
{
    trace(t->proc, "could not save step %" PRId64, t->saver_step);
    t->saver = SAVER_IDLE;
    t->saver_failed = true;
    t->save_again = w.now + SAVE_AGAIN_S;
    disk_give_up(t->proc, DISK_MAIN);
}

static bool in_parts(void) { return w.schedule.scattered && w.schedule.shared; }

void saver_turn(Trainer *t)
{
    Proc *p = t->proc;
    if (t->saver == SAVER_WRITES && w.now >= t->saver_due) {
        if (disk_fails(p)) {
            fail_save(t);
            return;
        }
        if (!in_parts()) disk_write(p, DISK_MAIN, t->saver_step, all_parts(t), t->saver_content);
        t->saver = SAVER_NAMES;
    }
    if (t->saver == SAVER_NAMES) {
        if (point(p, POINT_NAME, 0)) return;
        disk_name(p, DISK_MAIN, t->saver_step);
        t->saver = SAVER_PRUNES;
    }
    if (t->saver == SAVER_PRUNES) {
        if (point(p, POINT_PRUNE, 0)) return;
        disk_prune(p, DISK_MAIN, t->saver_step, w.schedule.keep);
        t->saver = SAVER_IDLE;
    }
}

/* Parts that are not all written do not make a checkpoint. */
void saver_give_up(Trainer *t)
{
    if (t->saver == SAVER_PARTS) fail_save(t);
    t->part = PART_NONE;
    t->pending = false;
}

void part_turn(Trainer *t)
{
    Proc *p = t->proc;
    if (t->part == PART_BEGINS) {
        if (point(p, POINT_PART, 0) || t->part != PART_BEGINS) return;
        t->part = PART_WRITES;
        t->part_due = w.now + disk_seconds(p, w.schedule.write_s * uniform(0.5, 1));
    }
    if (t->part != PART_WRITES || w.now < t->part_due) return;
    t->part = PART_WRITTEN;
    t->part_failed = disk_fails(p);
    if (!t->part_failed) disk_write(p, DISK_MAIN, t->saver_step, UINT64_C(1) << t->rank, t->saver_content);
}

/* ---- saves ---- */

static void parted(Trainer *t)
{
    int code = last_exchange(t)->code;
    t->pending = false;
    t->part = PART_NONE;
    if (t->saver == SAVER_PARTS && code) fail_save(t);
    if (t->saver == SAVER_PARTS) {
        t->saver = SAVER_WRITES; /* it compares the files with what the ranks say */
        t->saver_due = w.now + uniform(0, 0.2);
    }
    t->parted_next(t);
}

static void gather_parts(Trainer *t)
{
    t->code = t->part_failed;
    exchange(t, parted);
}

static void part_ended(Trainer *t) { meet(t, gather_parts); }

static void end_parts(Trainer *t, void (*next)(Trainer *t))
{
    t->parted_next = next;
    if (t->pending)
        wait_for(t, WAITS_PART, INFINITY, part_ended);
    else
        next(t);
}

static void begin_saver(Trainer *t)
{
    Proc *p = t->proc;
    t->saver_failed = false;
    t->save_again = INFINITY;
    if (disk_has(DISK_MAIN, t->step)) return;
    disk_begin(p, DISK_MAIN, t->step, all_parts(t));
    t->saver = in_parts() ? SAVER_PARTS : SAVER_WRITES;
    t->saver_due = w.now + disk_seconds(p, w.schedule.write_s);
}

static void save_begun(Trainer *t, int code)
{
    (void)code;
    if (in_parts() && last_exchange(t)->value) {
        t->pending = true;
        t->part = PART_BEGINS;
        t->part_due = w.now;
        proc_wake(t->proc, w.now);
    }
    t->saved_next(t);
}

static void begin_save(Trainer *t)
{
    if (comes_to(t, POINT_PART, 0, begin_save)) return;
    begin_saver(t);
    t->value = t->saver == SAVER_PARTS;
    all(t, 0, save_begun);
}

static void save_agreed(Trainer *t, int code)
{
    (void)code;
    t->saver_step = t->step;
    t->saver_content = t->content;
    if (t->rank == 0)
        begin_save(t);
    else
        all(t, 0, save_begun);
}

static void saver_idle(Trainer *t) { all(t, 0, save_agreed); }

static void saver_wait(Trainer *t) { wait_for(t, WAITS_SAVER, INFINITY, saver_idle); }

static void save(Trainer *t, void (*next)(Trainer *t))
{
    t->saved_next = next;
    end_parts(t, saver_wait);
}

/* ---- the end of training ---- */

static void written(Trainer *t, int code)
{
    (void)code;
    leave(t, 0);
}

static void saved_last(Trainer *t, int code)
{
    t->trains = false;
    if (code || t->stops)
        leave(t, code ? 1 : 75);
    else
        all(t, 0, written); /* rank 0 writes the results */
}

static void saver_ended(Trainer *t) { all(t, t->saver_failed, saved_last); }

static void last_parts(Trainer *t) { wait_for(t, WAITS_SAVER, INFINITY, saver_ended); }

static void wait_for_save(Trainer *t) { end_parts(t, last_parts); }

static void save_last(Trainer *t) { save(t, wait_for_save); }

static void stop(Trainer *t)
{
    t->stops = true;
    save_last(t);
}

/* ---- a step ---- */

#define BIT(vote) (1u << (vote))

enum { OTHER_VOTE = 16 };

static bool takes(Trainer *t, Vote v)
{
    bool agreed = t->votes.agreed & BIT(v);
    t->votes.agreed &= ~BIT(v);
    return agreed;
}

static void save_if_due(Trainer *t)
{
    if (takes(t, VOTE_SAVE) && t->step < w.schedule.steps)
        save(t, step);
    else
        step(t);
}

static void between_steps(Trainer *t)
{
    bool busy = takes(t, VOTE_SAVE_BUSY);
    if (t->votes.agreed & VOTES_OF_SIGNALS)
        stop(t);
    else if (t->pending && !busy)
        end_parts(t, save_if_due);
    else
        save_if_due(t);
}

/* Two steps stay in memory, because ranks may be one step apart when one of them is lost. */
static void keep_in_memory(Trainer *t)
{
    Memory *m = &t->memory;
    m->step[1] = m->step[0];
    m->slices[1] = m->slices[0];
    m->content[1] = m->content[0];
    m->step[0] = t->step;
    m->content[0] = t->content;
    m->slices[0] = UINT64_C(1) << t->rank;
    if (w.schedule.copies) m->slices[0] |= UINT64_C(1) << (t->rank + 1) % t->size;
}

static void update(Trainer *t)
{
    t->content = mixed(t->content, last_exchange(t)->sum);
    t->share = 0;
    t->step++;
    if (w.schedule.scattered) keep_in_memory(t);
    if (t->rank == 0) trace(t->proc, "has made step %" PRId64, t->step);
    between_steps(t);
}

/* The shares of all ranks make one sum, which is the same however many they are. */
static uint64_t share_of(const Trainer *t, int rank)
{
    uint64_t its = (uint64_t)t->step + 1, sum = mixed(its, 7);
    if (rank > 0) return mixed(its, (uint64_t)rank + 100);
    for (int r = 1; r < t->size; r++) sum -= share_of(t, r);
    return sum;
}

static void give_share(Trainer *t)
{
    t->share = share_of(t, t->rank);
    exchange(t, update);
}

static void sum(Trainer *t)
{
    if (comes_to(t, POINT_SUM, (int)t->step + 1, sum)) return;
    if (w.now < t->hung)
        wait_until(t, t->hung, give_share);
    else
        give_share(t);
}

static void vote(Trainer *t)
{
    const Schedule *s = &w.schedule;
    int64_t next = t->step + 1;
    bool due = s->save_every > 0 && next % s->save_every == 0 && next < s->steps;
    if (t->rank == 0 && (due || w.now >= t->save_again)) t->votes.mine |= BIT(VOTE_SAVE);
    if (t->pending && t->part != PART_WRITTEN) t->votes.mine |= BIT(VOTE_SAVE_BUSY);
    if (chance(0.2)) t->votes.mine |= BIT(OTHER_VOTE + pick(8)); /* only the votes' checks look at these */
    meet(t, sum);
}

static void step(Trainer *t)
{
    if (t->votes.agreed & VOTES_OF_SIGNALS) {
        stop(t);
        return;
    }
    if (t->step >= w.schedule.steps) {
        save_last(t);
        return;
    }
    if (comes_to(t, POINT_STEP, (int)t->step + 1, step)) return;
    wait_until(t, w.now + w.schedule.step_s * uniform(0.8, 1.2), vote);
}
