#include "cuda_host/operands.h"

#include "cuda_host/cuda_tiles.cuh"
#include "cuda_host/shared.h"

OperandTile operand_tile(const char *products, uint64_t descriptor, uint64_t fixed, CudaHostPlace at)
{
    const uint64_t fields = 0x3fffu | 0x3fffull << 16 | 0x3fffull << 32 | 7ull << 49;
    unsigned start = (descriptor & 0x3fff) << 4, base = descriptor >> 49 & 7;
    if ((descriptor & ~fields) != fixed)
        cuda_host_fault(at, "%s: descriptor %016llx is not of 128-byte swizzle", products,
                        (unsigned long long)descriptor);
    if (base != (start >> 7 & 7))
        cuda_host_fault(at, "%s: the tile begins at shared address %u, %u bytes behind a multiple of 1024", products,
                        start, start % 1024);
    if (base != 0) cuda_host_fault(at, "%s: base offset %u is not known here", products, base);
    return {products, start, static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4,
            static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4};
}

/* The PTX ISA's canonical layouts of 128-byte swizzle, in 16-byte units ((8, m), 2) : ((8, stride), 1) where k is
   neighbouring, ((8, m), (8, 2)) : ((1, leading), (8, stride)) where i is; the swizzle then exchanges bits 4–6 of the
   address by those of 7–9. */
uint16_t operand_bits(const OperandTile &tile, bool turned, unsigned i, unsigned k, CudaHostPlace at)
{
    unsigned address = turned ? tile.start + i / 64 * tile.leading + i % 64 * 2 + k / 8 * tile.stride + k % 8 * 128
                              : tile.start + i / 8 * tile.stride + i % 8 * 128 + k * 2;
    address ^= (address >> 7 & 7) << 4;
    const void *p = shared_at(address);
    if (!cuda_host_is_shared(p, 2))
        cuda_host_fault(at, "%s: shared address %u is in no shared array of this block", tile.products, address);
    if (cuda_host_copy_is_private(p))
        cuda_host_fault(at, "%s: the bytes at shared address %u were copied, but not published (%s_publish)",
                        tile.products, address, tile.products);
    uint16_t bits;
    if (!shared_is_published(p, sizeof bits))
        cuda_host_fault(at,
                        "%s: the bytes at shared address %u were written, but not all threads published (%s_publish)",
                        tile.products, address, tile.products);
    memcpy(&bits, p, sizeof bits);
    return bits;
}

float operand_value(bool f16, uint16_t bits)
{
    if (!f16) return __uint_as_float(static_cast<unsigned>(bits) << 16);
    __half x;
    memcpy(static_cast<void *>(&x), &bits, sizeof bits);
    return __half2float(x);
}

__attribute__((no_sanitize("address", "undefined"))) void operand_row_product(float *d, const float *a, const float *b,
                                                                              unsigned step, unsigned n)
{
    for (unsigned first = 0; first < n; first += 8) {
        float sum[8];
        for (unsigned j = 0; j < 8; j++) sum[j] = d[first + j];
        for (unsigned k = 0; k < 16; k++)
            for (unsigned j = 0; j < 8; j++) sum[j] += a[k] * b[k * step + first + j];
        for (unsigned j = 0; j < 8; j++) d[first + j] = sum[j];
    }
}
