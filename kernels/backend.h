/* A backend is a table of functions for the ops in op.h. `ref` (plain loops) is always built and is the specification;
   others start as a copy of the table and override. A missing op is an error when a plan is bound.

   Life: backend_open loads and initialises it (once per process and name); after that its functions are called from the
   step's thread only. Backends other than ref are modules, loaded at run time, that export `cairn_backend_<name>`. */
#ifndef CAIRN_KERNELS_BACKEND_H
#define CAIRN_KERNELS_BACKEND_H

#include "base/base.h"
#include "kernels/op.h"

typedef Status OpRun(const OpCall *call, const RowCounts *rows);
/* Makes what the op needs for every bucket (primitives, algorithms). Called while nothing in the call's outputs and
   scratch is needed: it may write there, to time what it chooses from. Operands have room for the largest bucket. */
typedef Status OpPrepare(const OpCall *call, const RowCounts *buckets, int n_buckets);

/* An op of a backend. All NULL: the backend has no such op. */
typedef struct {
    OpRun *run;
    OpScratch *scratch;
    OpPrepare *prepare;
} OpImpl;

/* For the tables: an op that needs neither. */
static inline size_t no_scratch(const OpCall *call, const RowCounts *rows)
{
    (void)call;
    (void)rows;
    return 0;
}
static inline Status no_prepare(const OpCall *call, const RowCounts *buckets, int n_buckets)
{
    (void)call;
    (void)buckets;
    (void)n_buckets;
    return OK;
}

/* Who makes ATTENTION: the backend as it thinks best, its own kernels, or cuDNN's. */
typedef enum { ATTENTION_AUTO, ATTENTION_OWN, ATTENTION_CUDNN } AttentionKind;

typedef struct {
    int threads;    /* 0: what the machine offers this process */
    int local_rank; /* chooses the device */
    bool tf32;      /* fp32 products may round their operands to TF32; backend_open refuses it where there are none */
    AttentionKind attention; /* as tf32 */
} BackendOptions;

/* How a device is doing. NaN: it does not tell. */
typedef struct {
    double sm_mhz, memory_mhz; /* clocks */
    double watts, celsius;
    double memory_bytes; /* in use, by everyone */
} DeviceSample;

