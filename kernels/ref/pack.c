/* Compute copies of an (n, k) weight. ref's are plain row-major matrices in the compute type: (n, k) for products with
   wᵀ, (k, n) for those with w (DGRAD, and MLM_XENT's dh). */
#include "kernels/ref/ref.h"

Status ref_pack(const OpCall *call, const RowCounts *rows)
{
    (void)rows;
    const Operand *weight = IN(call, PACK, weight), *copy = OUT(call, PACK, copy);
    int64_t n = call->attr.pack.n, k = call->attr.pack.k;
    const float *from = weight->data; // (n, k)
    if (!call->attr.pack.transposed) {
        ref_write(copy, 0, n * k, from);
        return OK;
    }
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) ref_store(copy, i * n + j, from[j * k + i]);
    return OK;
}
