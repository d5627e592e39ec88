/* Stages of a pipeline: how layers are shared out, and the part of a model that some stages need. */

#include "model/model.h"

/* ---- the split ---- */

typedef struct {
    const double *before; /* (layers + 1): seconds of the layers before each */
    double embeddings, heads;
    int layers, n;
} Split;

static double stage_seconds(const Split *s, int stage, int first, int end)
{
    double seconds = s->before[end] - s->before[first];
    if (stage == 0) seconds += s->embeddings;
    return stage == s->n - 1 ? seconds + s->heads : seconds;
}

/* Whether `limit` seconds are enough for the stages from `stage` on and the layers from `first` on. The stages take as
   many layers as they can and leave one for each later stage. */
static bool enough(const Split *s, double limit, int stage, int first)
{
    for (; stage < s->n - 1; stage++) {
        int end = first + 1;
        if (stage_seconds(s, stage, first, end) > limit) return false;
        while (end < s->layers - (s->n - 1 - stage) && stage_seconds(s, stage, first, end + 1) <= limit) end++;
        first = end;
    }
    return stage_seconds(s, stage, first, s->layers) <= limit;
}

/* The least of the slowest stage's seconds: one of the sums of consecutive layers. */
static double least_limit(const Split *s)
{
    double best = INFINITY;
    for (int stage = 0; stage < s->n; stage++)
        for (int first = stage; first < s->layers; first++)
            for (int end = first + 1; end <= s->layers; end++) {
                double limit = stage_seconds(s, stage, first, end) * (1 + 1e-12);
                if (limit < best && enough(s, limit, 0, 0)) best = limit;
            }
    return best;
}

/* The last stage takes as few layers as the limit allows: the others take as many as they can. Among these the first
   takes few in turn. */
void stages_split(const double *layer, int layers, double embeddings, double heads, int n, Stage *stages)
{
    CHECK(n >= 1 && n <= layers, "%d stages of %d layers", n, layers);
    double *before = mem_array((size_t)layers + 1, sizeof *before);
    for (int l = 0; l < layers; l++) before[l + 1] = before[l] + layer[l];
    Split s = {before, embeddings, heads, layers, n};
    double limit = least_limit(&s);
    int last = 0, first = 0; /* where the last stage begins at the latest */
    for (int stage = 0; stage < n - 1; stage++) {
        int end = last + 1;
        while (end < layers - (n - 1 - stage) && stage_seconds(&s, stage, last, end + 1) <= limit) end++;
        last = end;
    }
    if (n == 1) last = layers;
    Split rest = {before, embeddings, 0, n == 1 ? layers : last, n == 1 ? 1 : n - 1}; /* the stages before the last */
    for (int stage = 0; stage < rest.n; stage++) {
        int end = first + 1;
        while (stage < rest.n - 1 && !enough(&rest, limit, stage + 1, end)) end++;
        if (stage == rest.n - 1) end = rest.layers;
        stages[stage] = (Stage){first, end - first};
        first = end;
    }
    if (n > 1) stages[n - 1] = (Stage){last, layers - last};
    free(before);
}

/* "4,3,3": as even as can be, for n of 1 or more. */
static void format_even(int layers, int n, Buf *out)
{
    int i = 0;
    do buf_printf(out, "%s%d", i ? "," : "", layers / n + (i < layers % n));
    while (++i < n);
}

static Status refuse_layers(const char *option, const char *text, int layers, int n, const char *found)
{
    Buf even = {0};
    format_even(layers, n, &even);
    Status status = fail(E_USAGE,
                         "%s '%s': expected the layers of %d stages, each 1 or more, %d in all, found %s: give "
                         "%s %s, or %s auto",
                         option, text, n, layers, found, option, even.data, option);
    buf_free(&even);
    return status;
}

Status stages_parse(const char *option, const char *text, int layers, int n, Stage *stages)
{
    enum { MOST = 1 << 20 };
    int count = 0, sum = 0;
    for (const char *p = text; *p;) {
        char *end;
        long value = strtol(p, &end, 10);
        if (end == p || (*end && *end != ',') || value < 1 || value > layers || sum > MOST)
            return refuse_layers(option, text, layers, n, SHORT_TEXT("'%.*s'", (int)strcspn(p, ","), p));
        if (count < n) stages[count] = (Stage){sum, (int32_t)value};
        count++;
        sum += (int)value;
        p = *end ? end + 1 : end;
    }
    if (count == n && sum == layers) return OK;
    return refuse_layers(option, text, layers, n,
                         SHORT_TEXT("%d stage%s of %d in all", count, count == 1 ? "" : "s", sum));
}

/* ---- a part of a model ---- */

const Param *model_tied(const Model *m)
{
    int i = m->head.kind == HEAD_PRETRAINING ? params_find(&m->params, WORD_EMBEDDING) : -1;
    return i < 0 ? NULL : &m->params.params[i];
}

bool stage_holds(const Model *m, const Stage *s, const Param *p)
{
    bool tied = m->head.kind == HEAD_PRETRAINING && strcmp(p->name, WORD_EMBEDDING) == 0;
    if (p->layer >= 0) return p->layer >= s->first && p->layer < s->first + s->layers;
    bool embedding = strncmp(p->name, "bert.embeddings.", 16) == 0;
    return (embedding && stage_is_first(s)) || ((!embedding || tied) && stage_is_last(m, s));
}

void model_part(const Model *whole, const Stage *stages, int n, Model *part)
{
    const ParamTable *all = &whole->params;
    ParamTable *own = &part->params;
    *part = *whole;
    part->config.extra = NULL;
    part->stages = mem_array((size_t)n, sizeof *part->stages);
    memcpy(part->stages, stages, (size_t)n * sizeof *stages);
    part->n_stages = n;
    *own = (ParamTable){.initializer_range = all->initializer_range, .kind = all->kind};
    for (int i = 0; i < all->count; i++) {
        const Param *p = &all->params[i];
        bool held = false;
        for (int k = 0; k < n; k++) held |= stage_holds(whole, &stages[k], p);
        if (!held) continue;
        MEM_GROW(own->params, own->count, own->cap);
        if (p->offset % PARAM_ALIGN == 0) /* else it follows the member of its group before it */
            own->size = (own->size + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
        own->params[own->count] = *p;
        own->params[own->count++].offset = own->size;
        own->size += param_held(p);
    }
    own->size = (own->size + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}
