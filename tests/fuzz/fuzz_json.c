/* Any bytes as JSON. What is accepted, written and read again gives the same text; all texts are UTF-8; each key of an
   object finds its member. A refusal names a line. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const Json *v)
{
    size_t n = 0;
    const char *text = js_text(v);
    if (text) CHECK(text_utf8_error(text, strlen(text)) < 0, "a text that is not UTF-8");
    for (size_t i = 0; js_kind(v) == JSON_KIND_ARRAY && i < js_size(v); i++) check(js_at(v, i));
    for (void *it = js_first(v); it; it = js_next(v, it), n++) {
        CHECK(text_utf8_error(js_key(it), strlen(js_key(it))) < 0, "a key that is not UTF-8");
        CHECK(js_get(v, js_key(it)) == js_value(it), "the key '%s' finds another member", js_key(it));
        check(js_value(it));
    }
    CHECK(js_kind(v) != JSON_KIND_OBJECT || n == js_size(v), "%zu members of %zu", n, js_size(v));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Json *doc, *again;
    Buf once = {0}, twice = {0};
    char *copy = malloc(size ? size : 1); /* of exact size, so that reads beyond it are detected */
    CHECK(copy, "no memory");
    memcpy(copy, data, size);
    if (js_parse("fuzz", copy, size, &doc) != OK) {
        CHECK(!doc && strncmp(status_message(), "fuzz: ", 6) == 0, "message '%s'", status_message());
        CHECK(text_utf8_error(status_message(), strlen(status_message())) < 0, "message '%s'", status_message());
    } else {
        check(doc);
        js_put(&once, doc);
        CHECK(js_parse("fuzz", once.data, once.len, &again) == OK, "%s", status_message());
        js_put(&twice, again);
        CHECK(strcmp(once.data, twice.data) == 0, "written '%s', then '%s'", once.data, twice.data);
        js_free(again);
    }
    js_free(doc);
    BUF_FREE(&once, &twice);
    free(copy);
    return 0;
}
