/* K-FAC's work in the bubbles: every assignment verified, and a verifier that sees each kind of mistake. */
#include "testing.h"

#include "plan/pipeline/fill.h"

enum { MOST_STAGES = 16 };

/* Seconds of stages of three layers, as bench/pipefisher.sh has them for BERT-Base on a P100. */
typedef struct {
    double seconds[N_WORKS][MOST_STAGES], inverse[12];
    int first[MOST_STAGES + 1];
    Schedule schedule;
    Timeline timeline;
    FillProblem problem;
    Fill fill;
} Case;

static void make_case(Case *c, PipelineKind kind, int places, int micros, int steps, bool whole)
{
    const double forward = 29.25e-3, backward = 49.35e-3;
    static const double of[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 64, 64, 1};
    Pipeline p = {kind, places, pipeline_chunks(kind), micros};
    ScheduleCosts costs = {.latency = 0};
    *c = (Case){.first = {0}};
    for (int s = 0; s < MOST_STAGES; s++) {
        c->first[s + 1] = c->first[s] + 3;
        c->seconds[WORK_FORWARD][s] = forward;
        c->seconds[WORK_BACKWARD][s] = backward;
        c->seconds[WORK_INPUT][s] = c->seconds[WORK_WEIGHT][s] = backward / 2;
    }
    for (int k = 0; k < N_WORKS; k++) costs.seconds[k] = c->seconds[k];
    for (int k = 0; k < 12; k++) c->inverse[k] = 71.7e-3 * of[k] / 138;
    schedule_make(&p, &c->schedule);
    schedule_simulate(&c->schedule, &costs, &c->timeline);
    c->problem = (FillProblem){.schedule = &c->schedule,
                               .timeline = &c->timeline,
                               .first = c->first,
                               .statistics = {25.5e-3 * 38 / 80, 25.5e-3 * 42 / 80},
                               .inverse = c->inverse,
                               .factors = 12,
                               .replicas = 1,
                               .step = c->timeline.sums_s,
                               .steps = steps,
                               .whole = whole};
    fill_make(&c->problem, &c->fill);
}

static void free_case(Case *c)
{
    fill_free(&c->fill);
    timeline_free(&c->timeline);
    schedule_free(&c->schedule);
}

static void test_all_schedules(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_PIPELINES; kind++)
        for (int places = 2; places <= 8; places += 2)
            for (int micros = 1; micros <= 2 * places + 1; micros += places)
                for (int steps = 1; steps <= 10; steps += 3)
                    for (int whole = 0; whole < 2; whole++) {
                        Case c;
                        make_case(&c, (PipelineKind)kind, places, micros, steps, whole);
                        assert_ok(fill_verify(&c.problem, &c.fill));
                        assert_true(c.fill.utilization <= 1 + 1e-9);
                        assert_true(c.fill.utilization > 1 - c.timeline.bubble - 1e-9 || c.fill.exposed > 0);
                        free_case(&c);
                    }
}

/* The figures of the specification, from the costs of PipeFisher's repository: steps, and utilization. */
static void test_figures(void **state)
{
    (void)state;
    static const struct {
        PipelineKind kind;
        bool whole; /* inverses in one piece, as the paper has them */
        int steps;
        double utilization;
    } want[] = {{PIPELINE_GPIPE, false, 3, 0.887}, {PIPELINE_1F1B, false, 3, 0.887}, {PIPELINE_1F1B, true, 4, 0.808}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        Case c;
        make_case(&c, want[i].kind, 4, 4, 10, want[i].whole);
        assert_int_equal(c.fill.steps, want[i].steps);
        assert_true(c.fill.utilization >= want[i].utilization - 5e-4);
        assert_true(c.fill.exposed == 0);
        free_case(&c);
    }
}

/* Pipelines beside each other share out the inverses. */
static void test_replicas(void **state)
{
    (void)state;
    Case one, four;
    make_case(&one, PIPELINE_1F1B, 4, 8, 10, false);
    make_case(&four, PIPELINE_1F1B, 4, 8, 10, false);
    fill_free(&four.fill);
    four.problem.replicas = 4;
    fill_make(&four.problem, &four.fill);
    assert_ok(fill_verify(&four.problem, &four.fill));
    assert_true(four.fill.seconds < one.fill.seconds - 0.5 * 12 * 71.7e-3);
    free_case(&one);
    free_case(&four);
}

static void test_verifier(void **state)
{
    (void)state;
    for (int broken = 0; broken < 9; broken++) {
        Case c;
        make_case(&c, PIPELINE_CHIMERA, 4, 4, 10, false);
        FillItem *items = c.fill.items, *statistic = NULL, *later = NULL, *piece = NULL, *inverse = NULL;
        for (int i = 0; i < c.fill.n; i++) {
            if (items[i].kind == FILL_GRADIENTS && items[i].micro == 0 && !statistic) statistic = &items[i];
            if (statistic && items[i].kind == FILL_GRADIENTS && items[i].micro == 1 &&
                items[i].layer == statistic->layer && items[i].place == statistic->place &&
                items[i].chunk == statistic->chunk)
                later = &items[i];
            if (items[i].kind == FILL_INVERSE && items[i].piece == 0) inverse = &items[i];
            if (items[i].kind == FILL_INVERSE && items[i].piece == 1) piece = &items[i];
        }
        assert_true(statistic && later && piece && inverse);
        if (broken == 0) statistic->start = statistic->end = -1;                    /* not placed */
        if (broken == 1) statistic->micro = 1;                                      /* one taken twice, one not */
        if (broken == 2) statistic->start = 0, statistic->end = statistic->seconds; /* before its work, beside one */
        if (broken == 3) later->start = statistic->start - 1e-3;                    /* micro-batches not ascending */
        if (broken == 4) statistic->end = statistic->start;                         /* no time */
        if (broken == 5) inverse->start = 0;                                        /* before its statistics */
        if (broken == 6) piece->place ^= 1;                                         /* on two places */
        if (broken == 7) piece->piece = 5;                                          /* out of order */
        if (broken == 8) piece->seconds /= 2;                                       /* not whole */
        assert_int_equal(fill_verify(&c.problem, &c.fill), E_FAIL);
        free_case(&c);
    }
}

