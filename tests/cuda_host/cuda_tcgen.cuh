/* Twins of the PTX in kernels/cuda/gpu/cuda_tcgen.cuh; kernels/cuda/tcgen.cuh includes one of the two and documents
   them. Stricter than the hardware where that is undefined: a product reads its operands and writes d when the first
   thread waits for it. Faults:
   - columns that are not allocated, or not freed by the warp that allocated them, or not at all; lanes of another warp;
   - a product that nobody waits for; reading or writing its columns without having waited for it, or without
     tcgen_after_sync since; another product with them, unless it adds to the same d;
   - a product after accesses of any thread without tcgen_stored and tcgen_before_sync, or without tcgen_after_sync of
     its own thread since;
   - operands that were copied or written and not published; a descriptor of another form than tcgen.cuh's;
   - a barrier that was not initialised; a phase that nobody waited for before the next, or that never completes. */
#ifndef CAIRN_TESTS_CUDA_HOST_TCGEN_CUH
#define CAIRN_TESTS_CUDA_HOST_TCGEN_CUH

#include "cuda_host/cuda_host.h"

static constexpr bool tcgen_there = true, tcgen_is_built = true;
static inline void tcgen_absent() {}

void tcgen_alloc(uint32_t *address, uint32_t columns, CudaHostPlace at = CudaHostPlace::here());
void tcgen_free(uint32_t address, uint32_t columns, CudaHostPlace at = CudaHostPlace::here());

void cuda_host_tcgen_load(void *to, unsigned columns, uint32_t address, CudaHostPlace at);
void cuda_host_tcgen_store(uint32_t address, unsigned columns, const void *from, CudaHostPlace at);
static inline void tcgen_load16(float x[16], uint32_t address, CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_tcgen_load(x, 16, address, at);
}
static inline void tcgen_load64(float x[64], uint32_t address, CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_tcgen_load(x, 64, address, at);
}
static inline void tcgen_store8(uint32_t address, const uint32_t x[8], CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_tcgen_store(address, 8, x, at);
}
static inline void tcgen_store16(uint32_t address, const float x[16], CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_tcgen_store(address, 16, x, at);
}
void tcgen_stored(CudaHostPlace at = CudaHostPlace::here());

/* a: a descriptor, or an address in tensor memory. */
void cuda_host_tcgen_product(uint32_t d, bool tensor, uint64_t a, uint64_t b, uint32_t instruction, bool add,
                             CudaHostPlace at);
static inline void tcgen_product(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, bool add,
                                 CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_tcgen_product(d, false, a, b, instruction, add, at);
}
static inline void tcgen_product_of_tensor(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction, bool add,
                                           CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_tcgen_product(d, true, a, b, instruction, add, at);
}

bool tcgen_elect(CudaHostPlace at = CudaHostPlace::here());
void tcgen_barrier_init(uint64_t *barrier, CudaHostPlace at = CudaHostPlace::here());
void tcgen_commit(uint64_t *barrier, CudaHostPlace at = CudaHostPlace::here());
void tcgen_wait(uint64_t *barrier, uint32_t parity, CudaHostPlace at = CudaHostPlace::here());
void tcgen_before_sync();
void tcgen_after_sync();
void tcgen_publish();

#endif
