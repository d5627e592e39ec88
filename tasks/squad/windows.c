/* Questions and paragraphs as token sequences: convert_examples_to_features of Google's run_squad.py. */

#include "tasks/squad/squad.h"
#include "text/utf8.h"

void squad_windows_free(SquadWindows *w)
{
    examples_free(&w->examples);
    free(w->windows);
    *w = (SquadWindows){0};
}

static void tokenize_paragraph(Tokenizer *t, SquadParagraph *p)
{
    TokenIds ids = {0};
    int32_t cap = 0;
    for (int32_t w = 0; w < p->n_words; w++) {
        tokenizer_encode(t, p->text + p->words[w].at, p->words[w].len, &ids);
        while (p->n_pieces < (int32_t)ids.count) {
            MEM_PUSH(p->piece_word, p->n_pieces, cap, w);
        }
    }
    p->piece_ids = ids.ids ? ids.ids : mem_alloc(0);
}

/* ---- the answer of a question in training ---- */

static int64_t characters(const char *text)
{
    const char *end = text + strlen(text);
    int64_t n = 0;
    for (; text < end; n++) utf8_decode(&text, end);
    return n;
}

/* The word that a character belongs to; for white space the one before; −1: none. */
static int32_t word_at(const SquadParagraph *p, int64_t character)
{
    int32_t low = 0, high = p->n_words;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (p->words[middle].first <= character)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

/* The words of an answer. False: its text is not there. */
static bool find_words(const SquadParagraph *p, const SquadAnswer *a, int32_t *first, int32_t *last)
{
    int64_t length = characters(a->text);
    Buf words = {0}, wanted = {0};
    *first = word_at(p, a->start);
    *last = word_at(p, a->start + length - 1);
    if (*first < 0 || *last < *first || a->start + length > characters(p->text)) return false;
    for (int32_t w = *first; w <= *last; w++) {
        if (w > *first) buf_puts(&words, " ");
        buf_append(&words, p->text + p->words[w].at, p->words[w].len);
    }
    squad_put_words(a->text, a->text + strlen(a->text), &wanted);
    bool found = wanted.len > 0 && strstr(words.data, wanted.data);
    BUF_FREE(&words, &wanted);
    return found;
}

/* The first piece of a word, or of the first one behind that has any. */
static int32_t first_piece(const SquadParagraph *p, int32_t word)
{
    int32_t low = 0, high = p->n_pieces;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (p->piece_word[middle] < word)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The pieces of the answer within those of its words: the first part that is the answer's own pieces. */
static void improve(Tokenizer *t, const SquadParagraph *p, const char *answer, int32_t *first, int32_t *last)
{
    TokenIds ids = {0};
    tokenizer_encode(t, answer, strlen(answer), &ids);
    int32_t n = (int32_t)ids.count;
    for (int32_t at = *first; n > 0 && at + n - 1 <= *last; at++) {
        if (memcmp(p->piece_ids + at, ids.ids, ids.count * sizeof *ids.ids) != 0) continue;
        *first = at;
        *last = at + n - 1;
        break;
    }
    token_ids_free(&ids);
}

/* The first and last piece of the answer; −1 for an impossible question. False: the question is left out. */
static bool find_pieces(Tokenizer *t, const SquadParagraph *p, const SquadQuestion *q, int32_t pieces[2])
{
    int32_t first, last;
    pieces[0] = pieces[1] = -1;
    if (q->impossible) return true;
    if (!find_words(p, &q->answers[0], &first, &last)) return false;
    pieces[0] = first_piece(p, first);
    pieces[1] = last + 1 < p->n_words ? first_piece(p, last + 1) - 1 : p->n_pieces - 1;
    improve(t, p, q->answers[0].text, &pieces[0], &pieces[1]);
    return true;
}

/* ---- windows ---- */

static void add_window(SquadWindows *out, size_t *cap, const SquadFile *file, const int32_t *query, SquadWindow w,
                       SquadCut cut, const int32_t pieces[2])
{
    Examples *e = &out->examples;
    const SquadParagraph *p = &file->paragraphs[file->questions[w.question].paragraph];
    if (e->count == out->cap) {
        out->cap = out->cap ? 2 * out->cap : 1024;
        out->windows = mem_resize(out->windows, (size_t)out->cap, sizeof *out->windows);
        e->offset = mem_resize(e->offset, (size_t)out->cap + 1, sizeof *e->offset);
        e->label = mem_resize(e->label, 2 * (size_t)out->cap, sizeof *e->label);
        if (e->count == 0) e->offset[0] = 0;
    }
    size_t at = (size_t)e->offset[e->count], n = (size_t)(w.query + w.length + 3), first = (size_t)w.query + 2;
    if (at + n > *cap) {
        *cap = 2 * *cap + n + 4096;
        e->ids = mem_resize(e->ids, *cap, sizeof *e->ids);
        e->types = mem_resize(e->types, *cap, sizeof *e->types);
    }
    int32_t *ids = e->ids + at;
    ids[0] = cut.special.cls;
    if (w.query) memcpy(ids + 1, query, (size_t)w.query * sizeof *ids);
    ids[first - 1] = cut.special.sep;
    memcpy(ids + first, p->piece_ids + w.start, (size_t)w.length * sizeof *ids);
    ids[n - 1] = cut.special.sep;
    memset(e->types + at, 0, first);
    memset(e->types + at + first, !cut.one_type, n - first);
    bool whole = pieces[0] >= w.start && pieces[1] >= pieces[0] && pieces[1] < w.start + w.length;
    int32_t none = cut.training ? 0 : -1; /* 0: [CLS] */
    for (int k = 0; k < 2; k++) e->label[2 * e->count + k] = whole ? pieces[k] - w.start + (int32_t)first : none;
    out->windows[e->count++] = w;
    e->offset[e->count] = (int64_t)(at + n);
}

static void cut_question(SquadWindows *out, size_t *cap, const SquadFile *file, int32_t question, const TokenIds *query,
                         SquadCut cut, const int32_t pieces[2])
{
    const SquadParagraph *p = &file->paragraphs[file->questions[question].paragraph];
    int32_t n_query = (int32_t)query->count < cut.max_query ? (int32_t)query->count : cut.max_query;
    int32_t most = cut.max_length - n_query - 3;
    CHECK(most >= 1, "no room for a paragraph in %d tokens behind a question of %d", cut.max_length, n_query);
    for (int32_t start = 0; start < p->n_pieces;) {
        int32_t length = p->n_pieces - start < most ? p->n_pieces - start : most;
        add_window(out, cap, file, query->ids,
                   (SquadWindow){.question = question, .start = start, .length = length, .query = n_query}, cut,
                   pieces);
        if (start + length == p->n_pieces) break;
        start += length < cut.stride ? length : cut.stride;
    }
}

Status squad_windows(SquadFile *file, Tokenizer *t, SquadCut cut, const volatile sig_atomic_t *stop, SquadWindows *out)
{
    Status status = OK;
    size_t cap = 0;
    TokenIds query = {0};
    *out = (SquadWindows){.examples = {.label_width = 2}};
    for (int64_t i = 0; i < file->n_questions; i++) {
        SquadQuestion *q = &file->questions[i];
        SquadParagraph *p = &file->paragraphs[q->paragraph];
        int32_t pieces[2] = {-1, -1};
        if (stop && *stop) TRY_DONE(fail(E_STOPPED, "stopped while tokenising %s", file->path));
        if (!p->piece_ids) tokenize_paragraph(t, p);
        q->window = out->examples.count;
        if (cut.training && !find_pieces(t, p, q, pieces)) {
            log_debug("%s: question %s: its answer '%s' is not at its place in the paragraph", file->path, q->id,
                      q->answers[0].text);
            out->skipped++;
            continue;
        }
        query.count = 0;
        tokenizer_encode(t, q->text, strlen(q->text), &query);
        out->cut += query.count > (size_t)cut.max_query;
        cut_question(out, &cap, file, (int32_t)i, &query, cut, pieces);
        q->n_windows = out->examples.count - q->window;
    }
    if (out->examples.count == 0)
        TRY_DONE(fail(E_FORMAT, "%s: no question can be used (%lld answers are not at their place)", file->path,
                      (long long)out->skipped));
    out->examples.digest = examples_digest(&out->examples);
done:
    token_ids_free(&query);
    if (status != OK) squad_windows_free(out);
    return status;
}

/* run_squad.py's score: the smaller context of both sides, and 1/100 of the window's length. */
bool squad_most_context(const SquadWindow *windows, int64_t n, int64_t at, int32_t piece)
{
    double most = 0;
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        int32_t left = piece - windows[i].start, right = windows[i].start + windows[i].length - 1 - piece;
        if (left < 0 || right < 0) continue;
        double score = (double)(left < right ? left : right) + 0.01 * (double)windows[i].length;
        if (best < 0 || score > most) {
            most = score;
            best = i;
        }
    }
    return best == at;
}
