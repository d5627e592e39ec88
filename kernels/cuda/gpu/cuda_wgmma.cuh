/* The warpgroup instructions of wgmma.cuh in PTX; tests/cuda_host/cuda_wgmma.cuh has their twins on the host. Only
   sm_90a has them: in code for other GPUs wgmma_there is false and the functions are empty. */
#pragma once

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#    define WGMMA_ASM(...) asm volatile(__VA_ARGS__)
static constexpr bool wgmma_there = true;
#else
#    define WGMMA_ASM(...)
static constexpr bool wgmma_there = false;
#endif

/* Whether this program has code for sm_90a: CMake says so, and other code for such a GPU would be without them. */
#if defined(CAIRN_CUDA_SM90A)
static constexpr bool wgmma_is_built = true;
#else
static constexpr bool wgmma_is_built = false;
#endif

__device__ static inline void wgmma_absent() { __trap(); }

__device__ static inline uint32_t wgmma_shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

#define WGMMA_4(constraint, x, i) constraint(x[i]), constraint(x[i + 1]), constraint(x[i + 2]), constraint(x[i + 3])
#define WGMMA_16(constraint, x, i)                                                                                     \
    WGMMA_4(constraint, x, i), WGMMA_4(constraint, x, i + 4), WGMMA_4(constraint, x, i + 8),                           \
        WGMMA_4(constraint, x, i + 12)
#define WGMMA_32(constraint, x) WGMMA_16(constraint, x, 0), WGMMA_16(constraint, x, 16)
#define WGMMA_8(constraint, x)  WGMMA_4(constraint, x, 0), WGMMA_4(constraint, x, 4)
#define WGMMA_INTO_32(type)                                                                                            \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                                        \
    " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "      \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31}, "
#define WGMMA_INTO_16(type)                                                                                            \
    "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                                                        \
    " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "

/* Behind the operands: whether d is added to, signs of a and b, whether a (if in shared memory) and b are turned. */
#define WGMMA_OF(name, type)                                                                                           \
    template <int n, bool add> __device__ static inline void name(float *d, uint64_t a, uint64_t b)                    \
    {                                                                                                                  \
        if constexpr (n == 64 && add)                                                                                  \
            WGMMA_ASM(WGMMA_INTO_32(type) "%32, %33, 1, 1, 1, 0, 0;" : WGMMA_32("+f", d) : "l"(a), "l"(b));            \
        else if constexpr (n == 64)                                                                                    \
            WGMMA_ASM(WGMMA_INTO_32(type) "%32, %33, 0, 1, 1, 0, 0;" : WGMMA_32("=f", d) : "l"(a), "l"(b));            \
        else if constexpr (add)                                                                                        \
            WGMMA_ASM(WGMMA_INTO_16(type) "%16, %17, 1, 1, 1, 0, 0;" : WGMMA_16("+f", d, 0) : "l"(a), "l"(b));         \
        else                                                                                                           \
            WGMMA_ASM(WGMMA_INTO_16(type) "%16, %17, 0, 1, 1, 0, 0;" : WGMMA_16("=f", d, 0) : "l"(a), "l"(b));         \
    }                                                                                                                  \
    __device__ static inline void name##_turned(float *d, const uint32_t *a, uint64_t b)                               \
    {                                                                                                                  \
        WGMMA_ASM(WGMMA_INTO_32(type) "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                         \
                  : WGMMA_32("+f", d)                                                                                  \
                  : WGMMA_4("r", a, 0), "l"(b));                                                                       \
    }                                                                                                                  \
    __device__ static inline void name##_both_turned(float *d, uint64_t a, uint64_t b)                                 \
    {                                                                                                                  \
        WGMMA_ASM(WGMMA_INTO_32(type) "%32, %33, 1, 1, 1, 1, 1;" : WGMMA_32("+f", d) : "l"(a), "l"(b));                \
    }
WGMMA_OF(wgmma_bf16, "bf16")
WGMMA_OF(wgmma_f16, "f16")

/* Registers are operands of the fence and of the wait so that the compiler moves no access to them across. */
__device__ static inline void wgmma_fence() { WGMMA_ASM("wgmma.fence.sync.aligned;" : : : "memory"); }
template <int tiles> __device__ static inline void wgmma_fence(float *d, uint32_t *a)
{
    if constexpr (tiles == 4)
        WGMMA_ASM("wgmma.fence.sync.aligned;" : WGMMA_32("+f", d), WGMMA_16("+r", a, 0) : : "memory");
    else if constexpr (tiles == 2)
        WGMMA_ASM("wgmma.fence.sync.aligned;" : WGMMA_32("+f", d), WGMMA_8("+r", a) : : "memory");
    else
        WGMMA_ASM("wgmma.fence.sync.aligned;" : WGMMA_32("+f", d) : : "memory");
}
__device__ static inline void wgmma_commit() { WGMMA_ASM("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int n> __device__ static inline void wgmma_wait(float *d)
{
    if constexpr (n == 64)
        WGMMA_ASM("wgmma.wait_group.sync.aligned 0;" : WGMMA_32("+f", d) : : "memory");
    else
        WGMMA_ASM("wgmma.wait_group.sync.aligned 0;" : WGMMA_16("+f", d, 0) : : "memory");
}
__device__ static inline void wgmma_publish() { WGMMA_ASM("fence.proxy.async.shared::cta;" : : : "memory"); }
template <int threads> __device__ static inline void wgmma_meet()
{
    WGMMA_ASM("barrier.sync.aligned 1, %0;" : : "n"(threads) : "memory");
}
