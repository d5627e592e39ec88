/* How a graph is written with cuDNN's backend API; for sdpa.cu, which plans and runs them, and sdpa_graph.cu, which
   says what they are. Descriptors are made, given attributes and finalised; a list keeps them until they are
   forgotten. */
#ifndef CAIRN_KERNELS_CUDA_SDPA_INTERNAL_H
#define CAIRN_KERNELS_CUDA_SDPA_INTERNAL_H

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

/* Values that a graph is given with each run, from the host; numbered behind the tensors. */
enum { SDPA_SCALE = SDPA_TENSORS, SDPA_ONE, SDPA_MASKED, SDPA_NUMBERS };

/* The operations of a shape's graph, finalised; what they consist of is added to `made`. `numbers`: the tensors and
   values that a run must give addresses for. */
Status sdpa_operations(const SdpaShape *shape, Descriptors *made, Descriptors *operations,
                       std::vector<int64_t> *numbers);

Status sdpa_check(cudnnStatus_t status, const char *what); /* E_FAIL in the library's words */
Status sdpa_make(Descriptors *made, cudnnBackendDescriptorType_t type, Descriptor *d);
Status sdpa_finish(Descriptor d, const char *what);
Status sdpa_set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t n,
                const void *values);
void sdpa_forget(Descriptors *made);

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

template <typename T> static inline Status set(Descriptor d, cudnnBackendAttributeName_t name, T value)
{
    return sdpa_set(d, name, type_of(&value), 1, &value);
}

#endif
