#include "base/json.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_internal.h"

static const size_t max_bytes = (size_t)64 << 20; /* of a file that js_read reads */

bool js_read_in(const char *folder, const char *name, Json **doc)
{
    char *path = file_join(folder, name);
    *doc = NULL;
    bool read = file_exists(path) && js_read(path, doc) == OK;
    free(path);
    return read;
}

double js_last(const char *folder, const char *name, const char *key)
{
    enum { END = 1 << 16 }; /* longer than a line */
    char *path = file_join(folder, name), *member = mem_printf("\"%s\": ", key), *text = mem_alloc(END + 1);
    int fd = file_open(path, O_RDONLY);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    double last = 0;
    if (size > 0 && file_read_at(fd, size > END ? (uint64_t)size - END : 0, text, END) > 0)
        for (const char *at = text; (at = strstr(at, member));) last = strtod(at += strlen(member), NULL);
    if (fd >= 0) close(fd);
    MEM_FREE(path, member, text);
    return last;
}

Status js_read(const char *path, Json **doc)
{
    Status status = OK;
    Buf text = {0};
    *doc = NULL;
    TRY_DONE(file_read(path, max_bytes, &text));
    TRY_DONE(js_parse(path, text.data, text.len, doc));
done:
    buf_free(&text);
    return status;
}

void js_free(Json *root)
{
    Document *d = (Document *)root;
    if (!d) return;
    for (size_t i = 0; i < d->n_blocks; i++) free(d->blocks[i]);
    MEM_FREE(d->blocks, d->text, d);
}

/* ---- values ---- */

JsonKind js_kind(const Json *v) { return v ? v->kind : JSON_KIND_NULL; }

const char *js_kind_name(const Json *v)
{
    static const char *const names[] = {[JSON_KIND_NULL] = "null",      [JSON_KIND_BOOL] = "true or false",
                                        [JSON_KIND_INT] = "a number",   [JSON_KIND_REAL] = "a number",
                                        [JSON_KIND_STRING] = "a text",  [JSON_KIND_NOT_FINITE] = "not a finite number",
                                        [JSON_KIND_ARRAY] = "an array", [JSON_KIND_OBJECT] = "an object"};
    return names[js_kind(v)];
}

size_t js_size(const Json *v) { return v ? v->n : 0; }

const Json *js_get(const Json *object, const char *key)
{
    uint32_t low = 0, high = js_kind(object) == JSON_KIND_OBJECT ? object->n : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const Member *m = object->object->sorted[middle];
        int order = strcmp(m->key, key);
        if (order == 0) return &m->value;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const char *js_repeated(const Json *object)
{
    return js_kind(object) == JSON_KIND_OBJECT && object->n ? object->object->repeated : NULL;
}

const Json *js_at(const Json *array, size_t i)
{
    return js_kind(array) == JSON_KIND_ARRAY && i < array->n ? &array->items[i] : NULL;
}

void *js_first(const Json *object)
{
    return js_kind(object) == JSON_KIND_OBJECT && object->n ? (void *)(uintptr_t)object->object->members : NULL;
}

void *js_next(const Json *object, void *it)
{
    Member *next = (Member *)it + 1;
    return next < object->object->members + object->n ? next : NULL;
}

const char *js_key(void *it) { return ((const Member *)it)->key; }

const Json *js_value(void *it) { return &((const Member *)it)->value; }

const char *js_string(const Json *v, const char *fallback)
{
    return js_kind(v) == JSON_KIND_STRING ? v->text : fallback;
}

int64_t js_int(const Json *v, int64_t fallback)
{
    return js_kind(v) == JSON_KIND_INT ? (int64_t)strtoll(v->text, NULL, 10) : fallback;
}

double js_real(const Json *v, double fallback)
{
    return js_kind(v) == JSON_KIND_INT || js_kind(v) == JSON_KIND_REAL ? strtod(v->text, NULL) : fallback;
}

bool js_bool(const Json *v, bool fallback) { return js_kind(v) == JSON_KIND_BOOL ? *v->text == 't' : fallback; }

const char *js_text(const Json *v)
{
    return v && v->kind != JSON_KIND_ARRAY && v->kind != JSON_KIND_OBJECT ? v->text : NULL;
}

/* ---- writing ---- */

bool js_put_scalar(Buf *out, const Json *v)
{
    if (js_kind(v) == JSON_KIND_ARRAY || js_kind(v) == JSON_KIND_OBJECT) return false;
    if (js_kind(v) == JSON_KIND_STRING)
        buf_json(out, v->text);
    else
        buf_puts(out, v ? v->text : "null");
    return true;
}

void js_put(Buf *out, const Json *v)
{
    if (js_put_scalar(out, v)) return;
    bool array = v->kind == JSON_KIND_ARRAY;
    buf_puts(out, array ? "[" : "{");
    for (size_t i = 0; i < v->n; i++) {
        if (i) buf_puts(out, ", ");
        if (!array) {
            buf_json(out, v->object->members[i].key);
            buf_puts(out, ": ");
        }
        js_put(out, array ? &v->items[i] : &v->object->members[i].value);
    }
    buf_puts(out, array ? "]" : "}");
}

/* A number that reads back as a real: "1.0", not "1". */
static void put_real(Buf *out, double x)
{
    size_t start = out->len;
    buf_double(out, x);
    if (!strpbrk(out->data + start, ".en")) buf_puts(out, ".0");
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(js_key(*(void *const *)a), js_key(*(void *const *)b));
}

static void put_line(Buf *out, bool comma, int depth) { buf_printf(out, "%s\n%*s", comma ? "," : "", 2 * depth, ""); }

static void put_members(Buf *out, const Json *v, int depth, bool sorted)
{
    size_t n = 0;
    void **members = mem_array(js_size(v), sizeof *members);
    for (void *it = js_first(v); it; it = js_next(v, it)) members[n++] = it;
    if (sorted) qsort(members, n, sizeof *members, compare_keys);
    for (size_t i = 0; i < n; i++) {
        put_line(out, i > 0, depth);
        buf_json(out, js_key(members[i]));
        buf_puts(out, ": ");
        js_put_indented(out, js_value(members[i]), depth, sorted);
    }
    free(members);
}

void js_put_indented(Buf *out, const Json *v, int depth, bool sorted)
{
    bool object = js_kind(v) == JSON_KIND_OBJECT;
    if (js_kind(v) == JSON_KIND_REAL)
        put_real(out, js_real(v, 0));
    else if (object || js_kind(v) == JSON_KIND_ARRAY) {
        buf_puts(out, object ? "{" : "[");
        if (object) put_members(out, v, depth + 1, sorted);
        for (size_t i = 0; i < js_size(v) && !object; i++) {
            put_line(out, i > 0, depth + 1);
            js_put_indented(out, js_at(v, i), depth + 1, sorted);
        }
        if (js_size(v)) put_line(out, false, depth);
        buf_puts(out, object ? "}" : "]");
    } else {
        js_put_scalar(out, v);
    }
}
