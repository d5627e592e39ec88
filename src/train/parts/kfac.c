#include "train/parts/kfac.h"

/* The linears of a layer in units. Those of a unit have the same input, so one rank inverts all of them; the last one
   gathers A and is inverted last, because its sums become an inverse in place. */
enum { UNITS = 4, UNIT_MOST = 3 };
static const struct {
    const char *name, *brief;
} units[UNITS][UNIT_MOST] = {
    {{"attention.self.key", "key"}, {"attention.self.value", "value"}, {"attention.self.query", "query"}},
    {{"attention.output.dense", "out"}},
    {{"intermediate.dense", "up"}},
    {{"output.dense", "down"}},
};

/* ---- options ---- */

Status kfac_options(const Config *c, KfacOptions *o)
{
    bool automatic = strcmp(c->kfac_lag, "auto") == 0, pipelined = strcmp(c->pipeline, "none") != 0;
    char *end;
    long value = strtol(c->kfac_lag, &end, 10);
    *o = (KfacOptions){(int)c->kfac_interval, 0, c->kfac_damping, c->bucket_size, c->virtual_ranks};
    if (c->kfac_interval == 0) {
        static const int options[] = {OPTION_kfac_lag, OPTION_kfac_damping};
        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
            if (!config_is_default(c, options[i]))
                return fail(E_USAGE,
                            "--%s needs --kfac-interval K: K-FAC gathers statistics every K steps, for example 10",
                            config_flag(options[i]));
        return OK;
    }
    if (!automatic && (end == c->kfac_lag || *end || value < 0 || value > c->kfac_interval))
        return fail(E_USAGE, "--kfac-lag '%s': expected auto, or 0 to --kfac-interval, which is %lld", c->kfac_lag,
                    (long long)c->kfac_interval);
    o->lag = automatic ? (pipelined ? o->interval : 0) : (int)value;
    return OK;
}

Status kfac_check(const Config *c)
{
    KfacOptions o;
    TRY(kfac_options(c, &o));
    if (c->kfac_interval == 0) return OK;
    if (strcmp(c->precision, "fp16") == 0)
        return fail(E_USAGE,
                    "--kfac-interval with --precision fp16: its statistics overflow in fp16. Use bf16 or fp32");
    if (strcmp(c->precision, "tf32") == 0)
        return fail(E_USAGE, "--kfac-interval with --precision tf32: products with an inverse in TF32 have errors that "
                             "grow with its condition. Use bf16 or fp32");
    if (c->padded)
        return fail(E_USAGE, "--kfac-interval with --padded: statistics are of packed rows alone. Leave --padded out");
    if (strcmp(c->shard, "optimizer") == 0)
        return fail(E_USAGE, "--kfac-interval with --shard optimizer: a slice cuts through the matrices that K-FAC "
                             "multiplies. Use --shard none");
    return OK;
}

/* ---- the table ---- */

