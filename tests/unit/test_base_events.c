/* The event loop: ends of a wait, reactions; and sockets on loopback. */
#include <signal.h>

#include "base/events.h"
#include "base/socket.h"
#include "testing.h"

static char order[8];

static void note(void *arg, int fd, short happened)
{
    char byte;
    if (happened & POLLIN) assert_true(read(fd, &byte, 1) == 1);
    strcat(order, arg);
}

static double turn(Events *e, double seconds)
{
    double begin = clock_monotonic();
    events_until(e, begin + seconds);
    events_wait(e);
    events_react(e);
    return clock_monotonic() - begin;
}

static void test_turns(void **state)
{
    (void)state;
    Events e;
    int a[2], b[2];
    assert_ok(events_init(&e));
    assert_true(pipe(a) == 0 && pipe(b) == 0);
    events_begin(&e);
    assert_true(turn(&e, 0.05) >= 0.049); /* nothing happens */
    events_wake(&e);
    events_begin(&e);
    assert_true(turn(&e, 1200) < 600); /* an earlier wake-up */
    events_begin(&e);
    assert_true(turn(&e, 0.05) >= 0.049); /* once */
    assert_true(write(a[1], "x", 1) == 1 && write(b[1], "xy", 2) == 2);
    for (int k = 0; k < 2; k++) {
        events_begin(&e);
        events_add(&e, b[0], POLLIN, note, "b");
        events_add(&e, -1, POLLIN, note, "?");
        events_add(&e, a[0], POLLIN, note, "a");
        if (k == 0) events_add(&e, a[1], POLLOUT, NULL, NULL);
        turn(&e, 600);
    }
    assert_string_equal(order, "bab");
    for (int k = 0; k < 2; k++) close(a[k]), close(b[k]);
    events_free(&e);
}

static void test_signals(void **state)
{
    (void)state;
    static const int numbers[] = {SIGUSR1, SIGHUP};
    int fd = signals_open(numbers, 2);
    assert_true(fd >= 0);
    assert_int_equal(signals_take(fd), 0);
    raise(SIGHUP);
    assert_int_equal(signals_take(fd), SIGHUP);
    assert_int_equal(signals_take(fd), 0);
    close(fd);
}

static void test_sockets(void **state)
{
    (void)state;
    SocketAddress at;
    int error;
    assert_false(socket_address("localhost", 1, &at));
    assert_true(socket_address("127.0.0.1", 0, &at));
    int listener = socket_listen(&at), port = socket_port(listener);
    assert_true(listener >= 0 && port > 0);
    assert_true(socket_accept(listener) < 0);
    socket_set_port(&at, port);
    int fd = socket_connect(&at, &error);
    assert_true(fd >= 0 && (error == 0 || error == EINPROGRESS));
    assert_int_equal(socket_connected(fd, (SocketLimit){.end = clock_monotonic() + 600}), 0);
    int guest = socket_accept(listener);
    assert_true(guest >= 0);
    assert_true(socket_listen(&at) < 0); /* taken */
    assert_int_equal(errno, EADDRINUSE);
    close(fd), close(guest), close(listener);
    fd = socket_connect(&at, &error);
    if (error == EINPROGRESS) error = socket_connected(fd, (SocketLimit){.end = clock_monotonic() + 600});
    assert_int_equal(error, ECONNREFUSED);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_turns), cmocka_unit_test(test_signals),
                                       cmocka_unit_test(test_sockets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
