/* Who has what of a model in a pipeline: the stages that hold a tensor, and the parts of it that their holders sum,
   update, snapshot and save. Every rank computes the same from the stages and --bucket-size. */
#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"
#include "train/parts/place.h"

static const Pipeline *shape(const PipelinePlace *p) { return &p->grid.shape; }

/* The first stage of a place that holds a tensor; −1: none. */
static int held_stage(const PipelinePlace *p, int number, const Param *param)
{
    int first = -1;
    for (int chunk = 0; chunk < shape(p)->chunks; chunk++) {
        int stage = pipeline_stage(shape(p), number, chunk);
        if (stage_holds(p->whole, &p->stages[stage], param) && (first < 0 || stage < first)) first = stage;
    }
    return first;
}

static int first_stage(const PipelinePlace *p, const Param *param)
{
    int stage = 0;
    while (!stage_holds(p->whole, &p->stages[stage], param)) stage++;
    return stage;
}

static int first_holder(const PipelinePlace *p, int stage)
{
    int number, chunk;
    pipeline_home(shape(p), stage, 0, &number, &chunk);
    return number * p->grid.replicas;
}

int place_keeper(const PipelinePlace *p, int param)
{
    return first_holder(p, first_stage(p, &p->whole->params.params[param]));
}

static int stage_of_layer(const PipelinePlace *p, int layer)
{
    int stage = 0;
    while (layer >= p->stages[stage].first + p->stages[stage].layers) stage++;
    return stage;
}

int place_layer_keeper(const PipelinePlace *p, int layer) { return first_holder(p, stage_of_layer(p, layer)); }

bool place_holds_layer(const PipelinePlace *p, int rank, int layer)
{
    int number, chunk, stage = stage_of_layer(p, layer);
    for (int direction = 0; direction < p->grid.directions; direction++) {
        pipeline_home(shape(p), stage, direction, &number, &chunk);
        if (number == rank / p->grid.replicas) return true;
    }
    return false;
}

/* ---- pieces, and their parts ---- */

static int64_t param_end(const ParamTable *t, int i) { return i + 1 < t->count ? t->params[i + 1].offset : t->size; }

static bool is_tied(const PipelinePlace *p, const Param *param)
{
    const Param *tied = model_tied(p->whole);
    return tied && strcmp(param->name, tied->name) == 0;
}

/* `t`: the table of what the place of this number holds. The caller frees the pieces. */
static int make_pieces(const PipelinePlace *p, int number, const ParamTable *t, PlacePiece **pieces)
{
    int n = 0, cap = 0;
    *pieces = NULL;
    for (int i = 0, next; i < t->count; i = next) {
        int stage = held_stage(p, number, &t->params[i]);
        bool tied = is_tied(p, &t->params[i]);
        for (next = i + 1; next < t->count && !tied && held_stage(p, number, &t->params[next]) == stage &&
                           !is_tied(p, &t->params[next]);
             next++) {}
        int64_t at = t->params[i].offset, begin = at, end = param_end(t, next - 1);
        int parts = (int)((end - begin + p->bucket - 1) / p->bucket);
        for (int k = 0; k < parts; k++) {
            int64_t to = slice_cut(t, begin, end, k, parts);
            if (to == at) continue;
            MEM_PUSH(*pieces, n, cap, (PlacePiece){stage, at, to});
            at = to;
        }
    }
    return n;
}

static void cut_piece(const PipelinePlace *p, const ParamTable *t, const PlacePiece *piece, Interval *cut)
{
    int64_t from = piece->begin;
    for (int q = 0; q < place_replicas(p); q++) {
        int64_t to = slice_cut(t, piece->begin, piece->end, q, place_replicas(p));
        cut[q] = (Interval){from - piece->begin, to - piece->begin};
        from = to;
    }
}

void place_cut(const PipelinePlace *p, const PlacePiece *piece, Interval *cut)
{
    cut_piece(p, &p->held.params, piece, cut);
}

