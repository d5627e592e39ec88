#include "train/parts/place.h"

#include "exec/pipeline.h"
#include "optim/optim.h"

static const Pipeline *shape(const RankPlace *p) { return &p->grid.shape; }

int place_chunks(const RankPlace *p) { return shape(p)->chunks; }
const Stage *place_stage(const RankPlace *p, int chunk)
{
    return &p->stages[pipeline_stage(shape(p), p->number, chunk)];
}

int place_last_chunk(const RankPlace *p, int direction)
{
    for (int k = 0; k < place_chunks(p); k++)
        if (stage_is_last(p->whole, place_stage(p, k)) && pipeline_direction(shape(p), k) == direction) return k;
    return -1;
}

/* ---- what it holds ---- */

void place_part(const Model *whole, const Pipeline *s, int place, const Stage *stages, Model *part)
{
    Stage *own = mem_array((size_t)s->chunks, sizeof *own);
    for (int k = 0; k < s->chunks; k++) own[k] = stages[pipeline_stage(s, place, k)];
    model_part(whole, own, s->chunks, part);
    free(own);
}

/* Models of what the place holds, and of its chunks. */
static void take_models(RankPlace *p)
{
    int chunks = place_chunks(p);
    place_part(p->whole, shape(p), p->number, p->stages, &p->held);
    p->chunks = mem_array((size_t)chunks, sizeof *p->chunks);
    for (int k = 0; k < chunks; k++) {
        p->chunks[k] = p->held;
        p->chunks[k].stages = &p->stages[pipeline_stage(shape(p), p->number, k)];
        p->chunks[k].n_stages = 1;
    }
}

void place_take(RankPlace *p, const Config *c, const KfacOptions *kfac, const bool *sees, int rank, bool works)
{
    const Stage *stages = works ? p->stages : NULL;
    Holding *h = &p->holding;
    p->number = rank / p->grid.replicas;
    p->pipeline = rank % p->grid.replicas;
    take_models(p);
    p->whole_kfac = works ? mem_alloc(sizeof *p->whole_kfac) : &p->kfac;
    kfac_init_whole(p->whole_kfac, kfac, p->whole, grid_ranks(&p->grid), rank);
    if (works) kfac_init(&p->kfac, kfac, &p->held, &p->grid, stages, rank);
    holding_init(h, c, p->whole, &p->grid, stages, rank);
    if (kfac_sets(p->whole_kfac)) kfac_hold(p->whole_kfac, stages, h);
    holding_set_writers(h, sees);
    CHECK(h->has[HELD_WEIGHTS][rank].size == p->held.params.size, "%lld elements held, %lld in the table",
          (long long)h->has[HELD_WEIGHTS][rank].size, (long long)p->held.params.size);
}

RankPlace *place_whole(const Config *c, const KfacOptions *kfac, const Model *whole, int ranks, int rank,
                       bool by_devices)
{
    RankPlace *p = mem_alloc(sizeof *p);
    *p = (RankPlace){.whole = whole, .grid = grid_of_ranks(ranks), .by_devices = by_devices};
    p->stages = mem_alloc(sizeof *p->stages);
    *p->stages = (Stage){0, whole->config.layers};
    place_take(p, c, kfac, NULL, rank, false);
    place_find_room(p, false);
    return p;
}

/* ---- options ---- */

bool place_wanted(const Config *c) { return strcmp(c->pipeline, "none") != 0; }

Status place_check(const Config *c)
{
    static const int of_pipelines[] = {OPTION_stages, OPTION_stage_chunks, OPTION_stage_layers};
    for (size_t i = 0; i < sizeof of_pipelines / sizeof *of_pipelines && !place_wanted(c); i++)
        if (!config_is_default(c, of_pipelines[i]))
            return fail(E_USAGE, "--%s needs --pipeline: give a schedule, as --pipeline 1f1b",
                        config_flag(of_pipelines[i]));
    return OK;
}

