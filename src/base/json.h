/* JSON documents (RFC 8259), read-only, read as Python's json module reads them: NaN, Infinity and numbers of any size
   are accepted, of equal keys the last one counts, with the place of the first. \u0000 and half a surrogate pair become
   U+FFFD, so that every text is a C string of UTF-8. E_FORMAT, with line and column, for invalid JSON, depth beyond 500
   and texts of 4 GiB. Buf writes JSON: buf_json and buf_double. */
#pragma once

#include "base/mem.h"
#include "base/status.h"

typedef struct Json Json; /* a value of a document; valid until the document is freed */

typedef enum {
    JSON_KIND_NULL,
    JSON_KIND_BOOL,
    JSON_KIND_INT,        /* a whole number of 64 bits, written without point and exponent */
    JSON_KIND_REAL,       /* any other finite number */
    JSON_KIND_NOT_FINITE, /* NaN, Infinity, -Infinity, 1e999 */
    JSON_KIND_STRING,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT
} JsonKind;

/* `name` is what errors call the text (a path). The root must be an object or an array. On failure *doc is NULL.
   js_read takes files of up to 64 MiB. */
Status js_parse(const char *name, const char *text, size_t len, Json **doc);
/* Parses a part of a file: messages count lines from `first_line`. */
Status js_parse_at(const char *name, int64_t first_line, const char *text, size_t len, Json **doc);
Status js_read(const char *path, Json **doc);
bool js_read_in(const char *folder, const char *name, Json **doc); /* false: there is none, or it cannot be read */
/* The last number of that key in a file of lines of JSON, of which it reads the end alone; 0: none. */
double js_last(const char *folder, const char *name, const char *key);
void js_free(Json *doc); /* the root only; takes NULL */

JsonKind js_kind(const Json *v);                         /* NULL has the kind NULL */
const char *js_kind_name(const Json *v);                 /* "a text", "null", "an array" */
size_t js_size(const Json *v);                           /* members of an object or array, else 0 */
const Json *js_get(const Json *object, const char *key); /* NULL if missing or not an object */
const char *js_repeated(const Json *object);             /* a key that the text has twice; NULL: none */
const Json *js_at(const Json *array, size_t i);          /* NULL if out of range or not an array */
/* Walks an object in the order of the text: `for (void *it = js_first(o); it; it = js_next(o, it))`. */
void *js_first(const Json *object);
void *js_next(const Json *object, void *it);
const char *js_key(void *it);
const Json *js_value(void *it);

/* The fallback where the value is missing (NULL) or of another kind. */
const char *js_string(const Json *v, const char *fallback);
int64_t js_int(const Json *v, int64_t fallback);
double js_real(const Json *v, double fallback); /* takes integers too */
bool js_bool(const Json *v, bool fallback);
/* A string's text; a number, a bool or null as it is written. NULL for an array, an object and NULL. */
const char *js_text(const Json *v);
/* Appends a value as JSON, numbers as they are written. */
void js_put(Buf *out, const Json *v);
/* Appends it as js_put does, but returns false, and appends nothing, for an array or object. */
bool js_put_scalar(Buf *out, const Json *v);
/* A value over lines, as Python's json.dumps(indent=2) writes it; the first line is at `depth` already. A real number
   has a point or an exponent. `sorted`: keys by their bytes. */
void js_put_indented(Buf *out, const Json *v, int depth, bool sorted);

#define RUN_JSON_FORMAT 1 /* of run.json, which report/ writes and reads, and config/ reads */
