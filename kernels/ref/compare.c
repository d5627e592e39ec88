#include "kernels/ref/ref.h"

Status ref_compare(const OpCall *call, const RowCounts *rows)
{
    const Operand *first = IN(call, COMPARE, first);
    const int64_t *a = first->data, *b = IN(call, COMPARE, again)->data;
    AuditFound *found = OUT(call, COMPARE, audit)->data;
    int64_t n = rows_in(first->rows, rows);
    for (int64_t r = 0; r < n; r++) {
        if (a[r] == b[r]) continue;
        if (found->rows++ > 0) continue;
        found->tensor = call->attr.compare.tensor;
        found->row = r;
    }
    return OK;
}
