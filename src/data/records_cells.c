/* One record: its columns, by place or by key. */

#include "data/records_internal.h"
#include "text/characters.h"
#include "text/utf8.h"

static int64_t line_at(const Records *r, const char *p)
{
    int64_t line = r->raw_line;
    for (const char *q = r->raw.p; q < p; q++) line += *q == '\n';
    return line;
}

/* Place in the line, in bytes from 1. */
static long long place_at(const Records *r, const char *p)
{
    const char *start = p;
    while (start > r->raw.p && start[-1] != '\n') start--;
    return p - start + 1;
}

RecordShown record_shown(RecordText s)
{
    RecordShown out = {{0}};
    size_t n = s.len <= 40 ? s.len : 40;
    if (n < s.len) {
        while (n && ((unsigned char)s.p[n] & 0xc0) == 0x80) n--;
    }
    for (size_t i = 0; i < n; i++) out.text[i] = (unsigned char)s.p[i] < 32 || s.p[i] == 127 ? '?' : s.p[i];
    if (n < s.len) memcpy(out.text + n, "…", sizeof "…");
    return out;
}

bool record_text_is(RecordText s, const char *text)
{
    return s.p && strlen(text) == s.len && (s.len == 0 || !memcmp(s.p, text, s.len));
}

RecordText record_trim(RecordText s)
{
    const char *end = s.p + s.len;
    while (s.p < end) {
        const char *next = s.p;
        if (!character_is_space(utf8_decode(&next, end))) break;
        s.p = next;
    }
    while (end > s.p) {
        const char *last = end - 1, *next;
        while (last > s.p && ((unsigned char)*last & 0xc0) == 0x80) last--;
        next = last;
        if (!character_is_space(utf8_decode(&next, end))) break;
        end = last;
    }
    s.len = (size_t)(end - s.p);
    return s;
}

bool record_number(RecordText s, double *value)
{
    char text[64], *end = text;
    if (s.len == 0 || s.len >= sizeof text) return false;
    memcpy(text, s.p, s.len);
    text[s.len] = 0;
    if (strspn(text, "0123456789+-.eE") == s.len) *value = strtod(text, &end);
    return end != text && !*end && isfinite((float)*value);
}

/* ---- columns by place ---- */

/* A column in quotes. Its text is appended to `texts`, and cell->p is NULL. */
static Status quoted_cell(const Records *r, RecordText *rest, Buf *texts, RecordText *cell)
{
    const char *open = rest->p, *end = rest->p + rest->len, *p = open + 1;
    size_t from = texts->len;
    for (;;) {
        const char *quote = memchr(p, '"', (size_t)(end - p));
        if (!quote)
            return fail(E_FORMAT, "%s:%lld:%lld: expected a closing quote (\") of the column that begins here", r->name,
                        (long long)line_at(r, open), place_at(r, open));
        buf_append(texts, p, (size_t)(quote - p));
        p = quote + 1;
        if (p == end || *p != '"') break;
        buf_append(texts, "\"", 1);
        p++;
    }
    if (p < end && *p != ',')
        return fail(E_FORMAT,
                    "%s:%lld:%lld: expected a comma or the end of the line after a closing quote, found '%s'; a quote "
                    "within quotes is written twice",
                    r->name, (long long)line_at(r, p), place_at(r, p),
                    record_shown((RecordText){p, (size_t)(end - p)}).text);
    *cell = (RecordText){NULL, texts->len - from};
    *rest = p < end ? (RecordText){p + 1, (size_t)(end - p) - 1} : (RecordText){NULL, 0};
    return OK;
}

/* The next column of `rest`, the part of a TSV, CSV or plain record that is left; its p becomes NULL behind the last
   one, and *there is false then. cell->p is NULL where the text was in quotes: it is then appended to `texts`. */
static Status next_cell(const Records *r, RecordText *rest, Buf *texts, RecordText *cell, bool *there)
{
    *there = rest->p != NULL;
    if (!*there) return OK;
    *cell = *rest;
    if (r->form == RECORDS_CSV && rest->len && *rest->p == '"') return quoted_cell(r, rest, texts, cell);
    const char *end = r->form == RECORDS_LINES ? NULL : memchr(rest->p, r->form == RECORDS_CSV ? ',' : '\t', rest->len);
    if (end) cell->len = (size_t)(end - rest->p);
    *rest = end ? (RecordText){end + 1, rest->len - cell->len - 1} : (RecordText){NULL, 0};
    const char *quote = r->form == RECORDS_CSV && cell->len ? memchr(cell->p, '"', cell->len) : NULL;
    if (!quote) return OK;
    return fail(E_FORMAT,
                "%s:%lld:%lld: a quote within a column that does not begin with one; put the column in quotes and "
                "write quotes within it twice",
                r->name, (long long)line_at(r, quote), place_at(r, quote));
}

