/* Between the files of the store. */
#ifndef CAIRN_COMM_STORE_INTERNAL_H
#define CAIRN_COMM_STORE_INTERNAL_H

#include "comm/siphash.h"
#include "comm/store.h"

#define STORE_MAX_NAME  256
#define STORE_MAX_VALUE ((size_t)64 << 20)

/* A place for named values. One thread at a time. */
typedef struct {
    const char *name;
    Status (*set)(void *self, const char *name, const void *data, size_t size);
    /* The value that is there now or comes within about `wait_s`; *data NULL: none. */
    Status (*get)(void *self, const char *name, double wait_s, void **data, size_t *size);
    void (*close)(void *self);
    /* This rank has learnt its run ("run-…/"), and leaves it (`run` NULL: it never learnt it). May be NULL. */
    void (*join)(void *self, const char *run, int rank);
    void (*leave)(void *self, const char *run, const char *nonce, int rank, int size, bool complete);
    void (*hurry)(void *self, double answer_s); /* NULL: the store has no server */
} StoreKind;

/* Replaces `stop`, or with NULL ends its effect: survivors use the store after a signal, too. */
void store_wait_on(Store *s, const volatile sig_atomic_t *stop);
/* A launcher serves the store, and reads these names: */
bool store_served(const Store *s);
#define STORE_MET  "reach/all" /* all ranks have met */
#define STORE_LOST "lost/%d"   /* the first loss that a rank knows of: "RANK SILENT" */
bool store_stopped(const volatile sig_atomic_t *stop);
/* The E_STOPPED of all these waits. */
Status store_fail_stopped(void);

/* Opens a folder; `job` keeps names apart. `first`: rank 0, which also removes the leftovers of dead runs. */
Status store_file_open(const char *directory, Hash128 job, bool first, const StoreKind **kind, void **self);
void store_file_forget(const char *directory, Hash128 job);
/* `serve`: this rank serves it. A rank of another world size and a second process of a rank are refused. */
Status store_tcp_open(const World *world, const char *host_and_port, bool serve, Hash128 key, double timeout_s,
                      const volatile sig_atomic_t *stop, const StoreKind **kind, void **self);

/* "HOST:PORT", "[V6]:PORT", "HOST", ":PORT" or "": the caller frees *host. `port` stays where none is given. */
Status store_parse_address(const char *text, char **host, int *port);

#endif
