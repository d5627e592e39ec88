/* The records of a trace: every instr once and in order, times of the host or of a device's marks, names for external
   profilers. A traced step has the bits of an untraced one. */
#include "equiv/tiny_run.h"
#include "near_device.h"

static int instrs_of_step(const Plan *p) { return p->begin.count + p->micro.count + p->update.count; }

/* The instr that comes after i in a step. */
static InstrId next_instr(const Plan *p, InstrId i)
{
    if (i + 1 == p->begin.first + p->begin.count) return p->micro.first;
    if (i + 1 == p->micro.first + p->micro.count) return p->update.first;
    return i + 1;
}

static void expect_step(const TinyRun *f, const ExecRecord *r, int n)
{
    const Plan *p = &f->run.plan;
    InstrId expected = p->begin.first;
    assert_int_equal(n, instrs_of_step(p));
    for (int i = 0; i < n; i++, expected = next_instr(p, expected)) {
        assert_int_equal(r[i].instr, expected);
        assert_true(r[i].begin <= r[i].end && r[i].issued <= r[i].returned);
        if (i > 0) assert_true(r[i - 1].end <= r[i].begin);
        bool micro = expected >= p->micro.first && expected < p->micro.first + p->micro.count;
        int64_t tokens = r[i].rows.count[ROWS_TOKENS];
        assert_true(micro ? tokens >= f->batch.n_tokens : tokens == p->capacity.count[ROWS_TOKENS]);
    }
}

static float *weights_after(TinyRun *f, int steps, bool traced)
{
    const ExecRecord *records;
    int n;
    for (int i = 0; i < steps; i++) {
        if (traced) assert_ok(exec_trace_start(f->run.exec));
        double before = clock_monotonic();
        tiny_run_step(f);
        double after = clock_monotonic();
        if (!traced) continue;
        assert_ok(exec_trace_end(f->run.exec, &records, &n));
        expect_step(f, records, n);
        assert_true(records[0].begin >= before && records[n - 1].end <= after);
    }
    return run_flat(&f->run, f->run.t.weights);
}

static void test_records_of_the_host(void **state)
{
    (void)state;
    static const ExecOptions ways[] = {{0}, {.poison = true}, {.check = true}};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        TinyRun plain, traced;
        tiny_run_open(&plain, NULL, ways[way]);
        float *want = weights_after(&plain, 3, false);
        size_t bytes = (size_t)plain.g.model.params.size * sizeof *want;
        tiny_run_close(&plain);
        tiny_run_open(&traced, NULL, ways[way]);
        float *got = weights_after(&traced, 3, true);
        assert_memory_equal(got, want, bytes);
        /* instrs after a trace are not recorded */
        const ExecRecord *records;
        int n;
        tiny_run_step(&traced);
        assert_ok(exec_trace_end(traced.run.exec, &records, &n));
        assert_int_equal(n, instrs_of_step(&traced.run.plan));
        tiny_run_close(&traced);
        free(want);
        free(got);
    }
}

/* ---- a device's clock ---- */

#define DEVICE_ZERO 5000.0 /* this clock begins elsewhere, and ticks a thousand seconds per mark */

static struct {
    int set, read; /* marks; the slots come in order */
    int fail_after;
} clock_;

static Status set_mark(Device *d, int lane, int slot)
{
    (void)d;
    assert_int_equal(lane, LANE_COMPUTE);
    if (clock_.fail_after >= 0 && clock_.fail_after-- == 0) return fail(E_FAIL, "the device fell off the bus");
    if (slot == 0) clock_.set = 0;
    assert_int_equal(slot, clock_.set++);
    return OK;
}

static Status read_marks(Device *d, double *seconds, int n)
{
    (void)d;
    assert_true(n <= clock_.set);
    clock_.read += n;
    for (int i = 0; i < n; i++) seconds[i] = DEVICE_ZERO + 1000.0 * i;
    return OK;
}

static void test_records_of_a_device(void **state)
{
    (void)state;
    TinyRun f;
    const ExecRecord *r;
    int n;
    tiny_run_open(&f, NULL, (ExecOptions){0});
    clock_.fail_after = -1;
    Device d = near_device();
    d.mark = set_mark;
    d.mark_times = read_marks;
    f.run.backend->device = &d;
    for (int i = 0; i < 2; i++) {
        assert_ok(exec_trace_start(f.run.exec));
        tiny_run_step(&f);
        assert_ok(exec_trace_end(f.run.exec, &r, &n));
        expect_step(&f, r, n);
        assert_int_equal(clock_.set, 1 + 2 * n);
        for (int k = 0; k < n; k++) {
            assert_true(r[k].begin == DEVICE_ZERO + 1000.0 * (1 + 2 * k));
            assert_true(r[k].end == r[k].begin + 1000.0);
            assert_true(r[k].returned - r[k].issued < 1000.0); /* by the host's clock */
        }
    }
    int read = clock_.read;
    tiny_run_step(&f); /* no marks without a trace */
    assert_int_equal(clock_.set, 1 + 2 * n);
    assert_int_equal(clock_.read, read);
    clock_.fail_after = 8;
    assert_ok(exec_trace_start(f.run.exec));
    assert_status(exec_run(f.run.exec, f.run.plan.micro, &f.run.plan.capacity), E_FAIL);
    assert_message("fell off the bus");
    clock_.fail_after = -1;
    assert_ok(exec_trace_end(f.run.exec, &r, &n));
    assert_int_equal(n, 3); /* the complete ones; slot 0 was the first of eight marks */
    tiny_run_close(&f);
}

/* ---- names ---- */

static struct {
    int begun, open;
    char first[PLAN_NAME_MAX], last[PLAN_NAME_MAX];
} names;

static void name_begin(Device *d, const char *name)
{
    (void)d;
    assert_int_equal(names.open++, 0);
    if (names.begun++ == 0) snprintf(names.first, sizeof names.first, "%s", name);
    snprintf(names.last, sizeof names.last, "%s", name);
}

static void name_end(Device *d)
{
    (void)d;
    assert_int_equal(--names.open, 0);
}

static void test_names(void **state)
{
    (void)state;
    TinyRun f;
    const ExecRecord *r;
    int n;
    tiny_run_open(&f, NULL, (ExecOptions){0});
    Device d = near_device();
    d.range_begin = name_begin;
    d.range_end = name_end;
    f.run.backend->device = &d;
    tiny_run_step(&f);
    assert_int_equal(names.begun, 0); /* none were asked for */
    assert_ok(exec_trace_start(f.run.exec));
    tiny_run_step(&f);
    assert_ok(exec_trace_end(f.run.exec, &r, &n));
    assert_int_equal(names.begun, instrs_of_step(&f.run.plan));
    assert_string_equal(names.first, "zero stats");
    assert_true(strncmp(names.last, "pack ", 5) == 0);
    d.ranges = true;
    tiny_run_step(&f);
    assert_int_equal(names.begun, 2 * instrs_of_step(&f.run.plan));
    assert_int_equal(names.open, 0);
    tiny_run_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_of_the_host),
        cmocka_unit_test(test_records_of_a_device),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
