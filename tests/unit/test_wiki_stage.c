/* The stage from files to parts: the same bytes for any compression, pieces and threads, and after any stop. */
#include "wiki_testing.h"

#include <sys/resource.h>
#include <sys/wait.h>

/* A dump of the sample's pages, `times` over: larger than a batch. */
static char *large_dump(const char *name, int times, Buf *xml)
{
    Buf sample = {0};
    assert_ok(file_read(SAMPLE, 1 << 24, &sample));
    const char *first = strstr(sample.data, "  <page>"), *end = strstr(sample.data, "</mediawiki>");
    buf_append(xml, sample.data, (size_t)(first - sample.data));
    for (int i = 0; i < times; i++) buf_append(xml, first, (size_t)(end - first));
    buf_puts(xml, "</mediawiki>\n");
    buf_free(&sample);
    return write_file(name, xml->data, xml->len);
}

/* ---- equal output ---- */

static void packings_and_threads(void **state)
{
    (void)state;
    static const char *const inputs[] = {SAMPLE, "tests/golden/wiki/sample.xml.bz2",
                                         "tests/golden/wiki/sample-streams.xml.bz2", "tests/golden/wiki/sample.xml.gz"};
    Buf expected = {0}, text = {0};
    if (!can_read_dumps() || !can_unpack()) skip();
    for (int i = 0; i < 4; i++) {
        for (int threads = 1; threads <= 4; threads *= 2) {
            char *out = mem_printf("out%d-%d", i, threads);
            WikiCounts counts;
            assert_ok(run_wiki(inputs[i], (Settings){.out = out, .threads = threads}, &counts));
            assert_int_equal(counts.articles, 280);
            assert_int_equal(counts.redirects, 9);
            assert_int_equal(counts.other_namespaces, 4);
            assert_int_equal(counts.pages, 293);
            assert_int_equal(counts.lost + counts.broken + counts.too_large + counts.empty, 0);
            assert_int_equal(read_parts(out, &text), 1);
            assert_int_equal(counts.text_bytes, text.len);
            if (i == 0 && threads == 1) buf_append(&expected, text.data, text.len);
            assert_string_equal(text.data, expected.data);
            free(out);
        }
    }
    int64_t lines = 0, articles = 0;
    for (size_t k = 0; k < text.len; k++) {
        lines += text.data[k] == '\n' && k > 0 && text.data[k - 1] != '\n';
        articles += text.data[k] == '\n' && k > 0 && text.data[k - 1] == '\n';
    }
    assert_int_equal(lines, 2520);
    assert_int_equal(articles, 280);
    buf_free(&expected);
    buf_free(&text);
}

static void parts_and_manifest(void **state)
{
    (void)state;
    Buf xml = {0}, whole = {0}, text = {0}, manifest = {0}, again = {0};
    Json *doc;
    if (!can_read_dumps()) skip();
    char *input = large_dump("a.xml", 12, &xml);
    WikiCounts counts;
    assert_ok(run_wiki(input, (Settings){.out = "one", .threads = 1}, &counts));
    assert_int_equal(read_parts("one", &whole), 1);
    assert_ok(run_wiki(input, (Settings){.out = "many", .threads = 3, .part_size = 500000}, NULL));
    int n = read_parts("many", &text);
    assert_true(n >= 3);
    assert_string_equal(text.data, whole.data);

    read_manifest("many", &manifest);
    assert_ok(js_parse("manifest", manifest.data, manifest.len, &doc));
    const Json *parts = js_get(doc, "parts");
    assert_int_equal(js_size(parts), n);
    int64_t bytes = 0, articles = 0, sentences = 0;
    for (int i = 0; i < n; i++) {
        const Json *part = js_at(parts, (size_t)i);
        char hex[33], *name = mem_printf("%s/many/%s", dir, js_string(js_get(part, "name"), ""));
        Digest digest;
        uint64_t size;
        assert_ok(file_digest(name, &digest, &size));
        digest_format(digest, hex);
        assert_string_equal(hex, js_string(js_get(part, "xxh3_128"), ""));
        assert_int_equal(size, js_int(js_get(part, "bytes"), 0));
        assert_true(size <= 500000);
        bytes += js_int(js_get(part, "bytes"), 0);
        articles += js_int(js_get(part, "articles"), 0);
        sentences += js_int(js_get(part, "sentences"), 0);
        free(name);
    }
    assert_int_equal(bytes, text.len);
    assert_int_equal(articles, counts.articles);
    assert_int_equal(sentences, counts.sentences);
    assert_true(js_bool(js_get(doc, "complete"), false));
    js_free(doc);
    char *progress = path_of("many/progress.json");
    assert_false(file_exists(progress));
    free(progress);

    /* The manifest has no time and no threads; a finished folder stays as it is. */
    assert_ok(run_wiki(input, (Settings){.out = "other", .threads = 1, .part_size = 500000}, NULL));
    read_manifest("other", &again);
    assert_string_equal(again.data, manifest.data);
    assert_ok(run_wiki(input, (Settings){.out = "other", .part_size = 500000}, &counts));
    assert_int_equal(counts.text_bytes, text.len);
    free(input);
    buf_free(&xml);
    buf_free(&whole);
    buf_free(&text);
    buf_free(&manifest);
    buf_free(&again);
}

