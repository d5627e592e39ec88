/* The certificate of a plan (plan/bound.h) against random schedules of a simulator that knows the graph alone, and,
   with `--recompute auto`, against every choice of parts of small models. Models and costs are random. */
#include "problem.h"

#include "plan/bound.h"

/* A backend of whose products GELU is a part, wherever it is asked. */
static bool fuses_all(const OpCall *call) { return call->attr.linear.fused; }
static const Backend *fusing(void)
{
    static Backend b;
    assert_ok(backend_table("ref", &b));
    b.fuses = fuses_all;
    return &b;
}

/* `micro` of the model where layers keep `keeps`; NULL: all. */
static void sketch(const Problem *t, LayerKeep *keeps, Plan *p)
{
    ModelTensors tensors;
    PlanRequest r = t->search.training;
    LayerChoice c = {.keeps = keeps ? keeps : t->layers.keeps, .norm_forms = t->layers.norm_forms};
    r.emit.layers = &c;
    r.sketch = true;
    assert_ok(plan_make(&r, p, &tensors, NULL));
}

/* ---- random schedules ---- */

/* A machine that runs the graph in which layers keep all, an instr at a time, within a limit of bytes. It drops
   forward tensors, those that it planned to when forward has read them and any at the limit, and makes them again, with
   what that reads in turn. */
typedef struct {
    const Plan *p;
    const Instr *instrs; // (n) of micro
    int n;
    int64_t *picoseconds, *with_g; // (n) of the instr; of a GELU_BWD that makes its GELU's output again
    int *maker;                    // (tensors) its first writer
    int *unread, *forward;         // (tensors) readers that have not run yet; those of them in forward
    int *pinned;                   // (tensors) by instrs that run now
    bool *resident, *ran;          // (tensors), (n)
    bool *given_up;                // (tensors) dropped between forward and backward
    int *rank;                     // (tensors) at the limit those of low rank are dropped first
    bool steady;                   /* ranks hold for the whole schedule */
    bool tidy;                     /* drops what no instr will read, and overwrites only what it drops anyway */
    bool backward;                 /* has begun */
    int64_t live, limit, peak, picoseconds_run;
} Machine;

static bool is_activation(const Machine *m, TensorId t) { return t != NONE && m->p->tensors[t].region == REGION_ACT; }
static int64_t bytes_of(const Machine *m, TensorId t) { return ((int64_t)m->p->tensors[t].bytes + 63) / 64 * 64; }

/* Backward runs once, and so does what adds to sums of the step or writes for the host. */
static bool may_run_again(const Machine *m, int i)
{
    bool again = m->instrs[i].phase != PHASE_BACKWARD;
    for (int k = 0; k < OP_MAX_OUT; k++) again &= m->instrs[i].out[k] == NONE || is_activation(m, m->instrs[i].out[k]);
    return again;
}

static bool may_drop(const Machine *m, TensorId t)
{
    return m->resident[t] && !m->pinned[t] && (m->unread[t] == 0 || may_run_again(m, m->maker[t]));
}

static void drop(Machine *m, TensorId t)
{
    m->resident[t] = false;
    m->live -= bytes_of(m, t);
}

/* Drops tensors until so many bytes more are within the limit. False: no further tensor may be dropped. */
static bool make_room(Machine *m, int64_t bytes)
{
    while (m->live + bytes > m->limit) {
        TensorId victim = NONE;
        for (TensorId t = 0; t < m->p->n_tensors; t++) {
            if (!is_activation(m, t) || !may_drop(m, t)) continue;
            if (!m->steady) m->rank[t] = below(1 << 20);
            const int rank = m->unread[t] ? m->rank[t] : -1;
            if (victim == NONE || rank < (m->unread[victim] ? m->rank[victim] : -1)) victim = t;
        }
        if (victim == NONE) return false;
        drop(m, victim);
    }
    return true;
}

static bool run_again(Machine *m, TensorId t);

/* An input whose memory output k takes over; NONE: it has its own. */
static TensorId taken_input(const Machine *m, const Instr *instr, int k, uint32_t taken)
{
    const int share = op_info(instr->op)->out[k].shares;
    const TensorId in = share < 0 ? NONE : instr->in[share];
    if (!is_activation(m, in) || taken >> share & 1 || m->pinned[in] > 1) return NONE;
    if (bytes_of(m, in) != bytes_of(m, instr->out[k])) return NONE;
    if (m->unread[in] == 0) return in;
    if (!may_run_again(m, m->maker[in])) return NONE;
    return (m->tidy ? !m->backward && m->given_up[in] && m->forward[in] == 0 : chance(50)) ? in : NONE;
}

