/* Runs the graphs of fake_cudnn.cc in plain loops. Rows behind a sequence's end read as NaN and are not written, so a
   missing bound or mask shows. */
#include "cuda_host/fake_cudnn_parts.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

namespace
{
typedef std::vector<float> Values; /* in the order of the sizes */

struct Run {
    std::map<int64_t, char *> address;
    std::map<const Described *, Values> between;
    std::vector<int32_t> lengths;
};
} // namespace

static float from_memory(const char *p, int64_t i, cudnnDataType_t type)
{
    switch (type) {
    case CUDNN_DATA_FLOAT:
        return reinterpret_cast<const float *>(p)[i];
    case CUDNN_DATA_BFLOAT16:
        return __bfloat162float(reinterpret_cast<const __nv_bfloat16 *>(p)[i]);
    case CUDNN_DATA_HALF:
        return __half2float(reinterpret_cast<const __half *>(p)[i]);
    case CUDNN_DATA_INT32:
        return static_cast<float>(reinterpret_cast<const int32_t *>(p)[i]);
    default:
        wrong("a tensor in memory of type %d", type);
    }
}

static float rounded(float x, cudnnDataType_t type)
{
    if (type == CUDNN_DATA_BFLOAT16) return __bfloat162float(__float2bfloat16_rn(x));
    return type == CUDNN_DATA_HALF ? __half2float(__float2half_rn(x)) : x;
}

static void to_memory(char *p, int64_t i, cudnnDataType_t type, float x)
{
    if (type == CUDNN_DATA_FLOAT)
        reinterpret_cast<float *>(p)[i] = x;
    else if (type == CUDNN_DATA_BFLOAT16)
        reinterpret_cast<__nv_bfloat16 *>(p)[i] = __float2bfloat16_rn(x);
    else if (type == CUDNN_DATA_HALF)
        reinterpret_cast<__half *>(p)[i] = __float2half_rn(x);
    else
        wrong("a result of type %d", type);
}

/* Calls f(index in Values, place in memory) for each element; place −1: behind the end of its sequence. */
template <typename F> static void each_element(const Run *r, const Described *t, F f)
{
    auto n = sizes(t), step = strides(t);
    const Described *o = offsets(t);
    const int32_t *offset = o ? reinterpret_cast<const int32_t *>(r->address.at(number_of(o))) : nullptr;
    size_t k = 0;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++)
                for (int64_t j = 0; j < n[3]; j++) {
                    bool there = !offset || (step[2] >= step[3] ? i : j) < r->lengths[static_cast<size_t>(b)];
                    int64_t start = offset ? offset[b] : b * step[0];
                    int64_t place = start + h * step[1] + i * step[2] + j * step[3];
                    MUST(!offset || !there || place < offset[n[0]], "an element behind the last offset");
                    f(k++, there ? place : -1);
                }
}

static Values get(const Run *r, const Described *t)
{
    if (is_virtual(t)) return r->between.at(t);
    auto n = sizes(t);
    Values v(static_cast<size_t>(n[0] * n[1] * n[2] * n[3]));
    const char *memory = r->address.at(number_of(t));
    each_element(r, t, [&](size_t k, int64_t p) { v[k] = p < 0 ? NAN : from_memory(memory, p, type_of(t)); });
    return v;
}

static void put(Run *r, const Described *t, Values v)
{
    for (float &x : v) x = rounded(x, type_of(t));
    if (is_virtual(t)) {
        r->between[t] = v;
        return;
    }
    char *memory = r->address.at(number_of(t));
    each_element(r, t, [&](size_t k, int64_t p) {
        if (p >= 0) to_memory(memory, p, type_of(t), v[k]);
    });
}

