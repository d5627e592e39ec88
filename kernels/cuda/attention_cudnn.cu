/* ATTENTION and ATTENTION_BWD without dropout by cuDNN (sdpa.h). cuDNN reads and writes our tensors in place: q, k and
   v are columns of qkv, a head is head_dim of them, and a kernel makes tables of where each sequence starts, in
   elements, of `spans`. Slots without a sequence have length 0. cuDNN writes rows of sequences only; the other rows are
   cleared here. */
#include "kernels/cuda/attention.cuh"

#include "kernels/cuda/sdpa.h"

#define THREADS 128
#define SLICES  8 /* of a gap, cleared side by side */

typedef struct {
    int32_t *lengths, *qkv, *o, *lse;
} AttentionTables;

__global__ void attention_tables_kernel(const int32_t (*span)[2], const Ctl *ctl, int32_t capacity, int32_t heads,
                                        int32_t head_dim, AttentionTables to)
{
    int32_t s = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x), n = min(ctl->n_seqs, capacity);
    if (s > capacity) return;
    int32_t start = s < n ? span[s][0] : n > 0 ? span[n - 1][1] : 0, hidden = heads * head_dim;
    if (s < capacity) to.lengths[s] = s < n ? span[s][1] - start : 0;
    to.qkv[s] = start * 3 * hidden;
    to.o[s] = start * hidden;
    to.lse[s] = start * heads;
}

typedef struct {
    uint32_t *data; // (rows, words); NULL: nothing to clear
    int32_t words;
} ClearedRows;

/* A block has a part of the gap before sequence blockIdx.x, or behind the last. */
__global__ void attention_gaps_kernel(const int32_t (*span)[2], const Ctl *ctl, int32_t capacity, int32_t rows,
                                      ClearedRows a, ClearedRows b)
{
    int32_t s = static_cast<int32_t>(blockIdx.x), n = min(ctl->n_seqs, capacity);
    if (s > n) return;
    int64_t first = s > 0 ? span[s - 1][1] : 0, end = s < n ? span[s][0] : rows;
    for (int i = 0; i < 2; i++) {
        ClearedRows c = i ? b : a;
        if (!c.data) continue;
        for (int64_t at = first * c.words + blockIdx.y * THREADS + threadIdx.x; at < end * c.words;
             at += SLICES * THREADS)
            c.data[at] = 0;
    }
}

/* ---- shapes and scratch ---- */

bool attention_by_cudnn(const OpCall *call)
{
    return sdpa_is_open() && dropout_threshold(call->attr.attention.dropout) == 0;
}

static SdpaShape sdpa_shape(const OpCall *call, const RowCounts *rows)
{
    SdpaShape s = {};
    int64_t longest = call->attr.attention.longest;
    if (longest == 0) longest = rows->count[ROWS_TOKENS];
    s.backward = call->op == OP_ATTENTION_BWD;
    s.dtype = IN_EITHER(call, ATTENTION, ATTENTION_BWD, qkv)->dtype;
    s.heads = call->attr.attention.heads;
    s.head_dim = call->attr.attention.head_dim;
    s.sequences = rows->count[ROWS_SEQS];
    s.longest = (longest + 63) / 64 * 64; /* no more than a bound */
    s.scale = call->attr.attention.scale;
    return s;
}

/* Scratch: tables, sums (backward), workspace, each on 256 bytes. */
typedef struct {
    size_t table, sums, bytes; /* bytes: of all */
} CudnnScratch;

static CudnnScratch cudnn_scratch(const SdpaShape *s, const SdpaPlan *plan, const RowCounts *rows)
{
    CudnnScratch r = {};
    r.table = cuda_align((size_t)(s->sequences + 1) * sizeof(int32_t));
    if (s->backward) r.sums = cuda_align((size_t)rows->count[ROWS_TOKENS] * (size_t)s->heads * sizeof(float));
    r.bytes = 256 + 4 * r.table + r.sums + cuda_align(sdpa_workspace(plan));
    return r;
}

/* 0 for a refused shape: prepare refuses it too, with the reason. */
size_t attention_cudnn_scratch(const OpCall *call, const RowCounts *rows)
{
    const SdpaPlan *plan;
    SdpaShape s = sdpa_shape(call, rows);
    return sdpa_plan(&s, &plan) == OK ? cudnn_scratch(&s, plan, rows).bytes : 0;
}

/* ---- running ---- */

static ClearedRows cleared_rows(const Operand *to, int64_t columns)
{
    return {static_cast<uint32_t *>(to->data),
            static_cast<int32_t>(columns * static_cast<int64_t>(dtype_size(to->dtype)) / 4)};
}

