/* Random grids for tests/unit/test_holding*.c: a small model, two runs of it with other ranks, stages and options, and
   what each rank of them has, found without src/holding. */
#pragma once

#include <malloc.h>
#include <signal.h>

#include "holding/holding.h"
#include "train/parts/kfac.h"
#include "train/pipelines/pipeline.h"

enum { RANKS_MOST = 8, LAYERS_MOST = 6, TERMS_MOST = 20 };

typedef struct {
    Config c;
    Grid grid;
    bool pipelined;
    Stage stages[LAYERS_MOST]; // (grid.stages) without a pipeline one of all layers
    int ranks, holders;
    int group[LAYERS_MOST][RANKS_MOST]; // (stages, holders) in the order in which they are added
    Holding h[RANKS_MOST];
    Kfac kfac[RANKS_MOST];
    Model part[RANKS_MOST];        /* the table of what a rank has */
    int64_t *whole_of[RANKS_MOST]; // (part.params.size) the number of an element of the rank's array in the whole model
    int64_t *set_of[RANKS_MOST];   // (kfac.table.size) and of its set in that of the whole model
} Run;

typedef struct {
    uint64_t random;
    Model model;
    const Param *tied; /* NULL: no tensor has two uses */
    KfacOptions kfac;  /* interval 0: none */
    Kfac whole;        /* the table of the whole model's sets */
    Run run[2];
} Draw;

static inline int64_t draw_below(uint64_t *random, int64_t n)
{
    return (int64_t)(testing_random(random) % (uint64_t)n);
}

/* ---- the model ---- */

static inline Status draw_model(Draw *d)
{
    static const int32_t sizes[] = {8, 8, 8, 16, 16, 16, 16, 24, 24, 24, 32, 48};
    bool large = draw_below(&d->random, 16) == 0;
    int32_t h = large ? 64 : sizes[draw_below(&d->random, 12)], most = large ? 30000 : 4000;
    ModelConfig c = {.hidden = h,
                     .heads = 1,
                     .head_dim = h,
                     .ffn = (int32_t)(1 + draw_below(&d->random, h)),
                     .layers = (int32_t)(1 + draw_below(&d->random, LAYERS_MOST)),
                     .vocab_size = (int32_t)(10 + draw_below(&d->random, 110)),
                     .positions = (int32_t)(2 + draw_below(&d->random, 30)),
                     .types = (int32_t)(1 + draw_below(&d->random, 2))};
    while (c.layers > 1 && c.layers * (4 * h * h + 2 * h * c.ffn) > most) c.layers--;
    c.vocab_padded = (c.vocab_size + 63) / 64 * 64;
    bool pretraining = draw_below(&d->random, 2);
    Head head = {pretraining ? HEAD_PRETRAINING : HEAD_CLASSIFIER, 2};
    if (pretraining && draw_below(&d->random, 3) == 0) head.labels = 0;
    TRY(model_init(&d->model, c, head));
    d->tied = model_tied(&d->model);
    return OK;
}

/* ---- a grid ---- */

static inline void draw_layers(Run *r, int layers, uint64_t *random)
{
    int first = 0;
    for (int s = 0; s < r->grid.stages; s++) {
        int most = layers - first - (r->grid.stages - 1 - s);
        int n = s == r->grid.stages - 1 ? most : 1 + (int)draw_below(random, most);
        r->stages[s] = (Stage){first, n};
        first += n;
    }
}

static inline void draw_grid(Run *r, int layers, uint64_t *random)
{
    int kind = (int)draw_below(random, N_PIPELINES + 2);
    r->ranks = 1 + (int)draw_below(random, RANKS_MOST);
    r->grid = grid_of_ranks(r->ranks);
    for (int tries = 0; kind < N_PIPELINES && tries < 100 && !r->pipelined; tries++) {
        int ranks = 1 + (int)draw_below(random, RANKS_MOST);
        r->c.stages = 1 + draw_below(random, layers);
        r->c.stage_chunks = 2 + draw_below(random, 2);
        r->pipelined = pipeline_grid(&r->c, (PipelineKind)kind, ranks, layers, &r->grid) == OK;
        if (r->pipelined) r->ranks = ranks;
    }
    if (!r->pipelined) r->grid = grid_of_ranks(r->ranks);
    r->holders = r->grid.replicas * r->grid.directions;
    draw_layers(r, layers, random);
}

