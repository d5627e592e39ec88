/* The dev split of --eval-fraction: rows of a user's training file, drawn by a seed of their own. */
#include "data/data.h"
#include "tasks/glue/custom.h"

/* A row by what it shares with others: its label, its set of labels, or its texts. */
typedef struct {
    Digest key;
    size_t row;
} KeyedRow;

/* Rows of one label, or set of labels: rows[first .. first + count). */
typedef struct {
    size_t first, count, first_row;
    size_t held, least, most; /* rows to hold out, and the bounds of that number */
    double share;             /* the fraction of `count` */
    uint32_t number;          /* in the order of first_row */
} Stratum;

static int by_key(const void *a, const void *b)
{
    const KeyedRow *x = a, *y = b;
    int order = memcmp(&x->key, &y->key, sizeof x->key);
    return order ? order : (x->row > y->row) - (x->row < y->row);
}

static int by_first_row(const void *a, const void *b)
{
    const Stratum *x = a, *y = b;
    return (x->first_row > y->first_row) - (x->first_row < y->first_row);
}

/* The largest remainder first. */
static int by_remainder(const void *a, const void *b)
{
    const Stratum *x = a, *y = b;
    double u = x->share - (double)x->held, v = y->share - (double)y->held;
    return u != v ? (u < v) - (u > v) : by_first_row(a, b);
}

/* ---- strata ---- */

static Digest label_key(const GlueTask *task, const GlueExample *e)
{
    if (e->targets) return digest_of(e->targets, (size_t)task->n_labels * sizeof *e->targets);
    return (Digest){0, (uint64_t)(uint32_t)e->label};
}

/* Sorts the rows (count) by key: a stratum for each. */
static Stratum *group(KeyedRow *rows, size_t count, double fraction, size_t *n)
{
    Stratum *strata = NULL;
    size_t cap = 0;
    *n = 0;
    qsort(rows, count, sizeof *rows, by_key);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || !digest_equal(rows[i].key, rows[i - 1].key))
            MEM_PUSH(strata, *n, cap, (Stratum){.first = i, .first_row = rows[i].row});
        Stratum *s = &strata[*n - 1];
        s->share = fraction * (double)++s->count;
    }
    return strata;
}

/* Sets of labels of which the fraction is less than a row become one. The strata do not depend on how labels are
   numbered. */
static Stratum *find_strata(const GlueExamples *x, const GlueTask *task, double fraction, KeyedRow *rows, size_t *n)
{
    for (size_t i = 0; i < x->count; i++) rows[i] = (KeyedRow){label_key(task, &x->examples[i]), i};
    Stratum *strata = group(rows, x->count, fraction, n);
    if (task->multi) {
        for (size_t k = 0; k < *n; k++)
            for (size_t i = 0; i < strata[k].count && strata[k].share < 1; i++)
                rows[strata[k].first + i].key = (Digest){UINT64_MAX, UINT64_MAX};
        free(strata);
        strata = group(rows, x->count, fraction, n);
    }
    qsort(strata, *n, sizeof *strata, by_first_row);
    for (size_t k = 0; k < *n; k++) strata[k].number = (uint32_t)k;
    return strata;
}

/* Largest remainders, within the bounds: a stratum of several rows has one on each side where `wanted` has room for
   that, and one of a single row is trained on. */
static void share_out(Stratum *strata, size_t n, size_t wanted)
{
    size_t several = 0, sum = 0, before;
    for (size_t k = 0; k < n; k++) several += strata[k].count > 1;
    for (size_t k = 0; k < n; k++) {
        Stratum *s = &strata[k];
        s->most = s->count - 1;
        s->least = several <= wanted && s->count > 1;
        s->held = (size_t)fmin(fmax(s->share, (double)s->least), (double)s->most);
        sum += s->held;
    }
    qsort(strata, n, sizeof *strata, by_remainder);
    do {
        before = sum;
        for (size_t k = 0; k < n && sum < wanted; k++)
            if (strata[k].held < strata[k].most) strata[k].held++, sum++;
        for (size_t k = n; k-- > 0 && sum > wanted;)
            if (strata[k].held > strata[k].least) strata[k].held--, sum--;
    } while (sum != wanted && sum != before);
}

