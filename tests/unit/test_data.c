/* The seekable order and the rows of micro-batches. */
#include "testing.h"

#include "data/data.h"

static void test_permutation_is_one(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 3000; n = n * 3 / 2 + 1) {
        Permutation p = permutation(42, 3, n);
        char *seen = mem_alloc((size_t)n);
        for (int64_t k = 0; k < n; k++) {
            int64_t x = permutation_at(&p, k);
            assert_in_range(x, 0, n - 1);
            assert_int_equal(seen[x], 0);
            seen[x] = 1;
        }
        free(seen);
    }
}

static void test_permutation_depends_on_seed_and_epoch(void **state)
{
    int same_seed = 0, same_epoch = 0, fixed = 0;
    (void)state;
    Permutation a = permutation(1, 0, 1000), b = permutation(2, 0, 1000), c = permutation(1, 1, 1000);
    for (int64_t k = 0; k < 1000; k++) {
        same_seed += permutation_at(&a, k) == permutation_at(&b, k);
        same_epoch += permutation_at(&a, k) == permutation_at(&c, k);
        fixed += permutation_at(&a, k) == k;
    }
    assert_true(same_seed < 10 && same_epoch < 10 && fixed < 10);
}

static void test_epochs_cover_all(void **state)
{
    (void)state;
    int64_t n = 103, size = 10, per_epoch = batches_per_epoch(n, size), index[10], seen[103] = {0};
    assert_int_equal(per_epoch, 11);
    for (int64_t batch = per_epoch; batch < 2 * per_epoch; batch++) { /* the second epoch */
        int64_t count = batch_examples(7, n, size, batch, index);
        assert_int_equal(count, batch == 2 * per_epoch - 1 ? 3 : 10);
        for (int64_t i = 0; i < count; i++) seen[index[i]]++;
    }
    for (int64_t i = 0; i < n; i++) assert_int_equal(seen[i], 1);
    for (int64_t batch = 0, sum = 0; batch < 3 * per_epoch; batch++) {
        assert_int_equal(batches_examples(n, size, batch), sum);
        sum += batch_examples(7, n, size, batch, index);
    }
    assert_int_equal(batches_examples(n, size, 3 * per_epoch), 3 * n);
    assert_int_equal(batches_examples(3, 10, 2), 6); /* every batch a short one */
}

static void make_examples(Examples *e, const int *lengths, int n)
{
    *e = (Examples){.count = n};
    e->offset = mem_array((size_t)n + 1, sizeof *e->offset);
    e->label = mem_array((size_t)n, sizeof *e->label);
    for (int i = 0; i < n; i++) e->offset[i + 1] = e->offset[i] + lengths[i];
    e->ids = mem_array((size_t)e->offset[n], sizeof *e->ids);
    e->types = mem_alloc((size_t)e->offset[n]);
    for (int64_t i = 0; i < e->offset[n]; i++) {
        e->ids[i] = 100 + (int32_t)i;
        e->types[i] = (uint8_t)(i % 2);
    }
    for (int i = 0; i < n; i++) e->label[i] = i;
}

