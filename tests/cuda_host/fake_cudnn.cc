/* A library in cuDNN's place (CAIRN_CUDNN names it), for tests on the host: it takes descriptors and attributes of the
   backend API, checks them as the real one would and more strictly (order of finalising, types, known numbers, each
   intermediate written once and before it is read, ragged offsets that fit), and runs graphs (fake_cudnn_run.cc). Its
   version is CAIRN_TEST_CUDNN_VERSION, or 9.19.0. Wrong use ends the process. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <set>

#include "cuda_host/fake_cudnn.h"
#include "cuda_host/fake_cudnn_parts.h"

static struct {
    std::set<Described *> live;
    int64_t calls, fail_at, handles, executed;
    int engines; /* FakeEngines */
    char why[128];
} fake;

int64_t fake_cudnn_live(void) { return static_cast<int64_t>(fake.live.size()) + fake.handles; }
int64_t fake_cudnn_calls(void) { return fake.calls; }
int64_t fake_cudnn_executed(void) { return fake.executed; }
void fake_cudnn_fail_at(int64_t call)
{
    fake.calls = 0;
    fake.fail_at = call;
}
void fake_cudnn_engines(FakeEngines which) { fake.engines = which; }

void wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fake cuDNN: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}
/* Every call that can fail. */
#define CALL                                                                                                           \
    do {                                                                                                               \
        if (++fake.calls == fake.fail_at) {                                                                            \
            snprintf(fake.why, sizeof fake.why, "call %lld was told to fail", (long long)fake.calls);                  \
            return CUDNN_STATUS_INTERNAL_ERROR;                                                                        \
        }                                                                                                              \
    } while (0)

/* ---- attributes ---- */

/* The descriptor of each, its type, and whether it is required. */
static const struct Known {
    int name;
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeType_t type;
    bool required;
} known[] = {
#define A(of, name, type, required)                                                                                    \
    {                                                                                                                  \
        CUDNN_ATTR_##name, CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_TYPE_##type, required                                \
    }
    A(TENSOR, TENSOR_UNIQUE_ID, INT64, true),
    A(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, true),
    A(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, true),
    A(TENSOR, TENSOR_DIMENSIONS, INT64, true),
    A(TENSOR, TENSOR_STRIDES, INT64, true),
    A(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, false),
    A(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, false),
    A(TENSOR, TENSOR_RAGGED_OFFSET_DESC, BACKEND_DESCRIPTOR, false),
    A(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, true),
    A(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, true),
    A(POINTWISE, POINTWISE_AXIS, INT64, false),
    A(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, true),
    A(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, false),
    A(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, false),
    A(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, true),
    A(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, true),
    A(OPERATION_MATMUL, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_MATMUL, OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, BACKEND_DESCRIPTOR, false),
    A(OPERATION_MATMUL, OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, BACKEND_DESCRIPTOR, false),
    A(OPERATION_MATMUL, OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, BACKEND_DESCRIPTOR, false),
    A(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, true),
    A(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, true),
    A(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_QDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_KDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_VDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_ODESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_STATSDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_SCALEDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_SEQ_LEN_QDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, BACKEND_DESCRIPTOR, true),
    A(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, true),
    A(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, true),
    A(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, true),
    A(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, true),
    A(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, true),
    A(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, true),
    A(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, true),
    A(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, true),
    A(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, true),
    /* cuDNN sets it */
    A(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, false),
#undef A
};

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return sizeof(cudnnDataType_t); /* an enumeration */
    }
}

static Described *at(cudnnBackendDescriptor_t d)
{
    Described *it = static_cast<Described *>(d);
    MUST(fake.live.count(it), "%p is not a descriptor", d);
    return it;
}

/* ---- tensors ---- */

static void check_tensor(const Described *t)
{
    auto n = sizes(t), step = strides(t);
    MUST(n.size() == 4 && step.size() == 4, "tensor %lld has %zu dimensions", (long long)number_of(t), n.size());
    for (int i = 0; i < 4; i++)
        MUST(n[i] > 0 && step[i] > 0, "tensor %lld: a size or stride is not positive", (long long)number_of(t));
    MUST(!is_virtual(t) || !one_of<bool>(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE), "a value is in memory");
    const Described *o = offsets(t);
    if (!o) return;
    MUST(type_of(o) == CUDNN_DATA_INT32 && sizes(o) == (std::vector<int64_t>{n[0] + 1, 1, 1, 1}),
         "the offsets of tensor %lld are not one for each sequence and one", (long long)number_of(t));
    MUST(step[0] >= n[2] * step[2] || step[0] >= n[3] * step[3], "tensor %lld overlaps", (long long)number_of(t));
}

