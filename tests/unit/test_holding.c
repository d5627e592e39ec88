/* Who has what, over random grids: every element has its holders and one owner; all ranks cut the same pieces. */
#include "testing.h"

#include "holding_draw.h"
#include "optim/optim.h"
#include "train/parts/place.h"

/* ---- who has what ---- */

static Status check_list(const Intervals *list, int64_t size, const char *what)
{
    int64_t sum = 0, at = -1;
    for (int i = 0; i < list->count; sum += list->intervals[i].end - list->intervals[i].begin, i++) {
        Interval v = list->intervals[i];
        EXPECT(v.begin > at && v.begin >= 0 && v.begin < v.end && v.end <= size,
               "%s: interval %d is %lld to %lld behind %lld, of %lld elements", what, i, (Long)v.begin, (Long)v.end,
               (Long)at, (Long)size);
        at = v.end;
    }
    EXPECT(sum == list->size, "%s: %lld elements, and a size of %lld", what, (Long)sum, (Long)list->size);
    return OK;
}

static bool same_list(const Intervals *a, const Intervals *b)
{
    bool same = a->count == b->count && a->size == b->size;
    for (int i = 0; same && i < a->count; i++)
        same = a->intervals[i].begin == b->intervals[i].begin && a->intervals[i].end == b->intervals[i].end;
    return same;
}

/* Counts the elements of a list. */
static void count_in(const Intervals *list, uint8_t *seen)
{
    for (int i = 0; i < list->count; i++)
        for (int64_t e = list->intervals[i].begin; e < list->intervals[i].end; e++) seen[e]++;
}

static Status check_counts(const uint8_t *seen, int64_t size, int least, int most, const char *what)
{
    for (int64_t e = 0; e < size; e++)
        EXPECT(seen[e] >= least && seen[e] <= most, "%s: %d ranks have element %lld", what, seen[e], (Long)e);
    return OK;
}

/* All elements of `part` are in `list`. */
static Status check_within(const Intervals *part, const Intervals *list, const char *what)
{
    for (int i = 0, k = 0; i < part->count; i++) {
        while (k < list->count && list->intervals[k].end < part->intervals[i].end) k++;
        EXPECT(k < list->count && list->intervals[k].begin <= part->intervals[i].begin,
               "%s: elements from %lld on are not in it", what, (Long)part->intervals[i].begin);
    }
    return OK;
}

/* All ranks compute the same lists of all ranks. */
static Status check_lists(const Run *r)
{
    const Holding *first = &r->h[0];
    for (int rank = 0; rank < r->ranks; rank++)
        for (int of = 0; of < r->ranks; of++) {
            const Holding *h = &r->h[rank];
            for (int kind = 0; kind < N_HELD; kind++) {
                TRY(check_list(&h->has[kind][of], h->params[held_space((HeldKind)kind)]->size, "has"));
                EXPECT(same_list(&h->has[kind][of], &first->has[kind][of]), "rank %d: other `has` of rank %d", rank,
                       of);
            }
            for (int space = 0; space < N_SPACES; space++) {
                TRY(check_list(&h->own[space][of], h->params[space]->size, "own"));
                EXPECT(same_list(&h->own[space][of], &first->own[space][of]), "rank %d: other `own` of rank %d", rank,
                       of);
            }
            EXPECT(same_list(&h->sums[of], &first->sums[of]), "rank %d: other `sums` of rank %d", rank, of);
        }
    return OK;
}

/* A rank's weights are its part of the model, in the same places. */
static Status check_weights(const Run *r, int rank)
{
    const Holding *h = &r->h[rank];
    const Intervals *has = &h->has[HELD_WEIGHTS][rank];
    const ParamTable *part = &r->part[rank].params;
    int64_t at = 0;
    EXPECT(has->size == part->size, "rank %d has %lld elements, its part %lld", rank, (Long)has->size,
           (Long)part->size);
    for (int i = 0; i < has->count; i++)
        for (int64_t e = has->intervals[i].begin; e < has->intervals[i].end; e++, at++)
            EXPECT(r->whole_of[rank][at] == e, "rank %d has %lld for element %lld of its part", rank, (Long)e,
                   (Long)at);
    for (int i = 0; i < part->count; i++)
        for (int k = 0; k < 2; k++) {
            int64_t own = k ? end_of(part, i) - 1 : part->params[i].offset, whole = r->whole_of[rank][own];
            int64_t place = holding_place(h, HELD_WEIGHTS, rank, whole);
            EXPECT(place == own && holding_has(h, HELD_WEIGHTS, rank, whole), "rank %d: %s lies at %lld, not at %lld",
                   rank, part->params[i].name, (Long)own, (Long)place);
        }
    return OK;
}

