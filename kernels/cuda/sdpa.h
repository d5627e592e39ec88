/* Attention without dropout by cuDNN: its operation graphs, as NVIDIA documents them for packed sequences ("ragged
   offsets"), through the C API of <cudnn.h> alone. sdpa_open loads libcudnn.so.9 (CAIRN_CUDNN names another file), so
   that nothing else needs it. attention_cudnn.cu uses it; tests compile kernels/cuda/sdpa.cu with
   tests/cuda_host/fake_cudnn.cc in place of the library.

   Forward is the one operation SDPA_FWD; backward the graph of its products, which cuDNN recognises, in the form
   without atomics: dQ is a product over dS, which lies in the workspace (sequences · heads · longest² · 2 bytes). cuDNN
   has that form on compute capability 9 only; elsewhere a backward is refused, since its bits would change from run to
   run. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
#include "base/base.h"

/* A plan is made once for each; rows of a bucket play no part. */
typedef struct {
    bool backward;
    Dtype dtype; /* BF16 or F16 */
    int32_t heads, head_dim;
    int64_t sequences, longest; /* at most */
    float scale;
} SdpaShape;

/* Operands of a graph, with the numbers that they have for cuDNN. */
typedef enum {
    SDPA_Q = 1, // (rows, 3H); also k and v
    SDPA_K,
    SDPA_V,
    SDPA_O,   // (rows, H); backward reads it
    SDPA_LSE, // (rows, heads), fp32; backward reads it
    SDPA_DO,  // (rows, H)
    SDPA_DQ,  // (rows, 3H); also dk and dv
    SDPA_DK,
    SDPA_DV,
    SDPA_SUMS,        // (rows, heads), fp32: do·o, between the graph's parts
    SDPA_LENGTHS,     // (sequences), int32; 0 where there is no sequence
    SDPA_QKV_OFFSETS, // (sequences + 1), int32: elements before each sequence in q, k, v, dq, dk, dv, and all
    SDPA_O_OFFSETS,   // the same in o and do
    SDPA_LSE_OFFSETS, // the same in lse and sums
    SDPA_TENSORS
} SdpaTensor;

typedef struct {
    void *tensor[SDPA_TENSORS]; /* on 16 bytes; offsets and lengths too */
    void *workspace;            /* sdpa_workspace() bytes, on 256 */
} SdpaData;

typedef struct SdpaPlan SdpaPlan;

/* Loads the library and makes its handle for the open device, of this compute capability. E_USAGE: this build has no
   cuDNN, or none can be loaded, or it is too old. Does nothing where it is open. Closing frees all plans. */
Status sdpa_open(int major, int minor);
void sdpa_close(void);
bool sdpa_is_open(void);
const char *sdpa_describe(void); /* "cuDNN 9.19.0" */

/* The plan of a shape, made at the first call; a refusal is remembered. E_USAGE with the reason: a type, a
   head size or a device that it does not do. It is valid until sdpa_close. */
Status sdpa_plan(const SdpaShape *shape, const SdpaPlan **plan);
size_t sdpa_workspace(const SdpaPlan *plan);
bool sdpa_has_run(const SdpaPlan *plan); /* so its kernels are loaded */
/* In order with the launches on `stream` (cudaStream_t). */
Status sdpa_run(const SdpaPlan *plan, const SdpaData *data, void *stream);
#ifdef __cplusplus
}
#endif