/* ---- graphs ---- */

static std::vector<const Described *> written(const Described *op)
{
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return {part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return {part(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return {part(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return {part(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
        return {part(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC), part(op, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC)};
    default:
        wrong("a graph of descriptors of type %d", op->type);
    }
}

/* All tensors of the graph by number, offsets among them. */
static std::map<int64_t, const Described *> tensors_of(const Described *graph)
{
    std::map<int64_t, const Described *> found;
    auto note = [&](const Described *t) {
        auto &known_as = found[number_of(t)];
        MUST(!known_as || known_as == t, "two tensors have number %lld", (long long)number_of(t));
        known_as = t;
    };
    for (const Described *op : all_of<const Described *>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS))
        for (const auto &a : op->attribute) {
            if (a.second.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) continue;
            const Described *t = part(op, a.first);
            if (t->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) continue;
            note(t);
            if (offsets(t)) note(offsets(t));
        }
    return found;
}

static void check_graph(const Described *graph)
{
    std::set<const Described *> done;
    for (const Described *op : all_of<const Described *>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        auto to = written(op);
        for (const auto &a : op->attribute) {
            if (a.second.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) continue;
            const Described *t = part(op, a.first);
            bool output = false;
            for (const Described *w : to) output |= w == t;
            if (t->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR || output || !is_virtual(t)) continue;
            MUST(done.count(t), "tensor %lld is read before it is written", (long long)number_of(t));
        }
        for (const Described *t : to)
            MUST(done.insert(t).second, "tensor %lld is written twice", (long long)number_of(t));
    }
    (void)tensors_of(graph);
}

/* ---- the library ---- */

#define STATUS extern "C" cudnnStatus_t

extern "C" size_t cudnnGetVersion(void)
{
    const char *version = getenv("CAIRN_TEST_CUDNN_VERSION");
    return version ? strtoull(version, nullptr, 10) : 91900;
}

extern "C" const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "SUCCESS" : "FAKE_ERROR";
}

extern "C" void cudnnGetLastErrorString(char *message, size_t size) { snprintf(message, size, "%s", fake.why); }

STATUS cudnnCreate(cudnnHandle_t *handle)
{
    CALL;
    fake.handles++;
    *handle = reinterpret_cast<cudnnHandle_t>(&fake);
    return CUDNN_STATUS_SUCCESS;
}

STATUS cudnnDestroy(cudnnHandle_t handle)
{
    MUST(handle == reinterpret_cast<cudnnHandle_t>(&fake) && fake.handles > 0, "no handle");
    fake.handles--;
    return CUDNN_STATUS_SUCCESS;
}

STATUS cudnnSetStream(cudnnHandle_t, cudaStream_t)
{
    CALL;
    return CUDNN_STATUS_SUCCESS;
}

STATUS cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d)
{
    CALL;
    Described *made = new Described();
    made->type = type;
    fake.live.insert(made);
    *d = made;
    return CUDNN_STATUS_SUCCESS;
}

STATUS cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    Described *it = at(d);
    fake.live.erase(it);
    delete it;
    return CUDNN_STATUS_SUCCESS;
}

STATUS cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    CALL;
    Described *it = at(d);
    const Known *it_is = nullptr;
    for (const Known &k : known)
        if (k.name == name && k.of == it->type) it_is = &k;
    MUST(it_is, "attribute %d of a descriptor of type %d", name, it->type);
    MUST(it_is->type == type, "attribute %d has values of type %d", name, type);
    MUST(!it->finished, "attribute %d of a descriptor that is finalised", name);
    MUST(n > 0 && values, "attribute %d has no values", name);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < n; i++)
            MUST(at(static_cast<const cudnnBackendDescriptor_t *>(values)[i])->finished,
                 "attribute %d is a descriptor that is not finalised", name);
    it->attribute[name] = {type, n,
                           std::string(static_cast<const char *>(values), static_cast<size_t>(n) * size_of(type))};
    return CUDNN_STATUS_SUCCESS;
}

