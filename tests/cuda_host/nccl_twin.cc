/* NCCL's twin for ranks on the host executor: the functions that src/comm/mesh/nccl/ calls, as a libnccl.so.2 of
   version 0.0.1. Collectives go through shared memory at their turn in the stream (stream.h) and add in rank order, in
   the type of the elements, so their bits are those of Gloo. Sendings and receipts of a group go on side by side, those
   between two ranks in order; a sending ends when its receipt has all of it. Ranks that disagree about what comes next,
   or about the size of a message, break the communicator. It connects in the background, as NCCL does, and work whose
   peer does not arrive waits until it is aborted. CAIRN_TEST_NCCL_BREAKS=RANK:N: on that rank of a communicator the Nth
   work never ends, and the communicator has an error; 0: it never connects. CAIRN_TEST_NCCL_LOG: a file for the
   variables that NCCL would have read from the environment. */
#include <nccl.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_host/stream.h"

namespace
{
constexpr int most_ranks = 16;
constexpr size_t window_bytes = 64 << 10;

/* Rounds are counted from 1. A rank posts its data for a round when all have read the round before. */
struct Window {
    std::atomic<uint64_t> posted, taken;
    uint64_t what; /* the data is part of */
    alignas(64) char data[window_bytes];
};

struct Shared {
    std::atomic<int> arrived;
    Window window[most_ranks];
    Window channel[most_ranks][most_ranks]; /* from a rank to another; memory that is not used is never there */
};

enum Kind { ALL_REDUCE, REDUCE, BROADCAST, PASSES };

struct Pass {
    bool send;
    int peer;
    char *x;
    size_t bytes, at; /* of which done */
    bool posted;
};

struct Work {
    ncclComm *comm;
    Kind kind;
    char *from, *to;
    size_t count, at; /* elements; of which done */
    ncclDataType_t type;
    int root;
    bool posted;
    std::vector<Pass> passes;
};

/* Of the thread: the sendings and receipts of its open group. */
struct Group {
    int depth;
    bool mixed, collective; /* of two communicators or streams; it has a collective */
    ncclComm *comm;
    cudaStream_t stream;
    std::vector<Pass> passes;
};
thread_local Group group;
} // namespace

struct ncclComm {
    std::atomic<int> references;
    std::atomic<bool> aborted, broken;
    int rank, size, calls;
    char path[NCCL_UNIQUE_ID_BYTES];
    Shared *shared;
    uint64_t round;
    uint64_t sent[most_ranks], received[most_ranks]; /* rounds of its channels */
};

static void give(ncclComm *c)
{
    if (--c->references > 0) return;
    munmap(c->shared, sizeof *c->shared);
    delete c;
}

static bool connected(const ncclComm *c) { return c->shared->arrived.load() >= c->size; }

/* ---- a collective ---- */

static size_t size_of(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 8; }

/* The same on all ranks. */
static uint64_t what_of(const Work *w)
{
    return ((w->count * 16 + w->kind) * 16 + w->type) * most_ranks + static_cast<uint64_t>(w->root);
}

template <typename T> static void add_windows(const ncclComm *c, char *to, size_t n)
{
    T *sums = reinterpret_cast<T *>(to);
    for (int r = 0; r < c->size; r++) {
        const T *x = reinterpret_cast<const T *>(c->shared->window[r].data);
        for (size_t i = 0; i < n; i++) sums[i] = r ? sums[i] + x[i] : x[i];
    }
}

static void take(const Work *w, size_t n)
{
    const ncclComm *c = w->comm;
    char *to = w->to + w->at * size_of(w->type);
    if (w->kind == BROADCAST)
        memcpy(to, c->shared->window[w->root].data, n * size_of(w->type));
    else if (w->kind == REDUCE && w->root != c->rank)
        return;
    else if (w->type == ncclFloat32)
        add_windows<float>(c, to, n);
    else if (w->type == ncclFloat64)
        add_windows<double>(c, to, n);
    else
        add_windows<int64_t>(c, to, n);
}