/* The columns of q, k or v. */
static void *qkv_columns(const Operand *qkv, int which, int64_t hidden)
{
    return static_cast<char *>(qkv->data) + static_cast<size_t>(which * hidden) * dtype_size(qkv->dtype);
}

static void set_operands(const OpCall *call, int64_t hidden, SdpaData *d)
{
    const Operand *qkv = IN_EITHER(call, ATTENTION, ATTENTION_BWD, qkv);
    bool backward = call->op == OP_ATTENTION_BWD;
    for (int i = 0; i < 3; i++) d->tensor[SDPA_Q + i] = qkv_columns(qkv, i, hidden);
    d->tensor[SDPA_O] = backward ? IN(call, ATTENTION_BWD, o)->data : OUT(call, ATTENTION, o)->data;
    d->tensor[SDPA_LSE] = backward ? IN(call, ATTENTION_BWD, lse)->data : OUT(call, ATTENTION, lse)->data;
    if (!backward) return;
    d->tensor[SDPA_DO] = IN(call, ATTENTION_BWD, do)->data;
    for (int i = 0; i < 3; i++) d->tensor[SDPA_DQ + i] = qkv_columns(OUT(call, ATTENTION_BWD, dqkv), i, hidden);
}

Status attention_cudnn(const OpCall *call, const RowCounts *rows)
{
    const SdpaPlan *plan;
    SdpaShape s = sdpa_shape(call, rows);
    SdpaData d = {};
    TRY(sdpa_plan(&s, &plan));
    CudnnScratch r = cudnn_scratch(&s, plan, rows);
    (void)cuda_scratch(call, r.bytes);
    unsigned char *at = cuda_workspace(call);
    for (int i = SDPA_LENGTHS; i <= SDPA_LSE_OFFSETS; i++, at += r.table) d.tensor[i] = at;
    d.tensor[SDPA_SUMS] = at;
    d.workspace = at + r.sums;
    int64_t hidden = (int64_t)s.heads * s.head_dim;
    set_operands(call, hidden, &d);

    const int32_t(*span)[2] = cuda_data<const int32_t[2]>(IN_EITHER(call, ATTENTION, ATTENTION_BWD, spans));
    int32_t capacity = static_cast<int32_t>(s.sequences), n_rows = static_cast<int32_t>(rows->count[ROWS_TOKENS]);
    auto table = [&](int i) { return static_cast<int32_t *>(d.tensor[i]); };
    AttentionTables tables = {table(SDPA_LENGTHS), table(SDPA_QKV_OFFSETS), table(SDPA_O_OFFSETS),
                              table(SDPA_LSE_OFFSETS)};
    TRY(CUDA_LAUNCH((attention_tables_kernel), static_cast<unsigned>(capacity / THREADS + 1), THREADS, 0, span,
                    op_ctl(call), capacity, s.heads, s.head_dim, tables));
    void *stream = device_stream(NULL);
    TRY(CUDA_SUBMIT(sdpa_run(plan, &d, stream)));
    ClearedRows first = s.backward ? cleared_rows(OUT(call, ATTENTION_BWD, dqkv), 3 * hidden)
                                   : cleared_rows(OUT(call, ATTENTION, o), hidden);
    ClearedRows second = s.backward ? ClearedRows{} : cleared_rows(OUT(call, ATTENTION, lse), s.heads);
    return CUDA_LAUNCH((attention_gaps_kernel), dim3(static_cast<unsigned>(capacity + 1), SLICES), THREADS, 0, span,
                       op_ctl(call), capacity, n_rows, first, second);
}

/* ---- preparing ---- */

/* Each of cuDNN's plans runs once, because its kernels are loaded at their first use, for which CUDA may wait until the
   GPU is idle. That is when memory is still zero, so without sequences: where plans are bound again in training,
   `spans` may hold bytes of another plan. */
Status attention_cudnn_prepare(const OpCall *call, const RowCounts *buckets, int n)
{
    const SdpaPlan *plan;
    for (int i = 0; i < n; i++) {
        SdpaShape s = sdpa_shape(call, &buckets[i]);
        int64_t rows = buckets[i].count[ROWS_TOKENS], width = 3 * (int64_t)s.heads * s.head_dim;
        if (rows > INT32_MAX / width)
            return fail(E_USAGE,
                        "--attention cudnn: %lld rows of %lld elements are more than its tables can count. Use less "
                        "--micro-batch-tokens, or --attention own",
                        (long long)rows, (long long)width);
        TRY(sdpa_plan(&s, &plan));
        if (call->in[0].data && !sdpa_has_run(plan)) TRY(attention_cudnn(call, &buckets[i]));
    }
    return OK;
}
