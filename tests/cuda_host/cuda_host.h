/* The CUDA of the host executor, which the .cu sources include through cuda_platform.cuh and so become C++ of the host
   compiler. A fiber is a thread, one block runs at a time, warps have 32 lanes. It is not fast; it shows without a GPU
   that kernels are right. Each launch runs its blocks, and each step of a block its threads, in another order, so that
   a missing barrier shows; the seed is CAIRN_TEST_FIBER_SEED (default 1). Shared memory is all 0xff when a block
   starts, apart from its neighbours, and under AddressSanitizer guarded.

   A launch returns E_FAIL with the place for: a barrier that some thread of the block does not reach; threads that wait
   at two different barriers; a shuffle, vote, __syncwarp or tile whose mask names a lane that never arrives, or that
   arrives at another one; a thread that nobody wakes; a shuffle that reads a lane outside its mask; a mask without the
   caller; a launch the hardware refuses (0 or more than 1024 threads, too large a grid, more than 227 KiB of shared
   memory). An empty grid runs nothing. AddressSanitizer's findings end the process. Without a choice of lanes a launch
   has run when it returns.

   Stricter than the hardware, on purpose: lanes of one collective must be at one line of the source; masks name no
   ended and no absent lanes; CUDA_SHARED arrays have the alignment of their type and no more (for 16-byte accesses
   write CUDA_SHARED(__align__(16) T, name, [n])); only integers are added atomically. At a launch all template
   arguments of the kernel are written out, and null pointers are nullptr. */
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>

extern "C" {
#include "base/status.h"
}

/* CUDA's headers define most of these as attributes that only nvcc knows. */
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __launch_bounds__(...)
#define __grid_constant__

/* ---- where a thread is ---- */

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

/* A place in the source, for messages and to distinguish barriers. */
struct CudaHostPlace {
    const char *file;
    int line;
    static CudaHostPlace here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

/* ---- launches ---- */

struct CudaHostKernel {
    const char *name;
    CudaHostPlace at;
};

/* Runs `body` once per thread. Use CUDA_LAUNCH. */
Status cuda_host_run(const CudaHostKernel &kernel, dim3 grid, dim3 block, size_t shared,
                     const std::function<void()> &body);

/* All device work is submitted here (lanes.cc), in order within its lane: it runs now, or, while a graph is captured,
   is noted and runs in each launch of the graph. The host twin of the device layer submits its copies and products here
   too. From the first choice of a lane until the next cuda_host_wait nothing runs at once: submitted work waits in the
   queue of its lane, and cuda_host_wait runs it. It interleaves the lanes at random as events allow, with one lane or
   another as far ahead as it can be, so that a missing event shows as a wrong result. A graph runs the same way. The
   seed is CAIRN_TEST_LANE_SEED (default 1); every run has another order. Failures show at the wait. */
typedef std::function<Status()> CudaHostWork;
constexpr int cuda_host_lanes = 11;
Status cuda_host_submit(CudaHostWork work); /* to the lane that was chosen; at first 0 */
Status cuda_host_submit_to(int lane, CudaHostWork work);
Status cuda_host_lane_choose(int lane);
Status cuda_host_event_record(int slot);
Status cuda_host_event_wait(int slot); /* E_FAIL if it was never recorded, or, in a graph, outside it */
Status cuda_host_wait();               /* until all submitted work has run */
Status cuda_host_wait_lane(int lane);  /* until that of a lane has run */
/* Work with other processes: its lane, once it gets there, and cuda_host_wait wait until `ready` returns true. Not
   in graphs. */
Status cuda_host_submit_when(int lane, std::function<bool()> ready);
/* Such work is queued on this lane or a later one. */
bool cuda_host_waits_outside(int first_lane);
int cuda_host_lane_chosen();
/* Called with true before each work runs, with false after it; they nest. NULL: nothing is called. */
void cuda_host_set_reach(void (*reach)(bool));
void cuda_host_set_shared(size_t most); /* bytes of a block */
/* Runs the work that need not wait; true: the event is recorded. */
Status cuda_host_event_done(int slot, bool *done);

/* In device_host.cc: a library takes so many bytes of the device. */
void cuda_host_load(size_t bytes);

/* E_FAIL as on a device: for work of a lane that has waited for nothing in the graph; at the end for a lane that the
   first one has not waited for. */
struct CudaHostGraph;
Status cuda_host_capture_begin(); /* E_FAIL if one is being captured */
Status cuda_host_capture_end(CudaHostGraph **graph);
Status cuda_host_graph_launch(const CudaHostGraph *graph);
void cuda_host_graph_free(CudaHostGraph *graph); /* takes NULL */

#define CUDA_STRIP(...) __VA_ARGS__
#define CUDA_TEXT(...)  #__VA_ARGS__
#define CUDA_LAUNCH(kernel, grid, block, shared, ...)                                                                  \
    cuda_host_launch({CUDA_TEXT kernel, {__FILE__, __LINE__}}, CUDA_STRIP kernel, (grid), (block), (shared),           \
                     ##__VA_ARGS__)

/* As for a real launch, arguments are converted to the parameters' types and copied once, here. */
template <typename... P, typename... A>
Status cuda_host_launch(const CudaHostKernel &kernel, void (*function)(P...), dim3 grid, dim3 block, size_t shared,
                        A &&...arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "a launch gives every parameter of its kernel");
    static_assert((std::is_trivially_copyable<P>::value && ...), "arguments of a kernel are copied byte by byte");
    static_assert((sizeof(P) + ... + 0) <= 4096, "a kernel takes at most 4096 bytes of arguments");
    std::tuple<P...> values(std::forward<A>(arguments)...);
    return cuda_host_submit(
        [=] { return cuda_host_run(kernel, grid, block, shared, [&] { std::apply(function, values); }); });
}

/* ---- shared memory ---- */

/* One CUDA_SHARED of one kernel: where its array lies in the block that is running. */
struct CudaHostShared {
    uint64_t block;
    void *array;
};
void *cuda_host_shared(CudaHostShared *site, size_t bytes, size_t align, const char *name, CudaHostPlace at);
void *cuda_host_shared_dynamic();

#define CUDA_SHARED(type, name, ...)                                                                                   \
    typedef type cuda_host_type_##name __VA_ARGS__;                                                                    \
    static CudaHostShared cuda_host_site_##name;                                                                       \
    cuda_host_type_##name &name = *static_cast<cuda_host_type_##name *>(                                               \
        cuda_host_shared(&cuda_host_site_##name, sizeof(cuda_host_type_##name), alignof(cuda_host_type_##name), #name, \
                         CudaHostPlace::here()))
