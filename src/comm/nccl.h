/* The module cairn_nccl.so behind these few functions. It uses nothing of the program that loads it. A function that
   fails gives 1 and writes a text into `error`. `stream` is a cudaStream_t; what is queued there ends in its own time.
 */
#ifndef CAIRN_COMM_NCCL_H
#define CAIRN_COMM_NCCL_H

#include <stddef.h>
#include <stdint.h>

#define NCCL_ID_BYTES 128

typedef enum { NCCL_F32, NCCL_BF16, NCCL_F16 } NcclType;

typedef struct {
    int (*new_id)(void *id, char *error, size_t error_size); /* NCCL_ID_BYTES; by one rank, for all */
    /* On the current device of the calling thread. NULL: failed, or not all came within `timeout_s`. */
    void *(*open)(const void *id, int rank, int size, double timeout_s, char *error, size_t error_size);
    int (*all_reduce)(void *nccl, const void *from, void *to, size_t count, NcclType type, void *stream, char *error,
                      size_t error_size);
    int (*reduce_scatter)(void *nccl, const void *from, void *to, size_t count, NcclType type, void *stream,
                          char *error, size_t error_size); /* count: of one rank's part */
    int (*all_gather)(void *nccl, const void *from, void *to, size_t count, NcclType type, void *stream, char *error,
                      size_t error_size);                     /* as above */
    int (*check)(void *nccl, char *error, size_t error_size); /* has something gone wrong since? Never waits */
    void (*abort)(void *nccl); /* ends what is queued, and the connection; then only close is left */
    void (*close)(void *nccl);
} NcclModule;

/* A module exports `const uint64_t cairn_module_abi = NCCL_MODULE_ABI` and `const NcclModule cairn_comm_nccl`. */
#define NCCL_MODULE_ABI (UINT64_C(0x6e63636c) << 32 | (uint64_t)sizeof(NcclModule) << 8 | 1)

#endif
