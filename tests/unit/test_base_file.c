/* Files: reading, and writing that is durable whichever call fails. This program replaces write, fsync, rename and
   close by functions that record the calls, shorten writes and fail on demand. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "testing.h"

static struct {
    char trace[256]; /* one letter per call */
    size_t calls;
    size_t fail_at; /* the call, from 1, that fails with `error`; 0: none */
    int error;
    bool watch, trickle; /* trickle: every other write is interrupted, the others take 1000 bytes at most */
} fault;

static bool fails_here(char letter)
{
    if (!fault.watch) return false;
    if (fault.calls < sizeof fault.trace - 1) fault.trace[fault.calls] = letter;
    fault.calls++;
    if (fault.calls != fault.fail_at) return false;
    errno = fault.error;
    return true;
}

ssize_t write(int fd, const void *data, size_t len)
{
    if (fails_here('w')) return -1;
    if (fault.watch && fault.trickle) {
        if (fault.calls % 2) {
            errno = EINTR;
            return -1;
        }
        if (len > 1000) len = 1000;
    }
    return syscall(SYS_write, fd, data, len);
}

int fsync(int fd)
{
    struct stat st;
    bool directory = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    return fails_here(directory ? 'd' : 's') ? -1 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to) { return fails_here('r') ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to); }

static void watch(size_t fail_at, int error)
{
    memset(&fault, 0, sizeof fault);
    fault.watch = true;
    fault.fail_at = fail_at;
    fault.error = error;
}

static char *place; /* this test's directory */

static int set_up(void **state)
{
    (void)state;
    place = testing_directory();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fault.watch = false;
    Status status = file_remove_tree(place);
    free(place);
    return status == OK ? 0 : -1;
}

static void assert_content(const char *path, const void *data, size_t len)
{
    Buf b = {0};
    assert_ok(file_read(path, 1 << 24, &b));
    assert_int_equal(b.len, len);
    assert_memory_equal(b.data, data, len);
    buf_free(&b);
}

static size_t entries(void)
{
    size_t n = 0;
    char *command = mem_printf("ls -A '%s' | wc -l", place);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%zu", &n), 1);
    pclose(pipe);
    free(command);
    return n;
}

static uint8_t *sample(size_t len)
{
    uint8_t *data = mem_alloc(len);
    uint64_t seed = 11;
    for (size_t i = 0; i < len; i++) data[i] = (uint8_t)(testing_random(&seed) >> 56);
    return data;
}

/* ---- Writing ---- */

static void test_writes_in_any_pieces(void **state)
{
    (void)state;
    const size_t total = 3 * FILE_BLOCK + 777;
    static const size_t pieces[] = {1000, 4096, FILE_BLOCK - 1, FILE_BLOCK, FILE_BLOCK + 1, 3 * FILE_BLOCK + 777};
    uint8_t *data = sample(total);
    char *path = file_join(place, "data");
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        FileWriter w;
        assert_ok(file_writer_open(&w, path));
        for (size_t at = 0; at < total; at += pieces[i]) {
            assert_ok(file_writer_write(&w, data + at, total - at < pieces[i] ? total - at : pieces[i]));
        }
        assert_ok(file_writer_write(&w, NULL, 0));
        Digest digest, again;
        uint64_t size, size_again;
        assert_ok(file_writer_close(&w, &digest, &size));
        assert_null(w.path);
        file_writer_abandon(&w); /* a closed one */
        assert_int_equal(size, total);
        assert_true(digest_equal(digest, digest_of(data, total)));
        assert_content(path, data, total);
        assert_ok(file_digest(path, &again, &size_again));
        assert_true(digest_equal(digest, again));
        assert_int_equal(size_again, total);
    }
    assert_int_equal(entries(), 1);
    free(path);
    free(data);
}

