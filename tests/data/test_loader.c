/* A folder of shards as batches: every sequence once per epoch, the same batch in any order of requests, masks as a
   function of sample and epoch, and messages for faults. */
#include "shard_testing.h"

#include <math.h>

#include "data/masking.h"
#include "data/shards.h"

#define PER_FILE 700
#define N_FILES  5

/* Piece ids as in sample_sequences; those from 900 on continue a word. */
static Vocab *make_vocab(void)
{
    Buf text = {0};
    Vocab *vocab;
    for (int id = 0; id < SAMPLE_VOCAB; id++) {
        const char *special = id == 0     ? "[PAD]"
                              : id == 100 ? "[UNK]"
                              : id == 101 ? "[CLS]"
                              : id == 102 ? "[SEP]"
                              : id == 103 ? "[MASK]"
                                          : NULL;
        if (special)
            buf_printf(&text, "%s\n", special);
        else
            buf_printf(&text, "%sw%d\n", id >= 900 ? "##" : "", id);
    }
    assert_ok(vocab_parse("vocabulary", text.data, text.len, NULL, &vocab));
    buf_free(&text);
    return vocab;
}

typedef struct {
    char *dir;
    Vocab *vocab;
    Sequences files[N_FILES];
} Fixture;

static int set_up(void **state)
{
    static const ShardLayout layouts[N_FILES] = {SHARD_FIXED, SHARD_LISTS, SHARD_PACKED, SHARD_DYNAMIC, SHARD_LISTS};
    Fixture *x = mem_alloc(sizeof *x);
    x->dir = testing_directory();
    x->vocab = make_vocab();
    for (int i = 0; i < N_FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, i == 2 ? "part_%d" : "part_%d.hdf5", i); /* packed ones have no suffix */
        sample_sequences(&x->files[i], PER_FILE, 20 + (uint64_t)i);
        if (hdf5_available()) sample_shard(x->dir, name, layouts[i], &x->files[i], i == 0 ? 4 : 0, i != 4);
    }
    char *other = file_join(x->dir, "notes.txt"), *left = file_join(x->dir, "part_9.hdf5.tmp.123");
    assert_ok(file_write_durable(other, "not a shard", 11));
    assert_ok(file_write_durable(left, "\x89HDF\r\n\x1a\n", 8));
    free(other);
    free(left);
    *state = x;
    return 0;
}

static int tear_down(void **state)
{
    Fixture *x = *state;
    assert_ok(file_remove_tree(x->dir));
    for (int i = 0; i < N_FILES; i++) sequences_free(&x->files[i]);
    vocab_free(x->vocab);
    free(x->dir);
    free(x);
    return 0;
}

/* A length of 8192 makes windows of two blocks of 256 rows, so that there are several. */
static ShardsOptions options(const Fixture *x, int max_length, int64_t batch_size)
{
    return (ShardsOptions){
        .vocab = x->vocab, .max_length = max_length, .max_predictions = 6, .seed = 42, .batch_size = batch_size};
}

/* Of a whole sequence with its masks. */
static uint64_t identity(const Examples *e, int64_t i)
{
    int64_t n = example_length(e, i), masked = example_masked(e, i), m = e->masked_offset[i];
    DigestStream *d = digest_new();
    digest_update(d, e->masked_place + m, (size_t)masked * sizeof(int32_t));
    digest_update(d, e->masked_label + m, (size_t)masked * sizeof(int32_t));
    digest_update(d, e->ids + e->offset[i], (size_t)n * sizeof(int32_t));
    digest_update(d, e->types + e->offset[i], (size_t)n);
    digest_update(d, &e->label[i], sizeof e->label[i]);
    uint64_t value = digest_value(d).lo;
    digest_free(d);
    return value;
}

