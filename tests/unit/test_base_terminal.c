/* The terminal: its width and colours (a pseudo-terminal here), and wrapped text. */
#include <fcntl.h>
#include <sys/ioctl.h>

#include "base/terminal.h"
#include "testing.h"

static int open_terminal(int columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0);
    assert_int_equal(grantpt(master) || unlockpt(master), 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(slave >= 0);
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    return slave;
}

static void test_properties(void **state)
{
    (void)state;
    int terminal = open_terminal(132), narrow = open_terminal(0), file = open("/dev/null", O_RDWR | O_CLOEXEC);
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    assert_int_equal(terminal_columns(terminal), 132);
    assert_int_equal(terminal_columns(narrow), 80);
    assert_int_equal(terminal_columns(file), 80);
    assert_true(terminal_redraws(terminal) && terminal_colours(terminal));
    assert_false(terminal_redraws(file) || terminal_colours(file));
    setenv("NO_COLOR", "", 1);
    assert_true(terminal_colours(terminal));
    setenv("NO_COLOR", "1", 1);
    assert_false(terminal_colours(terminal));
    assert_true(terminal_redraws(terminal));
    unsetenv("NO_COLOR");
    setenv("TERM", "vt100", 1);
    assert_true(terminal_redraws(terminal) && !terminal_colours(terminal));
    setenv("TERM", "dumb", 1);
    assert_false(terminal_redraws(terminal) || terminal_colours(terminal));
    unsetenv("TERM");
    assert_false(terminal_redraws(terminal) || terminal_colours(terminal));
}

static void assert_wrapped(const char *text, int indent, int columns, const char *expected)
{
    Buf out = {0};
    terminal_wrap(&out, text, indent, columns);
    assert_string_equal(out.data, expected);
    buf_free(&out);
}

static void test_wrap(void **state)
{
    (void)state;
    assert_wrapped("one two three", 0, 80, "one two three\n");
    assert_wrapped("one two three", 0, 7, "one two\nthree\n");
    assert_wrapped("one two three", 0, 6, "one\ntwo\nthree\n");
    assert_wrapped("one two three", 2, 9, "one two\n  three\n");
    assert_wrapped("a longword b", 0, 4, "a\nlong\nword\nb\n");
    assert_wrapped("so a,bc,def", 1, 5, "so\n a,\n bc,\n def\n");
    assert_wrapped("××××× b", 0, 3, "×××\n××\nb\n");
    assert_wrapped("2×3 4×5", 0, 7, "2×3 4×5\n"); /* columns, not bytes */
    assert_wrapped("", 0, 80, "\n");
    assert_int_equal(terminal_width("none×12", strlen("none×12")), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_properties), cmocka_unit_test(test_wrap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