static Status check_grid(const Run *r)
{
    const Grid *g = &r->grid;
    EXPECT(grid_ranks(g) == r->ranks && grid_holders(g) == r->holders, "%d ranks and %d holders", grid_ranks(g),
           grid_holders(g));
    for (int s = 0; s < g->stages; s++) {
        for (int n = 0; n < r->holders; n++)
            EXPECT(grid_holder(g, s, n) == r->group[s][n], "holder %d of stage %d is rank %d, not %d", n, s,
                   r->group[s][n], grid_holder(g, s, n));
        for (int rank = 0; rank < r->ranks; rank++)
            EXPECT(grid_holder_number(g, s, rank) == number_in(r, s, rank), "rank %d is not holder %d of stage %d",
                   rank, grid_holder_number(g, s, rank), s);
    }
    return OK;
}

/* With `shard` each stage's moments are divided among its holders, else they go with the weights. */
static Status check_moments(const Run *r, const Draw *d)
{
    const Holding *h = &r->h[0];
    const ParamTable *t = &d->model.params;
    bool shard = strcmp(r->c.shard, "optimizer") == 0 && r->holders > 1;
    EXPECT(h->shard == shard, "`shard` is %d", h->shard);
    EXPECT(holding_has_all(h, HELD_WEIGHTS) == (r->holders == r->ranks), "whether all ranks have all weights");
    EXPECT(holding_has_all(h, HELD_MOMENTS) == (r->holders == r->ranks && !shard), "whether all have all moments");
    for (int rank = 0; rank < r->ranks; rank++) {
        TRY(check_within(&h->has[HELD_MOMENTS][rank], &h->has[HELD_WEIGHTS][rank], "moments of a rank's weights"));
        EXPECT(shard || same_list(&h->has[HELD_MOMENTS][rank], &h->has[HELD_WEIGHTS][rank]),
               "rank %d has moments of other elements than weights", rank);
        EXPECT(holding_slice(&r->h[rank]) == (shard ? &r->h[rank].slice : NULL), "the slice of rank %d", rank);
    }
    for (int s = 0; shard && s < r->grid.stages; s++) {
        uint8_t *seen = mem_alloc((size_t)t->size);
        Status status = OK;
        for (int n = 0; n < r->holders; n++) count_in(&h->has[HELD_MOMENTS][r->group[s][n]], seen);
        for (int i = 0; i < t->count && status == OK; i++)
            if (stage_holds(&d->model, &r->stages[s], &t->params[i]))
                status = check_counts(seen + t->params[i].offset, end_of(t, i) - t->params[i].offset, 1, 1, "moments");
        free(seen);
        TRY(status);
    }
    return OK;
}

/* Every element has its holders, and one owner, who has it. */
static Status check_holders(const Run *r)
{
    const Holding *h = &r->h[0];
    Status status = OK;
    for (int kind = 0; kind < N_HELD; kind++) {
        int space = held_space((HeldKind)kind);
        int64_t size = h->params[space]->size;
        uint8_t *seen = mem_alloc((size_t)size), *owned = mem_alloc((size_t)size);
        for (int rank = 0; rank < r->ranks && status == OK; rank++) {
            count_in(&h->has[kind][rank], seen);
            count_in(&h->own[space][rank], owned);
            status = check_within(&h->own[space][rank], &h->has[kind][rank], "the own elements of those of a rank");
        }
        if (status == OK) status = check_counts(seen, size, 1, r->ranks, "has");
        if (status == OK) status = check_counts(owned, size, 1, 1, "own");
        MEM_FREE(seen, owned);
    }
    return status;
}

