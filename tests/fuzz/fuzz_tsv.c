/* Any bytes as a GLUE file. The first byte chooses task and split. What is accepted must lie within the input, hold
   valid UTF-8 without tab or line feed and only labels and scores of the task, with indices and lines in order; what is
   refused must be named. */
#include <stdlib.h>
#include <string.h>

#include "tasks/glue/glue.h"
#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *p, size_t len, const uint8_t *data, size_t size)
{
    const uint8_t *at = (const uint8_t *)p;
    CHECK(at >= data && at <= data + size && len <= (size_t)(data + size - at), "text outside of the file");
    CHECK(text_utf8_error(p, len) < 0, "text that is not UTF-8");
    CHECK(!memchr(p, '\t', len) && !memchr(p, '\n', len), "text with a separator");
}

static void check(const GlueExamples *x, const GlueTask *task, const GlueSplit *split, const uint8_t *data, size_t size)
{
    bool custom = glue_task_is_custom(task->name);
    CHECK(x->count > 0, "no examples");
    CHECK(x->labelled == (split->layout->label != NULL), "labelled");
    for (size_t i = 0; i < x->count; i++) {
        const GlueExample *e = &x->examples[i];
        check_text(e->a, e->a_len, data, size);
        CHECK((e->b != NULL) == (split->layout->b != NULL), "second text");
        if (e->b) check_text(e->b, e->b_len, data, size);
        CHECK(e->line > (i ? e[-1].line : 0), "line %lld", (long long)e->line);
        CHECK(e->index >= 0 && (split->kind == GLUE_TEST || custom || i == 0 || e->index > e[-1].index), "index");
        CHECK(e->label >= -1 && e->label < task->n_labels, "label %d", (int)e->label);
        CHECK((e->label >= 0) == (x->labelled && !task->regression), "label %d", (int)e->label);
        CHECK(!task->regression || !x->labelled || (e->score >= task->low && e->score <= task->high), "score");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static GlueCustom custom;
    if (!custom.text_columns) {
        log_set_level(LOG_ERROR);
        CHECK(glue_custom_init(&custom, "1,0", "2", "x,y,z") == OK, "%s", status_message());
    }
    if (size == 0) return 0;
    int which = data[0] % (glue_task_count() + 1);
    const GlueTask *task = which < glue_task_count() ? glue_task_at(which) : &custom.task;
    const GlueSplit *split = &task->splits[data[0] / (glue_task_count() + 1) % task->n_splits];
    GlueExamples x;

    /* A copy of its own, so that a read beyond it is seen. */
    uint8_t *copy = malloc(size - 1 ? size - 1 : 1);
    CHECK(copy, "no memory");
    memcpy(copy, data + 1, size - 1);
    if (glue_parse(&x, "fuzz", copy, size - 1, task, split) == OK)
        check(&x, task, split, copy, size - 1);
    else
        CHECK(strstr(status_message(), "fuzz") && text_utf8_error(status_message(), strlen(status_message())) < 0,
              "message '%s'", status_message());
    glue_examples_free(&x);
    free(copy);
    return 0;
}