static void test_order_of_calls(void **state)
{
    (void)state;
    char *path = file_join(place, "data"), *expected = mem_printf("%s.tmp.%ld", path, (long)getpid());
    FileWriter w = {0};
    file_writer_abandon(&w); /* a zeroed one */
    assert_ok(file_writer_open(&w, path));
    assert_string_equal(w.temporary, expected);
    assert_true(fcntl(w.fd, F_GETFD) & FD_CLOEXEC);
    watch(0, 0);
    assert_ok(file_writer_write(&w, "abc", 3));
    assert_false(file_exists(path));
    assert_ok(file_writer_close(&w, NULL, NULL));
    fault.watch = false;
    assert_string_equal(fault.trace, "wsrd");
    assert_content(path, "abc", 3);
    assert_ok(file_write_durable(path, "", 0));
    assert_content(path, "", 0);
    free(expected);
    free(path);
}

static void test_short_and_interrupted_writes(void **state)
{
    (void)state;
    const size_t total = 2 * FILE_BLOCK + 5;
    uint8_t *data = sample(total);
    char *path = file_join(place, "data");
    watch(0, 0);
    fault.trickle = true;
    assert_ok(file_write_durable(path, data, total));
    fault.watch = false;
    assert_true(fault.calls > 4000);
    assert_content(path, data, total);
    free(path);
    free(data);
}

/* Each call in turn fails, with several errors. The old file stays (the new one, if only the directory's fsync failed)
   and no other file remains. */
static void test_every_call_failing(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS};
    const size_t total = 2 * FILE_BLOCK + 5;
    uint8_t *data = sample(total);
    char *path = file_join(place, "data");
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
        for (size_t call = 1;; call++) {
            assert_ok(file_write_durable(path, "old", 3));
            watch(call, errors[e]);
            FileWriter w;
            assert_ok(file_writer_open(&w, path));
            Status status = OK;
            for (int part = 0; part < 2 && status == OK; part++) {
                status = file_writer_write(&w, part ? data + 100 : data, part ? total - 100 : 100);
            }
            if (status != OK) {
                assert_status(file_writer_write(&w, "more", 4), E_IO); /* every later write fails */
                assert_message("after an error");
                assert_status(file_writer_close(&w, NULL, NULL), E_IO);
                assert_message("not put in place");
            } else {
                status = file_writer_close(&w, NULL, NULL);
                if (status != OK) assert_message(strerror(errors[e]));
                bool full = errors[e] == ENOSPC || errors[e] == EDQUOT;
                if (status != OK && full && strchr("ws", fault.trace[call - 1]))
                    assert_message(" bytes are free there");
            }
            fault.watch = false;
            assert_null(w.path);
            assert_int_equal(entries(), 1);
            if (call > strlen(fault.trace)) { /* no call was left to fail */
                assert_ok(status);
                assert_string_equal(fault.trace, "wwwsrd");
                break;
            }
            assert_status(status, E_IO);
            if (fault.trace[call - 1] == 'd')
                assert_content(path, data, total);
            else
                assert_content(path, "old", 3);
        }
    }
    free(path);
    free(data);
}

static void test_full_disk(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        print_message("skipped: there is no /dev/full\n");
        skip();
    }
    char *path = file_join(place, "data"), *temporary = mem_printf("%s.tmp.%ld", path, (long)getpid());
    uint8_t *data = sample(FILE_BLOCK + 5);
    assert_ok(file_write_durable(path, "old", 3));
    assert_int_equal(symlink("/dev/full", temporary), 0);
    assert_status(file_write_durable(path, data, FILE_BLOCK + 5), E_IO); /* while writing */
    assert_message(path);
    assert_message("No space left on device: at least 1048576 more bytes are needed after the 0 already written, ");
    assert_message(" bytes are free there");
    assert_int_equal(symlink("/dev/full", temporary), 0);
    assert_status(file_write_durable(path, data, 5), E_IO); /* while closing */
    assert_message("at least 5 more bytes are needed");
    assert_int_equal(symlink("/dev/null", temporary), 0); /* takes bytes, but cannot be flushed */
    assert_status(file_write_durable(path, data, 5), E_IO);
    assert_message("cannot flush to the disk");
    assert_content(path, "old", 3);
    assert_int_equal(entries(), 1);
    free(data);
    free(temporary);
    free(path);
}

