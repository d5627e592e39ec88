/* The collectives on bytes, made of exchanges between pairs. */

#include "base/test_switch.h"
#include "comm/mesh/comm_internal.h"

double comm_patience(const Comm *c) { return test_seconds("PATIENCE", c->peer_timeout_s * 20); }

Status comm_fail_lost(const Comm *c, const char *what, const Loss *l)
{
    char by[320] = "", seconds[48] = "";
    const CommGroup *g = c->group;
    if (l->by != g->rank) snprintf(by, sizeof by, "; noticed by %s", g->names[l->by]);
    if (l->seconds > 0) snprintf(seconds, sizeof seconds, " (for %.1f s)", l->seconds);
    return fail(E_PEER, "%s: lost %s%s: it %s%s%s", what, l->rank == g->rank ? "this one, " : "", g->names[l->rank],
                loss_text(l->reason), seconds, by);
}

/* Finds the lost rank after a failed exchange: the verdict of the watch, else a rank that left in order, else the rank
   that this one waited for. */
static Status fail_exchange(Comm *c, const char *what, int peer, double begin)
{
    Watch *watch = c->group->watch;
    double now = clock_monotonic(), patience = comm_patience(c);
    bool late = now - begin >= 0.99 * patience, known = false, unknown = peer < 0;
    char *said = mem_strdup(status_message());
    int laggard = watch_laggard(watch), left = -1;
    Loss loss;
    c->dead = true;
    if (c->members) laggard = -1; /* ranks of other groups exchange more, or less */
    if (peer < 0) peer = (c->rank + 1) % c->size;
    while (!known && left < 0 && clock_monotonic() < now + 2 && !late) {
        known = watch_verdict(watch, 0.05, &loss);
        left = watch_left(watch, 0);
    }
    if (!known && left >= 0) {
        loss = watch_report(watch, left, LOSS_LEFT, 0);
    } else if (!known) {
        if (laggard < 0 || !(late || unknown)) laggard = comm_world_rank(c, peer);
        loss = watch_report(watch, laggard, late ? LOSS_LATE : LOSS_BROKEN, late ? now - begin : 0);
    }
    Status status = comm_fail_lost(c, what, &loss);
    log_debug("%s: %s", status_message(), said);
    free(said);
    return status;
}

Status comm_check(const Comm *c, const char *what)
{
    Loss loss;
    return watch_verdict(c->group->watch, 0, &loss) ? comm_fail_lost(c, what, &loss) : OK;
}

static Status check_alive(Comm *c, const char *what)
{
    Status status = comm_check(c, what);
    if (status == OK && c->dead) return fail(E_PEER, "%s: the connection between the ranks is lost", what);
    c->dead = status != OK;
    return status;
}

/* Runs an exchange. On failure the Comm is dead, and the message of E_PEER names rank and host. */
static Status run_exchange(Comm *c, const GlooMessage *messages, int n, const char *what)
{
    int peer = -1;
    if (c->size == 1) return OK;
    TRY(check_alive(c, what));
    if (!c->members) watch_advance(c->group->watch);
    double begin = clock_monotonic();
    if (gloo_exchange(c, messages, n, comm_patience(c), &peer) == OK) return OK;
    return fail_exchange(c, what, peer, begin);
}

/* Ordered by distance, so that ranks do not all begin with the same peer. */
static int rank_above(const Comm *c, int distance) { return (c->rank + distance) % c->size; }
static int rank_below(const Comm *c, int distance) { return (c->rank - distance + c->size) % c->size; }

/* A dissemination barrier: ⌈log2 size⌉ rounds. */
Status comm_barrier(Comm *c)
{
    char mine = 1, theirs;
    for (int distance = 1; distance < c->size; distance *= 2) {
        const GlooMessage m[] = {{rank_below(c, distance), false, &theirs, 1},
                                 {rank_above(c, distance), true, &mine, 1}};
        TRY(run_exchange(c, m, 2, "barrier"));
    }
    return OK;
}

/* A binomial tree; ranks count from the root. */
Status comm_broadcast(Comm *c, void *data, size_t bytes, int root)
{
    int place = (c->rank - root + c->size) % c->size, bit = 1;
    for (; bit < c->size; bit *= 2) {
        if (!(place & bit)) continue;
        const GlooMessage m = {(place - bit + root) % c->size, false, data, bytes};
        TRY(run_exchange(c, &m, 1, "broadcast"));
        break;
    }
    for (bit /= 2; bit >= 1; bit /= 2) {
        if (place + bit >= c->size) continue;
        const GlooMessage m = {(place + bit + root) % c->size, true, data, bytes};
        TRY(run_exchange(c, &m, 1, "broadcast"));
    }
    return OK;
}

