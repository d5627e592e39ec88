/* Input: cut or damaged files, broken or too large pages, folders of text, and files that are not text. */
#include "wiki_testing.h"

#include <sys/resource.h>

#include "tasks/pretrain/wiki/text_file.h"

/* ---- damage ---- */

/* A cut file gives the articles before the cut. */
static void cut_files(void **state)
{
    (void)state;
    static const char *const inputs[] = {SAMPLE, "tests/golden/wiki/sample.xml.bz2",
                                         "tests/golden/wiki/sample-streams.xml.bz2", "tests/golden/wiki/sample.xml.gz"};
    static const char *const names[] = {"a.xml", "a.bz2", "b.bz2", "a.gz"};
    Buf whole = {0}, text = {0}, manifest = {0};
    if (!can_read_dumps() || !can_unpack()) skip();
    assert_ok(run_wiki(SAMPLE, (Settings){.out = "whole"}, NULL));
    read_parts("whole", &whole);
    for (int i = 0; i < 4; i++) {
        Buf data = {0};
        assert_ok(file_read(inputs[i], 1 << 24, &data));
        for (int tenths = 2; tenths < 10; tenths += 2) {
            char *input = write_file(names[i], data.data, data.len * (size_t)tenths / 10);
            char *out = mem_printf("out-%d-%d", i, tenths);
            WikiCounts counts;
            Status status = run_wiki(input, (Settings){.out = out}, &counts);
            if (i == 1 && tenths == 2) { /* its first block is not whole */
                assert_true(status == OK || status == E_FORMAT);
            } else {
                assert_ok(status);
            }
            if (status == OK) {
                assert_int_equal(counts.lost, 1);
                read_parts(out, &text);
                assert_true(text.len > 0 && text.len < whole.len);
                assert_memory_equal(text.data, whole.data, text.len);
                read_manifest(out, &manifest);
                assert_non_null(strstr(manifest.data, "\"complete\": false"));
                assert_non_null(strstr(manifest.data, names[i]));
            }
            free(input);
            free(out);
        }
        buf_free(&data);
    }
    buf_free(&whole);
    buf_free(&text);
    buf_free(&manifest);
}

/* A flipped byte loses its block, and the articles in or partly in it. */
static void damaged_block(void **state)
{
    (void)state;
    Buf data = {0}, text = {0}, manifest = {0};
    WikiCounts counts;
    if (!can_read_dumps() || !can_unpack()) skip();
    assert_ok(file_read("tests/golden/wiki/sample-streams.xml.bz2", 1 << 24, &data));
    data.data[data.len / 2] ^= 0x10;
    char *input = write_file("a.bz2", data.data, data.len);
    assert_ok(run_wiki(input, (Settings){0}, &counts));
    assert_true(counts.lost >= 1);
    assert_true(counts.articles >= 230 && counts.articles < 280);
    read_manifest("out", &manifest);
    assert_non_null(strstr(manifest.data, "damaged at byte"));
    free(input);
    buf_free(&data);
    buf_free(&text);
    buf_free(&manifest);
}

#define HEAD              "<mediawiki><siteinfo></siteinfo>\n"
#define PAGE(title, text) "<page><title>" title "</title><ns>0</ns><revision><text>" text "</text></revision></page>\n"

static void bad_pages(void **state)
{
    (void)state;
    static const char xml[] = HEAD PAGE("A", "Good one here.") PAGE("B", "Bad \xff byte.")
        PAGE("C", "Bad & markup.") "<page><title>D</title><ns>0</ns><revision><text>Never closed.\n" PAGE(
            "E", "Good two here.") "junk" PAGE("F", "") PAGE("G", "<![CDATA[Good three here.]]>") "</mediawiki>";
    Buf text = {0}, manifest = {0};
    WikiCounts counts;
    if (!can_read_dumps()) skip();
    char *input = write_file("a.xml", xml, strlen(xml));
    assert_ok(run_wiki(input, (Settings){0}, &counts));
    read_parts("out", &text);
    assert_string_equal(text.data, "Good one here.\n\nGood two here.\n\nGood three here.\n\n");
    assert_int_equal(counts.broken, 3);
    assert_int_equal(counts.empty, 1);
    assert_int_equal(counts.lost, 0);
    read_manifest("out", &manifest);
    assert_non_null(strstr(manifest.data, "a.xml: page 'B' at byte"));
    char *place = mem_printf("byte %zu is not UTF-8", (size_t)(strchr(xml, '\xff') - xml));
    assert_non_null(strstr(manifest.data, place));
    assert_non_null(strstr(manifest.data, "page 'C' at byte"));
    assert_non_null(strstr(manifest.data, "page 'D' at byte"));
    free(place);
    free(input);
    buf_free(&text);
    buf_free(&manifest);
}