/* `first`: the instr's own turn; else it runs once more. */
static bool execute(Machine *m, const Instr *instr, int64_t picoseconds, bool first)
{
    uint32_t taken = 0;
    int64_t room = 0;
    TensorId from[OP_MAX_OUT];
    for (int k = 0; k < OP_MAX_IN; k++) {
        const TensorId t = instr->in[k];
        if (!is_activation(m, t)) continue;
        if (!m->resident[t] && !run_again(m, t)) return false;
        m->pinned[t]++;
        m->unread[t] -= first;
        m->forward[t] -= first && instr->phase == PHASE_FORWARD;
    }
    for (int k = 0; k < OP_MAX_OUT; k++) {
        const TensorId t = instr->out[k];
        from[k] = NONE;
        if (!is_activation(m, t)) continue;
        if (!m->resident[t]) from[k] = taken_input(m, instr, k, taken);
        if (from[k] != NONE) taken |= 1u << op_info(instr->op)->out[k].shares;
        assert_true(from[k] != NONE || m->resident[t] || !op_info(instr->op)->out[k].shares_always ||
                    instr->in[op_info(instr->op)->out[k].shares] == NONE);
        if (!m->resident[t] && from[k] == NONE) room += bytes_of(m, t);
        m->pinned[t]++;
    }
    if (!make_room(m, room)) return false;
    m->live += room;
    if (m->live > m->peak) m->peak = m->live;
    m->picoseconds_run += picoseconds;
    for (int k = 0; k < OP_MAX_OUT; k++) {
        if (!is_activation(m, instr->out[k])) continue;
        m->resident[instr->out[k]] = true;
        m->pinned[instr->out[k]]--;
        if (from[k] != NONE) m->resident[from[k]] = false;
    }
    for (int k = 0; k < OP_MAX_IN; k++)
        if (is_activation(m, instr->in[k])) m->pinned[instr->in[k]]--;
    return true;
}

/* The ADDNORM from whose xhat an AFFINE makes y; run again it makes y itself. */
static bool norm_again(Machine *m, const Instr *affine)
{
    const int norm = m->maker[affine->in[AFFINE_IN_xhat]];
    Instr again = m->instrs[norm];
    again.out[ADDNORM_OUT_y] = affine->out[AFFINE_OUT_y];
    return execute(m, &again, m->picoseconds[norm], false);
}

static bool run_again(Machine *m, TensorId t)
{
    const int i = m->maker[t];
    assert_true(may_run_again(m, i) && m->ran[i]);
    if (m->instrs[i].op == OP_AFFINE && chance(50)) return norm_again(m, &m->instrs[i]);
    return execute(m, &m->instrs[i], m->picoseconds[i], false);
}

static bool take_turn(Machine *m, int i)
{
    Instr instr = m->instrs[i];
    int64_t picoseconds = m->picoseconds[i];
    m->ran[i] = true;
    m->backward |= instr.phase == PHASE_BACKWARD;
    if (instr.op == OP_AFFINE && chance(m->resident[instr.in[AFFINE_IN_xhat]] ? 10 : 60)) {
        m->unread[instr.in[AFFINE_IN_xhat]]--;
        return norm_again(m, &instr);
    }
    if (instr.op == OP_GELU_BWD) {
        const TensorId g = m->instrs[instr.origin - m->p->micro.first].out[GELU_OUT_g];
        if (!m->resident[g] && m->unread[g] && chance(70)) {
            instr.out[GELU_BWD_OUT_g] = g;
            picoseconds = m->with_g[i];
        }
    }
    return execute(m, &instr, picoseconds, true);
}

/* Whether all that it reads was made, and no other instr will read what it adds to. */
static bool is_ready(const Machine *m, int i)
{
    const OpInfo *info = op_info(m->instrs[i].op);
    bool ready = !m->ran[i];
    for (int k = 0; k < OP_MAX_IN && ready; k++)
        ready = !is_activation(m, m->instrs[i].in[k]) || m->ran[m->maker[m->instrs[i].in[k]]];
    for (int k = 0; k < info->n_out && ready; k++) {
        const TensorId in = info->out[k].shares_always ? m->instrs[i].in[info->out[k].shares] : NONE;
        ready = in == NONE || m->unread[in] == 1;
    }
    return ready;
}