static bool all_at(const ncclComm *c, std::atomic<uint64_t> Window::*what, uint64_t round)
{
    for (int r = 0; r < c->size; r++)
        if ((c->shared->window[r].*what).load(std::memory_order_acquire) < round) return false;
    return true;
}

/* ---- sendings and receipts ---- */

/* True: it got further. */
static bool send_some(ncclComm *c, Pass *p)
{
    Window *channel = &c->shared->channel[c->rank][p->peer];
    size_t n = std::min(p->bytes - p->at, window_bytes);
    if (channel->taken.load(std::memory_order_acquire) < c->sent[p->peer]) return false;
    if (p->posted) {
        p->at += n;
        p->posted = false;
        return true;
    }
    memcpy(channel->data, p->x + p->at, n);
    channel->what = p->bytes;
    channel->posted.store(++c->sent[p->peer], std::memory_order_release);
    return p->posted = true;
}

static bool receive_some(ncclComm *c, Pass *p)
{
    Window *channel = &c->shared->channel[p->peer][c->rank];
    size_t n = std::min(p->bytes - p->at, window_bytes);
    if (channel->posted.load(std::memory_order_acquire) <= c->received[p->peer]) return false;
    if (channel->what != p->bytes) {
        c->broken = true;
        return false;
    }
    memcpy(p->x + p->at, channel->data, n);
    channel->taken.store(++c->received[p->peer], std::memory_order_release);
    p->at += n;
    return true;
}

static bool run_passes(Work *w)
{
    ncclComm *c = w->comm;
    for (bool further = true; further;) {
        bool before[2][most_ranks] = {}; /* an earlier one to the same rank, or from it, goes on */
        bool all = true;
        further = false;
        for (Pass &p : w->passes) {
            if (c->aborted) return true;
            if (c->broken) return false;
            if (p.at == p.bytes || before[p.send][p.peer]) continue;
            if (p.send ? send_some(c, &p) : receive_some(c, &p)) further = true;
            if (p.at < p.bytes) before[p.send][p.peer] = true, all = false;
        }
        if (all) return true;
    }
    return false;
}

/* ---- the queue ---- */

static bool run(void *work)
{
    Work *w = static_cast<Work *>(work);
    ncclComm *c = w->comm;
    if (w->kind == PASSES) return run_passes(w);
    Window *own = &c->shared->window[c->rank];
    while (w->at < w->count) {
        uint64_t round = c->round + 1;
        size_t n = std::min(w->count - w->at, window_bytes / size_of(w->type));
        if (c->aborted) return true;
        if (c->broken) return false;
        if (!w->posted) {
            if (!all_at(c, &Window::taken, round - 1)) return false;
            if (w->from) memcpy(own->data, w->from + w->at * size_of(w->type), n * size_of(w->type));
            own->what = what_of(w);
            own->posted.store(round, std::memory_order_release);
            w->posted = true;
        }
        if (!all_at(c, &Window::posted, round)) return false;
        for (int r = 0; r < c->size; r++)
            if (c->shared->window[r].what != own->what) c->broken = true;
        if (c->broken) return false;
        take(w, n);
        own->taken.store(round, std::memory_order_release);
        w->posted = false;
        w->at += n;
        c->round = round;
    }
    return true;
}

static void drop(void *work)
{
    Work *w = static_cast<Work *>(work);
    give(w->comm);
    delete w;
}

static void break_when_told(ncclComm *c)
{
    const char *breaks = getenv("CAIRN_TEST_NCCL_BREAKS");
    int rank, call;
    if (breaks && sscanf(breaks, "%d:%d", &rank, &call) == 2 && rank == c->rank && call == c->calls) c->broken = true;
}

static ncclResult_t queue_work(Work *work, cudaStream_t where)
{
    ncclComm *c = work->comm;
    const CudaHostStream *stream = reinterpret_cast<const CudaHostStream *>(where);
    c->calls++;
    break_when_told(c);
    c->references++;
    stream->queue(stream, run, drop, work);
    return ncclSuccess;
}