static int run_large_article(void *arg)
{
    const Child *c = arg;
    WikiCounts counts;
    struct rusage usage;
    if (run_wiki(c->input, (Settings){0}, &counts) != OK) return 2;
    if (counts.too_large != 1 || counts.articles != 2) return 3;
    getrusage(RUSAGE_SELF, &usage);
    fprintf(stderr, "%ld", usage.ru_maxrss);
    return 0;
}

static void article_of_50_mb(void **state)
{
    (void)state;
    Buf xml = {0}, errors = {0}, text = {0};
    if (!can_read_dumps()) skip();
    buf_puts(&xml, HEAD PAGE("A", "Good one here.") "<page><title>Large</title><ns>0</ns><revision><text>");
    while (xml.len < 50000000) buf_puts(&xml, "A sentence of the large article with [[links]]. ");
    buf_puts(&xml, "</text></revision></page>" PAGE("B", "Good two here.") "</mediawiki>");
    char *input = write_file("a.xml", xml.data, xml.len);
    buf_free(&xml);
    Child c = {input, 2};
    int result = testing_child(run_large_article, &c, &errors);
    if (!WIFEXITED(result) || WEXITSTATUS(result) != 0) fail_msg("%d: %s", result, errors.data);
    print_message("peak %s KiB\n", errors.data);
    read_parts("out", &text);
    assert_string_equal(text.data, "Good one here.\n\nGood two here.\n\n");
    free(input);
    buf_free(&errors);
    buf_free(&text);
}

/* ---- plain text ---- */

static void text_folders(void **state)
{
    (void)state;
    static const struct {
        const char *name, *in, *out;
    } files[] = {
        {"AA/wiki_00",
         "<doc id=\"1\" url=\"x\" title=\"Oss\">\nOss\n\nOss is a town. It is old &amp; small.\n\nIt rains.\n</doc>\n"
         "<doc id=\"2\" url=\"x\" title=\"Varn\">\nVarn\n\n</doc>\n<doc id=\"3\" title=\"Keld\">\nKeld is "
         "far.\n</doc>\n",
         "Oss is a town.\nIt is old & small.\nIt rains.\n\nKeld is far.\n\n"},
        {"AB/lines.txt", "\xef\xbb\xbfOne is here.\nTwo is J. here.\n\n\nThree is here.\n",
         "One is here.\nTwo is J. here.\n\nThree is here.\n\n"},
        {"AC/book.txt",
         "A title\n\nThis line goes\non here. And\r\nends so.\n\nAnother one. And more.\n\n\n\nA new text. It "
         "has\nmore.\n",
         "A title\nThis line goes on here.\nAnd ends so.\nAnother one.\nAnd more.\n\nA new text.\nIt has more.\n\n"},
        {"AD/.hidden", "Not read.\n", ""},
        {"AD/manifest.json", "{}", ""},
        {"AD/empty.txt", "", ""},
    };
    Buf expected = {0}, text = {0};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = mem_printf("%s/in/%s", dir, files[i].name), *folder = file_directory(path);
        assert_ok(file_make_directories(folder));
        assert_ok(file_write_durable(path, files[i].in, strlen(files[i].in)));
        buf_puts(&expected, files[i].out);
        free(path);
        free(folder);
    }
    char *input = path_of("in");
    WikiCounts counts;
    assert_ok(run_wiki(input, (Settings){0}, &counts));
    read_parts("out", &text);
    assert_string_equal(text.data, expected.data);
    assert_int_equal(counts.empty, 1);
    /* The output, read as input, gives itself. */
    char *output = path_of("out");
    Buf again = {0};
    assert_ok(run_wiki(output, (Settings){.out = "again"}, NULL));
    read_parts("again", &again);
    assert_string_equal(again.data, text.data);
    /* --text-form overrides the detected form. */
    char *lines = path_of("in/AC/book.txt");
    assert_ok(run_wiki(lines, (Settings){.out = "lines", .form = FORM_SENTENCES}, &counts));
    read_parts("lines", &text);
    assert_non_null(strstr(text.data, "This line goes\non here. And\nends so.\n"));
    free(lines);
    free(output);
    free(input);
    buf_free(&again);
    buf_free(&expected);
    buf_free(&text);
}

