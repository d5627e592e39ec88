/* The input is the manifest.json of a checkpoint or model, once as it is and once with corrected last lines, so that
   more of them are accepted. An accepted manifest must be written back as the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "state/models/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const char *text, size_t len)
{
    Manifest m;
    Buf again = {0};
    if (manifest_parse("manifest.json", text, len, &m) != OK) return;
    manifest_render(&m, &again);
    if (again.len != len || memcmp(again.data, text, len) != 0) abort();
    for (int i = 0; i < m.count; i++)
        if (!manifest_name_valid(m.files[i].name) || manifest_find(&m, m.files[i].name) != &m.files[i]) abort();
    manifest_free(&m);
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char last[] = "  \"xxh3_128_of_the_lines_above\": \"";
    parse((const char *)data, size);
    const uint8_t *end = memmem(data, size, last, sizeof last - 1);
    if (!end) return 0;
    Buf text = {0};
    char hex[33];
    buf_append(&text, data, (size_t)(end - data));
    digest_format(digest_of(data, (size_t)(end - data)), hex);
    buf_printf(&text, "%s%s\"\n}\n", last, hex);
    parse(text.data, text.len);
    buf_free(&text);
    return 0;
}
