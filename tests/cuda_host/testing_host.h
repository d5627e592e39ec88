/* testing.h for C++ tests of the host executor. */
#pragma once

#include "kernels/cuda/mma.cuh" /* first: C++'s own headers stay out of extern "C" */

#include "asan.h"
extern "C" {
#include "testing.h"
}

constexpr bool with_asan = TESTING_ASAN;

/* In −1 … 1. */
static inline float testing_value(uint64_t *state)
{
    return static_cast<float>(static_cast<double>(testing_random(state) >> 11) * 0x1p-52 - 1);
}