static uint64_t batch_identity(const Examples *e)
{
    uint64_t x = (uint64_t)e->count;
    for (int64_t i = 0; i < e->count; i++) x = x * 0x9e3779b97f4a7c15u + identity(e, i);
    return x;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The number in file order of a batch's sequence: masks are undone, all words compared. */
static int64_t find_whole(const Examples *all, const Examples *e, int64_t i)
{
    int32_t ids[SAMPLE_LENGTH];
    int64_t n = example_length(e, i), m = e->masked_offset[i];
    memcpy(ids, e->ids + e->offset[i], (size_t)n * sizeof *ids);
    for (int64_t k = 0; k < example_masked(e, i); k++) ids[e->masked_place[m + k]] = e->masked_label[m + k];
    for (int64_t j = 0; j < all->count; j++)
        if (example_length(all, j) == n && memcmp(all->ids + all->offset[j], ids, (size_t)n * sizeof *ids) == 0)
            return j;
    return -1;
}

/* All sequences without masks. */
static void restore(const Examples *from, Sequences *to)
{
    *to = (Sequences){0};
    for (int64_t i = 0; i < from->count; i++) {
        int64_t n = example_length(from, i), k = sequences_add(to, n, 0);
        memcpy(to->e.ids + to->e.offset[k], from->ids + from->offset[i], (size_t)n * sizeof(int32_t));
        for (int64_t m = from->masked_offset[i]; m < from->masked_offset[i + 1]; m++)
            to->e.ids[to->e.offset[k] + from->masked_place[m]] = from->masked_label[m];
    }
}

/* Picked sequences are those at even distances in file order, however many are read at once. */
static void test_picked_sequences(void **state)
{
    const Fixture *x = *state;
    static const int64_t counts[] = {1, 7, 700, 3499, 3500, 100000};
    if (!hdf5_available()) skip();
    Shards *whole, *s;
    const Examples *all, *e;
    ShardsOptions o = options(x, SAMPLE_LENGTH, 64);
    assert_ok(shards_open(x->dir, &o, &whole));
    int64_t n = shards_count(whole);
    assert_ok(shards_range(whole, 0, n, &all));
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        o.picked = counts[k];
        assert_ok(shards_open(x->dir, &o, &s));
        int64_t picked = shards_count(s);
        assert_int_equal(picked, counts[k] < n ? counts[k] : n);
        Digest a = shards_digest(s), b = shards_digest(whole);
        assert_int_equal(digest_equal(a, b), picked == n);
        for (int64_t first = 0; first < picked; first += 100) {
            int64_t some = picked - first < 100 ? picked - first : 100;
            assert_ok(shards_range(s, first, some, &e));
            assert_int_equal(e->count, some);
            for (int64_t i = 0; i < some; i++) assert_true(identity(e, i) == identity(all, (first + i) * n / picked));
        }
        shards_close(s);
    }
    shards_close(whole);
}

static void test_an_epoch_has_every_sequence_once(void **state)
{
    const Fixture *x = *state;
    static const int lengths[] = {SAMPLE_LENGTH, 8192}; /* one window; several */
    if (!hdf5_available()) skip();
    for (int l = 0; l < 2; l++) {
        Shards *s;
        const Examples *e, *all;
        ShardsOptions o = options(x, lengths[l], 64);
        uint64_t orders[2] = {0};
        assert_ok(shards_open(x->dir, &o, &s));
        int64_t n = shards_count(s), per_epoch = batches_per_epoch(n, 64);
        assert_int_equal(n, PER_FILE * N_FILES);
        Sequences whole;
        assert_ok(shards_range(s, 0, n, &all));
        restore(all, &whole);
        for (int64_t epoch = 0; epoch < 2; epoch++) {
            uint8_t *seen = mem_alloc((size_t)n);
            int64_t count = 0, close = 0, last = -1;
            for (int64_t b = epoch * per_epoch; b < (epoch + 1) * per_epoch; b++) {
                assert_ok(shards_step(s, b, &e));
                assert_int_equal(e->count, b == (epoch + 1) * per_epoch - 1 ? n % 64 : 64);
                orders[epoch] = orders[epoch] * 31 + batch_identity(e);
                for (int64_t i = 0; i < e->count; i++, count++) {
                    int64_t which = find_whole(&whole.e, e, i);
                    assert_true(which >= 0);
                    assert_int_equal(seen[which]++, 0);
                    close += llabs(which - last) <= 2;
                    last = which;
                }
            }
            assert_int_equal(count, n);
            assert_true(close < n / 20); /* shuffled */
            free(seen);
        }
        assert_true(orders[0] != orders[1]);
        sequences_free(&whole);
        shards_close(s);
    }
}

static void test_batches_in_any_order(void **state)
{
    const Fixture *x = *state;
    if (!hdf5_available()) skip();
    static const int lengths[] = {SAMPLE_LENGTH, 8192};
    for (int l = 0; l < 2; l++) {
        enum { BATCHES = 160 };
        uint64_t expected[BATCHES], random = 5;
        Shards *s;
        const Examples *e, *before = NULL;
        ShardsOptions o = options(x, lengths[l], 50);
        assert_ok(shards_open(x->dir, &o, &s));
        for (int b = 0; b < BATCHES; b++) {
            assert_ok(shards_step(s, b, &e));
            expected[b] = batch_identity(e);
            if (before) assert_true(batch_identity(before) == expected[b - 1]); /* valid until the next call but one */
            if (b % 7 == 0) usleep(2000);                                       /* sometimes the thread is ahead */
            before = e;
        }
        shards_close(s);
        for (int turn = 0; turn < 3; turn++) {
            assert_ok(shards_open(x->dir, &o, &s));
            int b = (int)(testing_random(&random) % BATCHES);
            for (int k = 0; k < 60; k++) {
                if (k % 5 == 0) b = (int)(testing_random(&random) % BATCHES); /* five in order, then another place */
                assert_ok(shards_step(s, b, &e));
                assert_true(batch_identity(e) == expected[b]);
                b = (b + 1) % BATCHES;
            }
            shards_close(s);
        }
        o.seed = 43;
        assert_ok(shards_open(x->dir, &o, &s));
        assert_ok(shards_step(s, 0, &e));
        assert_true(batch_identity(e) != expected[0]);
        shards_close(s);
    }
}

