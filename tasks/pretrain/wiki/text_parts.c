#include "tasks/pretrain/wiki/text_parts.h"

#include "base/test_switch.h"

#define FORMAT "cairn text 1"

static char *part_path(const TextParts *p, size_t i) { return mem_printf("%s/part-%05zu.txt", p->dir, i); }

/* ---- writing ---- */

static void format_state(const TextParts *p, bool finished, Buf *out)
{
    buf_puts(out, "{\n  \"format\": \"" FORMAT "\",\n  \"identity\": ");
    buf_json(out, p->identity);
    buf_puts(out, ",\n  \"input\": ");
    buf_json(out, p->input);
    buf_printf(out, ",\n  \"options\": %s,\n", p->options);
    if (finished)
        buf_printf(out, "  \"complete\": %s,\n", p->counts.lost == 0 ? "true" : "false");
    else
        buf_printf(out,
                   "  \"next\": {\"file\": %zu, \"mark\": %" PRIu64 ", \"start\": %" PRIu64 ", \"offset\": %" PRIu64
                   "},\n",
                   p->cursor.file, p->cursor.place.mark, p->cursor.place.start, p->cursor.place.offset);
    buf_puts(out, "  \"counts\": {");
    const char *comma = "";
#define X(field, what)                                                                                                 \
    buf_printf(out, "%s\"" #field "\": %" PRId64, comma, p->counts.field);                                             \
    comma = ", ";
    WIKI_COUNT_LIST(X)
#undef X
    buf_printf(out, "},\n  \"problems\": [%s],\n  \"parts\": [", p->problems.len ? p->problems.data : "");
    for (size_t i = 0; i < p->n_parts; i++) {
        const TextPart *part = &p->parts[i];
        buf_printf(out,
                   "%s\n    {\"name\": \"part-%05zu.txt\", \"bytes\": %" PRIu64 ", \"articles\": %" PRId64
                   ", \"sentences\": %" PRId64 ", \"xxh3_128\": \"%s\"}",
                   i ? "," : "", i, part->bytes, part->articles, part->sentences, DIGEST_TEXT(part->digest));
    }
    buf_puts(out, p->n_parts ? "\n  ]\n}\n" : "]\n}\n");
}

static Status write_state(const TextParts *p, bool finished)
{
    Buf text = {0};
    format_state(p, finished, &text);
    return file_write_text(p->dir, finished ? "manifest.json" : "progress.json", &text);
}

static Status close_part(TextParts *p)
{
    if (!p->open) return OK;
    p->open = false;
    TRY(file_writer_close(&p->writer, &p->part.digest, &p->part.bytes));
    MEM_PUSH(p->parts, p->n_parts, p->parts_cap, p->part);
    test_at("part", (int)p->n_parts);
    return OK;
}

static Status open_part(TextParts *p)
{
    char *path = part_path(p, p->n_parts);
    Status status = file_writer_open(&p->writer, path);
    free(path);
    p->open = status == OK;
    p->part = (TextPart){0};
    return status;
}

static void add_problem(TextParts *p, const char *line)
{
    buf_puts(&p->problems, p->n_problems++ ? ",\n    " : "\n    ");
    buf_json(&p->problems, line);
}

static void remember_problems(TextParts *p, const Buf *problems)
{
    const char *at = problems->data, *end = at + problems->len;
    while (at < end && p->n_problems < TEXT_PROBLEMS) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        char *line = mem_strndup(at, (size_t)(stop - at));
        add_problem(p, line);
        free(line);
        at = stop + 1;
    }
}

Status text_parts_add(TextParts *p, const Buf *text, const WikiCounts *counts, const Buf *problems, TextCursor cursor)
{
    if (p->open && p->part.bytes + text->len > p->part_size) {
        TRY(close_part(p));
        TRY(write_state(p, false));
        test_at("recorded", (int)p->n_parts);
    }
    if (text->len > 0) {
        if (!p->open) TRY(open_part(p));
        TRY(file_writer_write(&p->writer, text->data, text->len));
        p->part.bytes += text->len;
        p->part.articles += counts->articles;
        p->part.sentences += counts->sentences;
    }
    wiki_counts_add(&p->counts, counts);
    if (problems->len > 0) remember_problems(p, problems);
    p->cursor = cursor;
    return OK;
}

