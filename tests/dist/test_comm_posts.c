/* Messages in the background and parts of the ranks: tags in any order beside collectives, sums within parts, and a
   lost rank that ends every wait with its name. */
#include "dist/ranks.h"

#include <stdlib.h>

static uint32_t word(int from, int to, uint32_t tag, int number)
{
    return (uint32_t)from * 2654435761u ^ (uint32_t)to * 40503u ^ tag * 977u ^ (uint32_t)number * 65599u;
}

static void fill(uint32_t *data, size_t n, uint32_t first)
{
    for (size_t i = 0; i < n; i++) data[i] = first + (uint32_t)i;
}

static bool is_filled(const uint32_t *data, size_t n, uint32_t first)
{
    for (size_t i = 0; i < n; i++)
        if (data[i] != first + (uint32_t)i) return false;
    return true;
}

/* ---- posts ---- */

enum { TAGS = 5, WORDS = 600 };

/* Every pair, every tag, both directions at once. Receives are posted in another order than sends, before or after
   them, and waited for in a third one. */
static void check_any_order(Comm *c, int round)
{
    static uint32_t out[8][TAGS][WORDS], in[8][TAGS][WORDS];
    CommTicket *sent[8][TAGS], *received[8][TAGS];
    size_t n = round % 3 == 0 ? WORDS : 1 + (size_t)round * 37 % WORDS;
    for (int late = 0; late < 2; late++)
        for (int k = 0; k < c->size * TAGS; k++) {
            int peer = k / TAGS, tag = k % TAGS, other = TAGS - 1 - tag;
            if (peer == c->rank) continue;
            if ((round + peer + c->rank) % 2 == late) {
                fill(out[peer][tag], n, word(c->rank, peer, (uint32_t)tag, round));
                require(comm_post(c, peer, (uint32_t)tag, true, out[peer][tag], n * 4, &sent[peer][tag]) == OK);
            } else {
                require(comm_post(c, peer, (uint32_t)other, false, in[peer][other], n * 4, &received[peer][other]) ==
                        OK);
            }
        }
    double one = 1;
    if (round % 2) require(comm_sum(c, &one, 1) == OK && one == c->size);
    for (int k = c->size * TAGS - 1; k >= 0; k--) {
        int peer = k / TAGS, tag = (k + round) % TAGS;
        if (peer == c->rank) continue;
        require(comm_wait(c, received[peer][tag], "a message") == OK);
        require(is_filled(in[peer][tag], n, word(peer, c->rank, (uint32_t)tag, round)));
        require(comm_wait(c, sent[peer][tag], "a message") == OK);
    }
}

/* Rows through a chain, two receives ahead, as stages of a pipeline pass them; sizes differ and may be 0. */
static void check_chain(Comm *c, int messages)
{
    enum { AHEAD = 2 };
    static uint32_t rows[AHEAD][WORDS];
    CommTicket *coming[AHEAD] = {NULL}, *leaving[AHEAD] = {NULL};
    int before = c->rank - 1, after = c->rank + 1;
    for (int m = 0; m < messages + AHEAD; m++) {
        int done = m - AHEAD;
        if (done >= 0) {
            size_t n = (size_t)done % 7 * 80;
            uint32_t first = word(0, 0, 1, done) + (uint32_t)c->rank;
            require(comm_wait(c, coming[done % AHEAD], "the activations") == OK);
            if (before >= 0) require(is_filled(rows[done % AHEAD], n, first - 1));
            fill(rows[done % AHEAD], n, first);
            if (after < c->size)
                require(comm_post(c, after, 1, true, rows[done % AHEAD], n * 4, &leaving[done % AHEAD]) == OK);
            require(comm_wait(c, leaving[done % AHEAD], "the activations") == OK);
            leaving[done % AHEAD] = coming[done % AHEAD] = NULL;
        }
        if (m < messages && before >= 0)
            require(comm_post(c, before, 1, false, rows[m % AHEAD], (size_t)m % 7 * 320, &coming[m % AHEAD]) == OK);
    }
}

static int exchange_posts(Comm *c, void *arg)
{
    int rounds = *(const int *)arg;
    for (int round = 0; round < rounds; round++) check_any_order(c, round);
    check_chain(c, 20 * rounds);
    return 0;
}

static void test_posts(void **state)
{
    (void)state;
    int rounds = testing_deep() ? 500 : 12;
    for (int size = 2; size <= 8; size += 3) {
        Ranks ranks = ranks_of(size);
        ranks.arg = &rounds;
        ranks_run(&ranks, exchange_posts);
    }
}

/* ---- parts ---- */

