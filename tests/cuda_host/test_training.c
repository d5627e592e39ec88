/* A tiny BERT trained through the whole CUDA backend on the host executor, or on a GPU (cuda_host/which.h): ten steps
   compared with cpu and ref; every policy with the bits of none; graphs replayed or not; saved and resumed. */
#include "asan.h"
#include "cuda_host/which.h"
#include "train/parts/account.h"

static const char *const policies[] = {
    "lean",     "ffn",     "selective", "half-attention",         "full",
    "offload",  "every:1", "every:2",   "x+qkv/host+g*1,x+pre*1", "inner*1,x+qkv+y1*1",
    "qkv+o+pre"};
static const Dtype types[] = {F32, BF16, F16};
enum { N_TYPES = sizeof types / sizeof *types };

static bool possible(const char *name, Dtype compute)
{
    Backend *b = NULL;
    char why[256] = "";
    if (backend_open(name, NULL, &b) != OK) {
        print_message("skipped: %s\n", status_message());
        return false;
    }
    bool can = b->supports(b, compute, why, sizeof why);
    if (!can) print_message("skipped: %s in %s: %s\n", name, dtype_name(compute), why);
    backend_close(b);
    return can;
}

/* Ranges run plainly in their first step, are captured in the second, and replayed from the third on. */
#define FEW_STEPS 3

static void run(Training *t, const TrainingOptions *o, int steps)
{
    training_open(t, o);
    training_begin(t);
    training_steps(t, 0, steps);
}

/* ---- against the other backends ---- */

/* The difference of all parameters, relative to their movement. key.bias has no gradient except rounding. */
static double difference(const Training *a, const Training *b)
{
    const ParamTable *table = &a->model.params;
    double difference = 0, moved = 0;
    float *x = training_state(a, STATE_WEIGHTS), *y = training_state(b, STATE_WEIGHTS),
          *start = mem_array((size_t)table->size, sizeof *start);
    params_init(table, 1, start);
    for (int i = 0; i < table->count; i++) {
        const Param *p = &table->params[i];
        if (strstr(p->name, "key.bias")) continue;
        for (int64_t j = p->offset; j < p->offset + param_exported(p); j++) {
            difference += ((double)x[j] - y[j]) * ((double)x[j] - y[j]);
            moved += ((double)y[j] - start[j]) * ((double)y[j] - start[j]);
        }
    }
    free(x);
    free(y);
    free(start);
    assert_true(moved > 0);
    return sqrt(difference / moved);
}

static void compare(const Training *ours, const TrainingOptions *o, const char *with)
{
    Training theirs;
    TrainingOptions other = *o;
    double worst = 0, loss_bound = o->compute == F32 ? 1e-6 : 1e-3, weight_bound = o->compute == F32 ? 1e-5 : 2e-2;
    if (on_a_gpu()) loss_bound *= 10, weight_bound *= 10; /* its exp, and another order of sums in products */
    other.backend = with;
    run(&theirs, &other, TRAINING_STEPS);
    for (int i = 0; i < TRAINING_STEPS; i++) worst = fmax(worst, fabs(ours->loss[i] - theirs.loss[i]));
    double weights = difference(ours, &theirs);
    print_message("%s, hidden %d, against %s: losses differ by %.2g, weights by %.2g of their way\n",
                  dtype_name(o->compute), ours->model.config.hidden, with, worst, weights);
    if (!(worst < loss_bound)) fail_msg("losses differ by %g, bound %g", worst, loss_bound);
    if (!(weights < weight_bound)) fail_msg("weights differ by %g of their way, bound %g", weights, weight_bound);
    assert_true(theirs.loss[TRAINING_STEPS - 1] < theirs.loss[0]); /* it learns */
    training_close(&theirs);
}

static void test_ten_steps(void **state)
{
    static const char *const sizes[] = {training_head_16, training_head_32}, *const others[] = {"ref", "cpu"};
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t s = 0; s < 2; s++) {
            Training ours;
            if (!testing_deep() && s != t % 2) continue;
            if (testing_brief() && types[t] == BF16) continue; /* slow, and test_policies runs bf16 */
            TrainingOptions o = {.backend = BACKEND, .compute = types[t], .sizes = sizes[s], .policy = "lean"};
            run(&ours, &o, TRAINING_STEPS);
            for (size_t i = testing_brief(); i < 2; i++) /* with a sanitizer against cpu alone */
                if (possible(others[i], types[t])) compare(&ours, &o, others[i]);
            training_close(&ours);
        }
}

