/* Graphs in cuDNN's backend API, for sdpa_graph.cu, which builds them, and sdpa.cu, which plans and runs them. A
   descriptor is created, gets attributes and is finalised; a list owns the descriptors until the plan is released. */
#pragma once

#include <cudnn.h>
#include <stdint.h>
#include <vector>

extern "C" {
#include "kernels/cuda/sdpa.h"
}

#define CUDNN_LIST(X)                                                                                                  \
    X(cudnnGetVersion)                                                                                                 \
    X(cudnnGetErrorString)                                                                                             \
    X(cudnnGetLastErrorString)                                                                                         \
    X(cudnnCreate)                                                                                                     \
    X(cudnnDestroy)                                                                                                    \
    X(cudnnSetStream)                                                                                                  \
    X(cudnnBackendCreateDescriptor)                                                                                    \
    X(cudnnBackendDestroyDescriptor)                                                                                   \
    X(cudnnBackendSetAttribute)                                                                                        \
    X(cudnnBackendGetAttribute)                                                                                        \
    X(cudnnBackendFinalize)                                                                                            \
    X(cudnnBackendExecute)

/* The library's functions, after sdpa_open. */
struct Cudnn {
#define X(function) decltype(&::function) function;
    CUDNN_LIST(X)
#undef X
};
extern Cudnn sdpa_cudnn;

typedef cudnnBackendDescriptor_t Descriptor;
typedef std::vector<Descriptor> Descriptors;

/* Values that a graph gets from the host at each run; numbered behind the tensors. */
enum { SDPA_SCALE = SDPA_TENSORS, SDPA_ONE, SDPA_MASKED, SDPA_NUMBERS };

/* The operations of a shape's graph, finalised; their descriptors are added to `made`. `numbers`: the tensors and
   values that a run must pass addresses for. */
Status sdpa_operations(const SdpaShape *shape, Descriptors *made, Descriptors *operations,
                       std::vector<int64_t> *numbers);

Status sdpa_make(Descriptors *made, cudnnBackendDescriptorType_t type, Descriptor *d);
Status sdpa_finish(Descriptor d, const char *what);
Status sdpa_set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t n,
                const void *values);

/* The attribute's type follows from the value's. */
static constexpr cudnnBackendAttributeType_t type_of(const int64_t *) { return CUDNN_TYPE_INT64; }
static constexpr cudnnBackendAttributeType_t type_of(const bool *) { return CUDNN_TYPE_BOOLEAN; }
static constexpr cudnnBackendAttributeType_t type_of(const Descriptor *) { return CUDNN_TYPE_BACKEND_DESCRIPTOR; }
static constexpr cudnnBackendAttributeType_t type_of(const cudnnHandle_t *) { return CUDNN_TYPE_HANDLE; }
static constexpr cudnnBackendAttributeType_t type_of(const cudnnDataType_t *) { return CUDNN_TYPE_DATA_TYPE; }
static constexpr cudnnBackendAttributeType_t type_of(const cudnnBackendHeurMode_t *) { return CUDNN_TYPE_HEUR_MODE; }
static constexpr cudnnBackendAttributeType_t type_of(const cudnnPointwiseMode_t *) { return CUDNN_TYPE_POINTWISE_MODE; }
static constexpr cudnnBackendAttributeType_t type_of(const cudnnReduceTensorOp_t *)
{
    return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
}

template <typename T> static inline Status set_attribute(Descriptor d, cudnnBackendAttributeName_t name, T value)
{
    return sdpa_set(d, name, type_of(&value), 1, &value);
}
