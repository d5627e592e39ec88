/* `--recompute auto`. The table has what each choice for a layer takes in each layer, from plans in which all layers
   choose the same. The search goes through the layers from the first one up and keeps, of all choices so far, those of
   which no other is faster and keeps less (a Pareto front). A choice is possible where what the layers below keep, and
   its own peak beside it, are within the room.

   What is offloaded is computed as what is kept. Copies hide behind a layer's computing and add what they take longer.
   Their window (plan/offload.c) is as large as what the layer offloads that offloads most, or a little larger where
   neighbours differ, so the search goes through the sizes of windows, and all of a plan has room for one. */

#include "train/planner/search.h"

#include "train/planner/kinds.h"

double search_forward_again(const Plan *p, const RowCounts *rows, double micros)
{
    const double kept = (double)p->capacity.count[ROWS_TOKENS] / (double)rows->count[ROWS_TOKENS];
    return p->forward.count ? fmax(micros - kept, 0) : 0;
}

double search_step_seconds(const Plan *p, const RowCounts *rows, const CostRates *rates, double seq_len, double micros)
{
    double kfac = 0;
    const Range ranges[] = {p->gather, p->invert, p->adopt};
    for (int i = 0; p->kfac_interval && i < 3; i++)
        kfac += plan_cost(p, ranges[i], rows, seq_len, rates, NULL) / p->kfac_interval;
    return kfac + plan_cost(p, p->couple, rows, seq_len, rates, NULL) +
           search_forward_again(p, rows, micros) * plan_cost(p, p->forward, rows, seq_len, rates, NULL) +
           micros * plan_cost(p, p->micro, rows, seq_len, rates, NULL) +
           plan_cost(p, p->update, rows, seq_len, rates, NULL) + plan_cost(p, p->begin, rows, seq_len, rates, NULL);
}

static size_t budget_of(const SearchProblem *s) { return s->accounts->row[0].budget; }

/* Peak and time of a plan that was laid out. */
typedef struct {
    size_t peak;    /* SIZE_MAX where another memory than the first has no room */
    size_t other;   /* of the peak, all but activations */
    size_t left;    /* bytes of the last memory that are free then; SIZE_MAX where that is the first */
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
                     .left = machine == first                  ? SIZE_MAX
                             : machine->peak < machine->budget ? machine->budget - machine->peak
                                                               : 0,
                     .other = first->peak - bytes[REGION_ACT],
                     .seconds = search_step_seconds(&p, &s->rows, &s->rates, s->seq_len, s->micros)};
    plan_free(&p);
    return OK;
}

/* Choices for the layers up to this one that take `most` picoseconds, at most. */
static void extend(const Kinds *t, const Front *below, int layer, int64_t window, int64_t room, int64_t most,
                   Front *front)
{
    LayerCost costs[MOST_KINDS];
    for (int k = 0; k < t->n; k++) costs[k] = kinds_cost(t, layer, k, window);
    front_extend(below, costs, t->n, room, most, front);
}

typedef struct {
    int64_t picoseconds, peak; /* of all layers; of the activations, with the window */
} Found;

static void add_peak(int64_t *peak, int64_t kept) { *peak = kept > *peak ? kept : *peak; }

/* Makes `found` the fastest choice for all layers within `room` bytes of activations and with windows of such a size,
   where it is faster. */
static void try_window(const Kinds *t, int64_t window, int64_t room, LayerKeep *keeps, Found *found)
{
    Front *fronts = mem_array((size_t)t->layers + 1, sizeof *fronts);
    int64_t most = found->picoseconds - 1 - t->picoseconds;
    front_init(fronts);
    for (int l = 0; l < t->layers; l++) {
        most += t->all[0].layers[l].picoseconds; /* the layers above take as long as if they keep all, at least */
        extend(t, &fronts[l], l, window, room - window, most, &fronts[l + 1]);
    }
    const bool any = fronts[t->layers].n > 0 && t->below <= room - window;
    if (any) *found = (Found){fronts[t->layers].points[0].picoseconds, t->below + window};
    for (int l = t->layers - 1, at = 0; any && l >= 0; l--) {
        const FrontPoint *p = &fronts[l + 1].points[at];
        keeps[l] = t->all[p->cost].keep;
        add_peak(&found->peak, fronts[l].points[p->from].kept + kinds_cost(t, l, p->cost, window).peak + window);
        at = p->from;
    }
    for (int l = 0; l <= t->layers; l++) front_free(&fronts[l]);
    free(fronts);
}

/* False: no choice is within the room. */
static bool fastest(const Kinds *t, int64_t room, LayerKeep *keeps, Found *found)
{
    *found = (Found){.picoseconds = NEVER};
    for (int w = 0; w < t->n_windows; w++) try_window(t, t->windows[w], room, keeps, found);
    return found->picoseconds < NEVER;
}

/* In each layer the choice that keeps least, of those within the room. */
static bool keep_least_beside(const Kinds *t, int64_t window, int64_t room, LayerKeep *keeps, int64_t *picoseconds)
{
    int64_t kept = 0, time = 0;
    *picoseconds = 0;
    for (int l = 0; l < t->layers; l++) {
        int64_t least = NEVER;
        for (int k = 0; k < t->n; k++) {
            const LayerCost c = kinds_cost(t, l, k, window);
            if (kept + c.peak > room - window || c.kept >= least) continue;
            keeps[l] = t->all[k].keep;
            least = c.kept;
            time = c.picoseconds;
        }
        if (least == NEVER) return false;
        kept += least;
        *picoseconds += time;
    }
    return t->below <= room - window;
}

