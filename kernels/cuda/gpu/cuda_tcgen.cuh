/* The instructions of tcgen.cuh in PTX; tests/cuda_host/cuda_tcgen.cuh has their twins on the host. Only sm_100a has
   them: in code for other GPUs tcgen_there is false and the functions are empty. */
#ifndef CAIRN_KERNELS_CUDA_GPU_TCGEN_CUH
#define CAIRN_KERNELS_CUDA_GPU_TCGEN_CUH

#if defined(__CUDA_ARCH_FEAT_SM100_ALL)
#    define TCGEN_ASM(...) asm volatile(__VA_ARGS__)
static constexpr bool tcgen_there = true;
#else
#    define TCGEN_ASM(...)
static constexpr bool tcgen_there = false;
#endif

/* Whether this program has code for sm_100a: CMake says so, and other code for such a GPU would be without them. */
#if defined(CAIRN_CUDA_SM100A)
static constexpr bool tcgen_is_built = true;
#else
static constexpr bool tcgen_is_built = false;
#endif

__device__ static inline void tcgen_absent() { __trap(); }

/* ---- tensor memory ---- */

__device__ static inline void tcgen_alloc(uint32_t *address, uint32_t columns)
{
    TCGEN_ASM("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
              "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
              :
              : "r"(wgmma_shared_address(address)), "r"(columns)
              : "memory");
}
__device__ static inline void tcgen_free(uint32_t address, uint32_t columns)
{
    TCGEN_ASM("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" : : "r"(address), "r"(columns) : "memory");
}

/* The wait is part of the load, so that the compiler moves no use of the registers between them. */
__device__ static inline void tcgen_load16(float x[16], uint32_t address)
{
    TCGEN_ASM("tcgen05.ld.sync.aligned.32x32b.x16.b32 "
              "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];\n"
              "tcgen05.wait::ld.sync.aligned;"
              : WGMMA_16("=f", x, 0)
              : "r"(address)
              : "memory");
}
__device__ static inline void tcgen_load64(float x[64], uint32_t address)
{
    TCGEN_ASM("tcgen05.ld.sync.aligned.32x32b.x64.b32 "
              "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
              "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
              "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
              "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, [%64];\n"
              "tcgen05.wait::ld.sync.aligned;"
              : WGMMA_16("=f", x, 0), WGMMA_16("=f", x, 16), WGMMA_16("=f", x, 32), WGMMA_16("=f", x, 48)
              : "r"(address)
              : "memory");
}
__device__ static inline void tcgen_store8(uint32_t address, const uint32_t x[8])
{
    TCGEN_ASM("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};"
              :
              : "r"(address), WGMMA_4("r", x, 0), WGMMA_4("r", x, 4)
              : "memory");
}
__device__ static inline void tcgen_store16(uint32_t address, const float x[16])
{
    TCGEN_ASM("tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], "
              "{%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16};"
              :
              : "r"(address), WGMMA_16("f", x, 0)
              : "memory");
}
__device__ static inline void tcgen_stored() { TCGEN_ASM("tcgen05.wait::st.sync.aligned;" : : : "memory"); }

/* ---- products ---- */

#define TCGEN_PRODUCT(a)                                                                                               \
    "{\n.reg .pred add;\nsetp.ne.b32 add, %4, 0;\n"                                                                    \
    "tcgen05.mma.cta_group::1.kind::f16 [%0], " a ", %2, %3, add;\n}"

__device__ static inline void tcgen_product(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, bool add)
{
    TCGEN_ASM(TCGEN_PRODUCT("%1")
              :
              : "r"(d), "l"(a), "l"(b), "r"(instruction), "r"(static_cast<uint32_t>(add))
              : "memory");
}
__device__ static inline void tcgen_product_of_tensor(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction,
                                                      bool add)
{
    TCGEN_ASM(TCGEN_PRODUCT("[%1]")
              :
              : "r"(d), "r"(a), "l"(b), "r"(instruction), "r"(static_cast<uint32_t>(add))
              : "memory");
}

/* ---- order ---- */

__device__ static inline bool tcgen_elect()
{
    uint32_t elected = 1;
    TCGEN_ASM("{\n.reg .pred elected;\nelect.sync _|elected, 0xffffffff;\nselp.u32 %0, 1, 0, elected;\n}"
              : "=r"(elected));
    return elected;
}

__device__ static inline void tcgen_barrier_init(uint64_t *barrier)
{
    TCGEN_ASM("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;"
              :
              : "r"(wgmma_shared_address(barrier))
              : "memory");
}
__device__ static inline void tcgen_commit(uint64_t *barrier)
{
    TCGEN_ASM("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
              :
              : "r"(wgmma_shared_address(barrier))
              : "memory");
}
__device__ static inline void tcgen_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t complete = 1;
    do
        TCGEN_ASM("{\n.reg .pred complete;\n"
                  "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
                  "selp.u32 %0, 1, 0, complete;\n}"
                  : "=r"(complete)
                  : "r"(wgmma_shared_address(barrier)), "r"(parity)
                  : "memory");
    while (!complete);
}
__device__ static inline void tcgen_before_sync() { TCGEN_ASM("tcgen05.fence::before_thread_sync;" : : : "memory"); }
__device__ static inline void tcgen_after_sync() { TCGEN_ASM("tcgen05.fence::after_thread_sync;" : : : "memory"); }
__device__ static inline void tcgen_publish() { TCGEN_ASM("fence.proxy.async.shared::cta;" : : : "memory"); }

#endif
