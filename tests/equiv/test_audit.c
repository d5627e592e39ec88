/* A machine that flips one bit: --audit recompute finds every flip in what is recomputed and names it; a step that is
   computed twice shows every flip that changes a gradient or a loss. Steps without a flip give no alarm. */
#include "equiv/training.h"

#define FLIPS testing_rounds(50, 10000) /* of each kind */
#define CLEAN testing_rounds(60, 100000)

/* An output of an instr of `micro`. */
typedef struct {
    InstrId instr;
    int out;
} Place;

typedef struct {
    Training t;
    Place *places; // (n)
    int n, cap;
    TensorId *again; // (tensors): the first that is made again in a tensor's stead; NONE
} Audited;

static uint64_t draw(int i, int what)
{
    Philox4 w = philox4(7, (uint32_t)i, (uint32_t)what, 0, 0);
    return (uint64_t)w.v[0] << 32 | w.v[1];
}

static void open_audited(Audited *a, const char *backend, Dtype compute, const char *policy)
{
    const TrainingOptions o = {.backend = backend, .compute = compute, .policy = policy, .audit = true};
    *a = (Audited){0};
    training_open(&a->t, &o);
    training_begin(&a->t);
    const Plan *p = &a->t.session.plan.chunk->train;
    a->again = mem_array((size_t)p->n_tensors, sizeof *a->again);
    for (TensorId t = 0; t < p->n_tensors; t++) a->again[t] = NONE;
    for (InstrId i = p->micro.first + p->micro.count - 1; i >= p->micro.first; i--)
        for (int k = 0; k < OP_MAX_OUT; k++) {
            TensorId t = p->instrs[i].out[k];
            if (t == NONE || p->tensors[t].region != REGION_ACT || p->tensors[t].original == NONE) continue;
            a->again[t] = a->again[p->tensors[t].original] = t;
        }
}

static void close_audited(Audited *a)
{
    training_close(&a->t);
    free(a->places);
    free(a->again);
}

static bool possible(const char *name)
{
    Backend *b = NULL;
    bool can = backend_open(name, &(BackendOptions){.threads = 1}, &b) == OK;
    if (can) backend_close(b);
    if (!can) print_message("skipped: %s: %s\n", name, status_message());
    return can;
}

static bool is_check(Op op) { return op == OP_DIGEST || op == OP_COMPARE; }

/* `compared`: outputs that are compared with the other time alone; else all outputs of the step's own instrs. */
static void find_places(Audited *a, bool compared)
{
    const Plan *p = &a->t.session.plan.chunk->train;
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++)
        for (int k = 0; k < OP_MAX_OUT; k++) {
            TensorId t = p->instrs[i].out[k];
            if (t == NONE || is_check(p->instrs[i].op) || (compared && a->again[t] == NONE)) continue;
            MEM_GROW(a->places, a->n, a->cap);
            a->places[a->n++] = (Place){i, k};
        }
}

/* The gradients of a batch whose number is `batch`. */
static void compute(Audited *a, int batch, const ExecFlip *flip, AuditFound *found, uint64_t *digest)
{
    Session *s = &a->t.session;
    int n_seqs = 0;
    for (int m = 0; m < TRAINING_MICROS; m++) n_seqs += a->t.batch[m].n_seqs;
    assert_ok(session_begin(s, (uint32_t)batch, n_seqs, 0));
    for (int m = 0; m < TRAINING_MICROS; m++) {
        exec_set_flip(s->train[0], m == batch % TRAINING_MICROS ? flip : NULL);
        assert_ok(training_micros(&a->t, m, 1));
    }
    exec_set_flip(s->train[0], NULL);
    int chunk;
    assert_ok(session_audit_found(s, found, &chunk));
    assert_ok(session_own_digest(s, digest));
}

