/* The writing of the survivors' checkpoint: the leader's plan, each member's part, and the answers. */
#include <stdlib.h>
#include <string.h>

#include "base/test_switch.h"
#include "comm/meet/report.h"
#include "train/keep/spare.h"
#include "train/keep/team_internal.h"

#define ANSWER_S 30.0  /* for members that live, after the leader's own part */
#define END_S    120.0 /* for news of a leader that lives: a launcher may end all when one ends */

typedef struct {
    int64_t step, place;
    int32_t writers, pieces;
} SavePlan; /* `writers` ranks (int32_t) and `pieces` pieces follow */

/* A member's answer: its part; the intervals of both spaces follow. */
typedef struct {
    Digest digest;
    int64_t count[N_SPACES];
} Written;

/* A leader's plans are numbered, and so are the answers to them. */
static void plan_name(char name[TEAM_NAME_BYTES], int leader, int plan)
{
    snprintf(name, TEAM_NAME_BYTES, "survivors-plan-%d-%d", leader, plan);
}

static void answer_name(char name[TEAM_NAME_BYTES], int leader, int plan, int rank)
{
    snprintf(name, TEAM_NAME_BYTES, "survivors-wrote-%d-%d-%d", leader, plan, rank);
}

static void end_name(char name[TEAM_NAME_BYTES], int leader)
{
    snprintf(name, TEAM_NAME_BYTES, "survivors-end-%d", leader);
}

/* ---- a part ---- */

/* This rank's pieces. */
static Status find_pieces(const HeldPieces *held, HeldPart *part, Intervals *lists)
{
    for (int k = 0; k < held->n; k++) {
        const SnapshotPiece *p = &held->pieces[k];
        if (p->rank != held->rank) continue;
        if (p->file < 0 || p->file >= held->list->count) return fail(E_FAIL, "the plan of the save is not valid");
        for (int space = 0; space < N_SPACES; space++)
            part->params[space] = &held->list->files[p->file].fixed.params[space];
    }
    for (int space = 0; space < N_SPACES; space++) lists[space] = held_pieces_part(held, space);
    return OK;
}

/* Writes this rank's part: its pieces, or share number `i` of its own state. */
static Status write_mine(const TeamSource *s, int64_t step, int rank, int i, int writers, Buf *answer)
{
    Status status = OK;
    HeldPieces held = {s->list, s->plan, s->n_plan, rank};
    Intervals lists[N_SPACES] = {{0}};
    HeldPart part = {{s->params, s->sets}, {&lists[SPACE_MODEL], &lists[SPACE_SETS]}};
    Written w;
    if (s->plan) {
        TRY(find_pieces(&held, &part, lists));
        TRY_DONE(checkpoint_write_part(s->out, step, &part, held_pieces_read, &held, &w.digest));
    } else {
        intervals_add(&lists[SPACE_MODEL], s->params->size * i / writers, s->params->size * (i + 1) / writers);
        if (s->sets) intervals_add(&lists[SPACE_SETS], 0, s->sets->size);
        TRY_DONE(checkpoint_write_part(s->out, step, &part, s->read, s->context, &w.digest));
    }
    for (int space = 0; space < N_SPACES; space++) w.count[space] = lists[space].count;
    buf_append(answer, &w, sizeof w);
    for (int space = 0; space < N_SPACES; space++)
        buf_append(answer, lists[space].intervals, (size_t)lists[space].count * sizeof(Interval));
done:
    for (int space = 0; space < N_SPACES; space++) intervals_free(&lists[space]);
    return status;
}

/* ---- a member ---- */

/* Writes this rank's part of plan number `n`, if it has one, and answers. */
static Status follow_plan(const Team *t, const TeamSource *source, int n, const char *data, size_t size, int64_t *step)
{
    Status status = OK;
    TeamSource mine = *source;
    Buf answer = {0};
    SavePlan plan = {0};
    char name[TEAM_NAME_BYTES];
    bool asked = false;
    if (size >= sizeof plan) memcpy(&plan, data, sizeof plan);
    bool whole = size >= sizeof plan && plan.writers >= 0 && plan.pieces >= 0;
    size_t ranks = (size_t)plan.writers * sizeof(int32_t), pieces = (size_t)plan.pieces * sizeof(SnapshotPiece);
    if (!whole || size != sizeof plan + ranks + pieces) return fail(E_PEER, "the leader's plan is cut");
    *step = plan.step;
    char *folder = spare_path(source->out, (int)plan.place);
    mine.out = folder;
    SnapshotPiece *copy = mem_array((size_t)plan.pieces, sizeof *copy); /* aligned */
    memcpy(copy, data + sizeof plan + ranks, pieces);
    mine.plan = plan.pieces ? copy : NULL;
    mine.n_plan = plan.pieces;
    for (int i = 0; i < plan.writers && !asked; i++) {
        int32_t rank;
        memcpy(&rank, data + sizeof plan + (size_t)i * sizeof rank, sizeof rank);
        asked = rank == t->comm->rank;
        if (!asked) continue;
        test_at("write", rank);
        status = write_mine(&mine, plan.step, rank, i, plan.writers, &answer);
        test_at("wrote", rank);
    }
    MEM_FREE(copy, folder);
    answer_name(name, t->leader, n, t->comm->rank);
    if (status != OK) log_warn("this rank's part of the save: %s", status_message());
    if (status != OK)
        (void)team_put(t, name, "-", 1);
    else if (asked)
        (void)team_put(t, name, answer.data, answer.len);
    buf_free(&answer);
    return status;
}

