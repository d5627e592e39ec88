/* From options to the grid of ranks. */
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

static Status too_many(const Config *c, PipelineKind kind, int64_t stages, int layers)
{
    int unit = unit_of(c, kind), most = layers / unit * unit;
    if (most < unit)
        return fail(E_USAGE, "%s needs %d stages at least, and the model has %d layer%s: use another schedule",
                    pipeline_name(kind), unit, layers, layers == 1 ? "" : "s");
    return fail(E_USAGE, "%s with %lld stages needs as many layers; the model has %d: give --stages %d or fewer",
                pipeline_name(kind), (long long)stages, layers, most);
}

Status pipeline_grid(const Config *c, PipelineKind kind, int64_t ranks, int layers, PipelineGrid *grid)
{
    const char *name = pipeline_name(kind);
    int unit = unit_of(c, kind), chunks = chunks_of(c, kind), per_place = kind == PIPELINE_CHIMERA ? 1 : chunks;
    int64_t stages = c->stages ? c->stages : ranks * per_place;
    if (!c->stages && ranks == 1)
        return fail(E_USAGE, "--pipeline %s on one rank: give the number of stages, as --stages %d, or more ranks",
                    name, 2 * unit);
    if (kind == PIPELINE_INTERLEAVED && chunks < 2)
        return fail(E_USAGE, "--stage-chunks %d: interleaved has at least 2 stages on a rank; use 1f1b for one",
                    chunks);
    if (stages % unit)
        return fail(E_USAGE, "%s needs a multiple of %d stages, found %lld: give --stages %lld", name, unit,
                    (long long)stages, (long long)(stages + unit - stages % unit));
    if (stages > layers) return too_many(c, kind, stages, layers);
    int64_t places = stages / per_place;
    if (ranks % places)
        return fail(E_USAGE,
                    "%s with %lld stages takes %lld ranks, or a multiple; there are %lld: give --ranks %lld, or "
                    "--stages %lld",
                    name, (long long)stages, (long long)places, (long long)ranks,
                    (long long)((ranks + places - 1) / places * places), (long long)(ranks * per_place));
    *grid = (PipelineGrid){.shape = {.kind = kind, .places = (int)places, .chunks = chunks},
                           .stages = (int)stages,
                           .replicas = (int)(ranks / places),
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