typedef struct Backend {
    const char *name;
    OpImpl op[N_OPS];

    Status (*open)(struct Backend *b,
                   const BackendOptions *options); /* E_USAGE with the reason if it cannot run here */
    void (*close)(struct Backend *b);

    /* Compute types it runs fast (best first; the default precision is the first) and those it can run at all. */
    bool (*supports)(const struct Backend *b, Dtype compute, char *why_not, size_t size);
    Dtype (*best_compute)(const struct Backend *b);

    /* Rows of tokens a micro-batch of `n` tokens is rounded up to; never above `capacity`, which is itself a bucket. */
    int64_t (*bucket)(int64_t n, int64_t capacity);
    /* Bytes of a compute copy of an (n, k) weight; 0 for transposed means: DGRAD uses the forward copy. */
    size_t (*copy_bytes)(Dtype compute, int64_t n, int64_t k, bool transposed);

    /* Memory of a region, but of `save` and `host`, which are host memory always: zeroed, pre-faulted, 4096-byte
     * aligned. */
    Status (*alloc)(size_t bytes, void **p);
    void (*release)(void *p, size_t bytes);
    /* Host → region; region → host. In order with the ops that ran before. E_FAIL where the device failed. */
    Status (*upload)(void *to, const void *from, size_t bytes);
    Status (*download)(void *to, const void *from, size_t bytes);
    bool device; /* its regions are not host memory: only upload and download reach them */
    /* Bytes of the device, free when it was opened, taken by its context and libraries. NULL: it has the machine's. */
    void (*memory)(size_t *total, size_t *available, size_t *context);
    size_t (*used)(void); /* bytes of it that this process takes now; there where `memory` is */
    Status (*wait)(void); /* until all that was run is done; E_FAIL says what failed. NULL: run has waited */

    /* Lanes beside the compute lane, which work at the same time. `lane` says to which the ops, records and waits that
       follow belong; uploads, downloads and graphs are the compute lane's always. An event is of the place where its
       lane was when it was last recorded; a lane that waits for it goes on only after that. Slots are small numbers.
       `pin` gives host memory that OFFLOAD and FETCH reach: zeroed, 4096-byte aligned. All NULL where there is but one
       lane: then everything runs in the order of the plan, and `offload` is no policy. */
    Status (*lane)(int lane);
    Status (*event_record)(int slot);
    Status (*event_wait)(int slot);
    Status (*pin)(size_t bytes, void **p);
    void (*unpin)(void *p, size_t bytes);
    /* For what goes from GPU to GPU: the stream (cudaStream_t) of the lane that was chosen; has the lane got to where
       the event was recorded? `settle` measures anew what `memory` tells, before any region was allocated. `unit` names
       the device among all there are. NULL, "": not to be had. */
    void *(*stream)(void);
    Status (*event_done)(int slot, bool *done);
    void (*settle)(void);
    char unit[80]; /* after open */

    /* Graphs: ops that run between begin and end are not done but become one graph, which is launched as often as
       wanted. All NULL where there are none. A failed capture is ended by capture_end too, with *graph NULL. */
    Status (*capture_begin)(void);
    Status (*capture_end)(void **graph);
    Status (*graph_launch)(void *graph);
    void (*graph_free)(void *graph);

    /* Instead of open: scratch answers as on a device of this compute capability (its major number), which need not be
       here. NULL: scratch depends on no device. */
    void (*imagine)(int major);

    bool tf32, cudnn;   /* after open: fp32 products are TF32's; attention without dropout is cuDNN's */
    int threads;        /* after open */
    char describe[160]; /* after open: library versions, instruction set, threads: part of the fingerprint */

    /* For profiles; each may be NULL. A mark notes when a lane gets to where it was set; slot 0, set first, ties the
       device's clock to the host's (it waits), the others follow in any order. mark_times waits for slots 0 … n − 1 and
       gives them as seconds of clock_monotonic. NULL: run has waited, and the host's clock tells. */
    Status (*mark)(int lane, int slot);
    Status (*mark_times)(double *seconds, int n); // (n)
    /* How the device is doing now; from any one thread at a time. E_FAIL says why that cannot be known. */
    Status (*sample)(DeviceSample *s);
    /* Names for a profiler that watches from outside (NVTX): they nest. */
    void (*range_begin)(const char *name);
    void (*range_end)(void);
    bool ranges; /* after open: they are wanted at all times, not only in a profile */
} Backend;

/* A module exports `const uint64_t cairn_module_abi = BACKEND_ABI`: one that was built with other tables is refused. */
#define BACKEND_ABI ((uint64_t)sizeof(Backend) << 32 | (uint64_t)sizeof(OpCall) << 12 | (uint64_t)N_OPS)
extern const uint64_t cairn_module_abi;

/* "ref", "cpu", "cuda", or "auto": the first of cuda, cpu, ref that opens; that there is no cuda is nothing to speak
   of. `why` of a refusal is in the status message. */
Status backend_open(const char *name, const BackendOptions *options, Backend **backend);
void backend_close(Backend *b);
/* The table of a backend that is not opened: for plans of a device that is not here. Only bucket, copy_bytes, supports,
   imagine and the ops' scratch may be called. E_USAGE where this build has no such module. */
Status backend_table(const char *name, Backend *table);

/* It has memory of its own: of what a run takes there, and of what the machine is asked for, there are two accounts. */
static inline bool backend_own_memory(const Backend *b) { return b && b->device && b->memory; }

/* An op is done when its function returns, in memory that the host reaches. */
static inline bool backend_immediate(const Backend *b) { return !b->device && !b->wait; }

/* It can offload: a lane copies while another computes. */
static inline bool backend_offloads(const Backend *b) { return b && b->lane; }

/* What products are made in, for people and fingerprints: TF32 is a way to make those of F32. */
static inline const char *backend_precision(const Backend *b, Dtype compute)
{
    return b && b->tf32 && compute == F32 ? "tf32" : dtype_name(compute);
}

/* ref's table, for others to copy. */
void backend_ref_table(Backend *b);

#endif