/* Marks the rows to hold out. */
static void draw(const GlueExamples *x, const GlueTask *task, double fraction, uint64_t seed, bool *held)
{
    KeyedRow *rows = mem_array(x->count, sizeof *rows);
    size_t n, wanted = (size_t)(fraction * (double)x->count + 0.5);
    Stratum *strata = find_strata(x, task, fraction, rows, &n);
    share_out(strata, n, wanted ? wanted : 1);
    for (size_t k = 0; k < n; k++) {
        const Stratum *s = &strata[k];
        Permutation p = permutation(seed, s->number, (int64_t)s->count);
        for (size_t j = 0; j < s->held; j++) held[rows[s->first + (size_t)permutation_at(&p, (int64_t)j)].row] = true;
    }
    MEM_FREE(rows, strata);
}

/* ---- what is said ---- */

static size_t *count_labels(const GlueExamples *x, const GlueTask *task) // (n_labels)
{
    size_t *rows = mem_array((size_t)task->n_labels, sizeof *rows);
    for (size_t i = 0; i < x->count; i++) {
        const GlueExample *e = &x->examples[i];
        for (int k = 0; e->targets && k < task->n_labels; k++) rows[k] += e->targets[k] > 0.5f;
        if (e->label >= 0) rows[e->label]++;
    }
    return rows;
}

static void log_split(const GlueExamples *x, const GlueExamples *out, const GlueTask *task, double fraction,
                      uint64_t seed)
{
    enum { SHOWN = 20 };
    Buf list = {0}, lost = {0};
    size_t *trained = count_labels(x, task), *held = count_labels(out, task);
    buf_puts(&list, "");
    for (int i = 0; i < task->n_labels && !task->regression; i++) {
        if (i < SHOWN) buf_printf(&list, "%s'%s' %zu", i ? ", " : ": ", task->labels[i], held[i]);
        if (held[i] && !trained[i]) buf_printf(&lost, "%s'%s'", lost.len ? ", " : "", task->labels[i]);
    }
    log_info("%s: %zu rows to train on, %zu held out (--eval-fraction %g, --split-seed %llu)%s%s", x->path, x->count,
             out->count, fraction, (unsigned long long)seed, list.data, task->n_labels > SHOWN ? ", …" : "");
    if (lost.len)
        log_warn("%s: every row with %s is held out, so it is never trained on; give another --split-seed", x->path,
                 lost.data);
    MEM_FREE(trained, held);
    BUF_FREE(&list, &lost);
}

static Digest text_key(const GlueExample *e)
{
    Digest parts[] = {digest_of(e->a.p, e->a.len), digest_of(e->b.p ? e->b.p : "", e->b.len)};
    return digest_of(parts, sizeof parts);
}

/* Held-out rows whose texts are trained on, too. */
static void warn_same_texts(const GlueExamples *x, const GlueExamples *out)
{
    size_t n = x->count + out->count, same = 0;
    int64_t line = INT64_MAX;
    KeyedRow *rows = mem_array(n, sizeof *rows), *first = rows; /* the first of those with a text: one to train on */
    for (size_t i = 0; i < n; i++)
        rows[i] = (KeyedRow){text_key(i < x->count ? &x->examples[i] : &out->examples[i - x->count]), i};
    qsort(rows, n, sizeof *rows, by_key);
    for (size_t i = 0; i < n; i++) {
        if (!digest_equal(rows[i].key, first->key)) first = &rows[i];
        if (first->row >= x->count || rows[i].row < x->count) continue;
        int64_t at = out->examples[rows[i].row - x->count].line;
        if (at < line) line = at;
        same++;
    }
    if (same)
        log_warn("%s: %zu of the %zu held-out rows %s the text of a row that is trained on, which makes the scores too "
                 "good; the first is line %lld. Remove rows that occur twice",
                 x->path, same, out->count, same == 1 ? "has" : "have", (long long)line);
    free(rows);
}

/* ---- the split ---- */

Status glue_hold_out(GlueExamples *x, const GlueTask *task, double fraction, uint64_t seed, GlueExamples *out)
{
    bool *held = mem_array(x->count, sizeof *held);
    size_t kept = 0, cap = 0;
    draw(x, task, fraction, seed, held);
    *out = (GlueExamples){0};
    for (size_t i = 0; i < x->count; i++)
        if (held[i])
            MEM_PUSH(out->examples, out->count, cap, x->examples[i]);
        else
            x->examples[kept++] = x->examples[i];
    free(held);
    if (out->count == 0)
        return fail(
            E_FORMAT,
            "%s: --eval-fraction %g holds out no row: of %zu rows no two have the same label; add rows, or give "
            "a dev file",
            x->path, fraction, x->count);
    out->labelled = true;
    out->path = mem_strdup(x->path);
    x->count = kept;
    log_split(x, out, task, fraction, seed);
    warn_same_texts(x, out);
    return OK;
}
