#include "comm/meet/rendezvous_wire.h"

#include "base/test_switch.h"

#define GREETING_S 5.0 /* from connecting to the proof */

Hash128 rendezvous_proof(Hash128 key, char side, const RendezvousHello *h)
{
    uint8_t text[48] = {(uint8_t)side};
    memcpy(text + 1, h->client.bytes, 16);
    memcpy(text + 17, h->server.bytes, 16);
    bytes_put(text + 33, (uint32_t)h->rank, 4);
    bytes_put(text + 37, (uint32_t)h->size, 4);
    return siphash(key, text, sizeof text);
}

/* ---- rounds ---- */

RendezvousRounds rendezvous_rounds(Hash128 key, int size)
{
    return (RendezvousRounds){.key = key,
                              .size = size,
                              .here = mem_array((size_t)size, sizeof(bool)),
                              .came = mem_array((size_t)size, sizeof(bool)),
                              .until = INFINITY};
}

void rendezvous_rounds_free(RendezvousRounds *t)
{
    BUF_FREE(&t->said, &t->answer);
    MEM_FREE(t->here, t->came);
}

/* Ends the round: with what all said, or with what the caller has put into `answer`. */
static void end_round(RendezvousRounds *t, bool failed)
{
    if (!failed) {
        buf_free(&t->answer);
        t->answer = t->said;
        t->said = (Buf){0};
    }
    t->failed = failed;
    t->round++;
    t->n_came = 0;
    memset(t->came, 0, (size_t)t->size * sizeof *t->came);
    t->until = INFINITY;
}

void rendezvous_tick(RendezvousRounds *t, double now)
{
    if (now < t->until) return;
    const char *between = "";
    buf_free(&t->answer);
    buf_printf(&t->answer, "after %.0f s, of %d ranks these did not come: ", now - t->begun, t->size);
    for (int r = 0; r < t->size; r++) {
        if (t->came[r]) continue;
        buf_printf(&t->answer, "%s%d", between, r);
        between = ", ";
    }
    end_round(t, true);
}

/* Takes what a rank says in this round. */
static void take_said(RendezvousRounds *t, int rank, const void *data, size_t bytes, double wait_s, double now)
{
    if (t->n_came == 0) {
        t->bytes = bytes;
        t->begun = now;
        buf_free(&t->said);
        for (int r = 0; r < t->size && bytes; r++) buf_append(&t->said, data, bytes); /* their places */
    } else if (bytes != t->bytes) {
        buf_free(&t->answer);
        buf_printf(&t->answer, "rank %d says %zu bytes where others say %zu: it runs another build of Cairn", rank,
                   bytes, t->bytes);
        end_round(t, true);
        return;
    }
    if (bytes) memcpy(t->said.data + (size_t)rank * bytes, data, bytes);
    t->n_came += !t->came[rank];
    t->came[rank] = true;
    t->until = fmin(t->until, now + wait_s);
    if (t->n_came == t->size) end_round(t, false);
}

/* ---- sessions ---- */

void rendezvous_session(RendezvousSession *s, RendezvousRounds *t, double now)
{
    *s = (RendezvousSession){.rounds = t, .round = -1, .until = now + test_seconds("GREETING", GREETING_S)};
    hash128_random(&s->hello.server);
}

void rendezvous_session_end(RendezvousSession *s)
{
    if (s->registered) s->rounds->here[s->hello.rank] = false;
    BUF_FREE(&s->in, &s->out);
    *s = (RendezvousSession){.state = SESSION_ENDING};
}

static void consume(RendezvousSession *s, size_t n)
{
    memmove(s->in.data, s->in.data + n, s->in.len - n);
    s->in.len -= n;
}

/* Answers a greeting with a greeting, and anything else with the end. */
static void read_greeting(RendezvousSession *s)
{
    const uint8_t *in = (const uint8_t *)s->in.data;
    size_t known = sizeof RENDEZVOUS_GREETING - 1, have = s->in.len < known ? s->in.len : known;
    if (memcmp(in, RENDEZVOUS_GREETING, have) != 0) {
        s->state = SESSION_ENDING;
        return;
    }
    if (s->in.len < GREETING_BYTES) return;
    memcpy(s->hello.client.bytes, in + known, 16);
    consume(s, GREETING_BYTES);
    buf_append(&s->out, RENDEZVOUS_GREETING, known);
    buf_append(&s->out, s->hello.server.bytes, 16);
    s->state = SESSION_PROOF;
}