static void test_masks_are_of_sample_and_epoch(void **state)
{
    const Fixture *x = *state;
    if (!hdf5_available()) skip();
    static const struct {
        int64_t batch_size;
        int max_length;
        int64_t epoch;
    } ways[] = {{64, SAMPLE_LENGTH, 0}, {7, SAMPLE_LENGTH, 0}, {1000, 8192, 0}, {64, SAMPLE_LENGTH, 1}};
    uint64_t *masks[4];
    int64_t n = 0, same = 0;
    for (int w = 0; w < 4; w++) {
        Shards *s;
        const Examples *e;
        ShardsOptions o = options(x, ways[w].max_length, ways[w].batch_size);
        o.dynamic_masking = true;
        assert_ok(shards_open(x->dir, &o, &s));
        n = shards_count(s);
        masks[w] = mem_array((size_t)n, sizeof **masks);
        int64_t per_epoch = batches_per_epoch(n, o.batch_size), at = 0;
        for (int64_t b = 0; b < per_epoch; b++) {
            assert_ok(shards_step(s, ways[w].epoch * per_epoch + b, &e));
            for (int64_t i = 0; i < e->count; i++) masks[w][at++] = identity(e, i);
        }
        qsort(masks[w], (size_t)n, sizeof **masks, by_value);
        shards_close(s);
    }
    assert_memory_equal(masks[0], masks[1], (size_t)n * sizeof **masks);
    assert_memory_equal(masks[0], masks[2], (size_t)n * sizeof **masks);
    for (int64_t i = 0, j = 0; i < n && j < n;) {
        if (masks[0][i] == masks[3][j]) same++;
        if (masks[0][i] <= masks[3][j])
            i++;
        else
            j++;
    }
    assert_true(same < n / 50);
    for (int w = 0; w < 4; w++) free(masks[w]);
}

static void test_file_order(void **state)
{
    const Fixture *x = *state;
    Shards *s;
    const Examples *e;
    if (!hdf5_available()) skip();
    ShardsOptions o = options(x, SAMPLE_LENGTH, 32);
    assert_ok(shards_open(x->dir, &o, &s));
    for (int64_t first = 0; first < shards_count(s); first += 333) {
        int64_t n = first + 333 < shards_count(s) ? 333 : shards_count(s) - first;
        assert_ok(shards_range(s, first, n, &e));
        assert_int_equal(e->count, n);
        for (int64_t i = 0; i < n; i++) {
            int64_t file = (first + i) / PER_FILE, k = (first + i) % PER_FILE;
            const Examples *made = &x->files[file].e;
            if (file != 3 && file != 4) /* which have no masks in the file */
                assert_same_sequence(e, i, made, k, true);
            else
                assert_int_equal(example_length(e, i), example_length(made, k));
        }
    }
    assert_ok(shards_check(s, NULL));
    shards_close(s);
}

