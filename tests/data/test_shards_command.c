/* `cairn shards` as a whole: the same bytes for any number of threads and after a kill, all documents at the borders of
   chunks, every layout readable, recovery from faults. */
#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config/config.h"
#include "data/hdf5_file.h"
#include "data/shards.h"
#include "tasks/pretrain/pretrain.h"

#define FILES 3

typedef struct {
    char *dir, *text, *vocab;
} Fixture;

static void write_text(const char *path, int documents, uint64_t seed)
{
    Buf text = {0};
    uint64_t x = seed * 2 + 1;
    for (int d = 0; d < documents; d++) {
        int sentences = 1 + (int)(testing_random(&x) % 12);
        for (int s = 0; s < sentences; s++) {
            int words = 2 + (int)(testing_random(&x) % 20);
            for (int w = 0; w < words; w++)
                buf_printf(&text, "%sw%d", w ? " " : "", 200 + (int)(testing_random(&x) % 800));
            buf_puts(&text, testing_random(&x) % 8 ? "\n" : "\r\n");
        }
        if (d + 1 < documents)
            buf_puts(&text, testing_random(&x) % 5 ? "\n" : testing_random(&x) % 2 ? "\n\n" : " \r\n");
    }
    assert_ok(file_write_durable(path, text.data, text.len));
    buf_free(&text);
}

