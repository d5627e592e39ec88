/* From options to the grid of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/pipeline.h"
#include "train/planner.h"

#define MICRO_TOKENS_MOST 16384 /* contracts.md 3 */

/* Stages of one place. */
static int chunks_of(const Config *c, PipelineKind kind)
{
    return pipeline_chunks(kind) ? pipeline_chunks(kind) : (int)c->stage_chunks;
}

/* Stages come in multiples: of the chunks of a place, and of 2 in chimera. */
static int unit_of(const Config *c, PipelineKind kind) { return kind == PIPELINE_CHIMERA ? 2 : chunks_of(c, kind); }

typedef struct {
    PipelineKind kind;
    int unit, per_place, layers;
} Grid;

static bool stages_allowed(const Grid *g, int64_t stages) { return stages % g->unit == 0 && stages <= g->layers; }

static bool grid_allowed(const Grid *g, int64_t stages, int64_t ranks)
{
    return stages_allowed(g, stages) && ranks % (stages / g->per_place) == 0;
}

/* The allowed number of stages next to `stages`, for `ranks` (0: any number of ranks); of two the smaller. 0: none.
   A pipeline has several places where there are several ranks. */
static int64_t nearest_stages(const Grid *g, int64_t stages, int64_t ranks)
{
    int64_t best = 0;
    for (int64_t n = g->unit; n <= g->layers; n += g->unit)
        if ((ranks == 0 || grid_allowed(g, n, ranks)) && (ranks < 2 || n > g->per_place) &&
            (!best || llabs(n - stages) < llabs(best - stages)))
            best = n;
    return best;
}

/* The multiple of the places next to `ranks`; of two the larger. */
static int64_t nearest_ranks(const Grid *g, int64_t stages, int64_t ranks)
{
    int64_t places = stages / g->per_place, below = ranks / places * places;
    return below > 0 && ranks - below < below + places - ranks ? below : below + places;
}

/* What fits the same ranks, and what fits the stages asked for, or those next to them; in front of each `schedule`. */
static void advise(const Grid *g, int64_t stages, int64_t ranks, const char *schedule, char *to, size_t size)
{
    int64_t here = nearest_stages(g, stages, ranks), near = nearest_stages(g, stages, 0);
    int64_t there = nearest_ranks(g, near, ranks);
    size_t used = 0;
    if (here) used = (size_t)snprintf(to, size, "give %s--stages %lld", schedule, (long long)here);
    if (here && there == ranks) return;
    snprintf(to + used, size - used, "%s%s--stages %lld --ranks %lld", used ? ", or " : "give ", schedule,
             (long long)near, (long long)there);
}

static Status refuse(const Grid *g, int64_t stages, int64_t ranks)
{
    const char *name = pipeline_name(g->kind);
    char advice[160];
    if (g->layers < g->unit) {
        advise(&(Grid){PIPELINE_1F1B, 1, 1, g->layers}, stages, ranks, "--pipeline 1f1b ", advice, sizeof advice);
        return fail(E_USAGE, "--pipeline %s has %d stages at least, and the model has %d layer%s: %s", name, g->unit,
                    g->layers, g->layers == 1 ? "" : "s", advice);
    }
    advise(g, stages, ranks, "", advice, sizeof advice);
    if (stages % g->unit)
        return fail(E_USAGE, "--pipeline %s takes a multiple of %d stages, found %lld: %s", name, g->unit,
                    (long long)stages, advice);
    if (stages > g->layers)
        return fail(E_USAGE, "--pipeline %s with %lld stages needs as many layers; the model has %d: %s", name,
                    (long long)stages, g->layers, advice);
    return fail(E_USAGE, "--pipeline %s with %lld stages takes %lld ranks, or a multiple; there are %lld: %s", name,
                (long long)stages, (long long)(stages / g->per_place), (long long)ranks, advice);
}

Status pipeline_grid(const Config *c, PipelineKind kind, int64_t ranks, int layers, PipelineGrid *grid)
{
    int chunks = chunks_of(c, kind);
    Grid g = {kind, unit_of(c, kind), kind == PIPELINE_CHIMERA ? 1 : chunks, layers};
    int64_t stages = c->stages ? c->stages : ranks * g.per_place;
    if (!c->stages && ranks == 1)
        return fail(E_USAGE, "--pipeline %s on one rank: give the number of stages, as --stages %d --ranks %d",
                    pipeline_name(kind), 2 * g.per_place, 2);
    if (kind == PIPELINE_INTERLEAVED && chunks < 2)
        return fail(E_USAGE, "--stage-chunks %d: interleaved has at least 2 stages on a rank; give --pipeline 1f1b",
                    chunks);
    if (!grid_allowed(&g, stages, ranks)) return refuse(&g, stages, ranks);
    *grid = (PipelineGrid){.shape = {.kind = kind, .places = (int)(stages / g.per_place), .chunks = chunks},
                           .stages = (int)stages,
                           .replicas = (int)(ranks / (stages / g.per_place)),
                           .directions = kind == PIPELINE_CHIMERA ? 2 : 1};
    return pipeline_check(&grid->shape);
}

Status pipeline_micro_tokens(const Config *c, const PipelineGrid *grid, const PlanInput *in, int64_t share,
                             int64_t *tokens)
{
    int64_t rows = share * in->max_length, parts = 2 * (int64_t)grid->shape.places;
    if (strcmp(c->micro_batch_tokens, "default") != 0) return planner_micro_tokens(c, share, in->max_length, tokens);
    *tokens = (rows + parts - 1) / parts;
    *tokens = (*tokens + 63) / 64 * 64;
    if (*tokens > MICRO_TOKENS_MOST) *tokens = MICRO_TOKENS_MOST;
    if (*tokens < in->max_length) *tokens = in->max_length;
    return OK;
}