/* Every element is written into a checkpoint once: by its owner, or by rank 0 for ranks that do not see the folder. */
static Status check_writers(const Run *r)
{
    Holding *h = (Holding *)(uintptr_t)&r->h[0];
    int64_t draw = h->params[0]->size / PARAM_ALIGN, others = 0;
    int how = (int)(draw % 3); /* nobody sees it, some, all */
    bool sees[RANKS_MOST];
    Status status = OK;
    for (int rank = 0; rank < r->ranks; rank++) sees[rank] = how == 2 || (how == 1 && (draw >> (rank % 8) & 1));
    holding_set_writers(h, how == 2 ? NULL : sees);
    for (int kind = 0; kind < N_HELD; kind++)
        EXPECT(how < 2 || !holding_brings(h, (HeldKind)kind), "rank 0 brings what it owns");
    for (int space = 0; space < N_SPACES && status == OK; space++) {
        int64_t size = h->params[space]->size;
        uint8_t *written = mem_alloc((size_t)size);
        for (int rank = 0; rank < r->ranks; rank++) {
            const Intervals *writes = &h->writes[space][rank], *own = &h->own[space][rank];
            count_in(writes, written);
            if (rank > 0 && sees[rank]) others += own->size;
            EXPECT(rank == 0 || (sees[rank] ? same_list(writes, own) : writes->size == 0),
                   "rank %d writes other elements than it owns", rank);
        }
        status = check_counts(written, size, 1, 1, "writes");
        free(written);
    }
    EXPECT(holding_writes_all(h, 0) == (others == 0), "whether rank 0 writes all");
    return status;
}

/* A rank's sums are those of the norm blocks that it owns. */
static Status check_sums(const Run *r, const Draw *d)
{
    const ParamTable *t = &d->model.params;
    int64_t block = 0;
    for (int i = 0; i < t->count; i++) {
        const Param *p = &t->params[i];
        for (int64_t at = 0; at < param_held(p); at += NORM_BLOCK, block++) {
            int owners = 0;
            int64_t last = at + NORM_BLOCK < param_held(p) ? at + NORM_BLOCK - 1 : param_held(p) - 1;
            for (int rank = 0; rank < r->ranks; rank++) {
                const Intervals *own = &r->h[0].own[SPACE_MODEL][rank], *sums = &r->h[0].sums[rank];
                Interval elements = {p->offset + at, p->offset + at}, doubles = {2 * block, 2 * block};
                bool has = intervals_next(own, p->offset + last + 1, &elements) && elements.begin == p->offset + at &&
                           elements.end == p->offset + last + 1;
                bool sum = intervals_next(sums, 2 * block + 2, &doubles);
                EXPECT(has == sum && (!sum || doubles.end - doubles.begin == 2),
                       "rank %d %s norm block %lld of %s, and %s its sum", rank, has ? "owns" : "does not own",
                       (Long)(at / NORM_BLOCK), p->name, sum ? "has" : "has not");
                owners += has;
            }
            EXPECT(owners == 1, "norm block %lld of %s has %d owners", (Long)(at / NORM_BLOCK), p->name, owners);
        }
    }
    EXPECT(block == optim_norm_blocks(t, t->size), "%lld norm blocks", (Long)block);
    return OK;
}

/* ---- pieces ---- */

/* Between norm blocks, or at the end of the space. */
static bool between_blocks(const ParamTable *t, int64_t at)
{
    int i = t->count - 1;
    while (i > 0 && t->params[i].offset > at) i--;
    int64_t in = at - t->params[i].offset;
    return at == t->size || (in % NORM_BLOCK == 0 && in < param_held(&t->params[i]));
}

