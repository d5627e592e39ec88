/* The tensor memory of the running block (cuda_tcgen.cuh). */
#ifndef CAIRN_TESTS_CUDA_HOST_TENSOR_H
#define CAIRN_TESTS_CUDA_HOST_TENSOR_H

#include <string>

std::string tensor_end(); /* "", or what the block has left there */

#endif
