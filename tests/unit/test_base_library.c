/* base/library: what a library does without memory, and what it does else. */
#include "base/library.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "base/thread.h"
#include "testing.h"

typedef enum { READS_NOTHING, ABORTS, EXITS, IS_SIGNALLED } Way;

typedef struct {
    Way way;
    int error;
    bool inside, in_thread;
} Case;

static void *die(void *arg)
{
    const Case *c = arg;
    volatile int *volatile nothing = NULL;
    library_enter("Sample");
    if (!c->inside) library_leave();
    errno = c->error;
    switch (c->way) {
    case READS_NOTHING:
        *nothing = 1;
        break;
    case ABORTS:
        abort();
    case EXITS:
        exit(3);
    case IS_SIGNALLED:
        kill(getpid(), SIGABRT);
        break;
    }
    return NULL;
}

static int child(void *arg)
{
    const Case *c = arg;
    pthread_t thread;
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler exits */
    if (c->in_thread && thread_start(&thread, die, arg) == OK) pthread_join(thread, NULL);
    if (!c->in_thread) die(arg);
    return 0;
}

/* Its exit code, or 128 + the signal that ended it. */
static int ends(Case c, Buf *errors)
{
    int status = testing_child(child, &c, errors);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void test_without_memory(void **state)
{
    (void)state;
    const Case cases[] = {{READS_NOTHING, ENOMEM, true, false}, {READS_NOTHING, ENOMEM, true, true},
                          {ABORTS, ENOMEM, true, false},        {ABORTS, ENOMEM, true, true},
                          {EXITS, ENOMEM, true, false},         {EXITS, EAGAIN, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf errors = {0};
        assert_int_equal(ends(cases[i], &errors), status_exit_code(E_MEMORY));
        assert_non_null(errors.data);
        assert_non_null(strstr(errors.data, "refused memory to the library Sample"));
        buf_free(&errors);
    }
}

static void test_survived(void **state)
{
    (void)state;
    errno = ENOMEM;
    library_enter("Sample");
    assert_false(library_leave());
    library_enter("Sample");
    errno = ENOMEM;
    assert_true(library_leave());
}

static void test_otherwise(void **state)
{
    (void)state;
    const struct {
        Case c;
        int ends;
    } cases[] = {{{READS_NOTHING, 0, true, false}, 128 + SIGSEGV},
                 {{READS_NOTHING, EAGAIN, true, true}, 128 + SIGSEGV},
                 {{READS_NOTHING, ENOMEM, false, false}, 128 + SIGSEGV},
                 {{ABORTS, 0, true, true}, 128 + SIGABRT},
                 {{ABORTS, ENOMEM, false, false}, 128 + SIGABRT},
                 {{IS_SIGNALLED, ENOMEM, true, false}, 128 + SIGABRT},
                 {{EXITS, 0, true, false}, 3},
                 {{EXITS, ENOMEM, false, false}, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf errors = {0};
        assert_int_equal(ends(cases[i].c, &errors), cases[i].ends);
        assert_true(!errors.data || !strstr(errors.data, "Sample"));
        buf_free(&errors);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_without_memory), cmocka_unit_test(test_otherwise),
                                       cmocka_unit_test(test_survived)};
    return cmocka_run_group_tests_name("base/library", tests, NULL, NULL);
}