/* The next instr of the plan's order, or one at random of those that could run; with `late` weight gradients wait. */
static int next_turn(const Machine *m, int random, int late)
{
    int ready = 0, chosen = NONE, first = NONE;
    const bool any = chance(random);
    for (int i = 0; i < m->n; i++) {
        if (!is_ready(m, i)) continue;
        if (first == NONE) first = i;
        if (!any && (m->instrs[i].op != OP_LINEAR_WGRAD || !chance(late))) return i;
        if (any && below(++ready) == 0) chosen = i;
    }
    return chosen != NONE ? chosen : first;
}

static void sweep(Machine *m)
{
    for (TensorId t = 0; t < m->p->n_tensors; t++)
        if (is_activation(m, t) && may_drop(m, t) &&
            (m->unread[t] == 0 ? m->tidy || chance(50) : m->given_up[t] && m->forward[t] == 0 && !m->backward))
            drop(m, t);
}

/* False: the limit does not hold. */
static bool simulate(Machine *m, int64_t limit, int random, int late)
{
    const size_t n_tensors = (size_t)m->p->n_tensors;
    m->limit = limit;
    m->live = m->peak = m->picoseconds_run = 0;
    memset(m->unread, 0, n_tensors * sizeof *m->unread);
    memset(m->forward, 0, n_tensors * sizeof *m->forward);
    memset(m->pinned, 0, n_tensors * sizeof *m->pinned);
    memset(m->resident, 0, n_tensors * sizeof *m->resident);
    memset(m->ran, 0, (size_t)m->n * sizeof *m->ran);
    m->backward = false;
    for (size_t t = 0; t < n_tensors; t++) m->rank[t] = below(1 << 20);
    for (int i = 0; i < m->n; i++)
        for (int k = 0; k < OP_MAX_IN; k++)
            if (is_activation(m, m->instrs[i].in[k])) {
                m->unread[m->instrs[i].in[k]]++;
                m->forward[m->instrs[i].in[k]] += m->instrs[i].phase == PHASE_FORWARD;
            }
    for (int turn = 0; turn < m->n; turn++) {
        if (!take_turn(m, next_turn(m, random, late))) return false;
        sweep(m);
    }
    return true;
}

static void machine_init(Machine *m, const Problem *t, const Plan *p)
{
    const SearchProblem *s = &t->search;
    const size_t n = (size_t)p->micro.count, n_tensors = (size_t)p->n_tensors;
    *m = (Machine){.p = p,
                   .instrs = p->instrs + p->micro.first,
                   .n = (int)n,
                   .picoseconds = mem_array(n, sizeof(int64_t)),
                   .with_g = mem_array(n, sizeof(int64_t)),
                   .maker = mem_array(n_tensors, sizeof(int)),
                   .forward = mem_array(n_tensors, sizeof(int)),
                   .given_up = mem_array(n_tensors, sizeof(bool)),
                   .unread = mem_array(n_tensors, sizeof(int)),
                   .pinned = mem_array(n_tensors, sizeof(int)),
                   .resident = mem_array(n_tensors, sizeof(bool)),
                   .ran = mem_array(n, sizeof(bool)),
                   .rank = mem_array(n_tensors, sizeof(int))};
    for (int i = m->n - 1; i >= 0; i--) {
        OpCall call;
        OpCost cost;
        CostBound largest;
        Instr instr = m->instrs[i];
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (instr.out[k] != NONE) m->maker[instr.out[k]] = i;
        plan_call(p, &instr, &call);
        m->picoseconds[i] = llround(1e12 * plan_call_cost(&call, &s->rows, s->seq_len, &s->rates, &cost, &largest));
        if (instr.op != OP_GELU_BWD) continue;
        instr.out[GELU_BWD_OUT_g] = instr.in[GELU_BWD_IN_pre]; /* as large */
        plan_call(p, &instr, &call);
        m->with_g[i] = llround(1e12 * plan_call_cost(&call, &s->rows, s->seq_len, &s->rates, &cost, &largest));
    }
}