/* Extremes: one token; sequences of length 2; the longest sequences; no masked position. All except the longest leave
   most rows of their bucket empty. */
static void test_small_batches(void **state)
{
    static const int lengths[][TRAINING_MICROS][TRAINING_SEQS] = {
        {{1}, {1}}, {{2, 2, 2, 2, 2, 2, 2, 2}, {2}}, {{64, 64}, {64, 1, 63}}};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int pretraining = 0; pretraining < 2; pretraining++) {
            Training ours, theirs;
            if (TESTING_ASAN && i == 2 && pretraining) continue; /* slow, and the same as the other */
            TrainingOptions o = {
                .backend = BACKEND, .compute = F32, .lengths = lengths[i], .pretraining = pretraining != 0};
            double loss_bound = on_a_gpu() ? 1e-5 : 1e-6;
            run(&ours, &o, FEW_STEPS);
            o.backend = "ref";
            run(&theirs, &o, FEW_STEPS);
            for (int step = 0; step < FEW_STEPS; step++)
                if (!(fabs(ours.loss[step] - theirs.loss[step]) < loss_bound))
                    fail_msg("lengths %zu, pretraining %d, step %d: loss %.9g, ref has %.9g", i, pretraining, step + 1,
                             ours.loss[step], theirs.loss[step]);
            assert_true(ours.loss[FEW_STEPS - 1] < ours.loss[0]);
            training_close(&theirs);
            training_close(&ours);
        }
}

/* ---- the same bits ---- */

static struct {
    Status (*launch)(Device *, void *);
    int launched;
    int refused; /* captures that were refused */
} graphs;

static Status counted(Device *d, void *graph)
{
    graphs.launched++;
    return graphs.launch(d, graph);
}

static void count_graphs(Backend *b)
{
    memset(&graphs, 0, sizeof graphs);
    graphs.launch = b->device->graph_launch;
    b->device->graph_launch = counted;
}

static Status refuse(Device *d)
{
    (void)d;
    graphs.refused++;
    return status_fail(E_FAIL, "no graphs today");
}

static void refuse_graphs(Backend *b)
{
    count_graphs(b);
    b->device->capture_begin = refuse;
}

static void without_graphs(Backend *b)
{
    count_graphs(b);
    b->device->capture_begin = NULL;
}

static void test_policies(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        Training want;
        run(&want, &(TrainingOptions){.backend = BACKEND, .compute = types[t]}, FEW_STEPS);
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            Training got;
            /* each in one type; with a sanitizer one policy to a type */
            if (testing_brief() ? p != t : !testing_deep() && p % N_TYPES != t) continue;
            TrainingOptions o = {
                .backend = BACKEND, .compute = types[t], .policy = policies[p], .change = count_graphs};
            run(&got, &o, FEW_STEPS);
            assert_true(graphs.launched > 0);
            training_same_bits(&got, &want, 0, FEW_STEPS, policies[p]);
            training_close(&got);
        }
        training_close(&want);
    }
}

/* A coupled step, whose first micro-batch runs in two graphs; with copies these wait for each other. */
static void test_coupled(void **state)
{
    static const Coupling coupling = {
        .loss = COUPLE_INFONCE, .rows = 2, .texts = 3, .temperature = 0.05f, .symmetric = true};
    static const char *const kept[] = {"lean", "offload", "x+qkv/host+g*1,x+pre*1"};
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        Training want, got;
        TrainingOptions o = {.backend = BACKEND, .compute = types[t], .coupling = &coupling, .change = without_graphs};
        if (testing_brief() && types[t] != F16) continue; /* slow */
        o.pooling = types[t] == F32 ? POOLING_CLS : POOLING_MEAN;
        run(&want, &o, FEW_STEPS);
        assert_true(want.loss[FEW_STEPS - 1] < want.loss[0]);
        o.change = count_graphs;
        for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
            o.policy = kept[k];
            run(&got, &o, FEW_STEPS);
            assert_true(graphs.launched > 0);
            training_same_bits(&got, &want, 0, FEW_STEPS, SHORT_TEXT("coupled, %s", kept[k]));
            training_close(&got);
        }
        training_close(&want);
    }
}

