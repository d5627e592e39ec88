/* Files of predictions: for the leaderboard, and with probabilities for users. */
#include "tasks/glue/glue.h"

static Status write_text(const char *dir, const char *name, Buf *text)
{
    Status status = file_make_directories(dir);
    if (status == OK) status = file_write_text(dir, name, text);
    buf_free(text);
    return status;
}

Status glue_submission_write(const char *dir, const GlueTask *task, const GlueSplit *split,
                             const GlueExamples *examples, const float *values)
{
    Buf text = {0};
    buf_puts(&text, "index\tprediction\n");
    for (size_t i = 0; i < examples->count; i++) {
        const float *v = values + i * (size_t)task->n_labels;
        buf_printf(&text, "%lld\t", (long long)examples->examples[i].index);
        if (task->regression) {
            float clipped = fminf(fmaxf(v[0], task->low), task->high);
            buf_printf(&text, "%.3f\n", (double)clipped + 0.0); /* + 0: no "-0.000" */
        } else {
            buf_printf(&text, "%s\n", task->labels[glue_argmax(v, task->n_labels)]);
        }
    }
    return write_text(dir, split->submission, &text);
}

void glue_put_cell(bool csv, const char *text, size_t len, Buf *out)
{
    bool quotes =
        csv && (memchr(text, ',', len) || memchr(text, '"', len) || memchr(text, '\n', len) || memchr(text, '\r', len));
    if (!quotes) {
        buf_append(out, text, len);
        return;
    }
    buf_puts(out, "\"");
    for (size_t i = 0; i < len; i++) buf_append(out, text[i] == '"' ? "\"\"" : &text[i], text[i] == '"' ? 2 : 1);
    buf_puts(out, "\"");
}

void glue_put_header(const GlueTask *task, bool csv, Buf *out)
{
    buf_puts(out, csv ? "index,prediction" : "index\tprediction");
    for (int k = 0; k < task->n_labels && !task->regression; k++) {
        char *name = mem_printf("probability_%s", task->labels[k]);
        buf_puts(out, csv ? "," : "\t");
        glue_put_cell(csv, name, strlen(name), out);
        free(name);
    }
}

void glue_put_prediction(const GlueTask *task, int64_t index, const float *v, bool csv, Buf *out)
{
    Buf labels = {0};
    buf_printf(out, "%lld%c", (long long)index, csv ? ',' : '\t');
    if (task->regression) {
        buf_printf(out, "%.9g", (double)v[0]);
        return;
    }
    buf_puts(&labels, "");
    glue_put_labels(task, v, &labels);
    glue_put_cell(csv, labels.data, labels.len, out);
    for (int k = 0; k < task->n_labels; k++) buf_printf(out, "%c%.9g", csv ? ',' : '\t', (double)v[k]);
    buf_free(&labels);
}

Status glue_predictions_write(const char *dir, const GlueTask *task, const GlueSplit *split,
                              const GlueExamples *examples, const float *values)
{
    Buf text = {0};
    glue_put_header(task, false, &text);
    buf_puts(&text, "\n");
    for (size_t i = 0; i < examples->count; i++) {
        glue_put_prediction(task, examples->examples[i].index, values + i * (size_t)task->n_labels, false, &text);
        buf_puts(&text, "\n");
    }
    char *name = mem_printf("predictions_%s.tsv", split->name);
    Status status = write_text(dir, name, &text);
    free(name);
    return status;
}
