#include "base/json.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { MAX_DEPTH = 64 };
static const size_t max_bytes = (size_t)64 << 20; /* of a file; jansson needs many times as much */

/* A Json is a json_t; the name keeps jansson out of the header. jansson's getters take NULL and wrong kinds. */
static json_t *node(const Json *v) { return (json_t *)(uintptr_t)v; }

static const Json *wrap(const json_t *v) { return (const Json *)v; }

/* jansson recurses to its own, far deeper limit, so the depth is checked before it starts. The check may misread text
   that is not JSON, but no other. */
static Status check_depth(const char *name, int64_t first_line, const char *text, size_t len)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"') in_string = true;
        if (c == ']' || c == '}') depth--;
        if (c != '[' && c != '{') continue;
        if (++depth <= MAX_DEPTH) continue;
        long long line = first_line;
        size_t start = 0;
        for (size_t k = 0; k < i; k++)
            if (text[k] == '\n') line++, start = k + 1;
        return fail(E_FORMAT, "%s: line %lld, column %zu: arrays and objects nested deeper than %d", name, line,
                    i - start + 1, MAX_DEPTH);
    }
    return OK;
}

/* jansson reports a failed allocation as text that is not valid; mem_alloc ends the process with its own message. */
static void set_allocator(void) { json_set_alloc_funcs(mem_alloc, free); }

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
    TRY(check_depth(name, first_line, text, len));
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, set_allocator);
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        if (json_error_code(&error) == json_error_out_of_memory) {
            return fail(E_MEMORY, "%s: no memory left to parse %zu bytes of JSON", name, len);
        }
        for (char *p = error.text; *p; p++) /* jansson cuts characters */
            if ((unsigned char)*p >= 0x80) *p = '?';
        return fail(E_FORMAT, "%s: line %lld, column %d: not valid JSON: %s", name,
                    (long long)(first_line - 1 + error.line), error.column, error.text);
    }
    *doc = (Json *)root;
    return OK;
}

bool js_read_in(const char *folder, const char *name, Json **doc)
{
    char *path = file_join(folder, name);
    *doc = NULL;
    bool read = file_exists(path) && js_read(path, doc) == OK;
    free(path);
    return read;
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

void js_free(Json *doc) { json_decref(node(doc)); }

JsonKind js_kind(const Json *v)
{
    static const JsonKind kinds[] = {
        [JSON_OBJECT] = JSON_KIND_OBJECT, [JSON_ARRAY] = JSON_KIND_ARRAY, [JSON_STRING] = JSON_KIND_STRING,
        [JSON_INTEGER] = JSON_KIND_INT,   [JSON_REAL] = JSON_KIND_REAL,   [JSON_TRUE] = JSON_KIND_BOOL,
        [JSON_FALSE] = JSON_KIND_BOOL,    [JSON_NULL] = JSON_KIND_NULL};
    return v ? kinds[json_typeof(node(v))] : JSON_KIND_NULL;
}

size_t js_size(const Json *v) { return json_object_size(node(v)) + json_array_size(node(v)); }

const Json *js_get(const Json *object, const char *key) { return wrap(json_object_get(node(object), key)); }

const Json *js_at(const Json *array, size_t i) { return wrap(json_array_get(node(array), i)); }

void *js_first(const Json *object) { return json_object_iter(node(object)); }

void *js_next(const Json *object, void *it) { return json_object_iter_next(node(object), it); }

const char *js_key(void *it) { return json_object_iter_key(it); }

const Json *js_value(void *it) { return wrap(json_object_iter_value(it)); }

const char *js_string(const Json *v, const char *fallback)
{
    return json_is_string(node(v)) ? json_string_value(node(v)) : fallback;
}

int64_t js_int(const Json *v, int64_t fallback)
{
    return json_is_integer(node(v)) ? (int64_t)json_integer_value(node(v)) : fallback;
}

double js_real(const Json *v, double fallback)
{
    return json_is_number(node(v)) ? json_number_value(node(v)) : fallback;
}

bool js_bool(const Json *v, bool fallback) { return json_is_boolean(node(v)) ? json_is_true(node(v)) : fallback; }

bool js_put_scalar(Buf *out, const Json *v)
{
    switch (js_kind(v)) {
    case JSON_KIND_NULL:
        buf_puts(out, "null");
        break;
    case JSON_KIND_BOOL:
        buf_puts(out, js_bool(v, false) ? "true" : "false");
        break;
    case JSON_KIND_INT:
        buf_printf(out, "%lld", (long long)js_int(v, 0));
        break;
    case JSON_KIND_REAL:
        buf_double(out, js_real(v, 0));
        break;
    case JSON_KIND_STRING:
        buf_json(out, js_string(v, ""));
        break;
    default:
        return false;
    }
    return true;
}
