#include "train/planner/search.h"

#define UNIFORM_LEVELS 6 /* none … full, offload; blocks of layers (every:K) are tried where none of these fits */

static const char *const level_names[N_LEVELS] = {"none", "lean", "ffn", "selective", "full", "offload", "inner"};

typedef struct {
    int16_t count[UNIFORM_LEVELS]; /* layers at each level */
    double seconds, kept;          /* predicted step; bytes it keeps between forward and backward, a lower bound */
} Candidate;

double search_step_seconds(const Plan *p, const RowCounts *rows, const CostRates *rates, double seq_len, double micros)
{
    double kfac = 0;
    const Range ranges[] = {p->gather, p->invert, p->adopt};
    for (int i = 0; p->kfac_interval && i < 3; i++)
        kfac += plan_cost(p, ranges[i], rows, seq_len, rates, NULL) / p->kfac_interval;
    return kfac + micros * plan_cost(p, p->micro, rows, seq_len, rates, NULL) +
           plan_cost(p, p->update, rows, seq_len, rates, NULL) + plan_cost(p, p->begin, rows, seq_len, rates, NULL);
}

/* The heavier levels go to the first layers, whose activations live longest. */
static void spread(const Candidate *c, uint8_t *levels)
{
    int l = 0;
    for (int level = UNIFORM_LEVELS - 1; level >= 0; level--)
        for (int i = 0; i < c->count[level]; i++) levels[l++] = (uint8_t)level;
}

static void set_policy(LayerChoice *c, const char *name) { snprintf(c->policy, sizeof c->policy, "auto (%s)", name); }

/* "none×8 lean×4" */
static void describe(LayerChoice *c, int n)
{
    char name[64];
    size_t used = 0;
    for (int l = 0; l < n && used < sizeof name;) {
        int run = l;
        while (run < n && c->levels[run] == c->levels[l]) run++;
        used += (size_t)snprintf(name + used, sizeof name - used, "%s%s×%d", l ? " " : "", level_names[c->levels[l]],
                                 run - l);
        l = run;
    }
    set_policy(c, name);
}

static size_t budget_of(const SearchProblem *s) { return s->accounts->row[0].budget; }

/* What a plan of exact levels needs. */
typedef struct {
    size_t peak;    /* SIZE_MAX where another memory than the first has no room */
    size_t other;   /* of it, all but activations */
    double seconds; /* of a step */
    double kept;    /* bytes between forward and backward */
} Trial;

static Status try_levels(const SearchProblem *s, const LayerChoice *layers, Trial *trial)
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
    InstrId turn = p.micro.first;
    while (p.instrs[turn].phase == PHASE_FORWARD) turn++;
    *trial = (Trial){.peak = machine != first && machine->peak > machine->budget ? SIZE_MAX : first->peak,
                     .other = first->peak - bytes[REGION_ACT],
                     .seconds = search_step_seconds(&p, &s->rows, &s->rates, s->seq_len, s->micros),
                     .kept = (double)plan_live_bytes(&p, turn)};
    plan_free(&p);
    return OK;
}

static int faster_first(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
    if (x->kept != y->kept) return x->kept < y->kept ? -1 : 1;
    return memcmp(x->count, y->count, sizeof x->count);
}

/* What a level adds to a layer at level none. */
typedef struct {
    double seconds, kept;
} Added;

/* The last layer is apart: it computes fewer rows, and offloaded it keeps its input. */
typedef struct {
    double base_seconds, base_kept;
    Added below[UNIFORM_LEVELS], last[UNIFORM_LEVELS];
    int levels, smallest; /* none … full, or offload; the one whose uniform plan has the smallest peak */
    size_t smallest_peak;
    double smallest_seconds;
    size_t other_bytes; /* of none's peak, all but activations */
} Slopes;

static Added added(const Trial *to, const Trial *from, int layers)
{
    return (Added){(to->seconds - from->seconds) / layers, (to->kept - from->kept) / layers};
}