Status text_parts_finish(TextParts *p)
{
    TRY(close_part(p));
    TRY(write_state(p, true));
    char *path = file_join(p->dir, "progress.json");
    Status status = file_remove_tree(path);
    free(path);
    return status;
}

void text_parts_free(TextParts *p)
{
    if (p->open) file_writer_abandon(&p->writer);
    free(p->parts);
    buf_free(&p->problems);
    p->open = false;
    p->parts = NULL;
}

/* ---- the state of an earlier run ---- */

/* A part must have its recorded size and digest. */
static Status check_part(const TextParts *p, size_t i)
{
    Digest digest;
    uint64_t bytes = 0;
    char *path = part_path(p, i);
    Status status = file_digest(path, &digest, &bytes);
    if (status == OK && (bytes != p->parts[i].bytes || !digest_equal(digest, p->parts[i].digest)))
        status = fail(E_CORRUPT,
                      "%s: changed since it was written (%" PRIu64 " bytes, expected %" PRIu64
                      "); remove the folder's part files, progress.json and manifest.json, and run again",
                      path, bytes, p->parts[i].bytes);
    free(path);
    return status;
}

static Status read_state(TextParts *p, const char *path, bool finished)
{
    Json *doc = NULL;
    Status status = OK;
    TRY_DONE(js_read(path, &doc));
    const Json *counts = js_get(doc, "counts"), *parts = js_get(doc, "parts"), *next = js_get(doc, "next");
    if (strcmp(js_string(js_get(doc, "format"), ""), FORMAT) != 0)
        TRY_DONE(fail(E_USAGE, "%s: not made by `cairn wiki`; give another --output-dir", path));
    bool ours = strcmp(js_string(js_get(doc, "identity"), ""), p->identity) == 0;
    if (!ours && !finished && js_size(parts) == 0) { /* a start that failed before it made anything */
        status = write_state(p, false);
        goto done;
    }
    if (!ours) {
        TRY_DONE(
            fail(E_USAGE,
                 "%s: made from other input (%s) or with other options; give another --output-dir, or remove this one",
                 path, js_string(js_get(doc, "input"), "?")));
    }
#define X(field, what) p->counts.field = js_int(js_get(counts, #field), 0);
    WIKI_COUNT_LIST(X)
#undef X
    for (size_t i = 0; i < js_size(parts); i++) {
        const Json *part = js_at(parts, i);
        TextPart own = {.bytes = (uint64_t)js_int(js_get(part, "bytes"), 0),
                        .articles = js_int(js_get(part, "articles"), 0),
                        .sentences = js_int(js_get(part, "sentences"), 0)};
        if (!digest_parse(js_string(js_get(part, "xxh3_128"), ""), &own.digest))
            TRY_DONE(fail(E_CORRUPT, "%s: part %zu has no digest", path, i));
        MEM_PUSH(p->parts, p->n_parts, p->parts_cap, own);
        TRY_DONE(check_part(p, i));
    }
    const Json *problems = js_get(doc, "problems");
    for (size_t i = 0; i < js_size(problems); i++) add_problem(p, js_string(js_at(problems, i), ""));
    if (!finished)
        p->cursor = (TextCursor){.file = (size_t)js_int(js_get(next, "file"), 0),
                                 .place = {.mark = (uint64_t)js_int(js_get(next, "mark"), 0),
                                           .start = (uint64_t)js_int(js_get(next, "start"), 0),
                                           .offset = (uint64_t)js_int(js_get(next, "offset"), 0)}};
done:
    js_free(doc);
    return status;
}

Status text_parts_open(TextParts *p, bool *finished)
{
    Status status = OK;
    char *manifest = file_join(p->dir, "manifest.json"), *progress = file_join(p->dir, "progress.json");
    char *part = part_path(p, 0);
    TRY_DONE(file_remove_temporaries(p->dir));
    *finished = file_exists(manifest);
    if (*finished || file_exists(progress)) {
        TRY_DONE(read_state(p, *finished ? manifest : progress, *finished));
    } else if (file_exists(part)) {
        TRY_DONE(fail(E_USAGE,
                      "%s exists without manifest.json or progress.json; give another --output-dir, or remove it",
                      part));
    } else {
        TRY_DONE(write_state(p, false));
    }
done:
    MEM_FREE(manifest, progress, part);
    return status;
}
