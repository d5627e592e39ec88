/* The rendezvous's server without its sockets: the rounds, and a session per connection, which takes received bytes and
   holds the bytes to send. A session without a proof learns nothing and costs a few bytes at most, whatever it sends.
   One thread at a time.

   A client greets with RENDEZVOUS_GREETING and 16 random bytes, and the server answers with the same and its own. Both
   then prove that they have the key by a hash over both random parts, the client first. A request is: the round's
   number from 0 on (4 bytes), milliseconds to wait (4), length (4), what this rank says. Its answer is: 1 and what all
   say, or 0 and why there is nothing, behind a length (4). Numbers are little-endian. Nothing after the greeting is
   encrypted or signed: an attacker who can change packets can change what ranks say. */
#pragma once

#include "base/siphash.h"
#include "comm/meet/rendezvous.h"

#define RENDEZVOUS_GREETING "CAIRNS2\n"
enum {
    GREETING_BYTES = 24, /* text, random part */
    PROOF_BYTES = 24,    /* hash, rank, world size */
    VERDICT_BYTES = 19,  /* 0 or 1, hash, length of the refusal */
    REQUEST_BYTES = 12,
    REPLY_BYTES = 5,
    MOST_SAID = 1 << 20 /* by a rank in a round */
};

typedef struct {
    Hash128 client, server; /* the random parts */
    int rank, size;
} RendezvousHello;

/* The proof of the key; `side` is 'c' or 's'. */
Hash128 rendezvous_proof(Hash128 key, char side, const RendezvousHello *hello);

/* The gathering of all ranks. */
typedef struct {
    Hash128 key;
    int size;   /* ranks */
    bool *here; // (size) it has a session
    bool *came; // (size) to this round
    int n_came;
    int64_t round;       /* rounds that have ended */
    bool failed;         /* the last one, and with it each later one */
    size_t bytes;        /* that each rank says in this round */
    double begun, until; /* the shortest wait of those that have come; INFINITY: none has */
    Buf said;            // (size, bytes) in this round
    Buf answer;          /* of the last round: what all said, or why it failed */
} RendezvousRounds;

RendezvousRounds rendezvous_rounds(Hash128 key, int size);
/* Ends a round whose time, `until`, is over. */
void rendezvous_tick(RendezvousRounds *t, double now);
void rendezvous_rounds_free(RendezvousRounds *t);

typedef struct {
    RendezvousRounds *rounds;
    enum { SESSION_GREETING, SESSION_PROOF, SESSION_OPEN, SESSION_WAITING, SESSION_ENDING } state;
    RendezvousHello hello;
    Buf in, out;
    size_t sent;     /* bytes of `out` */
    double stalled;  /* since when the peer reads nothing of it; 0: it reads */
    double until;    /* before it is open: its deadline */
    int64_t round;   /* that it asked for last */
    bool registered; /* its rank counts as present */
} RendezvousSession;

void rendezvous_session(RendezvousSession *s, RendezvousRounds *t, double now);
/* Takes received bytes. If the session is ENDING afterwards, `out` must still be sent, and no more is read. */
void rendezvous_session_feed(RendezvousSession *s, const void *data, size_t size, double now);
/* Call it after time has passed, other sessions were fed, or `out` was sent. A peer that reads nothing for
   SESSION_STALL_S is ended, and its answers are dropped. */
#define SESSION_STALL_S 60.0
void rendezvous_session_tick(RendezvousSession *s, double now);
void rendezvous_session_end(RendezvousSession *s);

/* ---- the files of the rendezvous share these ---- */

/* "HOST:PORT", "[V6]:PORT", "HOST", ":PORT" or "": the caller frees *host. `port` stays where none is given. */
Status rendezvous_parse_address(const char *text, char **host, int *port);

/* Number of ports that server and clients try, from the wanted one on. */
#define RENDEZVOUS_PORTS 8
/* rendezvous_serve with the key in place of the token. */
Status rendezvous_serve_key(bool loopback, int port, Hash128 key, int world_size, RendezvousServer **server);