static void machine_free(Machine *m)
{
    MEM_FREE(m->picoseconds, m->with_g, m->maker, m->unread, m->forward, m->given_up, m->pinned, m->resident, m->ran,
             m->rank);
}

/* What a schedule comes to, and how near it came to the bound. */
typedef struct {
    int held, all_kept;
    Sample time, room;
} Schedules;

/* Tries schedules of a graph: wild ones, and ones that change a little in what the nearest one so far gave up. No
   schedule adds less, or has its peak lower, than the bound says. */
static void try_schedules(const Problem *t, int n, Schedules *found)
{
    Plan p;
    Machine m;
    sketch(t, NULL, &p);
    machine_init(&m, t, &p);
    PlanBound *b = plan_bound_make(&p, &t->search.rows, t->search.seq_len, &t->search.rates, INT64_MAX / 2);
    const int64_t most = live_peak(&p), least = plan_bound_room(b, INT64_MAX);
    int64_t once = 0;
    double nearest = INFINITY;
    bool *best = mem_array((size_t)p.n_tensors, sizeof *best);
    for (int i = 0; i < m.n; i++) once += m.picoseconds[i];
    for (int k = 0; k < n; k++) {
        const bool wild = k % 3 == 0;
        const int given_up = below(100), limit = wild && chance(70) ? below(1050) : 0;
        m.steady = chance(70), m.tidy = !wild || chance(50);
        for (TensorId x = 0; x < p.n_tensors; x++) m.given_up[x] = wild ? chance(given_up) : best[x] ^ chance(2);
        if (!simulate(&m, limit ? least + (most - least) * limit / 1000 : INT64_MAX / 2, wild ? below(20) : 0,
                      chance(50) ? 0 : below(60)))
            continue;
        const int64_t added = m.picoseconds_run - plan_bound_least(b);
        const int64_t least_added = plan_bound_added(b, m.peak), least_room = plan_bound_room(b, added);
        found->held++;
        found->all_kept += m.picoseconds_run == once;
        if (least_added > added || least_room > m.peak)
            fail_msg("schedule %d, %d layers: %lld bytes and %lld ps more; the bound says %lld bytes, %lld ps", k,
                     p.n_layers, (long long)m.peak, (long long)added, (long long)least_room, (long long)least_added);
        sample_add(&found->room, (double)m.peak / (double)least_room);
        if (least_added == 0) continue;
        const double near = (double)added / (double)least_added;
        sample_add(&found->time, near);
        if (near <= nearest) memcpy(best, m.given_up, (size_t)p.n_tensors * sizeof *best);
        if (near <= nearest) nearest = near;
    }
    plan_bound_free(b);
    machine_free(&m);
    plan_free(&p);
    free(best);
}

static void test_random_schedules(void **state)
{
    const int graphs = testing_brief() ? 8 : testing_rounds(60, 1500), schedules = 300;
    Schedules found = {0};
    (void)state;
    for (int graph = 0; graph < graphs; graph++) {
        Problem t;
        random_problem(&t, 1 + below(4));
        random_rates(&t.search.rates);
        if (graph % 3 == 2) t.search.training.backend = fusing();
        try_schedules(&t, schedules, &found);
        problem_free(&t);
    }
    print_message("%d schedules of %d held their limit, %d of them ran nothing again\n", found.held, graphs * schedules,
                  found.all_kept);
    assert_true(found.held > graphs * schedules / 2);
    sample_print("added time / bound", &found.time);
    sample_print("peak / bound", &found.room);
    if (!testing_brief()) /* of many some reach the bound */
        assert_true(sample_at(&found.time, 0) < 1.001 && sample_at(&found.room, 0) < 1.01);
    MEM_FREE(found.time.values, found.room.values);
}

/* ---- every choice ---- */

/* Calls that take as long as each other under any rates. */
typedef struct {
    OpCall call;
    OpCost cost;
} CallKind;

enum { MOST_CALL_KINDS = 64 };

/* Choices of parts for all layers: their peaks, which no rate changes, and how many calls of each kind they have. */
typedef struct {
    int n, n_kinds;
    bool all; /* false: those that keep all inputs */
    CallKind kinds[MOST_CALL_KINDS];
    int64_t *peaks;                     // (n)
    bool *keeps_inputs;                 // (n)
    uint8_t (*counts)[MOST_CALL_KINDS]; // (n)
    double *picoseconds;                // (n) under the rates at hand
} Choices;

