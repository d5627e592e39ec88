/* Every layout read back: real files with their decoded form beside them, small files made here, and messages for bad
   files. */
#include "shard_testing.h"

static const char *shared(void)
{
    const char *dir = getenv("CAIRN_TEST_DATA");
    return dir ? dir : "../shared/data";
}

/* ---- real files ---- */

static int64_t numbers_at(const Json *example, const char *key, int32_t *out)
{
    const Json *list = js_get(example, key);
    for (size_t i = 0; i < js_size(list); i++) out[i] = (int32_t)js_real(js_at(list, i), -99);
    return (int64_t)js_size(list);
}

/* The decoded examples as sequences; `restored`: with the words that were masked. */
static void expected_sequences(const Json *all, bool restored, Sequences *s)
{
    for (size_t i = 0; i < js_size(all); i++) {
        const Json *x = js_at(all, i);
        int32_t ids[512], mask[512], types[512], places[128], words[128], weights[128], label[1];
        int64_t n = numbers_at(x, "input_ids", ids), length = 0, masked = 0;
        numbers_at(x, "input_mask", mask);
        numbers_at(x, "segment_ids", types);
        int64_t most = numbers_at(x, "masked_lm_positions", places);
        numbers_at(x, "masked_lm_ids", words);
        numbers_at(x, "masked_lm_weights", weights);
        numbers_at(x, "next_sentence_labels", label);
        for (int64_t j = 0; j < n; j++) length += mask[j];
        for (int64_t j = 0; j < most; j++) masked += weights[j] > 0;
        int64_t k = sequences_add(s, length, masked);
        for (int64_t j = 0; restored && j < masked; j++) ids[places[j]] = words[j];
        for (int64_t j = 0; j < length; j++) s->e.types[s->e.offset[k] + j] = (uint8_t)types[j];
        memcpy(s->e.ids + s->e.offset[k], ids, (size_t)length * sizeof *ids);
        memcpy(s->e.masked_place + s->e.masked_offset[k], places, (size_t)masked * sizeof *places);
        memcpy(s->e.masked_label + s->e.masked_offset[k], words, (size_t)masked * sizeof *words);
        s->e.label[k] = label[0];
    }
}

static void test_real_files(void **state)
{
    static const struct {
        const char *name;
        ShardLayout layout;
        int64_t rows, unit;
    } files[] = {{"nvidia_fixed_gzip_60.hdf5", SHARD_FIXED, 60, 60},
                 {"nvidia_fixed_contiguous_60.hdf5", SHARD_FIXED, 60, 1},
                 {"nvidia_fixed_gzip_6000.hdf5", SHARD_FIXED, 6000, 750},
                 {"mlperf_varlen_60.hdf5", SHARD_LISTS, 60, 1},
                 {"gpauloski_dynamic_60.hdf5", SHARD_DYNAMIC, 60, 60}};
    char *json = mem_printf("%s/hdf5/expected_examples.json", shared());
    Json *all = NULL;
    (void)state;
    if (!file_exists(json) || !hdf5_available()) {
        print_message("skipped: %s is absent, or HDF5\n", json);
        free(json);
        skip();
    }
    assert_ok(js_read(json, &all));
    free(json);
    Sequences expected = {0}, restored = {0};
    expected_sequences(all, false, &expected);
    expected_sequences(all, true, &restored);
    js_free(all);
    assert_int_equal(expected.e.count, 60);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = mem_printf("%s/hdf5/%s", shared(), files[i].name);
        ShardFile f;
        ShardRows rows = {0};
        Sequences got = {0};
        assert_ok(shard_open(&f, path, (ShardLimits){30522, 128, 20, 101}));
        assert_int_equal(f.layout, files[i].layout);
        assert_int_equal(f.rows, files[i].rows);
        assert_int_equal(f.unit, files[i].unit);
        assert_int_equal(f.is_masked, f.layout != SHARD_DYNAMIC);
        for (int64_t row = 0; row < f.rows; row += 47)
            assert_ok(shard_read(&f, row, f.rows - row < 47 ? f.rows - row : 47, row, &rows, &got));
        assert_int_equal(got.e.count, files[i].rows);
        for (int64_t row = 0; row < f.rows; row++)
            assert_same_sequence(&got.e, row, f.is_masked ? &expected.e : &restored.e, row % 60, f.is_masked);
        sequences_free(&got);
        shard_rows_free(&rows);
        shard_close(&f);
        free(path);
    }
    sequences_free(&expected);
    sequences_free(&restored);
}

