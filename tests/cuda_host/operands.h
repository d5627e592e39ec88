/* Operands in shared memory as Hopper's tensor cores read them: by descriptors, in the 128-byte swizzle. */
#pragma once

#include "cuda_host/cuda_host.h"

struct OperandTile {
    const char *products; /* whose, for messages */
    unsigned start, leading, stride;
};

/* Faults unless the descriptor's bits beside addresses and offsets are `fixed`, which includes the swizzle. */
OperandTile operand_tile(const char *products, uint64_t descriptor, uint64_t fixed, CudaHostPlace at);

/* The 16 bits (i, k), i of the rows or columns of d; turned: stored (k, i). Faults where the hardware would read other
   bytes than threads wrote. */
uint16_t operand_bits(const OperandTile &tile, bool turned, unsigned i, unsigned k, CudaHostPlace at);

float operand_value(bool f16, uint16_t bits);

/* d (n, a multiple of 8) += a (16) · b (16, n; rows `step` apart), in the order of b's rows. All three are the caller's
   own arrays: it checks what comes from a kernel, and nothing is checked here, where most of a product's time is. */
void operand_row_product(float *d, const float *a, const float *b, unsigned step, unsigned n);
