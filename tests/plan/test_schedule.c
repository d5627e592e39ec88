/* Schedules of pipelines: each list verified, its simulated time and its slots as by the formulas, and a verifier that
   finds each kind of mistake. */
#include "testing.h"

#include <math.h>

#include "plan/pipeline/schedule.h"

#define MOST_PLACES 8
#define MOST_MICROS 40
#define MOST_CHUNKS 4
#define MOST_STAGES (MOST_PLACES * MOST_CHUNKS)

static int least(int a, int b) { return a < b ? a : b; }

/* Costs of equal stages. Each of `chunks` chunks has its part of a place's seconds. */
typedef struct {
    double of[N_WORKS][MOST_STAGES];
    ScheduleCosts costs;
} Costs;

static void equal_costs(Costs *c, double f, double i, double w, int chunks)
{
    const double seconds[N_WORKS] = {f, i + w, i, w};
    *c = (Costs){.costs = {.latency = 0}};
    for (int k = 0; k < N_WORKS; k++) {
        for (int s = 0; s < MOST_STAGES; s++) c->of[k][s] = seconds[k] / chunks;
        c->costs.seconds[k] = c->of[k];
    }
}

static double simulated(const Schedule *s, const ScheduleCosts *costs)
{
    Timeline t;
    schedule_simulate(s, costs, &t);
    double end = t.works_s;
    timeline_free(&t);
    return end;
}

/* Seconds of a step with N ≥ P, of zb-v with N ≥ 2P − 1; NaN: no formula. */
static double formula(const Pipeline *p, double f, double i, double w)
{
    double n = p->micros, places = p->places, b = i + w;
    switch (p->kind) {
    case PIPELINE_GPIPE:
    case PIPELINE_1F1B:
        return n * (f + b) + (places - 1) * (f + b);
    case PIPELINE_INTERLEAVED:
        return n * (f + b) + (places - 1) * (f + b) / p->chunks;
    case PIPELINE_CHIMERA:
        return p->micros == p->places ? places * f + (2 * places - 2) * b : NAN;
    case PIPELINE_ZB_H1:
        return n * (f + b) + (places - 1) * (f + i - w);
    case PIPELINE_ZB_V:
        return f == i && i == w && p->micros >= 2 * p->places - 1 ? n * (f + b) + (places - 1) * f / 2 : NAN;
    default:
        return NAN;
    }
}

/* Micro-batches of a class whose slots are in use at once, at most, over the chunks of a place. */
static int in_flight(const Schedule *s, int place, SlotKind kind)
{
    bool split = pipeline_splits_backward(s->shape.kind);
    int n = 0, most = 0;
    for (int i = s->first[place]; i < s->first[place + 1]; i++) {
        n += work_writes(&s->works[i], kind, split) - work_reads_last(&s->works[i], kind);
        if (n > most) most = n;
    }
    return most;
}

static void check_slots(const Schedule *s, int place)
{
    const Pipeline *p = &s->shape;
    int n = p->micros, places = p->places, want[N_SLOTS] = {0};
    int each = pipeline_consecutive(p->kind) ? p->chunks : 1; /* a micro-batch has a slot in each of these chunks */
    switch (p->kind) {
    case PIPELINE_GPIPE:
        want[0] = n;
        break;
    case PIPELINE_1F1B:
        want[0] = least(n, places - place);
        break;
    case PIPELINE_INTERLEAVED: {
        int groups = n / places > 1 ? n / places : 1, group = (n + groups - 1) / groups;
        int ahead = least(p->chunks * n, 2 * (places - 1 - place) + (p->chunks - 1) * group);
        want[0] = least(p->chunks * n, ahead + 1);
        break;
    }
    case PIPELINE_CHIMERA: {
        int half = places / 2, near = place < half ? place : places - 1 - place;
        if (n != places) return;
        want[0] = half + 1 + near;
        if (want[0] > n) want[0] = n;
        break;
    }
    case PIPELINE_ZB_H1:
        want[0] = least(n, places - place);
        want[1] = least(n, places);
        want[2] = least(n, place + 1);
        break;
    case PIPELINE_ZB_V:
        if (n < 2 * places) return;
        want[0] = in_flight(s, place, SLOT_ACTIVATION);
        want[1] = 2 * places;
        want[2] = 2 * place + 1;
        break;
    default:
        break;
    }
    for (int k = 0; k < N_ORDER_SLOTS; k++)
        if (in_flight(s, place, (SlotKind)k) != want[k] * each)
            fail_msg("%s, P %d, N %d, chunks %d, rank %d: class %d has %d in flight, expected %d",
                     pipeline_name(p->kind), places, n, p->chunks, place, k, in_flight(s, place, (SlotKind)k),
                     want[k] * each);
}

