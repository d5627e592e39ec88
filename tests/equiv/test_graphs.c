/* Ranges replayed as graphs, on a backend that captures: ref, whose ops between begin and end are recorded instead of
   run. Steps must have the bits of steps run op by op; captures and their failures are counted. */
#include "model/harness.h"
#include "near_device.h"

typedef struct {
    OpCall call;
    RowCounts rows;
} Noted;

typedef struct {
    Noted *ops;
    int n, cap;
} Graph;

static struct {
    OpImpl ref[N_OPS];
    Device device;
    bool capturing, refuse_begin, refuse_end;
    int refuse_op; /* while capturing, this one from now fails; −1: none */
    Graph *current;
    int begun, made, launched, freed, run;
} fake;

static Status fake_op(const OpCall *call, const RowCounts *rows)
{
    if (!fake.capturing) {
        fake.run++;
        return fake.ref[call->op].run(call, rows);
    }
    if (fake.refuse_op >= 0 && fake.refuse_op-- == 0) return fail(E_FAIL, "this op cannot be captured");
    Graph *g = fake.current;
    MEM_GROW(g->ops, g->n, g->cap);
    g->ops[g->n++] = (Noted){*call, *rows};
    return OK;
}

static Status fake_begin(Device *d)
{
    (void)d;
    assert_false(fake.capturing);
    fake.begun++;
    if (fake.refuse_begin) return fail(E_FAIL, "no graphs today");
    fake.capturing = true;
    fake.current = mem_alloc(sizeof *fake.current);
    return OK;
}

static void graph_free(Graph *g)
{
    free(g->ops);
    free(g);
}

static Status fake_end(Device *d, void **graph)
{
    (void)d;
    assert_true(fake.capturing);
    fake.capturing = false;
    *graph = NULL;
    if (fake.refuse_end) {
        graph_free(fake.current);
        return fail(E_FAIL, "the graph was not made");
    }
    fake.made++;
    *graph = fake.current;
    return OK;
}

static Status fake_launch(Device *d, void *graph)
{
    (void)d;
    const Graph *g = graph;
    assert_false(fake.capturing);
    fake.launched++;
    for (int i = 0; i < g->n; i++) TRY(fake.ref[g->ops[i].call.op].run(&g->ops[i].call, &g->ops[i].rows));
    return OK;
}

static void fake_free(Device *d, void *graph)
{
    (void)d;
    fake.freed++;
    graph_free(graph);
}

/* Turns an opened ref into the backend that captures. */
static void make_fake(Backend *b)
{
    memset(&fake, 0, sizeof fake);
    fake.refuse_op = -1;
    for (int op = 0; op < N_OPS; op++) {
        fake.ref[op] = b->op[op];
        b->op[op].run = fake_op;
    }
    fake.device = near_device();
    fake.device.capture_begin = fake_begin;
    fake.device.capture_end = fake_end;
    fake.device.graph_launch = fake_launch;
    fake.device.graph_free = fake_free;
    b->device = &fake.device;
}

/* ---- steps ---- */

#define STEPS 4

static void run_open_maybe_fake(GoldenRun *r, Golden *g, bool graphs, ExecOptions exec)
{
    RunOptions o = {
        .backend = "ref", .compute = F32, .optimizer = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f}, .exec = exec};
    run_open(r, g, &o);
    if (graphs) make_fake(r->backend); /* an Exec reads the table when it runs */
}

/* A step of two micro-batches: batch 0 whole, which fills two buckets of ref, and its first sequence alone. */
static Status step(GoldenRun *r, const GoldenBatch *whole, const GoldenBatch *first, int number)
{
    r->ctl.batch = (uint32_t)number;
    r->ctl.learning_rate = 1e-3f;
    run_begin(r, whole->n_seqs + 1, 0);
    TRY(run_micro(r, whole));
    TRY(run_micro(r, first));
    TRY(exec_upload(r->exec, r->t.ctl, &r->ctl, sizeof r->ctl));
    return exec_run(r->exec, r->plan.update, &r->plan.capacity);
}

typedef struct {
    Golden g;
    GoldenBatch whole, first;
    GoldenRun run;
} Fixture;

static void open_fixture(Fixture *f, bool graphs, ExecOptions exec)
{
    golden_open(&f->g, "tiny_cls");
    f->g.model.config.hidden_dropout = f->g.model.config.attention_dropout = 0.1f;
    golden_batch(&f->g, 0, &f->whole);
    golden_slice(&f->whole, 0, 1, &f->first);
    run_open_maybe_fake(&f->run, &f->g, graphs, exec);
    RowCounts a = exec_rows(f->run.exec, f->whole.n_tokens, f->whole.n_seqs, 0);
    RowCounts b = exec_rows(f->run.exec, f->first.n_tokens, f->first.n_seqs, 0);
    assert_int_not_equal(a.bucket, b.bucket);
}

static void close_fixture(Fixture *f)
{
    run_close(&f->run);
    golden_close(&f->g);
}

