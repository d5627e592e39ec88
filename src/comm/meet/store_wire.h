/* The TCP store without its sockets: the values, and a session per connection, which takes received bytes and holds the
   bytes to send. A session without a proof gets no value and costs a few bytes at most, whatever it sends. One thread
   at a time.

   A client greets with STORE_GREETING and 16 random bytes, and the server answers with the same and its own. Both then
   prove that they have the key by a hash over both random parts, the client first. A request is: operation ('S' set,
   'G' get), length of the name (2 bytes), milliseconds to wait (4), length of the value (4), name, value. Its answer
   is: outcome (1), length (4), value. Numbers are little-endian. Nothing after the greeting is encrypted or signed: an
   attacker who can change packets can change values. */
#pragma once

#include "comm/meet/store_internal.h"

#define STORE_GREETING "CAIRNS1\n"
enum {
    STORE_GREETING_BYTES = 24, /* text, random part */
    STORE_PROOF_BYTES = 24,    /* hash, rank, world size */
    STORE_VERDICT_BYTES = 19,  /* 0 or 1, hash, length of the refusal */
    STORE_REQUEST_BYTES = 11,
    STORE_REPLY_BYTES = 5
};
enum { STORE_NOTHING, STORE_DONE, STORE_REFUSED };

typedef struct {
    Hash128 client, server; /* the random parts */
    int rank, size;
} StoreHello;

/* The proof of the key; `side` is 'c' or 's'. */
Hash128 store_proof(Hash128 key, char side, const StoreHello *hello);

/* ---- the server's side ---- */

typedef struct StoreTable StoreTable;

StoreTable *store_table_new(Hash128 key, int world_size);
void store_table_free(StoreTable *t);

typedef struct {
    StoreTable *table;
    enum { SESSION_GREETING, SESSION_PROOF, SESSION_OPEN, SESSION_WAITING, SESSION_ENDING } state;
    StoreHello hello;
    Buf in, out;
    size_t sent;     /* bytes of `out` */
    double stalled;  /* since when the peer reads nothing of it; 0: it reads */
    char *name;      /* that the peer waits for */
    double until;    /* end of that wait; before the session is open: its deadline */
    bool registered; /* its rank counts as present */
} StoreSession;

void store_session_begin(StoreSession *s, StoreTable *t, double now);
/* Takes received bytes. If the session is ENDING afterwards, `out` must still be sent, and no more is read. */
void store_session_feed(StoreSession *s, const void *data, size_t size, double now);
/* Call it after time has passed, values were set, or `out` was sent. A peer that reads nothing for STORE_STALL_S is
   ended and its answers are dropped; one that asks without reading gets no more than STORE_MOST_OUT and one value. */
#define STORE_STALL_S  60.0
#define STORE_MOST_OUT ((size_t)1 << 20)
void store_session_tick(StoreSession *s, double now);
void store_session_end(StoreSession *s);
