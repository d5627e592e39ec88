/* The writing of the survivors' checkpoint: the leader's plan, each member's part, and the answers. */

#include "base/test_switch.h"
#include "train/keep/spare.h"
#include "train/keep/team.h"

/* A plan and an answer are used where they came, which is aligned: all ranks run the same program. */
typedef struct {
    int64_t pieces;
    int32_t place, writers;
} SavePlan; /* `pieces` pieces and `writers` ranks (int32_t) follow */

/* A member's answer: its part; the intervals of both spaces follow. */
typedef struct {
    Digest digest;
    int64_t count[N_SPACES];
} Written;

/* ---- a part ---- */

/* This rank's pieces. */
static void find_pieces(const HeldPieces *held, HeldPart *part, Intervals *lists)
{
    for (int space = 0; space < N_SPACES; space++) {
        lists[space] = held_pieces_part(held, space);
        for (int k = 0; k < held->n; k++)
            if (held->pieces[k].rank == held->rank)
                part->params[space] = &held->list->files[held->pieces[k].file].fixed.params[space];
    }
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
        find_pieces(&held, &part, lists);
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

static Status fail_cut(void) { return fail(E_PEER, "its message is cut; all ranks must run the same build"); }

/* Writes this rank's part of the plan, if it has one. */
static Status follow_plan(const Team *t, const TeamSource *source, const TeamAction *a, Buf *answer)
{
    Status status = OK;
    const SavePlan *plan = (const void *)a->data;
    const SnapshotPiece *pieces = (const void *)(plan + 1);
    TeamSource mine = *source;
    int me = t->state.rank;
    if (a->size < sizeof *plan) return fail_cut();
    const int32_t *ranks = (const void *)(pieces + plan->pieces);
    if ((const char *)(ranks + plan->writers) != a->data + a->size) return fail_cut();
    char *folder = spare_path(source->out, plan->place);
    mine.out = folder;
    mine.plan = plan->pieces ? pieces : NULL;
    mine.n_plan = (int)plan->pieces;
    for (int i = 0; i < plan->writers; i++) {
        if (ranks[i] != me) continue;
        test_at("write", me);
        status = write_mine(&mine, a->step, me, i, plan->writers, answer);
        test_at("wrote", me);
    }
    free(folder);
    return status;
}

Status team_write(Team *t, const TeamSource *source, const TeamAction *plan)
{
    Buf answer = {0};
    Status status = follow_plan(t, source, plan, &answer);
    if (status != OK) log_warn("this rank's part of the save: %s", status_message());
    team_tell(t, (TeamEvent){.kind = TEAM_WROTE,
                             .rank = plan->rank,
                             .number = plan->number,
                             .data = status != OK  ? NULL
                                     : answer.data ? answer.data
                                                   : "",
                             .size = status == OK ? answer.len : 0});
    buf_free(&answer);
    return status;
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

/* What a member says it wrote, against the leader's own state where it has one. */
static Status take_answer(const TrainingState *t, int rank, const char *answer, size_t size, WrittenParts *parts)
{
    const Written *w = (const void *)answer;
    const Interval *v = (const void *)(w + 1);
    Digest own;
    if (size < sizeof *w || (const char *)(v + w->count[SPACE_MODEL] + w->count[SPACE_SETS]) != answer + size)
        return fail_cut();
    int n = parts->count++;
    HeldPart part = {{t->params, t->kfac}, {&parts->parts[SPACE_MODEL][n], &parts->parts[SPACE_SETS][n]}};
    parts->digests[n] = w->digest;
    parts->ranks[n] = rank;
    for (int space = 0; space < N_SPACES; space++)
        for (int64_t i = 0; i < w->count[space]; i++, v++) intervals_add(&parts->parts[space][n], v->begin, v->end);
    if (!t->read) return OK;
    TRY(checkpoint_part_digest(&part, t->read, t->read_context, &own));
    return digest_equal(own, w->digest) ? OK : fail(E_CORRUPT, "its state has other bits");
}

/* The members that write: all with a piece in the plan, or all whose own state is of this step. The leader is first. */
static int choose_writers(const TeamFill *f, int32_t *ranks)
{
    const TeamState *x = &f->team->state;
    int n = 0;
    for (int i = 0; i <= x->size; i++) {
        int r = i == 0 ? x->rank : i - 1;
        if ((i > 0 && r == x->rank) || !team_has(x, r)) continue;
        bool writes = !f->source.plan && x->ranks[r].step == f->step;
        for (int k = 0; k < f->source.n_plan; k++) writes = writes || f->source.plan[k].rank == r;
        if (writes) ranks[n++] = r;
    }
    return n;
}

static void warn_of_writer(const TeamFill *f, int rank, const char *why)
{
    log_warn("%s did not write its part: %s", comm_peer_name(f->team->comm, rank), why);
}

static void refuse_writer(const TeamFill *f, int rank)
{
    warn_of_writer(f, rank, status_message());
    team_tell(f->team, (TeamEvent){.kind = TEAM_REFUSED, .rank = rank});
}

/* The parts of the others. Leaves out each member without one. */
static Status gather_parts(const TeamFill *f, const TrainingState *t, int writers, WrittenParts *parts)
{
    int missing = 0;
    TeamAction a;
    team_tell(f->team, (TeamEvent){.kind = TEAM_WROTE, .rank = f->team->state.rank});
    for (bool gathered = false; !gathered && team_next(f->team, &a); free(a.data)) {
        gathered = a.kind == TEAM_GATHERED;
        bool wrong = a.kind == TEAM_TAKE && take_answer(t, a.rank, a.data, a.size, parts) != OK;
        if (wrong) refuse_writer(f, a.rank);
        if (a.kind == TEAM_DROP) warn_of_writer(f, a.rank, a.why);
        missing += wrong || a.kind == TEAM_DROP;
    }
    return missing ? fail(E_PEER, "%d of %d ranks did not write their parts", missing, writers) : OK;
}

/* Reads what all wrote. Leaves out each member whose bytes are others. */
static Status check_parts(const TeamFill *f, const TrainingState *t, const WrittenParts *p, CheckpointFilled *filled)
{
    bool *wrong = mem_array((size_t)p->count, sizeof *wrong), others = false;
    Status status = checkpoint_check_parts(f->source.out, t, (const Intervals *const *)p->parts, p->digests, p->count,
                                           wrong, filled);
    for (int i = 0; i < p->count; i++) {
        if (!wrong[i] || p->ranks[i] == f->team->state.rank) continue;
        refuse_writer(f, p->ranks[i]);
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
    int me = team->state.rank;
    Status status = OK;
    Buf text = {0}, own = {0};
    TeamSource mine = *s;
    WrittenParts parts = written_parts_new(team->state.size);
    mine.sets = t->kfac;
    int32_t *ranks = mem_array((size_t)team->state.size, sizeof *ranks);
    int writers = choose_writers(f, ranks);
    SavePlan plan = {s->n_plan, s->place, writers};
    buf_append(&text, &plan, sizeof plan);
    if (s->n_plan) buf_append(&text, s->plan, (size_t)s->n_plan * sizeof *s->plan);
    buf_append(&text, ranks, (size_t)writers * sizeof *ranks);
    team_tell(team, (TeamEvent){.kind = TEAM_PLANNED,
                                .step = t->step,
                                .data = text.data,
                                .size = text.len,
                                .writers = ranks,
                                .n_writers = writers});
    test_at("planned", me);
    TRY_DONE(write_mine(&mine, t->step, me, 0, writers, &own));
    TRY_DONE(take_answer(t, me, own.data, own.len, &parts));
    TRY_DONE(gather_parts(f, t, writers, &parts));
    TRY_DONE(check_parts(f, t, &parts, filled));
    team->writers = writers;
    test_at("filled", me);
done:
    written_parts_free(&parts);
    BUF_FREE(&text, &own);
    free(ranks);
    return status;
}