/* ---- files made here ---- */

static Status read_all(const char *path, Sequences *out)
{
    ShardFile f;
    ShardRows rows = {0};
    TRY(shard_open(&f, path, (ShardLimits){SAMPLE_VOCAB, SAMPLE_LENGTH, SAMPLE_MASKS, SAMPLE_CLS}));
    Status status = shard_read(&f, 0, f.rows, 0, &rows, out);
    shard_rows_free(&rows);
    shard_close(&f);
    return status;
}

static void test_every_layout_comes_back(void **state)
{
    Sequences s;
    if (!hdf5_available()) skip();
    sample_sequences(&s, 200, 3);
    for (int layout = 0; layout < N_SHARD_LAYOUTS; layout++)
        for (int gzip = 0; gzip <= 4; gzip += 4)
            for (int masked = 0; masked < 2; masked++) {
                char *path = file_join(*state, "a.hdf5");
                Sequences got = {0};
                sample_shard(*state, "a.hdf5", (ShardLayout)layout, &s, gzip, masked);
                assert_ok(read_all(path, &got));
                assert_int_equal(got.e.count, 200);
                masked = masked && layout != SHARD_DYNAMIC;
                for (int64_t i = 0; i < 200; i++) assert_same_sequence(&got.e, i, &s.e, i, masked);
                sequences_free(&got);
                free(path);
                if (layout == SHARD_DYNAMIC) break;
            }
    sequences_free(&s);
}

static void test_the_same_rows_give_the_same_bytes(void **state)
{
    Sequences s;
    Digest first, second;
    if (!hdf5_available()) skip();
    char *path = file_join(*state, "a.hdf5");
    sample_sequences(&s, 500, 5);
    for (int layout = 0; layout < N_SHARD_LAYOUTS; layout++) {
        sample_shard(*state, "a.hdf5", (ShardLayout)layout, &s, layout == SHARD_FIXED ? 6 : 0, true);
        assert_ok(file_digest(path, &first, NULL));
        if (layout == 0) sleep(1); /* the file must not hold a time */
        sample_shard(*state, "a.hdf5", (ShardLayout)layout, &s, layout == SHARD_FIXED ? 6 : 0, true);
        assert_ok(file_digest(path, &second, NULL));
        assert_true(digest_equal(first, second));
    }
    sequences_free(&s);
    free(path);
}

/* ---- bad files ---- */

static void row_of(SampleFile *f, int column, int64_t row, int64_t i, int32_t value)
{
    f->c[column].values[f->c[column].offset[row] + i] = value;
}

static void shorten(SampleFile *f, int column)
{
    SampleColumn *c = &f->c[column];
    for (int64_t row = 8; row <= c->rows; row++) c->offset[row]--; /* row 7 loses a number, or passes it to row 8 */
}