static void spoil_gradients(const Training *t)
{
    size_t bytes = (size_t)t->model.params.size * sizeof(float);
    void *nans = mem_alloc(bytes);
    memset(nans, 0xff, bytes);
    assert_ok(exec_upload(t->session.train[0], t->session.plan.chunk->train_tensors.grads, nans, bytes));
    free(nans);
}

/* A step has the same bits whatever gradients hold when it begins: its first micro-batch begins them. Without a
   micro-batch they are 0. */
static void test_old_gradients(void **state)
{
    (void)state;
    for (int pretraining = 0; pretraining < 2; pretraining++) {
        Training want, got;
        Stats stats;
        TrainingOptions o = {.backend = BACKEND, .compute = BF16, .pretraining = pretraining != 0};
        if (testing_brief() && pretraining) continue; /* slow */
        run(&want, &o, FEW_STEPS);
        training_open(&got, &o);
        training_begin(&got);
        for (int step = 0; step < FEW_STEPS; step++) {
            spoil_gradients(&got);
            training_steps(&got, step, step + 1);
        }
        training_same_bits(&got, &want, 0, FEW_STEPS, "over old gradients");
        spoil_gradients(&got);
        assert_ok(session_begin(&got.session, FEW_STEPS + 1, 1, 0));
        assert_ok(session_update(&got.session, &got.optimizer, FEW_STEPS + 1, 1e-3, &stats));
        assert_true(stats.finite && stats.grad_norm == 0);
        training_close(&want);
        training_close(&got);
    }
}

/* Two micro-batches in buckets of their own, begin and update. */
static void test_graphs(void **state)
{
    (void)state;
    Training want, got;
    TrainingOptions o = {.backend = BACKEND, .compute = F32, .policy = "full", .change = count_graphs};
    run(&want, &o, FEW_STEPS);
    assert_int_equal(graphs.launched, (FEW_STEPS - 1) * (TRAINING_MICROS + 2));
    o.change = without_graphs;
    run(&got, &o, FEW_STEPS);
    assert_int_equal(graphs.launched, 0);
    training_same_bits(&got, &want, 0, FEW_STEPS, "without graphs");
    training_close(&got);
    o.change = refuse_graphs;
    run(&got, &o, FEW_STEPS);
    assert_int_equal(graphs.launched, 0);
    assert_int_equal(graphs.refused, TRAINING_MICROS + 2); /* asked once for each */
    training_same_bits(&got, &want, 0, FEW_STEPS, "with graphs refused");
    training_close(&got);
    training_close(&want);
}

/* The loss scale of fp16 moves on the device alone: overflows in replayed steps leave weights and moments as they were,
   and the steps after them have the bits of steps that were never captured. */
static void test_overflow_in_graphs(void **state)
{
    (void)state;
    Training want, got;
    TrainingOptions o = {.backend = BACKEND, .compute = F16, .loss_scale = 0x1p30f, .change = count_graphs};
    training_open(&got, &o);
    training_begin(&got);
    float *start = training_state(&got, STATE_WEIGHTS);
    size_t bytes = (size_t)got.model.params.size * sizeof *start;
    training_steps(&got, 0, FEW_STEPS);
    assert_int_equal(graphs.launched, (FEW_STEPS - 1) * (TRAINING_MICROS + 2));
    assert_int_equal(got.session.scaling.skipped, FEW_STEPS);
    assert_true(got.session.scaling.scale == 0x1p30f / (1 << FEW_STEPS));
    float *weights = training_state(&got, STATE_WEIGHTS), *m = training_state(&got, STATE_M);
    assert_memory_equal(weights, start, bytes);
    for (int64_t i = 0; i < got.model.params.size; i++) assert_true(m[i] == 0);
    int steps = 0;
    while (got.session.scaling.good < 2 && steps < 40) { /* until it fits, then two updates */
        training_steps(&got, FEW_STEPS, FEW_STEPS + 1);
        steps++;
    }
    assert_int_equal(got.session.scaling.good, 2);
    o.change = without_graphs;
    training_open(&want, &o);
    training_begin(&want);
    training_steps(&want, 0, FEW_STEPS);
    while (steps--) training_steps(&want, FEW_STEPS, FEW_STEPS + 1);
    assert_int_equal(graphs.launched, 0);
    assert_memory_equal(&got.session.scaling, &want.session.scaling, sizeof want.session.scaling);
    training_same_bits(&got, &want, 0, FEW_STEPS + 1, "overflows in graphs");
    free(start);
    free(weights);
    free(m);
    training_close(&got);
    training_close(&want);
}

