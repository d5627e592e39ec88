/* The CUDA backend's ops: the table that table.cu fills Backend with, and what its files share. Host code here, device
   code in the .cu files; kernels are written with kernel.cuh. Meanings: kernels/op.h and kernels/ref/. */
#ifndef CAIRN_KERNELS_CUDA_CUDA_H
#define CAIRN_KERNELS_CUDA_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/op.h"

/* X(op, function): Status function(const OpCall *, const RowCounts *), C linkage. */
#define CUDA_OP_LIST(X)                                                                                                \
    X(EMBED, cuda_embed)                                                                                               \
    X(EMBED_BWD, cuda_embed_bwd)                                                                                       \
    X(LINEAR, cuda_linear)                                                                                             \
    X(LINEAR_DGRAD, cuda_linear_dgrad)                                                                                 \
    X(LINEAR_WGRAD, cuda_linear_wgrad)                                                                                 \
    X(ATTENTION, cuda_attention)                                                                                       \
    X(ATTENTION_BWD, cuda_attention_bwd)                                                                               \
    X(GELU, cuda_gelu)                                                                                                 \
    X(GELU_BWD, cuda_gelu_bwd)                                                                                         \
    X(ADDNORM, cuda_addnorm)                                                                                           \
    X(ADDNORM_BWD, cuda_addnorm_bwd)                                                                                   \
    X(AFFINE, cuda_affine)                                                                                             \
    X(GATHER, cuda_gather)                                                                                             \
    X(SCATTER, cuda_scatter)                                                                                           \
    X(TANH, cuda_tanh)                                                                                                 \
    X(TANH_BWD, cuda_tanh_bwd)                                                                                         \
    X(DROPOUT, cuda_dropout)                                                                                           \
    X(XENT, cuda_xent)                                                                                                 \
    X(MSE, cuda_mse)                                                                                                   \
    X(MLM_XENT, cuda_mlm_xent)                                                                                         \
    X(GRAD_NORM, cuda_grad_norm)                                                                                       \
    X(ADAMW, cuda_adamw)                                                                                               \
    X(LAMB, cuda_lamb)                                                                                                 \
    X(BLOCK_SUMS, cuda_block_sums)                                                                                     \
    X(LAMB_STEP, cuda_lamb_step)                                                                                       \
    X(LAMB_DESCEND, cuda_lamb_descend)                                                                                 \
    X(PACK, cuda_pack)                                                                                                 \
    X(ZERO, cuda_zero)                                                                                                 \
    X(OFFLOAD, cuda_offload)                                                                                           \
    X(FETCH, cuda_fetch)

/* Those that need scratch: size_t function_scratch(const OpCall *, const RowCounts *). All scratch is device memory. */
#define CUDA_SCRATCH_LIST(X)                                                                                           \
    X(EMBED_BWD, cuda_embed_bwd)                                                                                       \
    X(LINEAR, cuda_linear)                                                                                             \
    X(LINEAR_DGRAD, cuda_linear_dgrad)                                                                                 \
    X(LINEAR_WGRAD, cuda_linear_wgrad)                                                                                 \
    X(ATTENTION, cuda_attention)                                                                                       \
    X(ATTENTION_BWD, cuda_attention_bwd)                                                                               \
    X(ADDNORM_BWD, cuda_addnorm_bwd)                                                                                   \
    X(XENT, cuda_xent)                                                                                                 \
    X(MSE, cuda_mse)                                                                                                   \
    X(MLM_XENT, cuda_mlm_xent)                                                                                         \
    X(GRAD_NORM, cuda_grad_norm)                                                                                       \
    X(LAMB, cuda_lamb)                                                                                                 \
    X(LAMB_DESCEND, cuda_lamb_descend)

#define X(op, function) Status function(const OpCall *call, const RowCounts *rows);
CUDA_OP_LIST(X)
#undef X
#define X(op, function) size_t function##_scratch(const OpCall *call, const RowCounts *rows);
CUDA_SCRATCH_LIST(X)
#undef X

#ifdef __cplusplus
}
#endif

#endif
