/* Damage on the disk: flipped bits, truncated, grown, missing and mixed-up files. Readers detect and name all damage
   that changes anything, and take the previous checkpoint. */
#include "checkpoint_sample.h"
#include "place.h"

static char *newer, *older; /* checkpoint-8 and checkpoint-7 in `place` */

static const char *const files[] = {"manifest.json", "state.json", "config.json", "model.safetensors",
                                    "optimizer.safetensors"};
enum { MANIFEST, STATE, CONFIG, MODEL, OPTIMIZER, N_FILES };

static int set_up(void **state)
{
    (void)make_place(state);
    newer = file_join(place, "checkpoint-8");
    older = file_join(place, "checkpoint-7");
    if (sample_save(place, 7, 2) != OK || sample_save(place, 8, 2) != OK) return -1;
    return 0;
}

static int tear_down(void **state)
{
    free(newer);
    free(older);
    return remove_place(state);
}

static void read_whole(const char *folder, int file, Buf *text)
{
    char *path = file_join(folder, files[file]);
    assert_ok(file_read(path, 1 << 20, text));
    free(path);
}

/* Fast, because not durable. */
static void write_whole(const char *folder, int file, const void *data, size_t len)
{
    char *path = file_join(folder, files[file]);
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    assert_int_equal(ftruncate(fd, (off_t)len), 0); /* not O_TRUNC, which would make a journal flush the file */
    close(fd);
    free(path);
}

/* The message must report damage in this file of the newer checkpoint. */
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
    assert_ok(checkpoint_newest(place, 0, 0, NULL, &path));
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

/* Every bit of the text files and of the tensor files' headers, with a sanitizer every fifth; random bits of the rest.
 */
static void test_flipped_bits(void **state)
{
    (void)state;
    int every = 0, some = 0, rounds = testing_brief() ? 300 : 1500;
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
        for (size_t bit = 0; bit < whole * 8; bit += testing_brief() ? 5 : 1, every++) flip_and_look(file, &text, bit);
        for (int i = 0; file >= MODEL && i < rounds; i++, some++)
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
        size_t stride = text.len / (testing_brief() ? 50 : 200) + 1;
        for (size_t len = 0; len < text.len; len += stride) {
            write_whole(newer, file, text.data, len);
            assert_damaged(file);
            if (len % (16 * stride) == 0) assert_fallback();
        }
        write_whole(newer, file, text.data, text.len + 1); /* with its NUL */
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
        assert_int_equal(mkfifo(path, 0600), 0); /* reading must not block */
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

/* Files of two steps in one folder: never accepted together. */
static void test_mixed_files(void **state)
{
    (void)state;
    Buf other = {0};
    for (unsigned set = 1; set < 1u << N_FILES; set++) { /* these files come from the other step */
        Buf kept[N_FILES] = {{0}};
        for (int file = 0; file < N_FILES; file++) {
            read_whole(newer, file, &kept[file]);
            if (!(set & 1u << file)) continue;
            read_whole(older, file, &other);
            write_whole(newer, file, other.data, other.len);
        }
        Loaded got = sample_load(newer, NULL);
        if (set == 1u << CONFIG) { /* equal in both */
            assert_ok(got.status);
            assert_true(got.equal && got.step == 8);
        } else { /* all files: whole, but of another step than the folder's name */
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
    assert_status(checkpoint_newest(place, 0, 0, NULL, &path), E_CORRUPT);
    assert_null(path);
    free(moved);
}

/* The warning for the user names the file and the difference. */
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
    free(expected);
    buf_free(&errors);
    buf_free(&text);
}

/* What was good when it was verified is read again: any part, from any folder with the same files. Other files, and
   other bytes in a block that is read, are noticed. */
static void test_other_bytes_later(void **state)
{
    (void)state;
    enum { PART = 50 };
    static const ParamTable none;
    ParamTable t = sample_table();
    const ParamTable *params[N_SPACES] = {&t, &none};
    CheckpointSeen seen = {0};
    CheckpointReader *reader = NULL;
    Buf text = {0};
    bool sets;
    float *want = mem_array((size_t)t.size, sizeof *want), part[PART];
    char *copy = file_join(place, "copy");
    assert_ok(checkpoint_verify(newer, &seen));
    assert_ok(checkpoint_find_tensors(newer, params, &seen.files, &sets));
    assert_false(sets);
    assert_status(checkpoint_open(older, params, &seen.files, &reader), E_CORRUPT);
    assert_message("another checkpoint than the one that was verified");
    assert_int_equal(rename(newer, copy), 0);
    assert_ok(checkpoint_open(copy, params, &seen.files, &reader));
    for (int a = 0; a < 3; a++) {
        sample_fill(&t, 8, a, want);
        for (int64_t at = 0; at < t.size; at += PART) {
            int64_t end = at + PART < t.size ? at + PART : t.size;
            assert_ok(checkpoint_read(reader, a, at, end, part));
            assert_memory_equal(part, want + at, (size_t)(end - at) * sizeof *part);
        }
    }
    checkpoint_close(reader);
    read_whole(copy, OPTIMIZER, &text);
    text.data[text.len - 1] ^= 1;
    write_whole(copy, OPTIMIZER, text.data, text.len);
    assert_ok(checkpoint_open(copy, params, &seen.files, &reader));
    assert_ok(checkpoint_read(reader, 0, 0, PART, part));
    assert_status(checkpoint_read(reader, 1, 0, PART, part), E_CORRUPT);
    assert_message("copy/optimizer.safetensors: bytes 0 to ");
    assert_message("are not those that were verified: damaged");
    checkpoint_close(reader);
    write_whole(copy, OPTIMIZER, text.data, text.len - 1);
    assert_status(checkpoint_open(copy, params, &seen.files, &reader), E_CORRUPT);
    checkpoint_seen_free(&seen);
    buf_free(&text);
    free(want);
    free(copy);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_flipped_bits),      TEST(test_cut_and_grown),   TEST(test_missing_and_strange_files),
        TEST(test_mixed_files),       TEST(test_swapped_folders), TEST(test_warning),
        TEST(test_other_bytes_later),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
