/* kernels.csv of a profile: the calls of each op, in each phase and shape. */
#pragma once

#include "plan/plan.h"

/* A row, as ranks send it. */
typedef struct {
    Op op;
    Phase phase;
    int64_t k, n; /* of a product's weight; 0: another op */
    int64_t calls;
    double seconds, flops, bytes;
    double median, p95; /* seconds a call; only after kernels_close */
    int64_t rank;
} Kernel;

typedef struct {
    double *items; // (n)
    int n, cap;
} KernelTimes;

/* Zero-initialise. After kernels_close the caller frees `rows`. */
typedef struct {
    Kernel *rows;
    KernelTimes *times; // (n): of each call
    int n, cap, cap_times;
} Kernels;

void kernels_add(Kernels *k, const Kernel *call);
/* Completes the rows of this rank, sorts them, longest first, and forgets the times of calls. */
void kernels_close(Kernels *k, int rank);
/* The sum over all rows of a rank. */
double kernels_seconds(const Kernel *rows, int n, int64_t rank);
/* `rates` NULL: the machine's are not known. */
Status kernels_write(const char *dir, const char *name, const Kernel *rows, int n, const CostRates *rates);
