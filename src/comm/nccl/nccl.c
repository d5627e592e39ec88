/* NCCL's communicator, never blocking: so a peer that does not come, or is lost, ends in an error and not in a wait. */
#include "comm/nccl.h"

#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const uint64_t cairn_module_abi;
extern const NcclModule cairn_comm_nccl;

typedef struct {
    ncclComm_t comm; /* NULL: aborted */
    double timeout_s;
} Nccl;

_Static_assert(sizeof(ncclUniqueId) == NCCL_ID_BYTES, "the size of NCCL's id");

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int tell(const char *what, ncclResult_t result, ncclComm_t comm, char *error, size_t error_size)
{
    const char *last = ncclGetLastError(comm);
    snprintf(error, error_size, "%s: %s%s%s", what, ncclGetErrorString(result), last && *last ? ": " : "",
             last ? last : "");
    return 1;
}

/* Waits until a call that may go on in the background has been taken in. */
static int settle(Nccl *n, const char *what, ncclResult_t result, char *error, size_t error_size)
{
    const struct timespec pause = {.tv_nsec = 200000};
    double end = now() + n->timeout_s;
    while (result == ncclInProgress && now() < end) {
        nanosleep(&pause, NULL);
        if (ncclCommGetAsyncError(n->comm, &result) != ncclSuccess) result = ncclInternalError;
    }
    return result == ncclSuccess ? 0 : tell(what, result, n->comm, error, error_size);
}

static void abort_nccl(void *self)
{
    Nccl *n = self;
    if (n->comm) ncclCommAbort(n->comm);
    n->comm = NULL;
}

/* What all is queued was waited for by the caller. */
static void close_nccl(void *self)
{
    Nccl *n = self;
    char error[64];
    if (n->comm && settle(n, "finalize", ncclCommFinalize(n->comm), error, sizeof error) == 0)
        ncclCommDestroy(n->comm);
    else
        abort_nccl(n);
    free(n);
}

static int new_id(void *id, char *error, size_t error_size)
{
    ncclUniqueId made;
    ncclResult_t result = ncclGetUniqueId(&made);
    if (result != ncclSuccess) return tell("id", result, NULL, error, error_size);
    memcpy(id, &made, sizeof made);
    return 0;
}

static void *open_nccl(const void *id, int rank, int size, double timeout_s, char *error, size_t error_size)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId made;
    Nccl *n = calloc(1, sizeof *n);
    if (!n) {
        snprintf(error, error_size, "no memory");
        return NULL;
    }
    config.blocking = 0;
    n->timeout_s = timeout_s;
    memcpy(&made, id, sizeof made);
    ncclResult_t result = ncclCommInitRankConfig(&n->comm, size, made, rank, &config);
    if (settle(n, "connecting", result, error, error_size) == 0) return n;
    abort_nccl(n);
    free(n);
    return NULL;
}

static ncclDataType_t type_of(NcclType type)
{
    return type == NCCL_F32 ? ncclFloat32 : type == NCCL_BF16 ? ncclBfloat16 : ncclFloat16;
}

static int gone(char *error, size_t error_size)
{
    snprintf(error, error_size, "the connection was ended");
    return 1;
}

static int all_reduce(void *self, const void *from, void *to, size_t count, NcclType type, void *stream, char *error,
                      size_t error_size)
{
    Nccl *n = self;
    if (!n->comm) return gone(error, error_size);
    return settle(n, "all-reduce", ncclAllReduce(from, to, count, type_of(type), ncclSum, n->comm, stream), error,
                  error_size);
}

static int reduce_scatter(void *self, const void *from, void *to, size_t count, NcclType type, void *stream,
                          char *error, size_t error_size)
{
    Nccl *n = self;
    if (!n->comm) return gone(error, error_size);
    return settle(n, "reduce-scatter", ncclReduceScatter(from, to, count, type_of(type), ncclSum, n->comm, stream),
                  error, error_size);
}

static int all_gather(void *self, const void *from, void *to, size_t count, NcclType type, void *stream, char *error,
                      size_t error_size)
{
    Nccl *n = self;
    if (!n->comm) return gone(error, error_size);
    return settle(n, "all-gather", ncclAllGather(from, to, count, type_of(type), n->comm, stream), error, error_size);
}

static int check(void *self, char *error, size_t error_size)
{
    Nccl *n = self;
    ncclResult_t result = ncclSuccess;
    if (!n->comm) return gone(error, error_size);
    ncclResult_t asked = ncclCommGetAsyncError(n->comm, &result);
    if (asked == ncclSuccess && (result == ncclSuccess || result == ncclInProgress)) return 0;
    return tell("in the background", asked == ncclSuccess ? result : asked, n->comm, error, error_size);
}

const uint64_t cairn_module_abi = NCCL_MODULE_ABI;
const NcclModule cairn_comm_nccl = {new_id,     open_nccl, all_reduce, reduce_scatter,
                                    all_gather, check,     abort_nccl, close_nccl};