/* fp32 with TF32's products differs from fp32, but little; its policies have the same bits. Other backends refuse it.
 */
static void test_tf32(void **state)
{
    (void)state;
    Training plain, tf32, full;
    TrainingOptions o = {.backend = BACKEND, .compute = F32};
    run(&plain, &o, FEW_STEPS);
    training_close(&plain);
    o.tf32 = true;
    run(&tf32, &o, FEW_STEPS);
    assert_non_null(strstr(tf32.backend->describe, "TF32"));
    assert_string_equal(backend_precision(tf32.backend, F32), "tf32");
    assert_string_equal(backend_precision(tf32.backend, BF16), "bf16");
    double apart = fabs(tf32.loss[FEW_STEPS - 1] - plain.loss[FEW_STEPS - 1]);
    if (!(apart > 0 && apart < 1e-3)) fail_msg("TF32's loss is %g from that of fp32", apart);
    o.policy = "full";
    run(&full, &o, FEW_STEPS);
    training_same_bits(&full, &tf32, 0, FEW_STEPS, "full in TF32");
    training_close(&full);
    training_close(&tf32);

    Backend *b = NULL;
    assert_status(backend_open("ref", &(BackendOptions){.tf32 = true}, &b), E_USAGE);
    assert_message("--precision tf32: the backend 'ref' has no TF32 products");
    assert_null(b);
    assert_ok(backend_open(BACKEND, &(BackendOptions){.attention = ATTENTION_OWN}, &b));
    assert_non_null(strstr(b->describe, "attention own"));
    backend_close(b);
}

/* Attention by wgmma is another way to the same losses, and says so; policies have the same bits. */
static void native_attention(const Training *plain, const char *products)
{
    Training native, full;
    TrainingOptions o = {.backend = BACKEND, .compute = BF16};
    run(&native, &o, FEW_STEPS);
    assert_non_null(strstr(native.backend->describe, products));
    double apart = fabs(native.loss[FEW_STEPS - 1] - plain->loss[FEW_STEPS - 1]);
    if (!(apart < 1e-2)) fail_msg("the loss %s is %g from that without", products, apart);
    o.policy = "full";
    run(&full, &o, FEW_STEPS);
    training_same_bits(&full, &native, 0, FEW_STEPS, "full, native");
    training_close(&full);
    training_close(&native);
}

static void test_native_attention(void **state)
{
    (void)state;
    Training plain;
    TrainingOptions o = {.backend = BACKEND, .compute = BF16};
    run(&plain, &o, FEW_STEPS);
    training_close(&plain);
    setenv("CAIRN_CUDA_NATIVE_ATTENTION", "1", 1);
    Backend *b = NULL;
    if (on_a_gpu() && backend_open(BACKEND, NULL, &b) != OK) {
        unsetenv("CAIRN_CUDA_NATIVE_ATTENTION");
        skip();
    }
    backend_close(b);
    if (on_a_gpu()) {
        native_attention(&plain, "attention own, ");
    } else {
        native_attention(&plain, "attention own, by wgmma");
        setenv("CAIRN_TEST_CUDA_HOST_MAJOR", "8", 1);
        assert_status(backend_open(BACKEND, NULL, &b), E_USAGE);
        assert_message("CAIRN_CUDA_NATIVE_ATTENTION: it is for GPUs of compute capability 9.0 (wgmma), and");
        unsetenv("CAIRN_TEST_CUDA_HOST_MAJOR");
    }
    unsetenv("CAIRN_CUDA_NATIVE_ATTENTION");
    assert_ok(backend_open(BACKEND, NULL, &b));
    assert_null(strstr(b->describe, "by wgmma"));
    backend_close(b);
}