static void test_packed_rows(void **state)
{
    static const int lengths[] = {3, 5, 2, 4, 8};
    int64_t index[] = {4, 0, 2, 1, 3}, order[5];
    MicroRange ranges[5];
    MicroCapacity cap = {12, 5, 0};
    Examples e;
    MicroBatch b;
    (void)state;
    make_examples(&e, lengths, 5);
    int64_t n = micro_split(&e, index, NULL, 5, &cap, 0, order, ranges); /* in rows 8 3 2 5 4: 8 4 | 5 3 2 */
    assert_int_equal(n, 2);
    assert_int_equal(ranges[0].count, 2);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 4);
    assert_int_equal(ranges[1].first, 2);
    assert_int_equal(ranges[1].count, 3);
    micro_batch_init(&b, cap);
    micro_fill(&b, &e, index, order + 2, 3, 0, 0);
    assert_int_equal(b.n_tokens, 10);
    assert_int_equal(b.n_seqs, 3);
    static const int32_t first[] = {0, 3, 5}, end[] = {3, 5, 10}; /* places 1, 2, 3 */
    for (int s = 0; s < 3; s++) {
        assert_int_equal(b.first[s], s);
        assert_int_equal(b.read[s], first[s]);
        assert_int_equal(b.spans[2 * s], first[s]);
        assert_int_equal(b.spans[2 * s + 1], end[s]);
        assert_int_equal(b.seq_index[s], 1 + s);
        assert_int_equal(b.labels[s], (int)index[1 + s]);
        for (int32_t r = first[s]; r < end[s]; r++) {
            assert_int_equal(b.pos[r], r - first[s]);
            assert_int_equal(b.seq[r], 1 + s);
            assert_int_equal(b.ids[r], e.ids[e.offset[index[1 + s]] + r - first[s]]);
        }
    }
    assert_int_equal(b.ids[10], 0);
    e.score_width = 2;
    e.score = mem_array(10, sizeof *e.score);
    for (int i = 0; i < 10; i++) e.score[i] = (float)i + 0.5f;
    micro_fill(&b, &e, index, order + 2, 3, 0, 0); /* scores take the place of labels */
    assert_int_equal(micro_bytes(&b, MICRO_labels, true), 10 * sizeof(float));
    for (int k = 0; k < 10; k++)
        assert_true(micro_scores(&b)[k] == (k < 6 ? e.score[2 * index[1 + k / 2] + k % 2] : 0));
    for (int k = 6; k < 10; k++) assert_int_equal(b.spans[k], 10);
    static const float weights[] = {1, 2, 4, 8, 16};
    e.weights = mem_array(5, sizeof *e.weights), e.n_weights = 5, e.smoothing = 0.625;
    memcpy(e.weights, weights, sizeof weights);
    micro_fill(&b, &e, index, order + 2, 3, 0, 0); /* so do targets */
    for (int k = 0; k < 15; k++) {
        bool own = k % 5 == (int)index[1 + k / 5];
        assert_true(micro_scores(&b)[k] == weights[k % 5] * (own ? 0.5f : 0.125f));
    }
    assert_true(example_weight(&e, index[1]) == (double)weights[index[1]]);
    micro_batch_free(&b);
    examples_free(&e);
}

/* Grains are those of the share, whatever a micro-batch has room for: each micro-batch holds the next ones, whole. */
static void test_grains(void **state)
{
    enum { N = 12 };
    static const int lengths[N] = {3, 5, 2, 4, 8, 1, 1, 6, 7, 2, 2, 3}, ends[] = {10, 14, 24, 30, 39, 44};
    static const MicroCapacity grain = {10, 3, 0}, rooms[] = {{10, N, 0}, {17, N, 0}, {24, 5, 0}, {100, N, 0}};
    static const int micros[] = {6, 3, 3, 1};
    int64_t index[N], order[N];
    MicroRange ranges[N];
    Examples e;
    (void)state;
    make_examples(&e, lengths, N);
    for (int i = 0; i < N; i++) index[i] = i;
    for (int c = 0; c < 4; c++) {
        MicroBatch b;
        int64_t rows = 0, seqs = 0, grains = 0;
        int64_t n = micro_split_grains(&e, index, NULL, N, &rooms[c], &grain, 0, order, ranges);
        assert_int_equal(n, micros[c]);
        micro_batch_init(&b, rooms[c]);
        b.grain = grain;
        for (int64_t m = 0; m < n; m++) {
            micro_fill(&b, &e, index, order + ranges[m].first, ranges[m].count, 0, 0);
            for (int g = 0; g < b.n_grains; g++) assert_int_equal(rows + b.grains[g].tokens, ends[grains++]);
            assert_int_equal(b.grains[b.n_grains - 1].tokens, b.n_tokens);
            assert_int_equal(b.grains[b.n_grains - 1].seqs, b.n_seqs);
            for (int s = 0; s < b.n_seqs; s++) assert_int_equal(b.seq_index[s], seqs + s);
            rows += b.n_tokens;
            seqs += b.n_seqs;
        }
        assert_int_equal(grains, 6);
        assert_int_equal(seqs, N);
        micro_batch_free(&b);
    }
    examples_free(&e);
}

static void test_padded_rows(void **state)
{
    static const int lengths[] = {3, 5};
    int64_t index[] = {1, 0}, order[2];
    MicroRange ranges[2];
    MicroCapacity cap = {16, 2, 0}, less = {15, 2, 0};
    Examples e;
    MicroBatch b;
    (void)state;
    make_examples(&e, lengths, 2);
    assert_int_equal(micro_split(&e, index, NULL, 2, &less, 8, order, ranges), 2);
    assert_int_equal(micro_split(&e, index, NULL, 2, &cap, 8, order, ranges), 1);
    micro_batch_init(&b, cap);
    micro_fill(&b, &e, index, order, 2, 8, 99);
    assert_int_equal(b.n_tokens, 16);
    assert_int_equal(b.spans[1], 5);
    assert_int_equal(b.spans[2], 8);
    assert_int_equal(b.spans[3], 11);
    assert_int_equal(b.ids[5], 99);
    assert_int_equal(b.ids[11], 99);
    micro_batch_free(&b);
    examples_free(&e);
}

