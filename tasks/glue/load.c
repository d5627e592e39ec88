/* Tokenises the texts of a split. */
#include "tasks/glue/run.h"

void glue_append(Examples *e, size_t *cap, Tokenizer *tokenizer, RecordText a, RecordText b, int max_length)
{
    TokenIds first = {0}, second = {0};
    size_t used = (size_t)e->offset[e->count];
    bool pair = b.p && b.len > 0; /* an empty second text is none */
    if (pair) tokenizer_encode(tokenizer, b.p, b.len, &second);
    size_t most = second.count < (size_t)max_length ? (size_t)max_length : second.count + 1;
    tokenizer_encode_first(tokenizer, a.p, a.len, most, &first);
    if (used + (size_t)max_length > *cap) {
        *cap = 2 * *cap + (size_t)max_length + 4096;
        e->ids = mem_resize(e->ids, *cap, sizeof *e->ids);
        e->types = mem_resize(e->types, *cap, sizeof *e->types);
    }
    int n = tokenizer_pair(tokenizer, &first, pair ? &second : NULL, max_length, e->ids + used, e->types + used);
    e->cut += first.count + second.count + (pair ? 3 : 2) > (size_t)max_length;
    e->offset[++e->count] = (int64_t)used + n;
    token_ids_free(&first);
    token_ids_free(&second);
}

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
        glue_append(out, &cap, tokenizer, x->a, x->b, max_length);
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