static bool keep_least(const Kinds *t, int64_t room, LayerKeep *keeps, int64_t *picoseconds)
{
    bool fits = false;
    for (int w = 0; w < t->n_windows && !fits; w++)
        fits = keep_least_beside(t, t->windows[w], room, keeps, picoseconds);
    return fits;
}

/* The choice with the smallest peak. */
static int64_t smallest(const Kinds *t, LayerKeep *keeps)
{
    int64_t low = 0, high = 1, picoseconds;
    while (!keep_least(t, high, keeps, &picoseconds)) high *= 2;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        *(keep_least(t, middle, keeps, &picoseconds) ? &high : &low) = middle;
    }
    keep_least(t, high, keeps, &picoseconds);
    return picoseconds;
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

/* A sum, so that less memory is never faster. */
static double step_seconds(const SearchProblem *s, const Kinds *t, int64_t picoseconds)
{
    return t->seconds + s->micros * (double)(picoseconds - t->picoseconds) * 1e-12;
}

static int n_runs(const LayerChoice *c, int layers)
{
    int n = 1;
    for (int l = 1; l < layers; l++) n += memcmp(&c->keeps[l], &c->keeps[l - 1], sizeof *c->keeps) != 0;
    return n;
}

/* The fastest choice whose exact peak fits. Where a plan takes more than its layers say, the next smaller room is
   tried, and where the choice has more runs than a policy: the rooms do not depend on the budget, so that a larger one
   is never slower. */
static Status first_fitting(const SearchProblem *s, const Kinds *t, SearchResult *r, double *simulated)
{
    Trial trial;
    Found found;
    size_t evaluation = s->evaluation ? s->evaluation->region_bytes[REGION_ACT] : 0;
    if (budget_of(s) < t->other + evaluation) return OK;
    for (int64_t room = (int64_t)(budget_of(s) - t->other); fastest(t, room, r->layers.keeps, &found);
         room = found.peak - 1) {
        r->layouts++;
        TRY(try_layers(s, &r->layers, &trial));
        if (trial.peak == SIZE_MAX) return OK; /* whatever is offloaded, which `room` bounds */
        if (trial.peak > budget_of(s) || n_runs(&r->layers, t->layers) > POLICY_RUNS) continue;
        set_found(r, &trial);
        r->step_s = step_seconds(s, t, found.picoseconds);
        *simulated = trial.seconds;
        describe(&r->layers, t->layers);
        return OK;
    }
    return OK;
}

static Status take_smallest(const SearchProblem *s, const Kinds *t, SearchResult *r)
{
    Trial trial;
    const int64_t picoseconds = smallest(t, r->layers.keeps);
    r->layouts++;
    TRY(try_layers(s, &r->layers, &trial));
    set_found(r, &trial);
    r->step_s = step_seconds(s, t, picoseconds);
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

/* Where copies are possible, and layers have to give up something, with them too; `r` may be taken over. A choice
   whose lanes wait for each other, so that it takes no less in fact, is not taken. */
static Status try_offloaded(const SearchProblem *s, Kinds *t, SearchResult *r)
{
    Status status = OK;
    SearchResult other = {0};
    double simulated = 0;
    layer_choice_init(&other.layers, t->layers, r->layers.norm_forms);
    kinds_add_offloaded(t);
    TRY_DONE(first_fitting(s, t, &other, &simulated));
    if (!other.fits && !r->fits) TRY_DONE(take_smallest(s, t, &other));
    const bool slower = r->fits && simulated >= r->step_s;
    if (other.fits || !r->fits) take_if(is_faster(&other, r) && !slower, r, &other);
    if (other.fits && slower) r->step_s = fmin(r->step_s, other.step_s); /* never rises with the budget */
done:
    layer_choice_free(&other.layers);
    return status;
}

Status search_layers(const SearchProblem *s, SearchResult *r)
{
    Status status = OK;
    int layers = s->training.model->config.layers;
    const uint8_t *forms = s->training.emit.layers->norm_forms;
    Kinds t = {0};
    Trial none;
    double simulated;
    SearchResult blocks = {0};
    *r = blocks;
    layer_choice_init(&r->layers, layers, forms);
    layer_choice_init(&blocks.layers, layers, forms);
    TRY_DONE(try_layers(s, &r->layers, &none));
    TRY_DONE(kinds_make(s, &r->layers, &t));
    t.other = none.other;
    t.room = none.left < INT64_MAX ? (int64_t)none.left : INT64_MAX;
    t.seconds = none.seconds;
    TRY_DONE(first_fitting(s, &t, r, &simulated));
    if (!r->fits) TRY_DONE(take_smallest(s, &t, r));
    if (s->offload && !layer_choice_keeps_all(&r->layers, layers)) TRY_DONE(try_offloaded(s, &t, r));
    int64_t full = 0;
    for (int l = 0; l < layers; l++) full += t.all[FULL].layers[l].picoseconds;
    if (!r->fits || (s->offload && r->step_s > step_seconds(s, &t, full))) {
        TRY_DONE(try_blocks(s, layers, &blocks));
        take_if(is_faster(&blocks, r), r, &blocks);
    }
done:
    kinds_free(&t);
    layer_choice_free(&blocks.layers);
    if (status != OK) layer_choice_free(&r->layers);
    return status;
}