/* Three masked positions in every sequence: first, middle, last. */
static void mask(Examples *e)
{
    e->masked_offset = mem_array((size_t)e->count + 1, sizeof *e->masked_offset);
    e->masked_place = mem_array((size_t)e->count * 3, sizeof *e->masked_place);
    e->masked_label = mem_array((size_t)e->count * 3, sizeof *e->masked_label);
    for (int64_t i = 0; i < e->count; i++) {
        int32_t length = (int32_t)example_length(e, i), places[] = {0, length / 2, length - 1};
        e->masked_offset[i + 1] = 3 * (i + 1);
        for (int k = 0; k < 3; k++) {
            e->masked_place[3 * i + k] = places[k];
            e->masked_label[3 * i + k] = (int32_t)(1000 * i + k);
        }
    }
}

static void test_masked_rows(void **state)
{
    static const int lengths[] = {4, 6, 5};
    int64_t index[] = {2, 0, 1}, order[3];
    MicroRange ranges[3];
    MicroCapacity roomy = {64, 3, 9}, tight = {64, 3, 8}, cap = {64, 3, 12};
    Examples e;
    MicroBatch b;
    (void)state;
    make_examples(&e, lengths, 3);
    mask(&e);
    assert_int_equal(micro_split(&e, index, NULL, 3, &tight, 0, order, ranges), 2); /* nine positions do not fit */
    assert_int_equal(micro_split(&e, index, NULL, 3, &roomy, 0, order, ranges), 1);
    micro_batch_init(&b, cap);
    for (int round = 0; round < 2; round++) { /* the second fill replaces the first */
        micro_fill(&b, &e, index, order, 3, 0, 0);
        assert_int_equal(b.n_masked, 9);
        assert_int_equal(b.n_read, 12);
        for (int i = 0; i < b.n_read; i++) assert_true(i == 0 || b.read_seq[i] >= b.read_seq[i - 1]);
        for (int s = 0; s < 3; s++)
            for (int k = 0; k < 3; k++) {
                int32_t place = b.masked[3 * s + k], length = (int32_t)lengths[index[s]];
                int32_t expected = k == 0 ? 0 : k == 1 ? length / 2 : length - 1;
                assert_int_equal(b.read[place] - b.read[b.first[s]], expected);
                assert_int_equal(b.read_pos[place], expected);
                assert_int_equal(b.read_seq[place], order[s]);
                assert_int_equal(b.masked_labels[3 * s + k], 1000 * index[s] + k);
            }
        for (int i = 9; i < 12; i++) assert_int_equal(b.masked_labels[i], -1);
    }
    micro_batch_free(&b);
    examples_free(&e);
}

/* Every sequence in one micro-batch, within the capacity of each kind. Two neighbours together waste at most half of
   their rows, as first fit guarantees. */
static void test_split_keeps_every_sequence(void **state)
{
    uint32_t random = 1;
    (void)state;
    for (int round = 0; round < 200; round++) {
        int lengths[40], n = 1 + round % 40;
        int64_t index[40], order[40], total = 0, before = 0;
        MicroRange ranges[40];
        MicroCapacity cap = {64, 7, 15};
        bool seen[40] = {false};
        Examples e;
        for (int i = 0; i < n; i++) {
            random = random * 1664525u + 1013904223u;
            lengths[i] = 1 + (int)(random >> 16) % 32;
            index[i] = i;
        }
        make_examples(&e, lengths, n);
        if (round % 2) mask(&e);
        int64_t count = micro_split(&e, index, NULL, n, &cap, 0, order, ranges);
        for (int64_t m = 0; m < count; m++) {
            assert_int_equal(ranges[m].first, total);
            assert_in_range(ranges[m].count, 1, round % 2 ? 5 : 7);
            int64_t rows = 0;
            for (int64_t i = 0; i < ranges[m].count; i++) {
                int64_t place = order[total + i];
                assert_false(seen[place]);
                assert_true(i == 0 || place > order[total + i - 1]);
                seen[place] = true;
                rows += lengths[place];
            }
            assert_true(rows <= 64);
            if (m > 0 && !(round % 2) && ranges[m - 1].count < 7) assert_true(before + rows > 64);
            total += ranges[m].count;
            before = rows;
        }
        assert_int_equal(total, n);
        examples_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation_is_one), cmocka_unit_test(test_permutation_depends_on_seed_and_epoch),
        cmocka_unit_test(test_epochs_cover_all),   cmocka_unit_test(test_packed_rows),
        cmocka_unit_test(test_padded_rows),        cmocka_unit_test(test_split_keeps_every_sequence),
        cmocka_unit_test(test_masked_rows),        cmocka_unit_test(test_grains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
