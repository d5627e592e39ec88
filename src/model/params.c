/* The parameter table's own functions; model.c fills it. */
#include "model/params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

void params_init_one(const ParamTable *t, int index, uint64_t seed, float *weights)
{
    const Param *p = &t->params[index];
    float *w = weights + p->offset;
    int64_t n = param_exported(p);
    memset(w, 0, (size_t)param_held(p) * sizeof *w);
    if (p->init == INIT_ZERO) return;
    if (p->init == INIT_ONE) {
        for (int64_t i = 0; i < n; i++) w[i] = 1;
        return;
    }
    uint64_t name = digest_of(p->name, strlen(p->name)).lo;
    for (int64_t i = 0; i < n; i += 4) {
        double z[4];
        normal4(seed ^ PHILOX_INIT, name, (uint64_t)i / 4, z);
        for (int64_t k = 0; k < 4 && i + k < n; k++) w[i + k] = (float)(z[k] * t->initializer_range);
    }
}

void params_init(const ParamTable *t, uint64_t seed, float *weights)
{
    memset(weights, 0, (size_t)t->size * sizeof *weights);
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
