/* The progress line: live on a terminal (a pseudo-terminal here), plain lines elsewhere. */
#include <fcntl.h>
#include <sys/ioctl.h>

#include "report/report.h"
#include "report/stage_progress.h"
#include "testing.h"

#define ERASE "\r\033[K"

/* ---- a terminal ---- */

/* Runs `work` in a process whose stderr is a terminal of that many columns; appends its output to `out`. */
static void on_terminal(int (*work)(void *), void *arg, int columns, const char *term, Buf *out)
{
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    int wait_status = 0, master = posix_openpt(O_RDWR | O_NOCTTY);
    char piece[4096];
    ssize_t n;
    assert_true(master >= 0);
    assert_int_equal(grantpt(master) || unlockpt(master), 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(slave >= 0);
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(slave, STDERR_FILENO);
        close(slave);
        close(master);
        setenv("TERM", term, 1);
        _exit(work(arg));
    }
    close(slave);
    while ((n = read(master, piece, sizeof piece)) > 0) buf_append(out, piece, (size_t)n); /* EIO at the end */
    close(master);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_int_equal(wait_status, 0);
    assert_non_null(out->data);
}

static void wait_for_redraw(void) { usleep(120000); }

static StepRecord record_of(int64_t step)
{
    return (StepRecord){
        .step = step, .loss = 0.75, .lr = 2e-5, .seq_per_s = 11, .tokens_per_s = 222, .peak_bytes = (size_t)1536 << 20};
}

/* Steps after `first` to `last` of `total`; each took half a second for 32 sequences of 1000 tokens together. */
typedef struct {
    int64_t total, first, last, every;
    bool slowly, message;
} Run;

static int show(void *arg)
{
    const Run *run = arg;
    Progress *p = progress_open(run->total, run->first, run->every);
    for (int64_t step = run->first + 1; step <= run->last; step++) {
        StepRecord r = record_of(step);
        if (run->slowly && step > run->first + 1) wait_for_redraw();
        progress_step(p, &r, 32, 1000, 0.5);
    }
    if (run->message) log_info("saved");
    progress_close(p);
    if (run->message) log_info("the end");
    return 0;
}

static void test_terminal_shows_all(void **state)
{
    (void)state;
    Run run = {.total = 100, .last = 4, .every = 10, .slowly = true};
    Buf out = {0};
    on_terminal(show, &run, 200, "xterm", &out);
    assert_string_equal(
        out.data, ERASE "step=1/100 loss=0.7500 lr=2e-05 seq/s=11.0 tokens/s=222 mem=1536MiB eta=?" /* no rates yet */
        ERASE "step=2/100 loss=0.7500 lr=2e-05 seq/s=11.0 tokens/s=222 mem=1536MiB eta=?"    /* steps to warm up */
        ERASE "step=3/100 loss=0.7500 lr=2e-05 seq/s=64.0 tokens/s=2000 mem=1536MiB eta=49s" /* 97 steps */
        ERASE "step=4/100 loss=0.7500 lr=2e-05 seq/s=64.0 tokens/s=2000 mem=1536MiB eta=48s\r\n");
    buf_free(&out);
}