/* Changes the levels of `c`. */
static Status find_slopes(const SearchProblem *s, int layers, LayerChoice *c, Slopes *slopes)
{
    Trial none = {0}, below = {0}, all;
    *slopes = (Slopes){.levels = s->offload ? UNIFORM_LEVELS : UNIFORM_LEVELS - 1, .smallest_peak = SIZE_MAX};
    for (int level = 0; level < slopes->levels; level++) {
        memset(c->levels, level, (size_t)layers);
        TRY(try_levels(s, c, &all));
        if (all.peak < slopes->smallest_peak) {
            slopes->smallest = level;
            slopes->smallest_peak = all.peak;
            slopes->smallest_seconds = all.seconds;
        }
        if (level == LEVEL_NONE) none = below = all;
        c->levels[layers - 1] = LEVEL_NONE;
        if (level != LEVEL_NONE && layers > 1) {
            TRY(try_levels(s, c, &below));
            slopes->below[level] = added(&below, &none, layers - 1);
        }
        slopes->last[level] = added(&all, &below, 1);
    }
    slopes->base_seconds = none.seconds;
    slopes->base_kept = none.kept;
    slopes->other_bytes = none.other;
    return OK;
}

#define MOST_CANDIDATES 5000000 /* 100 layers of five levels have 4 598 126, 53 of six 4 582 116 */

static double combinations(int layers, int levels)
{
    double n = 1; /* (layers + levels − 1 over levels − 1) */
    for (int i = 1; i < levels; i++) n = n * (layers + i) / i;
    return n;
}

/* Layers are counted in grains of one, of more only where there are too many of them. */
static int grain_of(int layers, int levels)
{
    int grain = 1;
    while (combinations((layers + grain - 1) / grain, levels) > MOST_CANDIDATES) grain++;
    return grain;
}

static void predict(Candidate *c, const Slopes *slopes)
{
    int last = LEVEL_NONE; /* the lightest */
    while (c->count[last] == 0) last++;
    c->seconds = slopes->base_seconds + slopes->last[last].seconds - slopes->below[last].seconds;
    c->kept = slopes->base_kept + slopes->last[last].kept - slopes->below[last].kept;
    for (int i = 0; i < UNIFORM_LEVELS; i++) {
        c->seconds += c->count[i] * slopes->below[i].seconds;
        c->kept += c->count[i] * slopes->below[i].kept;
    }
}

/* All ways to share `left` layers among the levels from `level` on, in whole grains where that is possible. `out` NULL:
   only counts. */
static void enumerate(Candidate c, int level, int left, int grain, const Slopes *slopes, Candidate *out, size_t *n)
{
    if (level == slopes->levels - 1) {
        c.count[level] = (int16_t)left;
        predict(&c, slopes);
        if (out) out[*n] = c;
        (*n)++;
        return;
    }
    for (int i = 0; i <= left; i = i < left && i + grain > left ? left : i + grain) {
        c.count[level] = (int16_t)i;
        enumerate(c, level + 1, left - i, grain, slopes, out, n);
    }
}

/* A heap with the fastest on top: of millions of candidates only the first few are laid out. */
static void sift(Candidate *heap, size_t n, size_t at)
{
    Candidate moving = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && faster_first(&heap[child + 1], &heap[child]) < 0) child++;
        if (faster_first(&moving, &heap[child]) <= 0) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void set_found(SearchResult *r, const Trial *trial)
{
    r->fits = true;
    r->peak = trial->peak;
    r->step_s = trial->seconds;
}