PipelineKind place_kind(const Config *c)
{
    for (int k = 0; k < N_PIPELINES; k++)
        if (strcmp(c->pipeline, pipeline_name((PipelineKind)k)) == 0) return (PipelineKind)k;
    CHECK(false, "--pipeline %s", c->pipeline);
    return N_PIPELINES;
}

void place_free(RankPlace *p)
{
    if (!p) return;
    for (int n = 0; p->schedules && n <= shape(p)->micros; n++) schedule_free(&p->schedules[n]);
    MEM_FREE(p->schedules, p->stages, p->chunks, p->slots);
    holding_free(&p->holding);
    place_fill_free(p, &p->fill);
    if (p->whole_kfac && p->whole_kfac != &p->kfac) {
        kfac_free(p->whole_kfac);
        free(p->whole_kfac);
    }
    kfac_free(&p->kfac);
    model_free(&p->held);
    free(p);
}

/* ---- its plans ---- */

size_t place_boundary(const RankPlace *p, const Plan *plan)
{
    return (size_t)plan->capacity.count[ROWS_TOKENS] * (size_t)p->whole->config.hidden * dtype_size(plan->compute);
}

Pipeline place_evaluation(const RankPlace *p)
{
    Pipeline one = *shape(p);
    one.micros = 1;
    if (one.kind == PIPELINE_CHIMERA) one = (Pipeline){PIPELINE_GPIPE, one.places, 1, 1};
    return one;
}

size_t place_staging(const RankPlace *p, const Plan *train, const Plan *eval, bool device)
{
    const Pipeline evaluation = place_evaluation(p);
    size_t bytes = 0;
    if (train)
        bytes += (size_t)exec_pipeline_staging(shape(p), p->number, p->by_devices, device) * place_boundary(p, train);
    if (eval)
        bytes += (size_t)exec_pipeline_staging(&evaluation, p->number, p->by_devices, device) * place_boundary(p, eval);
    return bytes;
}

static size_t norm_table_bytes(const RankPlace *p)
{
    return (size_t)optim_norm_blocks(&p->whole->params, p->whole->params.size) * sizeof(double);
}

Interval place_tied(const RankPlace *p)
{
    const Param *tied = model_tied(p->whole);
    int i = tied ? params_find(&p->held.params, tied->name) : -1;
    if (i < 0 || (p->grid.stages == 1 && !p->both_uses)) return (Interval){0};
    return (Interval){p->held.params.params[i].offset, p->held.params.params[i].offset + param_held(tied)};
}

/* One rank alone, on a host, exchanges nothing. The other use's gradient of a tied word embedding passes in pieces,
   with a device beside a copy of the own one. */
static PiecesRoom works_room(const RankPlace *p, bool device)
{
    const Interval tied = place_tied(p);
    int64_t passes = tied.end - tied.begin < p->holding.mine.most ? tied.end - tied.begin : p->holding.mine.most;
    size_t tie = (size_t)passes * sizeof(float), norms = norm_table_bytes(p);
    PiecesRoom room = pieces_room(&p->holding.mine);
    if (grid_ranks(&p->grid) == 1 && !device) return (PiecesRoom){0};
    if (!p->by_devices || !p->holding.mine.tree) room.received = 0;
    int64_t received = room.received;
    pieces_room_add(&room, pieces_room(&p->kfac.pieces));
    pieces_room_add(&room, (PiecesRoom){.scratch = tie * (device ? 2 : 1), .largest = passes});
    pieces_room_add(&room, (PiecesRoom){.scratch = norms, .largest = (int64_t)(norms / sizeof(float))});
    room.received = received;
    room.branches = 1;
    return room;
}

void place_find_room(RankPlace *p, bool device)
{
    if (place_has_works(p))
        p->room = works_room(p, device);
    else if (grid_ranks(&p->grid) > 1)
        p->room = exchanges_room(&p->kfac, &p->holding, p->by_devices);
}
