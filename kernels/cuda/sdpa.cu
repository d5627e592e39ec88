/* See sdpa.h: loading and plans; the graphs are in sdpa_graph.cu. Plain C++ without kernels. A build without cuDNN has
   sdpa_absent.cu instead. */
#include <cuda_platform.cuh>
#include <dlfcn.h>
#include <map>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <tuple>

#include "kernels/cuda/sdpa_internal.h"

#define LIBRARY "libcudnn.so.9"
#define OLDEST  91801 /* packed sequences on every GPU from compute capability 8 on */
static_assert(CUDNN_VERSION >= OLDEST, "cmake/CairnCuda.cmake refuses an older cudnn.h");

struct SdpaPlan {
    SdpaShape shape;
    Descriptors made;     /* all that it consists of */
    Descriptor execution; /* of made */
    size_t workspace;
    Status status; /* not OK: cuDNN cannot do it; `why` */
    std::string why;
    std::vector<int64_t> numbers; /* of the tensors and values that a run passes addresses for */
    float value[SDPA_NUMBERS - SDPA_TENSORS];
    mutable bool has_run;
};

static struct {
    bool opened;
    int major, minor;
    void *library;
    cudnnHandle_t handle;
    void *stream;
    Descriptor device; /* tests: properties of an imagined device, in place of the handle */
    char describe[32];
    std::map<std::tuple<bool, Dtype, int32_t, int32_t, int64_t, int64_t, float>, SdpaPlan> plans; /* by shape */
} cudnn;
Cudnn sdpa_cudnn;

bool sdpa_is_open(void) { return cudnn.opened; }
const char *sdpa_describe(void) { return cudnn.describe; }

/* ---- descriptors ---- */

/* The library's message; E_USAGE where it does not support `what`. */
static Status sdpa_check(cudnnStatus_t status, const char *what)
{
    char why[512] = "";
    if (status == CUDNN_STATUS_SUCCESS) return OK;
    sdpa_cudnn.cudnnGetLastErrorString(why, sizeof why);
    bool refused = status / 1000 * 1000 == CUDNN_STATUS_NOT_SUPPORTED; /* and its kinds */
    return fail(refused ? E_USAGE : E_FAIL, "cuDNN: %s: %s%s%s", what, sdpa_cudnn.cudnnGetErrorString(status),
                *why ? ": " : "", why);
}

Status sdpa_make(Descriptors *made, cudnnBackendDescriptorType_t type, Descriptor *d)
{
    *d = NULL;
    TRY(sdpa_check(sdpa_cudnn.cudnnBackendCreateDescriptor(type, d), "making a descriptor"));
    made->push_back(*d);
    return OK;
}

Status sdpa_set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t n,
                const void *values)
{
    return sdpa_check(sdpa_cudnn.cudnnBackendSetAttribute(d, name, type, static_cast<int64_t>(n), values),
                      "describing a graph");
}

Status sdpa_finish(Descriptor d, const char *what) { return sdpa_check(sdpa_cudnn.cudnnBackendFinalize(d), what); }

static void release_descriptors(Descriptors *made)
{
    while (!made->empty()) {
        (void)sdpa_cudnn.cudnnBackendDestroyDescriptor(made->back());
        made->pop_back();
    }
}

/* ---- plans ---- */

/* Up to n values; there are *found. */
static Status get_attribute(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                            int64_t *found, void *values)
{
    return sdpa_check(sdpa_cudnn.cudnnBackendGetAttribute(d, name, type, n, found, values), "asking about an engine");
}

/* Whether the engine of `config` adds in a fixed order. */
static Status has_fixed_order(SdpaPlan *p, Descriptor config, bool *fixed_order)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    Descriptor engine;
    int64_t n = 0;
    *fixed_order = true;
    TRY(sdpa_make(&p->made, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    TRY(get_attribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine));
    TRY(get_attribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                      CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes));
    for (int64_t i = 0; i < n; i++) *fixed_order &= notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return OK;
}