/* The step of a plan that the leader has ended without this rank, which came too late to read it. */
static void learn_step(const Team *t, int64_t *step)
{
    char name[TEAM_NAME_BYTES];
    void *data = NULL;
    size_t size = 0;
    SavePlan plan;
    plan_name(name, t->leader, 0);
    if (*step < 0 && team_get(t, name, 0, &data, &size) == OK && size >= sizeof plan) {
        memcpy(&plan, data, sizeof plan);
        *step = plan.step;
    }
    free(data);
}

TeamEnd team_follow(Team *t, const TeamSource *source, int64_t *step, Status *part)
{
    char plan[TEAM_NAME_BYTES], end[TEAM_NAME_BYTES];
    double until = clock_monotonic() + test_seconds("SURVIVE", END_S);
    int plans = 0;
    void *data = NULL;
    size_t size = 0;
    *step = -1;
    *part = OK;
    end_name(end, t->leader);
    for (;;) {
        team_catch_up(t, t->leader);
        plan_name(plan, t->leader, plans);
        bool gone = comm_gone(t->comm, t->leader); /* before the last look at its end */
        if (team_get(t, end, 0, &data, &size) == OK) {
            TeamEnd how = size == 1 && *(const char *)data == '1' ? TEAM_SAVED : TEAM_FAILED;
            free(data);
            learn_step(t, step);
            return how;
        }
        if (gone || clock_monotonic() > until) return gone ? TEAM_LEFT : TEAM_UNCLEAR;
        if (team_get(t, plan, TEAM_POLL_S, &data, &size) == OK) {
            *part = follow_plan(t, source, plans, data, size, step);
            plans++;
            until = clock_monotonic() + test_seconds("SURVIVE", END_S);
        }
        free(data);
        data = NULL;
    }
}

/* ---- the leader ---- */

/* All parts that were written, of both spaces. */
typedef struct {
    Intervals *parts[N_SPACES]; // (count)
    Digest *digests;            // (count)
    int *ranks;                 // (count) who wrote it
    int count;
} WrittenParts;

static WrittenParts written_parts_new(int most)
{
    size_t n = (size_t)most;
    WrittenParts p = {.digests = mem_array(n, sizeof *p.digests), .ranks = mem_array(n, sizeof *p.ranks)};
    for (int space = 0; space < N_SPACES; space++) p.parts[space] = mem_array(n, sizeof *p.parts[space]);
    return p;
}

static void written_parts_free(WrittenParts *p)
{
    for (int space = 0; space < N_SPACES; space++) intervals_free_all(p->parts[space], p->count);
    MEM_FREE(p->digests, p->ranks);
}

/* Takes the intervals of a part from an answer. False: it is cut. */
static bool take_intervals(const char **data, size_t *size, int64_t count, Intervals *list)
{
    if (count < 0 || (uint64_t)count > *size / sizeof(Interval)) return false;
    for (int64_t i = 0; i < count; i++) {
        Interval x;
        memcpy(&x, *data + (size_t)i * sizeof x, sizeof x);
        intervals_add(list, x.begin, x.end);
    }
    *data += (size_t)count * sizeof(Interval);
    *size -= (size_t)count * sizeof(Interval);
    return true;
}

/* What a member says it wrote, against the leader's own state where it has one. */
static Status take_answer(const TrainingState *t, int rank, const char *data, size_t size, WrittenParts *parts)
{
    Written w;
    Digest own;
    int n = parts->count;
    HeldPart part = {{t->params, t->kfac}, {&parts->parts[SPACE_MODEL][n], &parts->parts[SPACE_SETS][n]}};
    if (size < sizeof w) return fail(E_PEER, "its answer is cut");
    memcpy(&w, data, sizeof w);
    data += sizeof w;
    size -= sizeof w;
    parts->count++;
    parts->digests[n] = w.digest;
    parts->ranks[n] = rank;
    for (int space = 0; space < N_SPACES; space++)
        if (!take_intervals(&data, &size, w.count[space], &parts->parts[space][n]))
            return fail(E_PEER, "its answer is cut");
    if (!t->read) return OK;
    TRY(checkpoint_part_digest(&part, t->read, t->read_context, &own));
    return digest_equal(own, w.digest) ? OK : fail(E_CORRUPT, "its state has other bits");
}

