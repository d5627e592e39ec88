#include "text/parts.h"

#include "text/utf8.h"

static void add_part(Parts *parts, Part part) { MEM_PUSH(parts->v, parts->count, parts->cap, part); }

/* The scalar that ends before p > text. */
static uint32_t scalar_before(const char *text, const char *p, const char **start)
{
    const char *at = p - 1;
    while (at > text && p - at < 4 && (*at & 0xC0) == 0x80) at--;
    *start = at;
    uint32_t scalar = utf8_decode(&at, p);
    if (at == p) return scalar;
    *start = p - 1;
    return UTF8_BAD;
}

static bool is_word_at(const char *text, const char *p, const char *end, bool before)
{
    if (p == (before ? text : end)) return false;
    uint32_t scalar = before ? scalar_before(text, p, &p) : utf8_decode(&p, end);
    return unicode_record_of(UNICODE_LIBRARY, scalar).bits & UC_WORD;
}

static bool is_white(UnicodeSource source, uint32_t scalar)
{
    return unicode_record_of(source, scalar).bits & UC_WHITE;
}

static const char *skip_space(UnicodeSource source, const char *p, const char *end)
{
    for (const char *at = p; at < end && is_white(source, utf8_decode(&at, end));) p = at;
    return p;
}

static const char *skip_space_before(UnicodeSource source, const char *text, const char *p)
{
    for (const char *at = p; p > text && is_white(source, scalar_before(text, p, &at));) p = at;
    return p;
}

/* A part whose text changes may become a token, or be none any more. */
static void change_part(const TextRules *r, Part *part, const char *start, const char *stop)
{
    if (start == part->start && stop == part->stop) return;
    int32_t i = start < stop ? lookup_exactly(&r->normal, start, (size_t)(stop - start)) : -1;
    *part = (Part){start, stop, i < 0 ? NULL : &r->added[i]};
}

/* The library's search. A match that does not count is text, and the search goes on behind it. */
void parts_library(const TextRules *r, const Lookup *l, const char *text, const char *end, Parts *parts)
{
    const char *from = text;
    size_t len = 1;
    parts->count = 0;
    for (const char *p = text; p < end; p += len) {
        int32_t i = lookup_longest(l, p, end, &len);
        if (i < 0) {
            len = 1;
            continue;
        }
        const AddedToken *t = &r->added[i];
        const char *start = p, *stop = p + len;
        if (t->special && r->options.split_special) continue;
        if (t->single_word && (is_word_at(text, start, end, true) || is_word_at(text, stop, end, false))) continue;
        if (t->lstrip) {
            start = skip_space_before(UNICODE_LIBRARY, text, start);
            if (start < from) start = from;
        }
        if (t->rstrip) stop = skip_space(UNICODE_LIBRARY, stop, end);
        if (from < start) add_part(parts, (Part){from, start, NULL});
        if (start < stop) add_part(parts, (Part){start, stop, t});
        from = stop;
    }
    if (from < end) add_part(parts, (Part){from, end, NULL});
}

/* The search of Hugging Face's Python tokenizers: a token that must be a single word, and has no blank beside it,
   becomes text together with the part there. */
void parts_python(const TextRules *r, const char *text, const char *end, Parts *parts)
{
    const char *from = text;
    size_t len = 1;
    parts->count = 0;
    for (const char *p = text; p < end && !r->options.split_special; p += len) {
        int32_t i = lookup_longest(&r->normal, p, end, &len);
        if (i < 0) {
            len = 1;
            continue;
        }
        if (from < p) add_part(parts, (Part){from, p, NULL});
        add_part(parts, (Part){p, p + len, &r->added[i]});
        from = p + len;
    }
    if (from < end) add_part(parts, (Part){from, end, NULL});
    for (size_t i = 0; i < parts->count; i++) {
        Part *part = &parts->v[i], *left = i > 0 ? part - 1 : part, *right = i + 1 < parts->count ? part + 1 : part;
        const AddedToken *t = part->token;
        if (!t || part->start == part->stop) continue;
        bool joins_left = t->single_word && left < part && left->start < left->stop && left->stop[-1] != ' ';
        bool joins_right = t->single_word && right > part && *right->start != ' ';
        if (t->rstrip && right > part)
            change_part(r, right, skip_space(UNICODE_PYTHON, right->start, right->stop), right->stop);
        if (t->lstrip && left < part)
            change_part(r, left, left->start, skip_space_before(UNICODE_PYTHON, left->start, left->stop));
        if (joins_left) change_part(r, left, left->start < left->stop ? left->start : part->start, part->stop);
        if (joins_right && !joins_left)
            change_part(r, right, part->start, right->start < right->stop ? right->stop : part->stop);
        if (joins_left || joins_right) change_part(r, part, part->stop, part->stop);
    }
}

void text_lowered(const Lookup *kept, const char *p, const char *end, Buf *out)
{
    while (p < end) {
        size_t len = 0;
        char bytes[8];
        if (lookup_longest(kept, p, end, &len) >= 0) {
            buf_append(out, p, len);
            p += len;
            continue;
        }
        uint32_t scalar = utf8_decode(&p, end), lowered[2] = {scalar};
        int n = unicode_record(scalar).bits & UC_LOWER ? unicode_lowered(scalar, lowered) : 1, used = 0;
        for (int i = 0; i < n; i++) used += utf8_encode(lowered[i], bytes + used);
        buf_append(out, bytes, (size_t)used);
    }
}
