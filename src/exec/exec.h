/* Executes a plan: memory of its regions, instrs bound to a backend's functions, and the loop that runs a range.

   Memory is shared by the plans of a run (training, evaluation): each region has the size of the largest. An Exec is a
   plan bound to that memory; nothing is allocated or created after exec_init. */
#pragma once

#include <signal.h>

#include "base/base.h"
#include "holding/exchange.h"
#include "kernels/backend.h"
#include "plan/plan.h"

typedef struct Memory {
    Backend *backend;
    void *base[N_REGIONS];
    size_t bytes[N_REGIONS];
    struct Memory *first; /* of a further chunk: whose other regions it uses; NULL */
    int marks; /* pairs of the device's marks that traces of its Execs have set; of a further chunk the first's */
} Memory;

/* Allocates every region at the larger of the plans' sizes (NULL plans are skipped). E_MEMORY names the region, its
   bytes and the free bytes. `first` is NULL, or for a further chunk of a pipeline's place the first chunk's memory,
   which outlives this one. A further chunk has regions of its own for what differs between chunks (memory_own_region)
   and shares those of the parameter space, the activations (plan_share_activations), the scratch and the buffers. */
Status memory_init(Memory *m, Backend *backend, Memory *first, const Plan *const *plans, int n_plans);
bool memory_own_region(Region r);
/* After planning again: activations and scratch that are too small are allocated again, without their content. */
Status memory_grow(Memory *m, const Plan *const *plans, int n_plans);
void memory_free(Memory *m);
size_t memory_total(const Memory *m);

typedef struct Exec Exec;

/* How REDUCEs and SHAREs are done: through the host's memory, by a thread beside the step's or, for a device, after the
   micro-batch; or queued on the device's comm lane, from GPU to GPU, in a pipeline behind the works. */
typedef struct {
    Comm *comm;       /* all ranks; a thread's sums have it for themselves */
    Comm *holders[2]; /* of each stage of this rank, in the order of replicas; chimera's two stages of a rank have
                         two orders. NULL: one holder */
    CommDevice *comm_device; /* between holders; NULL: through the host's memory */
    const Holding *holding;
    const Pieces *factors; /* of K-FAC's statistics, and who inverts them; NULL: no K-FAC */
    Interval later;        /* elements of gradients that works do not complete: see exec_sum */
    size_t scratch;        /* bytes of the region COMM: of the collectives; behind it lies a device's copy */
    int64_t stride;        /* elements of that copy, of a branch of a tree */
    /* Collective: before the first sum of a step; on the lane's thread, or with comm_device on the step's. May be NULL.
     */
    Status (*meet)(void *self);
    void *self;
} ExecRanks;
typedef struct {
    bool poison; /* fill a tensor with NaN at its last use */
    bool check;  /* after every instr, look for values that are not finite: E_NUMERIC names instr and tensor */
    const volatile sig_atomic_t *stop; /* may be NULL; looked at between the instrs of
                                          `micro`: not 0 → E_STOPPED, the step is lost */
    const ExecRanks *ranks;            /* NULL: one rank; else it must outlive the Exec */
    int64_t virtual_ranks;             /* of all ranks; 0: none */
} ExecOptions;

/* The plan must be verified and outlive the Exec. A missing op is E_FAIL naming op and backend. */
Status exec_init(Exec **exec, const Plan *plan, Memory *memory, ExecOptions options);
/* Before the first step, with ranks: how the chunks of a place (n), or a whole model's Exec, exchange. The first chunk
   is freed behind the others. */
Status exec_open_lane(Exec *const *chunks, int n);
void exec_free(Exec *e);
void exec_set_check(Exec *e, bool check);
/* Whether CURVATUREs run from now on, as they do at first. In a step that gathers nothing they need not, and a device
   does not know the step when they are launched. */
void exec_set_gathers(Exec *e, bool gathers);
/* A fault, for tests: whenever instr `instr` has run, bit number `bit` of its output `out`, modulo the bits of the rows
   that it wrote, is flipped. With `of`: after turn number `turn`, from 1, bit number `bit` of the tensor of that name,
   or of all "copies", modulo its bits. */
typedef struct {
    InstrId instr;
    int out;
    uint64_t bit;
    int64_t turn;
    const char *of; /* NULL: of the instr */
} ExecFlip;
/* NULL: none. Must live until it is replaced. Turns are counted from here on. */
void exec_set_flip(Exec *e, const ExecFlip *flip);
/* The end of a turn: an instr that ran, or a moment between instrs that the caller names by this call. */
Status exec_turn(Exec *e);
int64_t exec_turns(const Exec *e); /* so far */

/* The bucket for a micro-batch of that many rows; CHECKs that it fits the capacity. */
RowCounts exec_rows(const Exec *e, int64_t n_tokens, int64_t n_seqs, int64_t n_masked);
/* Runs the instrs of a range, each lane's in order; all in order where the backend has one lane. On a device they are
   launched only, so a failure shows at a later call, at the latest at a download. Where the device has graphs, a range
   is captured at its second run in a bucket and replayed from then on, except with poison, check or a trace. */
Status exec_run(Exec *e, Range range, const RowCounts *rows);
/* Before gradients are read without an update: those of a step that had no micro-batch are cleared. */
Status exec_complete(Exec *e);

/* Collective. With ranks: runs `micro`, or what is behind `forward` of it, as the last micro-batch of a step, the sums
   over all ranks with it; `rows` NULL: this rank, or its last virtual rank, has no micro-batch and takes part in the
   sums only. With one rank it is exec_run of that range. */
