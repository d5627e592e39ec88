/* Shared by the backends that compute in the host's memory, ref and cpu: rows of operands, scratch, the optimizer. */
#pragma once

#include "base/base.h"
#include "kernels/adam.h"

/* ---- operands ---- */

/* Rows of an operand that hold something. */
static inline int64_t host_real_rows(const Operand *o, const RowCounts *rows, const Ctl *ctl)
{
    return real_rows(o->rows.kind, rows_in(o->rows, rows), ctl);
}

static inline void *host_row(const Operand *o, int64_t row)
{
    return (char *)o->data + (size_t)(row * o->cols) * dtype_size(o->dtype);
}

static inline void host_clear_rows(const Operand *o, int64_t first, int64_t end)
{
    if (first < end) memset(host_row(o, first), 0, (size_t)((end - first) * o->cols) * dtype_size(o->dtype));
}

/* Clears the outputs that the call begins. */
static inline void host_begin(const OpCall *call, const RowCounts *rows)
{
    for (int k = 0; k < OP_MAX_OUT; k++)
        if (call->begun >> k & 1) host_clear_rows(&call->out[k], 0, rows_in(call->out[k].rows, rows));
}

/* ---- scratch: laid out by one function, for counting (base NULL) and for running ---- */

typedef struct {
    char *base;
    size_t bytes;
} HostScratch;

static inline void *host_take(HostScratch *s, int64_t count, size_t size)
{
    void *p = s->base ? s->base + s->bytes : NULL;
    s->bytes += ((size_t)count * size + 63) / 64 * 64;
    return p;
}

static inline void host_check_scratch(const OpCall *call, size_t bytes)
{
    CHECK(call->scratch_bytes >= bytes, "%s needs %zu bytes of scratch, was given %zu", op_info(call->op)->name, bytes,
          call->scratch_bytes);
}

/* ---- the optimizer ---- */

/* Elements of a segment's norm block `b`. */
static inline int64_t host_block_size(const Segment *s, int64_t b)
{
    return s->size - b * NORM_BLOCK < NORM_BLOCK ? s->size - b * NORM_BLOCK : NORM_BLOCK;
}

/* Σ x² of a whole tensor from a table of its blocks' sums, added in order. */
static inline double host_add_blocks(const Segment *tensor, const double *sums)
{
    double total = 0;
    for (int64_t b = 0; b < norm_blocks(tensor->size); b++) total += sums[tensor->block + b];
    return total;
}

/* The compute copies of the segments that lie in `copies`, which may be absent. */
static inline void host_round_copies(const Operand *copies, const RowCounts *rows, const Segment *segments, int64_t n,
                                     const float *weights)
{
    int64_t most = operand_present(copies) ? rows_in(copies->rows, rows) * copies->cols : 0;
    for (const Segment *s = segments; s < segments + n; s++) {
        int64_t end = s->offset + s->size;
        for (int64_t i = s->offset; end <= most && i < end; i++)
            if (copies->dtype == F32)
                ((float *)copies->data)[i] = weights[i];
            else
                ((uint16_t *)copies->data)[i] =
                    copies->dtype == BF16 ? bf16_from_f32(weights[i]) : f16_from_f32(weights[i]);
    }
}

/* LAMB's rate of a tensor, from Σ p² and Σ u². */
static inline float host_lamb_rate(const Segment *tensor, float rate, double p_squares, double u_squares)
{
    double p = sqrt(p_squares), u = sqrt(u_squares);
    return rate * (tensor->trust && p > 0 && u > 0 ? (float)(p / u) : 1.0f);
}