/* The pieces of a rank are its array, each element once; the parts of a piece are the piece. */
static Status check_cover(const Pieces *p, int64_t size, int rank)
{
    uint8_t *seen = mem_alloc((size_t)size), *parts = mem_alloc((size_t)size);
    Status status = OK;
    for (int i = 0; i < p->n && status == OK; i++) {
        const Piece *x = &p->pieces[i];
        if (x->begin >= x->end || x->begin < 0 || x->end > size) status = fail(E_FAIL, "rank %d: piece %d", rank, i);
        count_in(&(Intervals){&(Interval){x->begin, x->end}, 1, 1, 0}, seen);
        for (int q = 0; q < p->holders && status == OK; q++) {
            status = check_list(&x->parts[q], size, "a part");
            if (status == OK && x->parts[q].count)
                status = check_within(&x->parts[q],
                                      &(Intervals){&(Interval){x->begin, x->end}, 1, 1, x->end - x->begin}, "a piece");
            if (status == OK) count_in(&x->parts[q], parts);
        }
    }
    if (status == OK) status = check_counts(seen, size, 1, 1, "the pieces of a rank");
    if (status == OK) status = check_counts(parts, size, 1, 1, "the parts of a rank's pieces");
    MEM_FREE(seen, parts);
    return status;
}

/* A rank's n-th piece of a stage; NULL: it has fewer. */
static const Piece *piece_of(const Pieces *p, int stage, int n)
{
    for (int i = 0; i < p->n; i++)
        if (p->pieces[i].stage == stage && n-- == 0) return &p->pieces[i];
    return NULL;
}

/* `a` of one rank and `b` of another are the same elements; numbers[] has the elements of each. */
static Status check_same(const Piece *a, const int64_t *numbers_a, const Piece *b, const int64_t *numbers_b,
                         int holders)
{
    EXPECT(b && a->end - a->begin == b->end - b->begin && numbers_a[a->begin] == numbers_b[b->begin] &&
               numbers_a[a->end - 1] == numbers_b[b->end - 1],
           "two holders have other pieces of stage %d", a->stage);
    for (int q = 0; q < holders; q++) {
        EXPECT(a->parts[q].count == b->parts[q].count, "two holders have other parts of holder %d", q);
        for (int k = 0; k < a->parts[q].count; k++) {
            Interval x = a->parts[q].intervals[k], y = b->parts[q].intervals[k];
            EXPECT(numbers_a[x.begin] == numbers_b[y.begin] && numbers_a[x.end - 1] == numbers_b[y.end - 1],
                   "two holders have other elements for holder %d", q);
        }
    }
    return OK;
}

/* What one rank takes for the pieces and parts of a stage, all its holders take. */
static Status check_agreement(const Run *r, const Pieces *const *all, int64_t *const *numbers)
{
    for (int s = 0; s < r->grid.stages; s++) {
        int first = r->group[s][0];
        const Piece *a;
        for (int i = 0; (a = piece_of(all[first], s, i)); i++)
            for (int n = 1; n < r->holders; n++) {
                int rank = r->group[s][n];
                TRY(check_same(a, numbers[first], piece_of(all[rank], s, i), numbers[rank], r->holders));
            }
    }
    for (int rank = 0; rank < r->ranks; rank++)
        for (int i = 0; i < all[rank]->n; i++) {
            int s = all[rank]->pieces[i].stage, before = 0;
            EXPECT(number_in(r, s, rank) >= 0, "rank %d has a piece of stage %d, which it does not hold", rank, s);
            for (int k = 0; k < i; k++) before += all[rank]->pieces[k].stage == s;
            EXPECT(piece_of(all[r->group[s][0]], s, before), "rank %d has a piece too many of stage %d", rank, s);
        }
    return OK;
}

/* Whether an element is the second use of the tied word embedding on a rank of that stage. */
static bool second_use(const Draw *d, int stage, int64_t element)
{
    const Param *tied = d->tied;
    return tied && stage > 0 && element >= tied->offset && element < tied->offset + param_held(tied);
}