/* The fastest candidate whose exact peak fits. Destroys `all`. */
static Status first_fitting(const SearchProblem *s, Candidate *all, size_t n, size_t other, int layers, SearchResult *r)
{
    size_t possible = 0;
    Trial trial;
    for (size_t i = 0; i < n; i++) /* `kept` is a lower bound, so the others cannot fit */
        if ((double)other + all[i].kept <= (double)budget_of(s)) all[possible++] = all[i];
    n = possible;
    for (size_t i = n / 2; i-- > 0;) sift(all, n, i);
    while (n > 0 && !r->fits) {
        Candidate c = all[0];
        spread(&c, r->layers.levels);
        all[0] = all[--n];
        sift(all, n, 0);
        r->layouts++;
        TRY(try_levels(s, &r->layers, &trial));
        if (trial.peak > budget_of(s)) continue;
        set_found(r, &trial);
        if (c.count[LEVEL_OFFLOAD]) r->step_s = c.seconds; /* a sum, so that less memory is never faster */
        describe(&r->layers, layers);
    }
    return OK;
}

/* Blocks of K layers, the smallest K that fits, for budgets below every layer's input, or a slow link. A larger K keeps
   fewer inputs and needs more inside a block, so the search ends a little beyond the K with the smallest peak. Where
   none fits, `r` is that one. */
static Status try_blocks(const SearchProblem *s, int layers, SearchResult *r)
{
    Trial trial;
    char name[24];
    int best = 2;
    r->peak = SIZE_MAX;
    for (int k = 2; k <= layers && k <= 2 * best + 8 && !r->fits; k++) {
        policy_levels((Policy){POLICY_EVERY, k}, layers, r->layers.levels);
        r->layouts++;
        TRY(try_levels(s, &r->layers, &trial));
        if (trial.peak < r->peak) {
            r->peak = trial.peak;
            r->step_s = trial.seconds;
            best = k;
        }
        if (trial.peak <= budget_of(s)) set_found(r, &trial);
    }
    policy_levels((Policy){POLICY_EVERY, best}, layers, r->layers.levels);
    policy_format((Policy){POLICY_EVERY, best}, name);
    set_policy(&r->layers, name);
    return OK;
}

/* The smallest of the uniform plans, where none fits. */
static void take_uniform(const Slopes *slopes, int layers, SearchResult *r)
{
    r->peak = slopes->smallest_peak;
    r->step_s = slopes->smallest_seconds;
    memset(r->layers.levels, slopes->smallest, (size_t)layers);
    describe(&r->layers, layers);
}

Status search_levels(const SearchProblem *s, SearchResult *r)
{
    Status status = OK;
    int layers = s->training.model->config.layers;
    Slopes slopes;
    size_t n = 0;
    Candidate *all = NULL;
    SearchResult blocks = {0};
    *r = blocks;
    layer_choice_init(&r->layers, layers, s->training.emit.layers->norm_forms);
    layer_choice_init(&blocks.layers, layers, s->training.emit.layers->norm_forms);
    TRY_DONE(find_slopes(s, layers, &r->layers, &slopes));
    int grain = grain_of(layers, slopes.levels);
    enumerate((Candidate){0}, 0, layers, grain, &slopes, NULL, &n);
    all = mem_array(n, sizeof *all);
    n = 0;
    enumerate((Candidate){0}, 0, layers, grain, &slopes, all, &n);
    TRY_DONE(first_fitting(s, all, n, slopes.other_bytes, layers, r));
    if (!r->fits) take_uniform(&slopes, layers, r);
    if (!r->fits || r->layers.levels[0] == LEVEL_OFFLOAD) { /* spread() begins with the heaviest level */
        TRY_DONE(try_blocks(s, layers, &blocks));
        blocks.layouts += r->layouts;
        bool better = blocks.fits && r->fits ? blocks.step_s < r->step_s : blocks.peak < r->peak;
        if (blocks.fits >= r->fits && better) {
            SearchResult other = *r;
            *r = blocks;
            blocks = other;
        }
    }
done:
    free(all);
    layer_choice_free(&blocks.layers);
    if (status != OK) layer_choice_free(&r->layers);
    return status;
}
