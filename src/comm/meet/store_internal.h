/* Between the files of the store. */
#ifndef CAIRN_COMM_MEET_STORE_INTERNAL_H
#define CAIRN_COMM_MEET_STORE_INTERNAL_H

#include "base/siphash.h"
#include "comm/meet/store.h"

#define STORE_MAX_NAME  256
#define STORE_MAX_VALUE ((size_t)64 << 20)

/* A place for named values. One thread at a time. */
typedef struct {
    const char *name;
    Status (*set)(void *self, const char *name, const void *data, size_t size);
    /* The value that is there now or comes within about `wait_s`; *data NULL: none. */
    Status (*get)(void *self, const char *name, double wait_s, void **data, size_t *size);
    void (*close)(void *self);
    /* This rank has learned its run ("run-…"), and leaves it (`run` NULL: it never learned it). May be NULL. */
    void (*join)(void *self, const char *run, int rank);
    void (*leave)(void *self, const char *run, const char *nonce, int rank, int size, bool complete);
    void (*hurry)(void *self, double answer_s); /* NULL: the store has no server */
} StoreKind;

/* The launcher reads these names: */
#define STORE_MET    "reach/all" /* 1, then the answer: all ranks have met; 0: some did not come */
#define STORE_LOST   "lost/%d"   /* the first loss that a rank knows of: "RANK SILENT" */
#define STORE_SAVED  "saved"     /* survivors have saved the state */
#define STORE_FROZEN "frozen/%d" /* the rank was silent while it led the save */
#define STORE_SILENT "silent/%d" /* the rank was silent when another one ended after a loss */

/* Opens a folder; `job` keeps names apart. `first`: rank 0, which also removes the leftovers of dead runs. */
Status store_file_open(const char *directory, Hash128 job, bool first, const StoreKind **kind, void **self);
void store_file_forget(const char *directory, Hash128 job);
/* store_tidy.c removes the files of a folder: a run's own at its end, those of killed runs at the next start. A file
   that cannot be removed stays, without an error. */

/* Called by rank 0 when it has made the folder `run`. */
void tidy_begin_run(const char *run);
/* Returns a file descriptor that marks the run as alive while it is open; −1: none. */
int tidy_hold(const char *run);
/* A rank leaves the run `run` ("run-…"; NULL: it never learned it) in the job's `folder`. Removes its files of the
   meeting, and the whole run with the last rank. `complete`: all ranks had met. */
void tidy_leave(const char *folder, const char *run, const char *nonce, int rank, int size, bool complete);
/* Removes, for all jobs in `directory`, dead runs of this host that are a day old. */
void tidy_others(const char *directory);
/* Removes a file or folder. */
void tidy_remove(const char *path);

/* `serve`: this rank serves it. A rank of another world size and a second process of a rank are refused. */
Status store_tcp_open(const World *world, const char *host_and_port, bool serve, Hash128 key, double timeout_s,
                      const volatile sig_atomic_t *stop, const StoreKind **kind, void **self);

/* Number of ports that server and clients try, from the wanted one on. */
#define STORE_PORTS 8
/* As store_serve, with the key in place of the token. */
Status store_serve_key(bool loopback, int port, Hash128 key, int world_size, StoreServer **server);

/* "HOST:PORT", "[V6]:PORT", "HOST", ":PORT" or "": the caller frees *host. `port` stays where none is given. */
Status store_parse_address(const char *text, char **host, int *port);

#endif
