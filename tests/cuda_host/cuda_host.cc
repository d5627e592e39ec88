/* The host executor: blocks one after the other, their threads as fibers, in an order made from the seed. See
   cuda_host.h. A thread runs until it waits for the block (a barrier) or for lanes of its warp (a collective). When no
   thread can run and not all have ended, some thread waits forever, which is a fault. */
#include "cuda_host/cuda_host.h"

#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

#include "cuda_host/fiber.h"
#include "cuda_host/random.h"
#include "cuda_host/shared.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{
constexpr int max_threads = 1024, warp = 32, warps_of_group = 4;

enum State { READY, AT_BARRIER, AT_COLLECTIVE, ENDED };

struct Thread {
    Fiber fiber;
    State state;
    uint3 index;
    CudaHostPlace at;               /* where it waits */
    const CudaHostCollective *kind; /* AT_COLLECTIVE */
    unsigned mask;
};

/* Lanes of a warp that wait for each other. */
struct Group {
    const CudaHostCollective *kind;
    CudaHostPlace at;
    unsigned mask, here;
    void *brought[warp];
};

struct Warp {
    int rank;        /* its place in the block's random order of warps */
    int ready;       /* threads that can run */
    int queue[warp]; /* which, in no order */
    int n;           /* groups; their masks have no lane in common */
    Group group[warp];
};

/* The running launch. */
struct Launch {
    const CudaHostKernel *kernel;
    const std::function<void()> *body;
    int n, barrier, ended;           /* threads of the block; those that wait at a barrier, have ended */
    int warp_of[max_threads / warp]; /* by rank */
    uint32_t ready;                  /* bit r: the warp of rank r has threads that can run */
    bool eager;                      /* the first of them runs, else a random one */
    Thread *self;                    /* which runs; NULL: none */
    Fiber main, *previous;           /* previous: the one that ran before */
    uint64_t random;
    std::string fault;
};

Launch now;
Thread threads[max_threads];
Warp warps[max_threads / warp];
uint64_t launches;

/* ---- random order ---- */

uint64_t seed()
{
    static const uint64_t value = random_seed("CAIRN_TEST_FIBER_SEED");
    return value;
}

/* Below n, which has at most 32 bits. */
uint64_t random_below(uint64_t n)
{
    now.random += random_step;
    return (random_mix(now.random) >> 32) * n >> 32;
}

uint64_t common_divisor(uint64_t a, uint64_t b) { return b ? common_divisor(b, a % b) : a; }

/* ---- switching ---- */

void make_ready(Thread *t)
{
    int i = static_cast<int>(t - threads);
    Warp *w = &warps[i / warp];
    t->state = READY;
    w->queue[w->ready++] = i;
    now.ready |= 1u << w->rank;
}

Thread *take_ready()
{
    uint32_t left = now.ready;
    if (!now.eager)
        for (uint64_t skipped = random_below(static_cast<uint64_t>(__builtin_popcount(left))); skipped > 0; skipped--)
            left &= left - 1;
    Warp *w = &warps[now.warp_of[__builtin_ctz(left)]];
    int *place = &w->queue[random_below(static_cast<uint64_t>(w->ready))], i = *place;
    *place = w->queue[--w->ready];
    if (w->ready == 0) now.ready &= ~(1u << w->rank);
    return &threads[i];
}

/* Every other block lets one warp run as far ahead of the next as it can; in the others warps keep about the same pace.
 */
void order_warps()
{
    int n = (now.n + warp - 1) / warp;
    now.ready = 0;
    now.eager = random_below(2) == 0;
    for (int i = 0; i < n; i++) {
        int j = static_cast<int>(random_below(static_cast<uint64_t>(i) + 1));
        now.warp_of[i] = now.warp_of[j];
        now.warp_of[j] = i;
    }
    for (int rank = 0; rank < n; rank++) {
        Warp *w = &warps[now.warp_of[rank]];
        w->rank = rank;
        w->ready = w->n = 0;
    }
}

/* Runs another ready thread; without one the launch's own fiber continues. */
void give_way()
{
    Thread *from = now.self, *to = nullptr;
    if (now.ready && now.fault.empty()) to = take_ready();
    if (from && from == to) return;
    now.self = to;
    if (to) threadIdx = to->index;
    now.previous = from ? &from->fiber : &now.main;
    fiber_switch(now.previous, to ? &to->fiber : &now.main, from && from->state == ENDED);
}

void thread_end()
{
    now.self->state = ENDED;
    now.ended++;
    give_way();
}

