/* Included by every .cu file of the CUDA backend. nvcc compiles the same files for GPUs, and the host compiler for
   tests/cuda_host, where each thread is a fiber. So kernels use only the declarations of this header and the CUDA
   builtins that tests/cuda_host/cuda_host.h lists (threadIdx …, __syncthreads, __syncwarp, __shfl_*_sync,
   __ballot_sync, __any_sync, the bf16 and fp16 types). No atomics on floating point: every sum has a fixed order.

   A kernel:    template <typename T> __global__ void gelu_kernel(const T *pre, T *g, int64_t n) { … }
   Its launch:  return CUDA_LAUNCH((gelu_kernel<T>), grid, block, shared_bytes, pre, g, n);
   By type:     CUDA_BY_TYPE(operand->dtype, T, return …);
   Every launch goes to the compute stream of device.h and is checked; it returns a Status. The kernel's parentheses
   are part of the form. a·b + c is never contracted (nvcc --fmad=false, as everywhere in Cairn), so that two kernels
   that write the same formula give the same bits; where one rounding is wanted, write fmaf. CUDA_UNROLL and CUDA_ROLL
   come before a loop. */
#pragma once

#include <cuda_platform.cuh> /* of gpu/, or of tests/cuda_host/ */

extern "C" {
#include "kernels/cuda/device.h"
#include "kernels/dropout.h"
#include "kernels/op.h"
}

/* ---- operands ---- */

template <typename T> static inline T *cuda_data(const Operand *o) { return static_cast<T *>(o->data); }

/* Scratch of a call that needs `bytes`. */
static inline void *cuda_scratch(const OpCall *call, size_t bytes)
{
    CHECK(call->scratch_bytes >= bytes, "%s needs %zu bytes of scratch, was given %zu", op_info(call->op)->name, bytes,
          call->scratch_bytes);
    return call->scratch;
}

/* The next multiple of 256: where a workspace begins. */
static inline size_t cuda_align(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* Where a product's workspace begins in a call's scratch, which starts on 64 bytes. */
static inline unsigned char *cuda_workspace(const OpCall *call)
{
    return reinterpret_cast<unsigned char *>(cuda_align(reinterpret_cast<uintptr_t>(call->scratch)));
}

/* True if all begin on 16 bytes; absent operands do. */
template <typename... P> static inline bool on_16(const P *...p)
{
    return ((reinterpret_cast<uintptr_t>(p) % 16 == 0) && ...);
}

/* Blocks of a grid for n items, `each` a block. */
static inline unsigned cuda_blocks(int64_t n, int64_t each) { return (unsigned)((n + each - 1) / each); }

/* Runs the statement(s) with T as the device type of `dtype`. */
#define CUDA_CASE(dtype_, type, T, ...)                                                                                \
    case dtype_: {                                                                                                     \
        typedef type T;                                                                                                \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }
#define CUDA_BY_TYPE(dtype_, T, ...)                                                                                   \
    do {                                                                                                               \
        switch (dtype_) {                                                                                              \
            CUDA_CASE(F32, float, T, __VA_ARGS__)                                                                      \
            CUDA_CASE(BF16, __nv_bfloat16, T, __VA_ARGS__)                                                             \
            CUDA_CASE(F16, __half, T, __VA_ARGS__)                                                                     \
        default:                                                                                                       \
            CHECK(0, "the cuda backend computes in f32, bf16 and f16, not %s", dtype_name(dtype_));                    \
        }                                                                                                              \
    } while (0)

/* ---- values: computed in fp32 from stored values, rounded once to nearest even ---- */

__device__ static inline float to_float(float x) { return x; }
__device__ static inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ static inline float to_float(__half x) { return __half2float(x); }
template <typename T> __device__ static inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x) { return x; }
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ inline __half from_float<__half>(float x) { return __float2half_rn(x); }
/* x rounded as in a tensor of type T. */
template <typename T> __device__ static inline float rounded(float x) { return to_float(from_float<T>(x)); }

/* Eight neighbouring values, loaded and stored at once: 16 bytes of bf16 or fp16, 32 of fp32. Needs that alignment. */
template <typename T> struct alignas(16) Eight {
    T v[8];
};
template <typename T> __device__ static inline void load8(const T *from, float to[8])
{
    Eight<T> e = *reinterpret_cast<const Eight<T> *>(from);
    CUDA_UNROLL for (int i = 0; i < 8; i++) to[i] = to_float(e.v[i]);
}
template <typename T> __device__ static inline void store8(T *to, const float from[8])
{
    Eight<T> e;
    CUDA_UNROLL for (int i = 0; i < 8; i++) e.v[i] = from_float<T>(from[i]);
    *reinterpret_cast<Eight<T> *>(to) = e;
}

/* ---- reductions, in a fixed order ---- */

#define CUDA_WARP 32
#define CUDA_FULL 0xffffffffu

/* The sum over a warp, in every lane; all 32 lanes must call. */
template <typename T> __device__ static inline T warp_sum(T x)
{
    for (int step = CUDA_WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(CUDA_FULL, x, step);
    return x;
}