/* A text of 3 MB without a paragraph's end is cut into documents. */
static void endless_texts(void **state)
{
    (void)state;
    Buf in = {0}, text = {0};
    WikiCounts counts;
    while (in.len < 3000000) buf_puts(&in, "This is a sentence \xc3\xa9 of it. ");
    char *input = write_file("a.txt", in.data, in.len);
    assert_ok(run_wiki(input, (Settings){.max_article = 100000, .form = FORM_PARAGRAPHS}, &counts));
    assert_int_equal(counts.broken, 0);
    assert_true(counts.articles >= 30 && counts.articles < 34);
    read_parts("out", &text);
    size_t letters = 0;
    for (size_t i = 0; i < text.len; i++) letters += text.data[i] == '\xc3';
    assert_int_equal(letters, (in.len + 28) / 29);
    free(input);
    buf_free(&in);
    buf_free(&text);
}

/* ---- errors ---- */

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *data, *message;
        size_t len;
    } bad[] = {
        {"", "empty", 0},
        {"<?xml version=\"1.0\"?><html>", "expected <mediawiki>", 27},
        {"{\"id\": 1, \"text\": \"x\"}\n", "JSON", 24},
        {"\xfd"
         "7zXZ\0\0",
         "xz", 7},
        {"PK\3\4abc", "zip", 7},
        {"a\0b", "NUL", 3},
        {"\n \n\n", "found no sentence", 4},
        {"Gr\xfc\xdf.\n", "found no sentence", 6},
        {"BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0", "found no sentence", 14},
        {"\x1f\x8b\x08\0", "found no sentence", 4},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (i >= sizeof bad / sizeof *bad - 2 && !can_unpack()) continue;
        char *input = write_file("a", bad[i].data, bad[i].len), *out = mem_printf("out%zu", i);
        assert_status(run_wiki(input, (Settings){.out = out}, NULL), E_FORMAT);
        assert_message(bad[i].message);
        assert_message(input);
        char *manifest = mem_printf("%s/%s/manifest.json", dir, out);
        assert_false(file_exists(manifest));
        free(manifest);
        free(input);
        free(out);
    }
    char *folder = path_of("empty"), *nothing = path_of("nothing");
    assert_ok(file_make_directories(folder));
    assert_status(run_wiki(folder, (Settings){0}, NULL), E_FORMAT);
    assert_message("empty folder");
    assert_status(run_wiki(nothing, (Settings){0}, NULL), E_IO);
    assert_message(nothing);
    assert_status(run_wiki("a,,b", (Settings){0}, NULL), E_IO);
    free(folder);
    free(nothing);
}

/* Other output is neither mixed nor overwritten. */
static void other_output(void **state)
{
    (void)state;
    char *a = write_file("a.txt", "One is here.\n", 13), *b = write_file("b.txt", "Two is here.\n", 13);
    assert_ok(run_wiki(a, (Settings){0}, NULL));
    assert_status(run_wiki(b, (Settings){0}, NULL), E_USAGE);
    assert_message("other input");
    assert_status(run_wiki(a, (Settings){.part_size = 5000}, NULL), E_USAGE);
    assert_ok(run_wiki(a, (Settings){.threads = 3}, NULL));
    /* A changed part, or parts without a manifest. */
    char *part = path_of("out/part-00000.txt"), *manifest = path_of("out/manifest.json");
    assert_ok(file_write_durable(part, "One is hera.\n\n", 14));
    assert_status(run_wiki(a, (Settings){0}, NULL), E_CORRUPT);
    assert_message("part-00000.txt");
    assert_ok(file_remove_tree(manifest));
    assert_status(run_wiki(a, (Settings){0}, NULL), E_USAGE);
    assert_message("without manifest.json");
    assert_ok(file_write_durable(manifest, "{}", 2));
    assert_status(run_wiki(a, (Settings){0}, NULL), E_USAGE);
    free(a);
    free(b);
    free(part);
    free(manifest);
}

