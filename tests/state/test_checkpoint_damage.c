/* Damage on the disk: flipped bits, cut, grown, missing and mixed-up files. All of it is noticed and named, or changes
   nothing; the checkpoint before is taken. */
#include "checkpoint_sample.h"

static char *place, *newer, *older; /* this test's directory; checkpoint-8 and checkpoint-7 in it */

static const char *const files[] = {"manifest.json", "state.json", "config.json", "model.safetensors",
                                    "optimizer.safetensors"};
enum { MANIFEST, STATE, CONFIG, MODEL, OPTIMIZER, N_FILES };

static int set_up(void **state)
{
    (void)state;
    place = testing_directory();
    newer = file_join(place, "checkpoint-8");
    older = file_join(place, "checkpoint-7");
    if (sample_save(place, 7, 2) != OK || sample_save(place, 8, 2) != OK) return -1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    Status status = file_remove_tree(place);
    free(place);
    free(newer);
    free(older);
    return status == OK ? 0 : -1;
}

static void read_whole(const char *folder, int file, Buf *text)
{
    char *path = file_join(folder, files[file]);
    assert_ok(file_read(path, 1 << 20, text));
    free(path);
}

/* Not durable, and quick. */
static void write_whole(const char *folder, int file, const void *data, size_t len)
{
    char *path = file_join(folder, files[file]);
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    assert_int_equal(ftruncate(fd, (off_t)len), 0); /* not O_TRUNC: a journal would flush the file then */
    close(fd);
    free(path);
}

/* The newer one is damaged in this file, and the message says so. */
static void assert_damaged(int file)
{
    Loaded got = sample_load(newer, NULL);
    assert_status(got.status, E_CORRUPT);
    assert_message(newer);
    assert_message(files[file]);
}

static void assert_fallback(void)
{
    sample_assert_newest(place, 7);
    char *path;
    assert_ok(checkpoint_newest(place, NULL, &path));
    assert_string_equal(path, older);
    free(path);
}

static void flip_and_look(int file, Buf *text, size_t bit)
{
    text->data[bit / 8] ^= (char)(1 << bit % 8);
    write_whole(newer, file, text->data, text->len);
    assert_damaged(file);
    if (bit % 97 == 0) assert_fallback();
    text->data[bit / 8] ^= (char)(1 << bit % 8);
}

/* Every bit of what is read as text, a tensor file's header included; random ones of the rest. */
static void test_flipped_bits(void **state)
{
    (void)state;
    int every = 0, some = 0;
    uint64_t random = 5;
    Buf text = {0};
    for (int file = 0; file < N_FILES; file++) {
        read_whole(newer, file, &text);
        size_t whole = text.len;
        if (file == OPTIMIZER) whole = 8;
        if (file == MODEL) {
            whole = 8 + (size_t)(unsigned char)text.data[0] + 256 * (size_t)(unsigned char)text.data[1];
            assert_true(whole < text.len);
        }
        for (size_t bit = 0; bit < whole * 8; bit++, every++) flip_and_look(file, &text, bit);
        for (int i = 0; file >= MODEL && i < 1500; i++, some++)
            flip_and_look(file, &text, whole * 8 + testing_random(&random) % ((text.len - whole) * 8));
        write_whole(newer, file, text.data, text.len);
        sample_assert_newest(place, 8);
    }
    print_message("%d bits in order and %d at random flipped, one at a time\n", every, some);
    buf_free(&text);
}

static void test_cut_and_grown(void **state)
{
    (void)state;
    Buf text = {0};
    for (int file = 0; file < N_FILES; file++) {
        read_whole(newer, file, &text);
        size_t stride = text.len / 200 + 1;
        for (size_t len = 0; len < text.len; len += stride) {
            write_whole(newer, file, text.data, len);
            assert_damaged(file);
            if (len % (16 * stride) == 0) assert_fallback();
        }
        write_whole(newer, file, text.data, text.len + 1); /* the NUL behind it */
        assert_damaged(file);
        write_whole(newer, file, text.data, text.len);
        sample_assert_newest(place, 8);
    }
    buf_free(&text);
}