/* Replica after replica, and of chimera first the direction that goes down. */
static inline void find_groups(Run *r)
{
    const Pipeline *shape = &r->grid.shape;
    for (int s = 0; s < r->grid.stages; s++) {
        int n = 0;
        for (int replica = 0; replica < r->grid.replicas; replica++)
            for (int chunk = 0; chunk < shape->chunks; chunk++)
                for (int place = 0; place < shape->places; place++)
                    if (pipeline_stage(shape, place, chunk) == s) r->group[s][n++] = place * r->grid.replicas + replica;
        CHECK(n == r->holders, "stage %d has %d holders", s, n);
    }
}

static inline int number_in(const Run *r, int stage, int rank)
{
    for (int n = 0; n < r->holders; n++)
        if (r->group[stage][n] == rank) return n;
    return -1;
}

static inline void draw_options(Run *r, const Draw *d, uint64_t *random)
{
    static char names[][10] = {"fp32", "bf16", "none", "optimizer"};
    static const int64_t buckets[] = {1, 4096, 12288, 40000, 25 << 20};
    static const int64_t terms[] = {1, 1, 2, 3, 4, 5, 7, 9};
    int64_t each = terms[draw_below(random, 8)];
    r->c.wire = names[draw_below(random, 3) == 0];
    r->c.shard = names[2 + (!d->kfac.interval && draw_below(random, 2))];
    r->c.bucket_size = buckets[draw_below(random, 5)];
    if (r->c.wire == names[0] && draw_below(random, 2) && each * r->holders <= TERMS_MOST)
        r->c.virtual_ranks = each * r->holders;
}

/* ---- what its ranks have ---- */

static inline int64_t end_of(const ParamTable *t, int i)
{
    return i + 1 < t->count ? t->params[i + 1].offset : t->size;
}

/* Tensors are found by their names, in the order of the part's or of another. */
static inline int64_t *numbers_in(const ParamTable *part, const ParamTable *whole)
{
    int64_t *numbers = mem_array((size_t)part->size, sizeof *numbers);
    for (int i = 0, at = -1; i < part->count; i++) {
        do at = (at + 1) % whole->count;
        while (strcmp(part->params[i].name, whole->params[at].name) != 0);
        for (int64_t e = part->params[i].offset; e < end_of(part, i); e++)
            numbers[e] = whole->params[at].offset + e - part->params[i].offset;
    }
    return numbers;
}

static inline void hold(Run *r, const Draw *d, int rank)
{
    Stage ascending[LAYERS_MOST];
    int n = 0;
    KfacOptions o = d->kfac;
    for (int s = 0; s < r->grid.stages; s++)
        if (number_in(r, s, rank) >= 0) ascending[n++] = r->stages[s];
    model_part(&d->model, ascending, n, &r->part[rank]);
    holding_init(&r->h[rank], &r->c, &d->model, &r->grid, r->pipelined ? r->stages : NULL, rank);
    r->whole_of[rank] = numbers_in(&r->part[rank].params, &d->model.params);
    if (!o.interval) return;
    o.piece_bytes = r->c.bucket_size;
    o.terms = r->c.virtual_ranks;
    if (r->pipelined)
        kfac_init(&r->kfac[rank], &o, &r->part[rank], &r->grid, r->stages, rank);
    else
        kfac_init_whole(&r->kfac[rank], &o, &d->model, r->ranks, rank);
    kfac_hold(&d->whole, r->pipelined ? r->stages : NULL, &r->h[rank]);
    r->set_of[rank] = numbers_in(&r->kfac[rank].table, &d->whole.table);
}

static inline Status draw_pair(Draw *d, uint64_t seed)
{
    *d = (Draw){.random = seed};
    for (int i = 0; i < 4; i++) testing_random(&d->random);
    TRY(draw_model(d));
    if (draw_below(&d->random, 5) == 0)
        d->kfac = (KfacOptions){.interval = 2, .lag = (int)draw_below(&d->random, 3), .damping = 1e-3};
    kfac_init_whole(&d->whole, &d->kfac, &d->model, 1, 0);
    for (int i = 0; i < 2; i++) {
        Run *r = &d->run[i];
        draw_grid(r, d->model.config.layers, &d->random);
        find_groups(r);
        draw_options(r, d, &d->random);
        for (int rank = 0; rank < r->ranks; rank++) hold(r, d, rank);
    }
    return OK;
}