/* ---- stopping ---- */

/* In a process of its own, which is killed at `place`. */
static int run_child(const Child *c, const char *place)
{
    setenv("CAIRN_TEST_AT", place, 1);
    return run_wiki(c->input, (Settings){.out = "killed", .threads = c->threads, .part_size = 200000}, NULL) == OK ? 0
                                                                                                                   : 1;
}

/* A run that is killed after each part, before or after it is recorded, and restarted gives the same bytes as an
   undisturbed one; here for a list of plain, bz2 and gz files. */
static void kills(void **state)
{
    (void)state;
    Buf xml = {0}, expected = {0}, text = {0}, one = {0}, two = {0};
    if (!can_read_dumps() || !can_unpack()) skip();
    char *plain = large_dump("a.xml", 5, &xml);
    char *input = mem_printf("%s,tests/golden/wiki/sample.xml.bz2,tests/golden/wiki/sample.xml.gz,%s,"
                             "tests/golden/wiki/sample-streams.xml.bz2",
                             plain, SAMPLE);
    assert_ok(run_wiki(input, (Settings){.out = "whole", .part_size = 200000}, NULL));
    int n = read_parts("whole", &expected);
    assert_true(n > 3);
    read_manifest("whole", &one);
    for (int start = 1; start <= 3; start += 2) {
        char *out = path_of("killed");
        assert_ok(file_remove_tree(out));
        Child c = {input, start};
        for (int i = 0; i < 2 * n; i++) { /* the last part is recorded with the end */
            int result;
            char place[32];
            snprintf(place, sizeof place, "%s-%d=kill", i % 2 ? "recorded" : "part", i / 2 + 1);
            fflush(NULL);
            pid_t child = fork();
            if (child == 0) _exit(run_child(&c, place));
            assert_int_equal(waitpid(child, &result, 0), child);
            if (i < 2 * n - 1)
                assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
            else
                assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
        }
        assert_int_equal(read_parts("killed", &text), n);
        assert_string_equal(text.data, expected.data);
        read_manifest("killed", &two);
        assert_string_equal(two.data, one.data);
        free(out);
    }
    free(plain);
    free(input);
    buf_free(&xml);
    buf_free(&expected);
    buf_free(&text);
    buf_free(&one);
    buf_free(&two);
}

/* Stopped by a signal, again and again. */
static volatile sig_atomic_t stop_now;

static void note_signal(int number) { stop_now = number; }

static void stops(void **state)
{
    (void)state;
    Buf xml = {0}, expected = {0}, text = {0};
    if (!can_read_dumps()) skip();
    char *input = large_dump("a.xml", 40, &xml);
    assert_ok(run_wiki(input, (Settings){.out = "whole", .part_size = 400000}, NULL));
    read_parts("whole", &expected);
    signal(SIGTERM, note_signal);
    setenv("CAIRN_TEST_AT", "piece-3=term", 1);
    for (int i = 0; i < 6; i++) {
        stop_now = 0;
        assert_status(run_wiki(input, (Settings){.threads = 1, .part_size = 400000, .stop = &stop_now}, NULL),
                      E_STOPPED);
        assert_message("run the same command again");
    }
    unsetenv("CAIRN_TEST_AT");
    signal(SIGTERM, SIG_DFL);
    assert_ok(run_wiki(input, (Settings){.threads = 2, .part_size = 400000}, NULL));
    read_parts("out", &text);
    assert_string_equal(text.data, expected.data);
    free(input);
    buf_free(&xml);
    buf_free(&expected);
    buf_free(&text);
}

static int run_on_a_full_disk(void *arg)
{
    const Child *c = arg;
    struct rlimit limit = {150000, 150000};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    Status status = run_wiki(c->input, (Settings){.out = "killed", .threads = 2, .part_size = 200000}, NULL);
    fprintf(stderr, "%s\n", status_message());
    return status == E_IO ? 1 : 99;
}

static void no_room(void **state)
{
    (void)state;
    Buf xml = {0}, errors = {0}, expected = {0}, text = {0};
    if (!can_read_dumps()) skip();
    char *input = large_dump("a.xml", 4, &xml);
    Child c = {input, 2};
    int result = testing_child(run_on_a_full_disk, &c, &errors);
    if (!WIFEXITED(result) || WEXITSTATUS(result) != 1) fail_msg("%s", errors.data);
    assert_non_null(strstr(errors.data, "part-0000"));
    assert_ok(run_wiki(input, (Settings){.out = "killed", .part_size = 200000}, NULL)); /* with room again */
    assert_ok(run_wiki(input, (Settings){.out = "whole", .part_size = 200000}, NULL));
    read_parts("killed", &text);
    read_parts("whole", &expected);
    assert_string_equal(text.data, expected.data);
    free(input);
    buf_free(&xml);
    buf_free(&errors);
    buf_free(&expected);
    buf_free(&text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(packings_and_threads), TEST(parts_and_manifest), TEST(kills), TEST(stops), TEST(no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
