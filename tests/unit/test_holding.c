/* Who has what, over random grids: every element has its holders; a sum, then a share, is a plain sum to the last bit;
   collect, then spread, is the identity for any two grids of a model. CAIRN_TEST_ONLY=N walks pair N of grids alone. */
#include "holding_draw.h"

#include "base/sum_tree.h"
#include "holding/exchange.h"
#include "holding/move.h"
#include "near_device.h"
#include "optim/optim.h"
#include "testing.h"

#define SEED UINT64_C(0x5eed26)

#define EXPECT(cond, ...)                                                                                              \
    do {                                                                                                               \
        if (!(cond)) return fail(E_FAIL, __VA_ARGS__);                                                                 \
    } while (0)

typedef long long Long;

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
                EXPECT(same_list(&h->has[kind][of], &first->has[kind][of]), "rank %d: other `has` of rank %d", rank, of);
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
    EXPECT(has->size == part->size, "rank %d has %lld elements, its part %lld", rank, (Long)has->size, (Long)part->size);
    for (int i = 0; i < has->count; i++)
        for (int64_t e = has->intervals[i].begin; e < has->intervals[i].end; e++, at++)
            EXPECT(r->whole_of[rank][at] == e, "rank %d has %lld for element %lld of its part", rank, (Long)e, (Long)at);
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
static Status check_same(const Piece *a, const int64_t *numbers_a, const Piece *b, const int64_t *numbers_b, int holders)
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
    const Param *tied = model_tied(&d->model);
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
            EXPECT(between_blocks(t, whole[part->intervals[0].begin]), "the part of holder %d begins in a norm block", q);
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
    EXPECT(parts == moments->size && parts == h->slice.size, "rank %d has %lld moments, a slice of %lld and parts of %lld",
           rank, (Long)moments->size, (Long)h->slice.size, (Long)parts);
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
        for (int64_t e = begins[m]; e < begins[m] + sizes[m]; e += sizes[m] > 1 ? sizes[m] - 1 : 1) {
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

/* ---- sums and shares ---- */

/* A term: of any sign, with exponents that make the order of additions count; sometimes -0. */
static float value(uint64_t seed, int term, int64_t element)
{
    uint64_t h = (seed + (uint64_t)term) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)element * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 31) * UINT64_C(0x94d049bb133111eb);
    h ^= h >> 29;
    if ((h >> 8 & 63) == 0) return -0.0f;
    return f32_from_bits(((uint32_t)(h >> 32) & 0x807fffffu) | (uint32_t)(120 + (h & 15)) << 23);
}

/* The sum of neighbours, then of neighbouring sums; `v` is used up. */
static float tree_sum(float *v, int n)
{
    for (; n > 1; n = (n + 1) / 2) {
        for (int i = 0; i < n / 2; i++) v[i] = v[2 * i] + v[2 * i + 1];
        if (n % 2) v[n / 2] = v[n - 1];
    }
    return v[0];
}

/* Gradients, or a set of K-FAC's. */
typedef struct {
    const Run *run;
    const Pieces *pieces[RANKS_MOST];
    int64_t *const *numbers; // (ranks)
    int64_t sizes[RANKS_MOST];
    uint64_t seed;
    PiecesRoom room[RANKS_MOST];
    float *expected[LAYERS_MOST]; // (stages, size)
    enum { HOST, HOST_OF_DEVICE, DEVICE, N_WAYS } way;
} Sums;

static int terms_each(const Pieces *p) { return p->tree ? (int)(p->tree / p->holders) : 1; }

static float rounded(const Pieces *p, float x) { return p->wire == BF16 ? bf16_to_f32(bf16_from_f32(x)) : x; }

static float expected_sum(const Sums *s, int stage, int64_t element)
{
    const int *group = s->run->group[stage];
    const Pieces *p = s->pieces[group[0]];
    float v[TERMS_MOST] = {0};
    int each = terms_each(p), n = 0;
    for (int q = 0; q < p->holders; q++)
        for (int k = 0; k < each; k++) v[n++] = rounded(p, value(s->seed, group[q] * TERMS_MOST + k, element));
    if (p->tree) return tree_sum(v, n);
    for (int i = 1; i < n; i++) v[0] += v[i];
    return rounded(p, v[0]);
}

