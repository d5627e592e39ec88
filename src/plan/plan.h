/* The plan: every instruction of a run and the place of every tensor, made and checked before the first step.

   READ FIRST. A plan is plain data: tensors and instrs in two arrays, referring to each other by index. It is built by
   emitting forward instrs (model/bert.c) and then running passes over it, one file each:

       emit ▸ backward ▸ recompute ▸ fuse ▸ audit ▸ offload ▸ kfac ▸ cut ▸ reduce ▸ begin ▸ couple ▸ optimizer ▸ bind ▸
   liveness ▸ layout ▸ verify

   Three ranges of instrs come out: `begin` runs once at the start of a step (clears stats and gradients, but for those
   that the first micro-batch begins), `micro` once per micro-batch, `update` once at its end; `clear` in a step
   without a micro-batch, `pack` after weights were loaded.

   plan/ is pure C11 and does not know BERT: it sees ops, shapes, and to which part of a layer each tensor belongs. */
#pragma once

#include "base/base.h"
#include "kernels/op.h"
#include "plan/pipeline/schedule.h"

typedef int32_t TensorId;
typedef int32_t InstrId;
#define NONE (-1)

/* Memory regions: X(name, printed name). */
#define REGION_LIST(X)                                                                                                 \
    X(INPUT, "input")      /* written by the host before a micro-batch */                                              \
    X(OUTPUT, "output")    /* read by the host: logits, losses, stats */                                               \
    X(CONST, "const")      /* written once */                                                                          \
    X(WEIGHT, "weights")   /* fp32 parameters, the flat space */                                                       \
    X(COPY, "copies")      /* compute copies of weights, made by PACK */                                               \
    X(GRAD, "gradients")   /* fp32, the same offsets as WEIGHT */                                                      \
    X(MOMENT, "optimizer") /* m, then v, the same offsets as WEIGHT */                                                 \
    X(ACT, "activations")  /* placed by layout, by lifetime */                                                         \
    X(SCRATCH, "scratch")  /* one instr at a time */                                                                   \
    X(SAVE, "save")        /* copy of the state that is being written to disk */                                       \
    X(HOST, "host")        /* offloaded activations */                                                                 \
    X(COMM, "exchange")    /* buffers of exchanges between ranks: host memory always */                                \
    X(KFAC, "kfac")        /* the statistics, which become the next inverses, then the inverses in use */

typedef enum {
#define X(name, text) REGION_##name,
    REGION_LIST(X)
#undef X
        N_REGIONS
} Region;
const char *region_name(Region r);

typedef enum { PHASE_BEGIN, PHASE_FORWARD, PHASE_RECOMPUTE, PHASE_BACKWARD, PHASE_UPDATE, N_PHASES } Phase;
/* Instrs of one lane run in order. Lanes run at the same time, except where an instr waits for another lane's. */
typedef enum { LANE_COMPUTE, LANE_COPY, LANE_COMM, N_LANES } Lane;

/* The parts of a layer: what it may keep between forward and backward, in the order in which forward makes them.
   X(name, printed name). docs/contracts.md 6 has the bytes. */
#define PART_LIST(X)                                                                                                   \
    X(INPUT, "x") /* the layer's input */                                                                              \
    X(QKV, "qkv")                                                                                                      \
    X(O, "o")     /* attention's output */                                                                             \
    X(Y1, "y1")   /* the first LayerNorm's output, or in form XHAT its xhat */                                         \
    X(PRE, "pre") /* the feed-forward before GELU */                                                                   \
    X(G, "g")     /* and behind it */
enum {
#define X(name, text) PART_##name,
    PART_LIST(X)
#undef X
        LAYER_PARTS
};
#define PART_ALWAYS    ((int8_t)(-1)) /* of a tensor that every choice keeps */
#define PART_NEVER     ((int8_t)(-2)) /* of one that none keeps: made again if backward asks for it */
#define PART_BIT(name) (1u << PART_##name)
#define ALL_PARTS      ((1u << LAYER_PARTS) - 1)

/* What a layer keeps: bit k is part k. A part in neither set stays in the memory of the activations. */
typedef struct {
    uint8_t recomputed, offloaded; /* offloaded: to the host's memory */
} LayerKeep;

