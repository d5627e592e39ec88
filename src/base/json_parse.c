/* The text of a JSON document becomes a tree. */

#include "base/json_internal.h"

enum { MAX_DEPTH = 500 };

typedef struct {
    const char *name;
    int64_t first_line;
    const char *text; /* unchanged, for the places of errors */
    char *at, *end;   /* in the document's copy, which a NUL ends */
    int depth;
    Member *open; // (n_open) members of all arrays and objects that are not closed
    size_t n_open, cap_open;
    Document *doc;
} Parser;

/* ---- errors ---- */

static Status refuse_at(const Parser *p, const char *at, const char *what)
{
    const char *place = p->text + (at - p->doc->text);
    long long line = p->first_line, column = 1;
    char found[32] = "the end of the text";
    for (const char *s = p->text; s < place; s++) {
        column += ((unsigned char)*s & 0xc0) != 0x80;
        if (*s == '\n') line++, column = 1;
    }
    unsigned char c = at < p->end ? (unsigned char)*place : 0;
    if (at < p->end) snprintf(found, sizeof found, c > 32 && c < 127 ? "'%c'" : "byte 0x%02x", c);
    return fail(E_FORMAT, "%s: line %lld, column %lld: %s, found %s", p->name, line, column, what, found);
}

static Status refuse(const Parser *p, const char *expected)
{
    return refuse_at(p, p->at, SHORT_TEXT("not valid JSON: expected %s", expected));
}

/* ---- texts and numbers ---- */

/* Four hexadecimal digits behind \u; −1: others. */
static int32_t hex4(const char *s)
{
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* UTF-8 takes fewer bytes than the escape. */
static char *put_scalar(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *to++ = (char)((0xff00 >> (more + 1) & 0xff) | c >> 6 * more);
    while (more-- > 0) *to++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    return to;
}

static Status parse_escape(Parser *p, char **to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *name = p->at[1] ? strchr(names, p->at[1]) : NULL;
    if (name) {
        *(*to)++ = values[name - names];
        p->at += 2;
        return OK;
    }
    int32_t c = p->at[1] == 'u' ? hex4(p->at + 2) : -1;
    if (c < 0) {
        p->at++;
        return refuse(p, "an escape as \\n or \\u00e4 behind the backslash");
    }
    p->at += 6;
    bool high = c >= 0xd800 && c < 0xdc00;
    int32_t low = high && p->at[0] == '\\' && p->at[1] == 'u' ? hex4(p->at + 2) : -1;
    if (low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + (c - 0xd800) * 0x400 + (low - 0xdc00);
        p->at += 6;
    }
    *to = put_scalar(*to, c == 0 || (c >= 0xd800 && c < 0xe000) ? 0xfffd : (uint32_t)c);
    return OK;
}

static Status parse_string(Parser *p, const char **out)
{
    char *to = ++p->at;
    *out = to;
    for (;;) {
        unsigned char c = (unsigned char)*p->at;
        if (c == '"') break;
        if (c == '\\') {
            TRY(parse_escape(p, &to));
        } else if (c < 0x20) {
            return refuse(p, p->at < p->end ? "control characters in a string as escapes (\\n, \\u0001)"
                                            : "a closing quote");
        } else {
            int valid = 1;
            size_t n = c < 0x80 ? 1 : buf_utf8_span(p->at, &valid);
            if (!valid) return refuse(p, "UTF-8");
            while (n-- > 0) *to++ = *p->at++;
        }
    }
    *to = 0;
    p->at++;
    return OK;
}

static bool take_digits(Parser *p)
{
    char *from = p->at;
    while (*p->at >= '0' && *p->at <= '9') p->at++;
    return p->at > from;
}

static Status parse_number(Parser *p, Json *v)
{
    char *from = p->at;
    bool whole = true;
    p->at += *p->at == '-';
    char *digits = p->at;
    if (*p->at == '0')
        p->at++;
    else if (!take_digits(p))
        return refuse(p, "a digit");
    size_t n = (size_t)(p->at - digits);
    if (*p->at == '.') {
        whole = false;
        p->at++;
        if (!take_digits(p)) return refuse(p, "a digit");
    }
    bool large = n > 300;
    if (*p->at == 'e' || *p->at == 'E') {
        whole = false;
        large = true;
        p->at++;
        if (*p->at == '+' || *p->at == '-') p->at++;
        if (!take_digits(p)) return refuse(p, "a digit");
    }
    /* One byte to the left, over a bracket, a comma, a colon or a blank that was read, there is room for a NUL. */
    size_t len = (size_t)(p->at - from);
    memmove(from - 1, from, len);
    from[len - 1] = 0;
    v->text = from - 1;
    v->kind = whole ? JSON_KIND_INT : JSON_KIND_REAL;
    if (whole && n > 18) {
        errno = 0;
        (void)strtoll(v->text, NULL, 10);
        if (errno == ERANGE) v->kind = JSON_KIND_REAL;
    }
    if (large && !isfinite(strtod(v->text, NULL))) v->kind = JSON_KIND_NOT_FINITE;
    return OK;
}

/* ---- arrays and objects ---- */

static void *new_block(Document *d, size_t bytes)
{
    void *block = mem_resize(NULL, bytes, 1);
    MEM_PUSH(d->blocks, d->n_blocks, d->cap_blocks, block);
    return block;
}

/* Equal keys in the order of the text. */
static int by_key(const void *a, const void *b)
{
    const Member *x = *(Member *const *)a, *y = *(Member *const *)b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x > y) - (x < y);
}

