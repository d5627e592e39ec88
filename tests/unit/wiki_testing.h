/* For the tests of `cairn wiki`: a folder per test, runs of the stage, and readers of its output. */
#pragma once

#include "testing.h"

#include <signal.h>

#include "data/bz2.h"
#include "data/gz.h"
#include "tasks/pretrain/wiki/page_xml.h"
#include "tasks/pretrain/wiki/wiki.h"

#define SAMPLE "tasks/pretrain/sample/sample.xml"

static char *dir; /* of the current test */

static inline int make_folder(void **state)
{
    (void)state;
    dir = testing_directory();
    log_set_level(LOG_ERROR);
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    Status status = file_remove_tree(dir);
    free(dir);
    return status != OK;
}

/* Skip tests of formats that the build lacks. */
static inline bool can_read_dumps(void)
{
    PageParser *parser;
    if (page_parser_open(&parser) != OK) {
        print_message("skipped: %s\n", status_message());
        return false;
    }
    page_parser_close(parser);
    return true;
}

static inline bool can_unpack(void)
{
    GzReader *gz;
    if (bz2_available() != OK || gz_open(&gz) != OK) {
        print_message("skipped: %s\n", status_message());
        return false;
    }
    gz_close(gz);
    return true;
}

static inline char *path_of(const char *name) { return file_join(dir, name); }

static inline char *write_file(const char *name, const void *data, size_t len)
{
    char *path = path_of(name);
    assert_ok(file_write_durable(path, data, len));
    return path;
}

/* Runs the stage into a folder of its own, "out" by default. */
typedef struct {
    const char *out;
    int threads;
    size_t part_size, max_article;
    TextForm form;
    const volatile sig_atomic_t *stop;
} Settings;

static inline Status run_wiki(const char *input, Settings s, WikiCounts *counts)
{
    char *out = path_of(s.out ? s.out : "out");
    WikiOptions o = {.input = input,
                     .column = "text",
                     .output_dir = out,
                     .threads = s.threads ? s.threads : 2,
                     .part_size = s.part_size ? s.part_size : 100000000,
                     .max_article = s.max_article ? s.max_article : (size_t)4 << 20,
                     .form = s.form,
                     .stop = s.stop};
    Status status = wiki_make_text(&o, counts);
    free(out);
    return status;
}

/* Reads all parts of a folder in order; returns their number. */
static inline int read_parts(const char *out, Buf *text)
{
    int n = 0;
    text->len = 0;
    buf_puts(text, "");
    for (;; n++) {
        char *name = mem_printf("%s/%s/part-%05d.txt", dir, out, n);
        Buf part = {0};
        bool there = file_exists(name);
        if (there) {
            assert_ok(file_read(name, (size_t)1 << 30, &part));
            buf_append(text, part.data, part.len);
        }
        buf_free(&part);
        free(name);
        if (!there) return n;
    }
}

static inline void read_manifest(const char *out, Buf *text)
{
    char *name = mem_printf("%s/%s/manifest.json", dir, out);
    assert_ok(file_read(name, 1 << 20, text));
    free(name);
}

/* For testing_child. */
typedef struct {
    const char *input;
    int threads;
} Child;