/* Part r of `send` goes to rank r, part r of `receive` comes from it. `send_bytes` NULL: the same bytes go to all. */
static Status all_to_all(Comm *c, const char *send, const size_t *send_bytes, size_t same_bytes, char *receive,
                         const size_t *receive_bytes, const char *what)
{
    GlooMessage *m = mem_array((size_t)c->size * 2, sizeof *m);
    char **from = mem_array((size_t)c->size, sizeof *from), **to = mem_array((size_t)c->size, sizeof *to);
    int n = 0;
    for (int r = 0; r < c->size; r++) {
        to[r] = (char *)send; /* read only */
        from[r] = receive;
        receive += receive_bytes ? receive_bytes[r] : same_bytes;
        if (send_bytes) send += send_bytes[r];
    }
    for (int d = 1; d < c->size; d++) {
        int r = rank_below(c, d);
        m[n++] = (GlooMessage){r, false, from[r], receive_bytes ? receive_bytes[r] : same_bytes};
    }
    for (int d = 1; d < c->size; d++) {
        int r = rank_above(c, d);
        m[n++] = (GlooMessage){r, true, to[r], send_bytes ? send_bytes[r] : same_bytes};
    }
    size_t own = send_bytes ? send_bytes[c->rank] : same_bytes;
    if (own && to[c->rank] != from[c->rank]) memcpy(from[c->rank], to[c->rank], own);
    Status status = run_exchange(c, m, n, what);
    MEM_FREE(m, from, to);
    return status;
}

Status comm_allgather(Comm *c, const void *mine, size_t bytes, void *all)
{
    return all_to_all(c, mine, NULL, bytes, all, NULL, "allgather");
}

Status comm_allgatherv(Comm *c, void *all, const size_t *bytes)
{
    char *mine = all;
    for (int r = 0; r < c->rank; r++) mine += bytes[r];
    return all_to_all(c, mine, NULL, bytes[c->rank], all, bytes, "allgather");
}

Status comm_alltoallv(Comm *c, const void *send, const size_t *send_bytes, void *receive, const size_t *receive_bytes)
{
    CHECK(send_bytes[c->rank] == receive_bytes[c->rank], "%zu bytes to oneself, %zu from oneself", send_bytes[c->rank],
          receive_bytes[c->rank]);
    return all_to_all(c, send, send_bytes, 0, receive, receive_bytes, "alltoall");
}

Status comm_send(Comm *c, int to, const void *data, size_t bytes)
{
    const GlooMessage m = {to, true, (void *)data, bytes};
    CHECK(to != c->rank && to >= 0 && to < c->size, "to rank %d", to);
    return run_exchange(c, &m, 1, "send");
}

Status comm_receive(Comm *c, int from, void *data, size_t bytes)
{
    const GlooMessage m = {from, false, data, bytes};
    CHECK(from != c->rank && from >= 0 && from < c->size, "from rank %d", from);
    return run_exchange(c, &m, 1, "receive");
}

/* ---- messages in the background ---- */

struct CommTicket {
    void *gloo;
    int peer;
};

Status comm_post(Comm *c, int peer, uint32_t tag, bool send, void *data, size_t bytes, CommTicket **ticket)
{
    const GlooMessage m = {peer, send, data, bytes};
    const char *what = send ? "sending" : "receiving";
    void *gloo;
    *ticket = NULL;
    CHECK(peer != c->rank && peer >= 0 && peer < c->size, "rank %d", peer);
    if (bytes == 0) return OK;
    TRY(check_alive(c, what));
    double begin = clock_monotonic();
    if (gloo_post(c, &m, (uint64_t)tag + 1, &gloo) != OK) return fail_exchange(c, what, peer, begin); /* 0: exchanges */
    *ticket = mem_alloc(sizeof **ticket);
    **ticket = (CommTicket){gloo, peer};
    return OK;
}

Status comm_wait(Comm *c, CommTicket *t, const char *what)
{
    if (!t) return OK;
    double begin = clock_monotonic();
    const CommTicket ticket = *t;
    free(t);
    if (gloo_wait(c, ticket.gloo, comm_patience(c)) == OK) return OK;
    if (c->dead) return check_alive(c, what);
    return fail_exchange(c, what, ticket.peer, begin);
}

static Hash128 rank_proof(const Comm *c, int from, int to, int copy)
{
    const int32_t text[3] = {comm_world_rank(c, from), comm_world_rank(c, to), copy};
    return siphash(c->group->cards[0].nonce, text, sizeof text);
}

Status comm_prove(Comm *c, int copy)
{
    size_t n = (size_t)c->size;
    Hash128 *mine = mem_array(n, sizeof *mine), *theirs = mem_array(n, sizeof *theirs);
    size_t *bytes = mem_array(n, sizeof *bytes);
    for (int r = 0; r < c->size; r++) {
        mine[r] = rank_proof(c, c->rank, r, copy);
        bytes[r] = sizeof *mine;
    }
    Status status = comm_alltoallv(c, mine, bytes, theirs, bytes);
    for (int r = 0; r < c->size && status == OK; r++)
        if (!hash128_equal(theirs[r], rank_proof(c, r, c->rank, copy)))
            status = fail(E_PEER, "a stranger connected in place of %s: something on the network connects to our ports",
                          comm_peer_name(c, r));
    if (status != OK) c->dead = true;
    MEM_FREE(mine, theirs, bytes);
    return status;
}