/* Chi-square with 2 degrees of freedom: 13.8 is passed by one in a thousand. */
static void test_masks_follow_the_rule(void **state)
{
    enum { N = 20000, LENGTH = 100 };
    const Fixture *x = *state;
    for (int whole = 0; whole < 2; whole++) {
        int64_t counts[3] = {0}, masked = 0, at[LENGTH] = {0}, random_words = 0;
        double sum = 0;
        Masking m;
        masking_init(&m, x->vocab, 9, 0.15, 20, whole);
        for (uint64_t sample = 0; sample < N; sample++) {
            int32_t ids[LENGTH], before[LENGTH], place[20], label[20], scratch[LENGTH];
            uint64_t r = sample * 77 + 1;
            for (int i = 0; i < LENGTH; i++) ids[i] = 200 + (int32_t)(testing_random(&r) % 800);
            ids[0] = 101;
            ids[LENGTH - 1] = ids[40] = 102;
            if (whole)
                for (int i = 1; i < LENGTH - 1; i++)
                    if (ids[i] >= 900 && i % 3 == 0) ids[i] = 300;
            memcpy(before, ids, sizeof ids);
            int n = masking_draw(&m, sample, 4, ids, LENGTH, place, label, scratch);
            if (!whole) assert_int_equal(n, 15);
            assert_in_range(n, 1, 15);
            for (int k = 0, i = 0; i < LENGTH; i++) { /* nothing else changes */
                if (k < n && place[k] == i) {
                    assert_int_equal(label[k], before[i]);
                    assert_true(before[i] != 101 && before[i] != 102);
                    counts[ids[i] == 103 ? 0 : ids[i] == before[i] ? 1 : 2]++;
                    random_words += ids[i] != before[i] && ids[i] != 103;
                    sum += ids[i] != before[i] && ids[i] != 103 ? ids[i] : 0;
                    at[i]++;
                    masked++;
                    k++;
                } else {
                    assert_int_equal(ids[i], before[i]);
                }
            }
            for (int k = 0; whole && k < n; k++) { /* a word's pieces together */
                int i = place[k];
                if (before[i] >= 900 && before[i - 1] != 101 && before[i - 1] != 102)
                    assert_true(k > 0 && place[k - 1] == i - 1);
                if (i + 1 < LENGTH && before[i + 1] >= 900) assert_true(k + 1 < n && place[k + 1] == i + 1);
            }
        }
        if (!whole) { /* of those that stay, some are random words that are the same: 1 in 1000 of 10 % */
            double expected[3] = {0.8 * masked, 0.1 * masked * 1.001, 0.1 * masked * 0.999}, chi = 0;
            for (int i = 0; i < 3; i++) chi += pow((double)counts[i] - expected[i], 2) / expected[i];
            assert_true(chi < 13.8);
            double each = (double)masked / (LENGTH - 3), places = 0;
            for (int i = 0; i < LENGTH; i++)
                if (i != 0 && i != 40 && i != LENGTH - 1) places += pow((double)at[i] - each, 2) / each;
            assert_true(places < 150);                                /* 96 degrees of freedom */
            assert_true(fabs(sum / (double)random_words - 500) < 10); /* uniform over the vocabulary */
        }
        masking_free(&m);
    }
}

static void test_faults_have_messages(void **state)
{
    const Fixture *x = *state;
    Shards *s;
    const Examples *e;
    if (!hdf5_available()) skip();
    ShardsOptions o = options(x, SAMPLE_LENGTH, 32);
    char *empty = file_join(x->dir, "empty");
    assert_ok(file_make_directories(empty));
    assert_status(shards_open(empty, &o, &s), E_FORMAT);
    assert_message("no shards in it");
    assert_null(s);
    assert_status(shards_open("/nonexistent/folder", &o, &s), E_IO);
    o.vocab = NULL;
    o.vocab_size = SAMPLE_VOCAB;
    assert_status(shards_open(x->dir, &o, &s), E_USAGE);
    assert_message("leave out --masking static");
    o = options(x, SAMPLE_LENGTH, 32);

    /* One bad row among many: the check finds it, and training when it reads it. */
    Sequences few;
    SampleFile f;
    char *path = file_join(empty, "bad.hdf5"), *good = file_join(empty, "good.hdf5");
    sample_sequences(&few, 600, 1);
    sample_shard(empty, "good.hdf5", SHARD_LISTS, &few, 0, true);
    sample_fill(&f, SHARD_LISTS, &few);
    f.c[SHARD_INPUT_IDS].values[f.c[SHARD_INPUT_IDS].offset[433] + 2] = 30000;
    assert_ok(sample_write(&f, path));
    sample_free(&f);
    assert_ok(shards_open(empty, &o, &s));
    assert_status(shards_check(s, NULL), E_FORMAT);
    assert_message("bad.hdf5: dataset input_ids: row 433: token 2 is 30000");
    Status status = OK;
    for (int64_t b = 0; b < batches_per_epoch(1200, 32) && status == OK; b++) status = shards_step(s, b, &e);
    assert_status(status, E_FORMAT);
    assert_message("row 433");
    assert_status(shards_step(s, 0, &e), E_FORMAT); /* and again */
    shards_close(s);

    /* A file that changes during the run. */
    assert_ok(file_remove_tree(path));
    Digest first, second;
    o.max_length = 8192;
    assert_ok(shards_open(empty, &o, &s));
    assert_ok(shards_check(s, NULL));
    first = shards_digest(s);
    shards_close(s);
    few.e.count = 300;
    assert_ok(shards_open(empty, &o, &s));
    sample_shard(empty, "good.hdf5", SHARD_LISTS, &few, 0, true);
    assert_status(shards_step(s, 0, &e), E_FORMAT);
    assert_message("changed during the run");
    shards_close(s);
    assert_ok(shards_open(empty, &o, &s));
    second = shards_digest(s);
    shards_close(s);
    assert_false(digest_equal(first, second));
    sequences_free(&few);
    free(path);
    free(good);
    free(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_picked_sequences, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_epoch_has_every_sequence_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_batches_in_any_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_masks_are_of_sample_and_epoch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_file_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_masks_follow_the_rule, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_faults_have_messages, set_up, tear_down),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