/* The library's proposals, best first by its own estimate. */
static Status cudnn_proposals(SdpaPlan *p, Descriptor graph, Descriptors *configs)
{
    Descriptor proposals;
    int64_t n = 0;
    TRY(sdpa_make(&p->made, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &proposals));
    TRY(set_attribute(proposals, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
    TRY(set_attribute(proposals, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A));
    if (cudnn.device) TRY(set_attribute(proposals, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, cudnn.device));
    TRY(sdpa_finish(proposals, "asking for engines"));
    TRY(get_attribute(proposals, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL));
    configs->resize(static_cast<size_t>(n));
    for (auto &config : *configs) TRY(sdpa_make(&p->made, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config));
    if (n > 0)
        TRY(get_attribute(proposals, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &n,
                          configs->data()));
    configs->resize(static_cast<size_t>(n)); /* those that this machine can run */
    return OK;
}

static Status sdpa_plan_of(SdpaPlan *p, Descriptor config)
{
    Descriptor d;
    int64_t n = 0, bytes = 0;
    TRY(sdpa_make(&p->made, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d));
    TRY(set_attribute(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    TRY(cudnn.device ? set_attribute(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, cudnn.device)
                     : set_attribute(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, cudnn.handle));
    TRY(sdpa_finish(d, "an execution plan"));
    TRY(get_attribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes));
    p->execution = d;
    p->workspace = static_cast<size_t>(bytes);
    return OK;
}

static Status build_plan(SdpaPlan *p)
{
    Descriptors operations, configs;
    Descriptor graph;
    p->value[SDPA_SCALE - SDPA_TENSORS] = p->shape.scale;
    p->value[SDPA_ONE - SDPA_TENSORS] = 1;
    p->value[SDPA_MASKED - SDPA_TENSORS] = -INFINITY;
    TRY(sdpa_operations(&p->shape, &p->made, &operations, &p->numbers));
    TRY(sdpa_make(&p->made, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph));
    TRY(sdpa_set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.size(),
                 operations.data()));
    if (!cudnn.device) TRY(set_attribute(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, cudnn.handle));
    TRY(sdpa_finish(graph, "a graph"));
    TRY(cudnn_proposals(p, graph, &configs));
    Status status = fail(E_USAGE, "%s has no engine for it that adds in a fixed order", cudnn.describe);
    for (size_t i = 0; i < configs.size() && !p->execution; i++) {
        bool fixed_order;
        TRY(has_fixed_order(p, configs[i], &fixed_order));
        if (fixed_order) status = sdpa_plan_of(p, configs[i]); /* the next may do */
    }
    return status;
}

/* Checks known limits before the library is called. */
static Status check_limits(const SdpaShape *s)
{
    if (s->dtype != BF16 && s->dtype != F16)
        return fail(E_USAGE, "it computes in bf16 and fp16, not %s", dtype_name(s->dtype));
    if (s->head_dim % 8 != 0 || s->head_dim > 128)
        return fail(E_USAGE, "heads have %d columns; it takes multiples of 8 up to 128", s->head_dim);
    if (s->backward && cudnn.major != 9)
        return fail(
            E_USAGE,
            "on compute capability %d.%d its backward for packed sequences has no fixed order of sums (on 9.0 it "
            "has)",
            cudnn.major, cudnn.minor);
    return OK;
}

Status sdpa_plan(const SdpaShape *s, const SdpaPlan **plan)
{
    CHECK(cudnn.opened, "cuDNN is not open");
    auto [place, is_new] =
        cudnn.plans.insert({{s->backward, s->dtype, s->heads, s->head_dim, s->sequences, s->longest, s->scale}, {}});
    SdpaPlan *p = &place->second;
    if (is_new) {
        p->shape = *s;
        p->status = check_limits(s);
        if (p->status == OK) p->status = build_plan(p);
        if (p->status != OK) {
            p->why = status_message();
            p->execution = NULL;
            release_descriptors(&p->made);
        }
    }
    *plan = p->status == OK ? p : NULL;
    if (p->status == OK) return OK;
    return fail(p->status,
                "--attention cudnn: %s of %s, %d heads of %d, %lld sequences of at most %lld tokens: %s. Use "
                "--attention own",
                s->backward ? "the backward" : "attention", dtype_name(s->dtype), s->heads, s->head_dim,
                (long long)s->sequences, (long long)s->longest, p->why.c_str());
}

size_t sdpa_workspace(const SdpaPlan *plan) { return plan->workspace; }
bool sdpa_has_run(const SdpaPlan *plan) { return plan->has_run; }

static Status execute_plan(const SdpaPlan *p, const SdpaData *data, Descriptor pack)
{
    std::vector<const void *> addresses;
    for (int64_t number : p->numbers)
        addresses.push_back(number < SDPA_TENSORS ? data->tensor[number] : &p->value[number - SDPA_TENSORS]);
    TRY(sdpa_set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, p->numbers.size(), p->numbers.data()));
    TRY(sdpa_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses.size(), addresses.data()));
    TRY(sdpa_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &data->workspace));
    TRY(sdpa_finish(pack, "the operands of a run"));
    return sdpa_check(sdpa_cudnn.cudnnBackendExecute(cudnn.handle, p->execution, pack), "running attention");
}

