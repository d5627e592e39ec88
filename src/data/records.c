#include "data/records.h"

#include <limits.h>

#include "data/records_internal.h"
#include "text/text.h"

#define RAW_MOST ((size_t)64 << 20)

/* ---- records ---- */

/* Removes what was read, and reads more. */
static Status read_more(Records *r)
{
    if (r->at > 0) {
        memmove(r->buf.data, r->buf.data + r->at, r->buf.len - r->at);
        r->base += r->at;
        r->buf.len -= r->at;
        r->scan -= r->at;
        r->at = 0;
    }
    if (r->buf.len > RAW_MOST)
        return fail(E_FORMAT, "%s:%lld: a row of more than %zu MiB begins here%s", r->name, (long long)r->line,
                    RAW_MOST >> 20, r->form == RECORDS_CSV ? "; look for a quote (\") that is not closed" : "");
    if (r->row_most && r->buf.len > r->row_most)
        return fail(
            E_MEMORY,
            "%s:%lld: a row of more than %zu KiB begins here, for which --memory-budget leaves no room; cut the "
            "row, or give more memory",
            r->name, (long long)r->line, r->row_most >> 10);
    return records_input_more(&r->in, &r->buf);
}

void records_limit(Records *r, size_t bytes) { r->row_most = bytes; }

static Status check_utf8(const Records *r)
{
    const char *p = r->raw.p;
    int64_t bad = text_utf8_error(p, r->raw.len), line = r->raw_line, start = 0;
    if (bad < 0) return OK;
    for (int64_t i = 0; i < bad; i++)
        if (p[i] == '\n') line++, start = i + 1;
    if (bad == 0 && r->raw_offset == 0 && r->raw.len > 1 &&
        (memcmp(p, "\xff\xfe", 2) == 0 || memcmp(p, "\xfe\xff", 2) == 0))
        return fail(E_FORMAT, "%s: expected UTF-8, found UTF-16; convert the file, with iconv -f utf-16 -t utf-8",
                    r->name);
    return fail(
        E_FORMAT,
        "%s:%lld: expected UTF-8, found byte 0x%02x at offset %llu of the file (byte %lld of the line); convert "
        "the file, for example with iconv -f latin1 -t utf-8",
        r->name, (long long)line, (unsigned char)p[bad], (unsigned long long)(r->raw_offset + (uint64_t)bad),
        (long long)(bad - start + 1));
}

/* The end of the record at `at`: its line feed, or the end of the text. */
static Status find_end(Records *r, size_t *end)
{
    for (;;) {
        char *from = r->buf.data + r->scan, *stop = r->buf.data + r->buf.len;
        char *feed = r->scan < r->buf.len ? memchr(from, '\n', (size_t)(stop - from)) : NULL;
        char *to = feed ? feed : stop;
        if (r->form == RECORDS_CSV)
            for (char *q = from; q < to && (q = memchr(q, '"', (size_t)(to - q))); q++) r->quoted = !r->quoted;
        r->scan = (size_t)(to - r->buf.data) + (feed != NULL);
        if (feed && r->quoted) continue;
        if (feed || r->in.end) {
            *end = (size_t)(to - r->buf.data);
            return OK;
        }
        TRY(read_more(r));
    }
}

/* Sets r->raw; r->has_raw is false at the end. */
static Status next_raw(Records *r)
{
    size_t end;
    if (!r->buf.data || (r->at == r->buf.len && !r->in.end)) TRY(read_more(r));
    r->has_raw = r->at < r->buf.len;
    if (!r->has_raw) return OK;
    r->quoted = false;
    r->scan = r->at;
    TRY(find_end(r, &end));
    r->raw = (RecordText){r->buf.data + r->at, end - r->at};
    r->raw_line = r->line;
    r->raw_offset = r->base + r->at;
    for (size_t i = r->at; i < end && r->form == RECORDS_CSV; i++)
        r->line += r->buf.data[i] == '\n'; /* within quotes */
    r->line++;
    r->at = r->scan;
    if (r->raw.len && r->raw.p[r->raw.len - 1] == '\r') r->raw.len--;
    return check_utf8(r);
}

