/* The files of a profile, in OUT/profile/ (docs/files.md), which rank 0 writes. */
#pragma once

#include "plan/plan.h"
#include "train/parts/place.h"
#include "train/planner/machine.h"
#include "train/session/session.h"

/* ---- trace.c: text in Chrome's Trace Event Format, one event a line, times in microseconds. A rank is a process, its
   tracks are threads. Every event begins with a comma, but that of a process, which is the first of a file. ---- */

typedef struct {
    int rank;
    double zero; /* clock_monotonic of this rank at the trace's time 0 */
} Trace;

#define TRACE_BEGIN "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" /* of a file, up to its events */
#define TRACE_END   "\n]}\n"
/* `error_s`: by which the rank's times may be off those of rank 0. */
void trace_process(const Trace *t, Buf *out, const char *name, double error_s);
void trace_track(const Trace *t, Buf *out, int track, const char *name);
/* An event up to its arguments; `begin` and `end` by clock_monotonic. The caller closes it with "}". */
void trace_span(const Trace *t, Buf *out, int track, const char *category, const char *name, double begin, double end);
void trace_counter(const Trace *t, Buf *out, double when, const char *name, const char *unit, double value);

/* ---- profile_kernels.c: kernels.csv, the calls of each op, in each phase and shape ---- */

/* A row, as ranks send it. */
typedef struct {
    Op op;
    Phase phase;
    int64_t k, n; /* of a product's weight; 0: another op */
    int64_t calls;
    double seconds, flops, bytes;
    double of_set[N_MACHINE_SETS]; /* bytes of its calls, by machine_set of each */
    double median, p95;            /* seconds a call; only after kernels_close */
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
/* `limits` NULL: the machine's are not known. */
Status kernels_write(const char *dir, const char *name, const Kernel *rows, int n, const MachineLimits *limits);

/* ---- profile_works.c: timeline.svg and work.csv, the works of a pipeline's ranks in profiled steps ---- */

/* A work, the sums or the update of a step. */
enum { STEP_SUM = WORK_INVERSE + 1, STEP_UPDATE };
/* The times of one on a rank; seconds since the trace's time 0, by the clock of rank 0. */
typedef struct {
    int rank, kind;              /* WorkKind, or one of the above */
    int stage, direction;        /* of sums and the update −1 */
    int64_t step, micro, tokens; /* of sums, the update and inverses −1 and 0 */
    double begin, end;
} StepWork;

/* Adds this rank's works of the last step, as StepWorks. `zero`: clock_monotonic at the trace's time 0. */
void works_take(const Session *s, int rank, int64_t step, double zero, Buf *works);
void works_trace(const Buf *works, const Trace *trace, int track, Buf *events);
/* `works`: StepWorks of all ranks and profiled steps. */
Status works_write(const RankPlace *place, const char *dir, const Buf *works);

/* ---- between ranks; Collective ---- */
/* How far this rank's clock_monotonic is ahead of rank 0's, and a bound of the error: 0 on the host of rank 0, else of
   the shortest of 16 round trips. */
Status works_clock(Ranks *ranks, double *ahead, double *error);
/* The bytes of all ranks in rank order, on rank 0; the others' become empty. */
Status works_collect(Ranks *ranks, Buf *bytes);
