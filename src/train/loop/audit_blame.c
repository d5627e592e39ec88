/* Blames ranks by the findings of all ranks. */
#include "train/loop/audit.h"

#include <limits.h>

typedef struct {
    const AuditFinding *history; // (attempts, ranks)
    int attempts, ranks;
} Case;

static const AuditFinding *finding(const Case *c, int attempt, int rank)
{
    return &c->history[(size_t)attempt * (size_t)c->ranks + (size_t)rank];
}

/* The rank that computed the share of `rank` beside its own; −1: none. */
static int partner_of(const Case *c, int attempt, int rank)
{
    for (int q = 0; q < c->ranks; q++)
        if (finding(c, attempt, q)->partner == rank) return q;
    return -1;
}

/* Whether a rank computed this digest from a share in an attempt. */
static bool computed(const Case *c, int attempt, int rank, int share, uint64_t digest)
{
    const AuditFinding *f = finding(c, attempt, rank);
    if (f->partner < 0 || finding(c, attempt, share)->follows) return false;
    return (rank == share && f->own == digest) || (f->partner == share && f->other == digest);
}

/* How far a share's digest is trusted: by the number of ranks that computed it, then by how often they did. */
static int trust(const Case *c, int share, uint64_t digest)
{
    int ranks = 0, times = 0;
    for (int r = 0; r < c->ranks; r++) {
        int before = times;
        for (int a = 0; a < c->attempts; a++) times += computed(c, a, r, share, digest);
        ranks += times > before;
    }
    return times > 1 ? ranks * (AUDIT_ATTEMPTS + 1) + times : 0;
}

/* The digest of the share that is trusted more than any other. False: there is none. */
static bool truth(const Case *c, int share, uint64_t *digest)
{
    int most = 0;
    bool only = false;
    *digest = 0;
    for (int a = 0; a < c->attempts; a++) {
        int q = partner_of(c, a, share);
        if (q < 0 || finding(c, a, share)->follows) continue;
        const uint64_t values[] = {finding(c, a, share)->own, finding(c, a, q)->other};
        for (int i = 0; i < 2; i++) {
            int n = trust(c, share, values[i]);
            if (n == 0 || n < most || (n == most && values[i] == *digest)) continue;
            only = n > most;
            most = n;
            *digest = values[i];
        }
    }
    return only;
}

/* One computation of `share`, whose digest was `value`, by a rank. */
static void judge_value(const Case *c, int attempt, int share, uint64_t value, AuditBlame *b)
{
    int q = partner_of(c, attempt, share);
    uint64_t right = 0;
    if (q < 0 || finding(c, attempt, share)->own == finding(c, attempt, q)->other) return;
    if (finding(c, attempt, share)->follows) return;
    if (q == share)
        b->wrong = true;
    else if (truth(c, share, &right))
        b->wrong |= value != right;
    else
        b->suspect = true;
}

static AuditBlame judge(const Case *c, int attempt, int rank)
{
    const AuditFinding *f = finding(c, attempt, rank);
    AuditBlame b = {.recomputed = f->recomputed.rows > 0};
    if (f->partner < 0) return b;
    judge_value(c, attempt, rank, f->own, &b);
    judge_value(c, attempt, (int)f->partner, f->other, &b);
    return b;
}

/* All ranks compute a step twice, or none. */
static bool is_apart(const Case *c, int attempt, int rank)
{
    const AuditFinding *f = finding(c, attempt, rank);
    int same = 0, all = 0;
    for (int r = 0; r < c->ranks; r++) {
        const AuditFinding *other = finding(c, attempt, r);
        all += other->part == f->part;
        same += other->part == f->part && other->weights == f->weights;
    }
    return f->partner >= 0 && 2 * same <= all && same < all;
}

static bool same_tensor(const AuditFinding *x, const AuditFinding *y)
{
    return x->recomputed.tensor == y->recomputed.tensor && x->chunk == y->chunk;
}

void audit_blame(const AuditFinding *history, int attempts, int ranks, AuditBlame *blame)
{
    const Case c = {history, attempts, ranks};
    int last = attempts - 1;
    for (int r = 0; r < ranks; r++) {
        AuditBlame *b = &blame[r];
        *b = judge(&c, last, r);
        b->changed = finding(&c, last, r)->changed.rows > 0;
        b->apart = is_apart(&c, last, r);
        for (int a = 0; a < last; a++) {
            AuditBlame before = judge(&c, a, r);
            b->excluded |= b->wrong && before.wrong;
            b->excluded |= b->recomputed && before.recomputed && same_tensor(finding(&c, a, r), finding(&c, last, r));
        }
        if (attempts == AUDIT_ATTEMPTS) b->excluded |= b->recomputed || b->wrong || b->suspect;
    }
}

/* ---- places ---- */

/* A micro-batch goes down the stages and back up: the number of the boundary that a stage sends. */
static int boundary_number(const Grid *g, int stage, bool forward)
{
    return forward ? stage : 2 * g->stages - 1 - stage;
}

/* What pipeline `own` sent for its share, against what `other` sent for the same. */
static void follow_share(const Grid *g, const uint64_t *sent, int own, int other, AuditFinding *now)
{
    int first[2] = {INT_MAX, INT_MAX}, accused[2] = {-1, -1}, n = 2 * g->shape.chunks;
    for (int place = 0; place < g->shape.places; place++)
        for (int i = 0; i < n; i++) {
            const uint64_t *x = sent + (place * g->replicas + own) * 2 * n,
                           *y = sent + (place * g->replicas + other) * 2 * n + n;
            int direction = g->directions > 1 ? i / 2 : 0;
            int at = boundary_number(g, pipeline_stage(&g->shape, place, i / 2), i % 2);
            if (x[i] == y[i] || at >= first[direction]) continue;
            first[direction] = at;
            accused[direction] = place;
        }
    for (int place = 0; place < g->shape.places && (accused[0] >= 0 || accused[1] >= 0); place++)
        now[place * g->replicas + own].follows = place != accused[0] && place != accused[1];
}

void audit_follow(const Grid *g, const uint64_t *sent, AuditFinding *now)
{
    for (int other = 0; other < g->replicas; other++)
        follow_share(g, sent, (int)now[other].partner % g->replicas, other, now);
}
