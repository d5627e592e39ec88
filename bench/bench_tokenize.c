/* How fast text becomes token ids, on one core: bench_tokenize VOCAB TEXT [--cased] [--column N]. Each line of TEXT is
   one text, or with --column its N-th tab-separated field (from 0), as a GLUE file has it. Prints processor time and
   wall time of the median and the fastest of 9 passes; beside other load processor time is the better one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sort.h"
#include "text/text.h"

#define PASSES 9

typedef struct {
    const char *text;
    size_t len;
} Line;

/* The wanted part of a line; NULL text if the line has too few columns. */
static Line pick(const char *line, const char *end, int column)
{
    if (end > line && end[-1] == '\r') end--;
    if (column < 0) return (Line){line, (size_t)(end - line)};
    for (; column > 0; column--) {
        line = memchr(line, '\t', (size_t)(end - line));
        if (!line) return (Line){0};
        line++;
    }
    const char *tab = memchr(line, '\t', (size_t)(end - line));
    return (Line){line, (size_t)((tab ? tab : end) - line)};
}

typedef struct {
    double cpu, wall; /* seconds */
} Times;

static Times now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (Times){(double)t.tv_sec + 1e-9 * (double)t.tv_nsec, clock_monotonic()};
}

static Status measure(const char *vocab_path, const char *text_path, bool cased, int column)
{
    Status status = OK;
    Vocab *vocab = NULL;
    Tokenizer *tokenizer = NULL;
    FileMap map = {0};
    Line *lines = NULL;
    size_t n = 0, cap = 0, bytes = 0;
    TokenIds ids = {0};
    double cpu[PASSES], wall[PASSES], start = clock_monotonic();
    TRY_DONE(vocab_read(vocab_path, NULL, &vocab));
    double load = clock_monotonic() - start;
    TRY_DONE(file_map(&map, text_path));
    tokenizer = tokenizer_new(vocab, tokenizer_options(!cased));

    const char *p = (const char *)map.data, *end = p + map.size;
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        Line line = pick(p, stop, column);
        if (line.text && line.len > 0) {
            MEM_GROW(lines, n, cap);
            lines[n++] = line;
            bytes += line.len;
        }
        p = stop + 1;
    }
    if (n == 0) {
        status = fail(E_FORMAT, "%s: no text in it", text_path);
        goto done;
    }
    size_t tokens = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        tokens = 0;
        Times before = now(), after;
        for (size_t i = 0; i < n; i++) {
            ids.count = 0;
            tokenizer_encode(tokenizer, lines[i].text, lines[i].len, &ids);
            tokens += ids.count;
        }
        after = now();
        cpu[pass] = after.cpu - before.cpu;
        wall[pass] = after.wall - before.wall;
    }
    qsort(cpu, PASSES, sizeof *cpu, sort_by_value);
    qsort(wall, PASSES, sizeof *wall, sort_by_value);
    double size = (double)bytes * 1e-6;
    printf("%s: %zu texts, %zu bytes, %zu tokens; vocabulary read in %.1f ms\n", file_basename(text_path), n, bytes,
           tokens, load * 1e3);
    printf("processor time: %.1f MB/s median, %.1f fastest, %.1f million tokens/s; wall time: %.1f and %.1f MB/s\n",
           size / cpu[PASSES / 2], size / cpu[0], (double)tokens * 1e-6 / cpu[PASSES / 2], size / wall[PASSES / 2],
           size / wall[0]);
done:
    token_ids_free(&ids);
    free(lines);
    tokenizer_free(tokenizer);
    file_unmap(&map);
    vocab_free(vocab);
    return status;
}

int main(int argc, char **argv)
{
    const char *paths[2];
    int n_paths = 0, column = -1;
    bool cased = false, usage = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--cased") == 0)
            cased = true;
        else if (strcmp(argv[i], "--column") == 0 && i + 1 < argc)
            column = atoi(argv[++i]);
        else if (argv[i][0] != '-' && n_paths < 2)
            paths[n_paths++] = argv[i];
        else
            usage = true;
    }
    if (usage || n_paths < 2) {
        fprintf(stderr, "usage: bench_tokenize VOCAB TEXT [--cased] [--column N]\n");
        return status_exit_code(E_USAGE);
    }
    Status status = measure(paths[0], paths[1], cased, column);
    if (status != OK) fprintf(stderr, "%s\n", status_message());
    return status_exit_code(status);
}
