#include "kernels/cuda/choices.h"

#include <inttypes.h>
#include <map>
#include <stdlib.h>

#define HEADER "cairn products 1: "
#define MOST   ((size_t)16 << 20) /* bytes of a file that is read */

static struct {
    char *about, *path; /* path NULL: no place */
    std::map<ProductKey, Choice> choices;
    bool added;
} kept;

ProductKey product_key(const ProductShape *s)
{
    return {s->m,          s->n,    s->k,  s->lda, s->ldb, s->ldc, s->a_transposed + 2 * s->b_transposed,
            s->accumulate, s->bias, s->in, s->out};
}

static char *path_of(const char *about)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char hex[33];
    digest_format(digest_of(about, strlen(about)), hex);
    if (xdg && *xdg) return mem_printf("%s/cairn/products-%.16s.txt", xdg, hex);
    if (home && *home) return mem_printf("%s/.cache/cairn/products-%.16s.txt", home, hex);
    return NULL;
}

/* One line: the key's numbers, the algorithm's words in hexadecimal, the microseconds. Moves *text behind it. */
static bool parse_line(const char **text, ProductKey *key, Choice *choice)
{
    const char *at = *text;
    char *end;
    for (int64_t &number : *key) {
        number = strtoll(at, &end, 10);
        if (end == at) return false;
        at = end;
    }
    for (uint64_t &word : choice->algorithm) {
        word = strtoull(at, &end, 16);
        if (end == at) return false;
        at = end;
    }
    choice->seconds = strtod(at, &end) * 1e-6;
    if (end == at || *end != '\n') return false;
    *text = end + 1;
    return true;
}

static bool parse(const char *text)
{
    size_t header = strlen(HEADER), about = strlen(kept.about);
    if (strncmp(text, HEADER, header) != 0 || strncmp(text + header, kept.about, about) != 0) return false;
    text += header + about;
    if (*text++ != '\n') return false;
    while (*text) {
        ProductKey key;
        Choice choice;
        if (!parse_line(&text, &key, &choice)) return false;
        kept.choices[key] = choice;
    }
    return true;
}

void choices_open(const char *about)
{
    Buf text = {};
    choices_close();
    kept.about = mem_strdup(about);
    kept.path = path_of(about);
    if (!kept.path || !file_exists(kept.path)) return;
    if (file_read(kept.path, MOST, &text) != OK || !text.data || !parse(text.data)) {
        log_warn("%s is not a list of products of this GPU and library; algorithms are chosen again", kept.path);
        kept.choices.clear();
    }
    buf_free(&text);
}

void choices_close(void)
{
    choices_save();
    free(kept.about);
    free(kept.path);
    kept.about = kept.path = NULL;
    kept.choices.clear();
}

bool choices_kept(void) { return kept.path != NULL; }
const char *choices_path(void) { return kept.path; }

bool choices_find(const ProductShape *shape, Choice *choice)
{
    auto found = kept.choices.find(product_key(shape));
    if (found == kept.choices.end()) return false;
    *choice = found->second;
    return true;
}

void choices_add(const ProductShape *shape, const Choice *choice)
{
    kept.choices[product_key(shape)] = *choice;
    kept.added = true;
}

static void forget_path(void)
{
    free(kept.path);
    kept.path = NULL;
}

void choices_give(Buf *text)
{
    buf_printf(text, "%s%s\n", HEADER, kept.about);
    for (const auto &line : kept.choices) {
        for (int64_t number : line.first) buf_printf(text, "%" PRId64 " ", number);
        for (uint64_t word : line.second.algorithm) buf_printf(text, "%" PRIx64 " ", word);
        buf_printf(text, "%.3f\n", line.second.seconds * 1e6);
    }
}

void choices_take(const Buf *text)
{
    std::map<ProductKey, Choice> own = std::move(kept.choices);
    kept.choices.clear();
    if (parse(text->data)) {
        forget_path();
        return;
    }
    kept.choices = std::move(own);
    log_warn("rank 0 has another GPU or cuBLASLt than %s; algorithms of products are chosen here too", kept.about);
}

void choices_save(void)
{
    if (!kept.added || !kept.path) return;
    kept.added = false;
    Buf text = {};
    choices_give(&text);
    char *directory = file_directory(kept.path);
    if (file_make_directories(directory) != OK || file_write_durable(kept.path, text.data, text.len) != OK) {
        log_warn("%s; the chosen algorithms are not kept, and the next run may have other bits", status_message());
        forget_path();
    }
    free(directory);
    buf_free(&text);
}