Status record_cells_count(const Records *r, int64_t *count)
{
    RecordText rest = r->raw, cell;
    Status status = OK;
    Buf texts = {0};
    bool there;
    for (*count = 0;; ++*count) {
        texts.len = 0;
        TRY_DONE(next_cell(r, &rest, &texts, &cell, &there));
        if (!there) break;
    }
done:
    buf_free(&texts);
    return status;
}

/* ---- the header ---- */

/* The header's names; the caller frees. */
static Status header_names(const Records *r, char ***names, int64_t *n)
{
    RecordText rest = r->raw, cell;
    Status status = OK;
    Buf texts = {0};
    int64_t cap = 0;
    *names = NULL;
    *n = 0;
    for (;;) {
        bool there;
        texts.len = 0;
        buf_puts(&texts, ""); /* a name may be empty */
        TRY_DONE(next_cell(r, &rest, &texts, &cell, &there));
        if (!there) break;
        MEM_PUSH(*names, *n, cap, cell.p ? mem_strndup(cell.p, cell.len) : mem_strdup(texts.data));
    }
done:
    buf_free(&texts);
    return status;
}

static size_t count(RecordText s, char c)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += s.p[i] == c;
    return n;
}

const char *record_hint(const Records *r)
{
    bool named = r->o.form == RECORDS_BY_NAME, csv = r->form == RECORDS_CSV; /* named: the name decides the form */
    size_t own = count(r->raw, csv ? ',' : '\t'), other = count(r->raw, csv ? '\t' : ',');
    if (other > own) {
        if (csv) return "; that looks like columns with tabs between: name the file .tsv";
        return named ? "; that looks like columns with commas between: name the file .csv"
                     : "; that looks like columns with commas between: this task's files have tabs";
    }
    if (count(r->raw, ';') > own)
        return "; that looks like columns with semicolons between: write commas or tabs instead";
    if (named && !csv && count(r->raw, '"') > 1)
        return "; in a TSV file quotes are text: write the file as CSV, or without quotes";
    return "";
}

static Status missing_column(const Records *r, char *const *names, int64_t n, const char *wanted)
{
    Buf list = {0};
    for (int64_t i = 0; i < n && i < 24; i++)
        buf_printf(&list, "%s'%s'", i ? ", " : "", record_shown((RecordText){names[i], strlen(names[i])}).text);
    if (n > 24) buf_puts(&list, ", …");
    Status status = fail(E_FORMAT, "%s:%lld: expected a column named '%s' in the header, found %s%s%s", r->name,
                         (long long)r->raw_line, wanted, list.data ? list.data : "nothing", record_hint(r),
                         r->o.advice ? r->o.advice : "");
    buf_free(&list);
    return status;
}

Status record_header(Records *r)
{
    char **names = NULL;
    int64_t n = 0;
    Status status = OK;
    TRY_DONE(header_names(r, &names, &n));
    for (int k = 0; k < r->o.n; k++) {
        const char *wanted = r->o.columns[k];
        r->position[k] = -1;
        for (int64_t i = 0; wanted && i < n; i++) {
            if (strcmp(names[i], wanted) != 0 &&
                !record_text_is(record_trim((RecordText){names[i], strlen(names[i])}), wanted))
                continue;
            if (r->position[k] >= 0)
                TRY_DONE(fail(E_FORMAT, "%s:%lld: the header names column '%s' twice (columns %d and %lld)", r->name,
                              (long long)r->raw_line, wanted, r->position[k] + 1, (long long)i + 1));
            r->position[k] = (int)i;
        }
        if (wanted && r->position[k] < 0 && !r->o.optional[k]) TRY_DONE(missing_column(r, names, n, wanted));
    }
    r->columns = n;
done:
    mem_free_texts(names, n);
    return status;
}

/* ---- the wanted columns of a record ---- */

/* Where a text lies in r->texts, which moves when it grows; NOT_THERE: the text lies elsewhere. */
#define NOT_THERE SIZE_MAX

/* Counts a row whose wanted column stands in quotes, as CSV writes it: in TSV these are text. */
static void note_quotes(Records *r, RecordText cell)
{
    if (r->form != RECORDS_TSV || cell.len < 2 || *cell.p != '"' || cell.p[cell.len - 1] != '"') return;
    bool doubled = false;
    for (size_t i = 1; i + 1 < cell.len; i++) {
        if (cell.p[i] != '"') continue;
        if (i + 2 >= cell.len || cell.p[++i] != '"') return; /* no CSV */
        doubled = true;
    }
    r->in_quotes++;
    r->doubled += doubled;
    r->commas += memchr(cell.p, ',', cell.len) != NULL;
}