/* ---- bz2's magic numbers ---- */

static bool bit_of(const uint8_t *data, uint64_t at) { return data[at / 8] >> (7 - at % 8) & 1; }

static void set_bit(uint8_t *data, uint64_t at, bool bit)
{
    uint8_t mask = (uint8_t)(0x80 >> at % 8);
    data[at / 8] = (uint8_t)((data[at / 8] & ~mask) | (bit ? mask : 0));
}

static void magic_at_any_bit(void **state)
{
    (void)state;
    uint64_t random = 3;
    for (int bit = 0; bit < 200; bit++) {
        uint8_t data[48];
        bool block = bit % 2;
        uint64_t magic = block ? UINT64_C(0x314159265359) : UINT64_C(0x177245385090);
        for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)testing_random(&random);
        for (int i = 0; i < 48; i++) set_bit(data, (uint64_t)(bit + i), magic >> (47 - i) & 1);
        bool found_block = !block;
        assert_int_equal(text_file_find_magic(data, 0, 8 * 40, &found_block), bit);
        assert_int_equal(found_block, block);
        assert_int_equal(text_file_find_magic(data, (uint64_t)bit, (uint64_t)bit + 48, &found_block), bit);
        assert_true(text_file_find_magic(data, (uint64_t)bit + 1, 8 * 40, &found_block) == UINT64_MAX);
        assert_true(text_file_find_magic(data, 0, (uint64_t)bit + 47, &found_block) == UINT64_MAX);
    }
}

/* ---- bz2's blocks ---- */

static uint32_t draw(uint32_t *state)
{
    *state = (*state * 1103515245u + 12345u) & 0x7FFFFFFFu;
    return *state >> 15;
}

/* What tests/golden/make_wiki_files.py packs. */
static void make_cases(Buf *text)
{
    buf_puts(text, "a");
    for (int i = 0; i < 150000; i++) buf_puts(text, "ab");
    for (int i = 0; i < 1000000; i++) buf_puts(text, "c");
    for (int n = 1; n < 600; n++)
        for (int i = 0; i < n; i++) buf_append(text, &(char){(char)('a' + n % 26)}, 1);
    for (uint32_t i = 0, state = 1; i < 6000; i++) buf_append(text, &(char){(char)draw(&state)}, 1);
    for (uint32_t i = 0, state = 1; i < 20000; i++)
        buf_append(text, &(char){(char)(34 + __builtin_ctz(draw(&state) | 65536))}, 1);
}

static void read_pieces(const char *path, Buf *text, int *broken)
{
    TextFile *file;
    TextPiece piece = {0};
    bool end;
    text->len = 0;
    *broken = 0;
    assert_ok(text_file_open(&file, path, "text"));
    for (;;) {
        assert_ok(text_file_next(file, &piece, &end));
        if (end) break;
        text_piece_unpack(&piece, true);
        *broken += piece.state != PIECE_WHOLE;
        buf_append(text, piece.text.data, piece.text.len);
        if (piece.state == PIECE_CUT) break;
    }
    text_piece_free(&piece);
    text_file_close(file);
}

/* 6 MB of the letter c, packed, and zeros behind. */
static const uint8_t large[56] = {0x42, 0x5a, 0x68, 0x39, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, 0x05, 0x9b,
                                  0xf9, 0xa1, 0x00, 0x2d, 0xf4, 0x81, 0x00, 0x8a, 0x00, 0x00, 0x08, 0x20,
                                  0x00, 0x30, 0xcc, 0x09, 0xaa, 0x69, 0x94, 0x81, 0x16, 0xd5, 0x24, 0x08,
                                  0xbc, 0x5d, 0xc9, 0x14, 0xe1, 0x42, 0x40, 0x16, 0x6f, 0xe6, 0x84};
enum { LARGE_BYTES = 47, LARGE_FIRST = 32, LARGE_BITS = 262, LARGE_TEXT = 6000000 };

