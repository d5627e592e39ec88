/* From logits to answers: write_predictions of Google's run_squad.py. A window holds no pad tokens, so the best places
   are sought among real ones alone; the script's may be pad tokens, which it then discards. */

#include "tasks/squad/squad.h"
#include "text/utf8.h"

/* ---- the text of an answer ---- */

/* Bytes of the characters of a text that are not blanks. */
typedef struct {
    uint32_t *at; // (n)
    size_t n;
} Letters;

static Letters letters_of(const char *text, size_t len)
{
    Letters l = {.at = mem_array(len + 1, sizeof *l.at)};
    const char *at = text, *end = text + len;
    while (at < end) {
        const char *here = at;
        if (utf8_decode(&at, end) != ' ') l.at[l.n++] = (uint32_t)(here - text);
    }
    return l;
}

/* The number of the letter at a byte; n where there is none. */
static size_t letter_at(const Letters *l, size_t byte)
{
    size_t i = 0;
    while (i < l->n && l->at[i] < byte) i++;
    return i < l->n && l->at[i] == byte ? i : l->n;
}

void squad_final_text(const Tokenizer *tokenizer, const char *predicted, const char *original, Buf *out)
{
    Buf words = {0};
    size_t len = strlen(original), wanted = strlen(predicted), first = 0, end = len;
    tokenizer_words(tokenizer, original, len, &words);
    const char *found = words.len && wanted ? strstr(words.data, predicted) : NULL;
    if (found) {
        Letters ours = letters_of(original, len), theirs = letters_of(words.data, words.len);
        size_t at = (size_t)(found - words.data), last = wanted - 1;
        while (last > 0 && ((uint8_t)predicted[last] & 0xC0) == 0x80) last--; /* the last character's first byte */
        size_t a = letter_at(&theirs, at), b = letter_at(&theirs, at + last);
        if (ours.n == theirs.n && a < ours.n && b < ours.n) {
            first = ours.at[a];
            const char *behind = original + ours.at[b];
            utf8_decode(&behind, original + len);
            end = (size_t)(behind - original);
        }
        MEM_FREE(ours.at, theirs.at);
    }
    buf_puts(out, "");
    buf_append(out, original + first, end - first);
    buf_free(&words);
}

/* Pieces as words: " ##" and "##" are removed. */
static void put_pieces(const Vocab *vocab, const int32_t *ids, int64_t n, Buf *out)
{
    buf_puts(out, "");
    for (int64_t i = 0; i < n; i++) {
        const char *piece = vocab_piece(vocab, ids[i]);
        if (strncmp(piece, "##", 2) == 0)
            piece += 2;
        else if (out->len)
            buf_puts(out, " ");
        for (const char *hashes; (hashes = strstr(piece, "##")); piece = hashes + 2)
            buf_append(out, piece, (size_t)(hashes - piece));
        buf_puts(out, piece);
    }
}

/* The answer between two rows of a window. Caller frees. */
static char *text_between(const SquadFile *file, const SquadWindows *w, int64_t window, int32_t start, int32_t end,
                          const Vocab *vocab, const Tokenizer *tokenizer)
{
    const SquadWindow *at = &w->windows[window];
    const SquadParagraph *p = &file->paragraphs[file->questions[at->question].paragraph];
    int32_t shift = at->start - at->query - 2; /* from rows to pieces of the paragraph */
    Buf pieces = {0}, original = {0}, text = {0};
    put_pieces(vocab, p->piece_ids + start + shift, end - start + 1, &pieces);
    buf_puts(&original, "");
    for (int32_t word = p->piece_word[start + shift]; word <= p->piece_word[end + shift]; word++) {
        if (original.len) buf_puts(&original, " ");
        buf_append(&original, p->text + p->words[word].at, p->words[word].len);
    }
    squad_final_text(tokenizer, pieces.data, original.data, &text);
    BUF_FREE(&pieces, &original);
    return text.data;
}

/* ---- candidates ---- */

typedef struct {
    int64_t window, order;
    int32_t start, end; /* rows; 0: no answer */
    double start_logit, end_logit;
} AnswerSpan;

typedef struct {
    AnswerSpan *spans; // (n)
    int64_t n, cap;
} Spans;

static void add_span(Spans *s, AnswerSpan span)
{
    span.order = s->n;
    MEM_PUSH(s->spans, s->n, s->cap, span);
}

static int best_first(const void *a, const void *b)
{
    const AnswerSpan *x = a, *y = b;
    double p = x->start_logit + x->end_logit, q = y->start_logit + y->end_logit;
    if (p != q) return p < q ? 1 : -1;
    return x->order < y->order ? -1 : 1;
}

/* The rows with the n largest values in a column of logits (rows, 2), the first of equals first. */
static int best_rows(const float *logits, int64_t rows, int n, int32_t *best)
{
    int found = 0;
    for (int32_t i = 0; i < rows; i++) {
        if (found == n && !(logits[2 * i] > logits[2 * best[n - 1]])) continue;
        int at = found < n ? found++ : n - 1;
        for (; at > 0 && logits[2 * i] > logits[2 * best[at - 1]]; at--) best[at] = best[at - 1];
        best[at] = i;
    }
    return found;
}

