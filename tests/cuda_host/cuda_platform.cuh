/* The part of the .cu files that is for the host executor alone; kernels/cuda/gpu/cuda_platform.cuh is its twin for
   nvcc. */
#pragma once

#include "cuda_host/cuda_host.h"

#define CUDA_UNROLL
#define CUDA_BLOCKS(threads, blocks) (blocks)
#define CUDA_ROLL
#define CUDA_NOW(x)
/* The call runs when the lane gets there, as a launch does. */
#define CUDA_SUBMIT(expression) cuda_host_submit([=]() -> Status { return expression; })

static inline float cuda_exp2(float x) { return std::exp2(x); }

#define CAIRN_CUDA_ENTRY cairn_backend_cuda_host
#define CAIRN_CUDA_NAME  "cuda_host"

/* JSON as cuDNN writes it: cuDNN then plans for this imagined device, and cannot run. */
static inline const char *cuda_imagined_device(void) { return getenv("CAIRN_TEST_CUDNN_DEVICE"); }
