/* The graphs of attention: see sdpa_internal.h. Reading order: forward and backward, at the end, then upwards. */
#include "kernels/cuda/sdpa_internal.h"

#define FIRST_VIRTUAL 100 /* number of the first virtual tensor */

/* ---- tensors ---- */

typedef struct {
    int64_t size[4], stride[4]; /* sequences, heads, then rows and columns */
} Extent;

/* State of a graph that is being built: its descriptors so far, and the tensors in memory. */
struct Builder {
    Descriptors *made, *operations;
    std::vector<int64_t> *numbers;
    Descriptor real[SDPA_NUMBERS]; /* NULL: not used */
    cudnnDataType_t type;
    int64_t n, heads, longest, d, next;
};

static Extent packed(int64_t n, int64_t heads, int64_t rows, int64_t columns)
{
    return {{n, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
}
static Extent scores(const Builder *b) { return packed(b->n, b->heads, b->longest, b->longest); }
static Extent row_values(const Builder *b) { return packed(b->n, b->heads, b->longest, 1); }
/* Heads side by side in rows of `width`. */
static Extent in_rows(const Builder *b, int64_t width, int64_t columns)
{
    return {{b->n, b->heads, b->longest, columns}, {b->longest * width, columns, width, 1}};
}
static Extent transposed_extent(Extent e)
{
    return {{e.size[0], e.size[1], e.size[3], e.size[2]}, {e.stride[0], e.stride[1], e.stride[3], e.stride[2]}};
}

static Status make_tensor(Builder *b, int64_t number, cudnnDataType_t type, Extent e, bool is_virtual, bool by_value,
                          Descriptor offsets, Descriptor *made)
{
    Descriptor d;
    TRY(sdpa_make(b->made, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d));
    TRY(set_attribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, number));
    TRY(set_attribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, type));
    TRY(set_attribute(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16}));
    TRY(sdpa_set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, e.size));
    TRY(sdpa_set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, e.stride));
    if (is_virtual) TRY(set_attribute(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, true));
    if (by_value) TRY(set_attribute(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, true));
    if (offsets) TRY(set_attribute(d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offsets));
    TRY(sdpa_finish(d, "a tensor"));
    *made = d;
    return OK;
}

/* A virtual tensor, from one operation to the next. */
static Status virtual_tensor(Builder *b, cudnnDataType_t type, Extent e, Descriptor *made)
{
    return make_tensor(b, b->next++, type, e, true, false, NULL, made);
}

static Status memory_tensor(Builder *b, int64_t number, cudnnDataType_t type, Extent e, int64_t offsets)
{
    b->numbers->push_back(number);
    return make_tensor(b, number, type, e, false, number >= SDPA_TENSORS, offsets ? b->real[offsets] : NULL,
                       &b->real[number]);
}

static Status memory_tensors(Builder *b, bool backward)
{
    int64_t hidden = b->heads * b->d;
    for (int i = SDPA_LENGTHS; i <= SDPA_LSE_OFFSETS; i++)
        TRY(memory_tensor(b, i, CUDNN_DATA_INT32, packed(b->n + (i != SDPA_LENGTHS), 1, 1, 1), 0));
    Extent qkv = in_rows(b, 3 * hidden, b->d), o = in_rows(b, hidden, b->d);
    Extent rows = in_rows(b, b->heads, 1);
    TRY(memory_tensor(b, SDPA_Q, b->type, qkv, SDPA_QKV_OFFSETS));
    /* backward's products need the transposed ones */
    TRY(memory_tensor(b, SDPA_K, b->type, backward ? transposed_extent(qkv) : qkv, SDPA_QKV_OFFSETS));
    TRY(memory_tensor(b, SDPA_V, b->type, backward ? transposed_extent(qkv) : qkv, SDPA_QKV_OFFSETS));
    TRY(memory_tensor(b, SDPA_O, b->type, o, SDPA_O_OFFSETS));
    TRY(memory_tensor(b, SDPA_LSE, CUDNN_DATA_FLOAT, rows, SDPA_LSE_OFFSETS));
    TRY(memory_tensor(b, SDPA_SCALE, CUDNN_DATA_FLOAT, packed(1, 1, 1, 1), 0));
    if (!backward) return OK;
    TRY(memory_tensor(b, SDPA_DO, b->type, o, SDPA_O_OFFSETS));
    for (int i = SDPA_DQ; i <= SDPA_DV; i++) TRY(memory_tensor(b, i, b->type, qkv, SDPA_QKV_OFFSETS));
    TRY(memory_tensor(b, SDPA_SUMS, CUDNN_DATA_FLOAT, rows, SDPA_LSE_OFFSETS));
    TRY(memory_tensor(b, SDPA_ONE, CUDNN_DATA_FLOAT, packed(1, 1, 1, 1), 0));
    return memory_tensor(b, SDPA_MASKED, CUDNN_DATA_FLOAT, packed(1, 1, 1, 1), 0);
}

