/* A backend is a table of functions for the ops in op.h. `ref` (plain loops) is always built and is the specification;
   others start as a copy of the table and override. A missing op is an error when a plan is bound.

   Life: backend_open loads and initialises it (once per process and name); after that its functions are called from the
   step's thread only. Backends other than ref are modules, loaded at run time, that export `cairn_backend_<name>`. */
#ifndef CAIRN_KERNELS_BACKEND_H
#define CAIRN_KERNELS_BACKEND_H

#include "base/base.h"
#include "kernels/device.h"
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

    Device *device; /* NULL: the ops work in the host's memory, and are done when they return */

    /* Instead of open: scratch answers as on a device of this compute capability (its major number), which need not be
       here. NULL: scratch depends on no device. */
    void (*imagine)(int major);

    /* After open: */
    bool tf32, cudnn; /* fp32 products are TF32's; attention without dropout is cuDNN's */
    int threads;
    char describe[160]; /* library versions, instruction set, threads: part of the fingerprint */
} Backend;

/* A module exports `const uint64_t cairn_module_abi = BACKEND_ABI`: one that was built with other tables is refused. */
#define BACKEND_ABI                                                                                                    \
    ((uint64_t)sizeof(Backend) << 40 | (uint64_t)sizeof(Device) << 28 | (uint64_t)sizeof(OpCall) << 12 |               \
     (uint64_t)N_OPS)
extern const uint64_t cairn_module_abi;

/* "ref", "cpu", "cuda", or "auto": the first of cuda, cpu, ref that opens; that there is no cuda is nothing to speak
   of. `why` of a refusal is in the status message. */
Status backend_open(const char *name, const BackendOptions *options, Backend **backend);
void backend_close(Backend *b);
/* The table of a backend that is not opened: for plans of a device that is not here. Only bucket, copy_bytes, supports,
   imagine and the ops' scratch may be called. E_USAGE where this build has no such module. */
Status backend_table(const char *name, Backend *table);

/* Memory of a region that the ops work in: zeroed, touched, 4096-byte aligned; of the device where there is one. */
Status backend_alloc(const Backend *b, size_t bytes, void **p);
void backend_release(const Backend *b, void *p, size_t bytes);
/* Host → region; region → host. In order with the ops that ran before. E_FAIL where the device failed. */
Status backend_upload(const Backend *b, void *to, const void *from, size_t bytes);
Status backend_download(const Backend *b, void *to, const void *from, size_t bytes);
Status backend_wait(const Backend *b); /* until every op that was called is done; E_FAIL says what failed */

/* It has memory of its own: of what a run takes there, and of what the machine is asked for, there are two accounts. */
static inline bool backend_own_memory(const Backend *b) { return b && b->device; }

/* It can offload: a lane copies while another computes. */
static inline bool backend_offloads(const Backend *b) { return b && b->device && b->device->lane; }

/* What products are made in, for people and fingerprints: TF32 is a way to make those of F32. */
static inline const char *backend_precision(const Backend *b, Dtype compute)
{
    return b && b->tf32 && compute == F32 ? "tf32" : dtype_name(compute);
}

/* ref's table, for others to copy. */
void backend_ref_table(Backend *b);

#endif
