/* Any bytes at the port of the rendezvous. The first byte: how the rest is cut into pieces, and whether the sender has
   the key. Without it nothing is said and at most a greeting is answered. With it every request is answered by the
   protocol or ends the session; what another rank said is unharmed. */
#include <math.h>
#include <string.h>

#include "comm/meet/rendezvous_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sends greeting and proof as a rank does. */
static void let_in(RendezvousSession *s, Hash128 key, int rank, int ranks)
{
    uint8_t greeting[GREETING_BYTES] = RENDEZVOUS_GREETING, show[PROOF_BYTES];
    RendezvousHello h = {.rank = rank, .size = ranks};
    memset(greeting + 8, 7, 16);
    memcpy(h.client.bytes, greeting + 8, 16);
    rendezvous_session_feed(s, greeting, sizeof greeting, 0);
    CHECK(s->state == SESSION_PROOF && s->out.len == GREETING_BYTES, "greeting");
    memcpy(h.server.bytes, s->out.data + 8, 16);
    Hash128 proof = rendezvous_proof(key, 'c', &h);
    memcpy(show, proof.bytes, 16);
    bytes_put(show + 16, (uint32_t)rank, 4);
    bytes_put(show + 20, (uint32_t)ranks, 4);
    rendezvous_session_feed(s, show, sizeof show, 0);
    CHECK(s->state == SESSION_OPEN, "a rank is not let in");
    buf_free(&s->out);
}

/* The output is a sequence of whole answers. */
static void check_answers(const Buf *out)
{
    size_t at = 0;
    while (at < out->len) {
        const uint8_t *p = (const uint8_t *)out->data + at;
        CHECK(out->len - at >= REPLY_BYTES && p[0] <= 1, "answer");
        at += REPLY_BYTES + bytes_number(p + 1, 4);
    }
    CHECK(at == out->len, "the last answer is cut");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t say[] = {0, 0, 0, 0, 0xff, 0xff, 0, 0, 3, 0, 0, 0, 'v', 'a', 'l'};
    if (size == 0) return 0;
    const Hash128 key = {{1, 2, 3}};
    bool known = data[0] & 1;
    size_t piece = (size_t)(data[0] >> 1) + 1;
    RendezvousRounds t = rendezvous_rounds(key, 2);
    RendezvousSession rank, other;
    rendezvous_session(&rank, &t, 0);
    let_in(&rank, key, 0, 2);
    rendezvous_session_feed(&rank, say, sizeof say, 0);
    rendezvous_session(&other, &t, 0);
    if (known) let_in(&other, key, 1, 2);
    for (size_t at = 1; at < size; at += piece) {
        rendezvous_session_feed(&other, data + at, size - at < piece ? size - at : piece, 0);
        rendezvous_session_tick(&other, 0.5);
        CHECK(known || other.out.len <= GREETING_BYTES, "a stranger gets %zu bytes", other.out.len);
        CHECK(known || other.state != SESSION_OPEN, "a stranger was let in");
        CHECK(t.round <= 1 || t.failed, "rounds that the other rank did not come to");
    }
    for (size_t i = 0; i <= size; i++) {
        rendezvous_tick(&t, (double)(i + 1) * 1e9); /* no wait is longer */
        rendezvous_session_tick(&rank, 1);
        if (other.state != SESSION_ENDING) rendezvous_session_tick(&other, known ? 1 : (double)(i + 1) * 1e9);
    }
    CHECK(rank.out.len >= REPLY_BYTES && t.round >= 1, "a rank waits forever");
    if (rank.out.data[0]) CHECK(memcmp(rank.out.data + REPLY_BYTES, "val", 3) == 0, "what a rank said is changed");
    CHECK(known || !rank.out.data[0], "a stranger ended a round");
    CHECK(known || other.state == SESSION_ENDING, "a stranger keeps its session");
    check_answers(&rank.out);
    if (known) check_answers(&other.out);
    rendezvous_session_end(&other);
    rendezvous_session_end(&rank);
    rendezvous_rounds_free(&t);
    return 0;
}