#define CUDA_SHARED_DYNAMIC(type, name) type *name = static_cast<type *>(cuda_host_shared_dynamic())

/* True if these bytes lie in the shared memory of the running block. */
bool cuda_host_is_shared(const void *p, size_t bytes);

/* ---- barriers and collectives ---- */

/* Ends the launch with E_FAIL and this message. */
void cuda_host_fault(CudaHostPlace at, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

void __syncthreads(CudaHostPlace at = CudaHostPlace::here());

/* A collective of a warp: each lane brings a value; when all lanes of the mask have arrived, `resolve` runs once.
   lane[i] is the value of lane i, NULL outside the mask. With `resolve_group` a collective of a warpgroup, which are
   all lanes of four warps: it runs once all 128 have arrived. */
struct CudaHostCollective {
    const char *name;
    void (*resolve)(void *const lane[32], unsigned mask, CudaHostPlace at);
    void (*resolve_group)(void *const thread[128], CudaHostPlace at) = nullptr;
};
void cuda_host_collect(const CudaHostCollective *kind, unsigned mask, void *mine, CudaHostPlace at);
int cuda_host_thread(); /* of the block, counted as CUDA does */
int cuda_host_lane();   /* of its warp */

void __syncwarp(unsigned mask = 0xffffffffu, CudaHostPlace at = CudaHostPlace::here());
unsigned __ballot_sync(unsigned mask, int predicate, CudaHostPlace at = CudaHostPlace::here());
int __any_sync(unsigned mask, int predicate, CudaHostPlace at = CudaHostPlace::here());
int __all_sync(unsigned mask, int predicate, CudaHostPlace at = CudaHostPlace::here());

/* The 64 bits of lane `source` of the warp. */
uint64_t cuda_host_shuffle(const CudaHostCollective *kind, unsigned mask, uint64_t bits, int source, CudaHostPlace at);
extern const CudaHostCollective cuda_host_shfl, cuda_host_shfl_up, cuda_host_shfl_down, cuda_host_shfl_xor;

template <typename T>
T cuda_host_shuffle_value(const CudaHostCollective *kind, unsigned mask, T value, int source, CudaHostPlace at)
{
    static_assert(std::is_arithmetic<T>::value || std::is_same<T, __half>::value || std::is_same<T, __half2>::value ||
                      std::is_same<T, __nv_bfloat16>::value || std::is_same<T, __nv_bfloat162>::value,
                  "CUDA shuffles numbers only");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = cuda_host_shuffle(kind, mask, bits, source, at);
    std::memcpy(static_cast<void *>(&value), &bits, sizeof value);
    return value;
}

/* Lanes are counted within groups of `width`; beyond a group's ends a lane reads itself. */
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, CudaHostPlace at = CudaHostPlace::here())
{
    int first = cuda_host_lane() & ~(width - 1);
    return cuda_host_shuffle_value(&cuda_host_shfl, mask, value, first + (source & (width - 1)), at);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, CudaHostPlace at = CudaHostPlace::here())
{
    int lane = cuda_host_lane(), first = lane & ~(width - 1), source = lane - static_cast<int>(delta);
    return cuda_host_shuffle_value(&cuda_host_shfl_up, mask, value, source < first ? lane : source, at);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, CudaHostPlace at = CudaHostPlace::here())
{
    int lane = cuda_host_lane(), last = lane | (width - 1), source = lane + static_cast<int>(delta);
    return cuda_host_shuffle_value(&cuda_host_shfl_down, mask, value, source > last ? lane : source, at);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, CudaHostPlace at = CudaHostPlace::here())
{
    int lane = cuda_host_lane(), last = lane | (width - 1), source = lane ^ bits;
    return cuda_host_shuffle_value(&cuda_host_shfl_xor, mask, value, source > last ? lane : source, at);
}

/* ---- arithmetic that CUDA has built in ---- */

using std::max;
using std::min;

static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
/* glibc has hidden functions of these names */
#define __expf cuda_host_expf
#define __logf cuda_host_logf
static inline float cuda_host_expf(float x) { return std::exp(x); }
static inline float cuda_host_logf(float x) { return std::log(x); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }

static inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
static inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
static inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
static inline unsigned __umulhi(unsigned x, unsigned y) { return static_cast<unsigned>(uint64_t{x} * y >> 32); }

template <typename T> static inline T __ldg(const T *p) { return *p; }
static inline void __threadfence() {}

/* Of int, unsigned and unsigned long long; threads switch only where they wait. */
template <typename T> T atomicAdd(T *to, T value)
{
    static_assert(std::is_same<T, int>::value || std::is_same<T, unsigned>::value ||
                      std::is_same<T, unsigned long long>::value,
                  "sums of floating point have a fixed order: no atomics");
    T old = *to;
    *to += value;
    return old;
}
