/* A backend is a table of functions for the ops in op.h. `ref` (plain loops) is always built and is the specification;
   others start as a copy of the table and override. A missing op is an error when a plan is bound.

   Life: backend_open loads and initialises it (once per process and name); after that its functions are called from the
   step's thread only. Backends other than ref are modules, loaded at run time, that export `cairn_backend_<name>`. */
#pragma once

#include "base/base.h"
#include "kernels/device.h"
#include "kernels/op.h"

typedef Status OpRun(const OpCall *call, const RowCounts *rows);
/* Prepares the op for every bucket (primitives, algorithms). Called while the call's outputs and scratch hold nothing
   that is needed: it may write there to time the candidates. Operands have room for the largest bucket. */
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

/* Implementation of ATTENTION: the backend's choice, its own kernels, or cuDNN. */
typedef enum { ATTENTION_AUTO, ATTENTION_OWN, ATTENTION_CUDNN } AttentionKind;

typedef struct {
    int threads;    /* 0: the cores that this process may use */
    int local_rank; /* chooses the device */
    bool tf32;      /* fp32 products may round their operands to TF32; backend_open refuses it where there are none */
    AttentionKind attention; /* as tf32 */
} BackendOptions;

enum { BACKEND_DESCRIBE = 384 }; /* room for a GPU's name of 127, every library's version, and every switch */

typedef struct Backend {
    const char *name;
    OpImpl op[N_OPS];

    Status (*open)(struct Backend *b,
                   const BackendOptions *options); /* E_USAGE with the reason if it cannot run here */
    void (*close)(struct Backend *b);

    /* Whether it runs in a compute type, and the fastest type, which is the default precision. */
    bool (*supports)(const struct Backend *b, Dtype compute, char *why_not, size_t size);
    Dtype (*best_compute)(const struct Backend *b);

    /* Rows of tokens a micro-batch of `n` tokens is rounded up to; never above `capacity`, which is itself a bucket. */
    int64_t (*bucket)(int64_t n, int64_t capacity);
    /* Bytes of a compute copy of an (n, k) weight; 0 for transposed means: DGRAD uses the forward copy. */
    size_t (*copy_bytes)(Dtype compute, int64_t n, int64_t k, bool transposed);

    /* Whether it has a kernel for this call, a LINEAR with g or a LINEAR_DGRAD with pre, of which only the shapes are
       known. NULL: for none. */
    bool (*fuses)(const OpCall *call);

    Device *device; /* NULL: the ops work in the host's memory, and are done when they return */

    /* Choices that `prepare` made by timing, as text for the same backend of another rank, which takes them before it
       binds a plan. NULL: nothing is timed. */
    void (*give_choices)(Buf *text);
    void (*take_choices)(const Buf *text);

    /* Instead of open: scratch is computed as on a device of this compute capability (its major number), which may be
       absent. NULL: scratch depends on no device. */
    void (*imagine)(int major);

    /* After open: */
    bool tf32, cudnn; /* fp32 products are TF32's; attention without dropout is cuDNN's */
    int threads;
    char describe[BACKEND_DESCRIBE]; /* library versions, instruction set: part of the fingerprint */
} Backend;

/* A module exports `const uint64_t cairn_module_abi = BACKEND_ABI`: one that was built with other tables is refused. */
#define BACKEND_ABI                                                                                                    \
    ((uint64_t)sizeof(Backend) << 40 | (uint64_t)sizeof(Device) << 28 | (uint64_t)sizeof(OpCall) << 12 |               \
     (uint64_t)N_ROW_KINDS << 8 | (uint64_t)N_OPS)
extern const uint64_t cairn_module_abi;

/* "ref", "cpu", "cuda", or "auto": the first of cuda, cpu, ref that opens, with a warning for ref alone. The status
   message has the reason of a refusal. */
Status backend_open(const char *name, const BackendOptions *options, Backend **backend);
void backend_close(Backend *b);
/* The table of a backend that is not opened, for plans of an absent device. Only bucket, copy_bytes, supports,
   imagine and the ops' scratch may be called. E_USAGE where this build has no such module. */
Status backend_table(const char *name, Backend *table);

/* Memory of a region that the ops work in: zeroed, touched, 4096-byte aligned; of the device where there is one. */
Status backend_alloc(const Backend *b, size_t bytes, void **p);
void backend_release(const Backend *b, void *p, size_t bytes);
/* Host → region; region → host. In order with the ops that ran before. E_FAIL where the device failed. */
Status backend_upload(const Backend *b, void *to, const void *from, size_t bytes);
Status backend_download(const Backend *b, void *to, const void *from, size_t bytes);
/* z = x + y (n), or x where y is NULL, by the op ADD; in the backend's memory, on the lane that is chosen. */
Status backend_add(const Backend *b, float *z, float *x, float *y, int64_t n);
Status backend_wait(const Backend *b); /* until every op that was called has ended; E_FAIL: one failed */

/* Whether it can offload: a lane copies while another computes. */
static inline bool backend_offloads(const Backend *b) { return b && b->device && b->device->choose_lane; }

/* Precision of products, for people and fingerprints: TF32 is one of F32's. */
static inline const char *backend_precision(const Backend *b, Dtype compute)
{
    return b && b->tf32 && compute == F32 ? "tf32" : dtype_name(compute);
}

/* ref's table, for others to copy. */
void backend_ref_table(Backend *b);