static void id_beyond(SampleFile *f) { row_of(f, SHARD_INPUT_IDS, 7, 3, SAMPLE_VOCAB); }
static void id_negative(SampleFile *f) { row_of(f, SHARD_INPUT_IDS, 7, 3, -5); }
static void not_cls(SampleFile *f) { row_of(f, SHARD_INPUT_IDS, 7, 0, 300); }
static void type_2(SampleFile *f) { row_of(f, SHARD_SEGMENT_IDS, 7, 1, 2); }
static void label_2(SampleFile *f) { row_of(f, SHARD_LABELS, 7, 0, 2); }
static void mask_hole(SampleFile *f) { row_of(f, SHARD_INPUT_MASK, 7, 2, 0); }
static void mask_none(SampleFile *f)
{
    for (int i = 0; i < SAMPLE_LENGTH; i++) row_of(f, SHARD_INPUT_MASK, 7, i, 0);
}
static void place_beyond(SampleFile *f) { row_of(f, SHARD_MASKED_POSITIONS, 7, 0, 900); }
static void place_hole(SampleFile *f)
{
    row_of(f, SHARD_MASKED_POSITIONS, 7, 0, 0);
    row_of(f, SHARD_MASKED_POSITIONS, 7, 1, 2);
}
static void place_descends(SampleFile *f)
{
    row_of(f, SHARD_MASKED_POSITIONS, 7, 0, 4);
    row_of(f, SHARD_MASKED_POSITIONS, 7, 1, 2);
}
static void word_beyond(SampleFile *f) { row_of(f, SHARD_MASKED_IDS, 7, 0, 2000); }
static void special_beyond(SampleFile *f) { row_of(f, SHARD_SPECIAL_POSITIONS, 7, 2, SAMPLE_LENGTH); }
static void special_first(SampleFile *f) { row_of(f, SHARD_SPECIAL_POSITIONS, 7, 0, 1); }
static void types_short(SampleFile *f) { shorten(f, SHARD_SEGMENT_IDS); }
static void words_short(SampleFile *f) { shorten(f, SHARD_MASKED_IDS); }
static void lengths_more(SampleFile *f) { row_of(f, SHARD_PACKED_LENGTHS, 7, 0, 3000); }
static void lengths_less(SampleFile *f)
{
    row_of(f, SHARD_PACKED_LENGTHS, 7, 1,
           f->c[SHARD_PACKED_LENGTHS].values[f->c[SHARD_PACKED_LENGTHS].offset[7] + 1] - 1);
}
static void masked_more(SampleFile *f) { row_of(f, SHARD_PACKED_MASKED, 7, 0, 99); }
static void labels_short(SampleFile *f) { shorten(f, SHARD_LABELS); }
static void rows_fewer(SampleFile *f) { f->c[SHARD_LABELS].rows--; }
static void narrow(SampleFile *f)
{
    SampleColumn *c = &f->c[SHARD_SEGMENT_IDS];
    c->width = 16;
    for (int64_t row = 0; row <= c->rows; row++) c->offset[row] = 16 * row;
}
static void wide_masks(SampleFile *f)
{
    for (int column = SHARD_MASKED_POSITIONS; column <= SHARD_MASKED_IDS; column++) {
        SampleColumn *c = &f->c[column];
        c->width = SAMPLE_LENGTH + 1;
        free(c->values);
        c->values = mem_array((size_t)(c->rows * c->width), sizeof *c->values);
        for (int64_t row = 0; row <= c->rows; row++) c->offset[row] = c->width * row;
    }
}
static void no_ids(SampleFile *f) { f->c[SHARD_INPUT_IDS].absent = true; }
static void no_types(SampleFile *f) { f->c[SHARD_SEGMENT_IDS].absent = true; }
static void no_words(SampleFile *f) { f->c[SHARD_MASKED_IDS].absent = true; }
static void no_mask(SampleFile *f) { f->c[SHARD_INPUT_MASK].absent = true; }

