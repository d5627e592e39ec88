/* Sums and shares over random grids, between the ranks' own memories: a sum, then a share, is a plain sum to the last
   bit, through the host's memory, from a device's and between devices. */
#include "testing.h"

#include "base/sum_tree.h"
#include "fiber_ranks.h"
#include "holding/exchange.h"
#include "holding_draw.h"
#include "near_device.h"
#include "optim/optim.h"

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
            x[e] = value(GRIDS_SEED, 0, e);
    Status status = holding_share_parts(&all, x, n, h->sums);
    for (int64_t e = 0; e < n && status == OK; e++)
        if (x[e] != value(GRIDS_SEED, 0, e)) status = fail(E_FAIL, "element %lld of the table of norm blocks", (Long)e);
    MEM_FREE(x, all.scratch);
    return status;
}

static Status check_run(const Run *r, Draw *d)
{
    TRY(check_exchange(r, d));
    return fibers_succeed(r->ranks, &d->random, share_blocks, (void *)(uintptr_t)r);
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
    fibers_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_grids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
