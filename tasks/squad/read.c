/* SQuAD's JSON: data[] of articles, each with paragraphs[] of a context and its questions (qas[]); or data[] of rows.
 */

#include "base/sort.h"
#include "tasks/squad/squad.h"
#include "text/utf8.h"

/* What is being read, for messages. */
typedef struct {
    const char *name;
    bool version_2;
    SquadUse use;
    size_t article, paragraph;
    bool flat; /* data[] has a row per question, as Hugging Face's run_qa.py reads */
} Reading;

static Status bad(const Reading *at, const char *question, const char *what)
{
    return fail(E_FORMAT, "%s: data[%zu].paragraphs[%zu]%s%s: %s", at->name, at->article, at->paragraph,
                question ? ", question " : "", question ? question : "", what);
}

/* The value of a key is missing, or of another kind. */
static Status wrong(const Reading *at, const char *question, const char *key, const Json *v, const char *expected)
{
    bool number = js_kind(v) == JSON_KIND_INT || js_kind(v) == JSON_KIND_REAL;
    if (!v) return bad(at, question, SHORT_TEXT("no '%s'; expected %s", key, expected));
    const char *found = number ? js_text(v) : js_kind_name(v);
    return bad(at, question, SHORT_TEXT("'%s' is %.39s; expected %s", key, found, expected));
}

static Status get_text(const Reading *at, const char *question, const char *key, const Json *v, const char **text)
{
    *text = js_string(v, NULL);
    return *text ? OK : wrong(at, question, key, v, "a text");
}

/* Where run_squad.py cuts a paragraph. */
static bool is_blank(uint32_t c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == 0x202f; }

static void cut_words(SquadParagraph *p)
{
    const char *at = p->text, *end = p->text + strlen(p->text);
    bool within = false;
    int32_t cap = 0;
    for (int64_t character = 0; at < end; character++) {
        const char *here = at;
        if (is_blank(utf8_decode(&at, end))) {
            within = false;
            continue;
        }
        if (!within) {
            MEM_PUSH(p->words, p->n_words, cap, (SquadWord){.at = (uint32_t)(here - p->text), .first = character});
        }
        within = true;
        SquadWord *w = &p->words[p->n_words - 1];
        w->len = (uint32_t)(at - p->text) - w->at;
    }
}

/* A list of objects with 'text' and 'answer_start', or, as Hugging Face's datasets have it, an object with a list of
   each. */
static Status read_answers(const Reading *at, const Json *answers, SquadQuestion *q)
{
    static const char list[] = "a list of objects with 'text' and 'answer_start'", start[] = "answer_start";
    const Json *texts = js_get(answers, "text"), *starts = js_get(answers, start);
    bool lists = js_kind(texts) == JSON_KIND_ARRAY && js_size(starts) == js_size(texts);
    if (js_kind(answers) != JSON_KIND_NULL && js_kind(answers) != JSON_KIND_ARRAY && !lists)
        return wrong(at, q->id, "answers", answers, list);
    size_t n = js_size(lists ? texts : answers);
    q->answers = mem_array(n, sizeof *q->answers);
    for (size_t i = 0; i < n; i++) {
        const Json *answer = js_at(answers, i), *text = lists ? js_at(texts, i) : js_get(answer, "text");
        const Json *place = lists ? js_at(starts, i) : js_get(answer, start);
        const char *found;
        if (!lists && js_kind(answer) != JSON_KIND_OBJECT) return wrong(at, q->id, "answers", answer, list);
        TRY(get_text(at, q->id, "text", text, &found));
        q->answers[q->n_answers++] = (SquadAnswer){.text = mem_strdup(found), .start = js_int(place, -1)};
        if (at->use == SQUAD_TRAIN && i == 0 && q->answers[0].start < 0 && !q->impossible)
            return wrong(at, q->id, start, place, "a whole number from 0, which training needs");
    }
    return OK;
}

static Status read_impossible(const Reading *at, const Json *v, SquadQuestion *q)
{
    const Json *impossible = js_get(v, "is_impossible");
    if (js_kind(impossible) != JSON_KIND_NULL && js_kind(impossible) != JSON_KIND_BOOL)
        return wrong(at, q->id, "is_impossible", impossible, "true or false");
    q->impossible = js_bool(impossible, at->flat && q->n_answers == 0);
    if (!at->version_2 && (q->n_answers == 0 || q->impossible))
        return bad(at, q->id,
                   q->n_answers ? "it is marked 'is_impossible'; files of SQuAD 2.0 need --version-2"
                                : "it has no answer; files of SQuAD 2.0 need --version-2");
    if (q->n_answers == 0 && !q->impossible && at->use == SQUAD_TRAIN)
        return bad(at, q->id, "it has no answer and is not marked 'is_impossible'");
    return OK;
}