static int kind_of(Choices *c, const OpCall *call, const OpCost *cost)
{
    for (int k = 0; k < c->n_kinds; k++)
        if (c->kinds[k].call.op == call->op && memcmp(&c->kinds[k].cost, cost, sizeof *cost) == 0) return k;
    assert_true(c->n_kinds < MOST_CALL_KINDS);
    c->kinds[c->n_kinds] = (CallKind){*call, *cost};
    return c->n_kinds++;
}

static bool keep_inputs(const Problem *t, const LayerKeep *keeps)
{
    bool all = true;
    for (int l = 0; l < t->model.config.layers; l++) all &= !(keeps[l].recomputed & PART_BIT(INPUT));
    return all;
}

static void add_choice(const Problem *t, LayerKeep *keeps, Choices *c)
{
    Plan p;
    sketch(t, keeps, &p);
    c->peaks[c->n] = live_peak(&p);
    c->keeps_inputs[c->n] = keep_inputs(t, keeps);
    memset(c->counts[c->n], 0, sizeof c->counts[c->n]);
    for (int i = 0; i < p.micro.count; i++) {
        OpCall call;
        plan_call(&p, &p.instrs[p.micro.first + i], &call);
        const OpCost cost = op_cost(&call, &t->search.rows, t->search.seq_len);
        c->counts[c->n][kind_of(c, &call, &cost)]++;
    }
    c->n++;
    plan_free(&p);
}

/* All choices, or those that keep all inputs. */
static void make_choices(const Problem *t, bool inputs_too, Choices *c)
{
    const unsigned n = 1u << t->model.config.layers * LAYER_PARTS;
    *c = (Choices){.peaks = mem_array((size_t)n, sizeof *c->peaks),
                   .keeps_inputs = mem_array((size_t)n, sizeof *c->keeps_inputs),
                   .counts = mem_array((size_t)n, sizeof *c->counts),
                   .picoseconds = mem_array((size_t)n, sizeof *c->picoseconds)};
    c->all = inputs_too;
    for (unsigned parts = 0; parts < n; parts++) {
        LayerKeep keeps[3];
        for (int l = 0; l < 3; l++)
            keeps[l] = (LayerKeep){.recomputed = (uint8_t)(parts >> l * LAYER_PARTS & ALL_PARTS)};
        if (inputs_too || keep_inputs(t, keeps)) add_choice(t, keeps, c);
    }
}

static void set_times(const Problem *t, Choices *c)
{
    double picoseconds[MOST_CALL_KINDS];
    CostBound largest;
    const SearchProblem *s = &t->search;
    for (int k = 0; k < c->n_kinds; k++)
        picoseconds[k] =
            1e12 * plan_call_cost(&c->kinds[k].call, &s->rows, s->seq_len, &s->rates, &c->kinds[k].cost, &largest);
    for (int i = 0; i < c->n; i++) {
        c->picoseconds[i] = 0;
        for (int k = 0; k < c->n_kinds; k++) c->picoseconds[i] += c->counts[i][k] * picoseconds[k];
    }
}

static void choices_free(Choices *c) { MEM_FREE(c->peaks, c->keeps_inputs, c->counts, c->picoseconds); }

/* The shortest time of a choice within `room`; infinite: there is none. */
static double shortest(const Choices *c, int64_t room, bool inputs_kept)
{
    double best = INFINITY;
    for (int i = 0; i < c->n; i++)
        if (c->peaks[i] <= room && (c->keeps_inputs[i] || !inputs_kept)) best = fmin(best, c->picoseconds[i]);
    return best;
}

/* The smallest peak of a choice that takes so long at most. */
static int64_t smallest(const Choices *c, double picoseconds)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < c->n; i++)
        if (c->picoseconds[i] <= picoseconds && c->peaks[i] < best) best = c->peaks[i];
    return best;
}

typedef struct {
    Sample time, room;        /* of each best choice: its time, and its peak, over the bound */
    Sample plan, certificate; /* of each search: its plan's time over that of the best choice, that over the bound */
    Sample layout;            /* bytes of a plan's layout over those that live at once */
    int searches, fitting, retried;
} Brute;