/* The number of a rank among a stage's holders. */
static int holder_number(const PipelinePlace *p, int rank, int stage)
{
    int number = rank / p->grid.replicas, direction = 0;
    for (int chunk = 0; chunk < shape(p)->chunks; chunk++)
        if (pipeline_stage(shape(p), number, chunk) == stage) direction = place_direction(p, chunk);
    return rank % p->grid.replicas * p->grid.directions + direction;
}

static void make_share(const PipelinePlace *p, int rank, const ParamTable *t, const PlacePiece *pieces, int n,
                       Intervals *share)
{
    Interval *cut = mem_array((size_t)place_replicas(p), sizeof *cut);
    for (int i = 0; i < n; i++) {
        cut_piece(p, t, &pieces[i], cut);
        Interval own = cut[holder_number(p, rank, pieces[i].stage)];
        intervals_add(share, pieces[i].begin + own.begin, pieces[i].begin + own.end);
    }
    free(cut);
}

void place_take_shares(PipelinePlace *p)
{
    p->n_pieces = make_pieces(p, p->number, &p->held.params, &p->pieces);
    make_share(p, p->number * p->grid.replicas + p->pipeline, &p->held.params, p->pieces, p->n_pieces, &p->share);
}

/* ---- lists ---- */

static void add_parts(const PipelinePlace *p, const Param *own, const Intervals *share, bool cut, PlaceParts *list)
{
    int param = params_find(&p->whole->params, own->name);
    Interval v = {own->offset, own->offset};
    while (intervals_next(cut ? share : NULL, own->offset + param_held(own), &v)) {
        MEM_PUSH(list->parts, list->n, list->cap,
                 (PlacePart){.param = param,
                             .begin = v.begin - own->offset,
                             .end = v.end - own->offset,
                             .held = v.begin,
                             .moment = p->shard ? intervals_before(share, v.begin) : v.begin});
    }
}

void place_list(const PipelinePlace *p, int rank, bool cut, bool kept, PlaceParts *list)
{
    int number = rank / p->grid.replicas;
    Model part;
    PlacePiece *pieces;
    Intervals share = {0};
    *list = (PlaceParts){0};
    place_part(p, number, &part);
    int n = make_pieces(p, number, &part.params, &pieces);
    make_share(p, rank, &part.params, pieces, n, &share);
    for (int i = 0; i < part.params.count; i++) {
        const Param *own = &part.params.params[i];
        int first = first_stage(p, own);
        if (kept && (cut ? held_stage(p, number, own) != first : first_holder(p, first) != rank)) continue;
        add_parts(p, own, &share, cut, list);
    }
    intervals_free(&share);
    free(pieces);
    model_free(&part);
}

void place_list_free(PlaceParts *list)
{
    free(list->parts);
    *list = (PlaceParts){0};
}

/* The kept parts of all ranks, each turned into an interval. */
static Intervals *all_ranks(const PipelinePlace *p, Interval (*turn)(const PipelinePlace *p, const PlacePart *part))
{
    int ranks = shape(p)->places * p->grid.replicas;
    Intervals *all = mem_array((size_t)ranks, sizeof *all);
    for (int r = 0; r < ranks; r++) {
        PlaceParts list;
        place_list(p, r, true, true, &list);
        for (int i = 0; i < list.n; i++) {
            Interval v = turn(p, &list.parts[i]);
            intervals_add(&all[r], v.begin, v.end);
        }
        place_list_free(&list);
    }
    return all;
}

static Interval norm_part(const PipelinePlace *p, const PlacePart *part)
{
    int64_t first = optim_norm_blocks(&p->whole->params, p->whole->params.params[part->param].offset);
    return (Interval){2 * (first + part->begin / NORM_BLOCK), 2 * (first + norm_blocks(part->end))};
}

Intervals *place_norm_parts(const PipelinePlace *p) { return all_ranks(p, norm_part); }

/* With the gap behind the tensor's last element. */
static Interval slice_part(const PipelinePlace *p, const PlacePart *part)
{
    const ParamTable *t = &p->whole->params;
    const Param *of = &t->params[part->param];
    bool last = part->end == param_held(of);
    return (Interval){of->offset + part->begin, last ? param_end(t, part->param) : of->offset + part->end};
}

Intervals *place_slices(const PipelinePlace *p) { return all_ranks(p, slice_part); }