/* The weights after STEPS steps run op by op; the caller frees. */
static float *plain_weights(size_t *bytes)
{
    Fixture f;
    open_fixture(&f, false, (ExecOptions){0});
    for (int i = 0; i < STEPS; i++) assert_ok(step(&f.run, &f.whole, &f.first, i));
    *bytes = (size_t)f.g.model.params.size * sizeof(float);
    float *weights = run_flat(&f.run, f.run.t.weights);
    close_fixture(&f);
    return weights;
}

static void expect_plain_weights(Fixture *f)
{
    size_t bytes;
    int was_run = fake.run, was_launched = fake.launched;
    float *weights = run_flat(&f->run, f->run.t.weights), *want = plain_weights(&bytes);
    assert_int_equal(was_run, fake.run);
    assert_int_equal(was_launched, fake.launched);
    assert_memory_equal(weights, want, bytes);
    free(weights);
    free(want);
}

/* Per step: begin, micro in two buckets, update. The first step runs, the second captures, the others replay. */
static void test_replayed_steps_have_the_same_bits(void **state)
{
    (void)state;
    Fixture f;
    open_fixture(&f, true, (ExecOptions){0});
    assert_ok(step(&f.run, &f.whole, &f.first, 0));
    const Plan *p = &f.run.plan;
    int all = p->begin.count + 2 * p->micro.count + p->update.count;
    assert_int_equal(fake.run, all);
    assert_int_equal(fake.begun, 0);
    assert_ok(step(&f.run, &f.whole, &f.first, 1));
    assert_int_equal(fake.made, 4);
    assert_int_equal(fake.launched, 4);
    for (int i = 2; i < STEPS; i++) assert_ok(step(&f.run, &f.whole, &f.first, i));
    assert_int_equal(fake.begun, 4);
    assert_int_equal(fake.launched, 4 * (STEPS - 1));
    assert_int_equal(fake.run, all);
    ExecGraphs graphs = exec_graphs(f.run.exec);
    assert_int_equal(graphs.captured, 4);
    assert_int_equal(graphs.replayed, 4 * (STEPS - 2));
    assert_int_equal(graphs.refused, 0);
    expect_plain_weights(&f);
    close_fixture(&f);
    assert_int_equal(fake.freed, 4);
}

/* After any failure of a capture the range runs op by op, without a retry. */
static void test_a_failed_capture_runs_plainly(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        Fixture f;
        open_fixture(&f, true, (ExecOptions){0});
        fake.refuse_begin = way == 0;
        fake.refuse_end = way == 1;
        for (int i = 0; i < STEPS; i++) {
            if (way == 2 && i == 1) fake.refuse_op = 1; /* the second op of `begin`, which has two */
            assert_ok(step(&f.run, &f.whole, &f.first, i));
        }
        assert_int_equal(fake.begun, 4);
        assert_int_equal(fake.made - fake.freed, way == 2 ? 3 : 0);
        assert_int_equal(fake.launched, way == 2 ? 3 * (STEPS - 1) : 0);
        assert_int_equal(exec_graphs(f.run.exec).refused, way == 2 ? 1 : 4);
        expect_plain_weights(&f);
        close_fixture(&f);
        assert_int_equal(fake.made, fake.freed);
    }
}

/* With poison, checks or a trace every instr is inspected: no graph, and the same bits. */
static void test_watched_runs_use_no_graphs(void **state)
{
    (void)state;
    static const ExecOptions watched[] = {{.poison = true}, {.check = true}, {0}};
    for (size_t way = 0; way < sizeof watched / sizeof *watched; way++) {
        Fixture f;
        open_fixture(&f, true, watched[way]);
        if (!watched[way].poison && !watched[way].check) assert_ok(exec_trace_start(f.run.exec));
        for (int i = 0; i < STEPS; i++) assert_ok(step(&f.run, &f.whole, &f.first, i));
        assert_int_equal(fake.begun, 0);
        expect_plain_weights(&f);
        close_fixture(&f);
    }
}

/* A stop takes effect before a replayed micro-batch and during a capture; an update is never split. */
static void test_stops(void **state)
{
    (void)state;
    volatile sig_atomic_t stop = 0;
    Fixture f;
    open_fixture(&f, true, (ExecOptions){.stop = &stop});
    assert_ok(step(&f.run, &f.whole, &f.first, 0));
    stop = 1;
    assert_int_equal(run_micro(&f.run, &f.whole), E_STOPPED); /* captured */
    stop = 0;
    for (int i = 1; i < 3; i++) assert_ok(step(&f.run, &f.whole, &f.first, i));
    int launched = fake.launched;
    stop = 1;
    assert_int_equal(run_micro(&f.run, &f.whole), E_STOPPED); /* replayed */
    assert_int_equal(fake.launched, launched);
    assert_ok(exec_run(f.run.exec, f.run.plan.update, &f.run.plan.capacity));
    assert_int_equal(fake.launched, launched + 1);
    close_fixture(&f);
    assert_int_equal(fake.made, fake.freed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replayed_steps_have_the_same_bits),
        cmocka_unit_test(test_a_failed_capture_runs_plainly),
        cmocka_unit_test(test_watched_runs_use_no_graphs),
        cmocka_unit_test(test_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
