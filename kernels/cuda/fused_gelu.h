/* A product and GELU in one kernel: LINEAR with g, LINEAR_DGRAD with pre (Backend.fuses). CAIRN_CUDA_FUSED_GELU=1 asks
   for it. Kernels: CUTLASS's, in bf16, with the erf form, for Hopper (fused_gelu_cutlass.cu). */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
#include "base/base.h"
#include "kernels/op.h"

Status fused_gelu_open(void); /* E_USAGE: the GPU, or this build, has no such kernels */
void fused_gelu_imagine(int major);
const char *fused_gelu_describe(void); /* ", GELU in products (…)"; empty where it is not asked for */
bool fused_gelu_takes(const OpCall *call);
size_t fused_gelu_scratch(const OpCall *call, const RowCounts *rows);
Status fused_gelu(const OpCall *call, const RowCounts *rows);

/* ---- what a library has: fused_gelu_cutlass.cu, fused_gelu_absent.cu; tests/cuda_host/fused_gelu_host.cc ---- */

enum { FUSED_ROWS = 64, FUSED_COLUMNS = 256 }; /* of a tile of the output; there are whole tiles of columns */

/* Matrices in bf16, row-major, on 16 bytes. */
typedef struct {
    int m, n, k;      /* m above 0, n a multiple of FUSED_COLUMNS, k of 8 */
    const void *a;    /* (m, k) */
    const void *w;    /* forward (n, k), backward (k, n) */
    const void *bias; /* (n), forward */
    const void *pre;  /* (m, n), backward */
    void *out;        /* (m, n) forward a·wᵀ + bias; backward gelu'(pre)·(a·w), its product rounded */
    void *g;          /* (m, n) gelu of out, backward of pre; or NULL */
    float *parts;     /* backward: of each tile's rows the sums of out's columns, a row of n; or NULL */
} FusedGelu;

const char *fused_gelu_library(void); /* "CUTLASS 4.2.0"; NULL: none */
Status fused_gelu_load(void);         /* the kernels, so that no step does */
Status fused_gelu_forward(const FusedGelu *f);
Status fused_gelu_backward(const FusedGelu *f);
#ifdef __cplusplus
}
#endif
