/* Any bytes as input of `cairn wiki`. The first byte selects the form: wikitext; a dump or text, which must give the
   same whole and in pieces of the second byte's size; a block of bz2; gz. The output is UTF-8, in lines of bounded
   length, and not longer than the input. */
#include <stdlib.h>
#include <string.h>

#include "data/bz2.h"
#include "data/gz.h"
#include "tasks/pretrain/wiki/article.h"
#include "tasks/pretrain/wiki/sentences.h"
#include "tasks/pretrain/wiki/wikitext.h"
#include "text/text.h"

#define LIMIT       1024 /* bytes of an article: small enough to be reached */
#define MOST_PIECES 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const Buf *text, size_t most)
{
    const char *p = text->data ? text->data : "", *end = p + text->len, *stop;
    CHECK(text->len <= most, "%zu bytes of %zu", text->len, most);
    CHECK(text_utf8_error(p, text->len) < 0, "not UTF-8");
    for (; p < end; p = stop + 1) {
        stop = memchr(p, '\n', (size_t)(end - p));
        CHECK(stop && stop - p <= SENTENCE_MOST, "a line too long or without end");
    }
}

static void as_wikitext(const char *text, size_t len)
{
    static Wikitext *w;
    Buf out = {0};
    if (text_utf8_error(text, len) >= 0) return;
    if (!w) w = wikitext_new();
    size_t n = wikitext_sentences(w, text, len, &out), lines = 0;
    for (size_t i = 0; i < out.len; i++) lines += out.data[i] == '\n';
    CHECK(n == lines, "%zu sentences in %zu lines", n, lines);
    check_text(&out, 2 * len + 1);
    buf_free(&out);
}

/* The text of a file, read in pieces of `step` bytes. */
static Status make(const char *text, size_t len, size_t step, Buf *out, Buf *problems, WikiCounts *sum)
{
    static ArticleMaker *maker;
    char links[] = "datei,", other[] = ",datei,talk,";
    Namespaces names = {{.data = links, .len = 6}, {.data = other, .len = 12}, true};
    Cutter c;
    Batch batch = {0};
    Status status = OK;
    bool end = false;
    if (step < len / MOST_PIECES) step = len / MOST_PIECES;
    if (!maker) maker = article_maker_new();
    cutter_init(&c, FORM_UNKNOWN, LIMIT);
    for (size_t at = 0; !end; at += step) {
        end = at >= len;
        size_t n = end ? 0 : len - at < step ? len - at : step;
        char *piece = malloc(n ? n : 1); /* of exact size, so that reads beyond it are detected */
        CHECK(piece, "no memory");
        if (n) memcpy(piece, text + at, n);
        status = cutter_feed(&c, piece, n, at, end);
        free(piece);
        if (status != OK) break;
        while (cutter_take(&c, &batch, end)) CHECK(batch.n > 0, "an empty batch");
    }
    WikiCounts counts;
    if (status == OK) {
        articles_make(maker, &batch, &names, out, problems, &counts);
        wiki_counts_add(sum, &counts);
        CHECK(counts.pages == (int64_t)batch.n, "units");
        CHECK(counts.pages == counts.articles + counts.redirects + counts.other_namespaces + counts.empty +
                                  counts.broken + counts.too_large,
              "counts that do not add up");
        CHECK(counts.text_bytes == (int64_t)out->len, "text_bytes");
    }
    batch_free(&batch);
    cutter_free(&c);
    return status;
}

static void as_file(const char *text, size_t len, size_t step)
{
    Buf whole = {0}, pieces = {0}, problems = {0}, more = {0};
    WikiCounts a = {0}, b = {0};
    Status first = make(text, len, len ? len : 1, &whole, &problems, &a);
    Status second = make(text, len, step, &pieces, &more, &b);
    CHECK(first == second, "%s and %s", status_name(first), status_name(second));
    CHECK(whole.len == pieces.len &&
              memcmp(whole.data ? whole.data : "", pieces.data ? pieces.data : "", whole.len) == 0,
          "pieces of %zu bytes give other text", step);
    CHECK(memcmp(&a, &b, sizeof a) == 0, "pieces of %zu bytes give other counts", step);
    CHECK(problems.len == more.len &&
              memcmp(problems.data ? problems.data : "", more.data ? more.data : "", more.len) == 0,
          "pieces of %zu bytes give other problems:\n%s%s", step, problems.data, more.data);
    check_text(&whole, 2 * len + 1);
    buf_free(&whole);
    buf_free(&pieces);
    buf_free(&problems);
    buf_free(&more);
}

static void as_bz2(const uint8_t *data, size_t size, unsigned first_bit)
{
    Buf out = {0};
    uint64_t bits = 8 * (uint64_t)size;
    if (size < 2 || bits <= first_bit + 8) return;
    bz2_unpack_block(data, first_bit, bits - first_bit - 8, 1 << 20, &out);
    buf_free(&out);
}

static void as_gz(const uint8_t *data, size_t size)
{
    GzReader *gz;
    Buf out = {0};
    bool ended;
    CHECK(gz_open(&gz) == OK, "%s", status_message());
    for (int i = 0; i < 20 && size > 0; i++)
        if (gz_read(gz, &data, &size, 1 << 16, &out, &ended) != OK) break;
    gz_close(gz);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    log_set_level(LOG_ERROR);
    if (size < 2) return 0;
    uint8_t *copy = malloc(size - 2 ? size - 2 : 1);
    CHECK(copy, "no memory");
    memcpy(copy, data + 2, size - 2);
    size_t step = 1 + data[1] % 64;
    switch (data[0] % 4) {
    case 0:
        as_wikitext((const char *)copy, size - 2);
        break;
    case 1:
        as_file((const char *)copy, size - 2, data[1] < 128 ? step : 64 * step);
        break;
    case 2:
        as_bz2(copy, size - 2, data[1] % 8);
        break;
    default:
        as_gz(copy, size - 2);
    }
    free(copy);
    return 0;
}
