/* Any bytes at the port of the rendezvous. The first byte: how the rest is cut into pieces, and whether the sender has
   the key. Without it nothing is stored and at most a greeting is answered. With it every request is answered by the
   protocol or ends the session; a rank's values are unharmed. */
#include <string.h>

#include "comm/meet/store_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sends greeting and proof as a rank does. */
static void let_in(StoreSession *s, Hash128 key, int rank, int ranks)
{
    uint8_t greeting[STORE_GREETING_BYTES] = STORE_GREETING, show[STORE_PROOF_BYTES];
    StoreHello h = {.rank = rank, .size = ranks};
    memset(greeting + 8, 7, 16);
    memcpy(h.client.bytes, greeting + 8, 16);
    store_session_feed(s, greeting, sizeof greeting, 0);
    CHECK(s->state == SESSION_PROOF && s->out.len == STORE_GREETING_BYTES, "greeting");
    memcpy(h.server.bytes, s->out.data + 8, 16);
    Hash128 proof = store_proof(key, 'c', &h);
    memcpy(show, proof.bytes, 16);
    bytes_put(show + 16, (uint32_t)rank, 4);
    bytes_put(show + 20, (uint32_t)ranks, 4);
    store_session_feed(s, show, sizeof show, 0);
    CHECK(s->state == SESSION_OPEN, "a rank is not let in");
    buf_free(&s->out);
}

/* The output is a sequence of whole answers. */
static void check_answers(const Buf *out)
{
    size_t at = 0;
    while (at < out->len) {
        const uint8_t *p = (const uint8_t *)out->data + at;
        CHECK(out->len - at >= STORE_REPLY_BYTES && p[0] <= STORE_REFUSED, "answer");
        CHECK(p[0] == STORE_DONE || bytes_number(p + 1, 4) == 0, "a value with no good answer");
        at += STORE_REPLY_BYTES + bytes_number(p + 1, 4);
    }
    CHECK(at == out->len, "the last answer is cut");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t ask[] = {'G', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'k'},
                         set[] = {'S', 1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 'k', 'v', 'a', 'l'};
    if (size == 0) return 0;
    const Hash128 key = {{1, 2, 3}};
    bool known = data[0] & 1;
    size_t piece = (size_t)(data[0] >> 1) + 1;
    StoreTable *t = store_table_new(key, 2);
    StoreSession rank, other;
    store_session_begin(&rank, t, 0);
    let_in(&rank, key, 0, 2);
    store_session_feed(&rank, set, sizeof set, 0);
    buf_free(&rank.out);
    store_session_begin(&other, t, 0);
    if (known) let_in(&other, key, 1, 2);
    for (size_t at = 1; at < size; at += piece) {
        store_session_feed(&other, data + at, size - at < piece ? size - at : piece, 0);
        store_session_tick(&other, 0.5);
        CHECK(known || other.out.len <= STORE_GREETING_BYTES, "a stranger gets %zu bytes", other.out.len);
        CHECK(known || other.state != SESSION_OPEN, "a stranger was let in");
    }
    for (size_t i = 0; i <= size; i++) store_session_tick(&other, (double)(i + 1) * 1e9); /* no wait is longer */
    CHECK(other.state != SESSION_WAITING, "it waits forever");
    CHECK(known || other.state == SESSION_ENDING, "a stranger keeps its session");
    if (known) check_answers(&other.out);
    if (!known) {
        store_session_feed(&rank, ask, sizeof ask, 0);
        CHECK(rank.out.len == STORE_REPLY_BYTES + 3 && memcmp(rank.out.data + STORE_REPLY_BYTES, "val", 3) == 0,
              "value");
    }
    store_session_end(&other);
    store_session_end(&rank);
    store_table_free(t);
    return 0;
}