static void add_spans(const SquadWindows *w, const SquadQuestion *q, int64_t number, const float *logits,
                      const SquadChoice *c, Spans *out)
{
    const SquadWindow *all = &w->windows[q->window], *at = &all[number];
    int32_t *starts = mem_array((size_t)c->n_best, sizeof *starts), *ends = mem_array((size_t)c->n_best, sizeof *ends);
    int64_t rows = example_length(&w->examples, q->window + number);
    int n_starts = best_rows(logits, rows, c->n_best, starts), n_ends = best_rows(logits + 1, rows, c->n_best, ends);
    int32_t first = at->query + 2, last = first + at->length - 1; /* rows of the paragraph */
    for (int i = 0; i < n_starts; i++) {
        int32_t start = starts[i];
        if (start < first || start > last) continue;
        if (!squad_most_context(all, q->n_windows, number, at->start + start - first)) continue;
        for (int k = 0; k < n_ends; k++) {
            int32_t end = ends[k];
            if (end < start || end > last || end - start + 1 > c->max_length) continue;
            add_span(out, (AnswerSpan){.window = q->window + number,
                                       .start = start,
                                       .end = end,
                                       .start_logit = (double)logits[2 * start],
                                       .end_logit = (double)logits[2 * end + 1]});
        }
    }
    MEM_FREE(starts, ends);
}

static bool has_text(const SquadPrediction *p, const char *text)
{
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->best[i].text, text) == 0) return true;
    return false;
}

/* Takes ownership of `text`. */
static void insert(SquadPrediction *p, int at, char *text, double start, double end)
{
    memmove(p->best + at + 1, p->best + at, (size_t)(p->n++ - at) * sizeof *p->best);
    p->best[at] = (SquadCandidate){.text = text, .start = start, .end = end};
}

static void set_probabilities(SquadPrediction *p)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < p->n; i++) most = fmax(most, p->best[i].start + p->best[i].end);
    for (int i = 0; i < p->n; i++) sum += p->best[i].probability = exp(p->best[i].start + p->best[i].end - most);
    for (int i = 0; i < p->n; i++) p->best[i].probability /= sum;
}

/* The window in which no answer scores least decides, as in the script. */
static AnswerSpan find_null(const SquadWindows *w, const SquadQuestion *q, const float *logits, double *score)
{
    AnswerSpan null = {.window = q->window};
    *score = 1000000; /* the script's, where there is no window */
    for (int64_t i = 0; i < q->n_windows; i++) {
        const float *x = logits + 2 * w->examples.offset[q->window + i];
        if (!((double)x[0] + (double)x[1] < *score)) continue;
        *score = (double)x[0] + (double)x[1];
        null.start_logit = (double)x[0];
        null.end_logit = (double)x[1];
    }
    return null;
}

void squad_predict(const SquadFile *file, const SquadWindows *w, const SquadQuestion *q, const float *logits,
                   const Vocab *vocab, const Tokenizer *tokenizer, const SquadChoice *c, SquadPrediction *out)
{
    Spans spans = {0};
    double null_score = 0;
    AnswerSpan null = find_null(w, q, logits, &null_score);
    *out = (SquadPrediction){.best = mem_array((size_t)c->n_best + 2, sizeof *out->best)};
    for (int64_t i = 0; i < q->n_windows; i++)
        add_spans(w, q, i, logits + 2 * w->examples.offset[q->window + i], c, &spans);
    if (c->version_2) add_span(&spans, null);
    if (spans.n) qsort(spans.spans, (size_t)spans.n, sizeof *spans.spans, best_first);
    for (int64_t i = 0; i < spans.n && out->n < c->n_best; i++) {
        const AnswerSpan *s = &spans.spans[i];
        char *text = s->start ? text_between(file, w, s->window, s->start, s->end, vocab, tokenizer) : mem_strdup("");
        if (s->start && has_text(out, text))
            free(text);
        else
            insert(out, out->n, text, s->start_logit, s->end_logit);
    }
    if (c->version_2 && !has_text(out, "")) insert(out, out->n, mem_strdup(""), null.start_logit, null.end_logit);
    if (out->n == 0 || (c->version_2 && out->n == 1)) insert(out, 0, mem_strdup("empty"), 0, 0); /* nothing fits */
    set_probabilities(out);
    const SquadCandidate *best = out->best;
    if (c->version_2) {
        while (!*best->text) best++; /* of two or more one has a text */
        out->null_odds = null_score - best->start - best->end;
    }
    out->text = c->version_2 && out->null_odds > c->null_threshold ? "" : best->text;
    free(spans.spans);
}

void squad_prediction_free(SquadPrediction *p)
{
    for (int i = 0; i < p->n; i++) free(p->best[i].text);
    free(p->best);
    *p = (SquadPrediction){0};
}
