/* The collectives on bytes, made of exchanges between pairs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_internal.h"

Status comm_tell_loss(const Comm *c, const char *what, const Loss *l)
{
    char by[320] = "", seconds[48] = "";
    if (l->by != c->rank) snprintf(by, sizeof by, "; noticed by %s", comm_peer_name(c, l->by));
    if (l->seconds > 0) snprintf(seconds, sizeof seconds, " (for %.1f s)", l->seconds);
    return fail(E_PEER, "%s: lost %s%s: it %s%s%s", what, l->rank == c->rank ? "this one, " : "",
                comm_peer_name(c, l->rank), loss_text(l->reason), seconds, by);
}

/* After a failed exchange. The watch knows the cause, or will soon; else a rank that has left is at fault, or the rank
   that was waited for. */
static Status blame(Comm *c, const char *what, int peer, double begin)
{
    Watch *watch = c->group->watch;
    double now = clock_monotonic(), patience = c->peer_timeout_s * COMM_PATIENCE;
    bool late = now - begin >= 0.99 * patience, known = false;
    char *said = mem_strdup(status_message());
    int laggard = watch_laggard(watch), left = -1;
    Loss loss;
    c->dead = true;
    while (!known && left < 0 && clock_monotonic() < now + 2 && !late) {
        known = watch_verdict(watch, 0.05, &loss);
        left = watch_left(watch);
    }
    if (!known && left >= 0) {
        watch_report(watch, left, LOSS_LEFT, 0);
    } else if (!known) {
        if (laggard >= 0 && (late || peer < 0)) peer = laggard;
        if (peer < 0) peer = (c->rank + 1) % c->size;
        watch_report(watch, peer, late ? LOSS_LATE : LOSS_BROKEN, late ? now - begin : 0);
    }
    watch_verdict(watch, 0, &loss);
    Status status = comm_tell_loss(c, what, &loss);
    log_debug("%s: %s", status_message(), said);
    free(said);
    return status;
}

/* Runs an exchange. A failure makes the Comm dead and returns E_PEER, naming rank and host. */
static Status run_exchange(Comm *c, const CommMessage *messages, int n, const char *what)
{
    int peer = -1;
    Loss loss;
    if (c->size == 1) return OK;
    if (watch_verdict(c->group->watch, 0, &loss)) {
        c->dead = true;
        return comm_tell_loss(c, what, &loss);
    }
    if (c->dead) return fail(E_PEER, "%s: the connection between the ranks is lost", what);
    watch_advance(c->group->watch);
    double begin = clock_monotonic();
    if (c->transport->exchange(c->self, messages, n, c->peer_timeout_s * COMM_PATIENCE, &peer) == OK) return OK;
    return blame(c, what, peer, begin);
}

/* Ordered by distance, so that ranks do not all begin with the same peer. */
static int upward(const Comm *c, int distance) { return (c->rank + distance) % c->size; }
static int downward(const Comm *c, int distance) { return (c->rank - distance + c->size) % c->size; }

/* In ⌈log2 size⌉ rounds every rank hears of all others, directly or through a peer. */
Status comm_barrier(Comm *c)
{
    char mine = 1, theirs;
    for (int distance = 1; distance < c->size; distance *= 2) {
        const CommMessage m[] = {{downward(c, distance), false, &theirs, 1}, {upward(c, distance), true, &mine, 1}};
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
        const CommMessage m = {(place - bit + root) % c->size, false, data, bytes};
        TRY(run_exchange(c, &m, 1, "broadcast"));
        break;
    }
    for (bit /= 2; bit >= 1; bit /= 2) {
        if (place + bit >= c->size) continue;
        const CommMessage m = {(place + bit + root) % c->size, true, data, bytes};
        TRY(run_exchange(c, &m, 1, "broadcast"));
    }
    return OK;
}

/* Part r of `send` goes to rank r, part r of `receive` comes from it. `send_bytes` NULL: the same bytes go to all. */
static Status all_to_all(Comm *c, const char *send, const size_t *send_bytes, size_t same_bytes, char *receive,
                         const size_t *receive_bytes, const char *what)
{
    CommMessage *m = mem_array((size_t)c->size * 2, sizeof *m);
    char **from = mem_array((size_t)c->size, sizeof *from), **to = mem_array((size_t)c->size, sizeof *to);
    int n = 0;
    for (int r = 0; r < c->size; r++) {
        to[r] = (char *)send; /* read only */
        from[r] = receive;
        receive += receive_bytes ? receive_bytes[r] : same_bytes;
        if (send_bytes) send += send_bytes[r];
    }
    for (int d = 1; d < c->size; d++) {
        int r = downward(c, d);
        m[n++] = (CommMessage){r, false, from[r], receive_bytes ? receive_bytes[r] : same_bytes};
    }
    for (int d = 1; d < c->size; d++) {
        int r = upward(c, d);
        m[n++] = (CommMessage){r, true, to[r], send_bytes ? send_bytes[r] : same_bytes};
    }
    size_t own = send_bytes ? send_bytes[c->rank] : same_bytes;
    if (own && to[c->rank] != from[c->rank]) memcpy(from[c->rank], to[c->rank], own);
    Status status = run_exchange(c, m, n, what);
    free(m);
    free(from);
    free(to);
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
    const CommMessage m = {to, true, (void *)data, bytes};
    CHECK(to != c->rank && to >= 0 && to < c->size, "to rank %d", to);
    return run_exchange(c, &m, 1, "send");
}

Status comm_receive(Comm *c, int from, void *data, size_t bytes)
{
    const CommMessage m = {from, false, data, bytes};
    CHECK(from != c->rank && from >= 0 && from < c->size, "from rank %d", from);
    return run_exchange(c, &m, 1, "receive");
}