static int set_up(void **state)
{
    Fixture *f = mem_alloc(sizeof *f);
    Buf vocab = {0};
    f->dir = testing_directory();
    f->text = file_join(f->dir, "text");
    f->vocab = file_join(f->dir, "vocab.txt");
    assert_ok(file_make_directories(f->text));
    for (int i = 0; i < FILES; i++) {
        char *path = mem_printf("%s/part-%d.txt", f->text, i);
        write_text(path, 60 + 30 * i, 5 + (uint64_t)i);
        free(path);
    }
    char *manifest = file_join(f->text, "manifest.json");
    assert_ok(file_write_durable(manifest, "{}", 2));
    free(manifest);
    buf_puts(&vocab, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    for (int i = 200; i < 1000; i++) buf_printf(&vocab, "w%d\n", i);
    assert_ok(file_write_durable(f->vocab, vocab.data, vocab.len));
    buf_free(&vocab);
    setenv("CAIRN_TEST_SHARDS_CHUNK", "7001", 1);
    log_set_level(LOG_ERROR);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    Fixture *f = *state;
    assert_ok(file_remove_tree(f->dir));
    free(f->dir);
    free(f->text);
    free(f->vocab);
    free(f);
    return 0;
}

/* Into DIR/name, with these additional options. */
static Status run(const Fixture *f, const char *name, const char *options)
{
    Config c;
    char *out = file_join(f->dir, name), *list = mem_strdup(options), *at = list,
         *argv[40] = {(char *)"cairn",
                      (char *)"shards",
                      (char *)"--input",
                      f->text,
                      (char *)"--vocab",
                      f->vocab,
                      (char *)"--output-dir",
                      out,
                      (char *)"--max-seq-length",
                      (char *)"64",
                      (char *)"--shard-size",
                      (char *)"9000B"};
    int argc = 12;
    for (char *word = strsep(&at, " "); word; word = strsep(&at, " "))
        if (*word) argv[argc++] = word;
    Status status = config_parse(&c, argc, argv, NULL);
    if (status == OK) {
        status = command_shards(&c);
        config_free(&c);
    }
    free(list);
    free(out);
    return status;
}

static void add_digests(const char *dir, DigestStream *d, int *files)
{
    struct dirent **names;
    int n = scandir(dir, &names, NULL, alphasort);
    assert_true(n >= 0);
    for (int i = 0; i < n; i++) {
        char *path = file_join(dir, names[i]->d_name);
        Digest digest;
        if (names[i]->d_name[0] != '.') {
            digest_update(d, names[i]->d_name, strlen(names[i]->d_name) + 1);
            if (file_is_directory(path)) {
                add_digests(path, d, files);
            } else {
                assert_ok(file_digest(path, &digest, NULL));
                digest_update(d, &digest, sizeof digest);
                ++*files;
            }
        }
        free(path);
        free(names[i]);
    }
    free(names);
}

/* Of all files in DIR/name. */
static Digest contents(const Fixture *f, const char *name, int *files)
{
    char *dir = file_join(f->dir, name);
    DigestStream *d = digest_new();
    *files = 0;
    add_digests(dir, d, files);
    Digest value = digest_value(d);
    digest_free(d);
    free(dir);
    return value;
}

static int64_t manifest_number(const Fixture *f, const char *name, const char *key)
{
    char *path = mem_printf("%s/%s/manifest.json", f->dir, name);
    Json *doc;
    assert_ok(js_read(path, &doc));
    int64_t value = js_int(js_get(doc, key), -1);
    js_free(doc);
    free(path);
    return value;
}

#define VARIED "--eval-fraction 0.2 --dupe-factor 2 --masking static"

static void test_the_same_bytes_for_any_threads(void **state)
{
    const Fixture *f = *state;
    int files, more;
    if (!hdf5_available()) skip();
    assert_ok(run(f, "one", VARIED " --threads 1"));
    Digest one = contents(f, "one", &files);
    assert_true(files > 12);
    for (int threads = 2; threads <= 4; threads += 2) {
        char *options = mem_printf(VARIED " --threads %d", threads), *name = mem_printf("of-%d", threads);
        assert_ok(run(f, name, options));
        assert_true(digest_equal(contents(f, name, &more), one));
        assert_int_equal(more, files);
        free(options);
        free(name);
    }
    assert_ok(run(f, "one", VARIED " --threads 3")); /* nothing is missing */
    assert_true(digest_equal(contents(f, "one", &more), one));
    assert_ok(run(f, "seed", VARIED " --seed 43"));
    assert_false(digest_equal(contents(f, "seed", &more), one));
}

static void test_borders_lose_nothing(void **state)
{
    const Fixture *f = *state;
    if (!hdf5_available()) skip();
    setenv("CAIRN_TEST_SHARDS_CHUNK", "100000000", 1);
    assert_ok(run(f, "whole", ""));
    static const char *const keys[] = {"documents", "sentences", "text_tokens"};
    assert_int_equal(manifest_number(f, "whole", "documents"), 60 + 90 + 120);
    for (int size = 400; size < 60000; size = size * 4 + 7) {
        char *text = mem_printf("%d", size), *name = mem_printf("of-%d", size);
        setenv("CAIRN_TEST_SHARDS_CHUNK", text, 1);
        assert_ok(run(f, name, ""));
        for (int k = 0; k < 3; k++)
            assert_int_equal(manifest_number(f, name, keys[k]), manifest_number(f, "whole", keys[k]));
        free(text);
        free(name);
    }
}

static void test_held_out_by_document(void **state)
{
    const Fixture *f = *state;
    if (!hdf5_available()) skip();
    assert_ok(run(f, "a", "--eval-fraction 0.25"));
    int64_t n = manifest_number(f, "a", "eval_documents");
    assert_true(n > 30 && n < 110);
    assert_ok(run(f, "b", "--eval-fraction 0.25 --seed 9 --dupe-factor 2"));
    assert_int_equal(manifest_number(f, "b", "eval_documents"), n); /* chosen by the text, not by chance */
    /* The same documents again: each pair has the same destination. */
    char *from = mem_printf("%s/part-0.txt", f->text), *to = mem_printf("%s/part-9.txt", f->text);
    Buf text = {0};
    assert_ok(file_read(from, 1 << 24, &text));
    for (int i = 0; i < FILES; i++) {
        char *path = mem_printf("%s/part-%d.txt", f->text, i);
        if (i) assert_ok(file_remove_tree(path));
        free(path);
    }
    assert_ok(file_write_durable(to, text.data, text.len));
    assert_ok(run(f, "c", "--eval-fraction 0.25"));
    assert_int_equal(manifest_number(f, "c", "documents"), 120);
    assert_int_equal(manifest_number(f, "c", "eval_documents") % 2, 0);
    buf_free(&text);
    free(from);
    free(to);
}

/* The sum over all sequences, with their masks: equal for the same sequences in any order. */
static uint64_t sum_of(Shards *s)
{
    const Examples *e;
    uint64_t sum = 0;
    assert_ok(shards_range(s, 0, shards_count(s), &e));
    for (int64_t i = 0; i < e->count; i++) {
        int64_t masked = example_masked(e, i), m = e->masked_offset[i], n = example_length(e, i);
        DigestStream *d = digest_new();
        digest_update(d, e->masked_place + m, (size_t)masked * sizeof(int32_t));
        digest_update(d, e->masked_label + m, (size_t)masked * sizeof(int32_t));
        digest_update(d, e->ids + e->offset[i], (size_t)n * sizeof(int32_t));
        digest_update(d, e->types + e->offset[i], (size_t)n);
        digest_update(d, &e->label[i], sizeof e->label[i]);
        sum += digest_value(d).lo;
        digest_free(d);
    }
    return sum;
}

static void test_every_layout_can_be_read(void **state)
{
    const Fixture *f = *state;
    static const struct {
        const char *options;
        int like; /* the way with the same masks */
    } ways[] = {{"--layout compact", 0},
                {"--layout compact --masking static", 1},
                {"--layout nvidia", 1},
                {"--layout packed", 1},
                {"--layout fixed", 1},
                {"--layout nvidia --masking dynamic", -1},
                {"--layout fixed --masking dynamic", -1},
                {"--layout packed --masking dynamic", -1},
                {"--layout compact --whole-words", -1}};
    enum { WAYS = sizeof ways / sizeof *ways };
    int64_t sequences = 0;
    uint64_t sums[WAYS];
    Vocab *vocab;
    if (!hdf5_available()) skip();
    assert_ok(vocab_read(f->vocab, NULL, &vocab));
    for (int w = 0; w < WAYS; w++) {
        char *name = mem_printf("way-%d", w), *dir = file_join(f->dir, name);
        Shards *s;
        const Examples *e;
        assert_ok(run(f, name, ways[w].options));
        ShardsOptions o = {.vocab = vocab, .max_length = 64, .max_predictions = 10, .seed = 1, .batch_size = 32};
        assert_ok(shards_open(dir, &o, &s));
        assert_ok(shards_check(s, NULL));
        if (w == 0) sequences = shards_count(s);
        assert_int_equal(shards_count(s), sequences); /* the same pairs in every layout */
        sums[w] = sum_of(s);
        if (ways[w].like >= 0) assert_true(sums[w] == sums[ways[w].like]);
        assert_ok(shards_step(s, 0, &e));
        for (int64_t i = 0; i < e->count; i++) assert_true(example_masked(e, i) >= 1 && example_masked(e, i) <= 10);
        shards_close(s);
        free(name);
        free(dir);
    }
    assert_true(sums[0] != sums[1]);
    vocab_free(vocab);
}

/* ---- stopped and killed ---- */

typedef struct {
    const Fixture *f;
    const char *name;
    rlim_t most; /* bytes of a file; 0: any */
} Child;

static int child(void *arg)
{
    const Child *c = arg;
    if (c->most) {
        struct rlimit limit = {c->most, c->most};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    Status status = run(c->f, c->name, VARIED " --threads 2");
    if (status != OK) fprintf(stderr, "%s\n", status_message());
    return status_exit_code(status);
}

/* Lines of the journal, or 0. */
static int journal_lines(const char *path)
{
    Buf text = {0};
    int lines = 0;
    if (file_exists(path) && file_read(path, 1 << 24, &text) == OK)
        for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
    buf_free(&text);
    return lines;
}

/* Each kill is a little later: at a number of lines of the journal, then at a random moment. */
static void test_killed_at_any_moment(void **state)
{
    const Fixture *f = *state;
    int files, more, killed = 0, ended = 0;
    uint64_t x = (uint64_t)getpid() * 2 + 1;
    if (!hdf5_available()) skip();
    assert_ok(run(f, "whole", VARIED));
    Digest whole = contents(f, "whole", &files);
    Child c = {f, "killed", 0};
    char *folder = file_join(f->dir, "killed"), *journal = file_join(folder, "unfinished/progress.jsonl");
    for (int turn = 0; turn < testing_rounds(5, 20) || killed == 0; turn++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) _exit(child(&c));
        while (waitpid(pid, &ended, WNOHANG) == 0 && journal_lines(journal) < 1 + 4 * turn) usleep(200);
        usleep((useconds_t)(testing_random(&x) % 3000));
        if (kill(pid, turn % 3 == 1 ? SIGTERM : SIGKILL) == 0 && waitpid(pid, &ended, 0) == pid)
            killed += WIFSIGNALED(ended);
        if (WIFEXITED(ended)) assert_true(WEXITSTATUS(ended) == 75 || WEXITSTATUS(ended) == 0);
        if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0) continue;
        if (killed > 0) break;
        assert_ok(file_remove_tree(folder)); /* it ended before it was killed */
        turn = -1;
    }
    assert_ok(run(f, "killed", VARIED));
    assert_true(digest_equal(contents(f, "killed", &more), whole));
    assert_int_equal(more, files);
    free(folder);
    free(journal);
}