static void expect_sums(Sums *s, int64_t size)
{
    for (int stage = 0; stage < s->run->grid.stages; stage++) {
        int first = s->run->group[stage][0];
        s->expected[stage] = mem_array((size_t)size, sizeof(float));
        for (int i = 0; i < s->pieces[first]->n; i++) {
            const Piece *x = &s->pieces[first]->pieces[i];
            for (int64_t e = x->begin; x->stage == stage && e < x->end; e++) {
                int64_t number = s->numbers[first][e];
                s->expected[stage][number] = expected_sum(s, stage, number);
            }
        }
    }
}

/* The branches that a rank's virtual ranks make of an element: the last one in x, the others behind. */
static void put_terms(const Sums *s, const SumSpace *to, int rank, int number, int64_t element, int64_t at)
{
    const Pieces *p = s->pieces[rank];
    float v[TERMS_MOST];
    int each = terms_each(p), branch = 0;
    for (int k = 0; k < each; k++) v[k] = value(s->seed, rank * TERMS_MOST + k, element);
    if (!p->tree) {
        to->x[at] = v[0];
        return;
    }
    int64_t begin = number * each, end = begin + each;
    for (int64_t from = begin, next; from < end; from = next, branch++) {
        next = sum_tree_branch(p->tree, from, end);
        float sum = tree_sum(v + (from - begin), (int)(next - from));
        if (next < end)
            to->waiting[branch * to->size + at] = sum;
        else
            to->x[at] = sum;
    }
}

static Status check_part(const Sums *s, int rank, const Piece *x, Interval v, const float *got, const char *when)
{
    for (int64_t e = v.begin; e < v.end; e++) {
        float expected = s->expected[x->stage][s->numbers[rank][e]];
        EXPECT(memcmp(&expected, &got[e], sizeof expected) == 0,
               "rank %d: element %lld of stage %d is %a %s, expected %a", rank, (Long)s->numbers[rank][e], x->stage,
               (double)got[e], when, (double)expected);
    }
    return OK;
}

typedef struct {
    Backend backend;
    Device device;
    Comm comm[LAYERS_MOST], direct[LAYERS_MOST]; // (stages)
    char *scratch;
    float *copy, *received;
} Reach;

enum { CANARIES = 64 };

static void *no_stream(Device *d)
{
    (void)d;
    return NULL;
}

static void reach_open(Reach *reach, const Sums *s, int rank)
{
    const PiecesRoom *room = &s->room[rank];
    *reach = (Reach){.device = near_device()};
    reach->device.stream = no_stream;
    backend_ref_table(&reach->backend);
    if (s->way != HOST) reach->backend.device = &reach->device;
    for (int stage = 0; stage < s->run->grid.stages; stage++)
        reach->comm[stage] = reach->direct[stage] =
            fiber_comm(s->run->group[stage], s->run->holders, number_in(s->run, stage, rank));
    reach->scratch = mem_alloc(room->scratch + CANARIES);
    memset(reach->scratch + room->scratch, 0x5a, CANARIES);
    reach->copy = mem_array((size_t)(room->branches * room->largest), sizeof(float));
    reach->received = mem_array((size_t)room->received, sizeof(float));
}

static Status reach_close(Reach *reach, const PiecesRoom *room)
{
    bool kept = true;
    for (int i = 0; i < CANARIES; i++) kept = kept && reach->scratch[room->scratch + (size_t)i] == 0x5a;
    MEM_FREE(reach->scratch, reach->copy, reach->received);
    EXPECT(kept, "%zu bytes of scratch are too few", room->scratch);
    return OK;
}

