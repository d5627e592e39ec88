#include "report/record.h"

#define MOST_BYTES ((size_t)4 << 30)

static const char *const step_keys[N_STEP_COLUMNS] = {
#define X(column, key) "\"" key "\": ",
    STEP_LIST(X)
#undef X
};

/* The text of a member's value in one of our own lines; NULL if it is not there. */
static const char *member_text(const char *line, const char *key, int *len)
{
    const char *at = strstr(line, key);
    if (!at) return NULL;
    at += strlen(key);
    *len = (int)strcspn(at, ",}");
    return at;
}

/* The caller frees. */
static char *member_copy(const char *line, const char *key)
{
    int len;
    const char *text = member_text(line, key, &len);
    return text ? mem_strndup(text, (size_t)len) : NULL;
}

static const char *const text_keys[N_STEP_TEXTS] = {"\"loss\": ", "\"grads_digest\": ", "\"weights_digest\": "};

static double member_value(const char *line, const char *key)
{
    int len;
    const char *text = member_text(line, key, &len);
    return !text || strncmp(text, "null", 4) == 0 ? NAN : strtod(text, NULL);
}

static Status read_lines(const char *path, RunRecord *r, Status (*take)(RunRecord *r, const char *line))
{
    Buf text = {0};
    Status status = OK;
    if (!file_exists(path)) return OK;
    TRY(file_read(path, MOST_BYTES, &text));
    char *rest = text.data ? text.data : (char *)"";
    for (int number = 1; status == OK && rest && *rest; number++) {
        char *line = strsep(&rest, "\n");
        if (!rest && !r->finished) break; /* a run is writing it */
        status = status_context(take(r, line), "%s: line %d", path, number);
    }
    buf_free(&text);
    return status;
}

/* Room grows with the count, doubling. */
static void *grow(void *array, int count, size_t size)
{
    bool full = (count & (count - 1)) == 0;
    return full ? mem_resize(array, count ? 2 * (size_t)count : 1, size) : array;
}

static Status take_step(RunRecord *r, const char *line)
{
    int n = r->n_steps;
    bool known = strncmp(line, "{\"step\": ", 9) == 0 && strstr(line, step_keys[STEP_LOSS]) &&
                 strstr(line, step_keys[STEP_RATE]);
    if (!known) return fail(E_FORMAT, "not a step: expected {\"step\": N, \"loss\": …, \"lr\": …}");
    for (int c = 0; c < N_STEP_COLUMNS; c++) {
        r->column[c] = grow(r->column[c], n, sizeof(double));
        r->column[c][n] = member_value(line, step_keys[c]);
    }
    for (int t = 0; t < N_STEP_TEXTS; t++) {
        r->text[t] = grow(r->text[t], n, sizeof *r->text[t]);
        r->text[t][n] = member_copy(line, text_keys[t]);
    }
    r->n_steps++;
    return OK;
}

static Status take_evaluation(RunRecord *r, const char *line)
{
    Json *doc;
    TRY(js_parse("an evaluation", line, strlen(line), &doc));
    r->evals = grow(r->evals, r->n_evals, sizeof *r->evals);
    EvalPoint *e = &r->evals[r->n_evals++];
    *e = (EvalPoint){.step = js_real(js_get(doc, "step"), NAN), .value = js_real(js_get(doc, "value"), NAN)};
    snprintf(e->name, sizeof e->name, "%s %s", js_string(js_get(doc, "split"), "?"),
             js_string(js_get(doc, "metric"), "?"));
    js_free(doc);
    return OK;
}

