/* Between the files of the store. */
#ifndef CAIRN_COMM_STORE_INTERNAL_H
#define CAIRN_COMM_STORE_INTERNAL_H

#include "comm/comm.h"
#include "comm/siphash.h"

#define STORE_MAX_NAME  256
#define STORE_MAX_VALUE ((size_t)64 << 20)

/* Somewhere named values can be kept. By one thread at a time. */
typedef struct {
    const char *name;
    Status (*set)(void *self, const char *name, const void *data, size_t size);
    /* What is there now, or comes within about `wait_s`; *data NULL where nothing does. */
    Status (*get)(void *self, const char *name, double wait_s, void **data, size_t *size);
    void (*close)(void *self);
    /* This rank knows by now which run it belongs to ("run-…/"); and it leaves (`run` NULL: it never
       knew). May be NULL. */
    void (*join)(void *self, const char *run, int rank);
    void (*leave)(void *self, const char *run, const char *nonce, int rank, int size, bool complete);
    void (*hurry)(void *self, double answer_s); /* NULL: it never waits for an answer */
} StoreKind;

/* As store_open; while `stop` (may be NULL) says so, nobody waits: E_STOPPED. store_wait_on gives another one, or NULL:
   survivors talk by the store after a signal, too. */
Status store_open_until(const World *world, const char *where, const char *token, double timeout_s,
                        const volatile sig_atomic_t *stop, Store **store);
void store_wait_on(Store *s, const volatile sig_atomic_t *stop);
/* Does a launcher serve it? Then these names mean something to the launcher: */
bool store_served(const Store *s);
#define STORE_MET  "reach/all" /* all ranks have met */
#define STORE_LOST "lost/%d"   /* the first loss that a rank knows of: "RANK SILENT" */
bool store_stopped(const volatile sig_atomic_t *stop);
/* The same E_STOPPED wherever it is noticed. */
Status store_fail_stopped(void);

/* Opens one place. `where` without its scheme; names are kept apart by `job`. */
/* `first`: by the first rank, which removes what dead runs left there. */
Status store_file_open(const char *directory, Hash128 job, bool first, const StoreKind **kind, void **self);
void store_file_forget(const char *directory, Hash128 job);
/* `serve`: this rank serves it. Ranks of another world size, and a rank that is there already, are refused. */
Status store_tcp_open(const World *world, const char *host_and_port, bool serve, Hash128 key, double timeout_s,
                      const volatile sig_atomic_t *stop, const StoreKind **kind, void **self);

/* "HOST:PORT", "[V6]:PORT", "HOST", ":PORT" or "": the caller frees *host. `port` stays where none is given. */
Status store_parse_address(const char *text, char **host, int *port);

#endif