static Holders holders_of(Reach *reach, const Sums *s, int rank, int stage)
{
    return (Holders){.backend = &reach->backend,
                     .comm = &reach->comm[stage],
                     .scratch = reach->scratch,
                     .copy = reach->copy,
                     .stride = s->room[rank].largest,
                     .device = s->way == DEVICE ? (CommDevice *)(void *)&reach->direct[stage] : NULL,
                     .received = reach->received};
}

/* What was not summed here is made unusable. */
static Status check_summed(const Sums *s, int rank, float *x)
{
    const Pieces *p = s->pieces[rank];
    for (int i = 0; i < p->n; i++) {
        const Piece *piece = &p->pieces[i];
        const Intervals *own = &piece->parts[number_in(s->run, piece->stage, rank)];
        int64_t at = piece->begin;
        if (!p->owners) TRY(check_part(s, rank, piece, (Interval){piece->begin, piece->end}, x, "after the sum"));
        for (int k = 0; p->owners && k <= own->count; k++) {
            Interval v = k < own->count ? own->intervals[k] : (Interval){piece->end, piece->end};
            TRY(check_part(s, rank, piece, v, x, "after the sum"));
            for (; at < v.begin; at++) x[at] = f32_from_bits(0x7fc00001u);
            at = v.end;
        }
    }
    return OK;
}

static Status exchange_pieces(const Sums *s, int rank, Reach *reach, const SumSpace *space)
{
    const Pieces *p = s->pieces[rank];
    for (int i = 0; i < p->n; i++) {
        const Holders h = holders_of(reach, s, rank, p->pieces[i].stage);
        TRY(holding_sum(&h, space, p, i));
    }
    TRY(check_summed(s, rank, space->x));
    for (int i = 0; p->owners && i < p->n; i++) {
        const Holders h = holders_of(reach, s, rank, p->pieces[i].stage);
        TRY(holding_share(&h, space->x, p, i));
    }
    for (int i = 0; i < p->n; i++)
        TRY(check_part(s, rank, &p->pieces[i], (Interval){p->pieces[i].begin, p->pieces[i].end}, space->x,
                       "after the share"));
    return OK;
}

static Status sum_and_share(int rank, void *arg)
{
    const Sums *s = arg;
    const Pieces *p = s->pieces[rank];
    enum { GAP = 64 };
    int64_t size = s->sizes[rank] + GAP;
    float *x = mem_array((size_t)(size * (s->room[rank].branches + 1)), sizeof *x);
    const SumSpace space = {.x = x, .waiting = s->room[rank].branches > 1 ? x + size : NULL, .size = size};
    Reach reach;
    reach_open(&reach, s, rank);
    for (int i = 0; i < p->n; i++) {
        int number = number_in(s->run, p->pieces[i].stage, rank);
        for (int64_t e = p->pieces[i].begin; e < p->pieces[i].end; e++)
            put_terms(s, &space, rank, number, s->numbers[rank][e], e);
    }
    Status status = exchange_pieces(s, rank, &reach, &space);
    free(x);
    Status closed = reach_close(&reach, &s->room[rank]);
    return status != OK ? status : closed;
}

static Status run_sums(Sums *s, uint64_t *random, int64_t size)
{
    const Pieces *p = s->pieces[0];
    if (s->run->holders == 1) return OK;
    s->seed = testing_random(random);
    s->way = (int)draw_below(random, p->wire == F32 ? N_WAYS : DEVICE);
    expect_sums(s, size);
    Status status = fibers_succeed(s->run->ranks, random, sum_and_share, s);
    for (int stage = 0; stage < s->run->grid.stages; stage++) free(s->expected[stage]);
    return status;
}

