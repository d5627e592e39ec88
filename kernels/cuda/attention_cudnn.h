/* Attention without dropout by cuDNN (sdpa.h), behind the ops ATTENTION and ATTENTION_BWD: for attention.cu and
   attention_bwd.cu. */
#ifndef CAIRN_KERNELS_CUDA_ATTENTION_CUDNN_H
#define CAIRN_KERNELS_CUDA_ATTENTION_CUDNN_H

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/op.h"

/* The backend was opened with it, and this op has no dropout. */
bool attention_by_cudnn(const OpCall *call);
size_t attention_cudnn_scratch(const OpCall *call, const RowCounts *rows);
Status attention_cudnn_prepare(const OpCall *call, const RowCounts *buckets, int n); /* E_USAGE: it cannot do this */
Status attention_cudnn(const OpCall *call, const RowCounts *rows);
#ifdef __cplusplus
}
#endif

#endif