static void check_shape(const Pipeline *p)
{
    static const double times[][3] = {{1, 1, 1}, {1, 1.5, 0.5}, {2, 1.75, 1.25}};
    Schedule s;
    schedule_make(p, &s);
    if (schedule_verify(&s) != OK)
        fail_msg("P %d, N %d, chunks %d: %s", p->places, p->micros, p->chunks, status_message());
    for (int place = 0; place < p->places; place++) check_slots(&s, place);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        double f = times[i][0], input = times[i][1], w = times[i][2], want = formula(p, f, input, w);
        Costs c;
        equal_costs(&c, f, input, w, p->kind == PIPELINE_CHIMERA ? 1 : p->chunks);
        double got = simulated(&s, &c.costs);
        if (p->micros >= p->places && !isnan(want) && fabs(got - want) > 1e-9 * want)
            fail_msg("%s, P %d, N %d, chunks %d, times %zu: %.9g s, expected %.9g", pipeline_name(p->kind), p->places,
                     p->micros, p->chunks, i, got, want);
    }
    schedule_free(&s);
}

static void test_all_shapes(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_PIPELINES; kind++)
        for (int chunks = 1; chunks <= MOST_CHUNKS; chunks++)
            for (int places = 2; places <= MOST_PLACES; places++)
                for (int micros = 0; micros <= MOST_MICROS; micros++) {
                    Pipeline p = {(PipelineKind)kind, places, chunks, micros};
                    if (pipeline_check(&p) == OK) check_shape(&p);
                }
}

/* One rank that holds all stages: every schedule without a partner works too. */
static void test_one_place(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_PIPELINES; kind++) {
        Pipeline p = {(PipelineKind)kind, 1, kind == PIPELINE_ZB_V || kind == PIPELINE_CHIMERA ? 2 : 3, 5};
        if (kind == PIPELINE_CHIMERA)
            assert_status(pipeline_check(&p), E_USAGE);
        else
            check_shape(&p);
    }
}

static void test_refused_shapes(void **state)
{
    (void)state;
    assert_status(pipeline_check(&(Pipeline){PIPELINE_CHIMERA, 3, 2, 4}), E_USAGE);
    assert_message("give --stages 4");
    assert_status(pipeline_check(&(Pipeline){PIPELINE_INTERLEAVED, 4, 1, 4}), E_USAGE);
    assert_status(pipeline_check(&(Pipeline){PIPELINE_ZB_V, 4, 3, 4}), E_USAGE);
    assert_status(pipeline_check(&(Pipeline){PIPELINE_GPIPE, 0, 1, 4}), E_USAGE);
    assert_status(pipeline_check(&(Pipeline){PIPELINE_GPIPE, 2, 0, 4}), E_USAGE);
    assert_message("at least 1 stage on a rank, found 0");
}