/* A block may begin and end at any bit, and its neighbours' bits do not matter. Its own length does. */
static void block_at_any_bit(void **state)
{
    (void)state;
    Buf text = {0};
    bool block;
    if (!can_unpack()) skip();
    assert_int_equal(text_file_find_magic(large, LARGE_FIRST + 1, 8 * LARGE_BYTES, &block), LARGE_FIRST + LARGE_BITS);
    for (unsigned first = 0; first < 8; first++) {
        uint8_t data[sizeof large];
        memset(data, first % 2 ? 0xFF : 0, sizeof data);
        for (unsigned i = 0; i < LARGE_BITS; i++) set_bit(data, first + i, bit_of(large, LARGE_FIRST + i));
        assert_ok(bz2_unpack_block(data, first, LARGE_BITS, LARGE_TEXT + 1, &text));
        assert_int_equal(text.len, LARGE_TEXT);
        for (size_t i = 0; i < text.len; i++) assert_true(text.data[i] == 'c');
        assert_status(bz2_unpack_block(data, first, LARGE_BITS, LARGE_TEXT, &text), E_MEMORY);
        assert_int_equal(text.len, 0);
        assert_status(bz2_unpack_block(data, first, LARGE_BITS - 1, LARGE_TEXT + 1, &text), E_FORMAT);
        assert_status(bz2_unpack_block(data, first, LARGE_BITS + 1, LARGE_TEXT + 1, &text), E_FORMAT);
        assert_status(bz2_unpack_block(data, first, 79, LARGE_TEXT + 1, &text), E_FORMAT);
    }
    buf_free(&text);
}

/* A block whose text is longer than any real one's is unpacked when it is alone. */
static void large_block(void **state)
{
    (void)state;
    TextFile *file;
    TextPiece piece = {0};
    bool end;
    if (!can_unpack()) skip();
    char *path = write_file("large.bz2", large, LARGE_BYTES);
    assert_ok(text_file_open(&file, path, "text"));
    assert_ok(text_file_next(file, &piece, &end));
    text_piece_unpack(&piece, false);
    assert_true(piece.big && piece.state == PIECE_WHOLE && piece.text.len == 0);
    text_piece_unpack(&piece, true);
    assert_true(!piece.big && piece.state == PIECE_WHOLE);
    assert_int_equal(piece.text.len, LARGE_TEXT);
    text_piece_free(&piece);
    text_file_close(file);
    free(path);
}

/* Texts that repeat, runs of every length, all bytes, long codes. */
static void blocks_of_all_kinds(void **state)
{
    (void)state;
    Buf expected = {0}, text = {0};
    int broken;
    if (!can_unpack()) skip();
    make_cases(&expected);
    read_pieces("tests/golden/wiki/cases.bz2", &text, &broken);
    assert_int_equal(broken, 0);
    assert_int_equal(text.len, expected.len);
    assert_memory_equal(text.data, expected.data, text.len);
    buf_free(&expected);
    buf_free(&text);
}

/* Any byte that is changed is noticed: a block is broken, or the file's end is. */
static void changed_bytes_of_blocks(void **state)
{
    (void)state;
    Buf data = {0}, whole = {0}, text = {0};
    uint64_t random = 5;
    int broken;
    if (!can_unpack()) skip();
    read_pieces("tests/golden/wiki/cases.bz2", &whole, &broken);
    assert_ok(file_read("tests/golden/wiki/cases.bz2", 1 << 20, &data));
    for (int i = 0; i < 60; i++) {
        size_t at = testing_random(&random) % data.len;
        char before = data.data[at];
        data.data[at] = (char)(before ^ (1 << testing_random(&random) % 8));
        char *path = write_file("changed.bz2", data.data, data.len);
        read_pieces(path, &text, &broken);
        data.data[at] = before;
        if (broken == 0) { /* in a stream's head, end or padding, which hold no text */
            assert_int_equal(text.len, whole.len);
            assert_memory_equal(text.data, whole.data, text.len);
        }
        free(path);
    }
    buf_free(&data);
    buf_free(&whole);
    buf_free(&text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(cut_files),
        TEST(damaged_block),
        TEST(bad_pages),
        TEST(article_of_50_mb),
        TEST(text_folders),
        TEST(endless_texts),
        TEST(refusals),
        TEST(other_output),
        TEST(magic_at_any_bit),
        TEST(block_at_any_bit),
        TEST(large_block),
        TEST(blocks_of_all_kinds),
        TEST(changed_bytes_of_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
