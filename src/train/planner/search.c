/* `--recompute auto`. The table has what each choice for a layer takes in each layer, from plans in which all layers
   choose the same. The search goes through the layers from the first one up and keeps, of all choices so far, those of
   which no other is faster and keeps less (a Pareto front). A choice is possible where what the layers below keep, and
   its own peak beside it, are within the room. */

#include "train/planner/search.h"

#include "plan/layers.h"

/* The input is kept, or offloaded, or recomputed in the first layer, where the embeddings make it again. */
enum { FREE_PARTS = LAYER_PARTS - 1, MOST_KINDS = 3 << FREE_PARTS };
#define NEVER (INT64_MAX / 4) /* picoseconds and bytes of a kind in a layer that cannot choose it */

typedef struct {
    LayerKeep keep;
    LayerCost *layers; // (layers)
    int64_t heads;     /* bytes while heads run, where the last layer chooses it */
} Kind;

typedef struct {
    int layers, n;
    Kind kinds[MOST_KINDS];
    int64_t below;  /* bytes while embeddings run */
    size_t other;   /* bytes of the first account beside activations */
    double seconds; /* of a step in which layers take `picoseconds` in a micro-batch, all of them keeping all */
    int64_t picoseconds;
} Table;

double search_step_seconds(const Plan *p, const RowCounts *rows, const CostRates *rates, double seq_len, double micros)
{
    double kfac = 0;
    const Range ranges[] = {p->gather, p->invert, p->adopt};
    for (int i = 0; p->kfac_interval && i < 3; i++)
        kfac += plan_cost(p, ranges[i], rows, seq_len, rates, NULL) / p->kfac_interval;
    return kfac + micros * plan_cost(p, p->micro, rows, seq_len, rates, NULL) +
           plan_cost(p, p->update, rows, seq_len, rates, NULL) + plan_cost(p, p->begin, rows, seq_len, rates, NULL);
}

static size_t budget_of(const SearchProblem *s) { return s->accounts->row[0].budget; }

/* Peak and time of a plan that was laid out. */
typedef struct {
    size_t peak;    /* SIZE_MAX where another memory than the first has no room */
    size_t other;   /* of it, all but activations */
    double seconds; /* of a step */
} Trial;

static Status try_layers(const SearchProblem *s, const LayerChoice *layers, Trial *trial)
{
    Plan p;
    ModelTensors t;
    PlanRequest r = s->training;
    Accounts accounts = *s->accounts;
    const Account *first = &accounts.row[0], *machine = &accounts.row[accounts.n - 1];
    size_t bytes[N_REGIONS];
    r.emit.layers = layers;
    TRY(plan_make(&r, &p, &t, NULL));
    plan_bytes(&p, s->evaluation, bytes);
    (void)accounts_set_peaks(&accounts, bytes);
    *trial = (Trial){.peak = machine != first && machine->peak > machine->budget ? SIZE_MAX : first->peak,
                     .other = first->peak - bytes[REGION_ACT],
                     .seconds = search_step_seconds(&p, &s->rows, &s->rates, s->seq_len, s->micros)};
    plan_free(&p);
    return OK;
}

/* ---- the table ---- */

static void table_free(Table *t)
{
    for (int k = 0; k < t->n; k++) free(t->kinds[k].layers);
}

/* Adds a kind, from a plan that is not laid out. `above`: the layers above the first keep this, and cannot choose the
   kind; NULL: all layers choose it. A delay of the compute lane by copies counts in equal parts for all layers. */
