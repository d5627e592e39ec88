/* Runs of `cairn glue --profile N`, and readers of the files that they write. */
#pragma once

#include "testing.h"

#include <math.h>

#include "kernels/backend.h"

/* A tiny BERT, a micro-batch of less than a step, limits that are known. */
#define HIDDEN "32"
#define QKV    (3 * 32)
#define RUN                                                                                                            \
    "glue --data-dir '%s' --model-config '%s/config.json' --vocab '%s/vocab.txt' --do-train "                          \
    "--max-seq-length 32 --batch-size 8 --learning-rate 1e-3 --save-every off --threads 2 --precision fp32 "
#define RATES                                                                                                          \
    "{\"product_flops\": 1e12, \"bytes\": 1e11, \"stream\": 1e11, \"overhead\": 0, \"attention_flops\": 1e12, "        \
    "\"attention_back_flops\": 1e12, \"attention_half\": 0, \"limit_flops\": 2e12, \"limit_64KiB\": 5e11, "            \
    "\"limit_256KiB\": 4e11, \"limit_1MiB\": 4e11, \"limit_4MiB\": 4e11, \"limit_16MiB\": 4e11, \"limit_64MiB\": "     \
    "4e11, "                                                                                                           \
    "\"limit_256MiB\": 4e11, \"link_out\": 1e9, \"link_in\": 1e9}\n"
#define LIMIT_TF 2.0
#define LIMIT_GB 500.0

typedef struct {
    char *dir;   /* all is in here */
    char *fakes; /* tests/fakes of the build */
    Buf errors;  /* of the last run */
} Fixture;

static inline char *path_in(const Fixture *f, const char *name) { return file_join(f->dir, name); }

