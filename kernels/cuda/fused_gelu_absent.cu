/* In a build without CUTLASS, or without code for sm_90a. */
#include "kernels/cuda/fused_gelu.h"

const char *fused_gelu_library(void) { return NULL; }
static Status absent(void) { return fail(E_USAGE, "this build has no CUTLASS"); }
Status fused_gelu_load(void) { return absent(); }
Status fused_gelu_forward(const FusedGelu *) { return absent(); }
Status fused_gelu_backward(const FusedGelu *) { return absent(); }