static Hash128 proof_of(const Comm *c, int from, int to, int copy)
{
    const int32_t text[3] = {from, to, copy};
    return siphash(c->group->secret, text, sizeof text);
}

Status comm_prove(Comm *c, int copy)
{
    size_t n = (size_t)c->size;
    Hash128 *mine = mem_array(n, sizeof *mine), *theirs = mem_array(n, sizeof *theirs);
    size_t *bytes = mem_array(n, sizeof *bytes);
    for (int r = 0; r < c->size; r++) {
        mine[r] = proof_of(c, c->rank, r, copy);
        bytes[r] = sizeof *mine;
    }
    Status status = comm_alltoallv(c, mine, bytes, theirs, bytes);
    for (int r = 0; r < c->size && status == OK; r++)
        if (!hash128_equal(theirs[r], proof_of(c, r, c->rank, copy)))
            status = fail(E_PEER, "a stranger connected in place of %s: something on the network connects to our ports",
                          comm_peer_name(c, r));
    if (status != OK) c->dead = true;
    free(mine);
    free(theirs);
    free(bytes);
    return status;
}

/* ---- small sums, and agreement ---- */

Status comm_sum(Comm *c, double *values, int count)
{
    double *all = mem_array((size_t)count * (size_t)c->size, sizeof *all);
    Status status = comm_allgather(c, values, (size_t)count * sizeof *values, all);
    for (int i = 0; i < count && status == OK; i++) {
        double sum = all[i];
        for (int r = 1; r < c->size; r++) sum += all[r * count + i];
        values[i] = sum;
    }
    free(all);
    return status;
}

/* Gathers every rank's text, NUL-terminated; `lengths` (size) exclude the NUL. The caller frees both. */
static Status gather_texts(Comm *c, const Buf *mine, char **all, size_t **lengths)
{
    size_t n = (size_t)c->size, own = mine->len, total = 0, before = 0;
    *lengths = mem_array(n, sizeof **lengths);
    *all = NULL;
    TRY(comm_allgather(c, &own, sizeof own, *lengths));
    for (size_t r = 0; r < n; r++) {
        if (r < (size_t)c->rank) before += (*lengths)[r];
        total += (*lengths)[r];
    }
    *all = mem_alloc(total + 1);
    if (own) memcpy(*all + before, mine->data, own);
    return comm_allgatherv(c, *all, *lengths);
}

/* Fact i of a rank's text: name and value, each NUL-terminated. NULL: there are fewer. */
static const char *fact_at(const char *text, size_t len, int i, const char **value)
{
    const char *end = text + len;
    *value = "";
    for (;; i--) {
        const char *name = text;
        if (text >= end) return NULL;
        *value = name + strlen(name) + 1;
        text = *value + strlen(*value) + 1;
        if (i == 0) return name;
    }
}

/* Writes "0, 2": the ranks from `r` on whose fact i equals r's, and marks them. */
static void same_as(const Comm *c, const char **texts, const size_t *lengths, int i, int r, bool *seen, Buf *out)
{
    const char *value, *other;
    int shown = 0;
    const char *name = fact_at(texts[r], lengths[r], i, &value);
    for (int q = r; q < c->size; q++) {
        const char *name_q = fact_at(texts[q], lengths[q], i, &other);
        bool same = name && name_q ? strcmp(name, name_q) == 0 && strcmp(value, other) == 0 : name == name_q;
        if (!same || seen[q]) continue;
        seen[q] = true;
        if (shown++ < 8) buf_printf(out, "%s%d", shown > 1 ? ", " : "", q);
    }
    if (shown > 8) buf_printf(out, " and %d more", shown - 8);
    buf_printf(out, " %s '%.200s'", shown > 1 ? "have" : "has", name ? value : "");
}

static Status compare(const Comm *c, const char **texts, const size_t *lengths)
{
    const char *name, *value, *name_r, *value_r;
    for (int i = 0;; i++) {
        name = fact_at(texts[0], lengths[0], i, &value);
        bool same = true, any = name != NULL;
        for (int r = 1; r < c->size; r++) {
            name_r = fact_at(texts[r], lengths[r], i, &value_r);
            any = any || name_r;
            same = same && (name && name_r ? strcmp(name, name_r) == 0 && strcmp(value, value_r) == 0 : name == name_r);
            if (!name && name_r) name = name_r;
            if (!same) break;
        }
        if (!any) return OK;
        if (same) continue;
        Buf b = {0};
        bool *seen = mem_array((size_t)c->size, sizeof *seen);
        for (int r = 0; r < c->size; r++) {
            if (seen[r]) continue;
            buf_printf(&b, "%srank ", b.len ? "; " : "");
            same_as(c, texts, lengths, i, r, seen, &b);
        }
        Status status =
            fail(E_USAGE, "the ranks do not agree on %s: %s. Start all of them with the same options", name, b.data);
        free(seen);
        buf_free(&b);
        return status;
    }
}

Status comm_agree(Comm *c, const CommFact *facts, int n)
{
    Buf mine = {0};
    char *all = NULL;
    size_t *lengths = NULL;
    for (int i = 0; i < n; i++) {
        buf_append(&mine, facts[i].name, strlen(facts[i].name) + 1);
        buf_append(&mine, facts[i].value, strlen(facts[i].value) + 1);
    }
    Status status = gather_texts(c, &mine, &all, &lengths);
    if (status == OK) {
        const char **texts = mem_array((size_t)c->size, sizeof *texts), *at = all;
        for (int r = 0; r < c->size; r++) {
            texts[r] = at;
            at += lengths[r];
        }
        status = compare(c, texts, lengths);
        free(texts);
    }
    free(lengths);
    free(all);
    buf_free(&mine);
    return status;
}
