/* Training that is killed at random moments and inside saves (kill -9 and signals), and restarted each time ends
   with the bytes and losses of an uninterrupted run. `cairn verify` finds one changed bit in its last checkpoint. Runs
   the real program (CAIRN_BINARY). */
#include "state/checkpoint/checkpoint_internal.h"
#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>

enum { STEPS = 40 };

typedef struct {
    char *dir, *binary;
    char *slow;                /* while this file exists, a step takes 50 ms or more */
    uint32_t random, whole_us; /* whole_us: a run's time */
    int kills;
} Fixture;

static uint32_t draw(Fixture *f) { return f->random = f->random * 1664525u + 1013904223u, f->random >> 8; }

/* The first `rows` lines of a file of the bundled sample. */
static void copy_head(const Fixture *f, const char *name, int rows)
{
    Buf text = {0};
    char *from = mem_printf("tasks/glue/sample/%s", name), *to = file_join(f->dir, name);
    assert_ok(file_read(from, 64 << 20, &text));
    size_t end = 0;
    for (int i = 0; i <= rows && end < text.len; i++) end += strcspn(text.data + end, "\n") + 1;
    assert_ok(file_write_durable(to, text.data, end < text.len ? end : text.len));
    buf_free(&text);
    free(from);
    free(to);
}

static void write_text(const Fixture *f, const char *name, const char *text)
{
    char *path = file_join(f->dir, name);
    assert_ok(file_write_durable(path, text, strlen(text)));
    free(path);
}

/* Starts `cairn` silently in the directory, with arguments split at spaces; at `terminal` in a session of its own, if
   that is given. */
