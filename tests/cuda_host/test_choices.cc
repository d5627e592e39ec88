/* Remembered algorithms: found again by the next run on the same GPU and library only; a damaged file, a folder that
   cannot be written and no folder at all harm nothing. */
#include "cuda_host/testing_host.h"

#include <dirent.h>

#include "kernels/cuda/choices.cu"

static ProductShape shape_of(int64_t m, bool transposed)
{
    ProductShape s = {};
    s.m = m, s.n = 36, s.k = 52, s.lda = 52, s.ldb = 36, s.ldc = 36;
    s.b_transposed = transposed;
    s.in = s.out = BF16;
    return s;
}

static Choice choice_of(uint64_t first)
{
    Choice c = {};
    for (uint64_t i = 0; i < CHOICE_WORDS; i++) c.algorithm[i] = first + i * 0x0123456789abcdefu;
    c.seconds = 12.5e-6;
    return c;
}

static void with_cache(const char *folder) { assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0); }

/* The only file of folder/cairn; caller frees. */
static char *only_file(const char *folder)
{
    char *inner = file_join(folder, "cairn"), *found = NULL;
    DIR *d = opendir(inner);
    assert_non_null(d);
    for (const dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        assert_null(found);
        found = file_join(inner, e->d_name);
    }
    closedir(d);
    free(inner);
    assert_non_null(found);
    return found;
}

static void test_kept(void **)
{
    char *folder = testing_directory();
    ProductShape a = shape_of(64, false), b = shape_of(64, true), c = shape_of(128, false);
    Choice choice, want = choice_of(~(uint64_t)7);
    with_cache(folder);
    choices_open("GPU 1, library 2");
    assert_true(choices_kept());
    assert_false(choices_find(&a, &choice));
    choices_add(&a, &want);
    choices_close(); /* saves */
    choices_open("GPU 1, library 2");
    assert_true(choices_find(&a, &choice));
    assert_memory_equal(choice.algorithm, want.algorithm, sizeof want.algorithm);
    assert_true(choice.seconds > 12.4e-6 && choice.seconds < 12.6e-6);
    assert_false(choices_find(&b, &choice));
    assert_false(choices_find(&c, &choice));
    choices_add(&b, &choice);
    choices_save();
    choices_open("GPU 1, library 3"); /* has no choices of library 2 */
    assert_false(choices_find(&a, &choice));
    choices_open("GPU 1, library 2");
    assert_true(choices_find(&a, &choice) && choices_find(&b, &choice));
    choices_close();
    assert_ok(file_remove_tree(folder));
    free(folder);
}

static void test_given_to_another_rank(void **)
{
    char *folder = testing_directory();
    ProductShape a = shape_of(64, false), b = shape_of(64, true);
    Choice choice, first = choice_of(5), own = choice_of(9);
    Buf text = {};
    with_cache(folder);
    choices_open("GPU 1");
    choices_add(&a, &first);
    choices_give(&text);
    choices_close();
    choices_open("GPU 2"); /* another GPU keeps its own */
    choices_add(&a, &own);
    log_set_level(LOG_ERROR);
    choices_take(&text);
    log_set_level(LOG_INFO);
    assert_true(choices_kept());
    assert_true(choices_find(&a, &choice) && choice.algorithm[0] == own.algorithm[0]);
    choices_close();
    choices_open("GPU 1");
    choices_add(&a, &own);
    choices_add(&b, &own);
    choices_take(&text);
    assert_false(choices_kept());
    assert_true(choices_find(&a, &choice) && choice.algorithm[0] == first.algorithm[0]);
    assert_false(choices_find(&b, &choice)); /* nor did rank 0 choose it */
    choices_close();
    choices_open("GPU 1"); /* rank 0's file is as it was */
    assert_true(choices_find(&a, &choice) && choice.algorithm[0] == first.algorithm[0]);
    choices_close();
    buf_free(&text);
    assert_ok(file_remove_tree(folder));
    free(folder);
}

static void test_damaged_files(void **)
{
    char *folder = testing_directory();
    ProductShape shape = shape_of(64, false);
    Choice choice = choice_of(1);
    Buf whole = {}, changed = {};
    with_cache(folder);
    choices_open("GPU");
    choices_add(&shape, &choice);
    choices_close();
    char *file = only_file(folder);
    assert_ok(file_read(file, 1 << 20, &whole));
    log_set_level(LOG_ERROR);                         /* each is a warning */
    for (size_t cut = 0; cut < whole.len; cut += 3) { /* cut off elsewhere than at the end of a line */
        if (cut > 0 && whole.data[cut - 1] == '\n') continue;
        assert_ok(file_write_durable(file, whole.data, cut));
        choices_open("GPU");
        assert_false(choices_find(&shape, &choice));
    }
    buf_puts(&changed, whole.data);
    strcpy(strchr(changed.data, '\n') + 1, "what is this\n");
    assert_ok(file_write_durable(file, changed.data, strlen(changed.data)));
    choices_open("GPU");
    assert_false(choices_find(&shape, &choice));
    log_set_level(LOG_INFO);
    choices_add(&shape, &choice); /* and it is made new */
    choices_close();
    choices_open("GPU");
    assert_true(choices_find(&shape, &choice));
    choices_close();
    buf_free(&whole);
    buf_free(&changed);
    free(file);
    assert_ok(file_remove_tree(folder));
    free(folder);
}

static void test_no_place(void **)
{
    ProductShape shape = shape_of(64, false);
    Choice choice = choice_of(1);
    with_cache("/dev/null/nowhere");
    choices_open("GPU");
    assert_true(choices_kept());
    choices_add(&shape, &choice);
    choices_save(); /* warns */
    assert_false(choices_kept());
    assert_true(choices_find(&shape, &choice)); /* for this run */
    choices_close();
    char *home = getenv("HOME") ? mem_strdup(getenv("HOME")) : NULL;
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    choices_open("GPU");
    assert_false(choices_kept());
    choices_close();
    if (home) setenv("HOME", home, 1);
    free(home);
}

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_given_to_another_rank),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
