/* The collectives with 1 to 4 ranks: received bytes, sums in rank order with the same bits everywhere, rounding. */
#include "dist/ranks.h"

#include <math.h>
#include <sys/mman.h>

#include "base/sum_tree.h"
#include "comm/mesh/device.h"

/* Bytes that encode sender and receiver. */
static void fill(uint8_t *p, size_t n, int from, int to)
{
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(i * 7 + (size_t)from * 31 + (size_t)to * 101 + (i >> 8));
}

static bool is_filled(const uint8_t *p, size_t n, int from, int to)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (uint8_t)(i * 7 + (size_t)from * 31 + (size_t)to * 101 + (i >> 8))) return false;
    return true;
}

static size_t size_between(int from, int to)
{
    static const size_t sizes[] = {0, 1, 3, 70000, 1 << 20, 17};
    return sizes[(from * 3 + to * 2) % 6];
}

static void check_alltoallv(Comm *c)
{
    size_t send[4], receive[4], all_send = 0, all_receive = 0, at = 0;
    for (int r = 0; r < c->size; r++) {
        all_send += send[r] = size_between(c->rank, r);
        all_receive += receive[r] = size_between(r, c->rank);
    }
    uint8_t *out = mem_alloc(all_send), *in = mem_alloc(all_receive);
    for (int r = 0; r < c->size; at += send[r++]) fill(out + at, send[r], c->rank, r);
    require(comm_alltoallv(c, out, send, in, receive) == OK);
    at = 0;
    for (int r = 0; r < c->size; at += receive[r++]) require(is_filled(in + at, receive[r], r, c->rank));
    free(out);
    free(in);
}

static void check_allgatherv(Comm *c)
{
    size_t bytes[4], total = 0, at = 0;
    for (int r = 0; r < c->size; r++) total += bytes[r] = size_between(r, 1);
    uint8_t *all = mem_alloc(total);
    for (int r = 0; r < c->size; at += bytes[r++])
        if (r == c->rank) fill(all + at, bytes[r], r, 9);
    require(comm_allgatherv(c, all, bytes) == OK);
    at = 0;
    for (int r = 0; r < c->size; at += bytes[r++]) require(is_filled(all + at, bytes[r], r, 9));
    free(all);
}

static void check_bytes(Comm *c)
{
    uint8_t one[1000], all[4000];
    for (int root = 0; root < c->size; root++) {
        memset(one, 0, sizeof one);
        if (c->rank == root) fill(one, sizeof one, root, 5);
        require(comm_broadcast(c, one, sizeof one, root) == OK);
        require(is_filled(one, sizeof one, root, 5));
        require(comm_barrier(c) == OK);
    }
    fill(one, sizeof one, c->rank, 6);
    require(comm_allgather(c, one, sizeof one, all) == OK);
    for (int r = 0; r < c->size; r++) require(is_filled(all + r * 1000, sizeof one, r, 6));
    for (int r = 1; r < c->size; r++) { /* rank 0 sends to each other rank */
        if (c->rank == 0) {
            fill(one, sizeof one, 0, r);
            require(comm_send(c, r, one, sizeof one) == OK);
        } else if (c->rank == r) {
            require(comm_receive(c, 0, one, sizeof one) == OK);
            require(is_filled(one, sizeof one, 0, r));
        }
    }
    check_alltoallv(c);
    check_allgatherv(c);
}

static int bytes_work(Comm *c, void *arg)
{
    (void)arg;
    Comm *d;
    check_bytes(c);
    require(comm_dup(c, &d) == OK);
    require(d->rank == c->rank && d->size == c->size && d->local_size == c->size && d->nodes == 1);
    check_bytes(d);
    check_bytes(c);
    comm_close(d);
    require(c->local_rank == c->rank && c->local_size == c->size && c->node == 0 && c->nodes == 1);
    if (c->size > 1) {
        char expected[32];
        snprintf(expected, sizeof expected, "rank %d on ", c->size - 1);
        require(strncmp(comm_peer_name(c, c->size - 1), expected, strlen(expected)) == 0);
    }
    return 0;
}

