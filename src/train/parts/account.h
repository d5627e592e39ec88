/* Memory accounts (docs/contracts.md 7): a row for each memory that a run uses, with its budget, the bytes that are
   held beside the plans, and the regions of the plans that lie in it. A host backend has one row, the machine's; a
   device has two. */
#pragma once

#include "base/base.h"
#include "kernels/backend.h"
#include "plan/plan.h"

typedef struct {
    const char *name;  /* "device" or "machine" */
    const char *limit; /* the source of the budget, for messages */
    unsigned regions;  /* bit r is set: Region r lies in it */
    bool automatic;    /* the budget is the free memory */
    size_t budget;     /* bytes; SIZE_MAX: unknown */
    size_t held;       /* beside plans and snapshots: program, libraries, data; a device's context */
    size_t snapshots;
    size_t peak; /* with the regions of the plans that were made */
} Account;

typedef struct {
    int n;
    Account row[2];  /* the first is the memory of the activations, the last the machine's */
    size_t resident; /* bytes of this process that `held` counts; 0: an imagined device */
    size_t chance;   /* bytes that another start of the same run may hold more in the first row */
} Accounts;

/* Budgets and holdings of this process now. `asked` is --memory-budget, the first row's; 0: auto. `local_ranks` share
   the free memory of the machine. `data_bytes` is memory that the task's data will still need, `weights_bytes` a copy
   of the weights, which the machine holds for a while beside a device. A device is measured: its libraries are open,
   and no region is allocated yet. */
void accounts_measure(Accounts *a, const Backend *b, size_t asked, int local_ranks, size_t data_bytes,
                      size_t weights_bytes);
/* Counts memory that the process allocated since then: libraries keep primitives for the plans made so far. */
void accounts_update(Accounts *a);
/* The accounts of a device that this machine lacks. */
void accounts_imagine(Accounts *a, size_t asked, size_t memory_bytes, size_t context_bytes, size_t weights_bytes);

static inline bool account_has(const Account *a, Region r) { return a->regions >> r & 1; }
/* held, snapshots, and the bytes of its regions. */
size_t account_sum(const Account *a, const size_t bytes[N_REGIONS]);
/* The first row's budget in which a run starts whose plans and holdings are so many bytes: more than these, since the
   next process holds a little more or less by chance. MIB, MIB_UP: of bytes, in part or whole, for a message. */
#define MIB(bytes)    ((double)(bytes) / (1 << 20))
#define MIB_UP(bytes) (((bytes) + ((size_t)1 << 20) - 1) >> 20)
size_t accounts_enough(const Accounts *a, size_t bytes);
/* Sets the peaks. Returns the first row above its budget, or NULL. */
Account *accounts_set_peaks(Accounts *a, const size_t bytes[N_REGIONS]);
