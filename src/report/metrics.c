/* metrics.jsonl and eval.jsonl: one JSON object per line, each line one write. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/report.h"

struct Metrics {
    char *path, *eval_path;
    int fd, eval_fd;
    double trained[2]; /* until the step of the start, and behind it, in steps that are cut off */
    TfEvents *events;
};

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

/* Its trained_s. */
static double last_trained(const Buf *text, size_t kept)
{
    static const char key[] = "\"trained_s\": ";
    const char *at = strstr(last_line(text, kept), key);
    return at && at < text->data + kept ? strtod(at + sizeof key - 1, NULL) : 0;
}

/* `trained` (may be NULL) gets the seconds until `step`, and those behind it. */
static Status open_lines(const char *path, int64_t step, int *fd, double trained[2])
{
    Buf text = {0};
    size_t kept = 0;
    if (file_exists(path)) {
        TRY(file_read(path, (size_t)4 << 30, &text));
        kept = step > 0 ? keep_until(&text, step) : 0;
        if (trained) trained[0] = last_trained(&text, kept);
        if (trained) trained[1] = last_trained(&text, keep_until(&text, INT64_MAX)) - trained[0];
        buf_free(&text);
    }
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (*fd < 0 || ftruncate(*fd, (off_t)kept) != 0) return fail(E_IO, "%s: cannot be written: %m", path);
    return OK;
}

Status metrics_open(Metrics **metrics, const char *output_dir, int64_t step)
{
    Metrics *m = mem_alloc(sizeof *m);
    Status status = OK;
    *m = (Metrics){.path = file_join(output_dir, "metrics.jsonl"),
                   .eval_path = file_join(output_dir, "eval.jsonl"),
                   .fd = -1,
                   .eval_fd = -1};
    TRY_DONE(open_lines(m->path, step, &m->fd, m->trained));
    TRY_DONE(open_lines(m->eval_path, step, &m->eval_fd, NULL));
    if (tfevents_open(&m->events, output_dir, step) != OK)
        log_warn("%s. Training continues without TensorBoard's file", status_message());
    *metrics = m;
    return OK;
done:
    metrics_close(m);
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

/* TensorBoard's file repeats what the .jsonl files have: a full disk ends it, not the run. */
static void put_scalar(Metrics *m, int64_t step, const char *tag, double value)
{
    if (!m->events || tfevents_scalar(m->events, step, tag, value) == OK) return;
    log_warn("%s. Training continues without TensorBoard's file; metrics.jsonl has all values", status_message());
    tfevents_close(m->events);
    m->events = NULL;
}

Status metrics_step(Metrics *m, const StepRecord *r)
{
    Buf line = {0};
    metrics_line(r, &line);
    Status status = file_write_all(m->fd, m->path, line.data, line.len);
    buf_free(&line);
    const struct {
        const char *tag;
        double value;
        bool there;
    } scalars[] = {{"train/loss", r->loss, true},
                   {"train/lr", r->lr, true},
                   {"train/grad_norm", r->grad_norm, true},
                   {"train/mlm_loss", r->mlm_loss, r->pretraining},
                   {"train/mlm_accuracy", r->mlm_accuracy, r->pretraining},
                   {"train/nsp_loss", r->nsp_loss, r->pretraining},
                   {"train/kfac_norm", r->kfac_norm, r->kfac},
                   {"train/loss_scale", r->loss_scale, r->loss_scale > 0},
                   {"train/seq_per_s", r->seq_per_s, true}};
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        if (scalars[i].there) put_scalar(m, r->step, scalars[i].tag, scalars[i].value);
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

double metrics_trained(const Metrics *m) { return m->trained[0]; }

double metrics_again(const Metrics *m) { return m->trained[1]; }

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