/* A level is the name of a LayerKeep. */
typedef enum {
    LEVEL_NONE,      /* keeps x qkv o y1 pre g */
    LEVEL_LEAN,      /* gives up g */
    LEVEL_FFN,       /* and pre */
    LEVEL_SELECTIVE, /* and qkv */
    LEVEL_FULL,      /* and o, y1: keeps the layer's input */
    LEVEL_OFFLOAD,   /* as full, the layer's input in the host's memory */
    LEVEL_INNER,     /* and x: a layer inside a block of every:K */
    N_LEVELS
} Level;
LayerKeep level_keep(Level level);

/* What is chosen for each layer of a model. */
#define POLICY_TEXT 2048 /* for POLICY_RUNS runs */
typedef struct {
    LayerKeep *keeps;    // (layers)
    uint8_t *norm_forms; // (2·layers + 1) NormForm of each layer's two LayerNorms, then the MLM head's; NULL: all Y
    char policy[POLICY_TEXT]; /* its name, as it runs: "auto (full×2 x+o+y1×6 none×4)" */
} LayerChoice;
/* All layers keep all; `norm_forms` are copied, NULL: all Y. */
void layer_choice_init(LayerChoice *c, int n_layers, const uint8_t *norm_forms);
bool layer_choice_keeps_all(const LayerChoice *c, int n_layers);
void layer_choice_free(LayerChoice *c); /* takes a zeroed one */

typedef struct {
    char name[48];
    Dtype dtype;
    Rows rows;
    int64_t cols;
    Region region;
    int16_t layer;        /* the layer whose choice decides; NONE outside layers */
    int8_t part;          /* of the layer, that it belongs to; PART_ALWAYS, PART_NEVER */
    TensorId grad;        /* of a parameter or its copy: where its gradient is accumulated; of an output whose gradient
                             the host writes: where it does; else NONE */
    TensorId twin;        /* of a forward copy: the copy DGRAD reads; else NONE */
    TensorId original;    /* of a recomputed, offloaded or fetched tensor: the tensor whose value it holds; of a copy:
                             its parameter; else NONE */
    TensorId shares;      /* set by liveness: lies in the memory of this tensor; else NONE */
    InstrId first, last;  /* set by liveness, within micro: first write, last use */
    size_t bytes, offset; /* at capacity; offset in the region, bytes from its start */
    int8_t slot;          /* of a stage, set by layout: a SlotKind where it lives from one work to a later one; NONE */
    size_t stride;        /* bytes from its place in a slot to that in the next; 0: it has one place */
} Tensor;

static inline Interval tensor_bytes(const Tensor *t) /* of its region */
{
    return (Interval){(int64_t)t->offset, (int64_t)(t->offset + t->bytes)};
}

typedef struct {
    Op op;
    OpAttr attr;
    Phase phase;
    Lane lane;
    int16_t layer; /* NONE outside layers */
    TensorId in[OP_MAX_IN], out[OP_MAX_OUT];
    InstrId wait[2]; /* instrs of other lanes that must have ended; NONE */
    uint8_t begins;  /* bit k: in a step's first micro-batch it begins gradient out[k], which `begin` does not clear */
    InstrId origin;  /* of a recomputed or backward instr: the forward instr; else NONE */
    size_t scratch;  /* bytes at capacity, set by bind */
} Instr;

typedef struct {
    InstrId first, count;
} Range;

typedef struct {
    Tensor *tensors;
    Instr *instrs;
    int32_t n_tensors, n_instrs, cap_tensors, cap_instrs;
    Range begin, micro, update, pack;
    Range clear;                 /* clears the gradients that instrs begin; empty: there are none */
    TensorId copies;             /* all compute copies, each at its parameter's place of the flat space; NONE: they lie
                                    one after the other */
    Range forward, couple;       /* of a coupled step: see plan_couple; else empty */
    Range gather, invert, adopt; /* of K-FAC: see plan_kfac_ranges; else empty */
    int32_t kfac_interval;       /* steps, of which one runs these ranges; 0: no K-FAC */
    int waiting;                 /* of virtual ranks: sums of gradients, and of statistics, that wait for others */
    Range note, check;           /* see plan_watch; else empty */
    Range work[N_RANGES];        /* of a stage: the parts of micro; B, or I and W */
    int slots[N_SLOTS];          /* of a stage: micro-batches that are kept at once; 0: not cut */
    RowCounts capacity;          /* largest micro-batch: tokens, sequences, masked positions */
    int16_t n_layers;
    Dtype compute;                  /* F32, BF16 or F16 */
    size_t region_bytes[N_REGIONS]; /* after layout */
    bool exact;                     /* scratch came from the backend, not from the table of estimates */
} Plan;