/* A GPU of compute capability 7.5 has fp16 and fp32, and refuses what it lacks by name. */
static void test_turing(void **state)
{
    (void)state;
    Backend *b = NULL;
    char why[256] = "";
    Training plain, turing;
    TrainingOptions o = {.backend = BACKEND, .compute = F16};
    if (on_a_gpu()) skip();
    run(&plain, &o, FEW_STEPS);
    training_close(&plain);
    setenv("CAIRN_TEST_CUDA_HOST_MAJOR", "7", 1);
    assert_status(backend_open(BACKEND, &(BackendOptions){.tf32 = true}, &b), E_USAGE);
    assert_message("--precision tf32 needs compute capability 8.0 (Ampere), and host executor has 7.5");
    assert_status(backend_open(BACKEND, &(BackendOptions){.attention = ATTENTION_CUDNN}, &b), E_USAGE);
    assert_message("--attention cudnn needs compute capability 8.0 (Ampere), and host executor has 7.5");
    assert_ok(backend_open(BACKEND, NULL, &b));
    assert_non_null(strstr(b->describe, "(sm_75)"));
    assert_int_equal(b->best_compute(b), F32); /* auto is never fp16 */
    assert_false(b->supports(b, BF16, why, sizeof why));
    assert_non_null(strstr(
        why, "bf16 needs compute capability 8.0 (Ampere), and host executor has 7.5; use --precision fp16 or fp32"));
    backend_close(b);
    run(&turing, &o, FEW_STEPS);
    unsetenv("CAIRN_TEST_CUDA_HOST_MAJOR");
    for (int i = 0; i < FEW_STEPS; i++) assert_true(fabs(plain.loss[i] - turing.loss[i]) < 1e-3);
    training_close(&turing);
}

/* All these tests have dropout. */
static void test_dropout_matters(void **state)
{
    (void)state;
    Training with, without;
    TrainingOptions o = {.backend = BACKEND, .compute = F32};
    training_open(&with, &o);
    training_begin(&with);
    training_steps(&with, 0, 1);
    o.no_dropout = true;
    training_open(&without, &o);
    training_begin(&without);
    training_steps(&without, 0, 1);
    assert_true(fabs(with.loss[0] - without.loss[0]) > 1e-5);
    training_close(&with);
    training_close(&without);
}

static void test_save_and_go_on(void **state)
{
    for (size_t t = 0; t < N_TYPES; t++) {
        Training whole, first, second;
        if (TESTING_ASAN && types[t] != F16) continue; /* slow; fp16 has the most state */
        TrainingOptions o = {.backend = BACKEND, .compute = types[t], .policy = "selective"};
        char *dir = file_join(*state, dtype_name(types[t]));
        run(&whole, &o, 6);
        training_open(&first, &o);
        training_begin(&first);
        training_steps(&first, 0, 4);
        assert_ok(training_save(&first, dir, 4));
        training_close(&first);
        training_open(&second, &o);
        training_load(&second, dir, 4);
        training_steps(&second, 4, 6);
        training_same_bits(&second, &whole, 4, 6, "resumed from step 4");
        training_close(&second);
        training_close(&whole);
        free(dir);
    }
}

/* The device is lost in the middle of a step: the step and all later calls, also a save, report it. The earlier
   checkpoint is intact, and a new process on another device resumes from it. */
static struct {
    Status (*wait)(Device *), (*download)(Device *, void *, const void *, size_t),
        (*upload)(Device *, void *, const void *, size_t);
    bool gone;
} dying;