static Status check_piece(const Run *r, const Draw *d, int rank, const Piece *x)
{
    const ParamTable *t = &d->model.params;
    const int64_t *whole = r->whole_of[rank];
    int64_t bucket = r->c.bucket_size / (int64_t)sizeof(float), extra = NORM_BLOCK + PARAM_ALIGN;
    EXPECT(x->end - x->begin <= (bucket > NORM_BLOCK ? bucket : NORM_BLOCK) + extra, "a piece of %lld elements",
           (Long)(x->end - x->begin));
    EXPECT(between_blocks(t, whole[x->begin]) && whole[x->end - 1] - whole[x->begin] == x->end - 1 - x->begin,
           "a piece begins at %lld of rank %d, within a norm block or with a gap", (Long)x->begin, rank);
    for (int q = 0; q < r->holders; q++) {
        const Intervals *part = &x->parts[q];
        EXPECT(part->count < 2 && part->size <= (x->end - x->begin) / r->holders + extra,
               "holder %d has %lld of %lld elements in %d parts", q, (Long)part->size, (Long)(x->end - x->begin),
               part->count);
        if (part->count)
            EXPECT(between_blocks(t, whole[part->intervals[0].begin]), "the part of holder %d begins in a norm block",
                   q);
    }
    for (int64_t e = x->begin; e < x->end; e++) {
        int i = 0;
        while (whole[e] >= end_of(t, i)) i++;
        EXPECT(stage_holds(&d->model, &r->stages[x->stage], &t->params[i]), "stage %d has no %s", x->stage,
               t->params[i].name);
        EXPECT(!second_use(d, x->stage, whole[e]) || number_in(r, 0, rank) < 0,
               "rank %d sums %s with both stages that use it", rank, t->params[i].name);
        e = end_of(t, i) - whole[e] + e - 1;
    }
    return OK;
}

/* The own elements are those of the own parts, but for second uses; moments with `shard` are of all own parts. */
static Status check_own(const Run *r, const Draw *d, int rank)
{
    const Holding *h = &r->h[rank];
    const Intervals *moments = &h->has[HELD_MOMENTS][rank];
    int64_t own = 0, parts = 0, at = 0;
    for (int i = 0; i < h->mine.n; i++) {
        const Piece *x = &h->mine.pieces[i];
        const Intervals *part = &x->parts[number_in(r, x->stage, rank)];
        for (int k = 0; k < part->count; k++)
            for (int64_t e = part->intervals[k].begin; e < part->intervals[k].end; e++, parts++) {
                int64_t whole = r->whole_of[rank][e];
                bool second = second_use(d, x->stage, whole);
                own += !second;
                EXPECT(second || holding_has(h, HELD_WEIGHTS, rank, whole), "rank %d lacks its own part", rank);
            }
    }
    EXPECT(own == h->own[SPACE_MODEL][rank].size, "rank %d owns %lld elements, and its parts have %lld", rank,
           (Long)h->own[SPACE_MODEL][rank].size, (Long)own);
    if (!h->shard) return OK;
    EXPECT(parts == moments->size && parts == h->slice.size,
           "rank %d has %lld moments, a slice of %lld and parts of %lld", rank, (Long)moments->size,
           (Long)h->slice.size, (Long)parts);
    TRY(check_list(&h->slice, r->part[rank].params.size, "slice"));
    for (int i = 0, k = 0; i < h->slice.count; i++)
        for (int64_t e = h->slice.intervals[i].begin; e < h->slice.intervals[i].end; e++, at++) {
            while (moments->intervals[k].end <= r->whole_of[rank][e]) k++;
            EXPECT(moments->intervals[k].begin <= r->whole_of[rank][e], "rank %d: element %lld of its slice", rank,
                   (Long)e);
        }
    return OK;
}

static Status check_pieces(const Run *r, const Draw *d)
{
    const Pieces *all[RANKS_MOST];
    for (int rank = 0; rank < r->ranks; rank++) {
        all[rank] = &r->h[rank].mine;
        EXPECT(all[rank]->holders == r->holders, "pieces of %d holders", all[rank]->holders);
        TRY(check_cover(all[rank], r->part[rank].params.size, rank));
    }
    TRY(check_agreement(r, all, r->whole_of));
    for (int rank = 0; rank < r->ranks; rank++) {
        for (int i = 0; i < all[rank]->n; i++) TRY(check_piece(r, d, rank, &all[rank]->pieces[i]));
        TRY(check_own(r, d, rank));
    }
    return OK;
}