/* ---- sums ---- */

enum { N = 10000 };

/* Rank r's element i. Magnitudes differ widely, so that the order of additions changes the sum. */
static float term(int r, int i)
{
    uint64_t seed = (uint64_t)(i + 1) * 2654435761u + (uint64_t)r * 97 + 1;
    for (int k = 0; k < 4; k++) testing_random(&seed);
    double x = (double)(testing_random(&seed) % 2000001) / 1e6 - 1;
    return (float)ldexp(x, (int)(testing_random(&seed) % 24));
}

/* Parts with gaps and of different sizes; the last rank has none if `uneven`. */
static void make_parts(int size, bool uneven, Interval (*intervals)[16], Intervals *parts)
{
    memset(parts, 0, (size_t)size * sizeof *parts);
    for (int k = 0; k < 16; k++) {
        int r = k % (uneven && size > 1 ? size - 1 : size);
        Intervals *p = &parts[r];
        Interval v = {k * 600, k * 600 + 100 + k * 31};
        intervals[r][p->count++] = v;
        p->size += v.end - v.begin;
        p->intervals = intervals[r];
    }
}

static float rounded(float x, Dtype wire) { return wire == BF16 ? bf16_to_f32(bf16_from_f32(x)) : x; }

/* Of terms first … first + n − 1, of which as many as the largest power of two below n are on the left. */
static float tree_sum(int first, int n, int i)
{
    int left = 1;
    if (n == 1) return term(first, i);
    while (2 * left < n) left *= 2;
    return tree_sum(first, left, i) + tree_sum(first + left, n - left, i);
}

static int tree; /* terms of the tree; 0: none */

static float expected_sum(int size, int i, Dtype wire)
{
    if (tree) return tree_sum(0, tree, i);
    float sum = rounded(term(0, i), wire);
    for (int r = 1; r < size; r++) sum += rounded(term(r, i), wire);
    return rounded(sum, wire);
}

static bool in_part(const Intervals *p, int i)
{
    for (int k = 0; k < p->count; k++)
        if (i >= p->intervals[k].begin && i < p->intervals[k].end) return true;
    return false;
}

enum { BRANCHES = 8 };

/* Branches that a rank computed: the last one in x, the others behind it. Returns their number. */
static int fill_terms(const Comm *c, float *x)
{
    int n = 0, first = c->rank, end = c->rank + 1;
    if (tree) first *= tree / c->size, end *= tree / c->size;
    for (int at = first; at < end; n++) {
        int branch = tree ? (int)sum_tree_branch(tree, at, end) : end;
        for (int i = 0; i < N; i++)
            x[(branch == end ? 0 : n + 1) * N + i] = tree ? tree_sum(at, branch - at, i) : term(at, i);
        at = branch;
    }
    return n;
}

static void check_sums(Comm *c, Dtype wire, bool uneven)
{
    Interval intervals[4][16];
    Intervals parts[4];
    static float x[BRANCHES * N], y[BRANCHES * N], own[BRANCHES * N];
    make_parts(c->size, uneven, intervals, parts);
    void *scratch = mem_alloc(comm_reduce_bytes(parts, c->size, wire, tree));
    c->tree = (CommTree){.terms = tree, .behind = N, .stride = N};
    require(fill_terms(c, x) == comm_branches(tree, c->size, c->rank));
    memcpy(y, x, sizeof y);
    memcpy(own, x, sizeof own);
    require(comm_reduce_scatter(c, x, parts, wire, scratch) == OK);
    for (int i = 0; i < N; i++) {
        float e = in_part(&parts[c->rank], i) ? expected_sum(c->size, i, wire) : own[i];
        require(f32_bits(x[i]) == f32_bits(e));
    }
    require(comm_allreduce(c, y, parts, wire, scratch) == OK);
    require(comm_gather_parts(c, x, parts, wire, scratch) == OK);
    for (int i = 0; i < N; i++) {
        bool any = false;
        for (int r = 0; r < c->size; r++) any = any || in_part(&parts[r], i);
        float e = any ? expected_sum(c->size, i, wire) : own[i];
        require(f32_bits(x[i]) == f32_bits(e) && f32_bits(y[i]) == f32_bits(e));
    }
    c->tree = (CommTree){0};
    free(scratch);
}