static Status check_exchange(const Run *r, Draw *d)
{
    Sums grads = {.run = r, .numbers = r->whole_of}, sets = {.run = r, .numbers = r->set_of};
    bool bf16 = strcmp(r->c.wire, "bf16") == 0;
    for (int rank = 0; rank < r->ranks; rank++) {
        const Pieces *p = grads.pieces[rank] = &r->h[rank].mine;
        EXPECT(p->wire == (bf16 ? BF16 : F32) && p->tree == r->c.virtual_ranks && p->owners == r->h[rank].shard,
               "rank %d: its pieces have the wire %s, a tree of %lld, owners %d", rank, dtype_name(p->wire),
               (Long)p->tree, p->owners);
        grads.sizes[rank] = r->part[rank].params.size;
        grads.room[rank] = r->pipelined ? pieces_room(p) : holding_room(&r->h[rank]);
        sets.pieces[rank] = &r->kfac[rank].pieces;
        sets.sizes[rank] = r->kfac[rank].table.size;
        sets.room[rank] = pieces_room(sets.pieces[rank]);
    }
    TRY(run_sums(&grads, &d->random, d->model.params.size));
    return d->kfac.interval ? run_sums(&sets, &d->random, d->whole.table.size) : OK;
}

/* The table of norm blocks comes to all ranks. */
static Status share_blocks(int rank, void *arg)
{
    const Run *r = arg;
    static const int everyone[RANKS_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};
    const Holding *h = &r->h[rank];
    Backend b = {0};
    Comm comm = fiber_comm(everyone, r->ranks, rank);
    int64_t n = 2 * optim_norm_blocks(h->params[SPACE_MODEL], h->params[SPACE_MODEL]->size);
    float *x = mem_array((size_t)n, sizeof *x);
    const Holders all = {
        .backend = &b, .comm = &comm, .scratch = mem_alloc(comm_reduce_bytes(h->sums, r->ranks, F32, 0))};
    for (int i = 0; i < h->sums[rank].count; i++)
        for (int64_t e = h->sums[rank].intervals[i].begin; e < h->sums[rank].intervals[i].end; e++)
            x[e] = value(SEED, 0, e);
    Status status = holding_share_parts(&all, x, n, h->sums);
    for (int64_t e = 0; e < n && status == OK; e++)
        if (x[e] != value(SEED, 0, e)) status = fail(E_FAIL, "element %lld of the table of norm blocks", (Long)e);
    MEM_FREE(x, all.scratch);
    return status;
}

/* ---- moves ---- */

/* An end is a whole array, or this rank's elements of one as a run has them. */
typedef struct {
    const Run *run; /* NULL: the whole array */
    float *x[RANKS_MOST];
} End;

typedef struct {
    HeldKind kind;
    int64_t size;
    int ranks;
    const Intervals *from, *to; // (ranks)
    End giver, taker;
    bool in_place;
    int failing, calls; /* a rank whose read number `calls` (from 0) fails; −1: none */
    bool failing_write;
} Moves;

typedef struct {
    const Moves *moves;
    int rank, reads, writes;
    int64_t at, written;
} Mover;

static float *place_in(const Mover *m, const End *end, int64_t begin, int64_t last)
{
    const Moves *s = m->moves;
    if (!end->run) return end->x[m->rank] + begin;
    const Holding *h = &end->run->h[m->rank];
    int64_t place = holding_place(h, s->kind, m->rank, begin);
    bool whole = holding_has(h, s->kind, m->rank, begin) &&
                 holding_place(h, s->kind, m->rank, last) - place == last - begin;
    return whole ? end->x[m->rank] + place : NULL;
}

static bool within(const Intervals *list, int64_t begin, int64_t end)
{
    Interval v = {begin, begin};
    return intervals_next(list, end, &v) && v.begin == begin && v.end == end;
}

static Status read_values(void *giver, int64_t begin, int64_t end, float *to)
{
    Mover *m = giver;
    const Moves *s = m->moves;
    const float *from = place_in(m, &s->giver, begin, end - 1);
    EXPECT(from && within(&s->from[m->rank], begin, end) && end - begin <= MOVE_MOST, "rank %d reads %lld to %lld",
           m->rank, (Long)begin, (Long)end);
    if (m->reads++ == s->calls && m->rank == s->failing && !s->failing_write) return fail(E_IO, "an unreadable piece");
    memcpy(to, from, (size_t)(end - begin) * sizeof *to);
    return OK;
}