/* The line must not wrap. */
static void test_terminal_width(void **state)
{
    (void)state;
    for (int columns = 10; columns <= 100; columns += 15) {
        Run run = {.total = 1000000, .last = 1, .every = 10};
        Buf out = {0};
        on_terminal(show, &run, columns, "xterm", &out);
        char *line = out.data;
        assert_int_equal(strncmp(line, ERASE, strlen(ERASE)), 0);
        line += strlen(ERASE);
        size_t width = strcspn(line, "\r\n\033"), whole = strlen("step=1/1000000 loss=0.7500 lr=2e-05 seq/s=11.0 "
                                                                 "tokens/s=222 mem=1536MiB eta=?");
        assert_int_equal(width, (size_t)columns - 1 < whole ? (size_t)columns - 1 : whole);
        assert_int_equal(strncmp(line, "step=1/10", 9), 0); /* the most important comes first */
        assert_string_equal(line + width, "\r\n");
        buf_free(&out);
    }
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

/* Thousands of steps a second do not flood the terminal, but the last one is shown. */
static void test_terminal_is_not_flooded(void **state)
{
    (void)state;
    Run run = {.total = 5000, .last = 5000, .every = 1};
    Buf out = {0};
    double start = clock_monotonic();
    on_terminal(show, &run, 200, "xterm", &out);
    int most = (int)((clock_monotonic() - start) / 0.1) + 2, n = count(out.data, ERASE);
    if (n < 2 || n > most) fail_msg("drawn %d times, expected 2 to %d", n, most);
    assert_non_null(strstr(out.data, ERASE "step=5000/5000 "));
    assert_non_null(strstr(out.data, "eta=0s\r\n"));
    assert_int_equal(count(out.data, "\n"), 1);
    buf_free(&out);
}

/* A message replaces the line, which is drawn again below it. After the end the line stays. */
static void test_terminal_steps_aside(void **state)
{
    (void)state;
    Run run = {.total = 10, .last = 1, .every = 1, .message = true};
    Buf out = {0};
    on_terminal(show, &run, 200, "xterm", &out);
#define LINE ERASE "step=1/10 loss=0.7500 lr=2e-05 seq/s=11.0 tokens/s=222 mem=1536MiB eta=?"
    assert_string_equal(out.data, LINE ERASE "saved\r\n" LINE "\r\nthe end\r\n");
    buf_free(&out);
}

static int show_evaluation(void *arg)
{
    (void)arg;
    StepRecord r = record_of(1);
    StageProgress evaluation;
    Progress *p = progress_open(10, 0, 1);
    progress_step(p, &r, 32, 1000, 0.5);
    stage_progress_open(&evaluation);
    stage_progress_show(&evaluation, 0.5, "evaluating: 1 of 2 examples");
    log_warn("slow");
    stage_progress_close(&evaluation);
    log_info("evaluated");
    progress_close(p);
    return 0;
}

/* An evaluation's line hides that of training until it ends. */
static void test_terminal_evaluation(void **state)
{
    (void)state;
    Buf out = {0};
    setenv("NO_COLOR", "1", 1);
    on_terminal(show_evaluation, NULL, 200, "xterm", &out);
    unsetenv("NO_COLOR");
#define EVALUATION ERASE " 50.0 %  evaluating: 1 of 2 examples  eta=?"
    assert_string_equal(out.data, LINE ERASE EVALUATION ERASE "warning: slow\r\n" EVALUATION ERASE LINE ERASE
                                                              "evaluated\r\n" LINE "\r\n");
    buf_free(&out);
}

static int warn(void *arg)
{
    (void)arg;
    log_warn("slow");
    log_info("done");
    return 0;
}

static void test_terminal_colours(void **state)
{
    (void)state;
    Buf out = {0};
    unsetenv("NO_COLOR");
    on_terminal(warn, NULL, 200, "xterm", &out);
    assert_string_equal(out.data, "\033[1;33mwarning: \033[0mslow\r\ndone\r\n");
    buf_free(&out);
    setenv("NO_COLOR", "1", 1);
    on_terminal(warn, NULL, 200, "xterm", &out);
    unsetenv("NO_COLOR");
    assert_string_equal(out.data, "warning: slow\r\ndone\r\n");
    buf_free(&out);
}

/* Without a step nothing is cleared and no empty line remains. */
static void test_terminal_without_a_step(void **state)
{
    (void)state;
    Run run = {.total = 10, .first = 10, .last = 10, .every = 1, .message = true};
    Buf out = {0};
    on_terminal(show, &run, 200, "xterm", &out);
    assert_string_equal(out.data, "saved\r\nthe end\r\n");
    buf_free(&out);
}

static void test_dumb_terminal(void **state)
{
    (void)state;
    Run run = {.total = 4, .last = 4, .every = 2};
    Buf out = {0};
    on_terminal(show, &run, 200, "dumb", &out);
    assert_null(strchr(out.data, '\033'));
    assert_int_equal(count(out.data, "\r\n"), 2);
    assert_int_equal(count(out.data, "step="), 2);
    buf_free(&out);
}

/* ---- elsewhere ---- */

static void assert_lines(const Run *run, const int64_t *steps, int n)
{
    Buf out = {0};
    assert_int_equal(testing_child(show, (void *)run, &out), 0);
    const char *line = out.data ? out.data : "";
    for (int i = 0; i < n; i++) {
        long long step = 0, total = 0;
        if (sscanf(line, "step=%lld/%lld loss=0.7500 lr=2e-05 ", &step, &total) != 2) fail_msg("line %d: %s", i, line);
        assert_int_equal(step, steps[i]);
        assert_int_equal(total, run->total);
        const char *end = strchr(line, '\n');
        assert_non_null(end);
        line = end + 1;
    }
    assert_string_equal(line, "");
    if (out.data) {
        assert_null(strchr(out.data, '?')); /* an unknown rest is left out */
        assert_null(strchr(out.data, '\r'));
        assert_null(strchr(out.data, '\033'));
    }
    buf_free(&out);
}

static void test_plain_lines(void **state)
{
    (void)state;
    assert_lines(&(Run){.total = 10, .last = 10, .every = 3}, (const int64_t[]){3, 6, 9, 10}, 4);
    assert_lines(&(Run){.total = 10, .last = 10, .every = 5}, (const int64_t[]){5, 10}, 2);
    assert_lines(&(Run){.total = 10, .last = 8, .every = 5}, (const int64_t[]){5}, 1);                /* stopped */
    assert_lines(&(Run){.total = 10, .first = 4, .last = 9, .every = 3}, (const int64_t[]){6, 9}, 2); /* resumed */
    assert_lines(&(Run){.total = 10, .last = 10, .every = 1000}, (const int64_t[]){10}, 1);
    assert_lines(&(Run){.total = 10, .first = 10, .last = 10, .every = 1}, NULL, 0);
}

static int show_stage(void *context)
{
    (void)context;
    StageProgress p;
    stage_progress_open(&p);
    stage_progress_show(&p, 0.5, "evaluating");
    stage_progress_close(&p);
    return 0;
}

static void test_plain_stage(void **state)
{
    (void)state;
    Buf out = {0};
    assert_int_equal(testing_child(show_stage, NULL, &out), 0);
    assert_string_equal(out.data, " 50.0 %  evaluating\n");
    buf_free(&out);
}

static void test_plain_line(void **state)
{
    (void)state;
    Run run = {.total = 1000, .last = 10, .every = 10};
    Buf out = {0};
    assert_int_equal(testing_child(show, &run, &out), 0);
    assert_string_equal(out.data,
                        "step=10/1000 loss=0.7500 lr=2e-05 seq/s=64.0 tokens/s=2000 mem=1536MiB eta=8m 15s\n");
    buf_free(&out);
}

/* The loss is an exponential mean of 20 steps, with its start's bias corrected, over the finite losses. */
static int show_losses(void *arg)
{
    const double *losses = arg; /* (4) */
    Progress *p = progress_open(4, 0, 1);
    for (int i = 0; i < 4; i++) {
        StepRecord r = record_of(i + 1);
        r.loss = losses[i];
        progress_step(p, &r, 1, 1, 1);
    }
    progress_close(p);
    return 0;
}

static void test_smoothed_loss(void **state)
{
    (void)state;
    const double zero = 0, losses[4] = {0 / zero, 2, 1, 1 / zero};
    Buf out = {0};
    assert_int_equal(testing_child(show_losses, (void *)losses, &out), 0);
    const char *line = strstr(out.data, "step=1/4 loss=");
    assert_non_null(line);
    assert_non_null(strstr(line, "nan "));
    assert_non_null(strstr(line, "step=2/4 loss=2.0000 "));
    assert_non_null(strstr(line, "step=3/4 loss=1.4872 ")); /* (0.95·2 + 1) / 1.95 */
    assert_non_null(strstr(line, "step=4/4 loss=1.4872 "));
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terminal_shows_all),
        cmocka_unit_test(test_terminal_width),
        cmocka_unit_test(test_terminal_is_not_flooded),
        cmocka_unit_test(test_terminal_evaluation),
        cmocka_unit_test(test_terminal_colours),
        cmocka_unit_test(test_terminal_steps_aside),
        cmocka_unit_test(test_terminal_without_a_step),
        cmocka_unit_test(test_dumb_terminal),
        cmocka_unit_test(test_plain_lines),
        cmocka_unit_test(test_plain_line),
        cmocka_unit_test(test_plain_stage),
        cmocka_unit_test(test_smoothed_loss),
    };
    progress_close(NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