static float pointwise(cudnnPointwiseMode_t mode, float x, float y, float chosen)
{
    switch (mode) {
    case CUDNN_POINTWISE_MUL:
        return x * y;
    case CUDNN_POINTWISE_SUB:
        return x - y;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_CMP_LT:
        return x < y;
    case CUDNN_POINTWISE_LOGICAL_AND:
        return x != 0 && y != 0;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return chosen != 0 ? x : y;
    default:
        wrong("pointwise mode %d", mode);
    }
}

static void run_pointwise(Run *r, const Described *op)
{
    const Described *kind = part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const Described *to = part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const Described *from[] = {part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                               part(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
                               part(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC)};
    auto mode = one_of<cudnnPointwiseMode_t>(kind, CUDNN_ATTR_POINTWISE_MODE);
    auto axis = static_cast<size_t>(one_of<int64_t>(kind, CUDNN_ATTR_POINTWISE_AXIS));
    auto n = sizes(to);
    Values v[3], result;
    int64_t step[3][4]; /* through v; 0 where it has only one */
    for (int i = 0; i < 3; i++) {
        if (!from[i]) continue;
        v[i] = get(r, from[i]);
        auto size = sizes(from[i]);
        int64_t next = 1;
        for (size_t a = 4; a-- > 0; next *= size[a]) {
            MUST(size[a] == n[a] || size[a] == 1, "pointwise: sizes do not fit");
            step[i][a] = size[a] == 1 ? 0 : next;
        }
    }
    int64_t index[4];
    for (index[0] = 0; index[0] < n[0]; index[0]++)
        for (index[1] = 0; index[1] < n[1]; index[1]++)
            for (index[2] = 0; index[2] < n[2]; index[2]++)
                for (index[3] = 0; index[3] < n[3]; index[3]++) {
                    float x[3] = {0, 0, 0};
                    for (int i = 0; i < 3; i++) {
                        if (!from[i]) continue;
                        int64_t k = 0;
                        for (int a = 0; a < 4; a++) k += index[a] * step[i][a];
                        x[i] = v[i][static_cast<size_t>(k)];
                    }
                    result.push_back(mode == CUDNN_POINTWISE_GEN_INDEX ? static_cast<float>(index[axis])
                                                                       : pointwise(mode, x[0], x[1], x[2]));
                }
    put(r, to, result);
}

static void run_product(Run *r, const Described *op)
{
    static const int bounds[] = {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
                                 CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
                                 CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC};
    const Described *x = part(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC), *y = part(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC),
                    *to = part(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    auto sx = sizes(x), sy = sizes(y), n = sizes(to);
    MUST(sx[2] == n[2] && sy[3] == n[3] && sx[3] == sy[2] && sx[0] == n[0] && sy[0] == n[0] && sx[1] == n[1] &&
             sy[1] == n[1],
         "a product's sizes do not fit");
    MUST(type_of(x) == type_of(y), "a product of two types");
    Values vx = get(r, x), vy = get(r, y), result(static_cast<size_t>(n[0] * n[1] * n[2] * n[3]));
    for (int64_t b = 0; b < n[0] * n[1]; b++) {
        int64_t end[3] = {n[2], n[3], sx[3]};
        for (int i = 0; i < 3; i++)
            if (part(op, bounds[i])) end[i] = r->lengths[static_cast<size_t>(b / n[1])];
        for (int64_t i = 0; i < end[0]; i++)
            for (int64_t j = 0; j < end[1]; j++) {
                float sum = 0;
                for (int64_t k = 0; k < end[2]; k++)
                    sum += vx[static_cast<size_t>((b * n[2] + i) * sx[3] + k)] *
                           vy[static_cast<size_t>((b * sx[3] + k) * n[3] + j)];
                result[static_cast<size_t>((b * n[2] + i) * n[3] + j)] = sum;
            }
    }
    put(r, to, result);
}

static void run_sums(Run *r, const Described *op)
{
    const Described *x = part(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
                    *to = part(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    const Described *kind = part(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    auto n = sizes(x), m = sizes(to);
    MUST(one_of<int>(kind, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD, "a reduction other than a sum");
    MUST(m[0] == n[0] && m[1] == n[1] && m[2] == n[2] && m[3] == 1, "a sum's sizes do not fit");
    Values v = get(r, x), result;
    for (size_t row = 0; row < static_cast<size_t>(n[0] * n[1] * n[2]); row++) {
        float sum = 0;
        for (size_t j = 0; j < static_cast<size_t>(n[3]); j++) sum += v[row * static_cast<size_t>(n[3]) + j];
        result.push_back(sum);
    }
    put(r, to, result);
}

/* Swaps rows and columns with their strides: the same memory. */
static void run_reshape(Run *r, const Described *op)
{
    const Described *x = part(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
                    *to = part(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    auto n = sizes(x), m = sizes(to), step = strides(x), other = strides(to);
    MUST(m[0] == n[0] && m[1] == n[1] && m[2] == n[3] && m[3] == n[2] && other[2] == step[3] && other[3] == step[2],
         "a reshape that does not turn");
    Values v = get(r, x), result(v.size());
    for (int64_t b = 0; b < n[0] * n[1]; b++)
        for (int64_t i = 0; i < n[2]; i++)
            for (int64_t j = 0; j < n[3]; j++)
                result[static_cast<size_t>((b * n[3] + j) * n[2] + i)] =
                    v[static_cast<size_t>((b * n[2] + i) * n[3] + j)];
    put(r, to, result);
}

static void run_attention(Run *r, const Described *op)
{
    const Described *q = part(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC),
                    *o = part(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC),
                    *stats = part(op, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC);
    Values vq = get(r, q), vk = get(r, part(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC)),
           vv = get(r, part(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC));
    float scale = get(r, part(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC))[0];
    auto n = sizes(q);
    MUST(sizes(o) == n && sizes(stats)[3] == 1 && type_of(stats) == CUDNN_DATA_FLOAT, "attention's sizes do not fit");
    size_t longest = static_cast<size_t>(n[2]), d = static_cast<size_t>(n[3]);
    Values out(vq.size()), lse(vq.size() / d), p(longest);
    for (size_t b = 0; b < static_cast<size_t>(n[0] * n[1]); b++) {
        size_t length = static_cast<size_t>(r->lengths[b / static_cast<size_t>(n[1])]);
        for (size_t i = 0; i < length; i++) {
            float top = -INFINITY, sum = 0;
            const float *query = &vq[(b * longest + i) * d];
            for (size_t j = 0; j < length; j++) {
                p[j] = 0;
                for (size_t c = 0; c < d; c++) p[j] += query[c] * vk[(b * longest + j) * d + c];
                p[j] *= scale;
                top = fmaxf(top, p[j]);
            }
            for (size_t j = 0; j < length; j++) sum += p[j] = expf(p[j] - top);
            lse[b * longest + i] = top + logf(sum);
            for (size_t j = 0; j < length; j++)
                for (size_t c = 0; c < d; c++)
                    out[(b * longest + i) * d + c] += rounded(p[j] / sum, type_of(q)) * vv[(b * longest + j) * d + c];
        }
    }
    put(r, o, out);
    put(r, stats, lse);
}

void run_graph(const Described *graph, const std::map<int64_t, char *> &address)
{
    Run run = {address, {}, {}}, *r = &run;
    const Described *lengths = nullptr;
    for (const Described *op : all_of<const Described *>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS))
        for (int name : {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC})
            if (part(op, name)) lengths = part(op, name);
    MUST(lengths, "a graph without lengths");
    const int32_t *length = reinterpret_cast<const int32_t *>(address.at(number_of(lengths)));
    run.lengths.assign(length, length + sizes(lengths)[0]);
    for (const Described *op : all_of<const Described *>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)) switch (op->type) {
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
            run_pointwise(r, op);
            break;
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
            run_product(r, op);
            break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
            run_sums(r, op);
            break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
            run_reshape(r, op);
            break;
        default:
            run_attention(r, op);
        }
}