/* Published bubbles: equal thirds, N = P = 4 and N = 32 on 8 ranks. */
static void test_bubbles(void **state)
{
    static const struct {
        int places, micros;
        double percent[N_PIPELINES];
    } want[] = {{4, 4, {42.9, 42.9, 27.3, 25.0, 20.0, 20.0}}, {8, 32, {18.0, 18.0, 9.9, 23.8, 6.8, 3.5}}};
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (int kind = 0; kind < N_PIPELINES; kind++) {
            Pipeline p = {(PipelineKind)kind, want[i].places, pipeline_chunks((PipelineKind)kind), want[i].micros};
            Schedule s;
            Costs c;
            Timeline t;
            schedule_make(&p, &s);
            equal_costs(&c, 1, 1, 1, kind == PIPELINE_CHIMERA ? 1 : p.chunks);
            schedule_simulate(&s, &c.costs, &t);
            if (fabs(100 * t.bubble - want[i].percent[kind]) > 0.0514) /* 7 of 39 is published as 18.0 */
                fail_msg("%s, P %d: bubble %.2f %%, expected %.1f", pipeline_name(p.kind), p.places, 100 * t.bubble,
                         want[i].percent[kind]);
            timeline_free(&t);
            schedule_free(&s);
        }
}

/* Two ranks, one micro-batch: F, boundary, F, B, boundary, B. Then sums, beside the other chunk's work. */
static void test_links_and_sums(void **state)
{
    Schedule s;
    Costs c;
    Timeline t;
    const StageSum sums[] = {{1, 0.5, 1}, {0, 0.5, 4}, {0, 0, 6}}, behind[] = {{1, -1, 1}, {0, -1, 4}};
    (void)state;
    schedule_make(&(Pipeline){PIPELINE_1F1B, 2, 1, 1}, &s);
    equal_costs(&c, 1, 1, 1, 1);
    c.costs.latency = 0.25;
    c.costs.boundary = 0.5;
    c.costs.sums = sums;
    c.costs.n_sums = 3;
    schedule_simulate(&s, &c.costs, &t);
    assert_true(fabs(t.works_s - (1 + 0.75 + 1 + 2 + 0.75 + 2)) < 1e-12);
    assert_true(fabs(t.sums_s - (t.works_s - 0.5 + 10)) < 1e-12); /* the last stage's is over by then */
    timeline_free(&t);
    c.costs.sums = behind;
    c.costs.n_sums = 2;
    schedule_simulate(&s, &c.costs, &t);
    assert_true(fabs(t.sums_s - (t.works_s + 4)) < 1e-12); /* on other ranks at the same time */
    timeline_free(&t);
    c.costs.n_sums = 0;
    schedule_free(&s);
    /* A stage of chimera is summed when both its places have its terms. Place 0 has the last stage's and the first's
       last, place 1 the other way round; B takes 2. */
    schedule_make(&(Pipeline){PIPELINE_CHIMERA, 2, 2, 2}, &s);
    c.costs.sums = sums;
    c.costs.n_sums = 2;
    schedule_simulate(&s, &c.costs, &t);
    assert_true(fabs(t.sums_s - (t.works_s - 0.5 + 4)) < 1e-12);
    timeline_free(&t);
    schedule_free(&s);
    c.costs.n_sums = 0;
    /* A link that is slower than the works sets the pace: N boundaries one after another, then the way back. */
    schedule_make(&(Pipeline){PIPELINE_GPIPE, 2, 1, 6}, &s);
    c.costs.latency = 0;
    c.costs.boundary = 5;
    schedule_simulate(&s, &c.costs, &t);
    assert_true(fabs(t.works_s - (1 + 6 * 5 + 1 + 2 + 6 * 5 + 2)) < 1e-12);
    timeline_free(&t);
    schedule_free(&s);
}

/* ---- the verifier's rules, each violated once ---- */

static int find_work(const Schedule *s, int place, WorkKind kind, int chunk, int micro)
{
    for (int i = s->first[place]; i < s->first[place + 1]; i++)
        if (s->works[i].kind == kind && s->works[i].chunk == chunk && s->works[i].micro == micro) return i;
    fail_msg("no such work");
    return -1;
}

static void swap_works(Schedule *s, int a, int b)
{
    Work w = s->works[a];
    s->works[a] = s->works[b];
    s->works[b] = w;
}

static void refuses(Schedule *s, const char *why)
{
    assert_status(schedule_verify(s), E_FAIL);
    assert_message(why);
    schedule_free(s);
}