static Status write_values(void *taker, int64_t begin, int64_t end, const float *from)
{
    Mover *m = taker;
    const Moves *s = m->moves;
    float *to = place_in(m, &s->taker, begin, end - 1);
    EXPECT(to && within(&s->to[m->rank], begin, end) && begin >= m->at, "rank %d writes %lld to %lld behind %lld",
           m->rank, (Long)begin, (Long)end, (Long)m->at);
    m->at = end;
    m->written += end - begin;
    if (m->writes++ == s->calls && m->rank == s->failing && s->failing_write) return fail(E_IO, "an unreadable piece");
    memcpy(to, from, (size_t)(end - begin) * sizeof *to);
    return OK;
}

static Status move_rank(int rank, void *arg)
{
    const Moves *s = arg;
    static const int everyone[RANKS_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};
    Comm comm = fiber_comm(everyone, s->ranks, rank);
    Mover m = {.moves = s, .rank = rank};
    const MoveEnds ends = {read_values, write_values, &m, &m, s->in_place};
    TRY(holding_move(s->ranks > 1 ? &comm : NULL, s->from, s->to, &ends));
    EXPECT(s->in_place || m.written == s->to[rank].size, "%lld of %lld elements came to rank %d", (Long)m.written,
           (Long)s->to[rank].size, rank);
    return OK;
}

static float *make_array(const Run *r, HeldKind kind, int rank, uint64_t seed)
{
    const Intervals *has = &r->h[0].has[kind][rank];
    float *x = mem_array((size_t)has->size, sizeof *x);
    int64_t at = 0;
    for (int i = 0; i < has->count; i++)
        for (int64_t e = has->intervals[i].begin; e < has->intervals[i].end; e++)
            x[at++] = seed ? value(seed, 0, e) : 0;
    return x;
}

/* The arrays of a run hold the values of the seed; what was moved is taken out again. */
static Status check_arrays(const Run *r, HeldKind kind, uint64_t seed, End *end)
{
    for (int rank = 0; rank < r->ranks; rank++) {
        size_t bytes = (size_t)r->h[0].has[kind][rank].size * sizeof(float);
        float *expected = make_array(r, kind, rank, seed);
        bool same = memcmp(end->x[rank], expected, bytes) == 0;
        memset(end->x[rank], 0, bytes);
        free(expected);
        EXPECT(same, "rank %d has other values of kind %d than were moved", rank, (int)kind);
    }
    return OK;
}

/* One call fails on one rank: all ranks return, and that one says why. */
static Status check_failure(Moves *m, uint64_t *random)
{
    int f = m->failing = (int)draw_below(random, m->ranks);
    m->calls = 0;
    m->failing_write = draw_below(random, 2);
    TRY(fibers_run(m->ranks, random, move_rank, m));
    bool called = m->failing_write ? m->to[f].size > 0 : fibers.of[f].status != OK;
    for (int r = 0; r < m->ranks; r++) {
        Status expected = r == f && called ? E_IO : OK;
        EXPECT(fibers.of[r].status == expected, "rank %d returns %s where a call of rank %d fails", r,
               status_name(fibers.of[r].status), f);
        EXPECT(expected == OK || strcmp(fibers.of[r].message, "an unreadable piece") == 0, "the message is %s",
               fibers.of[r].message);
    }
    m->failing = -1;
    return OK;
}