/* ---- small sums, and agreement ---- */

Status comm_sum(Comm *c, double *values, int count)
{
    size_t n = (size_t)c->size, *bytes = mem_array(n, sizeof *bytes);
    int total = 0, before = 0, own = comm_branches(c->tree.terms, c->size, c->rank), n_additions;
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank) before = total;
        int branches = comm_branches(c->tree.terms, c->size, r);
        bytes[r] = (size_t)(branches * count) * sizeof *values;
        total += branches;
    }
    double *all = mem_array((size_t)(total * count), sizeof *all);
    memcpy(all + (before + own - 1) * count, values, (size_t)count * sizeof *values);
    memcpy(all + before * count, values + count, (size_t)((own - 1) * count) * sizeof *values);
    Status status = comm_allgatherv(c, all, bytes);
    CommAddition *additions = comm_tree_additions(c->tree.terms, c->size, &n_additions);
    for (int k = 0; k < n_additions && status == OK; k++)
        for (int i = 0; i < count; i++) all[additions[k].to * count + i] += all[additions[k].from * count + i];
    if (status == OK) memcpy(values, all, (size_t)count * sizeof *values);
    MEM_FREE(additions, bytes, all);
    return status;
}

Status comm_gather(Comm *c, const void *mine, size_t own, char **all, size_t *bytes)
{
    size_t total = 0, before = 0;
    *all = NULL;
    TRY(comm_allgather(c, &own, sizeof own, bytes));
    for (int r = 0; r < c->size; r++) {
        if (r < c->rank) before += bytes[r];
        total += bytes[r];
    }
    *all = mem_alloc(total + 1);
    if (own) memcpy(*all + before, mine, own);
    return total ? comm_allgatherv(c, *all, bytes) : OK;
}

/* A rank's facts that were not yet compared: name and value of each, NUL-terminated. */
typedef struct {
    const char *at, *end;
} Facts;

static const char *fact_value(Facts f) { return f.at < f.end ? f.at + strlen(f.at) + 1 : ""; }

static bool same_fact(Facts a, Facts b)
{
    if (a.at >= a.end || b.at >= b.end) return a.at >= a.end && b.at >= b.end;
    return strcmp(a.at, b.at) == 0 && strcmp(fact_value(a), fact_value(b)) == 0;
}

/* Appends the ranks whose fact equals rank r's, and that fact: "rank 0, 2 have 'x'". */
static void list_same(const Facts *facts, int size, int r, Buf *out)
{
    int shown = 0;
    for (int q = 0; q < r; q++)
        if (same_fact(facts[q], facts[r])) return; /* listed with rank q */
    buf_printf(out, "%srank ", out->len ? "; " : "");
    for (int q = r; q < size; q++)
        if (same_fact(facts[q], facts[r]) && shown++ < 8) buf_printf(out, "%s%d", shown > 1 ? ", " : "", q);
    if (shown > 8) buf_printf(out, " and %d more", shown - 8);
    buf_printf(out, " %s '%.200s'", shown > 1 ? "have" : "has", fact_value(facts[r]));
}

/* Compares the next fact of all ranks until they have no more. */
static Status compare_facts(Facts *facts, int size)
{
    for (;;) {
        const char *name = NULL;
        bool same = true;
        for (int r = size - 1; r >= 0; r--) {
            if (facts[r].at < facts[r].end) name = facts[r].at;
            same = same && same_fact(facts[0], facts[r]);
        }
        if (!name) return OK;
        if (!same) {
            Buf b = {0};
            for (int r = 0; r < size; r++) list_same(facts, size, r, &b);
            Status status = fail(E_USAGE, "the ranks do not agree on %s: %s. Start all of them with the same options",
                                 name, b.data);
            buf_free(&b);
            return status;
        }
        for (int r = 0; r < size; r++) facts[r].at = fact_value(facts[r]) + strlen(fact_value(facts[r])) + 1;
    }
}

Status comm_agree(Comm *c, const CommFact *facts, int n)
{
    Buf mine = {0};
    char *all = NULL;
    size_t *lengths = mem_array((size_t)c->size, sizeof *lengths);
    Facts *rest = mem_array((size_t)c->size, sizeof *rest);
    for (int i = 0; i < n; i++) {
        buf_append(&mine, facts[i].name, strlen(facts[i].name) + 1);
        buf_append(&mine, facts[i].value, strlen(facts[i].value) + 1);
    }
    Status status = comm_gather(c, mine.data, mine.len, &all, lengths);
    const char *at = all;
    for (int r = 0; r < c->size && status == OK; r++) {
        rest[r] = (Facts){at, at + lengths[r]};
        at += lengths[r];
    }
    if (status == OK) status = compare_facts(rest, c->size);
    MEM_FREE(lengths, rest, all);
    buf_free(&mine);
    return status;
}
