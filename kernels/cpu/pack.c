/* Compute copies of weights, in the layout of the products that read them. */
#include "kernels/cpu/product.h"

Status cpu_pack_prepare(const OpCall *call, const RowCounts *buckets, int n_buckets)
{
    (void)buckets;
    (void)n_buckets;
    /* asking for the size creates the primitive for packing */
    int64_t n = call->attr.pack.n, k = call->attr.pack.k;
    bool t = call->attr.pack.transposed;
    product_copy_bytes(OUT(call, PACK, copy)->dtype, t ? n : k, t ? k : n);
    return OK;
}

Status cpu_pack(const OpCall *call, const RowCounts *rows)
{
    (void)rows;
    const Operand *copy = OUT(call, PACK, copy);
    return product_pack(copy->data, IN(call, PACK, weight)->data, call->attr.pack.n, call->attr.pack.k,
                        call->attr.pack.transposed, copy->dtype);
}
