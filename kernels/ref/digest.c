#include "kernels/ref/ref.h"
#include "kernels/word_mix.h"

Status ref_digest(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, DIGEST, x);
    int64_t n = rows_in(x->rows, rows), bytes = x->cols * (int64_t)dtype_size(x->dtype);
    uint64_t *sums = OUT(call, DIGEST, sums)->data, place = 0;
    for (int64_t r = 0; r < n; r++) {
        const char *row = (const char *)x->data + r * bytes;
        sums[r] = 0;
        for (int64_t i = 0; i < bytes; i += 8) {
            uint64_t word = 0;
            memcpy(&word, row + i, bytes - i < 8 ? (size_t)(bytes - i) : 8);
            sums[r] += word_mix(word, place++);
        }
    }
    return OK;
}