static Status add_kind(const SearchProblem *s, LayerKeep keep, const LayerKeep *above, LayerChoice *c, Table *t)
{
    Plan p;
    ModelTensors tensors;
    PlanRequest r = s->training;
    OtherCost other;
    Kind *kind = &t->kinds[t->n];
    for (int l = 0; l < t->layers; l++) c->keeps[l] = above && l > 0 ? *above : keep;
    r.emit.layers = c;
    r.sketch = true;
    TRY(plan_make(&r, &p, &tensors, NULL));
    *kind = (Kind){.keep = keep, .layers = mem_array((size_t)t->layers, sizeof *kind->layers)};
    t->n++;
    plan_layer_costs(&p, &s->rows, s->seq_len, &s->rates, kind->layers, &other);
    kind->heads = other.heads;
    if (other.below > t->below) t->below = other.below;
    int64_t alone = other.picoseconds;
    for (int l = 0; l < t->layers; l++) alone += kind->layers[l].picoseconds;
    if (keep.offloaded) {
        double all = plan_cost(&p, p.micro, &s->rows, s->seq_len, &s->rates, NULL) * 1e12 - (double)alone;
        for (int l = 0; l < t->layers; l++) kind->layers[l].picoseconds += llround(all / t->layers);
    }
    for (int l = 1; above && l < t->layers; l++) kind->layers[l] = (LayerCost){NEVER, NEVER, NEVER};
    if (t->n == 1) t->picoseconds = alone - other.picoseconds;
    plan_free(&p);
    return OK;
}

/* The kinds that no other beats in every layer. */
static void find_useful(const Table *t, bool useful[MOST_KINDS])
{
    LayerCost costs[MOST_KINDS];
    int16_t best[MOST_KINDS];
    for (int l = 0; l < t->layers; l++) {
        for (int k = 0; k < t->n; k++) costs[k] = t->kinds[k].layers[l];
        for (int k = front_useful(costs, t->n, best); k-- > 0;) useful[best[k]] = true;
    }
}

/* All choices of parts beside the input, first of them to keep all; of the useful ones, those without the first layer's
   input. The caller frees the table. */
static Status make_table(const SearchProblem *s, LayerChoice *c, Table *t)
{
    Trial none;
    *t = (Table){.layers = s->training.model->config.layers};
    memset(c->keeps, 0, (size_t)t->layers * sizeof *c->keeps);
    TRY(try_layers(s, c, &none));
    t->other = none.other;
    t->seconds = none.seconds;
    for (unsigned parts = 0; parts < 1u << FREE_PARTS; parts++)
        TRY(add_kind(s, (LayerKeep){.recomputed = (uint8_t)(parts << 1)}, NULL, c, t));
    bool useful[MOST_KINDS] = {false};
    find_useful(t, useful);
    for (int k = 0; k < 1 << FREE_PARTS; k++) {
        LayerKeep keep = t->kinds[k].keep;
        if (useful[k]) TRY(add_kind(s, (LayerKeep){keep.recomputed | PART_BIT(INPUT), 0}, &keep, c, t));
    }
    return OK;
}

/* Adds the choices with an offloaded input. What is fetched comes while the layer above runs, so that the peaks of all
   others have room for it. */
static Status add_offloaded(const SearchProblem *s, LayerChoice *c, Table *t)
{
    bool useful[MOST_KINDS] = {false};
    int inside = t->n;
    find_useful(t, useful);
    for (int k = 0; k < 1 << FREE_PARTS; k++)
        if (useful[k]) TRY(add_kind(s, (LayerKeep){t->kinds[k].keep.recomputed, PART_BIT(INPUT)}, NULL, c, t));
    /* by the first kinds of both, which keep all else: no other is faster */
    int64_t input = t->kinds[0].layers[0].kept - t->kinds[inside].layers[0].kept;
    for (int k = 0; k < inside; k++)
        for (int l = 0; l < t->layers; l++) t->kinds[k].layers[l].peak += input;
    return OK;
}

/* ---- the search ---- */

static int64_t peak_of_kind(const Table *t, int layer, int kind)
{
    const LayerCost *c = &t->kinds[kind].layers[layer];
    int64_t heads = layer == t->layers - 1 ? c->kept + t->kinds[kind].heads : 0;
    return heads > c->peak ? heads : c->peak;
}

