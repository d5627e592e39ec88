/* The reduce pass: gradients are exchanged during backward. Buckets are in backward order, and so are their REDUCEs. */

#include "plan/rewrite.h"

/* Gradients are compared by place. The stats, which layout places later, are compared as a tensor. */
static bool overlaps(const Plan *p, TensorId a, TensorId b)
{
    const Tensor *x = &p->tensors[a], *y = &p->tensors[b];
    return a == b || (x->region == REGION_GRAD && y->region == REGION_GRAD && x->offset < y->offset + y->bytes &&
                      y->offset < x->offset + x->bytes);
}

/* The last instr that writes into a tensor; NONE. */
static InstrId last_writer(const Plan *p, TensorId x)
{
    for (InstrId i = p->n_instrs - 1; i >= 0; i--)
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (p->instrs[i].out[k] != NONE && overlaps(p, p->instrs[i].out[k], x)) return i;
    return NONE;
}

typedef struct {
    TensorId x;
    InstrId after; /* old */
    int bucket;
} ReducePiece;

static int by_instr(const void *a, const void *b)
{
    const ReducePiece *x = a, *y = b;
    if (x->after != y->after) return x->after < y->after ? -1 : 1;
    return x->bucket < y->bucket ? -1 : x->bucket > y->bucket;
}

static ReducePiece bucket_piece(Plan *p, TensorId grads, int bucket, Interval v)
{
    TensorId t = plan_tensor(p, REGION_GRAD, F32, rows_fixed(v.end - v.begin), 1, "grads.bucket%d", bucket);
    p->tensors[t].offset = p->tensors[grads].offset + (size_t)v.begin * sizeof(float);
    return (ReducePiece){t, last_writer(p, t), bucket};
}

void plan_reduce(Plan *p, TensorId grads, TensorId stats, const Interval *buckets, int n_buckets)
{
    ReducePiece *pieces = mem_array((size_t)n_buckets + 1, sizeof *pieces);
    int n = 0;
    for (int b = 0; b < n_buckets; b++)
        if (buckets[b].begin < buckets[b].end) pieces[n++] = bucket_piece(p, grads, b, buckets[b]);
    if (stats != NONE) pieces[n++] = (ReducePiece){stats, last_writer(p, stats), -1};
    qsort(pieces, (size_t)n, sizeof *pieces, by_instr);
    Rewrite r;
    rewrite_begin(&r, p);
    int next = 0;
    for (; next < n && pieces[next].after == NONE; next++) {} /* no instr writes there: nothing to exchange */
    for (InstrId i = 0; i < r.n; i++) {
        InstrId kept = rewrite_keep(&r, i, rewrite_old(&r, i));
        for (; next < n && pieces[next].after == i; next++) {
            InstrId reduce = plan_emit(p, OP_REDUCE, PHASE_BACKWARD, NONE, (OpAttr){.reduce = {pieces[next].bucket}},
                                       NO_IDS, IDS(pieces[next].x));
            p->instrs[reduce].lane = LANE_COMM;
            plan_wait_for(p, &p->instrs[reduce], kept);
        }
    }
    rewrite_end(&r);
    free(pieces);
}