/* In the rows of real tokens and sequences, not in those that fill up a bucket. */
static ExecFlip random_flip(const Audited *a, int i)
{
    const Plan *p = &a->t.session.plan.chunk->train;
    const MicroBatch *b = &a->t.batch[i % TRAINING_MICROS];
    Place at = a->places[draw(i, 0) % (uint64_t)a->n];
    RowCounts rows = {.count = {[ROWS_TOKENS] = b->n_tokens,
                                [ROWS_SEQS] = b->n_seqs,
                                [ROWS_MASKED] = b->n_masked,
                                [ROWS_READ] = b->n_read}};
    size_t bytes = plan_tensor_bytes(p, p->instrs[at.instr].out[at.out], &rows);
    return (ExecFlip){.instr = at.instr, .out = at.out, .bit = draw(i, 1) % (8 * bytes)};
}

static int64_t flipped_row(const Audited *a, const ExecFlip *flip, int micro)
{
    const Plan *p = &a->t.session.plan.chunk->train;
    const MicroBatch *b = &a->t.batch[micro];
    TensorId t = p->instrs[flip->instr].out[flip->out];
    RowCounts rows = exec_rows(a->t.session.train[0], b->n_tokens, b->n_seqs, b->n_masked);
    uint64_t bytes = plan_tensor_bytes(p, t, &rows),
             row = (uint64_t)p->tensors[t].cols * dtype_size(p->tensors[t].dtype);
    return (int64_t)(flip->bit % (8 * bytes) / 8 / row);
}

static const struct {
    const char *backend;
    Dtype compute;
} kinds[] = {{"cpu", F32}, {"ref", BF16}};

static void check_recompute(const char *backend, Dtype compute_type, const char *policy, int flips)
{
    Audited a;
    AuditFound found;
    uint64_t digest;
    open_audited(&a, backend, compute_type, policy);
    find_places(&a, true);
    const Plan *p = &a.t.session.plan.chunk->train;
    assert_true(a.n > 0);
    for (int i = 0; i < flips; i++) {
        ExecFlip flip = random_flip(&a, i);
        TensorId t = p->instrs[flip.instr].out[flip.out], expected = a.again[t];
        compute(&a, i, &flip, &found, &digest);
        int64_t row = flipped_row(&a, &flip, i % TRAINING_MICROS);
        if (found.rows > 0 && found.tensor == expected && found.row == row) continue;
        fail_msg("flip %d in '%s' (instr %d), row %lld, of %s on %s: %lld rows, the first in '%s' %lld", i,
                 p->tensors[t].name, flip.instr, (long long)row, policy, backend, (long long)found.rows,
                 found.rows > 0 ? p->tensors[found.tensor].name : "", (long long)found.row);
    }
    print_message("%s, %s: %d flips in what is recomputed, all found and named\n", backend, policy, flips);
    close_audited(&a);
}

static void test_flips_in_recompute(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (!possible(kinds[k].backend)) continue;
        check_recompute(kinds[k].backend, kinds[k].compute, "full", FLIPS);
        check_recompute(kinds[k].backend, kinds[k].compute, "every:2", FLIPS / 5);
        check_recompute(kinds[k].backend, kinds[k].compute, "lean", FLIPS / 10);
    }
}

/* A flip in the note itself: what it then says is a tensor of the plan that an instr makes. */
static void test_flips_in_notes(void **state)
{
    Audited a;
    AuditFound found;
    uint64_t digest;
    int wrong = 0;
    (void)state;
    open_audited(&a, "ref", F32, "full");
    const Plan *p = &a.t.session.plan.chunk->train;
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++) {
        if (p->instrs[i].op != OP_COMPARE || wrong > 0) continue; /* the first is enough */
        for (uint64_t bit = 0; bit < 8 * sizeof found; bit += 7) {
            compute(&a, 0, &(ExecFlip){.instr = i, .bit = bit}, &found, &digest);
            if (found.rows == 0) continue;
            assert_true(found.rows > 0 && found.row >= 0 && found.tensor >= 0 && found.tensor < p->n_tensors);
            assert_true(plan_maker(p, (TensorId)found.tensor) != NONE);
            wrong++;
        }
    }
    assert_true(wrong > 0);
    close_audited(&a);
}