static double tree_of_doubles(const double *terms, int n)
{
    int left = 1;
    if (n == 1) return terms[0];
    while (2 * left < n) left *= 2;
    return tree_of_doubles(terms, left) + tree_of_doubles(terms + left, n - left);
}

/* Every rank has `each` terms of a value whose sum depends on the order. */
static void check_tree_sum(Comm *c, int each)
{
    static const double terms[] = {1e17, 1, -1e17, 1, 3, 1e16, -7, 1, -1e16, 2, 5, 1};
    double own[BRANCHES];
    int n = 0, all = each * c->size, at = each * c->rank, end = at + each, last = comm_branches(all, c->size, c->rank);
    c->tree.terms = all;
    for (; at < end; n++) {
        int branch = (int)sum_tree_branch(all, at, end);
        own[(n + 1) % last] = tree_of_doubles(terms + at, branch - at);
        at = branch;
    }
    require(n == last && comm_sum(c, own, 1) == OK && own[0] == tree_of_doubles(terms, all));
    c->tree.terms = 0;
}

static int sums_work(Comm *c, void *arg)
{
    (void)arg;
    double v[3] = {0.1 * (c->rank + 1), 1e17 * (c->rank % 2 ? -1 : 1), 1}, e[3] = {0};
    require(comm_sum(c, v, 3) == OK);
    for (int r = 0; r < c->size; r++) e[0] += 0.1 * (r + 1), e[1] += 1e17 * (r % 2 ? -1 : 1), e[2] += 1;
    require(memcmp(v, e, sizeof v) == 0);
    for (int uneven = 0; uneven < 2; uneven++) {
        check_sums(c, F32, uneven);
        check_sums(c, BF16, uneven);
        for (int each = 1; each <= 6; each++) {
            tree = each * c->size;
            check_sums(c, F32, uneven);
        }
        tree = 0;
    }
    for (int each = 1; each <= 3; each++) check_tree_sum(c, each);
    /* -0, infinities and NaN are kept. */
    Interval all = {0, 3};
    Intervals parts[4] = {{.intervals = &all, .count = 1, .size = 3}};
    float x[3] = {-0.0f, INFINITY, NAN}, scratch[64];
    require(comm_allreduce(c, x, parts, BF16, scratch) == OK);
    require(f32_bits(x[0]) == 0x80000000u && x[1] == INFINITY && isnan(x[2]));
    return 0;
}

/* ---- agreement ---- */

static int agree_work(Comm *c, void *arg)
{
    (void)arg;
    char mine[32];
    snprintf(mine, sizeof mine, "value of %d", c->rank % 2);
    CommFact facts[] = {{"version", "1.2"}, {"configuration", ""}, {"data", mine}};
    require(comm_agree(c, facts, 2) == OK);
    Status status = comm_agree(c, facts, 3);
    if (c->size == 1) {
        require(status == OK);
        return 0;
    }
    require(status == E_USAGE);
    require(strstr(status_message(), "do not agree on data"));
    require(strstr(status_message(), c->size == 4   ? "rank 0, 2 have 'value of 0'; rank 1, 3 have 'value of 1'"
                                     : c->size == 3 ? "rank 0, 2 have 'value of 0'; rank 1 has 'value of 1'"
                                                    : "rank 0 has 'value of 0'; rank 1 has 'value of 1'"));
    require(comm_agree(c, facts, c->rank == c->size - 1 ? 2 : 1) == E_USAGE);
    require(strstr(status_message(), "configuration"));
    return 0;
}