static void test_missing_and_strange_files(void **state)
{
    (void)state;
    for (int file = 0; file < N_FILES; file++) {
        char *path = file_join(newer, files[file]), *moved = file_join(place, "moved");
        assert_int_equal(rename(path, moved), 0);
        assert_damaged(file);
        assert_fallback();
        assert_int_equal(mkdir(path, 0700), 0);
        assert_damaged(file);
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0); /* not waited for */
        assert_damaged(file);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink(moved, path), 0); /* a user may have moved it to another disk */
        sample_assert_newest(place, 8);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rename(moved, path), 0);
        free(path);
        free(moved);
    }
    sample_assert_newest(place, 8);
}

/* Files of two steps in one folder: never a mixture. */
static void test_mixed_files(void **state)
{
    (void)state;
    Buf other = {0};
    for (unsigned set = 1; set < 1u << N_FILES; set++) { /* these come from the other step */
        Buf kept[N_FILES] = {{0}};
        for (int file = 0; file < N_FILES; file++) {
            read_whole(newer, file, &kept[file]);
            if (!(set & 1u << file)) continue;
            read_whole(older, file, &other);
            write_whole(newer, file, other.data, other.len);
        }
        Loaded got = sample_load(newer, NULL);
        if (set == 1u << CONFIG) { /* the same in both */
            assert_ok(got.status);
            assert_true(got.equal && got.step == 8);
        } else { /* all of them: whole, but not what the folder's name says */
            assert_status(got.status, E_CORRUPT);
            assert_message(newer);
            assert_fallback();
        }
        for (int file = 0; file < N_FILES; file++) {
            write_whole(newer, file, kept[file].data, kept[file].len);
            buf_free(&kept[file]);
        }
    }
    sample_assert_newest(place, 8);
    buf_free(&other);
}

static void test_swapped_folders(void **state)
{
    (void)state;
    char *moved = file_join(place, "moved"), *path;
    assert_int_equal(rename(newer, moved), 0);
    assert_int_equal(rename(older, newer), 0);
    assert_int_equal(rename(moved, older), 0);
    Loaded got = sample_load(newer, NULL);
    assert_status(got.status, E_CORRUPT);
    assert_message("manifest.json: is of step 7, the folder's name says 8: mixed up");
    got = sample_load(NULL, place);
    assert_status(got.status, E_CORRUPT);
    assert_int_equal(status_exit_code(got.status), 79);
    assert_message("all 2 checkpoints are damaged (the newest is");
    assert_message(newer);
    assert_status(checkpoint_newest(place, NULL, &path), E_CORRUPT);
    assert_null(path);
    free(moved);
}

/* The warning that a user sees names file and what differs. */
static int load_damaged(void *arg)
{
    (void)arg;
    log_set_level(LOG_INFO);
    Loaded got = sample_load(NULL, place);
    return got.status == OK && got.step == 7 && got.equal ? 0 : 1;
}

static void test_warning(void **state)
{
    (void)state;
    Buf text = {0}, errors = {0};
    read_whole(newer, OPTIMIZER, &text);
    text.data[text.len - 1] ^= 1;
    write_whole(newer, OPTIMIZER, text.data, text.len);
    assert_int_equal(testing_child(load_damaged, NULL, &errors), 0);
    char *expected = mem_printf("warning: %s/optimizer.safetensors: its digest is ", newer);
    assert_non_null(strstr(errors.data, expected));
    assert_non_null(strstr(errors.data, ", the manifest says "));
    assert_non_null(strstr(errors.data, ": damaged; looking for the checkpoint before it"));
    /* Who wants only the weights is not kept from them. */
    ParamTable t = sample_table();
    float *weights = mem_array((size_t)t.size, sizeof *weights);
    assert_ok(checkpoint_load(newer, &t, weights, NULL, NULL, NULL));
    free(weights);
    free(expected);
    buf_free(&errors);
    buf_free(&text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_flipped_bits), TEST(test_cut_and_grown),   TEST(test_missing_and_strange_files),
        TEST(test_mixed_files),  TEST(test_swapped_folders), TEST(test_warning),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