/* All that the update reads. */
static void copy_results(const Audited *a, float *grads, Stats *stats)
{
    const Session *s = &a->t.session;
    assert_ok(exec_download(s->train[0], s->plan.chunk->train_tensors.grads, grads,
                            (size_t)s->model->params.size * sizeof *grads));
    assert_ok(exec_download(s->train[0], s->plan.chunk->train_tensors.stats, stats, sizeof *stats));
}

/* A flip may change nothing that lasts: in a value that dropout removes, in a bit that a sum rounds away. The digest
   differs exactly where the gradients or losses do. */
static void test_flips_in_steps_computed_twice(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        Audited a;
        AuditFound found;
        uint64_t clean, flipped;
        Stats stats[2];
        int seen = 0, without_effect = 0;
        if (!possible(kinds[k].backend)) continue;
        open_audited(&a, kinds[k].backend, kinds[k].compute, "none");
        find_places(&a, false);
        size_t n = (size_t)a.t.session.model->params.size;
        float *grads[2] = {mem_array(n, sizeof(float)), mem_array(n, sizeof(float))};
        for (int i = 0; i < FLIPS; i++) {
            ExecFlip flip = random_flip(&a, i);
            compute(&a, i, NULL, &found, &clean);
            copy_results(&a, grads[0], &stats[0]);
            compute(&a, i, &flip, &found, &flipped);
            copy_results(&a, grads[1], &stats[1]);
            bool differs = memcmp(grads[0], grads[1], n * sizeof(float)) != 0 ||
                           memcmp(&stats[0], &stats[1], offsetof(Stats, grad_norm)) != 0;
            if (differs != (clean != flipped))
                fail_msg("flip %d: results %s, digests %s", i, differs ? "differ" : "are equal",
                         clean != flipped ? "differ" : "are equal");
            seen += differs;
            without_effect += !differs;
        }
        print_message("%s: %d flips anywhere: %d found, %d changed no gradient, loss or count\n", kinds[k].backend,
                      FLIPS, seen, without_effect);
        assert_true(seen > FLIPS / 2);
        free(grads[0]);
        free(grads[1]);
        close_audited(&a);
    }
}

static void test_no_false_alarm(void **state)
{
    Audited a;
    (void)state;
    if (!possible("cpu")) return;
    open_audited(&a, "cpu", F32, "full");
    for (int i = 0; i < CLEAN; i++) {
        AuditFound found[2];
        uint64_t digests[2];
        Stats stats;
        for (int time = 0; time < 2; time++) compute(&a, i, NULL, &found[time], &digests[time]);
        if (found[0].rows || found[1].rows || digests[0] != digests[1]) fail_msg("a false alarm in step %d", i + 1);
        assert_ok(session_update(&a.t.session, &a.t.optimizer, i % 1000 + 1, 1e-4, &stats));
        assert_int_equal(stats.finite, 1);
    }
    print_message("%d clean steps, each computed twice and compared with its recomputation: no alarm\n", CLEAN);
    close_audited(&a);
}

/* The audit changes no bit of training. */
static void test_same_bits(void **state)
{
    static const char *const policies[] = {"lean", "full", "every:2"};
    (void)state;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        Training with, without;
        TrainingOptions o = {.backend = "ref", .compute = F32, .policy = policies[p]};
        training_open(&without, &o);
        o.audit = o.poison = true;
        training_open(&with, &o);
        training_begin(&without);
        training_begin(&with);
        training_steps(&without, 0, 3);
        training_steps(&with, 0, 3);
        training_same_bits(&with, &without, 0, 3, policies[p]);
        training_close(&with);
        training_close(&without);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flips_in_recompute),
        cmocka_unit_test(test_flips_in_notes),
        cmocka_unit_test(test_flips_in_steps_computed_twice),
        cmocka_unit_test(test_no_false_alarm),
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