static const struct {
    ShardLayout layout;
    void (*spoil)(SampleFile *f);
    const char *message[2];
} bad[] = {
    {SHARD_FIXED, id_beyond, {"input_ids: row 7:", "token 3 is 1000; the vocabulary has 0 to 999"}},
    {SHARD_FIXED, id_negative, {"input_ids: row 7:", "token 3 is -5"}},
    {SHARD_LISTS, id_beyond, {"input_ids: row 7:", "token 3 is 1000"}},
    {SHARD_PACKED, id_beyond, {"input_ids: row 7:", "token 3 is 1000"}},
    {SHARD_DYNAMIC, id_beyond, {"input_ids: row 7:", "token 3 is 1000"}},
    {SHARD_FIXED, not_cls, {"input_ids: row 7:", "it begins with 300; [CLS] is 101"}},
    {SHARD_FIXED, type_2, {"segment_ids: row 7:", "token 1 has the type 2"}},
    {SHARD_LISTS, type_2, {"segment_ids: row 7:", "token 1 has the type 2"}},
    {SHARD_FIXED, label_2, {"next_sentence_labels: row 7:", "the label is 2"}},
    {SHARD_PACKED, label_2, {"next_sentence_labels: row 7:", "the label is 2"}},
    {SHARD_FIXED, mask_hole, {"input_mask: row 7:", "expected ones and then zeros"}},
    {SHARD_FIXED, mask_none, {"input_ids: row 7:", "0 tokens; expected at least 1"}},
    {SHARD_FIXED, place_beyond, {"masked_lm_positions: row 7:", "position 900 lies outside of the sequence"}},
    {SHARD_LISTS, place_beyond, {"masked_lm_positions: row 7:", "position 900 lies outside of the sequence"}},
    {SHARD_PACKED, place_beyond, {"masked_lm_positions: row 7:", "position 900 lies outside of the sequence"}},
    {SHARD_FIXED, place_hole, {"masked_lm_positions: row 7:", "follows a 0"}},
    {SHARD_FIXED, place_descends, {"masked_lm_positions: row 7:", "expected ascending"}},
    {SHARD_FIXED, word_beyond, {"masked_lm_ids: row 7:", "word 0 is 2000"}},
    {SHARD_DYNAMIC, special_beyond, {"special_token_positions: row 7:", "place 2 is 32"}},
    {SHARD_DYNAMIC, special_first, {"special_token_positions: row 7:", "place 0 is 1"}},
    {SHARD_LISTS, types_short, {"segment_ids: row 7:", "but input_ids has"}},
    {SHARD_LISTS, words_short, {"masked_lm_ids: row 7:", "but masked_lm_positions has"}},
    {SHARD_PACKED, lengths_more, {"packed_input_len: row 7:", "sequence 0 has 3000 of the row's"}},
    {SHARD_PACKED, lengths_less, {"packed_input_len: row 7:", "they add up to"}},
    {SHARD_PACKED, masked_more, {"packed_masked_lm_len: row 7:", "sequence 0 has 99 of the row's"}},
    {SHARD_PACKED, labels_short, {"next_sentence_labels: row 7:", "but packed_input_len has"}},
    {SHARD_FIXED, rows_fewer, {"next_sentence_labels:", "59 rows, but input_ids has 60"}},
    {SHARD_FIXED, wide_masks, {"masked_lm_positions:", "its rows have 33 numbers; expected at most 32"}},
    {SHARD_FIXED, narrow, {"segment_ids:", "its rows have 16 numbers; expected 32"}},
    {SHARD_FIXED, no_ids, {"bad.hdf5: no dataset input_ids", "not a shard"}},
    {SHARD_FIXED, no_types, {"segment_ids: is missing", "fixed length"}},
    {SHARD_LISTS, no_types, {"segment_ids: is missing", "variable length"}},
    {SHARD_LISTS, no_words, {"masked_lm_ids: is missing", "belong together"}},
    {SHARD_FIXED, no_mask, {"neither input_mask", "special_token_positions"}},
};

static void test_bad_rows_are_named(void **state)
{
    Sequences s;
    if (!hdf5_available()) skip();
    char *path = file_join(*state, "bad.hdf5");
    sample_sequences(&s, 120, 7);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        SampleFile f;
        Sequences got = {0}, few = s;
        few.e.count = bad[i].layout == SHARD_PACKED ? 120 : 60;
        sample_fill(&f, bad[i].layout, &few);
        bad[i].spoil(&f);
        assert_ok(sample_write(&f, path));
        Status status = read_all(path, &got);
        if (status != E_FORMAT) fail_msg("case %zu: %s", i, status_name(status));
        assert_message("bad.hdf5");
        assert_message(bad[i].message[0]);
        assert_message(bad[i].message[1]);
        sequences_free(&got);
        sample_free(&f);
    }
    sequences_free(&s);
    free(path);
}

