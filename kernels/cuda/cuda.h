/* The CUDA backend's table of ops. Host code here, device code in the .cu files, which include kernel.cuh. Meanings:
   kernels/op_list.h and kernels/ref/. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/backend.h"

/* X(op, run, scratch, prepare), C linkage. All scratch is device memory. */
#define CUDA_OP_LIST(X)                                                                                                \
    X(EMBED, cuda_embed, no_scratch, no_prepare)                                                                       \
    X(EMBED_BWD, cuda_embed_bwd, cuda_embed_bwd_scratch, no_prepare)                                                   \
    X(LINEAR, cuda_linear, cuda_linear_scratch, cuda_linear_prepare)                                                   \
    X(LINEAR_DGRAD, cuda_linear, cuda_linear_scratch, cuda_linear_prepare)                                             \
    X(LINEAR_WGRAD, cuda_linear, cuda_linear_scratch, cuda_linear_prepare)                                             \
    X(ATTENTION, cuda_attention, cuda_attention_scratch, cuda_attention_prepare)                                       \
    X(ATTENTION_BWD, cuda_attention_bwd, cuda_attention_bwd_scratch, cuda_attention_prepare)                           \
    X(GELU, cuda_gelu, no_scratch, no_prepare)                                                                         \
    X(GELU_BWD, cuda_gelu_bwd, cuda_gelu_bwd_scratch, no_prepare)                                                      \
    X(ADDNORM, cuda_addnorm, no_scratch, no_prepare)                                                                   \
    X(ADDNORM_BWD, cuda_addnorm_bwd, cuda_addnorm_bwd_scratch, no_prepare)                                             \
    X(AFFINE, cuda_affine, no_scratch, no_prepare)                                                                     \
    X(GATHER, cuda_gather, no_scratch, no_prepare)                                                                     \
    X(SCATTER, cuda_scatter, no_scratch, no_prepare)                                                                   \
    X(ACTIVATE, cuda_activate, no_scratch, no_prepare)                                                                 \
    X(ACTIVATE_BWD, cuda_activate_bwd, no_scratch, no_prepare)                                                         \
    X(DROPOUT, cuda_dropout, no_scratch, no_prepare)                                                                   \
    X(POOL, cuda_pool, no_scratch, no_prepare)                                                                         \
    X(POOL_BWD, cuda_pool_bwd, no_scratch, no_prepare)                                                                 \
    X(XENT, cuda_xent, no_scratch, no_prepare)                                                                         \
    X(MSE, cuda_mse, no_scratch, no_prepare)                                                                           \
    X(BCE, cuda_bce, no_scratch, no_prepare)                                                                           \
    X(SPAN_XENT, cuda_span_xent, no_scratch, no_prepare)                                                               \
    X(MLM_XENT, cuda_mlm_xent, cuda_mlm_xent_scratch, cuda_mlm_xent_prepare)                                           \
    X(GRAD_NORM, cuda_grad_norm, cuda_grad_norm_scratch, no_prepare)                                                   \
    X(ADAMW, cuda_adamw, no_scratch, no_prepare)                                                                       \
    X(LAMB, cuda_lamb, cuda_lamb_scratch, no_prepare)                                                                  \
    X(BLOCK_SUMS, cuda_block_sums, no_scratch, no_prepare)                                                             \
    X(LAMB_STEP, cuda_lamb_step, no_scratch, no_prepare)                                                               \
    X(LAMB_DESCEND, cuda_lamb_descend, cuda_lamb_descend_scratch, no_prepare)                                          \
    X(PACK, cuda_pack, no_scratch, no_prepare)                                                                         \
    X(ZERO, cuda_zero, no_scratch, no_prepare)                                                                         \
    X(ADD, cuda_add, no_scratch, no_prepare)                                                                           \
    X(OFFLOAD, cuda_transfer, no_scratch, no_prepare)                                                                  \
    X(FETCH, cuda_transfer, no_scratch, no_prepare)                                                                    \
    X(DIGEST, cuda_digest, no_scratch, no_prepare)                                                                     \
    X(COMPARE, cuda_compare, no_scratch, no_prepare)                                                                   \
    X(CURVATURE, cuda_curvature, cuda_curvature_scratch, cuda_linear_prepare)                                          \
    X(INVERT, cuda_invert, cuda_invert_scratch, no_prepare)                                                            \
    X(ADOPT, cuda_adopt, no_scratch, no_prepare)                                                                       \
    X(PRECONDITION, cuda_precondition, cuda_precondition_scratch, cuda_precondition_prepare)

#define X(op, run, scratch, prepare)                                                                                   \
    OpRun run;                                                                                                         \
    OpScratch scratch;                                                                                                 \
    OpPrepare prepare;
CUDA_OP_LIST(X)
#undef X

#ifdef __cplusplus
}
#endif

/* CAIRN_CUDA_TWO_PASSES (attention_bwd_whole.cu). */
bool attention_in_two_passes(void);

/* CAIRN_CUDA_NATIVE_ATTENTION (attention_wgmma.cu). E_USAGE: the GPU, or this build, has no such products. */
Status attention_native_open(void);
const char *attention_native_products(void); /* NULL: not asked for */