/* ---- orders ---- */

enum { MOST_CHUNKS = 2 };

/* With all slots that are wanted, with the fewest, and half the way. */
static void slots_between(const Case *c, int place, int halves, int (*of)[N_SLOTS])
{
    int wanted[MOST_CHUNKS][2];
    bool split = pipeline_splits_backward(c->schedule.shape.kind);
    fill_wanted_slots(&c->problem, &c->fill, place, wanted);
    for (int chunk = 0; chunk < c->schedule.shape.chunks; chunk++) {
        for (int kind = 0; kind < N_ORDER_SLOTS; kind++)
            of[chunk][kind] = schedule_slots(&c->schedule, place, chunk, (SlotKind)kind);
        for (int k = 0; k < 2; k++) {
            int least = fill_least_slots(of[chunk], (SlotKind)(SLOT_CURVE_A + k), split);
            int more = wanted[chunk][k] > least ? wanted[chunk][k] - least : 0;
            of[chunk][SLOT_CURVE_A + k] = least + more * halves / 2;
        }
    }
}

static void test_orders(void **state)
{
    (void)state;
    const bool late[MOST_STAGES * 3] = {false, true, true, [7] = true};
    int carried = 0;
    for (int kind = 0; kind < N_PIPELINES; kind++)
        for (int micros = 1; micros <= 9; micros += 4)
            for (int steps = 1; steps <= 10; steps += 3) {
                Case c;
                make_case(&c, (PipelineKind)kind, 4, micros, steps, true);
                fill_free(&c.fill);
                c.problem.late = late;
                fill_make(&c.problem, &c.fill);
                assert_ok(fill_verify(&c.problem, &c.fill));
                carried += c.fill.gathered > 1;
                for (int place = 0; place < 4; place++)
                    for (int halves = 0; halves <= 2; halves++) {
                        int of[MOST_CHUNKS][N_SLOTS];
                        FillOrders orders;
                        slots_between(&c, place, halves, of);
                        fill_make_orders(&c.problem, &c.fill, place, of, &orders);
                        assert_ok(fill_verify_orders(&c.problem, place, of, &orders));
                        fill_orders_free(&orders);
                    }
                free_case(&c);
            }
    assert_true(carried > 0);
}

static Work *find_order(FillOrders *o, int step, WorkKind kind, int micro)
{
    for (int i = 0; i < o->steps[step].n; i++)
        if (o->steps[step].works[i].kind == kind && o->steps[step].works[i].micro == micro)
            return &o->steps[step].works[i];
    fail_msg("no such work");
    return NULL;
}

static void swap(Work *a, Work *b)
{
    Work t = *a;
    *a = *b;
    *b = t;
}

static void test_order_verifier(void **state)
{
    (void)state;
    for (int broken = 0; broken < 7; broken++) {
        Case c;
        int of[MOST_CHUNKS][N_SLOTS];
        FillOrders o;
        make_case(&c, PIPELINE_1F1B, 4, 4, 10, true);
        assert_true(c.fill.gathered > 1); /* some come in the second step */
        slots_between(&c, 0, 2, of);
        fill_make_orders(&c.problem, &c.fill, 0, of, &o);
        Work *a = find_order(&o, 0, WORK_CURVE_A, 0), *f = find_order(&o, 0, WORK_FORWARD, 0);
        if (broken == 0) swap(a, f);                                         /* before its operand */
        if (broken == 1) swap(f, find_order(&o, 0, WORK_FORWARD, 1));        /* works out of order */
        if (broken == 2) o.steps[1].n--;                                     /* one is left out */
        if (broken == 3) find_order(&o, 0, WORK_CURVE_A, 1)->item = a->item; /* twice */
        if (broken == 4) a->slot[SLOT_CURVE_A] ^= 1;                         /* another slot */
        if (broken == 5) of[0][SLOT_CURVE_G] = 1;                            /* there are not so many */
        if (broken == 6) swap(a, find_order(&o, 0, WORK_CURVE_A, 1));        /* not ascending */
        if (fill_verify_orders(&c.problem, 0, of, &o) != E_FAIL) fail_msg("mistake %d is not seen", broken);
        fill_orders_free(&o);
        free_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_schedules), cmocka_unit_test(test_figures),
                                       cmocka_unit_test(test_replicas),      cmocka_unit_test(test_verifier),
                                       cmocka_unit_test(test_orders),        cmocka_unit_test(test_order_verifier)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