/* The choices that no other beats, from the largest peak down. */
static void check_front(const Choices *c, const PlanBound *b, Brute *found)
{
    const double rounding = 100; /* picoseconds, one for each instr's */
    const double once = (double)plan_bound_least(b);
    double best = shortest(c, INT64_MAX, false);
    while (best < INFINITY) {
        const int64_t peak = smallest(c, best);
        const double bound = once + (double)plan_bound_added(b, peak);
        const int64_t least = plan_bound_room(b, (int64_t)(best - once + rounding));
        if (bound > best + rounding || least > peak)
            fail_msg("%lld bytes and %.0f ps are possible; the bound says %lld bytes, %.0f ps", (long long)peak, best,
                     (long long)least, bound);
        sample_add(&found->time, best / bound);
        sample_add(&found->room, (double)peak / (double)least);
        best = shortest(c, peak - 1, false);
    }
}

static void check_search(Problem *t, const Choices *c, Brute *found)
{
    Answer a;
    const int64_t least = smallest(c, INFINITY), most = c->peaks[0];
    const int64_t room = least + (int64_t)(uniform() * 1.02 * (double)(most - least));
    answer(t, (size_t)room, &a);
    const double micro = a.micro * 1e12, little = 1e-9 * micro + 100,
                 certified = (a.bound.step_s - a.step) * 1e12 + micro;
    const double best = shortest(c, room, false), best_keeping = shortest(c, room, true);
    found->searches++;
    found->fitting += a.found.fits;
    sample_add(&found->layout, (double)a.found.peak / (double)a.live);
    found->retried += a.found.layouts > 1;
    if (certified > best + little) fail_msg("certified %.0f ps, but %.0f are possible", certified, best);
    const bool known = c->all || keep_inputs(t, a.found.layers.keeps);
    if (a.found.fits && known && best > micro + little)
        fail_msg("the plan takes %.0f ps, less than the best choice's %.0f", micro, best);
    if (a.found.fits && a.found.layouts == 1 && micro > best_keeping + little)
        fail_msg("the plan takes %.0f ps, %.0f are possible", micro, best_keeping);
    if ((int64_t)a.bound.least > least)
        fail_msg("certified %zu bytes at least, but %lld are possible", a.bound.least, (long long)least);
    if ((int64_t)a.bound.peak > smallest(c, micro))
        fail_msg("certified %zu bytes, but %lld are possible", a.bound.peak, (long long)smallest(c, micro));
    if (a.found.fits) sample_add(&found->plan, micro / best);
    if (a.found.fits) sample_add(&found->certificate, best / certified);
    answer_free(&a);
}

static void test_every_choice(void **state)
{
    const int graphs = testing_brief() ? 4 : testing_rounds(20, 40), tables = testing_rounds(25, 100), budgets = 2;
    Brute found = {0};
    (void)state;
    for (int graph = 0; graph < graphs; graph++) {
        Problem t;
        Choices c;
        Plan p;
        const int layers = graph % 14 == 13 ? 3 : 2;
        random_problem(&t, layers);
        make_choices(&t, layers == 2 || testing_deep(), &c);
        sketch(&t, NULL, &p);
        for (int table = 0; table < tables; table++) {
            random_rates(&t.search.rates);
            set_times(&t, &c);
            PlanBound *b = plan_bound_make(&p, &t.search.rows, t.search.seq_len, &t.search.rates, INT64_MAX / 2);
            check_front(&c, b, &found);
            plan_bound_free(b);
            for (int k = 0; k < budgets; k++) check_search(&t, &c, &found);
        }
        plan_free(&p);
        choices_free(&c);
        problem_free(&t);
    }
    print_message("%d of %d searches fit, %d laid out more than one plan\n", found.fitting, found.searches,
                  found.retried);
    sample_print("best choice / bound, time", &found.time);
    sample_print("best choice / bound, bytes", &found.room);
    sample_print("plan / best choice", &found.plan);
    sample_print("best choice / certificate", &found.certificate);
    sample_print("layout / live bytes", &found.layout);
    assert_true(found.fitting > found.searches * 3 / 4);
    assert_true(sample_at(&found.time, 0.95) < 1.1 && sample_at(&found.plan, 0.95) < 1.1);
    MEM_FREE(found.time.values, found.room.values, found.plan.values, found.certificate.values, found.layout.values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_choice), cmocka_unit_test(test_random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
