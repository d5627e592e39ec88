/* A backend is a table of functions for the ops in op.h. `ref` (plain loops) is always built and is the specification;
   others start as a copy of the table and override. A missing op is an error when a plan is bound.

   Life: backend_open loads and initialises it (once per process and name); after that its functions are called from the
   step's thread only. Backends other than ref are modules, loaded at run time, that export `cairn_backend_<name>`. */
#ifndef CAIRN_KERNELS_BACKEND_H
#define CAIRN_KERNELS_BACKEND_H

#include "base/base.h"
#include "kernels/op.h"

typedef Status (*OpRun)(const OpCall *call, const RowCounts *rows);

typedef struct {
    OpRun run;
    ScratchFn scratch; /* NULL: needs none */
    /* Makes what the op needs for every bucket (primitives, algorithms) and leaves it in call->prepared. NULL: nothing.
     */
    Status (*prepare)(OpCall *call, const RowCounts *buckets, int n_buckets);
    void (*release)(OpCall *call);
} OpImpl;

typedef struct {
    int threads;    /* 0: what the machine offers this process */
    int local_rank; /* chooses the device */
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

    /* Memory of a region: zeroed, pre-faulted, 4096-byte aligned. */
    Status (*alloc)(size_t bytes, void **p);
    void (*release)(void *p, size_t bytes);
    void (*upload)(void *to, const void *from, size_t bytes);   /* host → region */
    void (*download)(void *to, const void *from, size_t bytes); /* region → host */

    int threads;        /* after open */
    char describe[160]; /* after open: library versions, instruction set, threads: part of the fingerprint */
} Backend;

/* "ref", "cpu", or "auto": the first of cpu, ref that opens. `why` of a refusal is in the status message. */
Status backend_open(const char *name, const BackendOptions *options, Backend **backend);
void backend_close(Backend *b);

/* ref's table, for others to copy. */
void backend_ref_table(Backend *b);

#endif
