/* base/mapping: a file that becomes shorter while it is mapped ends nothing. */
#include "base/mapping.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"
#include "testing.h"

enum { PAGE = 4096, PAGES = 8 };

static int make_file(const char *folder, char *path, size_t room)
{
    snprintf(path, room, "%s/file", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (int i = 0; i < PAGES; i++) {
        char page[PAGE];
        memset(page, 'a' + i, sizeof page);
        assert_int_equal(write(fd, page, sizeof page), sizeof page);
    }
    return fd;
}

static void test_cut(void **state)
{
    char path[300];
    int fd = make_file(*state, path, sizeof path);
    char *shared = mapping_open(fd, PAGE * PAGES, true);
    const char *read_only = mapping_open(fd, PAGE * PAGES, false);
    assert_true(shared && read_only && shared[7 * PAGE] == 'h' && read_only[PAGE] == 'b');
    assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
    assert_false(mapping_cut(shared) || mapping_cut(read_only));
    assert_int_equal(read_only[5 * PAGE + 1], 0);
    assert_true(mapping_cut(read_only) && !mapping_cut(shared));
    assert_int_equal(read_only[PAGE], 'b'); /* what is still there */
    for (int i = 2; i < PAGES; i++) shared[i * PAGE + 3] = 'x';
    assert_true(mapping_cut(shared));
    assert_int_equal(shared[7 * PAGE + 3], 'x');
    mapping_close(shared, PAGE * PAGES);
    mapping_close(read_only, PAGE * PAGES);
    assert_false(mapping_cut(shared));
    mapping_close(NULL, 0);
    close(fd);
}

static void *touch(void *at) { return (*(char *)at = 'x', at); }

static void test_cut_in_a_thread(void **state)
{
    char path[300];
    pthread_t thread;
    int fd = make_file(*state, path, sizeof path);
    char *shared = mapping_open(fd, PAGE * PAGES, true);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(thread_start(&thread, touch, shared + 3 * PAGE), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(mapping_cut(shared));
    mapping_close(shared, PAGE * PAGES);
    close(fd);
}

static void test_map_of_a_file(void **state)
{
    char path[300];
    FileMap map;
    int fd = make_file(*state, path, sizeof path);
    assert_ok(file_map(&map, path));
    assert_ok(file_map_check(&map, path));
    assert_int_equal(ftruncate(fd, PAGE), 0);
    assert_int_equal(map.data[6 * PAGE], 0);
    assert_status(file_map_check(&map, path), E_IO);
    assert_non_null(strstr(status_message(), "became shorter than 32768 bytes"));
    file_unmap(&map);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cut, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_cut_in_a_thread, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_map_of_a_file, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
