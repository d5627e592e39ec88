/* metrics.jsonl and eval.jsonl: one JSON object per line, each line one write. */
#include <fcntl.h>
#include <unistd.h>

#include "base/test_switch.h"
#include "report/report.h"

struct Metrics {
    char *path, *eval_path;
    int fd, eval_fd;
    double trained; /* until the step of the start */
    double wall;    /* of earlier processes */
    TfEvents *events;
};

/* A file as an earlier process left it, and how much of it stays. */
typedef struct {
    Buf text;
    size_t kept;
} Lines;

/* The "step" of a line {"step": N, …}, or −1. */
static int64_t step_of(const char *line, size_t len)
{
    static const char key[] = "{\"step\": ";
    if (len < sizeof key || strncmp(line, key, sizeof key - 1) != 0) return -1;
    return strtoll(line + sizeof key - 1, NULL, 10);
}

/* Where the lines up to `step` end. */
static size_t keep_until(const Buf *text, int64_t step)
{
    size_t kept = 0;
    while (kept < text->len) {
        const char *end = memchr(text->data + kept, '\n', text->len - kept);
        if (!end) break; /* torn */
        size_t len = (size_t)(end - text->data) - kept;
        int64_t at = step_of(text->data + kept, len);
        if (at < 0 || at > step) break;
        kept += len + 1;
    }
    return kept;
}

/* The last of the lines that end at `kept`; empty where there is none. */
static const char *last_line(const Buf *text, size_t kept)
{
    size_t begin = kept > 0 ? kept - 1 : 0;
    while (begin > 0 && text->data[begin - 1] != '\n') begin--;
    return kept > 0 ? text->data + begin : "";
}

/* Its value of `key`, which is written as in the file. */
static double last_value(const Buf *text, size_t kept, const char *key)
{
    const char *at = strstr(last_line(text, kept), key);
    return at && at < text->data + kept ? strtod(at + strlen(key), NULL) : 0;
}

/* Opens a file for appending behind the line of `step`. `old` (may be NULL) gets what it held. */
static Status open_lines(const char *path, int64_t step, int *fd, Lines *old)
{
    Lines lines = {0};
    if (file_exists(path)) {
        TRY(file_read(path, (size_t)4 << 30, &lines.text));
        lines.kept = step > 0 ? keep_until(&lines.text, step) : 0;
    }
    Status status = file_open_regular(path, O_WRONLY | O_CREAT | O_APPEND, fd);
    if (status == OK && ftruncate(*fd, (off_t)lines.kept) != 0) status = fail(E_IO, "%s: cannot be written: %m", path);
    if (old)
        *old = lines;
    else
        buf_free(&lines.text);
    return status;
}

/* TensorBoard's file repeats what the .jsonl files have: a full disk ends it, not the run. */
static void put_scalar(Metrics *m, int64_t step, const char *tag, double value)
{
    if (!m->events || tfevents_scalar(m->events, step, tag, value) == OK) return;
    log_warn("%s. Training continues without TensorBoard's file; metrics.jsonl has all values", status_message());
    tfevents_close(m->events);
    m->events = NULL;
}

/* Those of a line of metrics.jsonl. */
static void put_scalars(Metrics *m, const char *line)
{
    static const char *const keys[] = {"loss",     "lr",        "grad_norm",  "mlm_loss", "mlm_accuracy",
                                       "nsp_loss", "kfac_norm", "loss_scale", "seq_per_s"};
    Json *doc = NULL;
    if (!m->events) return;
    Status status = js_parse(m->path, line, strcspn(line, "\n"), &doc);
    for (size_t i = 0; status == OK && i < sizeof keys / sizeof *keys; i++) {
        const Json *value = js_get(doc, keys[i]);
        if (value) put_scalar(m, js_int(js_get(doc, "step"), 0), SHORT_TEXT("train/%s", keys[i]), js_real(value, NAN));
    }
    js_free(doc);
}

/* TensorBoard's file begins behind `step`, or at an evaluation of this step that an earlier process wrote and this one
   writes again. TensorBoard then drops all that older files have of the step, so the step is put again. */
static void open_events(Metrics *m, const char *output_dir, int64_t step, const Lines *steps, const Lines *evals)
{
    const Buf *text = &evals->text;
    size_t cut = text->len - evals->kept;
    bool again = step > 0 && cut > 0 && step_of(text->data + evals->kept, cut) == step;
    if (tfevents_open(&m->events, output_dir, again ? step - 1 : step) != OK)
        log_warn("%s. Training continues without TensorBoard's file", status_message());
    if (again) put_scalars(m, last_line(&steps->text, steps->kept));
}

Status metrics_open(Metrics **metrics, const char *output_dir, int64_t step, int64_t evaluated)
{
    Metrics *m = mem_alloc(sizeof *m);
    Status status = OK;
    Lines steps = {0}, evals = {0};
    *m = (Metrics){.path = file_join(output_dir, "metrics.jsonl"),
                   .eval_path = file_join(output_dir, "eval.jsonl"),
                   .fd = -1,
                   .eval_fd = -1};
    TRY_DONE(open_lines(m->path, step, &m->fd, &steps));
    TRY_DONE(open_lines(m->eval_path, evaluated, &m->eval_fd, &evals));
    m->trained = last_value(&steps.text, steps.kept, "\"trained_s\": ");
    if (step > 0) m->wall = last_value(&steps.text, keep_until(&steps.text, INT64_MAX), "\"wall_s\": ");
    open_events(m, output_dir, step, &steps, &evals);
    *metrics = m;
done:
    BUF_FREE(&steps.text, &evals.text);
    if (status != OK) metrics_close(m);
    return status;
}