/* The members that write: all with a piece in the plan, or all whose own state is of this step. The leader is first. */
static int choose_writers(const TeamFill *f, int32_t *ranks)
{
    int n = 0;
    for (int i = 0; i < f->team->count; i++) {
        const TeamMember *m = &f->team->members[i];
        bool writes = !f->source.plan && m->step == f->step;
        for (int k = 0; k < f->source.n_plan; k++) writes = writes || f->source.plan[k].rank == m->rank;
        if (writes) ranks[n++] = m->rank;
    }
    return n;
}

static void drop_member(Team *t, int rank)
{
    int kept = 0;
    for (int i = 0; i < t->count; i++)
        if (t->members[i].rank == rank)
            free(t->members[i].pieces);
        else
            t->members[kept++] = t->members[i];
    t->count = kept;
}

static Status await_answer(Team *t, int rank, double until, void **data, size_t *size)
{
    char name[TEAM_NAME_BYTES];
    answer_name(name, t->comm->rank, t->plans - 1, rank);
    for (;;) {
        team_catch_up(t, rank);
        bool gone = comm_gone(t->comm, rank); /* before the last look */
        if (team_get(t, name, gone ? 0 : TEAM_POLL_S, data, size) == OK) break;
        if (gone) return fail(E_PEER, "it has ended or is frozen");
        if (clock_monotonic() > until) return fail(E_PEER, "it lives, but wrote nothing within %.0f s", ANSWER_S);
    }
    return *size > 1 ? OK : fail(E_PEER, "see its message");
}

static void drop_writer(const TeamFill *f, int rank)
{
    log_warn("%s did not write its part: %s", comm_peer_name(f->team->comm, rank), status_message());
    drop_member(f->team, rank);
}

/* The parts of the others. Drops each member without one. */
static Status gather_parts(const TeamFill *f, const TrainingState *t, const int32_t *ranks, int writers,
                           WrittenParts *parts)
{
    int missing = 0;
    double until = clock_monotonic() + test_seconds("SURVIVE", ANSWER_S);
    for (int i = 0; i < writers; i++) {
        void *data = NULL;
        size_t size = 0;
        if (ranks[i] == f->team->comm->rank) continue;
        Status its = await_answer(f->team, ranks[i], until, &data, &size);
        if (its == OK) its = take_answer(t, ranks[i], data, size, parts);
        free(data);
        if (its == OK) continue;
        drop_writer(f, ranks[i]);
        missing++;
    }
    return missing ? fail(E_PEER, "%d of %d ranks did not write their parts", missing, writers) : OK;
}

/* Reads what all wrote. Drops each member whose bytes are others. */
static Status check_parts(const TeamFill *f, const TrainingState *t, const WrittenParts *p, CheckpointFilled *filled)
{
    bool *wrong = mem_array((size_t)p->count, sizeof *wrong), others = false;
    Status status = checkpoint_check_parts(f->source.out, t, (const Intervals *const *)p->parts, p->digests, p->count,
                                           wrong, filled);
    for (int i = 0; i < p->count; i++) {
        if (!wrong[i] || p->ranks[i] == f->team->comm->rank) continue;
        drop_writer(f, p->ranks[i]);
        others = true;
    }
    free(wrong);
    return others ? fail(E_PEER, "not all ranks wrote their parts") : status;
}

Status team_fill(void *team_fill, const TrainingState *t, CheckpointFilled *filled)
{
    TeamFill *f = team_fill;
    Team *team = f->team;
    const TeamSource *s = &f->source;
    int me = team->comm->rank;
    Status status = OK;
    Buf text = {0}, own = {0};
    TeamSource mine = *s;
    char name[TEAM_NAME_BYTES];
    WrittenParts parts = written_parts_new(team->count);
    mine.sets = t->kfac;
    int32_t *ranks = mem_array((size_t)team->count, sizeof *ranks);
    int writers = choose_writers(f, ranks);
    SavePlan plan = {t->step, s->place, writers, s->n_plan};
    buf_append(&text, &plan, sizeof plan);
    buf_append(&text, ranks, (size_t)writers * sizeof *ranks);
    if (s->n_plan) buf_append(&text, s->plan, (size_t)s->n_plan * sizeof *s->plan);
    plan_name(name, me, team->plans++);
    TRY_DONE(team_put(team, name, text.data, text.len));
    test_at("planned", me);
    TRY_DONE(write_mine(&mine, t->step, me, 0, writers, &own));
    TRY_DONE(take_answer(t, me, own.data, own.len, &parts));
    TRY_DONE(gather_parts(f, t, ranks, writers, &parts));
    TRY_DONE(check_parts(f, t, &parts, filled));
    team->writers = writers;
    test_at("filled", me);
done:
    written_parts_free(&parts);
    BUF_FREE(&text, &own);
    free(ranks);
    return status;
}

void team_end(const Team *t, bool saved)
{
    char name[TEAM_NAME_BYTES];
    if (t->deaf) return;
    test_at("end", t->comm->rank);
    end_name(name, t->comm->rank);
    if (team_put(t, name, saved ? "1" : "0", 1) != OK) log_debug("%s", status_message());
    if (saved) report_to_agent(REPORT_SAVED, -1, false);
}
