/* Sessions of several ranks, on each backend that opens (CUDA on its host executor): one micro-batch of a step on each
   rank, one rank without any, and sums equal to those of one process with the same micro-batches. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "equiv/training.h"

enum { RANKS = TRAINING_MICROS + 1, STEPS = 4 };

static const char *backend_now;

/* In a child: an assertion that fails has to end it. */
#define require(cond)                                                                                                  \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s; last message: %s\n", __FILE__, __LINE__, #cond, status_message());             \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static void train(Training *t, int rank, double loss[STEPS])
{
    int n_seqs = 0;
    for (int m = 0; m < TRAINING_MICROS; m++) n_seqs += t->batch[m].n_seqs;
    for (int step = 1; step <= STEPS; step++) {
        Stats stats;
        require(session_begin(&t->session, (uint32_t)step, n_seqs, 0) == OK);
        if (rank < 0)
            require(training_micros(t, 0, TRAINING_MICROS) == OK);
        else
            require(training_micros(t, rank, rank < TRAINING_MICROS) == OK);
        require(session_update(&t->session, &t->optimizer, step, 1e-3, &stats) == OK);
        require(stats.finite);
        loss[step - 1] = stats.loss[0] / n_seqs;
    }
}

static bool near(double a, double b, double by) { return fabs(a - b) <= by; }

/* A reader that fails on one rank: all ranks fail, none waits, and the next move is as if nothing had been. */
static Status read_numbers(void *fails, int64_t begin, int64_t end, float *to)
{
    if (fails) return E_CORRUPT;
    for (int64_t i = begin; i < end; i++) to[i - begin] = (float)i;
    return OK;
}

static void take_moments(Training *t)
{
    float *m;
    int64_t size = t->model.params.size;
    Interval all = {0, size};
    Intervals from[RANKS] = {[1] = {&all, 1, 1, size}};
    require(session_take(&t->session, STATE_M, from, read_numbers, t) == E_CORRUPT);
    require(session_take(&t->session, STATE_M, from, read_numbers, NULL) == OK);
    m = training_state(t, STATE_M);
    for (int64_t i = 0; i < size; i++) require(m[i] == (float)i);
    free(m);
}

static void rank_work(int rank, const float *weights, const double loss[STEPS])
{
    char number[12], job[64], *argv[] = {(char *)"cairn", (char *)"glue", (char *)"--peer-timeout", (char *)"1h"};
    Config c = {0};
    Ranks *ranks;
    Training t;
    double mine[STEPS];
    float *got;
    snprintf(number, sizeof number, "%d", rank);
    setenv("RANK", number, 1);
    setenv("LOCAL_RANK", number, 1);
    snprintf(number, sizeof number, "%d", RANKS);
    setenv("WORLD_SIZE", number, 1);
    setenv("LOCAL_WORLD_SIZE", number, 1);
    snprintf(job, sizeof job, "sessions-%ld-%s", (long)getppid(), backend_now);
    setenv("CAIRN_JOB", job, 1);
    require(config_parse(&c, 4, argv, NULL) == OK);
    require(ranks_open(&c, OK, &ranks) == OK && ranks_size(ranks) == RANKS);
    training_open(&t, &(TrainingOptions){.backend = backend_now, .compute = F32, .ranks = ranks});
    require(t.session.exec_ranks.comm != ranks_comm(ranks)); /* its sums have it for themselves */
    require(!t.session.exec_ranks.comm->members); /* so that a late rank is told from those that wait for it */
    training_begin(&t);
    train(&t, rank, mine);
    for (int s = 0; s < STEPS; s++) require(near(mine[s], loss[s], 1e-4));
    got = training_state(&t, STATE_WEIGHTS);
    for (int64_t i = 0; i < t.model.params.size; i++) require(near((double)got[i], (double)weights[i], 2e-3));
    char hex[33];
    digest_format(digest_of(got, (size_t)t.model.params.size * sizeof *got), hex);
    free(got);
    require(ranks_same(ranks, "the weights", hex) == OK);
    take_moments(&t);
    ranks_end(ranks, OK);
    training_close(&t);
    ranks_close(ranks);
    config_free(&c);
    _exit(0);
}

/* Results of one process. A child makes them, because a process with threads must not fork. */
typedef struct {
    bool absent;
    char why[256];
    double loss[STEPS];
    float weights[1 << 16];
} Alone;

static void alone_work(Alone *a)
{
    Backend *backend;
    Training t;
    BackendOptions one = {.threads = 1};
    if (backend_open(backend_now, &one, &backend) != OK) {
        a->absent = true;
        snprintf(a->why, sizeof a->why, "%s", status_message());
        _exit(0);
    }
    backend_close(backend);
    training_open(&t, &(TrainingOptions){.backend = backend_now, .compute = F32});
    training_begin(&t);
    train(&t, -1, a->loss);
    float *weights = training_state(&t, STATE_WEIGHTS);
    require((size_t)t.model.params.size <= sizeof a->weights / sizeof *a->weights);
    memcpy(a->weights, weights, (size_t)t.model.params.size * sizeof *weights);
    free(weights);
    training_close(&t);
    _exit(0);
}

static void test_backend(void **state)
{
    backend_now = *state;
    pid_t children[RANKS];
    int code, bad = 0;
    Alone *alone = mmap(NULL, sizeof *alone, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(alone != MAP_FAILED);
    fflush(NULL);
    pid_t first = fork();
    assert_true(first >= 0);
    if (first == 0) alone_work(alone);
    assert_int_equal(waitpid(first, &code, 0), first);
    assert_int_equal(code, 0);
    if (alone->absent) {
        print_message("skipped: %s\n", alone->why);
        munmap(alone, sizeof *alone);
        skip();
    }
    for (int r = 0; r < RANKS; r++) {
        children[r] = fork();
        assert_true(children[r] >= 0);
        if (children[r] == 0) rank_work(r, alone->weights, alone->loss);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(waitpid(children[r], &code, 0), children[r]);
        bad += code != 0;
    }
    munmap(alone, sizeof *alone);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"ref", test_backend, NULL, NULL, (void *)"ref"},
        {"cpu", test_backend, NULL, NULL, (void *)"cpu"},
        {"cuda_host", test_backend, NULL, NULL, (void *)"cuda_host"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
