/* metrics.jsonl and eval.jsonl: their lines, and files of runs that were stopped, killed or out of disk, which continue
   as if the run had never stopped. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "report/report.h"
#include "testing.h"

typedef struct {
    char *dir, *metrics, *eval;
} Fixture;

static int set_up(void **state)
{
    Fixture *f = mem_alloc(sizeof *f);
    f->dir = testing_directory();
    f->metrics = file_join(f->dir, "metrics.jsonl");
    f->eval = file_join(f->dir, "eval.jsonl");
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    Fixture *f = *state;
    assert_ok(file_remove_tree(f->dir));
    free(f->dir);
    free(f->metrics);
    free(f->eval);
    free(f);
    return 0;
}

/* Different in all members for every step and `salt`. */
static StepRecord record_of(int64_t step, double salt)
{
    double k = (double)step + salt;
    return (StepRecord){.step = step,
                        .epoch = k / 7,
                        .loss = 1 / k,
                        .lr = 2e-5 / k,
                        .grad_norm = sqrt(k),
                        .seq_per_s = 100 * k / 3,
                        .tokens_per_s = 1e4 * k / 3,
                        .peak_bytes = (size_t)5000000000 + (size_t)step,
                        .wall_s = k * 0.1,
                        .trained_s = k * 0.07};
}

static void write_steps(Metrics *m, int64_t first, int64_t last, double salt)
{
    for (int64_t step = first; step <= last; step++) {
        StepRecord r = record_of(step, salt);
        assert_ok(metrics_step(m, &r));
    }
}

static void append(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_APPEND);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    close(fd);
}

/* The file, line by line, each parsed; the number of lines. A torn last line fails the test. */
static int read_lines(const char *path, Json **docs, int most)
{
    Buf text = {0};
    int n = 0;
    assert_ok(file_read(path, 1 << 20, &text));
    for (char *line = text.data; line && *line; n++) {
        char *end = strchr(line, '\n');
        if (!end) fail_msg("%s: the last line is torn: %s", path, line);
        assert_true(n < most);
        assert_ok(js_parse(path, line, (size_t)(end - line), &docs[n]));
        line = end + 1;
    }
    buf_free(&text);
    return n;
}

static void assert_same_bits(double a, double b)
{
    if (memcmp(&a, &b, sizeof a) != 0) fail_msg("%.17g is not %.17g", a, b);
}

static void assert_line(const Json *line, const StepRecord *r)
{
    assert_int_equal(js_int(js_get(line, "step"), -1), r->step);
    assert_same_bits(js_real(js_get(line, "epoch"), -1), r->epoch);
    assert_same_bits(js_real(js_get(line, "loss"), -1), r->loss);
    assert_same_bits(js_real(js_get(line, "lr"), -1), r->lr);
    assert_same_bits(js_real(js_get(line, "grad_norm"), -1), r->grad_norm);
    assert_same_bits(js_real(js_get(line, "seq_per_s"), -1), r->seq_per_s);
    assert_same_bits(js_real(js_get(line, "tokens_per_s"), -1), r->tokens_per_s);
    assert_int_equal(js_kind(js_get(line, "peak_bytes")), JSON_KIND_INT);
    assert_int_equal(js_int(js_get(line, "peak_bytes"), -1), r->peak_bytes);
    assert_same_bits(js_real(js_get(line, "wall_s"), -1), r->wall_s);
    assert_same_bits(js_real(js_get(line, "trained_s"), -1), r->trained_s);
}

/* Steps 1 to `n`, those above `old` with salt 0.5, none twice. */
static void assert_steps(const char *path, int64_t n, int64_t old)
{
    Json *docs[64];
    int lines = read_lines(path, docs, 64);
    assert_int_equal(lines, n);
    for (int i = 0; i < lines; i++) {
        StepRecord r = record_of(i + 1, i + 1 > old ? 0.5 : 0);
        assert_line(docs[i], &r);
        js_free(docs[i]);
    }
}

/* ---- a line ---- */

static void test_keys_and_values(void **state)
{
    static const char *const keys[] = {"step",      "epoch",        "loss",       "lr",     "grad_norm",
                                       "seq_per_s", "tokens_per_s", "peak_bytes", "wall_s", "trained_s"};
    const Fixture *f = *state;
    const StepRecord records[] = {
        {.step = 1, .epoch = 0.1, .loss = 1.0 / 3, .lr = 2e-5, .grad_norm = 1e22, .seq_per_s = 0.30000000000000004},
        {.step = 2, .loss = 5e-324, .lr = 1.7976931348623157e308, .grad_norm = 123456789012345680.0, .wall_s = 1e-7},
        {.step = (int64_t)1 << 40, .loss = 0, .tokens_per_s = 9007199254740993.0, .peak_bytes = (size_t)1 << 42},
        {.step = INT64_MAX, .loss = 0.1f, .lr = 3.0e-5f, .grad_norm = 100},
    };
    enum { N = sizeof records / sizeof *records };
    Metrics *m;
    Json *docs[N];
    assert_ok(metrics_open(&m, f->dir, 0, 0));
    for (int i = 0; i < N; i++) assert_ok(metrics_step(m, &records[i]));
    assert_int_equal(read_lines(f->metrics, docs, N), N); /* readers see all lines before it is closed */
    for (int i = 0; i < N; i++) {
        size_t k = 0;
        for (void *it = js_first(docs[i]); it; it = js_next(docs[i], it), k++) {
            assert_true(k < sizeof keys / sizeof *keys);
            assert_string_equal(js_key(it), keys[k]);
        }
        assert_int_equal(k, sizeof keys / sizeof *keys);
        assert_line(docs[i], &records[i]);
        js_free(docs[i]);
    }
    metrics_close(m);
}

