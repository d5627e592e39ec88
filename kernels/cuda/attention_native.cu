/* ATTENTION and its backward by Hopper's products of warpgroups (wgmma.cuh), where CAIRN_CUDA_NATIVE_ATTENTION asks for
   them. */
#include "kernels/cuda/attention.cuh"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/wgmma.cuh"

static bool chosen;

Status attention_native_open(void)
{
    const DeviceInfo *d = device_info();
    const char *asked = getenv("CAIRN_CUDA_NATIVE_ATTENTION");
    chosen = false;
    if (!asked || !*asked || strcmp(asked, "0") == 0) return OK;
    if (d->major != 9 || d->minor != 0)
        return fail(E_USAGE,
                    "CAIRN_CUDA_NATIVE_ATTENTION=%s: it is for GPUs of compute capability 9.0 (wgmma), and %s has "
                    "%d.%d; unset it",
                    asked, d->name, d->major, d->minor);
    if (!wgmma_is_built)
        return fail(E_USAGE,
                    "CAIRN_CUDA_NATIVE_ATTENTION=%s: this build has no code for sm_90a; build with "
                    "CAIRN_CUDA_ARCHITECTURES=90a, or unset it",
                    asked);
    chosen = true;
    return OK;
}

const char *attention_native_products(void) { return chosen ? "by wgmma" : NULL; }

/* Both have tiles of 64 columns. */
bool attention_is_native(const OpCall *call)
{
    int32_t head_dim = call->attr.attention.head_dim;
    return chosen && dtype_size(IN(call, ATTENTION, qkv)->dtype) == 2 && head_dim <= 64 && head_dim % 8 == 0;
}

bool attention_bwd_is_native(const OpCall *call)
{
    enum { LONGEST = 512 };
    int longest = call->attr.attention.longest;
    return attention_is_native(call) && longest >= 1 && longest <= LONGEST && !attention_in_two_passes();
}

Status attention_native(const OpCall *call, const RowCounts *rows)
{
    return call->op == OP_ATTENTION ? attention_wgmma(call, rows) : attention_bwd_wgmma(call, rows);
}
