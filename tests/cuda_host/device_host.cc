/* The host twin of kernels/cuda/device.cu and device_memory.cu: device memory is host memory between guard bytes (under
   AddressSanitizer an allocation of exactly its size); lanes and graphs are the host executor's. */
#include "cuda_host.h"

extern "C" {
#include "kernels/cuda/device.h"
}

#include <sys/mman.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "cuda_host/stream.h"

#define GUARD      ((size_t)4096)
#define GUARD_BYTE 0xc7

#if defined(__SANITIZE_ADDRESS__)
#    define EXACT 1
#else
#    define EXACT 0
#endif

struct Block {
    char *start; /* returned by device_alloc */
    size_t bytes;
    Block *next;
};

static struct {
    DeviceInfo info;
    Block *blocks;
    size_t libraries; /* bytes that they have taken */
} device;
static Block *pinned; /* of the host */

/* CAIRN_TEST_CUDA_HOST_FAR: only queued work and copies reach the device's memory; the host that touches it itself gets
   a SIGSEGV. Not under AddressSanitizer, whose heap has other things in the same pages. */
static bool far_away;
static_assert(cuda_host_lanes == DEVICE_LANES, "the executor's lanes are the device's");
static int reaching; /* nested */

static void protect(const Block *b, bool open)
{
    size_t pages = (b->bytes + GUARD - 1) / GUARD * GUARD;
    CHECK(mprotect(b->start, pages, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0, "mprotect failed");
}

static void reach(bool open)
{
    reaching += open ? 1 : -1;
    for (const Block *b = device.blocks; b && reaching == (open ? 1 : 0); b = b->next) protect(b, open);
}

namespace
{
struct Reach {
    Reach()
    {
        if (far_away) reach(true);
    }
    ~Reach()
    {
        if (far_away) reach(false);
    }
};
} // namespace

const DeviceInfo *device_info(void) { return &device.info; }

/* Work that is queued from outside is dropped once nothing refers to it. */
static void queue_outside(const CudaHostStream *stream, bool (*run)(void *), void (*drop)(void *), void *work)
{
    std::shared_ptr<void> held(work, drop);
    auto reaching_run = [=] {
        Reach reached;
        return run(held.get());
    };
    CHECK(cuda_host_submit_when(stream->lane, reaching_run) == OK, "%s", status_message());
}

void *device_stream(Device *)
{
    static CudaHostStream streams[DEVICE_LANES];
    CudaHostStream *s = &streams[cuda_host_lane_chosen()];
    *s = {queue_outside, cuda_host_lane_chosen()};
    return s;
}

/* ---- opening: one GPU, or as many as CAIRN_TEST_CUDA_HOST_GPUS ---- */

Status device_open(int local_rank)
{
    const char *set = getenv("CAIRN_TEST_CUDA_HOST_GPUS");
    int gpus = set ? atoi(set) : 1;
    bool any = getenv("CAIRN_SHARED_GPU") || (gpus == 1 && getenv("CUDA_VISIBLE_DEVICES"));
    int gpu = any && gpus > 0 ? local_rank % gpus : local_rank;
    if (gpu >= gpus)
        return fail(E_USAGE, "backend 'cuda_host': local rank %d needs GPU %d, but there are %d", local_rank,
                    local_rank, gpus);
    strcpy(device.info.name, "host executor");
    snprintf(device.info.bus, sizeof device.info.bus, "00000000:%02X:00.0", (unsigned)gpu & 0xff);
    snprintf(device.info.unit, sizeof device.info.unit, "host executor %d", gpu);
    const char *major = getenv("CAIRN_TEST_CUDA_HOST_MAJOR"); /* of the compute capability */
    device.info.major = major ? atoi(major) : 9;
    device.info.minor = device.info.major == 7 ? 5 : 0;
    device.info.shared = (size_t)(device.info.major == 7 ? 64 : device.info.major == 8 ? 99 : 227) << 10;
    cuda_host_set_shared(device.info.shared);
    device.info.multiprocessors = 4;
    const char *mib = getenv("CAIRN_TEST_CUDA_HOST_DEVICE");
    device.info.memory = mib ? (size_t)atoi(mib) << 20 : (size_t)1 << 40;
    device.info.driver = device.info.runtime = CUDART_VERSION;
    far_away = getenv("CAIRN_TEST_CUDA_HOST_FAR") && !EXACT;
    cuda_host_set_reach(far_away ? reach : nullptr);
    return OK;
}

size_t device_used(Device *)
{
    size_t bytes = device.libraries;
    for (const Block *b = device.blocks; b; b = b->next) bytes += b->bytes;
    return bytes;
}

static size_t available(Device *d)
{
    size_t used = device_used(d);
    return device.info.memory > used ? device.info.memory - used : 0;
}

void device_measure_memory(Device *d)
{
    device.info.context = device_used(d);
    device.info.free = available(d);
}

void cuda_host_load(size_t bytes) { device.libraries += bytes; }

/* ---- memory ---- */

static bool guards_whole(const Block *b)
{
    for (size_t i = 0; !EXACT && i < GUARD; i++)
        if (static_cast<unsigned char>(b->start[i - GUARD]) != GUARD_BYTE ||
            static_cast<unsigned char>(b->start[b->bytes + i]) != GUARD_BYTE)
            return false;
    return true;
}

static Status check_guards(void)
{
    Reach reached;
    for (const Block *list : {device.blocks, pinned})
        for (const Block *b = list; b; b = b->next)
            if (!guards_whole(b))
                return fail(E_FAIL, "something was written before or behind an allocation of %zu bytes", b->bytes);
    return OK;
}

/* Under AddressSanitizer the allocator's own red zones lie right before and behind. */
static char *allocate(size_t bytes)
{
    size_t guard = EXACT ? 0 : GUARD, size = (bytes + 2 * guard + GUARD - 1) / GUARD * GUARD;
    void *p = nullptr;
    if (EXACT) return posix_memalign(&p, GUARD, bytes ? bytes : 1) == 0 ? static_cast<char *>(p) : nullptr;
    p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    char *start = static_cast<char *>(p) + guard;
    memset(start - guard, GUARD_BYTE, guard);
    memset(start + bytes, GUARD_BYTE, guard);
    return start;
}

static void deallocate(char *start, size_t bytes)
{
    if (EXACT)
        free(start);
    else
        munmap(start - GUARD, (bytes + 2 * GUARD + GUARD - 1) / GUARD * GUARD);
}

Status device_alloc(Device *d, size_t bytes, void **p)
{
    *p = nullptr;
    static const char *least = getenv("CAIRN_TEST_CUDA_HOST_LEAST"); /* smaller allocations fail */
    size_t room = least && bytes < (size_t)atoi(least) ? 0 : available(d);
    char *start = bytes > room ? nullptr : allocate(bytes);
    if (!start) return fail(E_MEMORY, "the host executor has no %zu bytes; it has %zu", bytes, room);
    memset(start, 0, EXACT ? bytes : 0); /* a mapping is zero */
    device.blocks = new Block{start, bytes, device.blocks};
    if (far_away) protect(device.blocks, false);
    *p = start;
    return OK;
}

static void release(Block **blocks, void *p)
{
    CHECK(cuda_host_wait() == OK, "%s", status_message());
    Reach reached;
    for (Block **at = blocks; p && *at; at = &(*at)->next) {
        Block *b = *at;
        if (b->start != p) continue;
        CHECK(guards_whole(b), "something was written before or behind an allocation of %zu bytes", b->bytes);
        *at = b->next;
        deallocate(b->start, b->bytes);
        delete b;
        return;
    }
    CHECK(!p, "%p was not allocated here", p);
}

void device_release(Device *, void *p, size_t) { release(&device.blocks, p); }

void device_close(void)
{
    (void)cuda_host_wait();
    device.libraries = 0;
}

/* On the compute lane, whatever lane was chosen. `from` may change when it returns. */
Status device_upload(Device *, void *to, const void *from, size_t bytes)
{
    const char *start = static_cast<const char *>(from);
    std::vector<char> kept(start, start + bytes);
    return cuda_host_submit_to(0, [to, kept]() -> Status {
        memcpy(to, kept.data(), kept.size());
        return OK;
    });
}

Status device_download(Device *, void *to, const void *from, size_t bytes)
{
    TRY(cuda_host_wait_lane(0));
    TRY(check_guards());
    Reach reached;
    memcpy(to, from, bytes);
    return OK;
}

Status device_wait(Device *)
{
    TRY(cuda_host_wait());
    return check_guards();
}

void device_memory(Device *, size_t *total, size_t *available, size_t *context)
{
    *total = device.info.memory;
    *available = device.info.free;
    *context = device.info.context;
}

/* ---- lanes ---- */

Status device_choose_lane(Device *, int lane) { return cuda_host_lane_choose(lane); }
Status device_event_record(Device *, int slot) { return cuda_host_event_record(slot); }
Status device_event_wait(Device *, int slot) { return cuda_host_event_wait(slot); }
Status device_event_done(Device *, int slot, bool *done) { return cuda_host_event_done(slot, done); }

Status cuda_copy(void *to, const void *from, size_t bytes)
{
    return cuda_host_submit([=]() -> Status {
        memcpy(to, from, bytes);
        return OK;
    });
}

Status device_copy(Device *, void *to, const void *from, size_t bytes) { return cuda_copy(to, from, bytes); }

Status cuda_clear(void *p, size_t bytes)
{
    return cuda_host_submit([=]() -> Status {
        memset(p, 0, bytes);
        return OK;
    });
}

Status device_pin(Device *, size_t bytes, void **p)
{
    *p = allocate(bytes);
    if (!*p) return fail(E_MEMORY, "the host executor has no %zu bytes to pin", bytes);
    memset(*p, 0, EXACT ? bytes : 0); /* a mapping is zero */
    pinned = new Block{static_cast<char *>(*p), bytes, pinned};
    return OK;
}

void device_unpin(Device *, void *p, size_t) { release(&pinned, p); }

/* ---- launches and graphs ---- */

Status cuda_launched(const char *, int) { return OK; }
bool cuda_launchable(const void *, unsigned x, unsigned y, unsigned z, size_t) { return x && y && z; }
bool cuda_list_kernel(const void *) { return true; }

Status device_capture_begin(Device *) { return cuda_host_capture_begin(); }

/* CUDA may wait until the device is idle, and a pipeline's message may be waiting for a rank that waits for this one.
 */
Status device_capture_end(Device *, void **graph)
{
    CHECK(!cuda_host_waits_outside(DEVICE_LINKS), "a graph is made while a message between GPUs waits");
    CudaHostGraph *made = nullptr;
    Status status = cuda_host_capture_end(&made);
    *graph = made;
    return status;
}

Status device_graph_launch(Device *, void *graph)
{
    return cuda_host_graph_launch(static_cast<CudaHostGraph *>(graph));
}
void device_graph_free(Device *, void *graph) { cuda_host_graph_free(static_cast<CudaHostGraph *>(graph)); }

/* ---- marks ---- */

static std::vector<double> marks;

Status device_mark(Device *, int lane, int slot)
{
    size_t at = static_cast<size_t>(slot);
    if (at >= marks.size()) marks.resize(at + 1);
    return cuda_host_submit_to(lane, [at]() -> Status {
        marks[at] = clock_monotonic();
        return OK;
    });
}

Status device_mark_times(Device *, double *seconds, int n)
{
    TRY(cuda_host_wait());
    CHECK(static_cast<size_t>(n) <= marks.size(), "%d marks are read, %zu were set", n, marks.size());
    for (int i = 0; i < n; i++) seconds[i] = marks[static_cast<size_t>(i)];
    return OK;
}