static Status take_cells(Records *r, size_t from[RECORDS_MOST_COLUMNS])
{
    RecordText rest = r->raw, cell;
    int64_t quotes = r->in_quotes;
    for (r->current.count = 0;; r->current.count++) {
        size_t before = r->texts.len;
        bool there, kept = false;
        TRY(next_cell(r, &rest, &r->texts, &cell, &there));
        if (!there) return OK;
        for (int k = 0; k < r->o.n; k++) {
            if (r->position[k] != r->current.count) continue;
            r->current.texts[k] = cell;
            if (r->in_quotes == quotes) note_quotes(r, cell);
            kept = !cell.p;
            if (kept) from[k] = before;
        }
        if (!kept) r->texts.len = before;
    }
}

/* Appends a value's text. */
static Status json_text(const Records *r, const char *key, RecordValue value, const Json *v, Buf *out)
{
    JsonKind kind = js_kind(v);
    if (value == RECORD_LIST && kind == JSON_KIND_ARRAY) {
        for (size_t i = 0; i < js_size(v); i++) {
            const char *text = js_string(js_at(v, i), "-");
            if (!*text || strchr(text, ','))
                return fail(E_FORMAT, "%s:%lld: '%s' has %s in its array; expected texts without commas", r->name,
                            (long long)r->raw_line, key, *text ? "a text with a comma" : "an empty text");
            if (i) buf_puts(out, ",");
            TRY(json_text(r, key, RECORD_TEXT, js_at(v, i), out));
        }
        return OK;
    }
    if (value == RECORD_JSON || (value == RECORD_ANY && !js_text(v))) {
        js_put(out, v);
        return OK;
    }
    bool nothing = kind == JSON_KIND_NULL || kind == JSON_KIND_NOT_FINITE;
    if (!js_text(v) || (nothing && value != RECORD_ANY))
        return fail(E_FORMAT, "%s:%lld: '%s' is %s; expected a text or a number%s", r->name, (long long)r->raw_line,
                    key, js_kind_name(v), js_text(v) ? "" : " (a line is one row)");
    buf_puts(out, js_text(v));
    return OK;
}

static Status missing_key(const Records *r, const Json *object, const char *key)
{
    Buf list = {0};
    int n = 0;
    for (void *it = js_first(object); it && n < 24; it = js_next(object, it))
        buf_printf(&list, "%s'%s'", n++ ? ", " : "", record_shown((RecordText){js_key(it), strlen(js_key(it))}).text);
    Status status = fail(E_FORMAT, "%s:%lld: expected a key '%s', found %s%s", r->name, (long long)r->raw_line, key,
                         n ? list.data : "none", r->o.advice ? r->o.advice : "");
    buf_free(&list);
    return status;
}

static Status read_object(const Records *r, Json **object)
{
    static const char advice[] = "; each line must be a row's object, as pandas' to_json(orient='records', lines=True) "
                                 "writes them";
    Status status = js_parse_at(r->name, r->raw_line, r->raw.p, r->raw.len, object);
    if (status == E_FORMAT && r->current.number == 0) return fail(status, "%s%s", status_message(), advice);
    if (status == OK && js_kind(*object) != JSON_KIND_OBJECT)
        status = fail(E_FORMAT, "%s:%lld: expected a JSON object ({…}) on the line, found an array%s", r->name,
                      (long long)r->raw_line, advice);
    return status;
}

static Status take_keys(Records *r, size_t from[RECORDS_MOST_COLUMNS])
{
    Json *object = NULL;
    Status status = OK;
    TRY_DONE(read_object(r, &object));
    for (int k = 0; k < r->o.n; k++) {
        const char *key = r->o.columns[k];
        const Json *v = key ? js_get(object, key) : NULL;
        if (key && !v && !r->o.optional[k]) TRY_DONE(missing_key(r, object, key));
        bool none = js_kind(v) == JSON_KIND_NULL && (r->o.optional[k] || r->o.values[k] == RECORD_ANY);
        if (!v || none) continue;
        from[k] = r->texts.len;
        TRY_DONE(json_text(r, key, r->o.values[k], v, &r->texts));
        r->current.texts[k].len = r->texts.len - from[k];
    }
    r->current.count = r->columns;
done:
    js_free(object);
    return status;
}

Status record_cells_take(Records *r)
{
    size_t from[RECORDS_MOST_COLUMNS];
    for (int k = 0; k < RECORDS_MOST_COLUMNS; k++) from[k] = NOT_THERE;
    memset(r->current.texts, 0, sizeof r->current.texts);
    r->texts.len = 0;
    buf_puts(&r->texts, ""); /* so that an empty text has an address */
    TRY(r->form == RECORDS_JSONL ? take_keys(r, from) : take_cells(r, from));
    for (int k = 0; k < r->o.n; k++)
        if (from[k] != NOT_THERE) r->current.texts[k].p = r->texts.data + from[k];
    return OK;
}