static int64_t add_param(Kfac *k, const char *linear, const char *what, int64_t side)
{
    ParamTable *t = &k->table;
    MEM_GROW(t->params, t->count, t->cap);
    Param *p = &t->params[t->count++];
    *p = (Param){
        .rows = side, .cols = side, .n_dims = 2, .padded = side, .offset = t->size, .init = INIT_ZERO, .layer = -1};
    if (side == 1) p->n_dims = 1;
    snprintf(p->name, sizeof p->name, "%s.%s", linear, what);
    t->size += (side * side + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    return p->offset;
}

static KfacLinear *add_linear(Kfac *k, const ParamTable *params, const char *linear, int weight, int from, int cap)
{
    char name[sizeof params->params->name];
    CHECK(k->plan.n < cap, "more linears than planned");
    snprintf(name, sizeof name, "%s.bias", linear);
    int bias = params_find(params, name);
    CHECK(bias >= 0, "no parameter '%s'", name);
    const Param *w = &params->params[weight];
    KfacLinear *l = &k->plan.linears[k->plan.n++];
    *l = (KfacLinear){
        .k = w->cols, .n = w->rows, .weight = w->offset, .bias = params->params[bias].offset, .from = from};
    l->flag = add_param(k, linear, "has", 1);
    l->a = add_param(k, linear, "A_inv", l->k);
    l->b = add_param(k, linear, "B_inv", l->n);
    return l;
}

typedef struct {
    int first, count; /* linears */
    int64_t begin, end;
    double work;
    int owner;
} Unit;

/* The unit's linears that the table has: all or none. */
static void add_unit(Kfac *k, const ParamTable *params, int layer, int unit, Unit *u, int cap)
{
    int n = 0;
    *u = (Unit){.first = k->plan.n, .begin = k->table.size};
    while (n < UNIT_MOST && units[unit][n].name) n++;
    for (int i = 0; i < n; i++) {
        char linear[80], name[sizeof params->params->name];
        snprintf(linear, sizeof linear, "bert.encoder.layer.%d.%s", layer, units[unit][i].name);
        snprintf(name, sizeof name, "%s.weight", linear);
        int weight = params_find(params, name);
        if (weight < 0) continue;
        KfacLinear *l = add_linear(k, params, linear, weight, i + 1 < n ? u->first + n - 1 : NONE, cap);
        l->layer = layer;
        snprintf(l->name, sizeof l->name, "l%d.%s", layer, units[unit][i].brief);
        u->work += (double)l->k * (double)l->k * (double)l->k + (double)l->n * (double)l->n * (double)l->n;
        u->count++;
    }
    u->end = k->table.size;
}

/* ---- owners ---- */

static int by_work(const void *a, const void *b)
{
    const Unit *x = *(Unit *const *)a, *y = *(Unit *const *)b;
    if (x->work != y->work) return x->work > y->work ? -1 : 1;
    return x->first - y->first;
}

/* The largest first, each to the rank with the least so far. */
static void share_out(Unit *all, int n, int ranks)
{
    Unit **order = mem_array((size_t)n, sizeof *order);
    double *load = mem_array((size_t)ranks, sizeof *load);
    for (int i = 0; i < n; i++) order[i] = &all[i];
    qsort(order, (size_t)n, sizeof *order, by_work);
    for (int i = 0; i < n; i++) {
        int least = 0;
        for (int r = 1; r < ranks; r++)
            if (load[r] < load[least]) least = r;
        order[i]->owner = least;
        load[least] += order[i]->work;
    }
    MEM_FREE(order, load);
}

/* Elements [first, last) of a set, in pieces of the bucket size, so that an exchange needs little memory. */
static void cut_pieces(Kfac *k, int stage, int64_t first, int64_t last, const Unit *all, int n, const KfacOptions *o)
{
    int64_t some = o->piece_bytes / (int64_t)sizeof(float), most = some > NORM_BLOCK ? some : NORM_BLOCK;
    for (int64_t begin = first; begin < last; begin += most) {
        int64_t end = begin + most < last ? begin + most : last;
        Piece *p = pieces_add(&k->pieces, stage, begin, end);
        for (int i = 0; i < n; i++)
            intervals_add(&p->parts[all[i].owner], all[i].begin > begin ? all[i].begin : begin,
                          all[i].end < end ? all[i].end : end);
    }
}

/* The layers of a stage, whose holders share their factors out. */
static void add_stage(Kfac *k, const KfacOptions *o, const Model *m, int stage, const Stage *layers, int number,
                      int cap)
{
    int n = 0, holders = k->pieces.holders;
    int64_t begin = k->table.size;
    Unit *all = mem_array((size_t)layers->layers * UNITS, sizeof *all);
    for (int layer = layers->first + layers->layers - 1; layer >= layers->first; layer--)
        for (int u = UNITS - 1; u >= 0; u--) {
            add_unit(k, &m->params, layer, u, &all[n], cap);
            n += all[n].count > 0;
        }
    share_out(all, n, holders);
    for (int i = 0; i < n; i++)
        for (int l = all[i].first; l < all[i].first + all[i].count; l++)
            k->plan.linears[l].own = all[i].owner == number;
    if (holders > 1) cut_pieces(k, stage, begin, k->table.size, all, n, o);
    free(all);
}

/* ---- the saved form ---- */

static int64_t triangle(int64_t rows) { return rows * (rows + 1) / 2; }

static void make_saved(Kfac *k)
{
    ParamTable *t = &k->saved;
    for (int set = 0; set < kfac_sets(k); set++)
        for (int i = 0; i < k->table.count; i++) {
            MEM_GROW(t->params, t->count, t->cap);
            Param *p = &t->params[t->count++];
            *p = k->table.params[i];
            p->rows = p->padded = triangle(p->rows);
            p->cols = p->n_dims = 1;
            p->offset = t->size;
            t->size += (p->rows + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
            int length = snprintf(p->name, sizeof p->name, "%s%s", set ? "next." : "", k->table.params[i].name);
            CHECK(length < (int)sizeof p->name, "a tensor's name of %d characters", length);
        }
}

/* The place of an element of the triangle. */
static int64_t find_row(int64_t element, int64_t *column)
{
    int64_t row = (int64_t)((sqrt(8 * (double)element + 1) - 1) / 2);
    while (triangle(row) > element) row--;
    while (triangle(row + 1) <= element) row++;
    *column = element - triangle(row);
    return row;
}

void kfac_pack(const Param *p, int64_t begin, int64_t end, const float *from, float *saved)
{
    int64_t c, r = find_row(begin, &c);
    for (int64_t left = end - begin; left > 0; r++, c = 0) {
        int64_t n = r + 1 - c < left ? r + 1 - c : left;
        memcpy(saved, from + r * p->cols + c, (size_t)n * sizeof *saved);
        saved += n;
        left -= n;
    }
}

void kfac_unpack(const Param *p, int64_t begin, int64_t end, const float *saved, float *to)
{
    int64_t c, r = find_row(begin, &c);
    for (int64_t left = end - begin; left > 0; r++, c = 0)
        for (; c <= r && left > 0; c++, left--, saved++) to[r * p->cols + c] = to[c * p->cols + r] = *saved;
}

/* ---- all of it ---- */

void kfac_init(Kfac *k, const KfacOptions *o, const Model *m, const Grid *grid, const Stage *stages, int rank)
{
    enum { LINEARS = 6 };
    int holders = grid_holders(grid);
    *k = (Kfac){.interval = o->interval, .lag = o->lag};
    if (o->interval == 0) return;
    int cap = m->config.layers * LINEARS;
    k->plan = (KfacPlan){.interval = o->interval, .damping = (float)o->damping};
    k->plan.linears = mem_array((size_t)cap, sizeof *k->plan.linears);
    k->pieces =
        (Pieces){.holders = holders, .wire = F32, .tree = o->terms % holders == 0 ? o->terms : 0, .owners = true};
    for (int chunk = 0; chunk < grid->shape.chunks; chunk++) {
        int stage = pipeline_stage(&grid->shape, rank / grid->replicas, chunk);
        add_stage(k, o, m, stage, &stages[stage], grid_holder_number(grid, stage, rank), cap);
    }
    pieces_sort(&k->pieces);
    k->plan.size = k->table.size;
    make_saved(k);
}

void kfac_init_whole(Kfac *k, const KfacOptions *o, const Model *m, int ranks, int rank)
{
    const Grid grid = grid_of_ranks(ranks);
    kfac_init(k, o, m, &grid, &(const Stage){0, m->config.layers}, rank);
    k->plan.ranks = ranks > 1;
}

void kfac_hold(const Kfac *whole, const Stage *stages, Holding *h)
{
    int *stage = mem_array((size_t)whole->saved.count + 1, sizeof *stage);
    for (int i = 0; i < whole->saved.count; i++)
        while (stages && kfac_layer(whole, i) >= stages[stage[i]].first + stages[stage[i]].layers) stage[i]++;
    holding_add_sets(h, &whole->saved, stage);
    free(stage);
}

void kfac_free(Kfac *k)
{
    pieces_free(&k->pieces);
    free(k->plan.linears);
    params_free(&k->table);
    params_free(&k->saved);
    *k = (Kfac){0};
}

PiecesRoom exchanges_room(const Kfac *k, const Holding *h, bool by_devices)
{
    PiecesRoom room = holding_room(h);
    pieces_room_add(&room, pieces_room(&k->pieces));
    if (by_devices) return (PiecesRoom){.received = h->mine.tree ? room.received : 0};
    room.received = 0;
    return room;
}

float *kfac_matrix(const Kfac *k)
{
    size_t most = 0;
    for (int i = 0; i < k->table.count; i++)
        if (kfac_bytes(&k->table.params[i]) > most) most = kfac_bytes(&k->table.params[i]);
    return mem_alloc(most);
}