static void sort_members(Object *o, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) o->sorted[i] = &o->members[i];
    qsort(o->sorted, n, sizeof *o->sorted, by_key);
}

/* The first of equal keys keeps its place and takes the last one's value. Returns the number of members left. */
static uint32_t drop_repeated(Object *o, uint32_t n)
{
    uint32_t left = 0;
    for (uint32_t i = 1, first = 0; i < n; i++) {
        if (strcmp(o->sorted[first]->key, o->sorted[i]->key) != 0) {
            first = i;
            continue;
        }
        o->repeated = o->sorted[first]->key;
        o->sorted[first]->value = o->sorted[i]->value;
        o->sorted[i]->key = NULL;
    }
    for (uint32_t i = 0; i < n && o->repeated; i++)
        if (o->members[i].key) o->members[left++] = o->members[i];
    return o->repeated ? left : n;
}

/* Sorting keeps lookups fast whatever the keys are; keys can be made to collide in a hash table. */
static void close_object(Parser *p, size_t from, Json *v)
{
    size_t n = p->n_open - from;
    Object *o = new_block(p->doc, sizeof *o + n * (sizeof *o->members + sizeof(Member *)));
    *o = (Object){.sorted = (Member **)(o->members + n)};
    memcpy(o->members, p->open + from, n * sizeof *o->members);
    sort_members(o, (uint32_t)n);
    v->object = o;
    v->n = drop_repeated(o, (uint32_t)n);
    if (v->n < n) sort_members(o, v->n);
}

static void close_array(Parser *p, size_t from, Json *v)
{
    v->n = (uint32_t)(p->n_open - from);
    Json *items = new_block(p->doc, v->n * sizeof *items);
    for (uint32_t i = 0; i < v->n; i++) items[i] = p->open[from + i].value;
    v->items = items;
}

static char skip_blanks(Parser *p)
{
    while (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t') p->at++;
    return *p->at;
}

static Status parse_value(Parser *p, Json *v);

static Status parse_members(Parser *p, char close, Json *v)
{
    size_t from = p->n_open;
    bool object = close == '}';
    if (++p->depth > MAX_DEPTH) return refuse_at(p, p->at, "arrays and objects nested deeper than 500");
    p->at++;
    for (char c = skip_blanks(p); c != close; c = skip_blanks(p)) {
        Member m = {0};
        if (p->n_open > from) {
            if (c != ',') return refuse(p, object ? "a comma or }" : "a comma or ]");
            p->at++;
            c = skip_blanks(p);
        }
        if (object) {
            if (c != '"') return refuse(p, "a key in double quotes");
            TRY(parse_string(p, &m.key));
            if (skip_blanks(p) != ':') return refuse(p, "a colon behind the key");
            p->at++;
            (void)skip_blanks(p);
        }
        TRY(parse_value(p, &m.value));
        MEM_PUSH(p->open, p->n_open, p->cap_open, m);
    }
    p->at++;
    p->depth--;
    v->kind = object ? JSON_KIND_OBJECT : JSON_KIND_ARRAY;
    if (p->n_open > from) (object ? close_object : close_array)(p, from, v);
    p->n_open = from;
    return OK;
}

static Status parse_word(Parser *p, Json *v)
{
    static const struct {
        const char *text;
        JsonKind kind;
    } words[] = {{"null", JSON_KIND_NULL},           {"true", JSON_KIND_BOOL},
                 {"false", JSON_KIND_BOOL},          {"NaN", JSON_KIND_NOT_FINITE},
                 {"Infinity", JSON_KIND_NOT_FINITE}, {"-Infinity", JSON_KIND_NOT_FINITE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].text);
        if (strncmp(p->at, words[i].text, n) != 0) continue;
        p->at += n;
        v->text = words[i].text;
        v->kind = words[i].kind;
        return OK;
    }
    return refuse(p, "a value");
}

static Status parse_value(Parser *p, Json *v)
{
    char c = *p->at;
    if (c == '{' || c == '[') return parse_members(p, c == '{' ? '}' : ']', v);
    if (c == '"') {
        v->kind = JSON_KIND_STRING;
        return parse_string(p, &v->text);
    }
    if ((c >= '0' && c <= '9') || (c == '-' && p->at[1] != 'I')) return parse_number(p, v);
    return parse_word(p, v);
}

static Status parse_root(Parser *p)
{
    char c = skip_blanks(p);
    if (c != '{' && c != '[') return refuse(p, "[ or {");
    TRY(parse_value(p, &p->doc->root));
    (void)skip_blanks(p);
    return p->at == p->end ? OK : refuse(p, "the end of the text");
}

Status js_parse(const char *name, const char *text, size_t len, Json **doc)
{
    return js_parse_at(name, 1, text, len, doc);
}

Status js_parse_at(const char *name, int64_t first_line, const char *text, size_t len, Json **doc)
{
    *doc = NULL;
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark, as Windows editors leave it */
        text += 3;
        len -= 3;
    }
    if (len == 0) return fail(E_FORMAT, "%s: empty; expected JSON", name);
    if (len >= UINT32_MAX) return fail(E_FORMAT, "%s: %zu bytes of JSON; expected less than 4 GiB", name, len);
    Document *d = mem_alloc(sizeof *d);
    d->text = mem_resize(NULL, len + 1, 1);
    memcpy(d->text, text, len);
    d->text[len] = 0;
    Parser p = {.name = name, .first_line = first_line, .text = text, .at = d->text, .end = d->text + len, .doc = d};
    Status status = parse_root(&p);
    free(p.open);
    if (status == OK)
        *doc = &d->root;
    else
        js_free(&d->root);
    return status;
}