/* ---- operations ---- */

static Status graph_add(Builder *b, Descriptor operation)
{
    TRY(sdpa_finish(operation, "an operation"));
    b->operations->push_back(operation);
    return OK;
}

typedef struct {
    cudnnPointwiseMode_t mode;
    Descriptor x, y, chosen; /* y, chosen: NULL where the mode takes fewer */
    cudnnDataType_t type;    /* computed in */
    int64_t axis;            /* GEN_INDEX */
} Pointwise;

static Status pointwise(Builder *b, const Pointwise *w, Descriptor to)
{
    Descriptor mode, operation;
    TRY(sdpa_make(b->made, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &mode));
    TRY(set_attribute(mode, CUDNN_ATTR_POINTWISE_MODE, w->mode));
    TRY(set_attribute(mode, CUDNN_ATTR_POINTWISE_MATH_PREC, w->type));
    if (w->mode == CUDNN_POINTWISE_GEN_INDEX) TRY(set_attribute(mode, CUDNN_ATTR_POINTWISE_AXIS, w->axis));
    TRY(sdpa_finish(mode, "a pointwise operation"));
    TRY(sdpa_make(b->made, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &operation));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, w->x));
    if (w->y) TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, w->y));
    if (w->chosen) TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, w->chosen));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to));
    return graph_add(b, operation);
}

/* x becomes `x mode y`, a new tensor of this type and extent. */
static Status apply_pointwise(Builder *b, cudnnPointwiseMode_t mode, Descriptor *x, Descriptor y, Extent e,
                              cudnnDataType_t type = CUDNN_DATA_FLOAT)
{
    Descriptor to;
    Pointwise w = {mode, *x, y, NULL, CUDNN_DATA_FLOAT, 0};
    TRY(virtual_tensor(b, type, e, &to));
    TRY(pointwise(b, &w, to));
    *x = to;
    return OK;
}

/* Scores of keys and queries behind a sequence's end become a value whose exp is 0. */
static Status mask_scores(Builder *b, Descriptor *x)
{
    Descriptor inside[2], both, index, to;
    for (int i = 0; i < 2; i++) {
        TRY(virtual_tensor(b, CUDNN_DATA_INT32, scores(b), &index));
        Pointwise number = {CUDNN_POINTWISE_GEN_INDEX, *x, NULL, NULL, CUDNN_DATA_INT32, 2 + i};
        TRY(pointwise(b, &number, index));
        TRY(virtual_tensor(b, CUDNN_DATA_BOOLEAN, scores(b), &inside[i]));
        Pointwise below = {CUDNN_POINTWISE_CMP_LT, index, b->real[SDPA_LENGTHS], NULL, CUDNN_DATA_BOOLEAN, 0};
        TRY(pointwise(b, &below, inside[i]));
    }
    TRY(virtual_tensor(b, CUDNN_DATA_BOOLEAN, scores(b), &both));
    Pointwise conjunction = {CUDNN_POINTWISE_LOGICAL_AND, inside[0], inside[1], NULL, CUDNN_DATA_BOOLEAN, 0};
    TRY(pointwise(b, &conjunction, both));
    TRY(virtual_tensor(b, CUDNN_DATA_FLOAT, scores(b), &to));
    Pointwise select = {CUDNN_POINTWISE_BINARY_SELECT, *x, b->real[SDPA_MASKED], both, CUDNN_DATA_FLOAT, 0};
    TRY(pointwise(b, &select, to));
    *x = to;
    return OK;
}

/* c = x·y, where of m, n and k those in `bounded` end with the sequence. */
enum { M = 1, N = 2, K = 4 };

static Status graph_product(Builder *b, Descriptor x, Descriptor y, Descriptor c, int bounded)
{
    static const cudnnBackendAttributeName_t bounds[] = {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
                                                         CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
                                                         CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC};
    Descriptor kind, operation;
    TRY(sdpa_make(b->made, CUDNN_BACKEND_MATMUL_DESCRIPTOR, &kind));
    TRY(set_attribute(kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT));
    TRY(sdpa_finish(kind, "a product"));
    TRY(sdpa_make(b->made, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, &operation));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, y));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c));
    for (int i = 0; i < 3; i++)
        if (bounded >> i & 1) TRY(set_attribute(operation, bounds[i], b->real[SDPA_LENGTHS]));
    return graph_add(b, operation);
}

static Status product_of_scores(Builder *b, Descriptor x, Descriptor y, Descriptor *made)
{
    TRY(virtual_tensor(b, CUDNN_DATA_FLOAT, scores(b), made));
    return graph_product(b, x, y, *made, M | N);
}

