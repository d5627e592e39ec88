/* How fast a dump becomes text: bench_wiki FILE [--threads N,N…] [--passes N]. FILE is a dump or text, packed or not.
   First the whole command, with its files, at each number of threads, in a process of its own: rate and peak memory.
   Then on one core: the file read and unpacked (processor time, once), and from memory the XML parser alone, and all of
   a page's way from XML to sentences (fastest and median pass). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/sort.h"
#include "tasks/pretrain/wiki/page_xml.h"
#include "tasks/pretrain/wiki/text_file.h"
#include "tasks/pretrain/wiki/wiki.h"

#define MOST_PASSES 99

typedef struct {
    Batch *batches; // (n)
    size_t n, cap, bytes;
} Input;

static double processor_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

static Status read_input(Input *in, const char *path)
{
    TextFile *file = NULL;
    TextPiece piece = {0};
    Cutter c;
    Batch open = {0};
    Status status = OK;
    bool end = false, full = true;
    double unpacking = 0;
    cutter_init(&c, FORM_UNKNOWN, (size_t)4 << 20);
    TRY_DONE(text_file_open(&file, path, "text"));
    while (!end) {
        double start = processor_seconds();
        TRY_DONE(text_file_next(file, &piece, &end));
        text_piece_unpack(&piece, true);
        unpacking += processor_seconds() - start;
        in->bytes += piece.text.len;
        TRY_DONE(cutter_feed(&c, piece.text.data, piece.text.len, piece.mark, end));
        do {
            full = cutter_take(&c, &open, end);
            if (!full && !end) break;
            MEM_GROW(in->batches, in->n, in->cap);
            in->batches[in->n++] = open;
            open = (Batch){0};
        } while (full);
    }
    printf("reading and unpacking alone  %7.1f MB/s per second of processor time\n",
           (double)in->bytes / unpacking * 1e-6);
done:
    batch_free(&open);
    cutter_free(&c);
    text_piece_free(&piece);
    text_file_close(file);
    return status;
}

static void report(const char *what, double *seconds, int n, size_t bytes)
{
    qsort(seconds, (size_t)n, sizeof *seconds, sort_by_value);
    printf("%-28s %7.1f MB/s fastest, %7.1f median of %d\n", what, (double)bytes / seconds[0] * 1e-6,
           (double)bytes / seconds[n / 2] * 1e-6, n);
}

static Status from_memory(const Input *in, int passes)
{
    double seconds[MOST_PASSES];
    ArticleMaker *maker = article_maker_new();
    PageParser *parser = NULL;
    Page page = {0};
    Namespaces names = {0};
    Buf text = {0}, problems = {0};
    Status status = OK;
    TRY_DONE(page_parser_open(&parser));
    page_parse_header(parser, "", 0, &names);
    bool pages = in->n > 0 && in->batches[0].form == FORM_PAGES;
    for (int pass = 0; pages && pass < passes; pass++) {
        double start = clock_monotonic();
        for (size_t i = 0; i < in->n; i++)
            for (size_t k = 0; k < in->batches[i].n; k++) {
                const Unit *u = &in->batches[i].units[k];
                size_t at;
                page_parse(parser, in->batches[i].data.data + u->start, u->len, &names, &page, &at);
            }
        seconds[pass] = clock_monotonic() - start;
    }
    if (pages) report("XML parser alone", seconds, passes, in->bytes);
    size_t out = 0;
    for (int pass = 0; pass < passes; pass++) {
        double start = clock_monotonic();
        out = 0;
        for (size_t i = 0; i < in->n; i++) {
            WikiCounts counts;
            text.len = problems.len = 0;
            articles_make(maker, &in->batches[i], &names, &text, &problems, &counts);
            out += text.len;
        }
        seconds[pass] = clock_monotonic() - start;
    }
    report("to sentences, one core", seconds, passes, in->bytes);
    printf("%.1f MB in, %.1f MB of text out\n", (double)in->bytes * 1e-6, (double)out * 1e-6);
done:
    article_maker_free(maker);
    page_parser_close(parser);
    page_free(&page);
    namespaces_free(&names);
    buf_free(&text);
    buf_free(&problems);
    return status;
}

static Status whole_command(const char *path, int threads)
{
    char folder[] = "/tmp/bench-wiki-XXXXXX";
    struct rusage usage;
    int result = 0;
    if (!mkdtemp(folder)) return fail(E_IO, "%s: cannot be made: %m", folder);
    WikiCounts *counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED) return fail(E_IO, "no shared memory: %m");
    double start = clock_monotonic();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        log_set_level(LOG_WARN);
        WikiOptions o = {.input = path,
                         .column = "text",
                         .output_dir = folder,
                         .threads = threads,
                         .part_size = 100000000,
                         .max_article = (size_t)4 << 20};
        Status status = wiki_make_text(&o, counts);
        if (status != OK) fprintf(stderr, "%s\n", status_message());
        _exit(status != OK);
    }
    if (child < 0 || wait4(child, &result, 0, &usage) != child || result != 0) {
        file_remove_tree(folder);
        return fail(E_FAIL, "the command failed");
    }
    double seconds = clock_monotonic() - start;
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    double bytes = (double)counts->read_bytes;
    munmap(counts, sizeof *counts);
    printf("whole command, %2d threads     %7.1f MB/s, %.1f MB/s per second of processor time, peak %.0f MiB\n",
           threads, bytes / seconds * 1e-6, bytes / cpu * 1e-6, (double)usage.ru_maxrss / 1024);
    return file_remove_tree(folder);
}

int main(int argc, char **argv)
{
    const char *path = NULL, *threads = "1,2";
    int passes = 9;
    bool usage = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            threads = argv[++i];
        else if (strcmp(argv[i], "--passes") == 0 && i + 1 < argc)
            passes = atoi(argv[++i]);
        else if (argv[i][0] != '-' && !path)
            path = argv[i];
        else
            usage = true;
    }
    if (usage || !path || passes < 1 || passes > MOST_PASSES) {
        fprintf(stderr, "usage: bench_wiki FILE [--threads N,N...] [--passes N]\n");
        return status_exit_code(E_USAGE);
    }
    Input in = {0};
    Status status = OK;
    char *list = mem_strdup(threads), *at = list;
    for (char *n; status == OK && (n = strsep(&at, ","));) status = whole_command(path, atoi(n));
    free(list);
    if (status == OK) status = read_input(&in, path);
    if (status == OK) status = from_memory(&in, passes);
    for (size_t i = 0; i < in.n; i++) batch_free(&in.batches[i]);
    free(in.batches);
    if (status != OK) fprintf(stderr, "%s\n", status_message());
    return status_exit_code(status);
}
