/* Shared by test programs: cmocka beside base (both have a macro `fail`; base's remains, tests use fail_msg), a
   directory for each test, and a child process for calls that end a process. */
#pragma once

#include <errno.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail
#undef fail_msg /* it was made of `fail` */
#define fail_msg(...)                                                                                                  \
    do {                                                                                                               \
        print_error("ERROR: " __VA_ARGS__);                                                                            \
        print_error("\n");                                                                                             \
        _fail(__FILE__, __LINE__);                                                                                     \
    } while (0)

#include "asan.h"
#include "base/base.h"

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        Status assert_status_ = (call);                                                                                \
        if (assert_status_ != OK) fail_msg("%s: %s: %s", #call, status_name(assert_status_), status_message());        \
    } while (0)

#define assert_status(call, expected) assert_string_equal(status_name(call), status_name(expected))

/* The last message must contain `part`. */
#define assert_message(part)                                                                                           \
    do {                                                                                                               \
        if (!strstr(status_message(), part)) fail_msg("\"%s\" is not in \"%s\"", part, status_message());              \
    } while (0)

/* An empty directory; the caller removes it with file_remove_tree and frees the name. */
static inline char *testing_directory(void)
{
    const char *place = getenv("TMPDIR");
    char *name = mem_printf("%s/cairn-test-XXXXXX", place && *place ? place : "/tmp");
    if (!mkdtemp(name)) fail_msg("cannot make a directory like %s: %s", name, strerror(errno));
    return name;
}

/* A test's set-up and tear-down: *state is the name of an empty directory, removed afterwards. */
static inline int testing_set_up(void **state)
{
    *state = testing_directory();
    return 0;
}

static inline int testing_tear_down(void **state)
{
    Status status = file_remove_tree((const char *)*state);
    free(*state);
    return status == OK ? 0 : -1;
}

/* Whether a test of a backend that did not open may be skipped: where CAIRN_TEST_MAY_SKIP is set and this machine has
   no GPU (a device that the pattern CAIRN_TEST_GPUS matches, by default those of NVIDIA's driver), or hides it, or has
   one that is too old for the backend. Elsewhere it is a failure. */
static inline bool testing_may_skip(void)
{
    const char *gpus = getenv("CAIRN_TEST_GPUS"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    glob_t found;
    memset(&found, 0, sizeof found);
    bool usable = glob(gpus ? gpus : "/dev/nvidia[0-9]*", 0, NULL, &found) == 0 && (!visible || *visible) &&
                  !strstr(status_message(), "compute capability");
    globfree(&found);
    return getenv("CAIRN_TEST_MAY_SKIP") && !usable;
}

static inline bool testing_deep(void) { return getenv("CAIRN_TEST_DEEP") != NULL; } /* `test.sh deep` */

/* Whether a sanitizer slows the test down and no long version was asked for: repetitions that reach no other code and
   no other memory are left out. */
static inline bool testing_brief(void) { return TESTING_ASAN && !testing_deep(); }

/* Rounds of a test that repeats itself: `deep` under `test.sh deep`, else `quick`; half of `quick` under sanitizers. */
static inline int testing_rounds(int quick, int deep)
{
    if (testing_deep()) return deep;
    return TESTING_ASAN ? (quick + 1) / 2 : quick;
}

/* Runs `work` in a child process, which exits with what it returns. Gives waitpid's status and, in `errors`, what the
   child wrote to stderr. */
static inline int testing_child(int (*work)(void *), void *arg, Buf *errors)
{
    int ends[2], wait_status = 0;
    char piece[4096];
    ssize_t n;
    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        _exit(work(arg));
    }
    close(ends[1]);
    while ((n = read(ends[0], piece, sizeof piece)) > 0) buf_append(errors, piece, (size_t)n);
    close(ends[0]);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    return wait_status;
}

/* Writes a file of a directory, with the folders in `name`. */
static inline void testing_write(const char *directory, const char *name, const char *text)
{
    char *path = file_join(directory, name), *folder = file_directory(path);
    assert_ok(file_make_directories(folder));
    assert_ok(file_write_durable(path, text, strlen(text)));
    free(path);
    free(folder);
}

/* Whether the bytes of a file contain `text`. */
static inline bool testing_file_has(const char *path, const char *text)
{
    Buf bytes = {NULL, 0, 0};
    assert_ok(file_read(path, SIZE_MAX, &bytes));
    bool has = memmem(bytes.data, bytes.len, text, strlen(text)) != NULL;
    buf_free(&bytes);
    return has;
}

static inline void testing_same_file(const char *dir_a, const char *a, const char *dir_b, const char *b)
{
    char *path_a = file_join(dir_a, a), *path_b = file_join(dir_b, b);
    Digest x, y;
    assert_ok(file_digest(path_a, &x, NULL));
    assert_ok(file_digest(path_b, &y, NULL));
    if (!digest_equal(x, y)) fail_msg("%s and %s differ", path_a, path_b);
    free(path_a);
    free(path_b);
}

/* A small generator for test data (xorshift64*). Start with any number but 0. */
static inline uint64_t testing_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}