static Status row_sums(Builder *b, Descriptor *x)
{
    Descriptor kind, operation, to;
    TRY(sdpa_make(b->made, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, &kind));
    TRY(set_attribute(kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD));
    TRY(set_attribute(kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT));
    TRY(sdpa_finish(kind, "a sum"));
    TRY(virtual_tensor(b, CUDNN_DATA_FLOAT, row_values(b), &to));
    TRY(sdpa_make(b->made, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, &operation));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to));
    *x = to;
    return graph_add(b, operation);
}

/* x's values under another description. */
static Status seen_as(Builder *b, Descriptor x, Descriptor to)
{
    Descriptor operation;
    TRY(sdpa_make(b->made, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, &operation));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x));
    TRY(set_attribute(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to));
    return graph_add(b, operation);
}

/* xᵀ, of scores, times y. */
static Status transposed_product(Builder *b, Descriptor x, Descriptor y, Descriptor to)
{
    Descriptor transposed;
    TRY(virtual_tensor(b, b->type, transposed_extent(scores(b)), &transposed));
    TRY(seen_as(b, x, transposed));
    return graph_product(b, transposed, y, to, M | K);
}

/* ---- the graphs ---- */

static Status forward_graph(Builder *b)
{
    static const struct {
        cudnnBackendAttributeName_t name;
        int64_t number;
    } parts[] = {
        {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, SDPA_Q},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, SDPA_K},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, SDPA_V},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, SDPA_O},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, SDPA_LSE},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, SDPA_SCALE},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, SDPA_LENGTHS},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, SDPA_LENGTHS},
    };
    Descriptor operation;
    TRY(sdpa_make(b->made, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, &operation));
    for (const auto &part : parts) TRY(set_attribute(operation, part.name, b->real[part.number]));
    return graph_add(b, operation);
}

/* P = exp(scale·q·kᵀ − lse), dV = Pᵀ·do, dS = scale·P∘(do·vᵀ − Σ do·o), dK = dSᵀ·q, dQ = dS·k. */
static Status backward_graph(Builder *b)
{
    Descriptor *t = b->real, scale = t[SDPA_SCALE], dots = t[SDPA_DO], p, ds, keys;
    TRY(apply_pointwise(b, CUDNN_POINTWISE_MUL, &dots, t[SDPA_O], packed(b->n, b->heads, b->longest, b->d)));
    TRY(row_sums(b, &dots));
    Pointwise keep = {CUDNN_POINTWISE_MUL, dots, t[SDPA_ONE], NULL, CUDNN_DATA_FLOAT, 0};
    TRY(pointwise(b, &keep, t[SDPA_SUMS]));

    TRY(product_of_scores(b, t[SDPA_Q], t[SDPA_K], &p));
    TRY(apply_pointwise(b, CUDNN_POINTWISE_MUL, &p, scale, scores(b)));
    TRY(apply_pointwise(b, CUDNN_POINTWISE_SUB, &p, t[SDPA_LSE], scores(b)));
    TRY(mask_scores(b, &p));
    TRY(apply_pointwise(b, CUDNN_POINTWISE_EXP, &p, NULL, scores(b)));
    TRY(transposed_product(b, p, t[SDPA_DO], t[SDPA_DV]));

    TRY(product_of_scores(b, t[SDPA_DO], t[SDPA_V], &ds));
    TRY(apply_pointwise(b, CUDNN_POINTWISE_SUB, &ds, t[SDPA_SUMS], scores(b)));
    TRY(apply_pointwise(b, CUDNN_POINTWISE_MUL, &ds, p, scores(b)));
    TRY(apply_pointwise(b, CUDNN_POINTWISE_MUL, &ds, scale, scores(b), b->type));
    TRY(transposed_product(b, ds, t[SDPA_Q], t[SDPA_DK]));

    TRY(make_tensor(b, b->next++, b->type, in_rows(b, 3 * b->heads * b->d, b->d), true, false, t[SDPA_QKV_OFFSETS],
                    &keys));
    TRY(seen_as(b, t[SDPA_K], keys));
    return graph_product(b, ds, keys, t[SDPA_DQ], M | K);
}

Status sdpa_operations(const SdpaShape *s, Descriptors *made, Descriptors *operations, std::vector<int64_t> *numbers)
{
    Builder b = {};
    b.made = made, b.operations = operations, b.numbers = numbers;
    b.type = s->dtype == BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    b.n = s->sequences, b.heads = s->heads, b.longest = s->longest, b.d = s->head_dim, b.next = FIRST_VIRTUAL;
    TRY(memory_tensors(&b, s->backward));
    return s->backward ? backward_graph(&b) : forward_graph(&b);
}