static void check_part(Comm *c, int color, int key, int size, int rank)
{
    Comm *part;
    require(comm_split(c, color, key, &part) == OK);
    require((part == NULL) == (color < 0));
    if (!part) return;
    require(part->size == size && part->rank == rank);
    require(strcmp(comm_peer_name(part, rank), comm_peer_name(c, c->rank)) == 0);
    double values[2] = {1, c->rank};
    int all[8], mine = c->rank;
    require(comm_sum(part, values, 2) == OK && values[0] == size);
    require(comm_allgather(part, &mine, sizeof mine, all) == OK);
    double sum = 0;
    for (int r = 0; r < size; r++) sum += all[r];
    require(values[1] == sum && all[rank] == c->rank);
    for (int root = 0; root < size; root++) {
        int x = c->rank;
        require(comm_broadcast(part, &x, sizeof x, root) == OK && x == all[root]);
    }
    if (size > 1) {
        uint32_t to[10], from[10];
        CommTicket *a, *b;
        int next = (rank + 1) % size, last = (rank + size - 1) % size;
        fill(to, 10, (uint32_t)c->rank);
        require(comm_post(part, next, 3, true, to, sizeof to, &a) == OK);
        require(comm_post(part, last, 3, false, from, sizeof from, &b) == OK);
        require(comm_wait(part, b, "x") == OK && comm_wait(part, a, "x") == OK);
        require(is_filled(from, 10, (uint32_t)all[last]));
    }
    comm_close(part);
}

static int split_ranks(Comm *c, void *arg)
{
    (void)arg;
    int half = c->size / 2;
    check_part(c, c->rank % 2, -c->rank, c->size / 2 + (c->rank % 2 == 0 && c->size % 2), (c->size - 1 - c->rank) / 2);
    check_part(c, c->rank / half, 0, c->rank < 2 * half ? half : c->size - 2 * half, c->rank % half);
    check_part(c, c->rank, 0, 1, 0);
    check_part(c, c->rank == 0 ? -1 : 7, 0, c->size - 1, c->rank - 1);
    Comm *copy; /* all ranks still agree on the number of the next connection */
    double one = 1;
    require(comm_dup(c, &copy) == OK);
    require(comm_sum(copy, &one, 1) == OK && one == c->size);
    comm_close(copy);
    return 0;
}

static void test_parts(void **state)
{
    (void)state;
    for (int size = 4; size <= 6; size++) {
        Ranks ranks = ranks_of(size);
        ranks_run(&ranks, split_ranks);
    }
}

/* ---- a lost rank ---- */

typedef struct {
    const char *directory;
    bool in_part; /* the wait is on a part that does not have the lost rank */
} Loss3;

/* Rank 2 is killed; the others wait for a message that never comes, with another one under way. */
static int wait_for_lost(Comm *c, void *arg)
{
    const Loss3 *l = arg;
    Comm *part = NULL, *on = c;
    uint32_t data[4][16];
    CommTicket *first, *second;
    require(comm_split(c, c->rank == 2, 0, &part) == OK);
    if (c->rank == 2) {
        ranks_tell_ready(l->directory, c->rank);
        for (;;) pause();
    }
    if (l->in_part) on = part;
    int peer = l->in_part ? (on->rank + 1) % on->size : 2;
    require(comm_post(on, peer, 1, false, data[0], sizeof data[0], &first) == OK);
    require(comm_post(on, peer, 2, false, data[1], sizeof data[1], &second) == OK);
    ranks_tell_ready(l->directory, c->rank); /* only now: a post after the kill would fail already */
    require(comm_wait(on, first, "the activations of micro-batch 5") == E_PEER);
    require(strstr(status_message(), "the activations of micro-batch 5: lost rank 2 on ") != NULL);
    require(comm_wait(on, second, "the activations of micro-batch 6") == E_PEER);
    require(strstr(status_message(), "lost rank 2 on ") != NULL);
    require(comm_post(on, peer, 1, false, data[0], sizeof data[0], &first) == E_PEER);
    require(comm_barrier(c) == E_PEER);
    comm_close(part);
    return 0;
}

static void test_lost(void **state)
{
    for (int in_part = 0; in_part < 2; in_part++) {
        Loss3 l = {*(const char **)state, in_part};
        Ranks ranks = ranks_of(4);
        ranks.arg = &l;
        pid_t children[4];
        int status;
        for (int r = 0; r < 4; r++) children[r] = ranks_start(&ranks, r, wait_for_lost);
        ranks_wait_ready(l.directory, 4);
        kill(children[2], SIGKILL); /* the others notice at once, or wait for hours */
        for (int r = 0; r < 4; r++) {
            assert_int_equal(waitpid(children[r], &status, 0), children[r]);
            if (r != 2) assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_posts, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_parts, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_lost, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