static pid_t start_at(const Fixture *f, const char *arguments, const char *terminal)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    char *line = mem_strdup(arguments), *argv[64] = {f->binary};
    int n = 1;
    for (char *word = strtok(line, " "); word && n < 63; word = strtok(NULL, " ")) argv[n++] = word;
    if (chdir(f->dir) != 0 || (terminal && setsid() < 0)) _exit(126);
    int out = open(terminal ? terminal : "/dev/null", O_RDWR);
    if (terminal && ioctl(out, TIOCSCTTY, 0) != 0) _exit(126);
    dup2(out, 1);
    dup2(terminal ? out : open("errors.txt", O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    execv(f->binary, argv);
    _exit(127);
}

static pid_t start(const Fixture *f, const char *arguments) { return start_at(f, arguments, NULL); }

static int wait_for(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* Waits until the process has stopped itself (CAIRN_TEST_AT). */
static void await_stop(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

static void must_succeed(const Fixture *f, const char *arguments)
{
    int status = wait_for(start(f, arguments));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("cairn %s: status %x, see %s/errors.txt", arguments, status, f->dir);
}

#define RUN                                                                                                            \
    "glue --data-dir . --model-config config.json --vocab vocab.txt --do-train --do-eval --backend ref "               \
    "--max-seq-length 32 "                                                                                             \
    "--batch-size 4 --learning-rate 1e-3 --max-steps 40 --save-steps 2 --eval-every 3 --recompute selective "          \
    "--output-dir "

static int setup(void **state)
{
    Fixture *f = mem_alloc(sizeof *f);
    const char *binary = getenv("CAIRN_BINARY");
    if (!binary) {
        print_message("skipped: CAIRN_BINARY is not set\n");
        return -1;
    }
    f->binary = mem_strdup(binary);
    signal(SIGHUP, SIG_DFL); /* where the test itself runs under nohup */
    f->dir = testing_directory();
    f->random = 12345;
    copy_head(f, "train.tsv", 64);
    copy_head(f, "dev_matched.tsv", 12);
    copy_head(f, "dev_mismatched.tsv", 12);
    write_text(f, "config.json",
               "{\"vocab_size\": 200, \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
               "\"intermediate_size\": 32, \"max_position_embeddings\": 32}");
    must_succeed(f, "vocab --input train.tsv --output vocab.txt --size 200");
    char *slow = file_join(f->dir, "slow");
    f->slow = mem_printf("%s0", slow);
    setenv("CAIRN_TEST_SLOW", slow, 1);
    free(slow);
    double begin = clock_monotonic();
    must_succeed(f, RUN "whole");
    f->whole_us = (uint32_t)(1e6 * (clock_monotonic() - begin));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    assert_ok(file_remove_tree(f->dir));
    free(f->dir);
    free(f->binary);
    free(f->slow);
    free(f);
    return 0;
}

/* The "step" and "loss" members of every line of metrics.jsonl. */
static void losses(const Fixture *f, const char *out, Buf *list)
{
    char *path = mem_printf("%s/%s/metrics.jsonl", f->dir, out);
    Buf text = {0};
    assert_ok(file_read(path, 1 << 20, &text));
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) {
        Json *doc = NULL;
        assert_ok(js_parse(path, line, strlen(line), &doc));
        buf_printf(list, "%lld %.17g\n", (long long)js_int(js_get(doc, "step"), -1), js_real(js_get(doc, "loss"), -1));
        js_free(doc);
    }
    buf_free(&text);
    free(path);
}

/* The last step in metrics.jsonl. */
static int64_t last_step(const Fixture *f, const char *out)
{
    Buf list = {0};
    losses(f, out, &list);
    const char *at = list.data;
    for (const char *next; (next = strchr(at, '\n')) && next[1] != '\0';) at = next + 1;
    int64_t step = strtoll(at, NULL, 10);
    buf_free(&list);
    return step;
}

static void assert_like_whole(const Fixture *f, const char *out)
{
    static const char *const files[] = {"model.safetensors",
                                        "eval_results.json",
                                        "eval.jsonl",
                                        "best/model.safetensors",
                                        "best/best.json",
                                        "checkpoint-40/model.safetensors",
                                        "checkpoint-40/optimizer.safetensors"};
    Buf a = {0}, b = {0};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *whole = file_join("whole", files[i]), *other = file_join(out, files[i]);
        testing_same_file(f->dir, whole, f->dir, other);
        free(whole);
        free(other);
    }
    losses(f, "whole", &a);
    losses(f, out, &b);
    assert_string_equal(a.data, b.data);
    buf_free(&a);
    buf_free(&b);
}

static bool saving_now(const Fixture *f, const char *out)
{
    char *command = mem_printf("ls -d '%s/%s'/checkpoint-*.tmp >/dev/null 2>&1", f->dir, out);
    bool inside = system(command) == 0;
    free(command);
    return inside;
}

static void sleep_us(uint32_t us)
{
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

/* A random moment of a run, in the time that a whole one takes here. A run that always dies before its first save would
   never end, so the later tries take longer. */
static void sleep_in_run(Fixture *f, int tries)
{
    sleep_us(draw(f) % (f->whole_us + f->whole_us / 16 * (uint32_t)tries));
}

/* Kills at random moments until the run ends by itself. */
static void run_with_kills(Fixture *f, const char *out)
{
    char *arguments = mem_printf("%s%s", RUN, out);
    for (int tries = 0;; tries++) {
        int status;
        pid_t pid = start(f, arguments);
        sleep_in_run(f, tries);
        bool alive = waitpid(pid, &status, WNOHANG) == 0;
        if (alive) {
            kill(pid, SIGKILL);
            status = wait_for(pid);
        }
        if (WIFSIGNALED(status)) {
            f->kills++;
            continue;
        }
        if (WEXITSTATUS(status) != 0)
            fail_msg("a run that was killed before ended with %d, see %s/errors.txt", WEXITSTATUS(status), f->dir);
        break;
    }
    free(arguments);
}

static void test_killed_runs_end_the_same(void **state)
{
    Fixture *f = *state;
    for (int run = 0; f->kills < testing_rounds(12, 200); run++) {
        char out[32];
        snprintf(out, sizeof out, "killed%d", run);
        run_with_kills(f, out);
        assert_like_whole(f, out);
    }
    print_message("%d kills\n", f->kills);
}

/* Killed between the last byte of each save and its name. */
static void test_killed_inside_saves(void **state)
{
    Fixture *f = *state;
    setenv("CAIRN_TEST_AT", "save-0=kill", 1);
    for (int i = 0; i < 2; i++) {
        int status = wait_for(start(f, RUN "inside"));
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && saving_now(f, "inside"));
    }
    unsetenv("CAIRN_TEST_AT");
    must_succeed(f, RUN "inside");
    assert_false(saving_now(f, "inside"));
    assert_like_whole(f, "inside");
}

/* Around the evaluation of step 9: stopped and saved before it, then killed in each of its moments and after it;
   without a save behind it, so that each process makes the evaluation again, and with one before it. */
static void test_killed_around_an_evaluation(void **state)
{
    static const char *const places[] = {"evaluate9-0=term",
                                         "dev_matched-accuracy9-0=kill",
                                         "dev_mismatched-accuracy9-0=kill",
                                         "evaluated9-0=kill",
                                         "step10-0=kill",
                                         "step12-0=kill"};
    static const char *const runs[] = {RUN "evaluated --save-steps 1000", RUN "evaluated-saved"};
    Fixture *f = *state;
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            if (k > 0 && i == 0) continue;
            setenv("CAIRN_TEST_AT", places[i], 1);
            int status = wait_for(start(f, runs[k]));
            unsetenv("CAIRN_TEST_AT");
            if (i == 0)
                assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 75);
            else if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
                fail_msg("not killed at %s: status %x, see %s/errors.txt", places[i], status, f->dir);
        }
        must_succeed(f, runs[k]);
        assert_like_whole(f, k ? "evaluated-saved" : "evaluated");
    }
}