/* Moves to the next record with text and counts the empty ones before it. Those at the end are dropped. */
static Status skip_empty(Records *r)
{
    r->empty = 0;
    r->empty_line = r->line;
    for (;;) {
        TRY(next_raw(r));
        if (!r->has_raw || r->raw.len > 0) break;
        r->empty++;
    }
    if (!r->has_raw || r->form == RECORDS_CSV || r->form == RECORDS_JSONL) r->empty = 0;
    return OK;
}

/* The first of the empty lines becomes the record: a row, or a header, of one empty column. */
static void begin_empty(Records *r)
{
    r->raw = (RecordText){"", 0};
    r->raw_line = r->empty_line;
}

/* ---- the start ---- */

static bool ends_with(const char *name, size_t len, const char *end)
{
    size_t n = strlen(end);
    return len >= n && memcmp(name + len - n, end, n) == 0;
}

RecordsForm records_form_of_name(const char *path)
{
    static const struct {
        const char *end;
        RecordsForm form;
    } ends[] = {{".tsv", RECORDS_TSV},      {".csv", RECORDS_CSV},    {".jsonl", RECORDS_JSONL},
                {".ndjson", RECORDS_JSONL}, {".json", RECORDS_JSONL}, {".txt", RECORDS_LINES}};
    size_t len = strlen(path);
    if (ends_with(path, len, ".gz")) len -= 3;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(path, len, ends[i].end)) return ends[i].form;
    return RECORDS_BY_NAME;
}

/* Whether the first line, with commas between, names a wanted column. */
static bool names_a_column(const Records *r, const char *line, size_t len)
{
    for (int k = 0; k < r->o.n; k++) {
        const char *name = r->o.columns[k];
        size_t n = name ? strlen(name) : 0;
        for (size_t i = 0; name && i + n <= len; i++) {
            char before = i ? line[i - 1] : ',', after = i + n < len ? line[i + n] : ',';
            if (memcmp(line + i, name, n) == 0 && strchr(",;\t\"", before) && strchr(",;\t\"\r", after)) return true;
        }
    }
    return false;
}

static RecordsForm form_of_content(const Records *r)
{
    const char *p = r->buf.data + r->at, *end = r->buf.data + r->buf.len;
    const char *feed = memchr(p, '\n', (size_t)(end - p)), *stop = feed ? feed : end;
    size_t len = (size_t)(stop - p);
    if (len && *p == '{') return RECORDS_JSONL;
    if (memchr(p, '\t', len)) return RECORDS_TSV;
    return r->o.plain_lines && !names_a_column(r, p, len) ? RECORDS_LINES : RECORDS_CSV;
}

static Status find_form(Records *r)
{
    while (!r->in.end && r->buf.len < 65536) TRY(read_more(r));
    if (r->buf.len >= 3 && memcmp(r->buf.data, "\xef\xbb\xbf", 3) == 0) r->at = 3;
    r->scan = r->at;
    r->form = r->o.form != RECORDS_BY_NAME ? r->o.form : records_form_of_name(r->name);
    if (r->form == RECORDS_BY_NAME && !r->buf.data) r->form = r->o.plain_lines ? RECORDS_LINES : RECORDS_TSV;
    if (r->form == RECORDS_BY_NAME) r->form = form_of_content(r);
    return OK;
}

static Status columns_by_position(Records *r)
{
    for (int k = 0; k < r->o.n; k++) r->position[k] = r->o.columns[k] ? (int)strtol(r->o.columns[k], NULL, 10) : -1;
    if (r->o.without_header > 0) {
        r->columns = r->o.without_header;
        return OK;
    }
    TRY(record_cells_count(r, &r->columns));
    if (r->form == RECORDS_CSV && r->columns == 1 && memchr(r->raw.p, '\t', r->raw.len))
        return fail(E_FORMAT, "%s:%lld: found 1 column%s", r->name, (long long)r->raw_line, record_hint(r));
    for (int k = 0; k < r->o.n; k++)
        if (r->position[k] >= r->columns)
            return fail(E_FORMAT, "%s:%lld: expected a column at position %d (counted from 0), found %lld column%s%s",
                        r->name, (long long)r->raw_line, r->position[k], (long long)r->columns,
                        r->columns == 1 ? "" : "s", r->columns == 1 ? record_hint(r) : "");
    return OK;
}

