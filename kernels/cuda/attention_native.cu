/* ATTENTION and its backward by products that one generation of GPUs has: which ones, if any. */
#include "kernels/cuda/attention.cuh"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/tcgen.cuh"

namespace
{
struct Native {
    int major; /* of the compute capability, whose minor is 0 */
    const char *products, *architecture;
    bool is_built;
    Status (*forward)(const OpCall *call, const RowCounts *rows);
    Status (*backward)(const OpCall *call, const RowCounts *rows);
};

const Native natives[] = {
    {9, "by wgmma", "90a", wgmma_is_built, attention_wgmma, attention_bwd_wgmma},
    {10, "by tcgen05", "100a", tcgen_is_built, attention_tcgen, attention_bwd_tcgen},
};
const Native *chosen;
} // namespace

Status attention_native_open(void)
{
    const DeviceInfo *d = device_info();
    const char *asked = getenv("CAIRN_CUDA_NATIVE_ATTENTION");
    chosen = nullptr;
    if (!asked || !*asked || strcmp(asked, "0") == 0) return OK;
    const Native *found = nullptr;
    for (const Native &n : natives)
        if (d->major == n.major && d->minor == 0) found = &n;
    if (!found)
        return fail(E_USAGE,
                    "CAIRN_CUDA_NATIVE_ATTENTION=%s: it is for GPUs of compute capability 9.0 (wgmma) or 10.0 "
                    "(tcgen05), and %s has %d.%d; unset it",
                    asked, d->name, d->major, d->minor);
    if (!found->is_built)
        return fail(E_USAGE,
                    "CAIRN_CUDA_NATIVE_ATTENTION=%s: this build has no code for sm_%s; build with "
                    "CAIRN_CUDA_ARCHITECTURES=%s, or unset it",
                    asked, found->architecture, found->architecture);
    chosen = found;
    return OK;
}

const char *attention_native_products(void) { return chosen ? chosen->products : NULL; }

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
    return (call->op == OP_ATTENTION ? chosen->forward : chosen->backward)(call, rows);
}
