/* The module cairn_gloo.so, which is C++. It uses nothing of the program that loads it, and no exception leaves it. A
   failing function writes a text into `error`; errno is ENOMEM where the system lacked memory, else 0. */
#pragma once

#include "base/std.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One transfer of an exchange; skipped if `bytes` is 0. */
typedef struct {
    int peer, send; /* send 1: `data` is only read; 0: it is written */
    void *data;
    size_t bytes;
} GlooMessage;

typedef struct {
    int rank, size;
    const char *address; /* of this host, numerical: Gloo listens there */
    double timeout_s;    /* to connect */
    /* The rendezvous; 0: done. The module frees the value of `get` with free(). */
    void *store;
    int (*set)(void *store, const char *name, const void *data, size_t size);
    int (*get)(void *store, const char *name, double timeout_s, void **data, size_t *size);
    int (*lost)(void *store); /* 1: a rank is lost, and connecting must end */
    /* For an error that Gloo lets nobody catch. Does not return. The last one given is called. */
    void (*fatal)(const char *text);
} GlooOptions;

typedef struct {
    void *(*open)(const GlooOptions *options, char *error, size_t error_size); /* NULL: failed */
    /* 0: done. *peer: the rank that it was waiting for; -1: unknown. */
    int (*exchange)(void *gloo, const GlooMessage *messages, int n, double timeout_s, int *peer, char *error,
                    size_t error_size);
    /* Begins one transfer; `tag` tells the messages between two ranks apart, and is not 0. NULL: failed. */
    void *(*post)(void *gloo, const GlooMessage *message, uint64_t tag, char *error, size_t error_size);
    /* Ends it and frees the ticket. 0: done. */
    int (*wait)(void *gloo, void *ticket, double timeout_s, char *error, size_t error_size);
    void (*abort)(void *gloo);
    void (*close)(void *gloo);
} GlooModule;

/* A module exports `const uint64_t cairn_module_abi = GLOO_ABI` and `const GlooModule cairn_comm_gloo`. */
#define GLOO_ABI                                                                                                       \
    (UINT64_C(0x676c6f6f) << 32 | (uint64_t)sizeof(GlooModule) << 16 | (uint64_t)sizeof(GlooOptions) << 8 |            \
     (uint64_t)sizeof(GlooMessage))

#ifdef __cplusplus
}
#endif