/* All F of the first place's first chunk come before its other works, in slots of their own. */
static void chunk_first(Schedule *s)
{
    int n = 0;
    for (int i = 0; i < s->first[1]; i++) {
        Work w = s->works[i];
        for (int k = 0; k < N_ORDER_SLOTS; k++)
            if (w.slot[k] >= 0) w.slot[k] = w.micro;
        s->works[i] = w;
        if (w.kind != WORK_FORWARD || w.chunk != 0) continue;
        memmove(&s->works[n + 1], &s->works[n], (size_t)(i - n) * sizeof w);
        s->works[n++] = w;
    }
    for (int k = 0; k < s->shape.chunks * N_SLOTS; k++) s->slots[k] = s->shape.micros;
}

static void test_verifier(void **state)
{
    const Pipeline p = {PIPELINE_1F1B, 3, 1, 6}, zero = {PIPELINE_ZB_H1, 3, 1, 6};
    Schedule s;
    (void)state;
    schedule_make(&p, &s); /* rule 1 */
    s.works[find_work(&s, 1, WORK_FORWARD, 0, 3)].micro = 2;
    refuses(&s, "a second time");
    schedule_make(&p, &s);
    s.works[find_work(&s, 1, WORK_BACKWARD, 0, 3)].kind = WORK_INPUT;
    refuses(&s, "does not exist");
    schedule_make(&p, &s);
    s.works[find_work(&s, 2, WORK_FORWARD, 0, 5)].micro = 6;
    refuses(&s, "does not exist");
    schedule_make(&p, &s);
    swap_works(&s, find_work(&s, 0, WORK_FORWARD, 0, 0), find_work(&s, 0, WORK_FORWARD, 0, 1));
    refuses(&s, "before that of the micro-batch before it");
    schedule_make(&p, &s);
    swap_works(&s, find_work(&s, 2, WORK_FORWARD, 0, 4), find_work(&s, 2, WORK_BACKWARD, 0, 4));
    refuses(&s, "before the work whose result it reads");
    schedule_make(&p, &s);
    s.first[3]--;
    refuses(&s, "rank 2 has 11 works, expected 12");
    schedule_make(&zero, &s);
    swap_works(&s, find_work(&s, 0, WORK_INPUT, 0, 2), find_work(&s, 0, WORK_WEIGHT, 0, 2));
    refuses(&s, "before the work whose result it reads");

    /* rule 2: on two ranks, chunks exchanged at one end; each rank's own list is in order */
    schedule_make(&(Pipeline){PIPELINE_INTERLEAVED, 2, 2, 4}, &s);
    for (int i = s.first[1]; i + 1 < s.first[2]; i++)
        if (s.works[i].kind == WORK_FORWARD && s.works[i + 1].kind == WORK_FORWARD &&
            s.works[i].chunk != s.works[i + 1].chunk) {
            swap_works(&s, i, i + 1);
            break;
        }
    refuses(&s, "another order");

    schedule_make(&(Pipeline){PIPELINE_GPIPE, 3, 1, 6}, &s); /* another order that is right */
    s.shape.kind = PIPELINE_1F1B;
    assert_ok(schedule_verify(&s));
    schedule_free(&s);

    /* rule 3 */
    schedule_make(&(Pipeline){PIPELINE_ZB_V, 2, 2, 2}, &s);
    int up = find_work(&s, 1, WORK_FORWARD, 1, 0), down = find_work(&s, 1, WORK_FORWARD, 0, 0);
    swap_works(&s, up, down);
    refuses(&s, "waits forever");
    schedule_make(&(Pipeline){PIPELINE_ZB_V, 2, 2, 4}, &s); /* a place hands its boundaries over one by one */
    swap_works(&s, find_work(&s, 1, WORK_FORWARD, 1, 0), find_work(&s, 1, WORK_FORWARD, 0, 1));
    refuses(&s, "makes a boundary before the last one was taken");
    schedule_make(&(Pipeline){PIPELINE_ZB_V, 2, 2, 4}, &s); /* so few boundaries have room between two places */
    chunk_first(&s);
    assert_ok(schedule_verify(&s));
    schedule_free(&s);
    schedule_make(&(Pipeline){PIPELINE_ZB_V, 2, 2, 12}, &s);
    chunk_first(&s);
    refuses(&s, "waits forever");

    /* rule 4 */
    schedule_make(&p, &s);
    s.works[find_work(&s, 0, WORK_FORWARD, 0, 1)].slot[0] = s.works[find_work(&s, 0, WORK_FORWARD, 0, 0)].slot[0];
    refuses(&s, "writes a slot that has not been read");
    schedule_make(&p, &s);
    s.works[find_work(&s, 0, WORK_BACKWARD, 0, 1)].slot[0] = 2;
    refuses(&s, "reads a slot of another micro-batch");
    schedule_make(&p, &s);
    s.slots[0]--;
    refuses(&s, "a slot that does not exist");
    schedule_make(&zero, &s);
    s.works[find_work(&s, 0, WORK_INPUT, 0, 1)].slot[SLOT_OPERAND] ^= 1;
    refuses(&s, "reads a slot of another micro-batch");

    /* rule 5 */
    schedule_make(&zero, &s);
    s.works[find_work(&s, 1, WORK_WEIGHT, 0, 5)].last = false;
    refuses(&s, "no sum");
    schedule_make(&zero, &s);
    s.works[find_work(&s, 1, WORK_WEIGHT, 0, 5)].last = false;
    s.works[find_work(&s, 1, WORK_INPUT, 0, 5)].last = true;
    refuses(&s, "before the chunk's gradients are complete");
    schedule_make(&zero, &s);
    s.works[find_work(&s, 1, WORK_WEIGHT, 0, 4)].last = true;
    refuses(&s, "a second time");
}

