/* Any bytes as a file of examples. The first byte chooses task and split, and a custom task's form (TSV, CSV or JSON
   lines) and whether its rows have several labels. Accepted texts must be valid UTF-8, in TSV without tab or line feed,
   with the task's labels and scores, and indices and lines in order; a refusal must name the file. */
#include <stdlib.h>
#include <string.h>

#include "tasks/glue/glue.h"
#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *p, size_t len, bool tsv)
{
    CHECK(p, "no text");
    CHECK(text_utf8_error(p, len) < 0, "text that is not UTF-8");
    CHECK(!tsv || (!memchr(p, '\t', len) && !memchr(p, '\n', len)), "text with a separator");
}

static void check(const GlueExamples *x, const GlueTask *task, const GlueSplit *split, bool tsv)
{
    bool custom = glue_task_is_custom(task->name);
    CHECK(x->count > 0, "no examples");
    CHECK(x->labelled == (split->layout->label != NULL), "labelled");
    for (size_t i = 0; i < x->count; i++) {
        const GlueExample *e = &x->examples[i];
        check_text(e->a.p, e->a.len, tsv);
        CHECK((e->b.p != NULL) == (split->layout->b != NULL), "second text");
        if (e->b.p) check_text(e->b.p, e->b.len, tsv);
        CHECK(e->line > (i ? e[-1].line : 0), "line %lld", (long long)e->line);
        CHECK(e->index >= 0 && (split->kind == GLUE_TEST || custom || i == 0 || e->index > e[-1].index), "index");
        CHECK(e->label >= -1 && e->label < task->n_labels, "label %d", (int)e->label);
        CHECK((e->label >= 0) == (x->labelled && !task->regression && !task->multi), "label %d", (int)e->label);
        CHECK((e->targets != NULL) == (x->labelled && task->multi), "targets");
        CHECK(!task->regression || !x->labelled || (e->score >= task->low && e->score <= task->high), "score");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static GlueCustom custom, several;
    if (!custom.text_columns) {
        log_set_level(LOG_ERROR);
        CHECK(glue_custom_init(&several, "1,0", "2", "x,y,0", true) == OK, "%s", status_message());
        CHECK(glue_custom_init(&custom, "1,0", "2", "x,y,z", false) == OK, "%s", status_message());
    }
    if (size == 0) return 0;
    enum { N_CHOICES = 11 }; /* the table's tasks, and the custom one */
    const GlueTask *task = glue_task_at(data[0] % N_CHOICES);
    if (!task) task = data[0] / N_CHOICES / 12 % 2 ? &several.task : &custom.task;
    const GlueSplit *split = &task->splits[data[0] / N_CHOICES % task->n_splits];
    static const char *const names[] = {"fuzz.tsv", "fuzz.csv", "fuzz.jsonl", "fuzz"};
    const char *name = names[glue_task_is_custom(task->name) ? data[0] / N_CHOICES / 3 % 4 : 0];
    GlueExamples x;

    /* A copy of exact size, so that reads beyond it are detected. */
    uint8_t *copy = malloc(size - 1 ? size - 1 : 1);
    CHECK(copy, "no memory");
    memcpy(copy, data + 1, size - 1);
    if (glue_parse(&x, name, copy, size - 1, task, split) == OK)
        check(&x, task, split, name == names[0]);
    else
        CHECK(strstr(status_message(), "fuzz") && text_utf8_error(status_message(), strlen(status_message())) < 0,
              "message '%s'", status_message());
    glue_examples_free(&x);
    free(copy);
    return 0;
}
