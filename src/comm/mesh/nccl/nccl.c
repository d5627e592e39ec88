/* NCCL's communicator, never blocking: so a peer that does not come, or is lost, ends in an error and not in a wait.
   NCCL may be called by one thread at a time, but for the one that aborts: it takes the communicator away first. */
#include "comm/mesh/nccl.h"
#include "base/std.h"

#include <nccl.h>
#include <pthread.h>

extern const uint64_t cairn_module_abi;
extern const NcclModule cairn_comm_nccl;

typedef struct {
    pthread_mutex_t lock;
    ncclComm_t comm; /* NULL: aborted */
} Nccl;

_Static_assert(sizeof(ncclUniqueId) == NCCL_ID_BYTES, "the size of NCCL's id");

static NcclState state_of(const char *what, ncclResult_t result, ncclComm_t comm, char *error, size_t error_size)
{
    if (result == ncclSuccess) return NCCL_DONE;
    if (result == ncclInProgress) return NCCL_BUSY;
    const char *last = ncclGetLastError(comm);
    snprintf(error, error_size, "%s: %s%s%s", what, ncclGetErrorString(result), last && *last ? ": " : "",
             last ? last : "");
    return NCCL_FAILED;
}

/* False: it was aborted. */
static bool lock_comm(Nccl *n, char *error, size_t error_size)
{
    pthread_mutex_lock(&n->lock);
    if (n->comm) return true;
    pthread_mutex_unlock(&n->lock);
    snprintf(error, error_size, "the connection was ended");
    return false;
}

static NcclState unlock_comm(Nccl *n, const char *what, ncclResult_t result, char *error, size_t error_size)
{
    NcclState state = state_of(what, result, n->comm, error, error_size);
    pthread_mutex_unlock(&n->lock);
    return state;
}

static int version(void)
{
    int number = 0;
    return ncclGetVersion(&number) == ncclSuccess ? number : 0;
}

static NcclState new_id(void *id, char *error, size_t error_size)
{
    ncclUniqueId made;
    memset(&made, 0, sizeof made);
    NcclState state = state_of("an id", ncclGetUniqueId(&made), NULL, error, error_size);
    memcpy(id, &made, sizeof made);
    return state;
}

static void abort_nccl(void *self)
{
    Nccl *n = self;
    pthread_mutex_lock(&n->lock);
    ncclComm_t comm = n->comm;
    n->comm = NULL;
    pthread_mutex_unlock(&n->lock);
    if (comm) ncclCommAbort(comm);
}

static void close_nccl(void *self)
{
    Nccl *n = self;
    if (n->comm) ncclCommDestroy(n->comm);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

static void *open_nccl(const void *id, int rank, int size, int most_blocks, char *error, size_t error_size)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId made;
    Nccl *n = calloc(1, sizeof *n);
    if (!n) {
        snprintf(error, error_size, "no memory");
        return NULL;
    }
    config.blocking = 0;
    if (most_blocks) config.maxCTAs = most_blocks;
    memcpy(&made, id, sizeof made);
    pthread_mutex_init(&n->lock, NULL);
    ncclResult_t result = ncclCommInitRankConfig(&n->comm, size, made, rank, &config);
    if (state_of("connecting", result, n->comm, error, error_size) != NCCL_FAILED && n->comm) return n;
    abort_nccl(n);
    close_nccl(n);
    return NULL;
}

static ncclDataType_t type_of(NcclType type)
{
    return type == NCCL_F32 ? ncclFloat32 : type == NCCL_F64 ? ncclFloat64 : ncclInt64;
}

static NcclState all_reduce(void *self, void *x, size_t count, NcclType type, void *stream, char *error,
                            size_t error_size)
{
    Nccl *n = self;
    if (!lock_comm(n, error, error_size)) return NCCL_FAILED;
    return unlock_comm(n, "all-reduce", ncclAllReduce(x, x, count, type_of(type), ncclSum, n->comm, stream), error,
                       error_size);
}

static bool goes_on(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

/* The end of a group whose last call had this result. */
static NcclState end_group(Nccl *n, const char *what, ncclResult_t result, char *error, size_t error_size)
{
    ncclResult_t ended = ncclGroupEnd();
    return unlock_comm(n, what, goes_on(result) ? ended : result, error, error_size);
}

static NcclState move_pieces(void *self, const NcclPiece *piece, int count, bool sum, void *stream, char *error,
                             size_t error_size)
{
    Nccl *n = self;
    if (!lock_comm(n, error, error_size)) return NCCL_FAILED;
    ncclResult_t result = ncclGroupStart();
    for (const NcclPiece *p = piece; p < piece + count && goes_on(result); p++)
        result = sum ? ncclReduce(p->x, p->x, p->count, ncclFloat32, ncclSum, p->root, n->comm, stream)
                     : ncclBroadcast(p->x, p->x, p->count, ncclFloat32, p->root, n->comm, stream);
    return end_group(n, sum ? "reduce" : "broadcast", result, error, error_size);
}

static NcclState pass_all(void *self, const CommPass *pass, int count, void *stream, char *error, size_t error_size)
{
    Nccl *n = self;
    if (!lock_comm(n, error, error_size)) return NCCL_FAILED;
    ncclResult_t result = ncclGroupStart();
    for (const CommPass *p = pass; p < pass + count && goes_on(result); p++)
        result = p->send ? ncclSend(p->x, p->bytes, ncclUint8, p->peer, n->comm, stream)
                         : ncclRecv(p->x, p->bytes, ncclUint8, p->peer, n->comm, stream);
    return end_group(n, "send and receive", result, error, error_size);
}

static NcclState nccl_state(void *self, char *error, size_t error_size)
{
    Nccl *n = self;
    ncclResult_t result = ncclSuccess;
    if (!lock_comm(n, error, error_size)) return NCCL_FAILED;
    ncclResult_t asked = ncclCommGetAsyncError(n->comm, &result);
    return unlock_comm(n, "in the background", asked == ncclSuccess ? result : asked, error, error_size);
}

static NcclState finish_nccl(void *self, char *error, size_t error_size)
{
    Nccl *n = self;
    if (!lock_comm(n, error, error_size)) return NCCL_FAILED;
    return unlock_comm(n, "ending", ncclCommFinalize(n->comm), error, error_size);
}

const uint64_t cairn_module_abi = NCCL_MODULE_ABI;
const NcclModule cairn_comm_nccl = {version,  new_id,     open_nccl,   all_reduce, move_pieces,
                                    pass_all, nccl_state, finish_nccl, abort_nccl, close_nccl};