static void test_other_lengths(void **state)
{
    Sequences s;
    ShardFile f;
    ShardRows rows = {0};
    Sequences got = {0};
    if (!hdf5_available()) skip();
    char *path = file_join(*state, "a.hdf5");
    sample_sequences(&s, 60, 9);
    sample_shard(*state, "a.hdf5", SHARD_FIXED, &s, 0, true);
    assert_status(shard_open(&f, path, (ShardLimits){SAMPLE_VOCAB, 16, 5, -1}), E_FORMAT);
    assert_message("its rows have 32 tokens, the longest sequence wanted is 16; give --max-seq-length 32");
    sample_shard(*state, "a.hdf5", SHARD_LISTS, &s, 0, true);
    assert_ok(shard_open(&f, path, (ShardLimits){SAMPLE_VOCAB, 16, 5, -1}));
    assert_status(shard_read(&f, 0, 60, 0, &rows, &got), E_FORMAT);
    assert_message("the longest sequence wanted is 16 (--max-seq-length)");
    shard_close(&f);
    assert_ok(shard_open(&f, path, (ShardLimits){SAMPLE_VOCAB, 32, 2, -1}));
    assert_status(shard_read(&f, 0, 60, 0, &rows, &got), E_FORMAT);
    assert_message("masked positions; at most 2 are wanted");
    shard_close(&f);
    shard_rows_free(&rows);
    sequences_free(&got);
    sequences_free(&s);
    free(path);
}

/* ---- false lengths ---- */

/* Rewrites row 7's descriptor: its count, or the address. */
static void patch_descriptor(const char *path, int at, uint32_t value)
{
    Buf bytes = {0};
    assert_ok(file_read(path, 1 << 24, &bytes));
    /* HDF5's 60 descriptors, whose counts are known, identify the dataset. */
    Sequences s;
    sample_sequences(&s, 60, 11);
    size_t found = 0;
    for (size_t i = 0; i + 60 * 16 <= bytes.len && !found; i += 4) {
        bool same = true;
        for (int row = 0; row < 60 && same; row++) {
            uint32_t count;
            memcpy(&count, bytes.data + i + 16 * row, 4);
            same = count == (uint32_t)example_length(&s.e, row);
        }
        if (same) found = i;
    }
    assert_true(found > 0);
    memcpy(bytes.data + found + 7 * 16 + (size_t)at, &value, 4);
    assert_ok(file_write_durable(path, bytes.data, bytes.len));
    buf_free(&bytes);
    sequences_free(&s);
}

static void test_false_lengths(void **state)
{
    static const struct {
        int at;
        uint32_t value;
        const char *message;
    } lies[] = {{0, 31, "row 7: a list claims 31 numbers, but"},
                {0, 0xffffffffu, "row 7 claims 4294967295 numbers; expected at most 4096"},
                {4, 0x40000000u, "row 7: a list claims to begin at byte 1073741824, beyond the file's"},
                {4, 8, "row 7: expected a heap of lists at byte 8"},
                {12, 60000, "has no object 60000"}};
    Sequences s, got = {0};
    if (!hdf5_available()) skip();
    char *path = file_join(*state, "a.hdf5");
    sample_sequences(&s, 60, 11);
    assert_true(example_length(&s.e, 7) < 31);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        sample_shard(*state, "a.hdf5", SHARD_LISTS, &s, 0, true);
        patch_descriptor(path, lies[i].at, lies[i].value);
        sequences_clear(&got);
        assert_status(read_all(path, &got), E_FORMAT);
        assert_message(lies[i].message);
        assert_message("a.hdf5: dataset");
    }
    sequences_free(&got);
    sequences_free(&s);
    free(path);
}

static void test_cut_files(void **state)
{
    Sequences s, got = {0};
    Buf bytes = {0};
    if (!hdf5_available()) skip();
    char *path = file_join(*state, "a.hdf5");
    sample_sequences(&s, 60, 13);
    sample_shard(*state, "a.hdf5", SHARD_LISTS, &s, 0, true);
    assert_ok(file_read(path, 1 << 24, &bytes));
    for (size_t len = 0; len < bytes.len; len += 1 + bytes.len / 50) {
        assert_ok(file_write_durable(path, bytes.data, len));
        assert_status(read_all(path, &got), E_FORMAT);
        assert_message("a.hdf5");
        assert_null(strstr(status_message(), "unknown error"));
    }
    buf_free(&bytes);
    sequences_free(&got);
    sequences_free(&s);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_files),
        cmocka_unit_test_setup_teardown(test_every_layout_comes_back, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_the_same_rows_give_the_same_bytes, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_bad_rows_are_named, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_other_lengths, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_false_lengths, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_cut_files, testing_set_up, testing_tear_down),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
