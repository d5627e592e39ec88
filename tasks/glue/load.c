/* Tokenises the texts of a split. */
#include "tasks/glue/run.h"

Status glue_tokenize(const GlueExamples *in, const GlueTask *task, Tokenizer *tokenizer, int max_length,
                     const volatile sig_atomic_t *stop, Examples *out)
{
    size_t cap = 0;
    Status status = OK;
    *out = (Examples){0};
    out->offset = mem_array(in->count + 1, sizeof *out->offset);
    out->score_width = task->multi ? task->n_labels : 1;
    if (task->regression || task->multi)
        out->score = mem_array(in->count * (size_t)out->score_width, sizeof *out->score);
    else
        out->label = mem_array(in->count, sizeof *out->label);
    for (size_t i = 0; i < in->count; i++) {
        const GlueExample *x = &in->examples[i];
        if (stop && *stop) TRY_DONE(fail(E_STOPPED, "stopped while tokenising %s", in->path));
        examples_append(out, &cap, tokenizer, x->a, x->b, max_length);
        if (task->regression)
            out->score[i] = x->score;
        else if (x->targets)
            memcpy(out->score + i * (size_t)out->score_width, x->targets,
                   (size_t)out->score_width * sizeof *out->score);
        else if (!task->multi)
            out->label[i] = x->label;
    }
    out->digest = examples_digest(out);
done:
    if (status != OK) examples_free(out);
    return status;
}