static void test_a_full_disk(void **state)
{
    const Fixture *f = *state;
    int files, more;
    if (!hdf5_available()) skip();
    assert_ok(run(f, "whole", VARIED));
    Digest whole = contents(f, "whole", &files);
    static const rlim_t limits[] = {1000, 3000, 6000, 12000};
    for (int i = 0; i < 4; i++) {
        Child c = {f, "full", limits[i]};
        Buf errors = {0};
        int ended = testing_child(child, &c, &errors);
        if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 1)
            fail_msg("limit %d: %x: %s", (int)limits[i], ended, errors.data);
        assert_non_null(strstr(errors.data, "/full/"));
        buf_free(&errors);
    }
    assert_ok(run(f, "full", VARIED));
    assert_true(digest_equal(contents(f, "full", &more), whole));
}

static void test_damage_between_two_runs(void **state)
{
    const Fixture *f = *state;
    int files, more;
    if (!hdf5_available()) skip();
    assert_ok(run(f, "whole", VARIED));
    Digest whole = contents(f, "whole", &files);
    Child c = {f, "half", 6000}; /* gets through pass 1 at most */
    Buf errors = {0}, bytes = {0};
    testing_child(child, &c, &errors);
    char *journal = mem_printf("%s/half/unfinished/progress.jsonl", f->dir),
         *chunk = mem_printf("%s/half/unfinished/chunk-000001", f->dir);
    assert_true(file_exists(journal));
    assert_ok(file_read(journal, 1 << 24, &bytes)); /* a torn line, and a chunk with a bit changed */
    assert_ok(file_write_durable(journal, bytes.data, bytes.len - 9));
    if (file_exists(chunk)) {
        assert_ok(file_read(chunk, 1 << 24, &bytes));
        bytes.data[bytes.len - 3] ^= 4;
        assert_ok(file_write_durable(chunk, bytes.data, bytes.len));
    }
    assert_ok(run(f, "half", VARIED));
    assert_true(digest_equal(contents(f, "half", &more), whole));
    /* Another job is refused. */
    assert_status(run(f, "half", VARIED " --seed 5"), E_USAGE);
    assert_message("other options");
    char *shard = mem_printf("%s/half/part-00000.hdf5", f->dir);
    assert_ok(file_remove_tree(shard));
    assert_status(run(f, "half", VARIED), E_CORRUPT);
    assert_message("part-00000.hdf5: missing");
    free(shard);
    free(journal);
    free(chunk);
    buf_free(&errors);
    buf_free(&bytes);
}

