/* From the texts of a split to token sequences. */
#include "tasks/glue/run.h"

#include <stdlib.h>
#include <string.h>

static Digest examples_digest(const Examples *e)
{
    DigestStream *s = digest_new();
    size_t tokens = (size_t)e->offset[e->count];
    digest_update(s, e->offset, ((size_t)e->count + 1) * sizeof *e->offset);
    digest_update(s, e->ids, tokens * sizeof *e->ids);
    digest_update(s, e->types, tokens);
    if (e->label) digest_update(s, e->label, (size_t)e->count * sizeof *e->label);
    if (e->score) digest_update(s, e->score, (size_t)e->count * sizeof *e->score);
    Digest d = digest_value(s);
    digest_free(s);
    return d;
}

Status glue_tokenize(const GlueExamples *in, const GlueTask *task, const Tokenizer *tokenizer, int max_length,
                     const volatile sig_atomic_t *stop, Examples *out)
{
    TokenIds a = {0}, b = {0};
    size_t used = 0, cap = 0;
    Status status = OK;
    *out = (Examples){.count = (int64_t)in->count};
    out->offset = mem_array(in->count + 1, sizeof *out->offset);
    if (task->regression)
        out->score = mem_array(in->count, sizeof *out->score);
    else
        out->label = mem_array(in->count, sizeof *out->label);
    for (size_t i = 0; i < in->count; i++) {
        const GlueExample *x = &in->examples[i];
        if (stop && *stop) {
            status = fail(E_STOPPED, "stopped while tokenising %s", in->path);
            goto done;
        }
        a.count = b.count = 0;
        tokenizer_encode(tokenizer, x->a, x->a_len, &a);
        if (x->b) tokenizer_encode(tokenizer, x->b, x->b_len, &b);
        if (used + (size_t)max_length > cap) {
            cap = 2 * cap + (size_t)max_length + 4096;
            out->ids = mem_resize(out->ids, cap, sizeof *out->ids);
            out->types = mem_resize(out->types, cap, sizeof *out->types);
        }
        used += (size_t)tokenizer_pair(tokenizer, &a, x->b ? &b : NULL, max_length, out->ids + used, out->types + used);
        out->offset[i + 1] = (int64_t)used;
        if (task->regression)
            out->score[i] = x->score;
        else
            out->label[i] = x->label;
    }
    out->digest = examples_digest(out);
done:
    token_ids_free(&a);
    token_ids_free(&b);
    if (status != OK) examples_free(out);
    return status;
}