static Status check_moves(Draw *d, HeldKind kind)
{
    const Run *a = &d->run[0], *b = &d->run[1];
    static const Intervals none;
    uint64_t seed = testing_random(&d->random) | 1;
    int64_t size = a->h[0].params[held_space(kind)]->size;
    End has_a = {.run = a}, has_b = {.run = b}, whole = {.x = {mem_array((size_t)size, sizeof(float))}};
    Intervals first[RANKS_MOST] = {{0}}, own[RANKS_MOST] = {{0}}, to[RANKS_MOST] = {{0}};
    int most = a->ranks > b->ranks ? a->ranks : b->ranks;
    Status status = OK;
    intervals_add(first, 0, size);
    for (int r = 0; r < RANKS_MOST; r++) {
        own[r] = r < a->ranks ? a->h[0].own[held_space(kind)][r] : none;
        to[r] = r < b->ranks ? b->h[0].has[kind][r] : none;
        if (r < a->ranks) has_a.x[r] = make_array(a, kind, r, seed);
        if (r < b->ranks) has_b.x[r] = make_array(b, kind, r, 0);
    }
    Moves collect = {kind, size, a->ranks, a->h[0].has[kind], first, has_a, whole, .failing = -1};
    Moves spread = {kind, size, b->ranks, first, b->h[0].has[kind], whole, has_b, .failing = -1};
    Moves direct = {kind, size, most, own, to, has_a, has_b, .failing = -1};
    TRY_DONE(fibers_succeed(a->ranks, &d->random, move_rank, &collect));
    for (int64_t e = 0; e < size; e++) {
        float expected = value(seed, 0, e);
        if (memcmp(&whole.x[0][e], &expected, sizeof expected) != 0)
            TRY_DONE(fail(E_FAIL, "element %lld of kind %d did not come to rank 0", (Long)e, (int)kind));
    }
    TRY_DONE(fibers_succeed(b->ranks, &d->random, move_rank, &spread));
    TRY_DONE(check_arrays(b, kind, seed, &has_b));
    if (b->h[0].has[kind][0].size == size) { /* rank 0 has all where it uses them */
        memcpy(has_b.x[0], whole.x[0], (size_t)size * sizeof(float));
        spread.giver = has_b;
        spread.in_place = true;
        TRY_DONE(fibers_succeed(b->ranks, &d->random, move_rank, &spread));
        TRY_DONE(check_arrays(b, kind, seed, &has_b));
    }
    if (draw_below(&d->random, 4) == 0) TRY_DONE(check_failure(&direct, &d->random));
    TRY_DONE(fibers_succeed(most, &d->random, move_rank, &direct));
    TRY_DONE(check_arrays(b, kind, seed, &has_b));
done:
    for (int r = 0; r < RANKS_MOST; r++) MEM_FREE(has_a.x[r], has_b.x[r]);
    free(whole.x[0]);
    intervals_free(first);
    return status;
}

/* ---- the walk ---- */

static Status check_run(const Run *r, Draw *d)
{
    TRY(check_grid(r));
    TRY(check_lists(r));
    for (int rank = 0; rank < r->ranks; rank++) TRY(check_weights(r, rank));
    TRY(check_moments(r, d));
    TRY(check_holders(r));
    TRY(check_sums(r, d));
    TRY(check_pieces(r, d));
    if (d->kfac.interval) TRY(check_kfac(r, d));
    TRY(check_exchange(r, d));
    return fibers_succeed(r->ranks, &d->random, share_blocks, (void *)(uintptr_t)r);
}

static Status check_pair(Draw *d)
{
    for (int i = 0; i < 2; i++) TRY(check_run(&d->run[i], d));
    for (int kind = 0; kind < N_HELD; kind++) TRY(check_moves(d, (HeldKind)kind));
    return OK;
}

static void test_random_grids(void **state)
{
    const char *only = getenv("CAIRN_TEST_ONLY");
    int pairs = testing_brief() ? 250 : testing_rounds(5000, 50000), first = only ? atoi(only) : 0;
    (void)state;
    for (int n = first; n < (only ? first + 1 : pairs); n++) {
        Draw d;
        Status status = draw_pair(&d, (SEED + (uint64_t)n) * UINT64_C(0x9e3779b97f4a7c15));
        if (status == OK) status = check_pair(&d);
        if (status != OK) {
            print_message("pair %d of grids of seed 0x%llx (CAIRN_TEST_ONLY=%d runs it alone):\n", n,
                          (unsigned long long)SEED, n);
            for (int i = 0; i < 2; i++) run_print(&d.run[i], &d);
            fail_msg("pair %d: %s", n, status_message());
        }
        draw_free(&d);
    }
    print_message("%d grids\n", only ? 2 : 2 * pairs);
    fibers_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_grids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