/* Groups of as many micro-batches as ranks, the rest in a small last group. */
static void obvious_order(Schedule *s)
{
    const Pipeline *p = &s->shape;
    for (int place = 0; place < p->places; place++) {
        Work *out = s->works + s->first[place], order[2][MOST_CHUNKS * MOST_MICROS];
        int n = 0;
        for (int group = 0; group < p->micros; group += p->places)
            for (int k = 0; k < p->chunks; k++)
                for (int m = group; m < least(group + p->places, p->micros); m++, n++) {
                    order[0][n] = (Work){.kind = WORK_FORWARD, .chunk = k, .micro = m};
                    order[1][n] = (Work){.kind = WORK_BACKWARD, .chunk = p->chunks - 1 - k, .micro = m};
                }
        int ahead = least(n, 2 * (p->places - 1 - place) + (p->chunks - 1) * p->places), at = 0;
        for (int i = 0; i < ahead; i++) out[at++] = order[0][i];
        for (int i = 0; i < n; i++) {
            if (ahead + i < n) out[at++] = order[0][ahead + i];
            out[at++] = order[1][i];
        }
        for (int i = 0; i < at; i++) {
            out[i].slot[0] = out[i].micro; /* a slot each */
            out[i].last = i >= at - p->micros % p->places && out[i].micro == p->micros - 1;
        }
        for (int chunk = 0; chunk < p->chunks; chunk++) {
            int last = 0;
            s->slots[(place * p->chunks + chunk) * N_SLOTS] = p->micros;
            for (int i = 0; i < at; i++)
                if (out[i].chunk == chunk && out[i].kind == WORK_BACKWARD) last = i;
            for (int i = 0; i < at; i++)
                if (out[i].chunk == chunk) out[i].last = i == last;
        }
    }
}

static void test_small_last_group(void **state)
{
    Schedule s;
    (void)state;
    schedule_make(&(Pipeline){PIPELINE_INTERLEAVED, 4, 3, 8}, &s); /* even groups: the same list */
    obvious_order(&s);
    assert_ok(schedule_verify(&s));
    schedule_free(&s);
    schedule_make(&(Pipeline){PIPELINE_INTERLEAVED, 4, 3, 5}, &s);
    obvious_order(&s);
    refuses(&s, "waits forever");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_shapes),       cmocka_unit_test(test_one_place),
        cmocka_unit_test(test_refused_shapes),   cmocka_unit_test(test_bubbles),
        cmocka_unit_test(test_links_and_sums),   cmocka_unit_test(test_verifier),
        cmocka_unit_test(test_small_last_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