/* Keeps nothing on its own frame: a frame that is never left must hide nothing from AddressSanitizer. */
void thread_entry()
{
    fiber_entered(now.previous);
    (*now.body)();
    thread_end();
    abort();
}

/* ---- faults ---- */

std::string printed(const char *format, va_list args)
{
    char text[2000];
    vsnprintf(text, sizeof text, format, args);
    return text;
}

std::string print(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    std::string text = printed(format, args);
    va_end(args);
    return text;
}

std::string place(CudaHostPlace at) { return print("%s:%d", at.file, at.line); }

std::string name_of(const Thread *t) { return print("thread (%u,%u,%u)", t->index.x, t->index.y, t->index.z); }

/* "waits in __syncthreads (file:line)" */
std::string doing(const Thread *t)
{
    if (t->state == ENDED) return "has ended";
    if (t->state == READY) return "runs";
    const char *what = t->state == AT_BARRIER ? "__syncthreads" : t->kind->name;
    return print("waits in %s (%s)", what, place(t->at).c_str());
}

bool same(CudaHostPlace a, CudaHostPlace b)
{
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

/* Why no thread can run. */
std::string deadlock()
{
    for (int i = 0; i < now.n; i++) {
        const Thread *t = &threads[i];
        if (t->state != AT_COLLECTIVE) continue;
        for (int lane = 0; lane < warp; lane++) {
            int other = i / warp * warp + lane;
            if (!(t->mask >> lane & 1)) continue;
            std::string why = other >= now.n ? print("does not exist: the block has %d threads", now.n)
                              : threads[other].state == AT_COLLECTIVE ? ""
                                                                      : doing(&threads[other]);
            if (why.empty()) continue;
            return name_of(t) + " " + doing(t) + print(" with mask 0x%08x for lane %d, which ", t->mask, lane) + why +
                   "; every lane of a mask must come";
        }
    }
    for (int i = 0; i < now.n; i++) {
        const Thread *t = &threads[i];
        for (int j = 0; t->state == AT_COLLECTIVE && t->kind->resolve_group && j < warps_of_group; j++) {
            int other = (i / warp / warps_of_group * warps_of_group + j) * warp;
            if (other < now.n && threads[other].state == AT_COLLECTIVE && threads[other].kind == t->kind) continue;
            return name_of(t) + " " + doing(t) + print(" for warp %d of its warpgroup, which ", j) +
                   (other < now.n ? doing(&threads[other]) : "does not exist") + "; all four warps must come";
        }
    }
    const Thread *waits = nullptr, *other = nullptr;
    for (int i = now.n - 1; i >= 0; i--) (threads[i].state == AT_BARRIER ? waits : other) = &threads[i];
    return print("__syncthreads (%s) was reached by %d of the block's %d threads; ", place(waits->at).c_str(),
                 now.barrier, now.n) +
           name_of(other) + " " + doing(other) + "; all threads of a block must reach each barrier";
}

Status fail_launch(const std::string &why)
{
    return fail(E_FAIL, "kernel %s, launched at %s: %s", now.kernel->name, place(now.kernel->at).c_str(), why.c_str());
}

/* ---- blocks ---- */

void block_begin(uint3 index, size_t dynamic)
{
    blockIdx = index;
    now.barrier = now.ended = 0;
    now.self = nullptr;
    shared_begin(dynamic);
    order_warps();
    unsigned x = 0, y = 0, z = 0;
    for (int i = 0; i < now.n; i++) {
        threads[i].index = make_uint3(x, y, z);
        fiber_init(&threads[i].fiber, i, thread_entry);
        make_ready(&threads[i]);
        if (++x < blockDim.x) continue;
        x = 0;
        if (++y < blockDim.y) continue;
        y = 0;
        z++;
    }
}

Status block_run(uint3 index, size_t dynamic)
{
    block_begin(index, dynamic);
    give_way();
    if (now.fault.empty() && now.ended < now.n) now.fault = deadlock();
    if (now.fault.empty()) now.fault = shared_end();
    if (now.fault.empty()) return OK;
    for (int i = 0; i < now.n; i++) fiber_forget(&threads[i].fiber);
    std::string fault;
    fault.swap(now.fault);
    return fail_launch(print("block (%u,%u,%u) of %u threads: ", index.x, index.y, index.z, (unsigned)now.n) + fault +
                       print(" [CAIRN_TEST_FIBER_SEED=%llu]", (unsigned long long)seed()));
}

Status check_launch(dim3 grid, dim3 block, size_t shared)
{
    uint64_t n = uint64_t{block.x} * block.y * block.z;
    if (n == 0 || n > max_threads || block.z > 64)
        return fail_launch(print("a block of %ux%ux%u threads; it may have 1 to %d, 64 of them in z", block.x, block.y,
                                 block.z, max_threads));
    if (grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
        return fail_launch(
            print("a grid of %ux%ux%u blocks; it may have at most 2147483647 x 65535 x 65535", grid.x, grid.y, grid.z));
    if (shared > shared_most())
        return fail_launch(print("%zu bytes of dynamic shared memory; a block has at most %zu", shared, shared_most()));
    return OK;
}

/* The four warps of the warp's warpgroup are at `kind`, at one place: runs it, and all go on. */
void resolve_warpgroup(int first, const CudaHostCollective *kind, CudaHostPlace at)
{
    void *brought[warps_of_group * warp];
    if (first + warps_of_group > (now.n + warp - 1) / warp) return;
    for (int i = 0; i < warps_of_group; i++) {
        const Warp *w = &warps[first + i];
        if (w->n != 1 || w->group[0].kind != kind || w->group[0].here != w->group[0].mask) return;
        if (!same(w->group[0].at, at))
            cuda_host_fault(at, "%s: warp %d of the warpgroup is at %s:%d", kind->name, i, w->group[0].at.file,
                            w->group[0].at.line);
        std::copy_n(w->group[0].brought, warp, brought + i * warp);
    }
    kind->resolve_group(brought, at);
    for (int i = 0; i < warps_of_group; i++) warps[first + i].n = 0;
    for (int i = 0; i < warps_of_group * warp; i++) make_ready(&threads[first * warp + i]);
}

/* Notes the arrival of a thread; true when the group is complete. */
bool join(Group *g, unsigned lane, void *mine)
{
    g->here |= 1u << lane;
    g->brought[lane] = mine;
    return g->here == g->mask;
}

/* The group of this collective in the warp, made if absent. Faults where the lanes are in another collective. */
Group *group_of(Warp *w, const CudaHostCollective *kind, unsigned mask, CudaHostPlace at)
{
    for (int i = 0; i < w->n; i++) {
        Group *g = &w->group[i];
        if (!(g->mask & mask)) continue;
        if (g->kind == kind && g->mask == mask && same(g->at, at)) return g;
        cuda_host_fault(at,
                        "lanes of one warp have met two collectives: %s with mask 0x%08x here, %s with mask 0x%08x at "
                        "%s:%d; lanes of a mask must come to the same one",
                        kind->name, mask, g->kind->name, g->mask, g->at.file, g->at.line);
    }
    Group *g = &w->group[w->n++];
    *g = Group{kind, at, mask, 0, {nullptr}};
    return g;
}
} // namespace

/* ---- launches ---- */

Status cuda_host_run(const CudaHostKernel &kernel, dim3 grid, dim3 block, size_t shared,
                     const std::function<void()> &body)
{
    CHECK(!now.kernel, "kernel %s is launched by kernel %s", kernel.name, now.kernel->name);
    now.kernel = &kernel;
    now.body = &body;
    now.random = random_mix(seed() + random_step * ++launches);
    Status status = check_launch(grid, block, shared);
    uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    if (status == OK && blocks > 0) {
        gridDim = grid;
        blockDim = block;
        now.n = static_cast<int>(block.x * block.y * block.z);
        uint64_t i = random_below(blocks), step;
        do step = 1 + random_below(blocks);
        while (common_divisor(step, blocks) != 1);
        for (uint64_t done = 0; done < blocks && status == OK; done++, i = (i + step) % blocks)
            status = block_run(make_uint3(static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                                          static_cast<unsigned>(i / grid.x / grid.y)),
                               shared);
    }
    now.kernel = nullptr;
    return status;
}

/* ---- functions that threads call ---- */

void cuda_host_fault(CudaHostPlace at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    now.fault = name_of(now.self) + " at " + place(at) + ": " + printed(format, args);
    va_end(args);
    give_way();
    abort();
}

int cuda_host_thread() { return static_cast<int>(now.self - threads); }
int cuda_host_lane() { return cuda_host_thread() % warp; }

void __syncthreads(CudaHostPlace at)
{
    Thread *self = now.self;
    self->state = AT_BARRIER;
    self->at = at;
    if (++now.barrier == now.n) {
        now.barrier = 0;
        shared_barrier(now.n);
        for (int i = 0; i < now.n; i++) {
            if (!same(threads[i].at, at))
                cuda_host_fault(at,
                                "the block waits at two barriers: here, and thread (%u,%u,%u) at %s:%d; all must wait "
                                "at the same one",
                                threads[i].index.x, threads[i].index.y, threads[i].index.z, threads[i].at.file,
                                threads[i].at.line);
            make_ready(&threads[i]);
        }
    }
    give_way();
}

void cuda_host_collect(const CudaHostCollective *kind, unsigned mask, void *mine, CudaHostPlace at)
{
    Thread *self = now.self;
    Warp *w = &warps[cuda_host_thread() / warp];
    unsigned lane = static_cast<unsigned>(cuda_host_lane());
    if (!(mask >> lane & 1))
        cuda_host_fault(at, "%s: mask 0x%08x is without the caller, lane %u", kind->name, mask, lane);
    Group *g = group_of(w, kind, mask, at);
    self->state = AT_COLLECTIVE;
    self->at = at;
    self->kind = kind;
    self->mask = mask;
    bool complete = join(g, lane, mine);
    if (complete && kind->resolve_group)
        resolve_warpgroup(cuda_host_thread() / warp / warps_of_group * warps_of_group, kind, at);
    else if (complete) {
        if (kind->resolve) kind->resolve(g->brought, mask, at);
        for (int i = 0; i < warp; i++)
            if (mask >> i & 1) make_ready(&threads[cuda_host_thread() / warp * warp + i]);
        *g = w->group[--w->n];
    }
    give_way();
}

/* ---- collectives ---- */

namespace
{
struct Vote {
    bool predicate;
    unsigned ballot;
};

void resolve_vote(void *const lane[warp], unsigned, CudaHostPlace)
{
    unsigned ballot = 0;
    for (int i = 0; i < warp; i++)
        if (lane[i] && static_cast<const Vote *>(lane[i])->predicate) ballot |= 1u << i;
    for (int i = 0; i < warp; i++)
        if (lane[i]) static_cast<Vote *>(lane[i])->ballot = ballot;
}

unsigned vote(const CudaHostCollective *kind, unsigned mask, int predicate, CudaHostPlace at)
{
    Vote mine = {predicate != 0, 0};
    cuda_host_collect(kind, mask, &mine, at);
    return mine.ballot;
}

struct Shuffle {
    uint64_t bits, found;
    int source;
};

void resolve_shuffle(void *const lane[warp], unsigned mask, CudaHostPlace at)
{
    for (int i = 0; i < warp; i++) {
        Shuffle *s = static_cast<Shuffle *>(lane[i]);
        if (!s) continue;
        if (!lane[s->source])
            cuda_host_fault(at, "lane %d reads lane %d, which is not in the shuffle's mask 0x%08x", i, s->source, mask);
        s->found = static_cast<const Shuffle *>(lane[s->source])->bits;
    }
}

const CudaHostCollective syncwarp = {"__syncwarp", nullptr}, ballot_sync = {"__ballot_sync", resolve_vote},
                         any_sync = {"__any_sync", resolve_vote}, all_sync = {"__all_sync", resolve_vote};
} // namespace

const CudaHostCollective cuda_host_shfl = {"__shfl_sync", resolve_shuffle},
                         cuda_host_shfl_up = {"__shfl_up_sync", resolve_shuffle},
                         cuda_host_shfl_down = {"__shfl_down_sync", resolve_shuffle},
                         cuda_host_shfl_xor = {"__shfl_xor_sync", resolve_shuffle};

uint64_t cuda_host_shuffle(const CudaHostCollective *kind, unsigned mask, uint64_t bits, int source, CudaHostPlace at)
{
    if (source < 0 || source >= warp) cuda_host_fault(at, "%s: lane %d does not exist", kind->name, source);
    Shuffle mine = {bits, 0, source};
    cuda_host_collect(kind, mask, &mine, at);
    return mine.found;
}

void __syncwarp(unsigned mask, CudaHostPlace at) { cuda_host_collect(&syncwarp, mask, nullptr, at); }
unsigned __ballot_sync(unsigned mask, int predicate, CudaHostPlace at)
{
    return vote(&ballot_sync, mask, predicate, at);
}
int __any_sync(unsigned mask, int predicate, CudaHostPlace at) { return vote(&any_sync, mask, predicate, at) != 0; }
int __all_sync(unsigned mask, int predicate, CudaHostPlace at) { return vote(&all_sync, mask, predicate, at) == mask; }