/* What the steps say of a run without run.json. */
static void summarize(RunRecord *r)
{
    double sum = 0;
    int n = 0;
    for (int i = r->n_steps / 10; i < r->n_steps; i++)
        if (r->column[STEP_SEQUENCES][i] > 0) {
            sum += 1 / r->column[STEP_SEQUENCES][i];
            n++;
        }
    int last = r->n_steps - 1;
    double peak = r->column[STEP_PEAK][last];
    r->s = (RunSummary){.task = "?",
                        .recompute = "?",
                        .precision = "?",
                        .backend = "?",
                        .steps = (int64_t)r->column[STEP_NUMBER][last],
                        .final_loss = r->column[STEP_LOSS][last],
                        .seq_per_s = n ? n / sum : NAN,
                        .tokens_per_s = NAN,
                        .wall_s = r->column[STEP_WALL][last],
                        .measured_peak_bytes = isfinite(peak) ? (size_t)peak : 0};
}

static Status read_record(const char *dir, bool any, RunRecord *r)
{
    char *summary = file_join(dir, "run.json"), *steps = file_join(dir, "metrics.jsonl"),
         *evals = file_join(dir, "eval.jsonl");
    Status status = OK;
    *r = (RunRecord){.finished = !any || file_exists(summary)};
    if (r->finished) {
        TRY_DONE(summary_read(summary, &r->doc));
        run_record_summary(r);
    }
    TRY_DONE(read_lines(steps, r, take_step));
    TRY_DONE(read_lines(evals, r, take_evaluation));
    if (!r->finished && r->n_steps == 0)
        TRY_DONE(fail(E_IO,
                      "%s: expected the output folder of a training run; it has no run.json, which a finished run "
                      "writes, and no metrics.jsonl with a step",
                      dir));
    if (!r->finished) summarize(r);
done:
    MEM_FREE(summary, steps, evals);
    if (status != OK) run_record_free(r);
    return status;
}

enum { N_FACTS = 5 };

/* A fact of a run as text; nothing where its record lacks it. */
static void put_fact(const RunRecord *r, int fact, Buf *out)
{
    const char *const texts[] = {r->s.model, r->s.device, r->s.precision};
    int64_t length = js_int(js_get(js_get(r->doc, "config"), "max-seq-length"), 0);
    buf_puts(out, "");
    if (fact < 3 && strcmp(texts[fact], "?") != 0) buf_puts(out, texts[fact]);
    if (fact == 3 && r->s.ranks > 0) buf_printf(out, "%d rank%s", r->s.ranks, r->s.ranks == 1 ? "" : "s");
    if (fact == 4 && length > 0) buf_printf(out, "length %lld", (long long)length);
}

char *run_records_about(const RunRecord *const *runs, int n)
{
    Buf out = {0};
    buf_puts(&out, "");
    for (int fact = 0; fact < N_FACTS; fact++) {
        Buf first = {0};
        bool shared = true;
        for (int i = 0; i < n && shared; i++) {
            Buf text = {0};
            if (!runs[i] || !runs[i]->finished) continue;
            put_fact(runs[i], fact, &text);
            if (!first.data) buf_puts(&first, text.data);
            shared = strcmp(first.data, text.data) == 0;
            buf_free(&text);
        }
        if (shared && first.len) buf_printf(&out, "%s%s", out.len ? ", " : "", first.data);
        buf_free(&first);
    }
    return out.data;
}

Status run_record_read(const char *dir, RunRecord *r) { return read_record(dir, false, r); }
Status run_record_read_any(const char *dir, RunRecord *r) { return read_record(dir, true, r); }

double *run_record_smooth(const double *y, int n)
{
    double *out = mem_array((size_t)n, sizeof *out), mean = 0, weight = 0;
    for (int i = 0; i < n; i++) {
        if (isfinite(y[i])) {
            mean = 0.95 * mean + 0.05 * y[i];
            weight = 0.95 * weight + 0.05;
        }
        out[i] = weight > 0 ? mean / weight : NAN;
    }
    return out;
}

void run_record_free(RunRecord *r)
{
    for (int t = 0; t < N_STEP_TEXTS; t++) mem_free_texts(r->text[t], r->n_steps);
    for (int c = 0; c < N_STEP_COLUMNS; c++) free(r->column[c]);
    MEM_FREE(r->evals, r->memory);
    js_free(r->doc);
    *r = (RunRecord){0};
}