/* ---- K-FAC ---- */

/* Who inverts a linear's factors gets their sums. */
static Status check_inverter(const Run *r, int rank, const KfacLinear *l, int stage)
{
    const Kfac *k = &r->kfac[rank];
    int number = number_in(r, stage, rank);
    const int64_t begins[] = {l->flag, l->a, l->b}, sizes[] = {1, l->k * l->k, l->n * l->n};
    for (int m = 0; m < 3; m++)
        for (int64_t e = begins[m]; e<begins[m] + sizes[m]; e += sizes[m]> 1 ? sizes[m] - 1 : 1) {
            bool own = false;
            for (int i = 0; i < k->pieces.n; i++) {
                Interval v = {e, e};
                own = own || intervals_next(&k->pieces.pieces[i].parts[number], e + 1, &v);
            }
            EXPECT(own == l->own, "rank %d %s %s", rank, l->own ? "gets no sum of" : "does not invert", l->name);
        }
    return OK;
}

static Status check_kfac(const Run *r, const Draw *d)
{
    const Pieces *all[RANKS_MOST];
    const ParamTable *saved = &d->whole.saved;
    for (int rank = 0; rank < r->ranks; rank++) {
        const Kfac *k = &r->kfac[rank];
        all[rank] = &k->pieces;
        EXPECT((r->holders > 1) == (k->pieces.n > 0), "%d pieces for %d holders", k->pieces.n, r->holders);
        if (r->holders > 1) TRY(check_cover(&k->pieces, k->table.size, rank));
        for (int l = 0; l < k->plan.n; l++) {
            int s = 0;
            while (k->plan.linears[l].layer >= r->stages[s].first + r->stages[s].layers) s++;
            if (r->holders > 1) TRY(check_inverter(r, rank, &k->plan.linears[l], s));
        }
    }
    TRY(check_agreement(r, all, r->set_of));
    for (int i = 0; i < saved->count; i++)
        for (int rank = 0; rank < r->ranks; rank++) {
            int s = 0;
            while (kfac_layer(&d->whole, i) >= r->stages[s].first + r->stages[s].layers) s++;
            EXPECT(holding_has(&r->h[0], HELD_SETS, rank, saved->params[i].offset) == (number_in(r, s, rank) >= 0),
                   "rank %d and %s", rank, saved->params[i].name);
        }
    return OK;
}

/* ---- room ---- */

/* What a place of a pipeline copies from a device and back has room there: pieces of its gradients and of its sets. */
static Status check_room(const Run *r, const Draw *d, int rank)
{
    static int slots[1][N_SLOTS];
    RankPlace p = {.whole = &d->model, .grid = r->grid, .holding = r->h[rank], .kfac = r->kfac[rank], .slots = slots};
    place_find_room(&p, true);
    PiecesRoom room = pieces_room(&p.holding.mine);
    pieces_room_add(&room, pieces_room(&p.kfac.pieces));
    EXPECT(p.room.largest >= room.largest, "rank %d copies %lld elements, and a piece has %lld", rank,
           (Long)p.room.largest, (Long)room.largest);
    return OK;
}

/* ---- the walk ---- */

static Status check_run(const Run *r, const Draw *d)
{
    TRY(check_grid(r));
    TRY(check_lists(r));
    for (int rank = 0; rank < r->ranks; rank++) TRY(check_weights(r, rank));
    TRY(check_moments(r, d));
    TRY(check_holders(r));
    TRY(check_writers(r));
    TRY(check_sums(r, d));
    TRY(check_pieces(r, d));
    for (int rank = 0; r->pipelined && rank < r->ranks; rank++) TRY(check_room(r, d, rank));
    return d->kfac.interval ? check_kfac(r, d) : OK;
}

static Status check_pair(Draw *d)
{
    for (int i = 0; i < 2; i++) TRY(check_run(&d->run[i], d));
    return OK;
}

static void test_random_grids(void **state)
{
    (void)state;
    walk_grids(check_pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_grids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