void metrics_line(const StepRecord *r, Buf *line)
{
    buf_printf(line, "{\"step\": %lld", (long long)r->step);
    buf_member(line, "epoch", r->epoch);
    buf_member(line, "loss", r->loss);
    buf_member(line, "lr", r->lr);
    buf_member(line, "grad_norm", r->grad_norm);
    buf_member(line, "seq_per_s", r->seq_per_s);
    buf_member(line, "tokens_per_s", r->tokens_per_s);
    buf_printf(line, ", \"peak_bytes\": %zu", r->peak_bytes);
    buf_member(line, "wall_s", r->wall_s);
    buf_member(line, "trained_s", r->trained_s);
    if (r->pretraining) {
        buf_member(line, "mlm_loss", r->mlm_loss);
        buf_member(line, "mlm_accuracy", r->mlm_accuracy);
        buf_member(line, "nsp_loss", r->nsp_loss);
    }
    if (r->loss_scale > 0) {
        buf_member(line, "loss_scale", r->loss_scale);
        buf_printf(line, ", \"skipped\": %lld", (long long)r->skipped);
    }
    if (r->pipeline) {
        buf_member(line, "bubble", r->bubble);
        if (r->kfac) buf_member(line, "filled", r->filled);
        buf_member(line, "exposed_s", r->exposed_s);
        if (r->kfac) buf_printf(line, ", \"fill_costs\": \"%s\"", r->fill_measured ? "measured" : "predicted");
    }
    if (r->kfac) {
        buf_member(line, "kfac_norm", r->kfac_norm);
        buf_printf(line, ", \"kfac_set\": %lld", (long long)r->kfac_set);
        if (r->kfac_failed >= 0) buf_printf(line, ", \"kfac_failed\": %lld", (long long)r->kfac_failed);
    }
    const StepDigests *d = &r->digests;
    if (d->of_grads) buf_printf(line, ", \"grads_digest\": \"%016" PRIx64 "\"", d->grads);
    if (d->of_weights) buf_printf(line, ", \"weights_digest\": \"%016" PRIx64 "\"", d->weights);
    buf_puts(line, "}\n");
}

Status metrics_step(Metrics *m, const StepRecord *r)
{
    Buf line = {0};
    metrics_line(r, &line);
    Status status = file_write_all(m->fd, m->path, line.data, line.len);
    put_scalars(m, line.data);
    buf_free(&line);
    return status;
}

/* Appends the line of that step to a file whose last line is of the step before, or that is missing. */
static Status complete(const char *path, int64_t step, const Buf *line)
{
    Status status = OK;
    Buf text = {0};
    int fd = -1;
    bool there = file_exists(path);
    if (there) TRY_DONE(file_read(path, (size_t)4 << 30, &text));
    size_t kept = there ? keep_until(&text, step) : 0;
    int64_t last = kept > 0 ? step_of(last_line(&text, kept), kept) : 0;
    if (there && last != step - 1) goto done;
    TRY_DONE(open_lines(path, step, &fd, NULL));
    status = file_write_all(fd, path, line->data, line->len);
done:
    if (fd >= 0) close(fd);
    buf_free(&text);
    return status;
}

Status metrics_complete(const char *output_dir, const StepRecord *r)
{
    Buf line = {0};
    char *path = file_join(output_dir, "metrics.jsonl");
    metrics_line(r, &line);
    Status status = complete(path, r->step, &line);
    buf_free(&line);
    free(path);
    return status;
}

Status metrics_join(const char *output_dir, const char *other)
{
    enum { LINE_MOST = 1 << 16 };
    Status status = OK;
    Buf line = {0};
    char *path = file_join(output_dir, "metrics.jsonl"), *from = file_join(other, "metrics.jsonl");
    if (!file_exists(from)) goto done;
    TRY_DONE(file_read(from, LINE_MOST, &line));
    int64_t step = step_of(line.data, line.len);
    if (step > 0 && line.data[line.len - 1] == '\n') status = complete(path, step, &line);
done:
    buf_free(&line);
    MEM_FREE(path, from);
    return status;
}

Status metrics_eval(Metrics *m, int64_t step, const char *split, const char *metric, double value)
{
    Buf line = {0};
    if (!m) return OK;
    char *place = mem_printf("%s-%s", split, metric);
    test_at_number(place, step, 0);
    free(place);
    buf_printf(&line, "{\"step\": %lld", (long long)step);
    buf_member_text(&line, "split", split);
    buf_member_text(&line, "metric", metric);
    buf_member(&line, "value", value);
    buf_puts(&line, "}\n");
    Status status = file_write_all(m->eval_fd, m->eval_path, line.data, line.len);
    buf_free(&line);
    TRY(status);
    char *tag = mem_printf("eval/%s/%s", split, metric);
    put_scalar(m, step, tag, value);
    free(tag);
    return OK;
}

double metrics_trained(const Metrics *m) { return m->trained; }
double metrics_wall(const Metrics *m) { return m->wall; }

const char *metrics_lost(const Metrics *m)
{
    if (!file_is_there(m->fd, m->path)) return m->path;
    return file_is_there(m->eval_fd, m->eval_path) ? NULL : m->eval_path;
}

void metrics_close(Metrics *m)
{
    if (!m) return;
    if (m->fd >= 0) close(m->fd);
    if (m->eval_fd >= 0) close(m->eval_fd);
    tfevents_close(m->events);
    MEM_FREE(m->path, m->eval_path, m);
}