static void test_not_finite_is_null(void **state)
{
    const Fixture *f = *state;
    StepRecord r = {.step = 1, .loss = NAN, .grad_norm = INFINITY, .seq_per_s = -INFINITY};
    Metrics *m;
    Json *line;
    assert_ok(metrics_open(&m, f->dir, 0, 0));
    assert_ok(metrics_step(m, &r));
    metrics_close(m);
    assert_int_equal(read_lines(f->metrics, &line, 1), 1);
    assert_non_null(js_get(line, "loss"));
    assert_int_equal(js_kind(js_get(line, "loss")), JSON_KIND_NULL);
    assert_int_equal(js_kind(js_get(line, "grad_norm")), JSON_KIND_NULL);
    assert_int_equal(js_kind(js_get(line, "seq_per_s")), JSON_KIND_NULL);
    js_free(line);
}

static void test_evaluations(void **state)
{
    const Fixture *f = *state;
    Metrics *m;
    Json *docs[2];
    assert_ok(metrics_open(&m, f->dir, 0, 0));
    assert_ok(metrics_eval(m, 40, "dev_matched", "accuracy", 0.1));
    assert_ok(metrics_eval(m, 40, "a \"split\"\n\\", "f1", NAN));
    metrics_close(m);
    assert_int_equal(read_lines(f->eval, docs, 2), 2);
    assert_int_equal(js_int(js_get(docs[0], "step"), -1), 40);
    assert_string_equal(js_string(js_get(docs[0], "split"), ""), "dev_matched");
    assert_string_equal(js_string(js_get(docs[0], "metric"), ""), "accuracy");
    assert_same_bits(js_real(js_get(docs[0], "value"), -1), 0.1);
    assert_string_equal(js_string(js_get(docs[1], "split"), ""), "a \"split\"\n\\");
    assert_int_equal(js_kind(js_get(docs[1], "value")), JSON_KIND_NULL);
    for (int i = 0; i < 2; i++) js_free(docs[i]);
    uint64_t size = 1;
    assert_ok(file_size(f->metrics, &size)); /* is there, and empty */
    assert_int_equal(size, 0);
}

/* ---- resuming ---- */

static void test_resumes_at_any_step(void **state)
{
    const Fixture *f = *state;
    for (int64_t from = 0; from <= 12; from++) {
        Metrics *m;
        assert_ok(metrics_open(&m, f->dir, 0, 0)); /* a new run drops the lines of the last one */
        write_steps(m, 1, 12, 0);
        metrics_close(m);
        assert_steps(f->metrics, 12, 12);
        assert_ok(metrics_open(&m, f->dir, from, from));
        assert_steps(f->metrics, from, from);
        assert_true(metrics_trained(m) == from * 0.07);            /* of the steps that count */
        assert_true(metrics_wall(m) == (from > 0 ? 12 * 0.1 : 0)); /* of all that were made */
        write_steps(m, from + 1, 14, 0.5);
        metrics_close(m);
        assert_steps(f->metrics, 14, from);
    }
}

static void test_torn_last_line(void **state)
{
    const Fixture *f = *state;
    static const char zeros[512];
    static const struct {
        const char *data;
        size_t len;
    } tails[] = {{"{\"step\": 4, \"epoch\": 0.57, \"lo", 30}, /* of a step that counts */
                 {"{", 1},
                 {"damaged\n", 8},
                 {"{\"step\": 4", 10},
                 {"{\"step\": ", 9},
                 {zeros, sizeof zeros}, /* as a file system may leave them after a crash */
                 {"{\"step\": 5, \"epoch\": 0.7", 24}};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        Metrics *m;
        assert_ok(metrics_open(&m, f->dir, 0, 0));
        write_steps(m, 1, 3, 0);
        metrics_close(m);
        append(f->metrics, tails[i].data, tails[i].len);
        assert_ok(metrics_open(&m, f->dir, 4, 4)); /* line 4 did not reach the disk; the checkpoint did */
        assert_steps(f->metrics, 3, 3);
        write_steps(m, 4, 6, 0.5);
        metrics_close(m);
        assert_steps(f->metrics, 6, 3);
    }
}

