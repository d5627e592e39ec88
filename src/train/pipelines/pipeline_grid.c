/* From options to the grid of ranks. */

#include "train/pipelines/pipeline.h"
#include "train/planner/planner.h"

#define MICRO_TOKENS_MOST 16384 /* contracts.md 3 */

/* Stages come in multiples: of the chunks of a place, and of 2 in chimera. */
typedef struct {
    PipelineKind kind;
    int chunks; /* the least of a place */
    int layers;
} StageRule;

/* Stages for each place of a pipeline; chimera's places have each stage twice. Where there are fewer ranks than stages,
   consecutive stages share a place. `ranks` 0: any number. */
static int64_t per_place(const StageRule *g, int64_t stages, int64_t ranks)
{
    if (g->kind == PIPELINE_CHIMERA) return 1;
    return pipeline_consecutive(g->kind) && ranks > 0 && stages % ranks == 0 ? stages / ranks : g->chunks;
}

static int64_t places_of(const StageRule *g, int64_t stages, int64_t ranks)
{
    return stages / per_place(g, stages, ranks);
}

static bool grid_allowed(const StageRule *g, int64_t stages, int64_t ranks)
{
    return stages % g->chunks == 0 && stages <= g->layers && (!ranks || ranks % places_of(g, stages, ranks) == 0);
}

/* The allowed number of stages next to `stages`, for `ranks` (0: any number of ranks); of two the smaller. 0: none.
   A pipeline has several places where there are several ranks. */
static int64_t nearest_stages(const StageRule *g, int64_t stages, int64_t ranks)
{
    int64_t best = 0;
    for (int64_t n = g->chunks; n <= g->layers; n += g->chunks)
        if (grid_allowed(g, n, ranks) && (ranks < 2 || places_of(g, n, ranks) > 1) &&
            (!best || llabs(n - stages) < llabs(best - stages)))
            best = n;
    return best;
}

/* The allowed number of ranks next to `ranks`, for an allowed number of stages; of two the larger. */
static int64_t nearest_ranks(const StageRule *g, int64_t stages, int64_t ranks)
{
    for (int64_t by = 0;; by++) {
        if (grid_allowed(g, stages, ranks + by)) return ranks + by;
        if (by < ranks && grid_allowed(g, stages, ranks - by)) return ranks - by;
    }
}

/* What fits the same ranks, and what fits the stages asked for, or those next to them; in front of each `schedule`. */
static void advise(const StageRule *g, int64_t stages, int64_t ranks, const char *schedule, char *to, size_t size)
{
    int64_t here = nearest_stages(g, stages, ranks), near = nearest_stages(g, stages, 0);
    int64_t there = nearest_ranks(g, near, ranks);
    size_t used = 0;
    if (here) used = (size_t)snprintf(to, size, "give %s--stages %lld", schedule, (long long)here);
    if (here && there == ranks) return;
    snprintf(to + used, size - used, "%s%s--stages %lld --ranks %lld", used ? ", or " : "give ", schedule,
             (long long)near, (long long)there);
}

static Status refuse(const StageRule *g, int64_t stages, int64_t ranks)
{
    const char *name = pipeline_name(g->kind);
    char advice[160];
    if (g->layers < g->chunks) {
        advise(&(StageRule){PIPELINE_1F1B, 1, g->layers}, stages, ranks, "--pipeline 1f1b ", advice, sizeof advice);
        return fail(E_USAGE, "--pipeline %s has %d stages at least, and the model has %d layer%s: %s", name, g->chunks,
                    g->layers, g->layers == 1 ? "" : "s", advice);
    }
    advise(g, stages, ranks, "", advice, sizeof advice);
    if (stages % g->chunks)
        return fail(E_USAGE, "--pipeline %s takes a multiple of %d stages, found %lld: %s", name, g->chunks,
                    (long long)stages, advice);
    if (stages > g->layers)
        return fail(E_USAGE, "--pipeline %s with %lld stages needs as many layers; the model has %d: %s", name,
                    (long long)stages, g->layers, advice);
    return fail(E_USAGE, "--pipeline %s with %lld stages takes %lld ranks, %sa multiple%s; there are %lld: %s", name,
                (long long)stages, (long long)places_of(g, stages, 0), pipeline_consecutive(g->kind) ? "" : "or ",
                pipeline_consecutive(g->kind) ? " or a divisor" : "", (long long)ranks, advice);
}

Status pipeline_grid(const Config *c, PipelineKind kind, int64_t ranks, int layers, Grid *grid)
{
    StageRule g = {kind, kind == PIPELINE_INTERLEAVED ? (int)c->stage_chunks : pipeline_chunks(kind), layers};
    int64_t stages = c->stages ? c->stages : ranks * per_place(&g, ranks, ranks);
    if (!c->stages && ranks == 1)
        return fail(E_USAGE, "--pipeline %s on one rank: give the number of stages, as --stages %d, or %s",
                    pipeline_name(kind), kind == PIPELINE_CHIMERA ? 2 : 2 * g.chunks,
                    c->command == COMMAND_PLAN ? "--ranks 2" : "start 2 ranks: `cairn launch --ranks 2 -- …`");
    if (g.chunks < pipeline_chunks(kind))
        return fail(E_USAGE, "--stage-chunks %d: interleaved has at least 2 stages on a rank; give --pipeline 1f1b",
                    g.chunks);
    if (!grid_allowed(&g, stages, ranks)) return refuse(&g, stages, ranks);
    int64_t places = places_of(&g, stages, ranks);
    int directions = kind == PIPELINE_CHIMERA ? 2 : 1;
    *grid = (Grid){.shape = {.kind = kind, .places = (int)places, .chunks = (int)(stages / places) * directions},
                   .stages = (int)stages,
                   .replicas = (int)(ranks / places),
                   .directions = directions};
    return pipeline_check(&grid->shape);
}

Status pipeline_micro_tokens(const Config *c, const Grid *grid, const PlanInput *in, int64_t share, int64_t *tokens)
{
    int64_t rows = share * in->max_length, parts = 2 * (int64_t)grid->shape.places,
            least = planner_least_tokens(c, share, in->max_length);
    *tokens = least;
    if (planner_one_grain(in)) return OK;
    if (strcmp(c->micro_batch_tokens, "default") != 0) return planner_micro_tokens(c, share, in->max_length, tokens);
    *tokens = (rows + parts - 1) / parts;
    *tokens = (*tokens + 63) / 64 * 64;
    if (*tokens > MICRO_TOKENS_MOST) *tokens = MICRO_TOKENS_MOST;
    if (*tokens < least) *tokens = least;
    return OK;
}