static inline void draw_free(Draw *d)
{
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < d->run[i].ranks; rank++) {
            Run *r = &d->run[i];
            holding_free(&r->h[rank]);
            kfac_free(&r->kfac[rank]);
            model_free(&r->part[rank]);
            MEM_FREE(r->whole_of[rank], r->set_of[rank]);
        }
    kfac_free(&d->whole);
    model_free(&d->model);
}

static inline void run_print(const Run *r, const Draw *d)
{
    const ModelConfig *c = &d->model.config;
    print_message("  %s of %d stages on %d ranks, %d places, %d replicas; layers",
                  r->pipelined ? pipeline_name(r->grid.shape.kind) : "none", r->grid.stages, r->ranks,
                  r->grid.shape.places, r->grid.replicas);
    for (int s = 0; s < r->grid.stages; s++) print_message(" %d", r->stages[s].layers);
    print_message(
        "; --shard %s --wire %s --bucket-size %lld --virtual-ranks %lld, K-FAC every %d steps; hidden %d, ffn %d, "
        "vocabulary %d, head %d with %d labels\n",
        r->c.shard, r->c.wire, (long long)r->c.bucket_size, (long long)r->c.virtual_ranks, d->kfac.interval, c->hidden,
        c->ffn, c->vocab_size, (int)d->model.head.kind, d->model.head.labels);
}

/* ---- the walk ---- */

#define GRIDS_SEED UINT64_C(0x5eed26)

typedef long long Long;

#define EXPECT(cond, ...)                                                                                              \
    do {                                                                                                               \
        if (!(cond)) return fail(E_FAIL, __VA_ARGS__);                                                                 \
    } while (0)

/* A term, with a sign and an exponent that make the order of additions count; sometimes -0. */
static inline float value(uint64_t seed, int term, int64_t element)
{
    uint64_t h =
        (seed + (uint64_t)term) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)element * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 31) * UINT64_C(0x94d049bb133111eb);
    h ^= h >> 29;
    if ((h >> 8 & 63) == 0) return -0.0f;
    return f32_from_bits(((uint32_t)(h >> 32) & 0x807fffffu) | (uint32_t)(120 + (h & 15)) << 23);
}

static int walked; /* the pair that is walked */

static inline void name_pair(void)
{
    print_message("pair %d of grids, of seed 0x%llx (CAIRN_TEST_ONLY=%d walks it alone):\n", walked,
                  (unsigned long long)GRIDS_SEED, walked);
}

static inline void name_pair_at(int number)
{
    name_pair();
    signal(number, SIG_DFL);
    raise(number);
}

static inline void name_pair_at_end(void)
{
#if TESTING_ASAN
    __asan_set_death_callback(name_pair);
#else
    signal(SIGSEGV, name_pair_at);
#endif
    signal(SIGABRT, name_pair_at);
}

/* 10 000 grids, in pairs of one model. CAIRN_TEST_ONLY=N walks pair N alone. */
static inline void walk_grids(Status (*check)(Draw *d))
{
    const char *only = getenv("CAIRN_TEST_ONLY");
    int pairs = testing_brief() ? 250 : testing_rounds(5000, 50000), first = only ? atoi(only) : 0;
    mallopt(M_MMAP_THRESHOLD, 1 << 20); /* smaller arrays are used again, not mapped each time */
    mallopt(M_TRIM_THRESHOLD, 512 << 10);
    name_pair_at_end();
    for (int n = first; n < (only ? first + 1 : pairs); n++) {
        Draw d;
        walked = n;
        Status status = draw_pair(&d, (GRIDS_SEED + (uint64_t)n) * UINT64_C(0x9e3779b97f4a7c15));
        if (status == OK) status = check(&d);
        if (status != OK) {
            name_pair();
            for (int i = 0; i < 2; i++) run_print(&d.run[i], &d);
            fail_msg("pair %d: %s", n, status_message());
        }
        draw_free(&d);
    }
    print_message("%d grids\n", only ? 2 : 2 * pairs);
}
