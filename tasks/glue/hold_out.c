/* The dev split of --eval-fraction: rows of a user's training file, drawn by a seed of their own. */
#include "data/data.h"
#include "tasks/glue/custom.h"

/* A row by what it shares with others: its label, its set of labels, or its texts. */
typedef struct {
    Digest key;
    size_t row;
} KeyedRow;

/* Rows of one label, or set of labels: order[first .. first + count). */
typedef struct {
    size_t first, count, first_row;
    size_t held, least, most; /* rows to hold out, and the bounds of that number */
    double share;             /* the fraction of `count` */
    uint32_t number;          /* in the order of first_row */
} Stratum;

static int by_key(const void *a, const void *b)
{
    const KeyedRow *x = a, *y = b;
    if (x->key.hi != y->key.hi) return x->key.hi < y->key.hi ? -1 : 1;
    if (x->key.lo != y->key.lo) return x->key.lo < y->key.lo ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static int by_first_row(const void *a, const void *b)
{
    const Stratum *x = a, *y = b;
    return x->first_row < y->first_row ? -1 : x->first_row > y->first_row;
}

/* The largest remainder first. */
static int by_remainder(const void *a, const void *b)
{
    const Stratum *x = a, *y = b;
    double u = x->share - (double)x->held, v = y->share - (double)y->held;
    if (u != v) return u > v ? -1 : 1;
    return by_first_row(a, b);
}

/* Rows with the key of row `first`, from there on. */
static size_t same_keys(const KeyedRow *rows, size_t n, size_t first)
{
    size_t end = first + 1;
    while (end < n && digest_equal(rows[end].key, rows[first].key)) end++;
    return end - first;
}

/* ---- strata ---- */

static Digest label_key(const GlueTask *task, const GlueExample *e)
{
    if (e->targets) return digest_of(e->targets, (size_t)task->n_labels * sizeof *e->targets);
    return (Digest){0, (uint64_t)(uint32_t)e->label};
}

/* Sets of labels of which the fraction is less than a row become one. */
static void join_rare_sets(KeyedRow *rows, size_t n, double fraction)
{
    for (size_t i = 0, count; i < n; i += count) {
        count = same_keys(rows, n, i);
        for (size_t k = 0; k < count && (double)count * fraction < 1; k++)
            rows[i + k].key = (Digest){UINT64_MAX, UINT64_MAX};
    }
    qsort(rows, n, sizeof *rows, by_key);
}

/* Sorts the rows (n) by stratum. The strata do not depend on how labels are numbered. */
static Stratum *find_strata(const GlueExamples *x, const GlueTask *task, double fraction, KeyedRow *rows, size_t *n)
{
    Stratum *strata = NULL;
    size_t cap = 0;
    for (size_t i = 0; i < x->count; i++) rows[i] = (KeyedRow){label_key(task, &x->examples[i]), i};
    qsort(rows, x->count, sizeof *rows, by_key);
    if (task->multi) join_rare_sets(rows, x->count, fraction);
    for (size_t i = 0, count; i < x->count; i += count) {
        count = same_keys(rows, x->count, i);
        MEM_PUSH(strata, *n, cap,
                 (Stratum){.first = i, .count = count, .first_row = rows[i].row, .share = fraction * (double)count});
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
        s->held = (size_t)s->share;
        if (s->held < s->least) s->held = s->least;
        if (s->held > s->most) s->held = s->most;
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

/* Marks the rows to hold out; returns their number. */
static size_t draw(const GlueExamples *x, const GlueTask *task, double fraction, uint64_t seed, bool *held)
{
    KeyedRow *rows = mem_array(x->count, sizeof *rows);
    size_t n = 0, sum = 0, wanted = (size_t)(fraction * (double)x->count + 0.5);
    Stratum *strata = find_strata(x, task, fraction, rows, &n);
    share_out(strata, n, wanted ? wanted : 1);
    for (size_t k = 0; k < n; k++) {
        const Stratum *s = &strata[k];
        Permutation p = permutation(seed, s->number, (int64_t)s->count);
        for (size_t j = 0; j < s->held; j++) held[rows[s->first + (size_t)permutation_at(&p, (int64_t)j)].row] = true;
        sum += s->held;
    }
    MEM_FREE(rows, strata);
    return sum;
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
    int64_t line = 0;
    KeyedRow *rows = mem_array(n, sizeof *rows);
    for (size_t i = 0; i < n; i++)
        rows[i] = (KeyedRow){text_key(i < x->count ? &x->examples[i] : &out->examples[i - x->count]), i};
    qsort(rows, n, sizeof *rows, by_key);
    for (size_t i = 0, count; i < n; i += count) {
        count = same_keys(rows, n, i);
        for (size_t k = i; k < i + count && rows[i].row < x->count; k++) {
            if (rows[k].row < x->count) continue;
            int64_t at = out->examples[rows[k].row - x->count].line;
            if (same++ == 0 || at < line) line = at;
        }
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
    Status status = OK;
    bool *held = mem_array(x->count, sizeof *held);
    size_t n = draw(x, task, fraction, seed, held), kept = 0;
    *out = (GlueExamples){0};
    if (n == 0)
        TRY_DONE(fail(E_FORMAT,
                      "%s: --eval-fraction %g holds out no row: of %zu rows no two have the same label; add rows, or "
                      "give a dev file",
                      x->path, fraction, x->count));
    *out =
        (GlueExamples){.examples = mem_array(n, sizeof *out->examples), .labelled = true, .path = mem_strdup(x->path)};
    for (size_t i = 0; i < x->count; i++)
        if (held[i])
            out->examples[out->count++] = x->examples[i];
        else
            x->examples[kept++] = x->examples[i];
    x->count = kept;
    log_split(x, out, task, fraction, seed);
    warn_same_texts(x, out);
done:
    free(held);
    return status;
}