static Status read_question(const Reading *at, const Json *v, SquadFile *file)
{
    const Json *key = js_get(v, "id");
    const char *id = js_kind(key) == JSON_KIND_NOT_FINITE || js_kind(key) == JSON_KIND_NULL ? NULL : js_text(key),
               *text;
    if (!id) return wrong(at, NULL, "id", key, "a text or a number, of a question");
    TRY(get_text(at, id, "question", js_get(v, "question"), &text));
    MEM_GROW(file->questions, file->n_questions, file->cap_questions);
    SquadQuestion *q = &file->questions[file->n_questions++];
    *q =
        (SquadQuestion){.id = mem_strdup(id), .text = mem_strdup(text), .paragraph = (int32_t)(file->n_paragraphs - 1)};
    if (at->use == SQUAD_TEST) return OK;
    q->impossible = js_bool(js_get(v, "is_impossible"), false); /* its answers are not used */
    TRY(read_answers(at, js_get(v, "answers"), q));
    return read_impossible(at, v, q);
}

static Status read_paragraph(const Reading *at, const Json *v, SquadFile *file)
{
    const char *text;
    const Json *questions = js_get(v, "qas");
    TRY(get_text(at, NULL, "context", js_get(v, "context"), &text));
    if (strlen(text) > INT32_MAX) return bad(at, NULL, "a text of more than 2 GiB");
    if (!at->flat && js_kind(questions) != JSON_KIND_ARRAY)
        return wrong(at, NULL, "qas", questions, "a list of questions");
    /* Rows of the same paragraph follow each other. */
    bool again = at->flat && file->n_paragraphs && !strcmp(file->paragraphs[file->n_paragraphs - 1].text, text);
    if (!again) {
        SquadParagraph p = {.text = mem_strdup(text)};
        cut_words(&p);
        MEM_PUSH(file->paragraphs, file->n_paragraphs, file->cap_paragraphs, p);
    }
    if (at->flat) return read_question(at, v, file);
    for (size_t i = 0; i < js_size(questions); i++) TRY(read_question(at, js_at(questions, i), file));
    return OK;
}

static Status read_articles(Reading *at, const Json *doc, SquadFile *file)
{
    const Json *articles = js_get(doc, "data");
    if (js_kind(articles) != JSON_KIND_ARRAY)
        return fail(E_FORMAT, "%s: expected SQuAD's JSON, an object with a list 'data' of articles", at->name);
    for (at->article = 0; at->article < js_size(articles); at->article++) {
        const Json *article = js_at(articles, at->article), *paragraphs = js_get(article, "paragraphs");
        at->paragraph = 0;
        at->flat = !paragraphs && js_get(article, "context");
        if (at->flat) TRY(read_paragraph(at, article, file));
        if (at->flat) continue;
        if (js_kind(paragraphs) != JSON_KIND_ARRAY)
            return fail(E_FORMAT, "%s: data[%zu] has no list 'paragraphs'", at->name, at->article);
        for (at->paragraph = 0; at->paragraph < js_size(paragraphs); at->paragraph++)
            TRY(read_paragraph(at, js_at(paragraphs, at->paragraph), file));
    }
    if (file->n_questions == 0) return fail(E_FORMAT, "%s: it has no questions", at->name);
    return OK;
}

/* predictions.json has one answer per id. */
static Status check_ids(const SquadFile *file)
{
    char **ids = mem_array((size_t)file->n_questions, sizeof *ids);
    for (int64_t i = 0; i < file->n_questions; i++) ids[i] = file->questions[i].id;
    const char *twice = sort_find_twice(ids, (size_t)file->n_questions);
    free(ids);
    return twice ? fail(E_FORMAT, "%s: two questions have the id %s", file->path, twice) : OK;
}

static Status read_document(const char *name, const Json *doc, bool version_2, SquadUse use, SquadFile *file)
{
    Reading at = {.name = name, .version_2 = version_2, .use = use};
    *file = (SquadFile){.path = mem_strdup(name)};
    Status status = read_articles(&at, doc, file);
    if (status == OK) status = check_ids(file);
    if (status != OK) squad_file_free(file);
    return status;
}

Status squad_parse(const char *name, const char *text, size_t len, bool version_2, SquadUse use, SquadFile *file)
{
    Json *doc;
    *file = (SquadFile){0};
    TRY(js_parse(name, text, len, &doc));
    Status status = read_document(name, doc, version_2, use, file);
    file->digest = digest_of(text, len);
    js_free(doc);
    return status;
}

Status squad_read(const char *path, bool version_2, SquadUse use, SquadFile *file)
{
    enum { MOST = 1 << 30 };
    Buf text = {0};
    *file = (SquadFile){0};
    Status status = file_read(path, MOST, &text);
    if (status == OK) status = squad_parse(path, text.data ? text.data : "", text.len, version_2, use, file);
    buf_free(&text);
    return status;
}

void squad_file_free(SquadFile *f)
{
    for (int64_t i = 0; i < f->n_paragraphs; i++) {
        SquadParagraph *p = &f->paragraphs[i];
        MEM_FREE(p->text, p->words, p->piece_ids, p->piece_word);
    }
    for (int64_t i = 0; i < f->n_questions; i++) {
        SquadQuestion *q = &f->questions[i];
        for (int32_t k = 0; k < q->n_answers; k++) free(q->answers[k].text);
        MEM_FREE(q->answers, q->id, q->text);
    }
    MEM_FREE(f->paragraphs, f->questions, f->path);
    *f = (SquadFile){0};
}