static void test_evaluations_continue(void **state)
{
    const Fixture *f = *state;
    Metrics *m;
    Json *docs[8];
    assert_ok(metrics_open(&m, f->dir, 0, 0));
    for (int step = 3; step <= 12; step += 3)
        for (int k = 0; k < 2; k++) assert_ok(metrics_eval(m, step, k ? "mm" : "m", "accuracy", step));
    metrics_close(m);
    append(f->eval, "{\"step\": 12, \"sp", 16);
    assert_ok(metrics_open(&m, f->dir, 9, 6)); /* stopped after step 9, before its evaluation; then killed in it */
    assert_ok(metrics_eval(m, 9, "m", "accuracy", -9));
    metrics_close(m);
    assert_ok(metrics_open(&m, f->dir, 10, 9));
    metrics_close(m);
    assert_int_equal(read_lines(f->eval, docs, 8), 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(js_int(js_get(docs[i], "step"), -1), i < 2 ? 3 : i < 4 ? 6 : 9);
        assert_string_equal(js_string(js_get(docs[i], "split"), ""), i % 2 ? "mm" : "m");
        js_free(docs[i]);
    }
}

/* ---- failures ---- */

static int write_until_full(void *arg)
{
    const Fixture *f = arg;
    Metrics *m;
    const struct rlimit limit = {3000, 3000};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || metrics_open(&m, f->dir, 0, 0) != OK) return 2;
    for (int64_t step = 1; step < 1000; step++) {
        StepRecord r = record_of(step, 0);
        Status status = metrics_step(m, &r);
        if (status == OK) continue;
        fprintf(stderr, "%s: %s", status_name(status), status_message());
        return 0;
    }
    return 1;
}

static void test_continues_after_a_full_disk(void **state)
{
    Fixture *f = *state;
    Buf errors = {0};
    Metrics *m;
    assert_int_equal(testing_child(write_until_full, f, &errors), 0);
    if (strncmp(errors.data, "E_IO: ", 6) != 0 || !strstr(errors.data, f->dir))
        fail_msg("not an E_IO that names the file: %s", errors.data);
    uint64_t before = 0, after = 0;
    assert_ok(file_size(f->metrics, &before));
    assert_ok(metrics_open(&m, f->dir, 1000, 1000));
    assert_ok(file_size(f->metrics, &after));
    Json *docs[64];
    int n = read_lines(f->metrics, docs, 64);
    for (int i = 0; i < n; i++) js_free(docs[i]);
    assert_in_range(n, 3, 60);
    assert_true(after <= before);
    write_steps(m, n + 1, n + 2, 0.5);
    metrics_close(m);
    assert_steps(f->metrics, n + 2, n);
    buf_free(&errors);
}

/* Replaces this process's open event file by a full device. */
static bool fill_event_file(void)
{
    char link[64], target[4096];
    for (int fd = 3; fd < 64; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, target, sizeof target - 1);
        if (n <= 0) continue;
        target[n] = '\0';
        if (strstr(target, "tfevents")) return dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), fd) == fd;
    }
    return false;
}

static int write_without_events(void *arg)
{
    const Fixture *f = arg;
    Metrics *m;
    log_set_level(LOG_WARN);
    if (metrics_open(&m, f->dir, 0, 0) != OK || !fill_event_file()) return 2;
    for (int64_t step = 1; step <= 5; step++) {
        StepRecord r = record_of(step, 0);
        if (metrics_step(m, &r) != OK || metrics_eval(m, step, "dev", "accuracy", 0.5) != OK) return 1;
    }
    metrics_close(m);
    return 0;
}

/* A disk that is full for TensorBoard's file ends that file with one warning, not the run. */
static void test_continues_without_events(void **state)
{
    Fixture *f = *state;
    Buf errors = {0};
    Json *docs[8];
    assert_int_equal(testing_child(write_without_events, f, &errors), 0);
    const char *warned = errors.data ? strstr(errors.data, "continues without TensorBoard's file") : NULL;
    if (!warned || strstr(strchr(warned, '\n'), "warning")) fail_msg("not one warning: %s", errors.data);
    assert_steps(f->metrics, 5, 5);
    int n = read_lines(f->eval, docs, 8);
    for (int i = 0; i < n; i++) js_free(docs[i]);
    assert_int_equal(n, 5);
    buf_free(&errors);
}

static void test_no_such_folder(void **state)
{
    const Fixture *f = *state;
    char *missing = file_join(f->dir, "missing");
    Metrics *m = NULL;
    assert_status(metrics_open(&m, missing, 0, 0), E_IO);
    assert_message("missing/metrics.jsonl");
    metrics_close(NULL);
    free(missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys_and_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_finite_is_null, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_evaluations, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_resumes_at_any_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_torn_last_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_evaluations_continue, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_continues_after_a_full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_continues_without_events, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_such_folder, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