/* A header among plain lines: names without blanks, one of them wanted, and separators between. */
static bool looks_like_header(const Records *r)
{
    bool separated = false;
    for (size_t i = 0; i < r->raw.len; i++) {
        if (r->raw.p[i] == ' ') return false;
        separated = separated || strchr(",;\t", r->raw.p[i]);
    }
    return separated && names_a_column(r, r->raw.p, r->raw.len);
}

static Status find_columns(Records *r)
{
    static const char *const between[] = {"", "tab-separated columns", "comma-separated columns", "JSON objects",
                                          "text"};
    TRY(skip_empty(r));
    bool header = !r->o.without_header && (r->form == RECORDS_TSV || r->form == RECORDS_CSV);
    if (!r->has_raw)
        return fail(E_FORMAT, "%s: the file is empty; expected %srows of %s", r->name, header ? "a header and " : "",
                    between[r->form]);
    if (memchr(r->raw.p, 0, r->raw.len))
        return fail(E_FORMAT,
                    "%s:%lld: expected UTF-8, found NUL bytes; if the file is UTF-16, convert it, with iconv -f "
                    "utf-16le -t utf-8",
                    r->name, (long long)r->raw_line);
    if (memchr(r->raw.p, '\r', r->raw.len) && !memchr(r->buf.data, '\n', r->buf.len))
        return fail(E_FORMAT,
                    "%s: expected lines that end with a line feed, found carriage returns alone, as old Macs write "
                    "them; convert the file, with tr '\\r' '\\n'",
                    r->name);
    if (r->form == RECORDS_LINES && looks_like_header(r))
        return fail(E_FORMAT,
                    "%s:%lld: expected a text on each line, found '%s', which looks like a header of columns; name the "
                    "file .csv or .tsv",
                    r->name, (long long)r->raw_line, record_shown(r->raw).text);
    if (r->form == RECORDS_JSONL || r->form == RECORDS_LINES) {
        const char *text = NULL; /* of lines, the one column */
        r->columns = r->form == RECORDS_LINES ? 1 : r->o.n;
        for (int k = 0; k < r->o.n; k++) {
            const char *wanted = r->o.columns[k];
            r->position[k] = r->form == RECORDS_JSONL ? k : wanted ? 0 : -1;
            if (!text) text = wanted;
            if (r->form == RECORDS_LINES && wanted && strcmp(wanted, text) != 0)
                return fail(E_FORMAT, "%s: expected a column '%s', found lines of text, which are '%s' alone", r->name,
                            wanted, text);
        }
        return OK;
    }
    RecordText raw = r->raw;
    int64_t line = r->raw_line;
    if (r->empty) begin_empty(r);
    TRY(header ? record_header(r) : columns_by_position(r));
    if (r->columns > INT_MAX)
        return fail(E_FORMAT, "%s:%lld: %lld columns are too many", r->name, (long long)r->raw_line,
                    (long long)r->columns);
    r->raw = raw;
    r->raw_line = line;
    return header ? skip_empty(r) : OK;
}

static Status open_records(Records **out, const char *name, const char *path, const void *data, size_t size,
                           const RecordsOptions *o)
{
    CHECK(o->n >= 1 && o->n <= RECORDS_MOST_COLUMNS, "%d columns", o->n);
    Records *r = mem_alloc(sizeof *r);
    *r = (Records){.o = *o, .name = mem_strdup(name), .line = 1};
    r->in = (RecordsInput){.fd = -1, .memory = data, .memory_len = size, .stop = o->stop};
    Status status = records_input_open(&r->in, r->name, path);
    if (status == OK) status = find_form(r);
    if (status == OK) status = find_columns(r);
    *out = status == OK ? r : NULL;
    if (status != OK) records_close(r);
    return status;
}

Status records_open(Records **records, const char *path, const RecordsOptions *o)
{
    return open_records(records, strcmp(path, "-") == 0 ? "the standard input" : path, path, NULL, 0, o);
}

Status records_open_memory(Records **records, const char *name, const void *data, size_t size, const RecordsOptions *o)
{
    return open_records(records, name, NULL, data, size, o);
}

void records_close(Records *r)
{
    if (!r) return;
    records_input_close(&r->in);
    BUF_FREE(&r->buf, &r->texts);
    MEM_FREE(r->name, r);
}

int64_t records_columns(const Records *r) { return r->columns; }

bool records_are_json(const Records *r) { return r->form == RECORDS_JSONL; }

