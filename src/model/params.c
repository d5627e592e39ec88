/* The parameter table's own functions; model.c fills it. */
#include "model/params.h"

#include <stdatomic.h>

#include "base/norm_block.h"
#include "base/parallel.h"

int params_find(const ParamTable *t, const char *name)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->params[i].name, name) == 0) return i;
    return -1;
}

void params_free(ParamTable *t)
{
    free(t->params);
    *t = (ParamTable){0};
}

/* Four normals from one Philox call (Box and Muller). */
static void normal4(uint64_t key, uint64_t name, uint64_t block, double out[4])
{
    Philox4 r = philox4(key, (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)name, (uint32_t)(name >> 32));
    for (int i = 0; i < 4; i += 2) {
        double radius = sqrt(-2 * log(philox_unit(r.v[i]))), angle = 2 * M_PI * philox_unit(r.v[i + 1]);
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

/* ---- New weights: independent random numbers, made by several threads ---- */

enum { INIT_GRAIN = 1 << 16 }; /* elements a thread is worth starting for: 2 ms of normals. A multiple of 4. */

typedef struct {
    uint64_t key, name;
    double range;
    float *w;
} NormalJob;

static void make_normals(void *arg, size_t begin, size_t end)
{
    const NormalJob *j = arg;
    for (size_t i = begin; i < end; i += 4) {
        double z[4];
        normal4(j->key, j->name, i / 4, z);
        for (size_t k = 0; k < 4 && i + k < end; k++) j->w[i + k] = (float)(z[k] * j->range);
    }
}

static void make_zeros(void *arg, size_t begin, size_t end)
{
    memset((float *)arg + begin, 0, (end - begin) * sizeof(float));
}

void params_zero(const ParamTable *t, float *weights)
{
    parallel_ranges((size_t)t->size, INIT_GRAIN, make_zeros, weights);
}

void params_init_one(const ParamTable *t, int index, uint64_t seed, float *weights)
{
    const Param *p = &t->params[index];
    float *w = weights + p->offset;
    int64_t n = param_exported(p);
    memset(w + n, 0, (size_t)(param_held(p) - n) * sizeof *w);
    if (p->init == INIT_NORMAL) {
        NormalJob job = {seed ^ PHILOX_INIT, digest_of(p->name, strlen(p->name)).lo, t->initializer_range, w};
        parallel_ranges((size_t)n, INIT_GRAIN, make_normals, &job);
    } else {
        for (int64_t i = 0; i < n; i++) w[i] = p->init == INIT_ONE ? 1 : 0;
    }
}

void params_init(const ParamTable *t, uint64_t seed, float *weights)
{
    params_zero(t, weights);
    for (int i = 0; i < t->count; i++) params_init_one(t, i, seed, weights);
}

void params_permute_rows(const ParamTable *t, int p, const int *from, float *weights)
{
    int64_t rows = t->params[p].rows, cols = t->params[p].cols;
    float *w = weights + t->params[p].offset, *old = mem_array((size_t)(rows * cols), sizeof *old);
    memcpy(old, w, (size_t)(rows * cols) * sizeof *old);
    for (int64_t i = 0; i < rows; i++) memcpy(w + i * cols, old + from[i] * cols, (size_t)cols * sizeof *old);
    free(old);
}

Digest params_digest(const ParamTable *t)
{
    Buf text = {0};
    for (int i = 0; i < t->count; i++)
        buf_printf(&text, "%s %lld %lld %lld\n", t->params[i].name, (long long)t->params[i].padded,
                   (long long)t->params[i].cols, (long long)t->params[i].offset);
    Digest d = digest_of(text.data, text.len);
    buf_free(&text);
    return d;
}

/* ---- cuts of the space ---- */

/* The cut nearest to `ideal`: a tensor's start, or a whole number of norm blocks after it. Padding after the last block
   of a tensor belongs to that block. */
static int64_t nearest_cut(const ParamTable *t, int64_t begin, int64_t end, int64_t ideal)
{
    int low = 0, high = t->count - 1; /* the last tensor that starts at or before `ideal` */
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (t->params[middle].offset <= ideal)
            low = middle;
        else
            high = middle - 1;
    }
    const Param *p = &t->params[low];
    int64_t next = low + 1 < t->count ? t->params[low + 1].offset : t->size, held = param_held(p);
    int64_t below = p->offset + (ideal - p->offset) / NORM_BLOCK * NORM_BLOCK;
    int64_t last = p->offset + (held > 0 ? (held - 1) / NORM_BLOCK * NORM_BLOCK : 0); /* start of the last block */
    if (below > last) below = last;
    int64_t above = below == last ? next : below + NORM_BLOCK;
    int64_t cut = ideal - below <= above - ideal ? below : above;
    return cut < begin ? begin : cut > end ? end : cut;
}

int64_t slice_cut(const ParamTable *params, int64_t begin, int64_t end, int rank, int ranks)
{
    /* (end - begin)·(rank + 1) stays far below 2^63 */
    return rank + 1 == ranks ? end : nearest_cut(params, begin, end, begin + (end - begin) * (rank + 1) / ranks);
}

/* ---- the digest of values, as a sum over blocks: it does not depend on who adds which of them ---- */

enum { SUM_GRAIN = 1024 }; /* norm blocks of a thread, at least: 4 MiB */

typedef struct {
    const float *x;       /* the values of block `first` */
    int64_t place, count; /* element in the space of x[0]; elements */
    _Atomic uint64_t sum;
} SumPart;

static void sum_blocks(void *arg, size_t begin, size_t end)
{
    SumPart *p = arg;
    uint64_t sum = 0;
    for (size_t b = begin; b < end; b++) {
        int64_t at = (int64_t)b * NORM_BLOCK, n = p->count - at < NORM_BLOCK ? p->count - at : NORM_BLOCK;
        struct {
            Digest values;
            int64_t place;
        } block = {digest_of(p->x + at, (size_t)n * sizeof *p->x), p->place + at};
        sum += digest_of(&block, sizeof block).lo;
    }
    atomic_fetch_add(&p->sum, sum);
}

uint64_t param_sum(const float *values, int64_t count, int64_t place)
{
    SumPart p = {.x = values, .place = place, .count = count};
    parallel_ranges((size_t)norm_blocks(count), SUM_GRAIN, sum_blocks, &p);
    return p.sum;
}
