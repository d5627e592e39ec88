/* The tile instructions of mma.cuh in PTX; tests/cuda_host/cuda_tiles.cuh has their twins on the host. Turing (sm_75)
   multiplies eight values of k at a time, has no bf16, which the backend refuses there, and copies through registers.
 */
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#    define CUDA_TILES_OF_TURING
#endif

/* d = a·b + c, in fp32; d may be c. */
#ifdef CUDA_TILES_OF_TURING
__device__ static inline void mma_f16_16x8x8(float d[4], const uint32_t a[2], uint32_t b, const float c[4])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ static inline void mma_f16_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    mma_by_halves(d, a, b, c, mma_f16_16x8x8);
}
__device__ static inline void mma_bf16_16x8x16(float[4], const uint32_t[4], const uint32_t[2], const float[4])
{
    __trap();
}
#else
__device__ static inline void mma_bf16_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ static inline void mma_f16_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
#endif

__device__ static inline uint32_t mma_shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ static inline void mma_load4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(mma_shared_address(row))
                 : "memory");
}
__device__ static inline void mma_load4_transposed(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(mma_shared_address(row))
                 : "memory");
}

#ifdef CUDA_TILES_OF_TURING
__device__ static inline void copy_async(void *shared, const void *global, bool there = true)
{
    copy_by_registers(shared, global, there);
}
__device__ static inline void copy_async_commit() {}
template <int n> __device__ static inline void copy_async_wait() {}
#else
__device__ static inline void copy_async(void *shared, const void *global, bool there = true)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(mma_shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(there ? 16 : 0)
                 : "memory");
}
__device__ static inline void copy_async_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int n> __device__ static inline void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory");
}
#endif