static Status gone(void) { return status_fail(E_FAIL, "the device fell off the bus"); }
static Status dying_wait(Device *d) { return dying.gone ? gone() : dying.wait(d); }
static Status dying_download(Device *d, void *to, const void *from, size_t n)
{
    return dying.gone ? gone() : dying.download(d, to, from, n);
}
static Status dying_upload(Device *d, void *to, const void *from, size_t n)
{
    return dying.gone ? gone() : dying.upload(d, to, from, n);
}

static void let_it_die(Backend *b)
{
    Device *d = b->device;
    dying.wait = d->wait;
    dying.download = d->download;
    dying.upload = d->upload;
    dying.gone = false;
    d->wait = dying_wait;
    d->download = dying_download;
    d->upload = dying_upload;
}

static void test_a_device_that_dies(void **state)
{
    Training whole, first, second;
    Stats stats;
    float weight;
    TrainingOptions o = {.backend = BACKEND, .compute = BF16, .policy = "lean"};
    run(&whole, &o, 6);
    o.change = let_it_die;
    training_open(&first, &o);
    training_begin(&first);
    training_steps(&first, 0, 4);
    assert_ok(training_save(&first, *state, 4));
    int n_seqs = first.batch[0].n_seqs + first.batch[1].n_seqs;
    assert_ok(session_begin(&first.session, 5, n_seqs, 0));
    assert_ok(training_micros(&first, 0, 1));
    dying.gone = true;
    Status status = training_micros(&first, 1, 1);
    if (status == OK) status = session_update(&first.session, &first.optimizer, 5, 1e-3, &stats);
    assert_status(status, E_FAIL);
    assert_message("fell off the bus");
    assert_status(session_read_range(&first.session, STATE_WEIGHTS, 0, 1, &weight), E_FAIL);
    assert_status(training_save(&first, *state, 5), E_FAIL);
    training_close(&first);

    o.change = NULL;
    training_open(&second, &o);
    training_load(&second, *state, 4);
    training_steps(&second, 4, 6);
    training_same_bits(&second, &whole, 4, 6, "after a device that died");
    training_close(&second);
    training_close(&whole);
}

/* ---- memory ---- */

enum { LOADED = 64 << 10 }; /* bytes that the twin's library takes at the first product of a type */

/* A run's memory of a device is measured when the library has computed a product of each type; without room for them it
   is measured all the same. */
static void test_memory_after_products(void **state)
{
    (void)state;
    size_t total, opened, context;
    Accounts first, second;
    Backend *b = NULL;
    assert_ok(backend_open(BACKEND, NULL, &b));
    b->device->memory(b->device, &total, &opened, &context);
    accounts_measure(&first, b, 0, 1, 0, 0);
    accounts_measure(&second, b, 0, 1, 0, 0);
    assert_true(first.row[0].held >= context && first.row[0].budget <= opened + context);
    if (!on_a_gpu()) {
        assert_int_equal(first.row[0].held, context + N_TYPES * LOADED);
        assert_int_equal(first.row[0].budget, total - total / 64);
        assert_int_equal(second.row[0].held, first.row[0].held);
        assert_int_equal(b->device->used(b->device), first.row[0].held);
    }
    backend_close(b);
    if (on_a_gpu()) return;
    setenv("CAIRN_TEST_CUDA_HOST_DEVICE", "0", 1);
    assert_ok(backend_open(BACKEND, NULL, &b));
    accounts_measure(&first, b, 0, 1, 0, 0);
    assert_int_equal(first.row[0].held, 0);
    assert_int_equal(first.row[0].budget, 0);
    backend_close(b);
    setenv("CAIRN_TEST_CUDA_HOST_DEVICE", "64", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_steps),
        cmocka_unit_test(test_small_batches),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_coupled),
        cmocka_unit_test(test_old_gradients),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_overflow_in_graphs),
        cmocka_unit_test(test_tf32),
        cmocka_unit_test(test_native_attention),
        cmocka_unit_test(test_turing),
        cmocka_unit_test(test_dropout_matters),
        cmocka_unit_test(test_memory_after_products),
        cmocka_unit_test_setup_teardown(test_save_and_go_on, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_a_device_that_dies, testing_set_up, testing_tear_down),
    };
    setenv("CAIRN_CPU_BF16", "emulate", 1); /* cpu in bf16 on every machine */
    which_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
