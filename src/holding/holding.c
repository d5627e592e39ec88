#include "holding/holding.h"

#include "base/norm_block.h"
#include "comm/mesh/comm.h"
#include "optim/optim.h"

#define LEAST_PIECES 8         /* of a model that is small for --bucket-size: one piece would come at the end */
#define LEAST_PIECE  (1 << 18) /* elements: LEAST_PIECES makes no smaller ones */

typedef struct {
    Holding *h;
    const Model *model;
    const Stage *stages; /* NULL: one */
    const Param *tied;   /* NULL: no tensor has two uses */
    Pieces all;
} Maker;

static const ParamTable *table(const Maker *m) { return &m->model->params; }

static int64_t param_end(const ParamTable *t, int i) { return i + 1 < t->count ? t->params[i + 1].offset : t->size; }

static bool stage_has(const Maker *m, int stage, int param)
{
    return !m->stages || stage_holds(m->model, &m->stages[stage], &table(m)->params[param]);
}

/* ---- pieces ---- */

static int64_t piece_size(const Config *c, const ParamTable *t)
{
    int64_t most = c->bucket_size / (int64_t)sizeof(float), some = t->size / LEAST_PIECES;
    if (some < LEAST_PIECE) some = LEAST_PIECE;
    if (most > some) most = some;
    return most < NORM_BLOCK ? NORM_BLOCK : most;
}

/* The last stage's use of a tied tensor, which the first stage has too. */
static bool is_second_use(const Maker *m, int stage, int64_t at)
{
    return m->tied && stage > 0 && at >= m->tied->offset && at < m->tied->offset + param_held(m->tied);
}

/* Where the same ranks have both uses, they sum the tensor once. */
static bool is_summed(const Maker *m, int stage, int param)
{
    const Grid *g = &m->h->grid;
    if (!stage_has(m, stage, param)) return false;
    return !is_second_use(m, stage, table(m)->params[param].offset) ||
           grid_holder_number(g, 0, grid_holder(g, stage, 0)) < 0;
}

/* Whether a piece ends at a tensor: where the embeddings begin, whose gradients all come last, behind one that the
   stage does not sum, and on both sides of one with two uses. */
static bool begins_piece(const Maker *m, int stage, int i)
{
    const Param *p = &table(m)->params[i];
    if (i == 0 || (p->layer < 0 && p[-1].layer >= 0)) return true;
    return !is_summed(m, stage, i - 1) || p == m->tied || &p[-1] == m->tied;
}

/* A piece also ends where the next tensor would make it too large. A larger tensor is cut into pieces of as many norm
   blocks. */
static void cut_stage(Maker *m, int stage)
{
    const ParamTable *t = table(m);
    int64_t from = 0, to = 0;
    for (int i = 0; i < t->count; i++) {
        int64_t begin = t->params[i].offset, end = param_end(t, i);
        if (!is_summed(m, stage, i)) continue;
        if (end - from > m->all.most || begins_piece(m, stage, i)) {
            pieces_add_even(&m->all, stage, from, to, t);
            from = begin;
            int64_t pieces = (end - begin + m->all.most - 1) / m->all.most;
            for (int64_t p = 1; p < pieces; p++) {
                int64_t cut = begin + (end - begin) * p / pieces / NORM_BLOCK * NORM_BLOCK;
                pieces_add_even(&m->all, stage, from, cut, t);
                from = cut;
            }
        }
        to = end;
    }
    pieces_add_even(&m->all, stage, from, to, t);
}

/* ---- what ranks have ---- */

static void find_weights(const Maker *m, int rank, Intervals *has)
{
    const ParamTable *t = table(m);
    const Grid *g = &m->h->grid;
    for (int i = 0; i < t->count; i++)
        for (int stage = 0; stage < g->stages; stage++) {
            if (grid_holder_number(g, stage, rank) < 0 || !stage_has(m, stage, i)) continue;
            intervals_add(has, t->params[i].offset, param_end(t, i));
            break;
        }
}

static void add_all(Intervals *list, const Intervals *more)
{
    for (int i = 0; i < more->count; i++) intervals_add(list, more->intervals[i].begin, more->intervals[i].end);
}

