/* SQuAD's JSON: data[] of articles, each with paragraphs[] of a context and its questions (qas[]). */
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "tasks/squad/squad.h"
#include "text/utf8.h"

/* What is being read, for messages. */
typedef struct {
    const char *name;
    bool version_2;
    SquadUse use;
    size_t article, paragraph;
} Place;

static Status bad(const Place *at, const char *question, const char *what)
{
    return fail(E_FORMAT, "%s: data[%zu].paragraphs[%zu]%s%s: %s", at->name, at->article, at->paragraph,
                question ? ", question " : "", question ? question : "", what);
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

static Status read_answers(const Place *at, const Json *answers, SquadQuestion *q)
{
    size_t n = js_size(answers);
    if (js_kind(answers) == JSON_KIND_OBJECT || js_kind(answers) == JSON_KIND_STRING)
        return bad(at, q->id, "its 'answers' are no list of objects with 'text' and 'answer_start', as SQuAD's are");
    q->answers = mem_array(n, sizeof *q->answers);
    for (size_t i = 0; i < n; i++) {
        const Json *a = js_at(answers, i);
        const char *text = js_string(js_get(a, "text"), NULL);
        if (!text) return bad(at, q->id, "an answer has no 'text'");
        q->answers[q->n_answers++] =
            (SquadAnswer){.text = mem_strdup(text), .start = js_int(js_get(a, "answer_start"), -1)};
        if (at->use == SQUAD_TRAIN && i == 0 && q->answers[0].start < 0)
            return bad(at, q->id, "its answer has no 'answer_start', which training needs");
    }
    return OK;
}

static Status read_question(const Place *at, const Json *v, SquadFile *file)
{
    const char *id = js_string(js_get(v, "id"), NULL), *text = js_string(js_get(v, "question"), NULL);
    if (!id) return bad(at, NULL, "a question has no 'id'");
    if (!text) return bad(at, id, "it has no text ('question')");
    MEM_GROW(file->questions, file->n_questions, file->cap_questions);
    SquadQuestion *q = &file->questions[file->n_questions++];
    *q =
        (SquadQuestion){.id = mem_strdup(id), .text = mem_strdup(text), .paragraph = (int32_t)(file->n_paragraphs - 1)};
    if (at->use == SQUAD_TEST) return OK;
    TRY(read_answers(at, js_get(v, "answers"), q));
    q->impossible = at->version_2 && js_bool(js_get(v, "is_impossible"), false);
    if (q->n_answers == 0 && !at->version_2)
        return bad(at, id, "it has no answer; files of SQuAD 2.0 need --version-2");
    if (q->n_answers == 0 && !q->impossible && at->use == SQUAD_TRAIN)
        return bad(at, id, "it has no answer and is not marked 'is_impossible'");
    return OK;
}

static Status read_paragraph(const Place *at, const Json *v, SquadFile *file)
{
    const char *text = js_string(js_get(v, "context"), NULL);
    const Json *questions = js_get(v, "qas");
    if (!text) return bad(at, NULL, "no text ('context')");
    if (strlen(text) > INT32_MAX) return bad(at, NULL, "a text of more than 2 GiB");
    if (js_kind(questions) != JSON_KIND_ARRAY) return bad(at, NULL, "no list of questions ('qas')");
    MEM_GROW(file->paragraphs, file->n_paragraphs, file->cap_paragraphs);
    SquadParagraph *p = &file->paragraphs[file->n_paragraphs++];
    *p = (SquadParagraph){.text = mem_strdup(text)};
    cut_words(p);
    for (size_t i = 0; i < js_size(questions); i++) TRY(read_question(at, js_at(questions, i), file));
    return OK;
}

static Status read_articles(Place *at, const Json *doc, SquadFile *file)
{
    const Json *articles = js_get(doc, "data");
    if (js_kind(articles) != JSON_KIND_ARRAY)
        return fail(E_FORMAT, "%s: expected SQuAD's JSON, an object with a list 'data' of articles", at->name);
    for (at->article = 0; at->article < js_size(articles); at->article++) {
        const Json *paragraphs = js_get(js_at(articles, at->article), "paragraphs");
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
    Status status = OK;
    char **ids = mem_array((size_t)file->n_questions, sizeof *ids);
    for (int64_t i = 0; i < file->n_questions; i++) ids[i] = file->questions[i].id;
    qsort(ids, (size_t)file->n_questions, sizeof *ids, sort_by_text);
    for (int64_t i = 1; i < file->n_questions && status == OK; i++)
        if (strcmp(ids[i - 1], ids[i]) == 0)
            status = fail(E_FORMAT, "%s: two questions have the id %s", file->path, ids[i]);
    free(ids);
    return status;
}

static Status read_document(const char *name, const Json *doc, bool version_2, SquadUse use, SquadFile *file)
{
    Place at = {.name = name, .version_2 = version_2, .use = use};
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