/* An error of pages on their way is the write's: fsync may not say it again. */
static bool lose_pages;

int sync_file_range(int fd, off64_t offset, off64_t count, unsigned flags)
{
    if (!lose_pages) return (int)syscall(SYS_sync_file_range, fd, offset, count, flags);
    errno = EIO;
    return -1;
}

static void test_lost_pages(void **state)
{
    (void)state;
    enum { BYTES = 5 << 20 };
    char *path = file_join(place, "data"), *bytes = mem_alloc(BYTES);
    FileWriter w;
    assert_ok(file_write_durable(path, "old", 3));
    assert_ok(file_writer_open(&w, path));
    lose_pages = true;
    assert_status(file_writer_write(&w, bytes, BYTES), E_IO);
    lose_pages = false;
    assert_status(file_writer_close(&w, NULL, NULL), E_IO);
    assert_content(path, "old", 3);
    MEM_FREE(path, bytes);
}

static void test_abandon(void **state)
{
    (void)state;
    char *path = file_join(place, "data");
    FileWriter w;
    assert_ok(file_write_durable(path, "old", 3));
    assert_ok(file_writer_open(&w, path));
    assert_ok(file_writer_write(&w, "new", 3));
    assert_int_equal(entries(), 2);
    file_writer_abandon(&w);
    assert_null(w.path);
    assert_int_equal(entries(), 1);
    assert_content(path, "old", 3);
    free(path);
}

static int writes_as_nobody(void *path)
{
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 3;
    FileWriter w;
    Status status = file_writer_open(&w, path);
    dprintf(STDERR_FILENO, "%s", status_message());
    if (status != E_IO || w.path) return 1;
    return file_make_directories(path) == E_IO ? 0 : 2;
}

