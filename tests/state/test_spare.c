/* The next start joins spare folders. This program's unlinkat does as NFS: a file that is open gets another name, and
   cannot be removed before it is closed. */
#include "checkpoint_sample.h"
#include "place.h"
#include "train/keep/spare.h"

#include <sys/syscall.h>

static bool like_nfs;

static bool is_open(int at, const char *name)
{
    struct stat file, open_file;
    if (fstatat(at, name, &file, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(file.st_mode)) return false;
    for (int fd = 3; fd < 64; fd++)
        if (fstat(fd, &open_file) == 0 && open_file.st_ino == file.st_ino && open_file.st_dev == file.st_dev)
            return true;
    return false;
}

int unlinkat(int at, const char *name, int flags)
{
    if (like_nfs && !(flags & AT_REMOVEDIR) && is_open(at, name)) {
        if (strncmp(name, ".nfs", 4) != 0) return renameat(at, name, at, ".nfs0001");
        errno = EBUSY;
        return -1;
    }
    return (int)syscall(SYS_unlinkat, at, name, flags);
}

static int make_nfs(void **state)
{
    like_nfs = true;
    return make_place(state);
}

static int remove_nfs(void **state)
{
    like_nfs = false;
    return remove_place(state);
}

static char *spare(int n) { return spare_path(place, n); }

static void damage(const char *folder, int64_t step, const char *name)
{
    char *path = mem_printf("%s/checkpoint-%lld/%s", folder, (long long)step, name);
    uint64_t size;
    uint8_t byte = 0;
    assert_ok(file_size(path, &size));
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, (off_t)(size / 2)), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(size / 2)), 1);
    close(fd);
    free(path);
}

static bool there(const char *name)
{
    char *path = file_join(place, name);
    bool found = file_exists(path);
    free(path);
    return found;
}

static void test_moves(void **state)
{
    (void)state;
    char *first = spare(0), *second = spare(12);
    assert_ok(sample_save(place, 3, 0));
    assert_ok(sample_save(first, 5, 0));
    assert_ok(sample_save(second, 7, 0));
    assert_int_equal(spare_saved(place, 4), 5);
    assert_int_equal(spare_saved(place, 6), 7);
    assert_ok(spare_join(place));
    assert_true(there("checkpoint-3") && there("checkpoint-5"));
    sample_assert_newest(place, 7);
    assert_false(there("survivors"));
    assert_ok(spare_join(place));
    free(first);
    free(second);
}

/* As on NFS, also while another process waits for the folder's lock. */
static void test_open_lock(void **state)
{
    (void)state;
    char *folder = spare(0), *path = file_join(folder, ".lock");
    FolderLock lock;
    assert_ok(sample_save(folder, 5, 0));
    assert_ok(spare_join(place));
    sample_assert_newest(place, 5);
    assert_false(there("survivors"));

    assert_ok(sample_save(folder, 6, 0));
    assert_ok(lock_take_new(&lock, folder));
    lock_release(&lock);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_ok(spare_join(place));
    sample_assert_newest(place, 6);
    assert_false(there("survivors/0"));
    assert_true(there("survivors/0.joined"));
    assert_int_equal(spare_saved(place, 7), -1);
    /* The next survivors use the name again. */
    assert_ok(sample_save(folder, 7, 0));
    close(fd);
    assert_ok(spare_join(place));
    sample_assert_newest(place, 7);
    assert_false(there("survivors"));
    free(folder);
    free(path);
}

/* The folder cannot be set aside: the contents are moved all the same, and the next start tries again. */
static void test_aside_taken(void **state)
{
    (void)state;
    char *folder = spare(0), *held = mem_printf("%s.joined/held", folder), *aside = file_directory(held);
    assert_ok(file_make_directories(aside));
    assert_ok(file_write_durable(held, "", 0));
    int fd = open(held, O_RDONLY);
    assert_true(fd >= 0);
    assert_ok(sample_save(folder, 5, 0));
    assert_ok(spare_join(place));
    sample_assert_newest(place, 5);
    assert_true(there("survivors/0"));
    close(fd);
    assert_ok(spare_join(place));
    assert_false(there("survivors"));
    free(folder);
    free(held);
    free(aside);
}

static void test_foreign(void **state)
{
    (void)state;
    char *folder = spare(0), *parent = file_directory(folder), *notes = file_join(parent, "notes");
    char *text = file_join(notes, "text"), *readme = file_join(parent, "README"), *number = file_join(parent, "1");
    assert_ok(sample_save(folder, 5, 0));
    assert_ok(sample_save(notes, 6, 0));
    assert_ok(file_write_durable(text, "mine", 4));
    assert_ok(file_write_durable(readme, "mine", 4));
    assert_ok(file_write_durable(number, "mine", 4));
    assert_int_equal(spare_saved(place, 6), -1);
    assert_ok(spare_join(place));
    sample_assert_newest(place, 5);
    assert_false(there("survivors/0"));
    assert_true(there("survivors/notes/text") && there("survivors/notes/checkpoint-6"));
    assert_true(there("survivors/README") && there("survivors/1"));

    assert_ok(file_remove_tree(parent));
    assert_ok(file_write_durable(parent, "mine", 4));
    assert_ok(spare_join(place));
    assert_true(there("survivors"));
    free(folder);
    free(parent);
    free(notes);
    free(text);
    free(readme);
    free(number);
}

/* OUT has the step already: whole, damaged in a file or in the manifest, or as a folder that is not a checkpoint. */
static void test_same_step(void **state)
{
    (void)state;
    static const char *const damaged[] = {NULL, "model.safetensors", "manifest.json"};
    char *folder = spare(0), *path = file_join(place, "checkpoint-5"), *text = file_join(path, "text");
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        assert_ok(sample_save_batch(place, 5, 8, 0));
        assert_ok(sample_save_batch(folder, 5, 9, 0));
        if (damaged[i]) damage(place, 5, damaged[i]);
        assert_ok(spare_join(place));
        Loaded got = sample_load(NULL, place);
        assert_ok(got.status);
        assert_true(got.equal);
        assert_int_equal(got.batch, damaged[i] ? 9 : 8);
        assert_false(there("survivors"));
        assert_ok(file_remove_tree(path));
    }
    assert_ok(file_make_directories(path));
    assert_ok(file_write_durable(text, "mine", 4));
    assert_ok(sample_save(folder, 5, 0));
    assert_ok(spare_join(place));
    sample_assert_newest(place, 5);
    assert_true(there("checkpoint-5.old/text"));
    free(folder);
    free(path);
    free(text);
}

/* A damaged one replaces nothing, and an older step in the same folder still counts. */
static void test_both_damaged(void **state)
{
    (void)state;
    char *folder = spare(0);
    assert_ok(sample_save(folder, 4, 0));
    assert_ok(sample_save(folder, 5, 0));
    assert_ok(sample_save_batch(place, 5, 8, 0));
    damage(folder, 5, "model.safetensors");
    damage(place, 5, "optimizer.safetensors");
    assert_ok(spare_join(place));
    assert_true(there("checkpoint-5"));
    sample_assert_newest(place, 4);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_moves, make_place, remove_place),
        cmocka_unit_test_setup_teardown(test_open_lock, make_nfs, remove_nfs),
        cmocka_unit_test_setup_teardown(test_aside_taken, make_nfs, remove_nfs),
        cmocka_unit_test_setup_teardown(test_foreign, make_place, remove_place),
        cmocka_unit_test_setup_teardown(test_same_step, make_place, remove_place),
        cmocka_unit_test_setup_teardown(test_both_damaged, make_place, remove_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
