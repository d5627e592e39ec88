#include "data/lengths.h"

#include "data/data.h"

#define LONGEST    65536
#define FILE_BYTES ((size_t)16 << 20)

static Status read_lines(const char *path, char *text, Lengths *l)
{
    char *rest = text;
    double total = 0, tokens = 0, squares = 0;
    for (int line = 1; rest; line++) {
        char *at = strsep(&rest, "\n"), *end;
        if (*at == '\0' || *at == '#' || isalpha((unsigned char)*at)) continue;
        long long length = strtoll(at, &end, 10);
        double count = strtod(end, &at);
        if (end == at || *at != '\0' || length < 1 || length > LONGEST || !(count >= 0 && count < 1e18))
            return fail(E_FORMAT, "%s:%d: expected a length (1 to %d) and a count, found something else", path, line,
                        LONGEST);
        l->share[length] += count;
        total += count;
        tokens += count * (double)length;
        squares += count * (double)length * (double)length;
        if (count > 0 && length > l->longest) l->longest = length;
    }
    if (total <= 0) return fail(E_FORMAT, "%s: expected lines of length and count, found no sequence", path);
    for (int64_t i = 0; i <= l->longest; i++) l->share[i] /= total;
    l->mean = tokens / total;
    l->beside = squares / tokens;
    return OK;
}

Status lengths_read(const char *path, Lengths *l)
{
    Buf text = {0};
    *l = (Lengths){.share = mem_array(LONGEST + 1, sizeof(double))};
    Status status = file_read(path, FILE_BYTES, &text);
    buf_puts(&text, ""); /* of an empty file too */
    if (status == OK) status = read_lines(path, text.data, l);
    buf_free(&text);
    if (status != OK) lengths_free(l);
    return status;
}

void lengths_free(Lengths *l)
{
    free(l->share);
    *l = (Lengths){0};
}

int64_t lengths_at(const Lengths *l, int64_t i, int64_t n)
{
    Permutation order = permutation(1, 0, n);
    double place = ((double)permutation_at(&order, i) + 0.5) / (double)n, sum = 0;
    for (int64_t length = 1; length < l->longest; length++) {
        sum += l->share[length];
        if (place < sum) return length;
    }
    return l->longest;
}