/* Runs cairn: `variables` as env takes them, `arguments` after RUN. */
static inline int run_cairn(Fixture *f, const char *variables, const char *arguments)
{
    char *common = mem_printf(RUN, f->dir, f->dir, f->dir), *log = path_in(f, "errors.txt");
    char *command = mem_printf("env XDG_CACHE_HOME='%s' %s '%s' %s %s >/dev/null 2>'%s' </dev/null", f->dir, variables,
                               getenv("CAIRN_BINARY"), common, arguments, log);
    int status = system(command); // NOLINT: the arguments are this file's
    assert_ok(file_read(log, 1 << 20, &f->errors));
    free(common);
    free(command);
    free(log);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline void must_run(Fixture *f, const char *variables, const char *arguments)
{
    int code = run_cairn(f, variables, arguments);
    if (code != 0) fail_msg("cairn %s: exit code %d: %s", arguments, code, f->errors.data);
}

#define assert_said(f, part)                                                                                           \
    do {                                                                                                               \
        if (!strstr((f)->errors.data, part)) fail_msg("\"%s\" is not in \"%s\"", part, (f)->errors.data);              \
    } while (0)

/* False, with a message, if this backend was not built. */
static inline bool is_built(const char *backend)
{
    char *file = mem_printf("%s/cairn_%s.so", getenv("CAIRN_BACKEND_DIR"), backend);
    bool there = strcmp(backend, "ref") == 0 || file_exists(file);
    if (!there) print_message("skipped: the backend %s was not built\n", backend);
    free(file);
    return there;
}

/* The rates of this backend, in the cache that cairn reads. */
static inline void seed_rates(const Fixture *f, const char *backend)
{
    Backend *b;
    BackendOptions options = {.threads = 2};
    char hex[33];
    assert_ok(backend_open(backend, &options, &b));
    char *key = mem_printf("%s|%s|%d|f32|" HIDDEN "|64|2|0.1", b->name, b->describe, b->threads);
    digest_format(digest_of(key, strlen(key)), hex);
    char *path = mem_printf("%s/cairn/rates-%.16s.json", f->dir, hex), *folder = file_directory(path);
    assert_ok(file_make_directories(folder));
    assert_ok(file_write_durable(path, RATES, strlen(RATES)));
    backend_close(b);
    free(key);
    free(path);
    free(folder);
}

static inline int set_up(void **state)
{
    Fixture *f = mem_alloc(sizeof *f);
    Buf vocab = {0}, config = {0};
    f->dir = testing_directory();
    f->fakes = file_join(getenv("CAIRN_BACKEND_DIR"), "tests/fakes");
    char *path = path_in(f, "vocab.txt"), *config_path = path_in(f, "config.json");
    char *heads =
        mem_printf("for f in train dev_matched; do head -n 80 tasks/glue/sample/$f.tsv >'%s'/$f.tsv; done", f->dir);
    assert_int_equal(system(heads), 0); // NOLINT
    free(heads);
    char *command = mem_printf("'%s' vocab --input tasks/glue/sample/train.tsv --size 300 --output '%s' 2>/dev/null",
                               getenv("CAIRN_BINARY"), path);
    assert_int_equal(system(command), 0); // NOLINT
    assert_ok(file_read(path, 1 << 20, &vocab));
    int pieces = 0;
    for (size_t i = 0; i < vocab.len; i++) pieces += vocab.data[i] == '\n';
    buf_printf(&config,
               "{\"vocab_size\": %d, \"hidden_size\": " HIDDEN
               ", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
               "\"intermediate_size\": 64, \"max_position_embeddings\": 64}\n",
               pieces);
    assert_ok(file_write_durable(config_path, config.data, config.len));
    free(command);
    free(path);
    free(config_path);
    buf_free(&vocab);
    buf_free(&config);
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    Fixture *f = *state;
    Status status = file_remove_tree(f->dir);
    buf_free(&f->errors);
    free(f->dir);
    free(f->fakes);
    free(f);
    return status == OK ? 0 : -1;
}

/* ---- the files ---- */

enum { HOST = 0, COMPUTE = 1, LAUNCHES = 4 }; /* tracks */

/* The contents of a trace: counts and sums of its spans. */
typedef struct {
    Json *doc;
    const Json *events;
    int steps, micros, updates, saves, evaluations, instrs, launches, clocks;
    double seconds; /* of instrs */
    bool host_named, compute_named, launches_named, qkv;
} Trace;

static inline const char *text_of(const Json *event, const char *key) { return js_string(js_get(event, key), ""); }
static inline double number_of(const Json *event, const char *key) { return js_real(js_get(event, key), NAN); }

static inline void take_name(Trace *t, const Json *event)
{
    const char *name = text_of(js_get(event, "args"), "name");
    if (strcmp(text_of(event, "name"), "thread_name") != 0) return;
    int64_t track = js_int(js_get(event, "tid"), -1);
    t->host_named |= track == HOST && strcmp(name, "host") == 0;
    t->compute_named |= track == COMPUTE && strcmp(name, "compute") == 0;
    t->launches_named |= track == LAUNCHES && strcmp(name, "launches") == 0;
}

static inline void take_host(Trace *t, const char *name, int64_t *step)
{
    if (sscanf(name, "step %ld", step) == 1) t->steps++;
    t->micros += strncmp(name, "micro-batch ", 12) == 0;
    t->updates += strcmp(name, "update") == 0;
    t->saves += strcmp(name, "save") == 0;
    t->evaluations += strcmp(name, "evaluation") == 0;
}

static inline void take_instr(Trace *t, const Json *event)
{
    const Json *args = js_get(event, "args");
    const char *name = text_of(event, "name");
    double rows = number_of(args, "rows"), flops = number_of(args, "flops");
    assert_true(strchr(name, ' ') > name);
    assert_true(rows >= 1 && number_of(args, "bytes") > 0 && flops >= 0);
    assert_true(js_int(js_get(args, "layer"), -2) >= -1 && js_int(js_get(args, "layer"), 99) < 2);
    t->instrs++;
    t->seconds += 1e-6 * number_of(event, "dur");
    if (strcmp(name, "linear l1.qkv") != 0) return;
    assert_string_equal(text_of(event, "cat"), "forward");
    assert_int_equal(js_int(js_get(args, "layer"), -1), 1);
    assert_true(flops == 2 * rows * 32 * QKV);
    t->qkv = true;
}

/* Whether [ts, ts + dur] of an instr lies in a step of the host's. Both are rounded to nanoseconds. */
static inline bool in_a_step(const Trace *t, double begin, double end)
{
    for (size_t i = 0; i < js_size(t->events); i++) {
        const Json *e = js_at(t->events, i);
        double ts = number_of(e, "ts");
        if (strncmp(text_of(e, "name"), "step ", 5) == 0 && begin >= ts - 0.01 &&
            end <= ts + number_of(e, "dur") + 0.01)
            return true;
    }
    return false;
}

/* Reads OUT/profile/trace-rank0.json. Its steps are first_step and those that follow. */
static inline void read_trace(const Fixture *f, const char *out, int64_t first_step, Trace *t)
{
    char *name = mem_printf("%s/profile/trace-rank0.json", out), *path = path_in(f, name);
    double before = 0;
    *t = (Trace){0};
    assert_ok(js_read(path, &t->doc));
    t->events = js_get(t->doc, "traceEvents");
    for (size_t i = 0; i < js_size(t->events); i++) {
        const Json *e = js_at(t->events, i);
        const char *kind = text_of(e, "ph");
        int64_t track = js_int(js_get(e, "tid"), -1), step = -1;
        double begin = number_of(e, "ts"), end = begin + number_of(e, "dur");
        assert_int_equal(js_int(js_get(e, "pid"), -1), 0);
        if (strcmp(kind, "M") == 0) take_name(t, e);
        if (strcmp(kind, "C") == 0) t->clocks += strcmp(text_of(e, "name"), "SM clock") == 0;
        if (strcmp(kind, "X") != 0) continue;
        assert_true(begin >= 0 && end >= begin);
        if (track == HOST) take_host(t, text_of(e, "name"), &step);
        if (step >= 0) assert_int_equal(step, first_step + t->steps - 1);
        t->launches += track == LAUNCHES;
        if (track != COMPUTE) continue;
        take_instr(t, e);
        assert_true(begin >= before - 0.01); /* one after the other */
        before = end;
        assert_true(in_a_step(t, begin, end));
    }
    assert_true(t->host_named && t->compute_named && t->qkv);
    free(name);
    free(path);
}

/* The cells of a line; returns how many. */
static inline int split(char *line, char **cells, int most)
{
    int n = 0;
    for (char *cell; n < most && (cell = strsep(&line, ","));) cells[n++] = cell;
    return n;
}

/* Text of OUT/profile/NAME; caller frees. */
static inline char *read_text(const Fixture *f, const char *out, const char *name)
{
    Buf text = {0};
    char *inside = mem_printf("%s/profile/%s", out, name), *path = path_in(f, inside);
    assert_ok(file_read(path, 1 << 20, &text));
    free(inside);
    free(path);
    return text.data;
}

static inline bool has_file(const Fixture *f, const char *out, const char *name)
{
    char *inside = mem_printf("%s/profile/%s", out, name), *path = path_in(f, inside);
    bool there = file_exists(path);
    free(inside);
    free(path);
    return there;
}

static inline void expect_near(double got, double expected, double error)
{
    if (!(fabs(got - expected) <= error)) fail_msg("%.9g, expected %.9g to %.2g", got, expected, error);
}

/* kernels.csv: its rows add up to the trace, and its rates are its own counts over its own seconds. */
static inline void check_kernels(const Fixture *f, const char *out, const Trace *t)
{
    char *text = read_text(f, out, "kernels.csv"), *rest = text, *cell[15];
    double seconds = 0, share = 0, longest = INFINITY;
    long calls = 0;
    int rows = 0, products = 0;
    assert_string_equal(
        strsep(&rest, "\n"),
        "op,phase,shape,calls,seconds,share,tflop_s,limit_tflop_s,gbyte_s,limit_gbyte_s,of_limit,median_s,"
        "p95_s,rank");
    for (char *line; (line = strsep(&rest, "\n")) && *line; rows++) {
        assert_int_equal(split(line, cell, 15), 14);
        double s = strtod(cell[4], NULL), tf = strtod(cell[6], NULL), gb = strtod(cell[8], NULL);
        assert_true(s <= longest && s > 0);
        longest = s;
        seconds += s;
        share += strtod(cell[5], NULL);
        calls += strtol(cell[3], NULL, 10);
        products += strcmp(cell[0], "linear") == 0 && strcmp(cell[1], "forward") == 0 && strcmp(cell[2], "96x32") == 0;
        expect_near(strtod(cell[7], NULL), LIMIT_TF, 0);
        expect_near(strtod(cell[9], NULL), LIMIT_GB, 0);
        expect_near(strtod(cell[10], NULL), fmax(tf / LIMIT_TF, gb / LIMIT_GB), 2e-4);
        double median = strtod(cell[11], NULL), p95 = strtod(cell[12], NULL);
        assert_true(median > 0 && median <= p95 && p95 <= s + 1e-9 && median <= s);
        if (strcmp(cell[3], "1") == 0) expect_near(median, s, 1e-9);
        assert_string_equal(cell[13], "0");
    }
    assert_int_equal(products, 1);
    assert_int_equal(calls, t->instrs);
    expect_near(share, 1, 1e-6 * rows);
    expect_near(seconds, t->seconds, 1e-9 * (rows + t->instrs));
    free(text);
}

static inline void close_trace(Trace *t) { js_free(t->doc); }