static ncclResult_t queue(ncclComm *c, Kind kind, const void *from, void *to, size_t count, ncclDataType_t type,
                          int root, cudaStream_t where)
{
    if (!connected(c)) return ncclInvalidUsage;
    if (group.depth > 0) group.collective = true;
    return queue_work(new Work{c,
                               kind,
                               static_cast<char *>(const_cast<void *>(from)),
                               static_cast<char *>(to),
                               count,
                               0,
                               type,
                               root,
                               false,
                               {}},
                      where);
}

/* Alone, or with others of a group. */
static ncclResult_t pass(ncclComm *c, bool send, void *x, size_t bytes, int peer, cudaStream_t where)
{
    if (!connected(c) || peer < 0 || peer >= c->size || peer == c->rank) return ncclInvalidUsage;
    if (group.passes.empty()) {
        group.comm = c;
        group.stream = where;
    }
    if (group.comm != c || group.stream != where) group.mixed = true;
    group.passes.push_back({send, peer, static_cast<char *>(x), bytes, 0, false});
    return group.depth > 0 ? ncclSuccess : (ncclGroupStart(), ncclGroupEnd());
}

/* ---- the API ---- */

static void log_environment(int rank)
{
    const char *path = getenv("CAIRN_TEST_NCCL_LOG");
    FILE *f = path ? fopen(path, "a") : nullptr;
    if (!f) return;
    fprintf(f, "rank %d:", rank);
    for (const char *name : {"NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_RUNTIME_CONNECT", "NCCL_HOSTID"})
        fprintf(f, " %s", getenv(name) ? getenv(name) : "-");
    fprintf(f, "\n");
    fclose(f);
}

extern "C" {
ncclResult_t ncclGetVersion(int *version)
{
    *version = 1;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t) { return "words of the twin"; }
const char *ncclGetLastError(ncclComm_t c) { return c && c->broken ? "the test broke it" : ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number) return ncclSystemError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/dev/shm/cairn-nccl-twin-%016llx", (unsigned long long)number);
    int fd = open(id->internal, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return ncclSystemError;
    close(fd);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    *comm = nullptr;
    if (config->blocking != 0 || size > most_ranks) return ncclInvalidArgument;
    log_environment(rank);
    int fd = open(id.internal, O_RDWR | O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) return ncclSystemError;
    void *p = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) return ncclSystemError;
    ncclComm *c = new ncclComm{};
    c->references = 1;
    c->rank = rank;
    c->size = size;
    memcpy(c->path, id.internal, sizeof c->path);
    c->shared = static_cast<Shared *>(p);
    break_when_told(c);
    if (!c->broken && ++c->shared->arrived == size) unlink(c->path);
    *comm = c;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *result)
{
    *result = c->broken ? ncclRemoteError : connected(c) ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    give(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    c->aborted = true;
    if (!connected(c)) unlink(c->path);
    give(c);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart()
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd()
{
    if (--group.depth > 0) return ncclSuccess;
    Group all = std::move(group);
    group = Group{};
    if (all.passes.empty()) return ncclSuccess;
    if (all.mixed || all.collective) return ncclInvalidUsage;
    return queue_work(new Work{all.comm, PASSES, nullptr, nullptr, 0, 0, ncclUint8, 0, false, std::move(all.passes)},
                      all.stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t c,
                           cudaStream_t stream)
{
    return queue(c, ALL_REDUCE, from, to, count, type, 0, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t, int root,
                        ncclComm_t c, cudaStream_t stream)
{
    return queue(c, REDUCE, from, to, count, type, root, stream);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
    return pass(c, true, const_cast<void *>(from), count * size_of(type), peer, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
    return pass(c, false, to, count * size_of(type), peer, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t stream)
{
    return queue(c, BROADCAST, from, to, count, type, root, stream);
}
}