/* Waits until the run makes its first step, or ends. Returns whether it lives. */
static bool await_step(const Fixture *f, const char *out, pid_t pid, int *status)
{
    char *metrics = mem_printf("%s/%s/metrics.jsonl", f->dir, out);
    uint64_t size = 0;
    bool lives = true;
    while (lives && (file_size(metrics, &size) != OK || size == 0)) {
        sleep_us(1000);
        lives = waitpid(pid, status, WNOHANG) == 0;
    }
    free(metrics);
    return lives;
}

/* Each of the signals, at many moments: a durable state, exit code 75, and the same end after resuming. */
static void test_signals_save_and_stop(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
    Fixture *f = *state;
    int stopped = 0, rounds = testing_rounds(5, 20);
    for (int run = 0; stopped < rounds; run++) {
        char out[32];
        int status;
        snprintf(out, sizeof out, "signalled%d", run);
        char *arguments = mem_printf("%s%s", RUN, out);
        testing_write(f->dir, "slow0", "");
        pid_t pid = start(f, arguments);
        if (await_step(f, out, pid, &status)) {
            sleep_us(draw(f) % 200000);
            kill(pid, signals[stopped % 5]);
            status = wait_for(pid);
        }
        unlink(f->slow);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 75) { /* else the signal came after the last step */
            stopped++;
            must_succeed(f, arguments);
        } else if (WEXITSTATUS(status) != 0) {
            fail_msg("exit code %d after signal %d, see %s/errors.txt", WEXITSTATUS(status), signals[stopped % 5],
                     f->dir);
        }
        assert_like_whole(f, out);
        free(arguments);
    }
}

