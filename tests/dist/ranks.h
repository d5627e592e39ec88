/* Tests with several ranks, each a child process. */
#pragma once

#include <sched.h>
#include <signal.h>

#include "comm/mesh/comm.h"
#include "testing.h"

typedef struct {
    World world;
    CommOptions options;
    void *arg;
} Ranks;

/* The work of a rank with an open Comm; returns its exit code. A failed `require` prints and exits. */
typedef int (*RankWork)(Comm *c, void *arg);

#define require(cond)                                                                                                  \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: rank %d: %s; last message: %s\n", __FILE__, __LINE__, ranks_this, #cond,           \
                    status_message());                                                                                 \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static int ranks_this = -1;

/* s: no time-out of the product passes in a test, unless it shortens it. */
enum { HANG_S = 600 };

/* Ranks that meet on this host; those of each call are another job. */
static inline Ranks ranks_of(int size)
{
    static int calls;
    Ranks r = {.world = {.size = size, .source = "test"}};
    r.options = (CommOptions){
        .transport = "auto", .rendezvous = "auto", .interfaces = "", .connect_s = HANG_S, .peer_timeout_s = HANG_S};
    snprintf(r.world.job, sizeof r.world.job, "test-%ld-%d", (long)getpid(), calls++);
    return r;
}

/* See tests/scripts/lib.sh. Where this is not allowed a test takes longer. */
static inline void ranks_as_batch(void) { (void)sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}); }

static inline pid_t ranks_start(const Ranks *ranks, int rank, RankWork work)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    World w = ranks->world;
    Comm *c;
    w.rank = ranks_this = rank;
    ranks_as_batch();
    require(comm_open(&w, &ranks->options, &c) == OK);
    int code = work(c, ranks->arg);
    comm_close(c);
    _exit(code);
}

/* A rank is ready for the fault. ranks_wait_ready waits until all are. */
static inline void ranks_tell_ready(const char *directory, int rank)
{
    char *path = mem_printf("%s/ready-%d", directory, rank);
    require(file_write_durable(path, "", 0) == OK);
    free(path);
}

static inline void ranks_wait_ready(const char *directory, int size)
{
    for (int r = 0, tries = 0; r < size; tries++) {
        char *path = mem_printf("%s/ready-%d", directory, r);
        if (file_exists(path)) {
            unlink(path);
            r++;
        } else if (tries > HANG_S * 100) {
            fail_msg("rank %d was not ready after %d s", r, HANG_S);
        } else {
            usleep(10000);
        }
        free(path);
    }
}

/* From here on a rank counts as silent for the peer timeout, to all others or to one. Ranks learn the folder at
   their start by ranks_watch_silence. */
static inline void ranks_watch_silence(const char *directory)
{
    char *path = mem_printf("%s/silent-", directory);
    setenv("CAIRN_TEST_SILENT", path, 1);
    free(path);
}

static inline void ranks_silence(const char *directory, int by, int of)
{
    char *path = mem_printf("%s/silent-%d-%d", directory, by, of);
    assert_ok(file_write_durable(path, "", 0));
    free(path);
}

static inline void ranks_hear(const char *directory)
{
    for (int pair = 0; pair < 64; pair++) {
        char *path = mem_printf("%s/silent-%d-%d", directory, pair / 8, pair % 8);
        unlink(path);
        free(path);
    }
}

/* Runs all ranks; each must end with 0. */
static inline void ranks_run(const Ranks *ranks, RankWork work)
{
    pid_t *children = mem_array((size_t)ranks->world.size, sizeof *children);
    int bad = 0, status;
    for (int r = 0; r < ranks->world.size; r++) children[r] = ranks_start(ranks, r, work);
    for (int r = 0; r < ranks->world.size; r++) {
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) print_error("rank %d ended with %x\n", r, status), bad++;
    }
    free(children);
    assert_int_equal(bad, 0);
}