STATUS cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    CALL;
    Described *it = at(d);
    MUST(!it->finished, "a descriptor of type %d is finalised twice", it->type);
    for (const Known &k : known)
        MUST(k.of != it->type || !k.required || it->attribute.count(k.name), "attribute %d is missing", k.name);
    if (it->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) check_tensor(it);
    if (it->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) check_graph(it);
    it->finished = true;
    return CUDNN_STATUS_SUCCESS;
}

/* The workspace that a graph needs, and a run writes. */
static size_t workspace(const Described *plan)
{
    const Described *config = part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    return 1000 + 256 * tensors_of(part(config, CUDNN_ATTR_ENGINE_OPERATION_GRAPH)).size();
}

/* Two configurations: the first engine's sums have no fixed order. */
static int64_t propose(const Described *asked, int64_t room, void *values)
{
    int64_t n = fake.engines == FAKE_ENGINES_NONE ? 0 : 2;
    for (int64_t i = 0; i < n && i < room; i++) {
        Described *config = at(static_cast<cudnnBackendDescriptor_t *>(values)[i]);
        MUST(config->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "a configuration is put into type %d", config->type);
        Described *graph = part(asked, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        config->any_order = i == 0 || fake.engines == FAKE_ENGINES_ANY_ORDER;
        config->attribute[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {
            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, std::string(reinterpret_cast<const char *>(&graph), sizeof graph)};
        config->finished = true;
    }
    return n;
}

STATUS cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                cudnnBackendAttributeType_t, int64_t room, int64_t *n, void *values)
{
    CALL;
    const Described *it = at(d);
    MUST(it->finished, "attribute %d is read from a descriptor that is not finalised", name);
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        *n = propose(it, room, values);
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        Described *engine = at(*static_cast<cudnnBackendDescriptor_t *>(values));
        engine->any_order = it->any_order;
        engine->finished = true;
        *n = 1;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        cudnnBackendNumericalNote_t *notes = static_cast<cudnnBackendNumericalNote_t *>(values);
        notes[0] = it->any_order ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        *n = 1;
    } else {
        MUST(name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && room == 1, "attribute %d is read", name);
        MUST(!part(it, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->any_order, "a plan without a fixed order of sums");
        *static_cast<int64_t *>(values) = static_cast<int64_t>(workspace(it));
        *n = 1;
    }
    return CUDNN_STATUS_SUCCESS;
}

STATUS cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    CALL;
    const Described *p = at(plan), *data = at(pack);
    MUST(handle == reinterpret_cast<cudnnHandle_t>(&fake) && fake.handles > 0, "no handle");
    MUST(p->finished && data->finished, "a run of a plan or pack that is not finalised");
    const Described *graph = part(part(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    std::vector<int64_t> numbers = all_of<int64_t>(data, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    std::vector<char *> addresses = all_of<char *>(data, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    std::map<int64_t, char *> address;
    MUST(numbers.size() == addresses.size(), "%zu numbers have %zu addresses", numbers.size(), addresses.size());
    for (size_t i = 0; i < numbers.size(); i++) address[numbers[i]] = addresses[i];
    size_t known_tensors = 0;
    for (const auto &t : tensors_of(graph)) {
        if (is_virtual(t.second)) continue;
        known_tensors++;
        bool by_value = one_of<bool>(t.second, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
        MUST(address.count(t.first) && address[t.first], "tensor %lld has no address", (long long)t.first);
        MUST(by_value || reinterpret_cast<uintptr_t>(address[t.first]) % 16 == 0, "tensor %lld is not on 16 bytes",
             (long long)t.first);
    }
    MUST(known_tensors == numbers.size(), "a run names %zu tensors, its graph has %zu", numbers.size(), known_tensors);
    char *room = one_of<char *>(data, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    MUST(room && reinterpret_cast<uintptr_t>(room) % 256 == 0, "the workspace is not on 256 bytes");
    memset(room, 0x7f, workspace(p));
    run_graph(graph, address);
    fake.executed++;
    return CUDNN_STATUS_SUCCESS;
}