static void extend(const Table *t, const Front *below, int layer, int64_t room, Front *front)
{
    LayerCost costs[MOST_KINDS];
    for (int k = 0; k < t->n; k++) {
        costs[k] = t->kinds[k].layers[layer];
        costs[k].peak = peak_of_kind(t, layer, k);
    }
    front_extend(below, costs, t->n, room, front);
}

typedef struct {
    int64_t picoseconds, peak; /* of all layers; of the activations */
} Found;

static void add_peak(int64_t *peak, int64_t kept) { *peak = kept > *peak ? kept : *peak; }

/* The fastest choice for all layers within `room` bytes of activations. False: there is none. */
static bool fastest(const Table *t, int64_t room, LayerKeep *keeps, Found *found)
{
    Front *fronts = mem_array((size_t)t->layers + 1, sizeof *fronts);
    front_init(fronts);
    for (int l = 0; l < t->layers; l++) extend(t, &fronts[l], l, room, &fronts[l + 1]);
    bool any = fronts[t->layers].n > 0 && t->below <= room;
    if (any) *found = (Found){fronts[t->layers].points[0].picoseconds, t->below};
    for (int l = t->layers - 1, at = 0; any && l >= 0; l--) {
        const FrontPoint *p = &fronts[l + 1].points[at];
        keeps[l] = t->kinds[p->cost].keep;
        add_peak(&found->peak, fronts[l].points[p->from].kept + peak_of_kind(t, l, p->cost));
        at = p->from;
    }
    if (any) keeps[t->layers - 1].offloaded = 0; /* the last input stays in any case */
    for (int l = 0; l <= t->layers; l++) front_free(&fronts[l]);
    free(fronts);
    return any;
}

/* In each layer the choice that keeps least, of those within the room. */
static bool keep_least(const Table *t, int64_t room, LayerKeep *keeps)
{
    int64_t kept = 0;
    for (int l = 0; l < t->layers; l++) {
        int least = -1;
        for (int k = 0; k < t->n; k++) {
            bool fits = kept + peak_of_kind(t, l, k) <= room;
            if (fits && (least < 0 || t->kinds[k].layers[l].kept < t->kinds[least].layers[l].kept)) least = k;
        }
        if (least < 0) return false;
        keeps[l] = t->kinds[least].keep;
        kept += t->kinds[least].layers[l].kept;
    }
    return t->below <= room;
}

/* The choice with the smallest peak. */
static void smallest(const Table *t, LayerKeep *keeps)
{
    int64_t low = 0, high = 1;
    while (!keep_least(t, high, keeps)) high *= 2;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        *(keep_least(t, middle, keeps) ? &high : &low) = middle;
    }
    keep_least(t, high, keeps);
    keeps[t->layers - 1].offloaded = 0; /* as in fastest */
}

static void describe(LayerChoice *c, int n_layers)
{
    Buf text = {0};
    policy_describe(c->keeps, n_layers, &text);
    snprintf(c->policy, sizeof c->policy, "auto (%s)", text.data);
    buf_free(&text);
}

static void set_found(SearchResult *r, const Trial *trial)
{
    r->fits = true;
    r->peak = trial->peak;
    r->step_s = trial->seconds;
}

/* The fastest choice whose exact peak fits. Where a plan takes more than its layers say, the next smaller room is
   tried: the rooms do not depend on the budget, so that a larger one is never slower. */
static Status first_fitting(const SearchProblem *s, const Table *t, SearchResult *r)
{
    Trial trial;
    Found found;
    size_t evaluation = s->evaluation ? s->evaluation->region_bytes[REGION_ACT] : 0;
    if (budget_of(s) < t->other + evaluation) return OK;
    for (int64_t room = (int64_t)(budget_of(s) - t->other); fastest(t, room, r->layers.keeps, &found);
         room = found.peak - 1) {
        r->layouts++;
        TRY(try_layers(s, &r->layers, &trial));
        if (trial.peak == SIZE_MAX) return OK; /* less room would offload still more */
        if (trial.peak > budget_of(s)) continue;
        set_found(r, &trial);
        /* a sum, so that less memory is never faster */
        r->step_s = t->seconds + s->micros * (double)(found.picoseconds - t->picoseconds) * 1e-12;
        describe(&r->layers, t->layers);
        return OK;
    }
    return OK;
}