static int by_begin(const void *a, const void *b)
{
    const Piece *x = *(const Piece *const *)a, *y = *(const Piece *const *)b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Cuts lie between norm blocks, or where tensors begin. */
static void find_sums(const ParamTable *t, const Intervals *own, Intervals *sums)
{
    int64_t before = 0; /* blocks of the tensors before `i` */
    for (int i = 0, k = 0; i < t->count && k < own->count; i++) {
        const Param *p = &t->params[i];
        int64_t end = p->offset + param_held(p);
        for (; k < own->count && own->intervals[k].begin < end; k++) {
            Interval v = own->intervals[k];
            int64_t first = v.begin > p->offset ? v.begin - p->offset : 0;
            intervals_add(sums, 2 * (before + first / NORM_BLOCK),
                          2 * (before + norm_blocks((v.end < end ? v.end : end) - p->offset)));
            if (v.end > end) break;
        }
        before += norm_blocks(param_held(p));
    }
}

static void find_parts(Maker *m)
{
    Holding *h = m->h;
    const Piece **order = mem_array((size_t)m->all.n, sizeof *order);
    for (int i = 0; i < m->all.n; i++) order[i] = &m->all.pieces[i];
    qsort(order, (size_t)m->all.n, sizeof *order, by_begin);
    for (int i = 0; i < m->all.n; i++)
        for (int q = 0; q < m->all.holders; q++) {
            int rank = grid_holder(&h->grid, order[i]->stage, q);
            if (h->shard) add_all(&h->has[HELD_MOMENTS][rank], &order[i]->parts[q]);
            if (!is_second_use(m, order[i]->stage, order[i]->begin))
                add_all(&h->own[SPACE_MODEL][rank], &order[i]->parts[q]);
        }
    free(order);
    for (int r = 0; r < holding_ranks(h); r++) {
        const Intervals *own = &h->own[SPACE_MODEL][r];
        if (!h->shard) add_all(&h->has[HELD_MOMENTS][r], &h->has[HELD_WEIGHTS][r]);
        find_sums(table(m), own, &h->sums[r]);
    }
}

/* ---- as this rank has it ---- */

static void move_interval(const Holding *h, Interval *v)
{
    int64_t n = v->end - v->begin;
    v->begin = holding_place(h, HELD_WEIGHTS, h->rank, v->begin);
    v->end = v->begin + n;
}

static void take_mine(Maker *m)
{
    Holding *h = m->h;
    Pieces mine = m->all, others = {.pieces = mem_array((size_t)mine.n, sizeof(Piece)), .holders = mine.holders};
    mine.n = 0;
    for (int i = 0; i < m->all.n; i++) {
        Piece p = m->all.pieces[i];
        if (grid_holder_number(&h->grid, p.stage, h->rank) < 0) {
            others.pieces[others.n++] = p;
            continue;
        }
        Interval whole = {p.begin, p.end};
        move_interval(h, &whole);
        p.begin = whole.begin;
        p.end = whole.end;
        for (int q = 0; q < mine.holders; q++)
            for (int k = 0; k < p.parts[q].count; k++) move_interval(h, &p.parts[q].intervals[k]);
        mine.pieces[mine.n++] = p;
    }
    pieces_free(&others);
    h->mine = mine;
    for (int i = 0; h->shard && i < h->has[HELD_MOMENTS][h->rank].count; i++) {
        Interval v = h->has[HELD_MOMENTS][h->rank].intervals[i];
        move_interval(h, &v);
        intervals_add(&h->slice, v.begin, v.end);
    }
}

/* ---- all of it ---- */

void holding_init(Holding *h, const Config *c, const Model *model, const Grid *grid, const Stage *stages, int rank)
{
    static const ParamTable none;
    size_t ranks = (size_t)grid_ranks(grid);
    int holders = grid_holders(grid);
    *h = (Holding){.grid = *grid, .params = {&model->params, &none}, .rank = rank};
    h->shard = strcmp(c->shard, "optimizer") == 0 && holders > 1;
    for (int kind = 0; kind < N_HELD; kind++) h->has[kind] = mem_array(ranks, sizeof *h->has[kind]);
    for (int space = 0; space < N_SPACES; space++) h->own[space] = mem_array(ranks, sizeof *h->own[space]);
    h->sums = mem_array(ranks, sizeof *h->sums);
    Maker m = {.h = h,
               .model = model,
               .stages = stages,
               .tied = stages ? model_tied(model) : NULL,
               .all = {.holders = holders,
                       .most = piece_size(c, &model->params),
                       .wire = strcmp(c->wire, "bf16") == 0 ? BF16 : F32,
                       .tree = c->virtual_ranks % holders == 0 ? c->virtual_ranks : 0,
                       .owners = h->shard}};
    for (int r = 0; r < (int)ranks; r++) find_weights(&m, r, &h->has[HELD_WEIGHTS][r]);
    for (int stage = 0; stage < grid->stages; stage++) cut_stage(&m, stage);
    find_parts(&m);
    take_mine(&m);
}

/* Tensor by tensor, each to the holder with the least so far. */
void holding_add_sets(Holding *h, const ParamTable *saved, const int *stage)
{
    int64_t *load = mem_array((size_t)holding_ranks(h), sizeof *load);
    h->params[SPACE_SETS] = saved;
    for (int i = 0; i < saved->count; i++) {
        int64_t begin = saved->params[i].offset, end = param_end(saved, i);
        int least = grid_holder(&h->grid, stage[i], 0);
        for (int q = 0; q < grid_holders(&h->grid); q++) {
            int r = grid_holder(&h->grid, stage[i], q);
            intervals_add(&h->has[HELD_SETS][r], begin, end);
            if (load[r] < load[least]) least = r;
        }
        load[least] += end - begin;
        intervals_add(&h->own[SPACE_SETS][least], begin, end);
    }
    free(load);
}

Intervals *holding_shares(const Holding *h, int space, const bool *sees)
{
    int ranks = holding_ranks(h);
    Intervals *shares = mem_array((size_t)ranks, sizeof *shares);
    bool *first = mem_array((size_t)ranks, sizeof *first);
    for (int r = 0; r < ranks; r++) {
        first[r] = r == 0 || (sees && !sees[r]);
        if (!first[r]) add_all(&shares[r], &h->own[space][r]);
    }
    shares[0] = intervals_joined(h->own[space], first, ranks);
    free(first);
    return shares;
}

void holding_set_writers(Holding *h, const bool *sees)
{
    for (int space = 0; space < N_SPACES; space++) {
        intervals_free_all(h->writes[space], holding_ranks(h));
        h->writes[space] = holding_shares(h, space, sees);
    }
}

void holding_free(Holding *h)
{
    int ranks = holding_ranks(h);
    for (int kind = 0; kind < N_HELD; kind++) intervals_free_all(h->has[kind], ranks);
    for (int space = 0; space < N_SPACES; space++) {
        intervals_free_all(h->own[space], ranks);
        intervals_free_all(h->writes[space], ranks);
    }
    intervals_free_all(h->sums, ranks);
    pieces_free(&h->mine);
    intervals_free(&h->slice);
    *h = (Holding){0};
}

PiecesRoom holding_room(const Holding *h)
{
    PiecesRoom room = pieces_room(&h->mine);
    const ParamTable *t = h->params[SPACE_MODEL];
    if (h->shard)
        pieces_room_add(&room, (PiecesRoom){.scratch = comm_reduce_bytes(h->sums, holding_ranks(h), F32, 0),
                                            .largest = 2 * optim_norm_blocks(t, t->size)});
    return room;
}

HeldPart holding_part(const Holding *h, int rank)
{
    return (HeldPart){{h->params[0], h->params[1]}, {&h->own[0][rank], &h->own[1][rank]}};
}

HeldPart holding_written(const Holding *h, int rank)
{
    return (HeldPart){{h->params[0], h->params[1]}, {&h->writes[0][rank], &h->writes[1][rank]}};
}

size_t holding_written_bytes(const Holding *h, int rank)
{
    return (size_t)(3 * h->writes[SPACE_MODEL][rank].size + h->writes[SPACE_SETS][rank].size) * sizeof(float);
}

bool holding_writes_all(const Holding *h, int rank)
{
    return h->writes[SPACE_MODEL][rank].size == h->params[SPACE_MODEL]->size &&
           h->writes[SPACE_SETS][rank].size == h->params[SPACE_SETS]->size;
}

bool holding_brings(const Holding *h, HeldKind kind)
{
    const Intervals *writes = &h->writes[held_space(kind)][0];
    for (int i = 0; i < writes->count; i++) {
        Interval all = writes->intervals[i], here = {all.begin, all.begin};
        if (!intervals_next(&h->has[kind][0], all.end, &here) || here.begin != all.begin || here.end != all.end)
            return true;
    }
    return false;
}

int64_t holding_place(const Holding *h, HeldKind kind, int rank, int64_t element)
{
    return intervals_before(&h->has[kind][rank], element);
}

bool holding_has(const Holding *h, HeldKind kind, int rank, int64_t element)
{
    Interval v = {element, element};
    return intervals_next(&h->has[kind][rank], element + 1, &v);
}

bool holding_has_all(const Holding *h, HeldKind kind)
{
    bool all = true;
    for (int r = 0; r < holding_ranks(h); r++) all &= h->has[kind][r].size == h->params[held_space(kind)]->size;
    return all;
}
