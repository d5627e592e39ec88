/* Memory accounts (docs/contracts.md 7): a row for each memory that a run takes from, with what there is, what is taken
   beside the plans, and which regions of the plans lie in it. A host backend has one row, the machine's; a device with
   memory of its own has two. */
#ifndef CAIRN_TRAIN_ACCOUNT_H
#define CAIRN_TRAIN_ACCOUNT_H

#include "base/base.h"
#include "kernels/backend.h"
#include "plan/plan.h"

typedef struct {
    const char *name;  /* "device" or "machine" */
    const char *limit; /* where the budget comes from, for messages */
    unsigned regions;  /* bit r is set: Region r lies in it */
    bool automatic;    /* the budget is what was free */
    size_t budget;     /* bytes; SIZE_MAX: unknown */
    size_t held;       /* beside plans and snapshots: program, libraries, data; a device's context */
    size_t snapshots;
    size_t peak; /* with the regions of the plans that were made */
} Account;

typedef struct {
    int n;
    Account row[2];  /* the first is the one that activations lie in, the last the machine's */
    size_t resident; /* bytes of this process that `held` counts; 0: the device is not here */
} Accounts;

/* What this process may take and holds now. `asked`: --memory-budget of the first row, 0: auto. `local_ranks` share
   what the machine has free. `data_bytes`: what the task's data will take yet; `weights_bytes`: a copy of the weights,
   which the machine holds for a while beside a device. `b` NULL: the machine's row alone. */
void accounts_measure(Accounts *a, const Backend *b, size_t asked, int local_ranks, size_t data_bytes,
                      size_t weights_bytes);
/* Counts what the process took since: libraries keep primitives for plans that were made. */
void accounts_update(Accounts *a);
/* Of a device that is not here. */
void accounts_imagine(Accounts *a, size_t asked, size_t memory_bytes, size_t context_bytes, size_t weights_bytes);

static inline bool account_has(const Account *a, Region r) { return a->regions >> r & 1; }
/* held, snapshots, and what of the regions lies in it. */
size_t account_sum(const Account *a, const size_t bytes[N_REGIONS]);
/* Sets the peaks. The first row that is above its budget; NULL: there is none. */
Account *accounts_settle(Accounts *a, const size_t bytes[N_REGIONS]);
/* More to take, where the budget is what was free. */
void account_add(Account *a, size_t bytes);

#endif