/* Opens the shards and reads them all, as a run does that begins, or its first step, as one that resumes. */
static Status read_shards(const char *dir, const Vocab *vocab, bool begins)
{
    Shards *s;
    const Examples *e;
    ShardsOptions o = {.vocab = vocab, .max_length = 64, .max_predictions = 10, .seed = 1, .batch_size = 8};
    TRY(shards_open(dir, &o, &s));
    Status status = begins ? shards_check(s, NULL) : shards_step(s, 0, &e);
    shards_close(s);
    return status;
}

static void flip(const char *path, int64_t at, int bit)
{
    uint8_t byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (uint8_t)(1 << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void test_every_changed_bit_is_noticed(void **state)
{
    const Fixture *f = *state;
    enum { FLIPS = 97 };
    Vocab *vocab;
    uint64_t size;
    int differ = 0, unnoticed = 0;
    if (!hdf5_available()) skip();
    assert_ok(run(f, "flips", ""));
    assert_ok(vocab_read(f->vocab, NULL, &vocab));
    char *dir = file_join(f->dir, "flips"), *shard = file_join(dir, "part-00000.hdf5"),
         *manifest = file_join(dir, "manifest.json"), *hidden = file_join(f->dir, "hidden");
    assert_ok(read_shards(dir, vocab, true));
    assert_ok(file_size(shard, &size));
    for (int i = 0; i < FLIPS; i++) {
        int64_t at = (int64_t)(size - 1) * i / (FLIPS - 1);
        flip(shard, at, i % 8);
        Status status = read_shards(dir, vocab, i % 2 == 0);
        assert_true(status != OK);
        if (status == E_CORRUPT && ++differ == 1) {
            assert_message("part-00000.hdf5: damaged: its digest (XXH3-128) is ");
            assert_message("make its shards again");
        }
        if (i % 8 == 0) { /* others' shards have no digests */
            assert_int_equal(rename(manifest, hidden), 0);
            unnoticed += read_shards(dir, vocab, true) == OK;
            assert_int_equal(rename(hidden, manifest), 0);
        }
        flip(shard, at, i % 8);
    }
    assert_true(differ > FLIPS / 2 && unnoticed > 0);
    assert_ok(read_shards(dir, vocab, true));
    assert_int_equal(truncate(manifest, 9), 0);
    assert_true(read_shards(dir, vocab, true) != OK);
    assert_message("to train without them");
    vocab_free(vocab);
    MEM_FREE(dir, shard, manifest, hidden);
}

/* ---- bad input ---- */

static void test_odd_text(void **state)
{
    const Fixture *f = *state;
    if (!hdf5_available()) skip();
    Buf text = {0};
    char *path = mem_printf("%s/part-0.txt", f->text);
    buf_puts(&text, "\xef\xbb\xbfw200 w201\n\n\n   \nw300 \xff\xfe w301\n");
    buf_append(&text, "\0", 1);
    buf_puts(&text, "\n\nw400");
    for (int i = 0; i < 600000; i++)
        buf_printf(&text, " w%d", 200 + i % 700); /* a line of 3 MB, a document of 600001 tokens */
    buf_puts(&text, "\nw500");
    for (int i = 1; i < FILES; i++) {
        char *other = mem_printf("%s/part-%d.txt", f->text, i);
        assert_ok(file_remove_tree(other));
        free(other);
    }
    assert_ok(file_write_durable(path, text.data, text.len));
    assert_ok(run(f, "odd", ""));
    assert_int_equal(manifest_number(f, "odd", "text_tokens"), 2 + 2 + 600001 + 1);
    assert_true(manifest_number(f, "odd", "documents") >= 4); /* the long one was cut into some */
    assert_ok(file_write_durable(path, "\n \n\t\n", 5));
    assert_status(run(f, "none", ""), E_FORMAT);
    assert_message("no sentence");
    assert_ok(file_write_durable(path, "", 0));
    assert_status(run(f, "none2", ""), E_FORMAT);
    assert_message("empty");
    buf_free(&text);
    free(path);
}

static void test_wrong_use(void **state)
{
    const Fixture *f = *state;
    if (!hdf5_available()) skip();
    assert_status(run(f, "x", "--max-seq-length 5"), E_USAGE); /* given twice */
    assert_status(run(f, "x", "--mask-fraction 0"), E_USAGE);
    assert_message("--mask-fraction");
    assert_status(run(f, "x", "--eval-fraction 0.95"), E_USAGE);
    assert_status(run(f, "x", "--threads 2 --dupe-factor 100000"), E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_same_bytes_for_any_threads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_borders_lose_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_held_out_by_document, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_layout_can_be_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_killed_at_any_moment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_between_two_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_changed_bit_is_noticed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_odd_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_use, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
