/* The device of a backend whose ops run beside the host: its memory, lanes, events, graphs and marks. A backend that
   computes in the host's memory has none. A function that may be NULL says so. All run on the step's thread, except
   `sample`. E_FAIL: the device failed, now or before. */
#pragma once

#include "base/base.h"

/* Why a clock is below its highest: bits of DeviceSample.throttle, as NVML has them. X(bit, name, SLOWED: it takes
   speed from a busy device). */
#define THROTTLE_LIST(X)                                                                                               \
    X(0x001, "idle", false)                                                                                            \
    X(0x002, "clocks-set", false)                                                                                      \
    X(0x004, "power-cap", true)                                                                                        \
    X(0x008, "hardware", true)                                                                                         \
    X(0x010, "sync-boost", true)                                                                                       \
    X(0x020, "heat", true)                                                                                             \
    X(0x040, "heat-hardware", true)                                                                                    \
    X(0x080, "power-brake", true)                                                                                      \
    X(0x100, "display", false)
#define THROTTLE_UNKNOWN UINT64_MAX

/* State of a device, for people. NaN: unknown. */
typedef struct {
    double sm_mhz, memory_mhz; /* clocks */
    double watts, celsius;
    double memory_bytes;                   /* in use, by everyone */
    uint64_t throttle;                     /* of THROTTLE_LIST, or THROTTLE_UNKNOWN */
    double ecc_corrected, ecc_uncorrected; /* errors of its memory since the driver was loaded */
} DeviceSample;

/* Lanes: those of plans (plan/plan.h) first, then those for links between GPUs, whose work may wait long for another
   rank. */
enum { DEVICE_LINKS = 3, DEVICE_LANES = DEVICE_LINKS + 8 };

/* The functions of a device: X(result, name, arguments), the first of which is the Device.

   Memory. `alloc` gives zeroed memory, 4096-byte aligned; the host reaches it by `upload` and `download` only. These
   run in the order of the compute lane, and `from` may change when `upload` returns. `wait` returns when all lanes are
   idle; E_FAIL: one failed. `memory` gives the bytes of the device, those that were free when it was measured, and
   those that its context and libraries had taken until then; `used` the bytes that this process takes now. Opening
   measures; `measure_memory` runs a product of each type and measures again, before any region is allocated; NULL: not
   needed.

   Lanes beside the compute lane, which work at the same time. `choose_lane` chooses the lane of the ops, records and
   waits that follow. An event marks the place where its lane was when it was last recorded; a lane that waits for it
   continues only after that; `event_done` never waits. Slots are small numbers. `pin` gives host memory for OFFLOAD and
   FETCH: zeroed, 4096-byte aligned. `copy` copies on the chosen lane between memory of `alloc` and `pin`, any way, and
   returns at once. `stream` is the chosen lane's (cudaStream_t), for collectives. All NULL where there is one lane:
   then everything runs in the order of the plan, and nothing can be offloaded.

   Graphs. Ops called between begin and end do not run. They become one graph of the compute lane, which can be launched
   any number of times. `capture_end` also ends a failed capture, with *graph NULL. All NULL where there are none.

   Profiles; each may be NULL. A mark notes when a lane reaches the place where it was set. Slot 0, set first, ties the
   device's clock to the host's (it waits); the others follow in any order. `mark_times` waits for slots 0 … n − 1 and
   gives seconds of clock_monotonic (n). `sample` runs on any one thread at a time; E_FAIL, with the reason: the state
   cannot be read. Ranges are names for an external profiler (NVTX); they nest. */
#define DEVICE_LIST(X)                                                                                                 \
    X(Status, alloc, (Device * d, size_t bytes, void **p))                                                             \
    X(void, release, (Device * d, void *p, size_t bytes))                                                              \
    X(Status, upload, (Device * d, void *to, const void *from, size_t bytes))                                          \
    X(Status, download, (Device * d, void *to, const void *from, size_t bytes))                                        \
    X(Status, wait, (Device * d))                                                                                      \
    X(void, memory, (Device * d, size_t * total, size_t * available, size_t * context))                                \
    X(size_t, used, (Device * d))                                                                                      \
    X(void, measure_memory, (Device * d))                                                                              \
    X(Status, choose_lane, (Device * d, int lane))                                                                     \
    X(Status, event_record, (Device * d, int slot))                                                                    \
    X(Status, event_wait, (Device * d, int slot))                                                                      \
    X(Status, event_done, (Device * d, int slot, bool *done))                                                          \
    X(Status, pin, (Device * d, size_t bytes, void **p))                                                               \
    X(void, unpin, (Device * d, void *p, size_t bytes))                                                                \
    X(Status, copy, (Device * d, void *to, const void *from, size_t bytes))                                            \
    X(void *, stream, (Device * d))                                                                                    \
    X(Status, capture_begin, (Device * d))                                                                             \
    X(Status, capture_end, (Device * d, void **graph))                                                                 \
    X(Status, graph_launch, (Device * d, void *graph))                                                                 \
    X(void, graph_free, (Device * d, void *graph))                                                                     \
    X(Status, mark, (Device * d, int lane, int slot))                                                                  \
    X(Status, mark_times, (Device * d, double *seconds, int n))                                                        \
    X(Status, sample, (Device * d, DeviceSample * s))                                                                  \
    X(void, range_begin, (Device * d, const char *name))                                                               \
    X(void, range_end, (Device * d))

typedef struct Device Device;

struct Device {
    char unit[80]; /* after open: identifies the device among all machines; "": unknown */
    bool ranges;   /* after open: names are wanted at all times, not only in a profile */
#define X(result, name, arguments) result(*name) arguments;
    DEVICE_LIST(X)
#undef X
};