static Status take_smallest(const SearchProblem *s, const Table *t, SearchResult *r)
{
    Trial trial;
    smallest(t, r->layers.keeps);
    r->layouts++;
    TRY(try_layers(s, &r->layers, &trial));
    set_found(r, &trial);
    r->fits = trial.peak <= budget_of(s);
    describe(&r->layers, t->layers);
    return OK;
}

/* Blocks of K layers, the smallest K that fits, for budgets below every layer's input, or a slow link. A larger K keeps
   fewer inputs and needs more inside a block, so the search ends a little beyond the K with the smallest peak. Where
   none fits, `r` is that one. */
static Status try_blocks(const SearchProblem *s, int layers, SearchResult *r)
{
    Trial trial;
    int best = 2;
    r->peak = SIZE_MAX;
    for (int k = 2; k <= layers && k <= 2 * best + 8 && !r->fits; k++) {
        policy_keeps(&(Policy){.kind = POLICY_EVERY, .every = k}, layers, r->layers.keeps);
        r->layouts++;
        TRY(try_layers(s, &r->layers, &trial));
        if (trial.peak < r->peak) {
            r->peak = trial.peak;
            r->step_s = trial.seconds;
            best = k;
        }
        if (trial.peak <= budget_of(s)) set_found(r, &trial);
    }
    policy_keeps(&(Policy){.kind = POLICY_EVERY, .every = best}, layers, r->layers.keeps);
    snprintf(r->layers.policy, sizeof r->layers.policy, "auto (every:%d)", best);
    return OK;
}

/* Makes `r` the better one. */
static void take_if(bool better, SearchResult *r, SearchResult *other)
{
    int layouts = r->layouts + other->layouts;
    if (better) {
        SearchResult was = *r;
        *r = *other;
        *other = was;
    }
    r->layouts = layouts;
    other->layouts = 0;
}

static bool is_faster(const SearchResult *a, const SearchResult *b)
{
    if (a->fits != b->fits) return a->fits;
    return a->fits ? a->step_s < b->step_s : a->peak < b->peak;
}

/* Where copies are possible, and layers have to give up something, with them too; `r` may be taken over. */
static Status try_offloaded(const SearchProblem *s, Table *t, SearchResult *r)
{
    Status status = OK;
    SearchResult other = {0};
    layer_choice_init(&other.layers, t->layers, r->layers.norm_forms);
    TRY_DONE(add_offloaded(s, &other.layers, t));
    TRY_DONE(first_fitting(s, t, &other));
    if (!other.fits && !r->fits) TRY_DONE(take_smallest(s, t, &other));
    if (other.fits || !r->fits) take_if(is_faster(&other, r), r, &other);
done:
    layer_choice_free(&other.layers);
    return status;
}

Status search_layers(const SearchProblem *s, SearchResult *r)
{
    Status status = OK;
    int layers = s->training.model->config.layers;
    const uint8_t *forms = s->training.emit.layers->norm_forms;
    Table t = {0};
    SearchResult blocks = {0};
    *r = blocks;
    layer_choice_init(&r->layers, layers, forms);
    layer_choice_init(&blocks.layers, layers, forms);
    TRY_DONE(make_table(s, &r->layers, &t));
    TRY_DONE(first_fitting(s, &t, r));
    if (!r->fits) TRY_DONE(take_smallest(s, &t, r));
    if (s->offload && !layer_choice_keeps_all(&r->layers, layers)) TRY_DONE(try_offloaded(s, &t, r));
    if (!r->fits || r->layers.keeps[0].offloaded) {
        TRY_DONE(try_blocks(s, layers, &blocks));
        take_if(is_faster(&blocks, r), r, &blocks);
    }
done:
    table_free(&t);
    layer_choice_free(&blocks.layers);
    if (status != OK) layer_choice_free(&r->layers);
    return status;
}