/* A closed terminal sends SIGHUP, and nothing can be written to it any more; nohup ignores the signal. */
static void test_closed_terminal(void **state)
{
    Fixture *f = *state;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    struct sigaction before, ignore = {.sa_handler = SIG_IGN};
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    assert_true(fcntl(terminal, F_SETFD, FD_CLOEXEC) == 0 && fcntl(terminal, F_SETFL, O_NONBLOCK) == 0);
    char text[64];
    setenv("CAIRN_TEST_AT", "step10-0=stop", 1);
    pid_t pid = start_at(f, RUN "hung-up", ptsname(terminal));
    unsetenv("CAIRN_TEST_AT");
    await_stop(pid);
    while (read(terminal, text, sizeof text) > 0) {}
    close(terminal); /* the system sends SIGCONT, too */
    int status = wait_for(pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 75);
    assert_int_equal(sigaction(SIGHUP, &ignore, &before), 0);
    setenv("CAIRN_TEST_AT", "step20-0=stop", 1);
    pid = start(f, RUN "hung-up");
    unsetenv("CAIRN_TEST_AT");
    sigaction(SIGHUP, &before, NULL);
    await_stop(pid);
    kill(pid, SIGHUP);
    kill(pid, SIGCONT);
    status = wait_for(pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_like_whole(f, "hung-up");
}

/* --max-time ends the run early, with a state. */
static void test_max_time(void **state)
{
    Fixture *f = *state;
    char *path = file_join(f->dir, "limited");
    int status = wait_for(start(f, RUN "limited --max-time 1"));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 75); /* a second is less than the time reserved for saving */
    for (int i = 0; i < 3; i++) {              /* but each process makes a step */
        int64_t before = last_step(f, "limited");
        status = wait_for(start(f, RUN "limited --max-time 1"));
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 75);
        assert_true(last_step(f, "limited") > before);
    }
    must_succeed(f, RUN "limited");
    assert_like_whole(f, "limited");
    free(path);
}

/* A second process on the same folder is refused and changes nothing; a finished run prints its result and exits 0. */
static void test_finished_and_locked(void **state)
{
    Fixture *f = *state;
    must_succeed(f, RUN "whole");
    setenv("CAIRN_TEST_AT", "step10-0=stop", 1);
    pid_t first = start(f, RUN "locked");
    unsetenv("CAIRN_TEST_AT");
    await_stop(first);
    setenv("CAIRN_TEST_LOCK_WAIT", "0.1s", 1);
    int second = wait_for(start(f, RUN "locked"));
    unsetenv("CAIRN_TEST_LOCK_WAIT");
    kill(first, SIGCONT);
    assert_true(WIFEXITED(second));
    assert_int_equal(WEXITSTATUS(second), 1);
    int status = wait_for(first);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_like_whole(f, "locked");
}

/* ---- an output folder that goes away in mid-run ---- */

#define LONG RUN "moved --max-steps 100000 --save-steps 1000 --eval-every 0 --resume auto"

/* Starts a long run and returns when it has made a step in the folder. */
static pid_t start_long(const Fixture *f)
{
    char *metrics = file_join(f->dir, "moved/metrics.jsonl");
    uint64_t size = 0;
    pid_t pid = start(f, LONG);
    while (file_size(metrics, &size) != OK || size == 0) {
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
        sleep_us(1000);
    }
    free(metrics);
    return pid;
}

static void assert_ends_saying(const Fixture *f, pid_t pid, int code, const char *expected)
{
    Buf said = {0};
    char *errors = file_join(f->dir, "errors.txt");
    int status = wait_for(pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
    assert_ok(file_read(errors, 64 << 20, &said));
    if (!strstr(said.data, expected)) fail_msg("'%s' is not in %s", expected, errors);
    buf_free(&said);
    free(errors);
}

/* A run whose folder is removed or renamed saves in a new one and ends with 1; it leaves another run's folder alone. */
static void stop(pid_t pid)
{
    int status;
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

static void test_folder_goes(void **state)
{
    Fixture *f = *state;
    char *moved = file_join(f->dir, "moved"), *elsewhere = file_join(f->dir, "elsewhere");
    setenv("CAIRN_TEST_AT", "looked5-0=stop", 1); /* between looks at the metrics and at the folder */
    pid_t pid = start(f, LONG);
    unsetenv("CAIRN_TEST_AT");
    await_stop(pid);
    assert_int_equal(rename(moved, elsewhere), 0);
    kill(pid, SIGCONT);
    assert_ends_saying(f, pid, 1, "was removed or renamed while this run wrote to it. The state of step");
    pid = start_long(f);
    stop(pid);
    assert_ok(file_remove_tree(moved));
    kill(pid, SIGCONT);
    assert_ends_saying(f, pid, 1, "is saved in a new folder of that name");
    assert_ok(file_remove_tree(moved));
    pid = start_long(f);
    stop(pid);
    assert_ok(file_remove_tree(elsewhere));
    assert_int_equal(rename(moved, elsewhere), 0);
    pid_t second = start_long(f);
    kill(pid, SIGCONT);
    assert_ends_saying(f, pid, 1, "was removed, renamed or replaced while this run wrote to it. Step ");
    kill(second, SIGTERM);
    int status = wait_for(second);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 75);
    free(moved);
    free(elsewhere);
}

/* A file of metrics that is removed alone ends the run with 1, its state saved. */
static void test_metrics_go(void **state)
{
    static const char *const files[] = {"metrics.jsonl", "eval.jsonl"};
    Fixture *f = *state;
    char *moved = file_join(f->dir, "moved");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = file_join(moved, files[i]);
        char *said = mem_printf("moved/%s was removed or replaced while this run wrote to it", files[i]);
        char *saved = mem_printf("ls -d '%s'/checkpoint-* >/dev/null", moved);
        if (file_exists(moved)) assert_ok(file_remove_tree(moved));
        pid_t pid = start_long(f);
        assert_int_equal(unlink(path), 0);
        assert_ends_saying(f, pid, 1, said);
        assert_int_equal(system(saved), 0);
        free(path);
        free(said);
        free(saved);
    }
    free(moved);
}