void plan_init(Plan *p, RowCounts capacity, int n_layers, Dtype compute);
void plan_free(Plan *p); /* takes a zeroed one */

/* ---- emitting (model/, optim/) ---- */
static inline Rows rows_fixed(int64_t n) { return (Rows){ROWS_FIXED, n}; }
static inline Rows rows_of(RowKind kind) { return (Rows){kind, 0}; }

TensorId plan_tensor(Plan *p, Region region, Dtype dtype, Rows rows, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Appends an instr. Operands are in the order of op_list.h; lists end with PLAN_END; NONE leaves an optional one out.
   CHECKs the count and the required operands. */
#define PLAN_END (-2)
#define IDS(...) ((const TensorId[]){__VA_ARGS__, PLAN_END})
#define NO_IDS   ((const TensorId[]){PLAN_END})
InstrId plan_emit(Plan *p, Op op, Phase phase, int layer, OpAttr attr, const TensorId *in, const TensorId *out);
/* A compute copy of a parameter in the layout that LINEAR or DGRAD reads; `bytes` comes from the backend. */
TensorId plan_copy(Plan *p, TensorId weight, bool transposed, size_t bytes);
/* Closes `micro` (all instrs so far), then appends `begin`, which clears stats, gradients and audit (NONE: there are
   none). With `begins` the first instr that adds to a gradient overwrites it in a step's first micro-batch, if its op
   can; `begin` clears the other gradients, and `clear` all. */
void plan_begin(Plan *p, TensorId stats, TensorId grads, TensorId audit, bool begins);
/* Places the compute copies at their parameters' places of the flat space, and makes p->copies of them. */
void plan_place_copies(Plan *p);
/* Appends `pack`: a PACK for every compute copy, or one for p->copies. `update` ends with it; `written`: its instrs
   write the copies, and it ends before. */
void plan_pack(Plan *p, bool written);
TensorId plan_find(const Plan *p, const char *name); /* NONE if absent */
/* Names of tensors behind the gradients that exec/virtual.c adds to them: sums of virtual ranks that wait (waiting,
   elements of the flat space), and the decoder's gradient of the word embedding, which is `dword`. */
#define PLAN_WAITING  "grads.waiting"
#define PLAN_APART    "ddecoder"
#define PLAN_WORD     "dword"
#define PLAN_RECEIVED "grads.received" /* room for other ranks' sums, from GPU to GPU */
/* K-FAC's statistics, a set: the sums, and those that wait behind both sets (waiting, elements of a set). */
#define PLAN_FACTORS         "kfac.next"
#define PLAN_FACTORS_WAITING "kfac.waiting"
InstrId plan_maker(const Plan *p, TensorId t); /* the first instr that writes it; NONE */
size_t plan_tensor_bytes(const Plan *p, TensorId t, const RowCounts *rows);
/* The call of an instr: shapes filled, data NULL. */
void plan_call(const Plan *p, const Instr *instr, OpCall *call);

/* ---- passes, in order ---- */

/* Appends backward instrs for all forward instrs, from the loss ops back; before plan_begin. Where a tensor has several
   consumers its gradient is written by the first and accumulated in place by the others. `bias_sums`: a bias gradient
   is made by the op that makes dy, where it can; else by LINEAR_WGRAD, in a pass over dy. */
void plan_backward(Plan *p, bool bias_sums);

/* Gives up activations by the layers' `keeps` (n_layers): inserts RECOMPUTE instrs before the backward instr that
   first needs them and points backward at the new tensors. */
void plan_recompute(Plan *p, const LayerKeep *keeps);

/* After plan_recompute. A LINEAR and the GELU that reads its output become one instr, and so do a LINEAR_DGRAD and the
   GELU_BWD behind it, where `fuses` says so of the call. A LINEAR that is made again without its GELU is of the same
   kernel. */
void plan_fuse(Plan *p, bool (*fuses)(const OpCall *call));

/* After plan_fuse. Each tensor that is made twice is digested both times, by a DIGEST right behind the instr that
   makes it, and a COMPARE behind the second notes a difference in the OUTPUT tensor `audit`, which is returned (NONE:
   nothing is made twice). The first sums, 8 bytes a row, live from forward to backward. */
TensorId plan_audit(Plan *p);

/* After plan_pack. Appends the ranges `note`, which keeps sums of weights and moments, and `check`, which compares them
   with new ones and notes a difference in w->changed. `arrays` (n) are the weights, then the moments. Tensors of the
   found difference are WATCHED_ROW elements a row, and have the array as `original`. */
#define WATCHED_ROW 4096
typedef struct {
    TensorId changed,
        sums[2]; /* AuditFound; the weights' sums that `note` keeps, of whole rows and of the rest; NONE */
} PlanWatch;
void plan_watch(Plan *p, const TensorId *arrays, int n, PlanWatch *w);

/* After plan_recompute. OFFLOAD copies what layers offload to the host as soon as it is made; FETCH copies it back one
   layer before backward reads it. Both are on the copy lane, and the memory is free in between. The topmost layer's
   parts stay, because backward begins with them. */
void plan_offload(Plan *p, const LayerKeep *keeps);
/* The part of a layer that output k of a forward instr is, as far as it can be offloaded: small outputs stay on the
   device (rstd, log-sum-exp). NONE: it is none. */
int plan_part_made(const Plan *p, const Instr *instr, int k);

/* After plan_kfac, for a stage of a pipeline: `micro` in the order of works, F then B, or (`split`) F, I, W, where W
   has the weight gradients of the linears and of the embeddings; then A and G, each with the CURVATUREs of one layer
   behind those of another. plan_begin sets the ranges. */
void plan_cut(Plan *p, const int slots[N_SLOTS], bool split);
/* The class of a tensor that lives from one work to another; NONE within one work. */
int plan_slot_kind(const Plan *p, InstrId first, InstrId last);
/* The work that an instr of `micro` belongs to; N_RANGES outside. */
WorkKind plan_work_of(const Plan *p, InstrId i);

/* After plan_offload and plan_cut, with ranks. For each gradient bucket, elements of the flat space `grads`, a REDUCE
   on the comm lane, right after the instr that writes the last of the bucket's gradients, and waiting for it; an empty
   bucket is another stage's. The same for `stats` (NONE: not here), after the last instr that adds to them. They run in
   a step's last micro-batch only; the compute lane waits for the comm lane where `micro` ends, or a step's works. */
void plan_reduce(Plan *p, TensorId grads, TensorId stats, const Interval *buckets, int n_buckets); // (n_buckets)

/* ---- a coupled step ---- */

/* Its loss is a function of embeddings of all its sequences, `texts` of each row of data: text k of row i is row
   k·apart + i of (anchors, others). In a step with n < apart rows of data the rows behind them are 0. */
typedef struct {
    int64_t apart, cols; /* apart: a multiple of 64 */
    int texts;
    bool entropy, symmetric; /* the loss is a cross-entropy of anchors over others, and of texts 1 over anchors */
    size_t (*copy_bytes)(Dtype compute, int64_t n, int64_t k, bool transposed); /* the backend's */
    /* plan_couple sets these. `type` is F32, but bf16 in a cross-entropy where products read rows as they lie (a
       device) and the compute type is that. Of it are anchors (apart, cols), others ((texts − 1)·apart, cols), danchors
       and turned_dothers; dothers and turned_danchors are F32. With `entropy` bias is for rows of `others` 0 or −1e30
       where it is none, labels their place among anchors or −1 where it is no text 1; `symmetric`: the turned ones are
       to be added. */
    Dtype type;
    TensorId anchors, others, danchors, dothers, bias, labels, turned_danchors, turned_dothers;
} PlanCouple;

/* After plan_begin. Sets `forward`, the instrs of `micro` that end with POOL, and appends `couple`, which runs between
   `forward` of all micro-batches and the backward pass of the first; with `entropy` it adds to `stats`. Its scale is
   ctl's scale_masked, and n_masked is apart. */
void plan_couple(Plan *p, PlanCouple *c, TensorId stats, TensorId ctl);
static inline Range plan_behind_forward(const Plan *p)
{
    return (Range){p->forward.first + p->forward.count, p->micro.count - p->forward.count};
}

/* ---- K-FAC ---- */

/* A linear layer that is preconditioned. Places are elements: of its weight (n, k) and bias (n) in the flat space, of A
   (k, k), B (n, n) and the flag in a set of K-FAC's. */
typedef struct {
    char name[16]; /* "l0.up" */
    int layer;
    int64_t k, n, weight, bias, a, b, flag;
    int32_t from; /* the linear whose statistics A also are this one's; NONE: its own */
    bool own;     /* this rank inverts its factors */
    /* set by plan_kfac: statistics or next inverses, and the inverses in use */
    TensorId next_a, next_b, ready, a_inv, b_inv, has;
} KfacLinear;

typedef struct {
    KfacLinear *linears; // (n), in the order in which they are inverted: the one whose A others take comes after them
    int n;
    int64_t size; /* elements of a set; a plan has two, the next one and the one in use */
    int interval;
    float damping;
    bool ranks; /* several: statistics are summed to their owners, inverses sent to all */
    bool more;  /* of a further chunk of a place: the first one's plan has all ranges but `gather` */
} KfacPlan;

/* After plan_offload. Puts behind each LINEAR_WGRAD the CURVATUREs of the linears in it: there both operands are at
   hand at every level. They add up statistics in a step of which session_gather says so. */
void plan_kfac(Plan *p, KfacPlan *k, TensorId ctl);
/* After plan_begin. Appends the ranges `gather`, which clears the statistics before such a step, `invert`, which runs
   after its last micro-batch, and `adopt`, which puts the next inverses in use; and begins `update` with the
   PRECONDITIONs. */
void plan_kfac_ranges(Plan *p, const KfacPlan *k, TensorId grads, TensorId ctl);

/* A recompute policy as the user names it. */
typedef enum {
    POLICY_MIXED, /* runs of layers that keep the same: "none", "full×2 x+o+y1×6 none×4" */
    POLICY_HALF_ATTENTION,
    POLICY_EVERY, /* every:K */
    POLICY_AUTO
} PolicyKind;
#define POLICY_RUNS       32
#define POLICY_ALL_LAYERS (-1)
typedef struct {
    LayerKeep keep;
    int16_t layers; /* or POLICY_ALL_LAYERS */
} PolicyRun;
typedef struct {
    PolicyKind kind;
    int every;                   /* K of every:K */
    PolicyRun runs[POLICY_RUNS]; /* of mixed, from the first layer up; behind the last: 0 layers */
} Policy;
Policy policy_of_level(Level level);
Status policy_parse(const char *text, Policy *policy);
void policy_format(const Policy *policy, char out[POLICY_TEXT]);
/* E_USAGE: the runs are of another number of layers. */
Status policy_check(const Policy *policy, int n_layers);
bool policy_offloads(const Policy *policy); /* needs a backend with a copy lane */
/* Fills (n_layers) keeps. Not for POLICY_AUTO. */
void policy_keeps(const Policy *policy, int n_layers, LayerKeep *keeps);
/* The runs of (n_layers) keeps, as --recompute takes them. */
void policy_describe(const LayerKeep *keeps, int n_layers, Buf *out);

/* Sets the scratch of every instr. `scratch_of` returns the backend's function; NULL: estimates, and the plan is marked
   not exact. */
void plan_bind(Plan *p, OpScratch *(*scratch_of)(void *context, Op op), void *context);

void plan_liveness(Plan *p); /* first, last, shares */
void plan_layout(Plan *p);   /* offsets and region_bytes; ACT: the best of several orders of placing */
/* Walks the plan with symbolic memory. Checks that every read sees the value written for it, that live tensors do not
   overlap, that accumulated tensors were cleared, and that lanes wait. E_FAIL names instr and tensor. */
Status plan_verify(const Plan *p);
/* In a stage, each tensor that one work writes and another reads has a slot of the right class, and no other tensor
   lies in its slots. Part of plan_verify. */
Status plan_verify_slots(const Plan *p);

/* ---- cost ---- */

/* Corrections of a roofline for GPUs; the rows of commands/devices.c give the reasons. */
typedef struct GpuRates GpuRates;
struct GpuRates {
    double attention_dropout; /* attention's forward rate with dropout, as a share of that without */
    double attention_whole;   /* its backward rate in one kernel, as a share of that in two */
    double norm_bytes;        /* memory traffic of LayerNorms, per second */
    double fused_share;       /* of the rate of products, where GELU is in their kernel */
    double gelu_cycles[2]; /* of a tile's epilogue there, in LINEAR and in LINEAR_DGRAD; 8 a term take its products */
    double product_ramp;   /* seconds that a product's first and last tiles add */
    int multiprocessors;   /* tiles of a product run in waves of so many */
    int tile_columns[2];   /* tiles of products have 128 rows and so many columns, or turned */
    double split_bytes;    /* room for the parts of a weight gradient that is cut along its rows */
    double sort_seconds;   /* EMBED_BWD's sort, a chain of dependent rounds */
    double f32_flops;      /* of products in fp32 */
    double sweep_seconds;  /* INVERT's pivots, a chain of dependent rounds: of each row */
    bool (*attention_is_whole)(const OpCall *call); /* a backward in one kernel, which makes the sums for db */
    /* launched for a call; each takes `overhead` */
    int (*kernels)(const GpuRates *gpu, const OpCall *call, const RowCounts *rows);
};

/* A roofline: a machine's rates. */
typedef struct {
    double product_flops; /* of matrix products in the plan's compute type */
    double bytes;         /* of memory traffic, by ops that compute with every element */
    double stream;        /* of ops that move data, or add to it, on a CPU, which does not hide it behind products;
                             0: bytes */
    double overhead;      /* seconds per instr */
    char source[96];      /* origin of the rates, for people */
    /* Attention's rate on long sequences, forward and backward; 0: product_flops. A sequence of n tokens reaches
       n / (n + half_length) of it. */
    double attention_flops[2], half_length;
    double link_out, link_in; /* bytes between device and pinned host memory: OFFLOAD, FETCH; 0: as other traffic */
    /* Seconds of a REDUCE or SHARE of a tensor of so many bytes. NULL: none. */
    double (*exchange)(const void *network, Op op, double bytes);
    const void *network;
    const GpuRates *gpu; /* NULL: as the roofline */
} CostRates;

/* An instr takes the larger of products and traffic, or with `stream` their sum, plus its passes over memory, plus the
 * overhead. */
typedef enum { BOUND_PRODUCTS, BOUND_TRAFFIC, BOUND_OVERHEAD, BOUND_LINK, BOUND_NETWORK, N_BOUNDS } CostBound;
double plan_call_cost(const OpCall *call, const RowCounts *rows, double seq_len, const CostRates *rates, OpCost *cost,
                      CostBound *bound); /* seconds; `bound`: the largest part */
/* Predicted seconds of a range at these rows. An instr begins when its lane is free and the instrs it waits for have
   ended; the range takes as long as the lane that ends last. `seq_len` is the mean length of a sequence; where lengths
   differ, the mean length of a token's sequence. `per_instr` (range.count) may be NULL. */
double plan_cost(const Plan *p, Range range, const RowCounts *rows, double seq_len, const CostRates *rates,
                 double *per_instr);

/* ---- printing ---- */
const char *phase_name(Phase p);
const char *lane_name(Lane l);
/* "linear l0.qkv": the op and its first output. */
#define PLAN_NAME_MAX 80
void plan_instr_name(const Plan *p, InstrId i, char out[PLAN_NAME_MAX]);
void plan_explain(const Plan *p, Buf *out); /* every instr with tensors, offsets and live bytes */
/* The bytes of ACT's tensors that live within one work: all but slots, which lie behind them. */
size_t plan_transient_bytes(const Plan *p);
/* Gives the stages of one place, whose works run one after another, one memory of activations. The transients
   of all lie in the same bytes, the slots behind them. */
void plan_share_activations(Plan *const *plans, int n);
size_t plan_placed_bytes(const Tensor *t); /* in ACT, with what its neighbour's alignment leaves free */
/* ACT bytes live while each instr of `micro` runs; behind them a 0. */
void plan_live_series(const Plan *p, int64_t *bytes); // (micro.count + 1)

/* For a drawing: live ACT + scratch at each instr of `micro`, (n). The caller frees. */
void plan_memory_series(const Plan *p, double **bytes, int *n);