void records_warn_quotes(const Records *r)
{
    if (r->o.form != RECORDS_BY_NAME || !r->in_quotes) return;
    if (r->in_quotes < r->next_number && !r->doubled && r->commas < r->in_quotes) return; /* Excel quotes commas */
    log_warn("%s: %lld of %lld rows have a column in quotes. In a TSV file quotes are text, which the model sees; if "
             "they are not, write the file as CSV (.csv), or without quotes",
             r->name, (long long)r->in_quotes, (long long)r->next_number);
}

/* ---- rows ---- */

static Status check_count(const Records *r)
{
    const Record *row = &r->current;
    if (row->count == r->columns || (row->count < r->columns && r->o.short_rows)) return OK;
    /* A header that was cut shows the separator. */
    const char *hint = row->count == 1 && r->o.without_header ? record_hint(r) : "";
    if (*hint)
        return fail(E_FORMAT, "%s:%lld: expected %lld columns, found 1%s", r->name, (long long)row->line,
                    (long long)r->columns, hint);
    const char *look = r->form == RECORDS_TSV    ? (row->count < r->columns ? "a line break" : "a tab")
                       : row->count < r->columns ? "a missing comma"
                                                 : "a comma that is not within quotes";
    bool quotes =
        r->form == RECORDS_TSV && r->o.form == RECORDS_BY_NAME && r->raw.len && memchr(r->raw.p, '"', r->raw.len);
    return fail(E_FORMAT, "%s:%lld: expected %lld columns, found %lld; look for %s in the text of this row%s", r->name,
                (long long)row->line, (long long)r->columns, (long long)row->count, look,
                quotes ? "; in a TSV file quotes are text and protect neither, so write such a file as CSV" : "");
}

/* The texts of the record as the next row. */
static Status take_record(Records *r)
{
    r->current.number = r->next_number++;
    r->current.line = r->raw_line;
    TRY(record_cells_take(r));
    return check_count(r);
}

Status records_next(Records *r, const Record **row)
{
    *row = NULL;
    if (r->taken) TRY(skip_empty(r)); /* only now, because it moves the texts of the row before */
    r->taken = false;
    if (!r->has_raw) return OK;
    RecordText raw = r->raw;
    int64_t line = r->raw_line;
    if (r->empty) begin_empty(r);
    TRY(take_record(r));
    *row = &r->current;
    r->taken = !r->empty;
    if (r->taken) return OK;
    r->empty--;
    r->empty_line++;
    r->raw = raw;
    r->raw_line = line;
    return OK;
}

/* ---- a user's own files ---- */

static const char *const endings[] = {".tsv", ".csv", ".jsonl", ".ndjson", ".json"};

/* The file of `dir` whose name is `stem` and one of the endings, packed or not, in addition to one found before. */
static Status find_file(const char *dir, const char *stem, char **found)
{
    Status status = OK;
    for (size_t i = 0; i < 2 * (sizeof endings / sizeof *endings) && status == OK; i++) {
        char *name = mem_printf("%s%s%s", stem, endings[i / 2], i % 2 ? ".gz" : ""), *path = file_join(dir, name);
        bool there = file_exists(path);
        if (there && *found)
            status = fail(E_USAGE, "%s and %s: expected one file of this split; remove the other", *found, path);
        if (there && !*found)
            *found = path;
        else
            free(path);
        free(name);
    }
    return status;
}

Status records_find(const char *dir, const char *split, char **path)
{
    *path = NULL;
    Status status = find_file(dir, split, path);
    return status == OK && strcmp(split, "dev") == 0 ? find_file(dir, "validation", path) : status;
}

int record_names(char *list, char ***names)
{
    int count = 0, cap = 0;
    for (char *p = list; p;) {
        char *comma = strchr(p, ','), *next = comma ? comma + 1 : NULL;
        if (comma) *comma = 0;
        RecordText trimmed = record_trim((RecordText){p, strlen(p)});
        p += trimmed.p - p;
        p[trimmed.len] = 0;
        if (!*p || strpbrk(p, "\t\r\n")) return -1;
        MEM_PUSH(*names, count, cap, p);
        p = next;
    }
    return count;
}

bool record_positions(char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (!*names[i] || strlen(names[i]) > 4 || strspn(names[i], "0123456789") != strlen(names[i])) return false;
    return true;
}