/* ---- a checkpoint that is not as the run's steps leave it ---- */

/* Flips the lowest bit of a byte of a file of `whole`'s last checkpoint, and makes the manifest right again: of the
   byte behind `key`, or, without it, of the first or the last element. */
static void flip(const Fixture *f, const char *name, const char *key, bool last)
{
    char *dir = file_join(f->dir, "whole/checkpoint-40"), *path = file_join(dir, name),
         *manifest = file_join(dir, MANIFEST_NAME);
    Buf data = {0}, text = {0};
    Manifest m;
    uint64_t header;
    assert_ok(file_read(path, 1 << 24, &data));
    memcpy(&header, data.data, sizeof header);
    size_t at = key    ? (size_t)(strstr(data.data, key) - data.data) + strlen(key)
                : last ? data.len - sizeof(float)
                       : sizeof header + header;
    data.data[at] ^= 1;
    assert_ok(file_write_durable(path, data.data, data.len));
    assert_ok(checkpoint_read_manifest(dir, &m));
    for (int i = 0; i < m.count; i++)
        if (strcmp(m.files[i].name, name) == 0) m.files[i].digest = digest_of(data.data, data.len);
    manifest_render(&m, &text);
    assert_ok(file_write_durable(manifest, text.data, text.len));
    assert_ok(checkpoint_verify(dir, NULL));
    manifest_free(&m);
    buf_free(&data);
    buf_free(&text);
    free(dir);
    free(path);
    free(manifest);
}

static void test_verify_sees_a_bit(void **state)
{
    static const struct {
        const char *name, *key;
        bool last;
        const char *said;
    } cases[] = {{"optimizer.safetensors", NULL, false, "optimizer.safetensors: element 0 of m."},
                 {"optimizer.safetensors", NULL, true, " of v."},
                 {"model.safetensors", NULL, false, "model.safetensors: element 0 of "},
                 {"state.json", "\"loss_sum\": ", false, "state.json: loss_sum was "},
                 {"state.json", "\"last_loss\": ", false, "state.json: last_loss was "}};
    Fixture *f = *state;
    must_succeed(f, "verify whole");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        flip(f, cases[i].name, cases[i].key, cases[i].last);
        assert_ends_saying(f, start(f, "verify whole"), 78, cases[i].said);
        flip(f, cases[i].name, cases[i].key, cases[i].last);
    }
    must_succeed(f, "verify whole");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_runs_end_the_same),
        cmocka_unit_test(test_killed_inside_saves),
        cmocka_unit_test(test_killed_around_an_evaluation),
        cmocka_unit_test(test_signals_save_and_stop),
        cmocka_unit_test(test_closed_terminal),
        cmocka_unit_test(test_max_time),
        cmocka_unit_test(test_finished_and_locked),
        cmocka_unit_test(test_folder_goes),
        cmocka_unit_test(test_metrics_go),
        cmocka_unit_test(test_verify_sees_a_bit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