Status sdpa_run(const SdpaPlan *p, const SdpaData *data, void *stream)
{
    Descriptor pack = NULL;
    if (stream != cudnn.stream) {
        TRY(sdpa_check(sdpa_cudnn.cudnnSetStream(cudnn.handle, static_cast<cudaStream_t>(stream)),
                       "choosing a stream"));
        cudnn.stream = stream;
    }
    TRY(sdpa_check(sdpa_cudnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
                   "making a descriptor"));
    Status status = execute_plan(p, data, pack);
    p->has_run = true;
    (void)sdpa_cudnn.cudnnBackendDestroyDescriptor(pack);
    return status;
}

/* ---- opening ---- */

static Status load_cudnn(void)
{
    const char *named = getenv("CAIRN_CUDNN"), *name = named && *named ? named : LIBRARY, *missing = NULL;
    if (cudnn.library) return OK; /* to the process' end, as every library that has used the device */
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return fail(E_USAGE,
                    "--attention cudnn: cuDNN cannot be loaded: %s. Install cuDNN 9 for this CUDA, name its folder in "
                    "LD_LIBRARY_PATH or the file in CAIRN_CUDNN, or use --attention own",
                    dlerror());
#define X(function)                                                                                                    \
    *reinterpret_cast<void **>(&sdpa_cudnn.function) = dlsym(library, #function);                                      \
    if (!sdpa_cudnn.function) missing = #function;
    CUDNN_LIST(X)
#undef X
    size_t version = sdpa_cudnn.cudnnGetVersion ? sdpa_cudnn.cudnnGetVersion() : 0;
    if (missing || version < OLDEST) {
        (void)dlclose(library);
        return fail(
            E_USAGE,
            "--attention cudnn: %s is too old: %zu.%zu.%zu%s%s, and %d.%d.%d or newer is needed. Install it, or "
            "use --attention own",
            name, version / 10000, version / 100 % 100, version % 100, missing ? " without " : "",
            missing ? missing : "", OLDEST / 10000, OLDEST / 100 % 100, OLDEST % 100);
    }
    cudnn.library = library;
    snprintf(cudnn.describe, sizeof cudnn.describe, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
    return OK;
}

/* An imagined device's properties, as cuDNN writes them: cuDNN then plans, and cannot run. */
static Status imagine_device(void)
{
    const char *text = cuda_imagined_device();
    if (!text) return OK;
    TRY(sdpa_check(sdpa_cudnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &cudnn.device),
                   "a device"));
    TRY(sdpa_set(cudnn.device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, strlen(text) + 1, text));
    return sdpa_finish(cudnn.device, "a device's properties");
}

Status sdpa_open(int major, int minor)
{
    if (cudnn.opened) return OK;
    cudnn.opened = true;
    cudnn.major = major, cudnn.minor = minor;
    Status status = load_cudnn();
    if (status == OK) status = imagine_device();
    if (status == OK && !cudnn.device)
        status = sdpa_check(sdpa_cudnn.cudnnCreate(&cudnn.handle), "opening it for the device");
    if (status != OK) sdpa_close();
    return status;
}

void sdpa_close(void)
{
    for (auto &plan : cudnn.plans) release_descriptors(&plan.second.made);
    cudnn.plans.clear();
    if (cudnn.device) (void)sdpa_cudnn.cudnnBackendDestroyDescriptor(cudnn.device);
    if (cudnn.handle) (void)sdpa_cudnn.cudnnDestroy(cudnn.handle);
    cudnn.device = NULL, cudnn.handle = NULL, cudnn.stream = NULL, cudnn.opened = false;
}
