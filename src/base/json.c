#include "base/json.h"

#include <jansson.h>
#include <string.h>

#include "base/file.h"

enum { MAX_DEPTH = 64 };
static const size_t max_bytes = (size_t)64 << 20; /* of a file; jansson needs many times as much */

/* A Json is a json_t; the name keeps jansson out of the header. jansson's getters take NULL and wrong kinds. */
static json_t *node(const Json *v) { return (json_t *)(uintptr_t)v; }

static const Json *wrap(const json_t *v) { return (const Json *)v; }

/* jansson descends on the stack to its own, far deeper limit, so depth is judged before it starts. Text that is not
   JSON may be misjudged here, but only such text. */
static Status check_depth(const char *name, const char *text, size_t len)
{
    int depth = 0;
    bool in_string = false;
    size_t line = 1, line_start = 0;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '\n') {
            line++;
            line_start = i + 1;
        }
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
        if (++depth > MAX_DEPTH) {
            return fail(E_FORMAT, "%s: line %zu, column %zu: arrays and objects nested deeper than %d", name, line,
                        i - line_start + 1, MAX_DEPTH);
        }
    }
    return OK;
}

Status js_parse(const char *name, const char *text, size_t len, Json **doc)
{
    *doc = NULL;
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark, as Windows editors leave it */
        text += 3;
        len -= 3;
    }
    if (len == 0) return fail(E_FORMAT, "%s: empty, where JSON was expected", name);
    TRY(check_depth(name, text, len));
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        if (json_error_code(&error) == json_error_out_of_memory) {
            return fail(E_MEMORY, "%s: no memory left to parse %zu bytes of JSON", name, len);
        }
        return fail(E_FORMAT, "%s: line %d, column %d: not valid JSON: %s", name, error.line, error.column, error.text);
    }
    *doc = (Json *)root;
    return OK;
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
    if (!v) return JSON_KIND_NULL;
    switch (json_typeof(node(v))) {
    case JSON_OBJECT:
        return JSON_KIND_OBJECT;
    case JSON_ARRAY:
        return JSON_KIND_ARRAY;
    case JSON_STRING:
        return JSON_KIND_STRING;
    case JSON_INTEGER:
        return JSON_KIND_INT;
    case JSON_REAL:
        return JSON_KIND_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return JSON_KIND_BOOL;
    case JSON_NULL:
        break;
    }
    return JSON_KIND_NULL;
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

size_t js_string_length(const Json *v) { return json_string_length(node(v)); }

int64_t js_int(const Json *v, int64_t fallback)
{
    return json_is_integer(node(v)) ? (int64_t)json_integer_value(node(v)) : fallback;
}

double js_real(const Json *v, double fallback)
{
    return json_is_number(node(v)) ? json_number_value(node(v)) : fallback;
}

bool js_bool(const Json *v, bool fallback) { return json_is_boolean(node(v)) ? json_is_true(node(v)) : fallback; }
