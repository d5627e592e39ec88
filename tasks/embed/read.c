/* Texts and scores from a user's own files (data/records.h). */
#include "tasks/embed/embed.h"
#include "train/ranks/signals.h"

Status embed_columns(const char *texts, const char *score, EmbedColumns *c)
{
    *c = (EmbedColumns){.list = mem_strdup(texts), .score = *score ? mem_strdup(score) : NULL};
    c->n = *texts ? record_names(c->list, &c->names) : 0;
    if (c->n != 2 && c->n != 3)
        return fail(E_USAGE,
                    "--text-columns '%s': expected the columns of anchor and positive, or of anchor, positive and "
                    "negative, with commas between",
                    texts);
    if (c->score && strpbrk(score, "\t\r\n"))
        return fail(E_USAGE, "--label-column '%s': expected the name of one column", score);
    return OK;
}

void embed_columns_free(EmbedColumns *c)
{
    MEM_FREE(c->list, c->names, c->score);
    *c = (EmbedColumns){0};
}

static Status take_score(const EmbedTexts *x, const Record *r, RecordText text, EmbedScores scores, float *score)
{
    double v = 0;
    text = record_trim(text);
    if (!record_number(text, &v))
        return fail(E_FORMAT, "%s:%lld: expected a number as score, found '%s'", x->path, (long long)r->line,
                    record_shown(text).text);
    if (scores == SCORES_COSINES && !(v >= -1 && v <= 1))
        return fail(E_FORMAT,
                    "%s:%lld: --loss cosine: expected a score from -1 to 1, as cosines are, found %s; divide the "
                    "column's scores by the largest one",
                    x->path, (long long)r->line, record_shown(text).text);
    *score = (float)v;
    return OK;
}

static Status take_row(EmbedTexts *x, const Record *r, const EmbedColumns *c, EmbedScores scores, Tokenizer *tokenizer,
                       int max_length, size_t *cap)
{
    Examples *e = &x->examples;
    for (int k = 0; k < x->texts; k++) {
        RecordText text = r->texts[k], trimmed = record_trim(text);
        if (trimmed.len == 0)
            return fail(E_FORMAT, "%s:%lld: column '%s' is empty, expected a text; remove the row or mend it", x->path,
                        (long long)r->line, c->names[k]);
        if (scores) TRY(take_score(x, r, r->texts[x->texts], scores, &e->score[e->count]));
        x->digests[e->count] = digest_of(trimmed.p, trimmed.len);
        examples_append(e, cap, tokenizer, text, (RecordText){NULL, 0}, max_length);
    }
    x->rows++;
    return OK;
}

static Status take_rows(EmbedTexts *x, Records *rows, const EmbedColumns *c, EmbedScores scores, Tokenizer *tokenizer,
                        int max_length)
{
    Examples *e = &x->examples;
    size_t tokens = 0, room = 0;
    const Record *r;
    for (;;) {
        TRY(records_next(rows, &r));
        if (!r) break;
        if (!scores && x->rows == 0 && r->texts[x->texts].p)
            log_warn(
                "%s: its column '%s' is not used: --loss cosine alone trains on scores, and here each row counts as "
                "texts that belong together",
                x->path, c->score);
        if (*signals_stop()) return fail(E_STOPPED, "stopped while reading %s", x->path);
        if ((size_t)(e->count + x->texts) >= room) {
            room = 2 * room + 1024;
            e->offset = mem_resize(e->offset, room + 1, sizeof *e->offset);
            x->digests = mem_resize(x->digests, room, sizeof *x->digests);
            if (!e->count) e->offset[0] = 0;
            if (scores) e->score = mem_resize(e->score, room, sizeof *e->score);
        }
        TRY(take_row(x, r, c, scores, tokenizer, max_length, &tokens));
    }
    records_warn_quotes(rows);
    if (x->rows == 0) return fail(E_FORMAT, "%s: expected at least one row, found none after the header", x->path);
    e->digest = examples_digest(e);
    return OK;
}

Status embed_read(EmbedTexts *x, const char *path, const void *data, size_t size, const EmbedColumns *c, int texts,
                  EmbedScores scores, Tokenizer *tokenizer, int max_length)
{
    RecordsOptions o = {.n = texts, .stop = signals_stop()};
    Records *rows = NULL;
    Status status = OK;
    *x = (EmbedTexts){.path = mem_strdup(path), .texts = texts, .examples.score_width = scores != SCORES_NONE};
    for (int k = 0; k < texts; k++) o.columns[k] = c->names[k];
    bool positions = record_positions(c->names, texts) && (!scores || record_positions(&c->score, 1));
    if (positions) o.without_header = RECORDS_AS_FIRST;
    o.optional[texts] = !scores; /* to warn of it */
    if (c->score && (scores || !positions)) o.columns[o.n++] = c->score;
    TRY_DONE(data ? records_open_memory(&rows, path, data, size, &o) : records_open(&rows, path, &o));
    TRY_DONE(take_rows(x, rows, c, scores, tokenizer, max_length));
done:
    records_close(rows);
    if (status != OK) embed_texts_free(x);
    return status;
}

void embed_texts_free(EmbedTexts *x)
{
    examples_free(&x->examples);
    MEM_FREE(x->path, x->digests);
    *x = (EmbedTexts){0};
}

static Status source_step(void *self, int64_t batch, const Examples **examples, int64_t *index, int64_t *n)
{
    const EmbedSource *s = self;
    const EmbedTexts *x = s->texts;
    int64_t rows = batch_examples(s->seed, x->rows, s->rows, batch, index);
    for (int k = x->texts - 1; k >= 0; k--) /* the rows' numbers are the last to be overwritten */
        for (int64_t i = 0; i < rows; i++) index[k * rows + i] = index[i] * x->texts + k;
    *examples = &x->examples;
    *n = rows * x->texts;
    return OK;
}

ExampleSource embed_source(EmbedSource *s)
{
    return (ExampleSource){.self = s, .count = s->texts->examples.count, .step = source_step};
}