/* Devices, pipes and links stay devices, pipes and links. */
static void test_devices_and_links(void **state)
{
    (void)state;
    char *pipe_path = file_join(place, "pipe"), *link_path = file_join(place, "link"), *path = file_join(place, "data");
    char text[8];
    struct stat st;
    FileWriter w;
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    int reader = open(pipe_path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_ok(file_write_durable(pipe_path, "through", 7));
    assert_int_equal(read(reader, text, sizeof text), 7);
    assert_memory_equal(text, "through", 7);
    assert_ok(file_writer_open(&w, pipe_path));
    file_writer_abandon(&w);
    assert_int_equal(lstat(pipe_path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    close(reader);

    assert_int_equal(symlink("data", link_path), 0);
    assert_ok(file_write_durable(path, "old", 3));
    assert_ok(file_write_durable(link_path, "new", 3));
    assert_content(path, "new", 3);
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(entries(), 3); /* no temporary is left */

    assert_int_equal(file_write_durable("/dev/full", "x", 1), E_IO);
    assert_non_null(strstr(status_message(), "/dev/full"));
    assert_int_equal(stat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    free(pipe_path);
    free(link_path);
    free(path);
}

static void test_temporaries(void **state)
{
    (void)state;
    static const char *const stay[] = {"a.tmp", "a.tmp.", "a.tmp.12x", "tmp.12", ".tmp.3", "checkpoint-3.tmp", "a.12"};
    static const char *const go[] = {"a.tmp.12", "model.safetensors.tmp.1234567"};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++) {
        char *path = file_join(place, stay[i]);
        assert_ok(file_write_durable(path, "x", 1));
        free(path);
    }
    int before = entries();
    for (size_t i = 0; i < sizeof go / sizeof *go; i++) {
        char *path = file_join(place, go[i]);
        assert_ok(file_write_durable(path, "x", 1));
        free(path);
    }
    assert_int_equal(entries(), before + 2);
    assert_ok(file_remove_temporaries(place));
    assert_int_equal(entries(), before);
    char *none = file_join(place, "none");
    assert_ok(file_remove_temporaries(none));
    free(none);
}

static void test_places_that_take_no_file(void **state)
{
    (void)state;
    char *file = file_join(place, "file"), *under = file_join(file, "x"), *missing = file_join(place, "no/x"),
         *folder = file_join(place, "folder"), *inside = file_join(folder, "x");
    assert_ok(file_write_durable(file, "a", 1));
    assert_status(file_write_durable(under, "b", 1), E_IO);
    assert_message(under);
    assert_message("Not a directory");
    assert_status(file_write_durable(missing, "b", 1), E_IO);
    assert_message("No such file or directory");
    assert_status(file_make_directories(under), E_IO);
    assert_message("Not a directory");
    assert_ok(file_make_directories(inside));
    assert_status(file_write_durable(folder, "b", 1), E_IO); /* a folder has that name */
    assert_message("a folder; expected the name of a file");
    assert_int_equal(entries(), 2);

    Buf errors = {0};
    char *closed = file_join(inside, "data");
    assert_int_equal(chmod(place, 0755), 0);
    assert_int_equal(chmod(inside, 0555), 0);
    assert_int_equal(testing_child(writes_as_nobody, closed, &errors), 0);
    assert_non_null(strstr(errors.data, closed));
    assert_non_null(strstr(errors.data, "Permission denied"));
    assert_int_equal(chmod(inside, 0755), 0);
    buf_free(&errors);
    free(closed), free(inside), free(folder), free(missing), free(under), free(file);
}

/* ---- Reading ---- */

static void test_maps(void **state)
{
    (void)state;
    char *path = file_join(place, "data"), *pipe_path = file_join(place, "pipe");
    uint8_t *data = sample(10000);
    FileMap map;
    assert_ok(file_write_durable(path, data, 10000));
    assert_ok(file_map(&map, path));
    assert_int_equal(map.size, 10000);
    assert_memory_equal(map.data, data, 10000);
    file_unmap(&map);
    assert_null(map.data);
    file_unmap(&map);
    assert_ok(file_write_durable(path, "", 0));
    assert_ok(file_map(&map, path));
    assert_int_equal(map.size, 0);
    assert_non_null(map.data);
    file_unmap(&map);
    assert_status(file_map(&map, place), E_IO);
    assert_message("expected a regular file");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_status(file_map(&map, pipe_path), E_IO); /* no wait for a writer */
    assert_message("expected a regular file");
    assert_ok(file_remove_tree(path));
    assert_status(file_map(&map, path), E_IO);
    assert_message(path);
    assert_message("No such file");
    assert_null(map.data);
    free(data), free(pipe_path), free(path);
}

static void test_reads(void **state)
{
    (void)state;
    const size_t total = 300 * 1024 + 1;
    char *path = file_join(place, "data");
    uint8_t *data = sample(total);
    Buf b = {0};
    assert_ok(file_write_durable(path, data, total));
    assert_ok(file_read(path, total, &b));
    assert_int_equal(b.len, total);
    assert_memory_equal(b.data, data, total);
    assert_ok(file_write_durable(path, "short", 5));
    assert_ok(file_read(path, 5, &b)); /* replaces the first contents */
    assert_string_equal(b.data, "short");
    assert_status(file_read(path, 4, &b), E_FORMAT);
    assert_message(path);
    assert_message("larger than the 4 bytes");
    assert_ok(file_write_durable(path, "", 0));
    assert_ok(file_read(path, 0, &b));
    assert_string_equal(b.data, "");
    assert_status(file_read(place, 100, &b), E_IO);
    assert_message("expected a regular file, found a folder");
    buf_free(&b);
    uint64_t size = 7;
    assert_ok(file_size(path, &size));
    assert_int_equal(size, 0);
    assert_status(file_size(place, &size), E_IO);
    assert_ok(file_remove_tree(path));
    assert_status(file_size(path, &size), E_IO);
    assert_status(file_read(path, 100, &b), E_IO);
    assert_status(file_digest(path, NULL, NULL), E_IO);
    buf_free(&b);
    free(data), free(path);
}

/* ---- Directories and names ---- */

static void test_directories(void **state)
{
    (void)state;
    char *deep = file_join(place, "a//b/c/"), *b = file_join(place, "a/b"), *moved = file_join(place, "moved"),
         *outside = file_join(place, "outside"), *kept = file_join(outside, "kept"), *link = file_join(moved, "link");
    watch(0, 0);
    assert_ok(file_make_directories(deep));
    fault.watch = false;
    assert_string_equal(fault.trace, "ddd"); /* each new one is made durable in its parent */
    assert_true(file_is_directory(b));
    assert_ok(file_make_directories(deep));
    assert_ok(file_make_directories("."));
    assert_ok(file_make_directories("/"));
    assert_status(file_make_directories(""), E_IO);
    watch(0, 0);
    assert_ok(file_rename(b, moved));
    fault.watch = false;
    assert_string_equal(fault.trace, "rdd"); /* both directories */
    assert_false(file_exists(b));
    assert_status(file_rename(b, moved), E_IO);
    assert_message(b);

    assert_ok(file_make_directories(outside));
    assert_ok(file_write_durable(kept, "k", 1));
    assert_int_equal(symlink(outside, link), 0);
    assert_ok(file_remove_tree(moved)); /* with a full folder and a link in it; what the link points to stays */
    assert_false(file_exists(moved));
    assert_true(file_exists(kept));
    assert_ok(file_remove_tree(moved));
    assert_ok(file_remove_tree(kept));
    assert_false(file_exists(kept));
    char *slash = mem_printf("%s//", outside);
    assert_ok(file_remove_tree(slash));
    assert_false(file_exists(outside));
    static const char *const never[] = {"", "/", "//", ".", "..", "./", "a/..", "a/."};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        assert_status(file_remove_tree(never[i]), E_IO);
        assert_message("refusing");
    }
    watch(1, EIO);
    assert_status(file_sync_directory(place), E_IO);
    watch(1, EINTR); /* a second try */
    assert_ok(file_sync_directory(place));
    fault.watch = false;
    assert_string_equal(fault.trace, "dd");
    assert_status(file_sync_directory(outside), E_IO);
    free(slash), free(link), free(kept), free(outside), free(moved), free(b), free(deep);
}

static void test_free_bytes(void **state)
{
    (void)state;
    char *later = file_join(place, "not/yet/there");
    uint64_t here = 0, there = 0;
    assert_ok(file_free_bytes(place, &here));
    assert_ok(file_free_bytes(later, &there));
    assert_ok(file_free_bytes("not-here-yet", &there));
    assert_true(here > 0 && there > 0);
    char *file = file_join(place, "file"), *under = file_join(file, "x");
    assert_ok(file_write_durable(file, "a", 1));
    assert_status(file_free_bytes(under, &there), E_IO);
    free(under), free(file), free(later);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *path, *directory, *basename;
    } cases[] = {{"a/b", "a", "b"}, {"b", ".", "b"},     {"/b", "/", "b"},  {"/", "/", ""},
                 {"", ".", ""},     {"a//b", "a", "b"},  {"a/b/", "a", ""}, {"/a/b.c", "/a", "b.c"},
                 {"//b", "/", "b"}, {"../x", "..", "x"}, {"a/", ".", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *directory = file_directory(cases[i].path);
        assert_string_equal(directory, cases[i].directory);
        assert_string_equal(file_basename(cases[i].path), cases[i].basename);
        free(directory);
    }
    static const char *const joins[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}, {".", "b", "./b"}};
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++) {
        char *joined = file_join(joins[i][0], joins[i][1]);
        assert_string_equal(joined, joins[i][2]);
        free(joined);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_writes_in_any_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_order_of_calls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_short_and_interrupted_writes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_call_failing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lost_pages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_abandon, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_temporaries, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_devices_and_links, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_places_that_take_no_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_maps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_directories, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_free_bytes, set_up, tear_down),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
