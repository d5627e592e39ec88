/* The module cairn_nccl.so. It uses nothing of the program that loads it, and none of its functions waits. A failing
   function writes a text into `error`. `stream` is a cudaStream_t, to which work is queued. All functions may be called
   while another thread aborts. */
#pragma once

#include "base/std.h"

#define NCCL_ID_BYTES 128

typedef enum { NCCL_F32, NCCL_F64, NCCL_I64 } NcclType;

/* BUSY: it continues in the background. Only `state` may be called until it returns something else. */
typedef enum { NCCL_DONE, NCCL_BUSY, NCCL_FAILED } NcclState;

/* `count` fp32 numbers at `x`, on every rank: summed into x of `root`, or sent from there. */
typedef struct {
    float *x;
    size_t count;
    int root;
} NcclPiece;

/* `bytes` at x, sent to a rank of the communicator or received from it. */
typedef struct {
    bool send;
    int peer;
    void *x;
    size_t bytes;
} CommPass;

typedef struct {
    int (*version)(void);                                          /* 22809 is 2.28.9; 0: unknown */
    NcclState (*new_id)(void *id, char *error, size_t error_size); /* NCCL_ID_BYTES; by one rank, for all */
    /* Begins to connect, on the current device of the calling thread: see `state`. At most so many thread blocks move
       its data (0: as NCCL chooses). NULL: failed. */
    void *(*open)(const void *id, int rank, int size, int most_blocks, char *error, size_t error_size);
    /* The sum of all ranks' x, in place, on all. */
    NcclState (*all_reduce)(void *nccl, void *x, size_t count, NcclType type, void *stream, char *error,
                            size_t error_size);
    /* All pieces are one operation. */
    NcclState (*pieces)(void *nccl, const NcclPiece *pieces, int n, bool sum, void *stream, char *error,
                        size_t error_size);
    /* All passes are one operation, in which none waits for another. */
    NcclState (*passes)(void *nccl, const CommPass *passes, int n, void *stream, char *error, size_t error_size);
    NcclState (*state)(void *nccl, char *error, size_t error_size);  /* also reports later failures */
    NcclState (*finish)(void *nccl, char *error, size_t error_size); /* after all queued work has ended, before close */
    void (*abort)(void *nccl); /* from any thread: ends queued work and the connection; then only close may be called */
    void (*close)(void *nccl);
} NcclModule;

/* A module exports `const uint64_t cairn_module_abi = NCCL_MODULE_ABI` and `const NcclModule cairn_comm_nccl`. */
#define NCCL_MODULE_ABI (UINT64_C(0x6e63636c) << 32 | (uint64_t)sizeof(NcclModule) << 8 | 5)