static void send_verdict(RendezvousSession *s, const char *refusal)
{
    uint8_t head[VERDICT_BYTES] = {refusal ? 1 : 0};
    Hash128 h = rendezvous_proof(s->rounds->key, 's', &s->hello);
    memcpy(head + 1, h.bytes, 16);
    bytes_put(head + 17, refusal ? strlen(refusal) : 0, 2);
    buf_append(&s->out, head, sizeof head);
    if (refusal) buf_puts(&s->out, refusal);
    s->state = refusal ? SESSION_ENDING : SESSION_OPEN;
}

static void read_proof(RendezvousSession *s)
{
    Hash128 given;
    char text[128];
    const uint8_t *in = (const uint8_t *)s->in.data;
    RendezvousRounds *t = s->rounds;
    if (s->in.len < PROOF_BYTES) return;
    memcpy(given.bytes, in, 16);
    s->hello.rank = (int32_t)bytes_number(in + 16, 4);
    s->hello.size = (int32_t)bytes_number(in + 20, 4);
    consume(s, PROOF_BYTES);
    if (!hash128_equal(given, rendezvous_proof(t->key, 'c', &s->hello))) {
        s->state = SESSION_ENDING;
        return;
    }
    int rank = s->hello.rank, size = s->hello.size;
    if (size != t->size || rank < 0 || rank >= size) {
        snprintf(text, sizeof text, "rank %d was started as one of %d ranks, the others as of %d", rank, size, t->size);
        send_verdict(s, text);
    } else if (t->here[rank]) {
        snprintf(text, sizeof text, "another process is already rank %d", rank);
        send_verdict(s, text);
    } else {
        s->registered = t->here[rank] = true;
        send_verdict(s, NULL);
    }
}

static void read_request(RendezvousSession *s, double now)
{
    const uint8_t *in = (const uint8_t *)s->in.data;
    RendezvousRounds *t = s->rounds;
    if (s->in.len < REQUEST_BYTES) return;
    int64_t round = (int64_t)bytes_number(in, 4);
    size_t bytes = bytes_number(in + 8, 4);
    bool current = round == t->round || round + 1 == t->round; /* or it returned, and the last one has ended */
    if (bytes > MOST_SAID || round <= s->round || (!current && !t->failed)) { /* an answer for each round */
        s->state = SESSION_ENDING;
        return;
    }
    if (s->in.len < REQUEST_BYTES + bytes) return;
    s->round = t->failed ? t->round - 1 : round; /* there is none after a failed one */
    if (!t->failed && round == t->round)
        take_said(t, s->hello.rank, in + REQUEST_BYTES, bytes, (double)bytes_number(in + 4, 4) * 1e-3, now);
    s->state = SESSION_WAITING;
    consume(s, REQUEST_BYTES + bytes);
}

/* True: the round has ended. */
static bool end_waiting(RendezvousSession *s)
{
    const RendezvousRounds *t = s->rounds;
    uint8_t head[REPLY_BYTES] = {!t->failed};
    if (t->round <= s->round) return false;
    bytes_put(head + 1, t->answer.len, 4);
    buf_append(&s->out, head, sizeof head);
    if (t->answer.len) buf_append(&s->out, t->answer.data, t->answer.len);
    s->state = t->failed ? SESSION_ENDING : SESSION_OPEN;
    return true;
}

/* Handles the received bytes as far as they are complete. */
static void session_advance(RendezvousSession *s, double now)
{
    while (s->state != SESSION_ENDING) {
        size_t before = s->in.len;
        if (s->state == SESSION_WAITING && !end_waiting(s)) return;
        if (s->in.len == 0 || s->state == SESSION_ENDING) return;
        if (s->state == SESSION_GREETING)
            read_greeting(s);
        else if (s->state == SESSION_PROOF)
            read_proof(s);
        else
            read_request(s, now);
        if (s->in.len == before) return;
    }
}

void rendezvous_session_tick(RendezvousSession *s, double now)
{
    bool stranger = s->state == SESSION_GREETING || s->state == SESSION_PROOF;
    if (stranger && now > s->until) s->state = SESSION_ENDING;
    if (!stranger) session_advance(s, now);
    if (s->sent == s->out.len)
        s->stalled = 0;
    else if (s->stalled == 0)
        s->stalled = now;
    double patience = s->state == SESSION_ENDING ? GREETING_S : SESSION_STALL_S;
    if (s->stalled == 0 || now - s->stalled <= patience) return;
    s->state = SESSION_ENDING;
    buf_free(&s->out);
    s->sent = 0;
}

void rendezvous_session_feed(RendezvousSession *s, const void *data, size_t size, double now)
{
    if (s->state == SESSION_ENDING) return;
    buf_append(&s->in, data, size);
    session_advance(s, now);
}