/* Two ranks on one GPU are named before NCCL is opened. */
static int same_gpu(Comm *c, void *arg)
{
    (void)arg;
    char unit[32];
    snprintf(unit, sizeof unit, "GPU-%d", c->rank % 2);
    setenv("NCCL_HOSTID", unit, 1); /* not enough by itself */
    unsetenv("CAIRN_SHARED_GPU");
    bool there = comm_device_ready(c, "") == OK || !strstr(status_message(), "cairn_nccl.so"); /* the module */
    if (c->size < 3 || !there) return 0;
    require(comm_device_ready(c, unit) == E_USAGE);
    require(strstr(status_message(), "rank 0 on ") && strstr(status_message(), "and rank 2 are on the same GPU"));
    require(strstr(status_message(), "(GPU-0)") && strstr(status_message(), "CAIRN_SHARED_GPU=1"));
    setenv("CAIRN_SHARED_GPU", "1", 1);
    require(comm_device_ready(c, unit) == OK);
    if (c->rank == 2) unsetenv("CAIRN_SHARED_GPU"); /* a rank without the permission */
    require(comm_device_ready(c, unit) == E_USAGE);
    return 0;
}

/* With 1, 2, 3 and 4 ranks. */
static void at_all_sizes(RankWork work)
{
    for (int size = 1; size <= 4; size++) {
        Ranks ranks = ranks_of(size);
        ranks_run(&ranks, work);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    at_all_sizes(bytes_work);
}

static void test_sums(void **state)
{
    (void)state;
    at_all_sizes(sums_work);
}

static void test_agree(void **state)
{
    (void)state;
    at_all_sizes(agree_work);
}

static void test_same_gpu(void **state)
{
    (void)state;
    at_all_sizes(same_gpu);
}

/* Ranks are told where they meet; they know rank 0's host; all are known to be on this host, in a job without a name.
 */
static void test_places(void **state)
{
    (void)state;
    Ranks ranks = ranks_of(3);
    ranks.options.rendezvous = "tcp://127.0.0.1";
    ranks_run(&ranks, bytes_work);
    ranks = ranks_of(3);
    snprintf(ranks.world.master, sizeof ranks.world.master, "127.0.0.1");
    ranks_run(&ranks, sums_work);
    ranks = ranks_of(2);
    ranks.world.local_size = 2;
    *ranks.world.job = '\0';
    setenv("CAIRN_JOB_TOKEN", "of test_places", 1);
    ranks_run(&ranks, sums_work);
    unsetenv("CAIRN_JOB_TOKEN");
}

/* Runs of one job, one after another. */
static void test_again(void **state)
{
    (void)state;
    Ranks ranks = ranks_of(2);
    for (int run = 0; run < 4; run++) {
        ranks.world.size = 2 + run % 2;
        ranks_run(&ranks, agree_work);
    }
}

/* ---- a rank that leaves while its last message is under way ---- */

enum { LAST = 512 << 10 }; /* more than a frozen receiver takes, less than the systems of both sides keep */

static int leave_at_once(Comm *c, void *arg)
{
    pid_t *receiver = arg;
    uint8_t *data = mem_alloc(LAST), posted = 0;
    if (c->rank == 0) {
        const size_t send[2] = {0, 1}, receive[2] = {0, LAST};
        *receiver = getpid();
        require(comm_alltoallv(c, &posted, send, data, receive) == OK && is_filled(data, LAST, 1, 0));
        free(data);
        return 0;
    }
    fill(data, LAST, 1, 0);
    require(comm_receive(c, 0, &posted, 1) == OK); /* rank 0 is ready to receive */
    require(kill(*receiver, SIGSTOP) == 0);
    Status status = comm_send(c, 0, data, LAST);
    comm_close(c);
    require(kill(*receiver, SIGCONT) == 0 && status == OK);
    _exit(0);
}

/* Closing a Comm discards nothing that was sent. */
static void test_leave(void **state)
{
    (void)state;
    Ranks ranks = ranks_of(2);
    ranks.arg = mmap(NULL, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(ranks.arg != MAP_FAILED);
    ranks_run(&ranks, leave_at_once);
    munmap(ranks.arg, sizeof(pid_t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),    cmocka_unit_test(test_sums),   cmocka_unit_test(test_agree),
        cmocka_unit_test(test_same_gpu), cmocka_unit_test(test_places), cmocka_unit_test(test_again),
        cmocka_unit_test(test_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