Status exec_run_last(Exec *e, Range range, const RowCounts *rows);

/* ---- behind the works of a place, whose first chunk this is ---- */

/* Collective. Sums the pieces of gradients that no work has posted, but for ranks->later or, with `later`, these; and
   waits for all. */
Status exec_sum(Exec *e, bool later);
/* Returns `status` of a step with its message. After a failure no sum runs any more, and none is posted. */
Status exec_end_sums(Exec *e, Status status);
/* How this rank reaches the holders of a stage of its own. */
Holders exec_holders(const Exec *e, int stage);

/* ---- virtual ranks (virtual.c): a rank computes several, one after another ---- */

/* Before a step's first, and the first one's number: those that follow have the next numbers. */
void exec_virtual_begin(Exec *e, int64_t first);
/* After the last micro-batch of one. Its gradients and losses are added to those of others as the tree of
   base/sum_tree.h has it. `last`: the sum is in the gradients then; exec_run_last adds it by itself, while backward
   runs. Else it waits behind them, and the caller clears them with `begin`. */
Status exec_virtual_end(Exec *e, bool last);
/* After the last one: branches of the tree that precede the last one, in the gradients; other ranks have what they are
   added to. */
#define MOST_WAITING 64
int exec_virtual_waiting(const Exec *e);
const float *exec_virtual_gradients(const Exec *e, int k); /* of branch k; in the backend's memory */
/* Losses and correct counts of all branches: (1 + waiting). */
Status exec_virtual_stats(const Exec *e, Stats *stats);

/* ---- between GPUs (connect_devices.c) ---- */

/* Whether an event has ended: for comm_device_wait. */
typedef struct {
    Device *device;
    int32_t event;
} ExecEvent;
Status exec_event_done(void *event, bool *done);
/* NCCL connects two ranks, and takes memory for it, at their first message, in which each waits for the other: one byte
   for each of `passes`, whose x and bytes are not read. All ranks of a pass call it. `room`: n bytes of the device's
   memory, which all ranks have before one of them calls. */
Status exec_connect_devices(Device *d, CommDevice *comm, const CommPass *passes, int n, void *room);
/* Collective on `comm`: each rank to each other one. `room`: two bytes for each rank of `comm`. */
Status exec_connect_all(Device *d, CommDevice *comm, void *room);

/* ---- grains (grains.c): the micro-batch that runs is divided, and each sum over its rows goes grain by grain ---- */
void exec_clear_grains(Exec *e); /* it is not divided */
/* The next one, which ends at these rows, sequences and masked positions of the micro-batch. */
void exec_add_grain(Exec *e, int64_t tokens, int64_t seqs, int64_t masked);

/* ---- works of a stage (works.c): of a plan that was cut, in place of exec_run of `micro` ---- */

/* Passes a boundary (`forward`) or its gradient. `data` lies in the backend's memory; a receive fills it. */
typedef struct {
    Status (*pass)(void *self, bool send, bool forward, void *data, size_t bytes);
    void *self;
} ExecLinks;
/* Runs a work for the micro-batch whose tensors lie in `slots`; a class that the work does not touch may be −1. `links`
   may be NULL for the whole model as one stage. `last`: of its kind in a step with ranks; sums of gradients begin in
   it, or behind all works. */
Status exec_run_work(Exec *e, WorkKind kind, const int slots[N_SLOTS], const RowCounts *rows, const ExecLinks *links,
                     bool last);
/* Makes the graphs of a work that ran before in these slots, without running it: so that none is made while messages
   wait on the device's other lanes, since CUDA may then wait until the device is idle. */
Status exec_prepare_work(Exec *e, WorkKind kind, const int slots[N_SLOTS], const RowCounts *rows);
/* Whether ranges without a graph get one, as they do at first; else they run op by op. */
void exec_set_captures(Exec *e, bool captures);
/* The CURVATUREs of a layer, of A or G. */
Status exec_run_curvature(Exec *e, WorkKind kind, int layer, const int slots[N_SLOTS], const RowCounts *rows);
/* Writes an input of that micro-batch, before its F. */
Status exec_upload_slot(const Exec *e, TensorId t, const int slots[N_SLOTS], const void *data, size_t bytes);

/* Ranges that became graphs, launches of these, and ranges that the device refused to capture, which run op by op. */
typedef struct {
    int64_t captured, replayed, refused;
} ExecGraphs;
ExecGraphs exec_graphs(const Exec *e);
/* Seconds spent in sums since exec_init, and the part of them for which a micro-batch's end waited. */
void exec_comm_seconds(const Exec *e, double *busy, double *waited);

/* Where a tensor lies (host pointer only for host backends; else use upload and download). */
void *exec_data(const Exec *e, TensorId t);
Status exec_upload(Exec *e, TensorId t, const void *data, size_t bytes);
Status exec_download(Exec *e, TensorId t, void *data, size_t bytes);

/* An instr that ran; times are seconds of clock_monotonic. */
typedef struct {
    InstrId instr;
    RowCounts rows;
    double begin, end; /* on its lane */
    double issued,
        returned; /* on the host: its function was called, and returned. The same as begin and end on a host */
} ExecRecord;

/* Discards earlier records and notes every instr from now on. Adds no waits and changes no result. Where several Execs
   share memory, all that are traced start before the first instr runs, and none starts again before all have ended. */
Status exec_trace_start(Exec *e);
/* Ends the trace, waits for all instrs, and returns the records in the order of issue. They are valid until the next
   start. */
Status exec_trace_end(Exec *e, const ExecRecord **records, int *n); // (n)
