/* GELU in the kernels of products (CAIRN_CUDA_FUSED_GELU), trained on the host executor, or on a GPU (which.h). */
#include "asan.h"
#include "cuda_host/which.h"

enum { STEPS = 3, FUSED = 2 * 2 }; /* of two layers */
static const char sizes[] = "{\"vocab_size\": 300, \"hidden_size\": 64, \"num_hidden_layers\": 2, "
                            "\"num_attention_heads\": 2, \"intermediate_size\": 256, "
                            "\"max_position_embeddings\": 64}";
static const char tanh_form[] = "{\"vocab_size\": 300, \"hidden_size\": 64, \"num_hidden_layers\": 2, "
                                "\"num_attention_heads\": 2, \"intermediate_size\": 256, "
                                "\"max_position_embeddings\": 64, \"hidden_act\": \"gelu_new\"}";
static const char *const policies[] = {"none",    "lean",    "ffn",     "selective", "half-attention",
                                       "full",    "offload", "every:1", "every:2",   "x+qkv/host+g*1,x+pre*1",
                                       "o+y1+pre"};

static void run(Training *t, const TrainingOptions *o)
{
    training_open(t, o);
    training_begin(t);
    training_steps(t, 0, STEPS);
}

static int fused_products(const Training *t)
{
    const Plan *p = &t->session.plan.chunk->train;
    int n = 0;
    for (InstrId i = 0; i < p->n_instrs; i++) {
        const Instr *instr = &p->instrs[i];
        bool product = instr->op == OP_LINEAR || instr->op == OP_LINEAR_DGRAD;
        n += product && instr->phase != PHASE_RECOMPUTE && instr->attr.linear.fused;
    }
    return n;
}

/* Another way to the same losses; policies have the same bits, and what is made again those of the first time. */
static void test_training(void **state)
{
    Training plain, fused, other;
    TrainingOptions o = {.backend = BACKEND, .compute = BF16, .sizes = sizes};
    (void)state;
    unsetenv("CAIRN_CUDA_FUSED_GELU");
    run(&plain, &o);
    assert_int_equal(fused_products(&plain), 0);
    assert_null(strstr(plain.backend->describe, "GELU"));
    training_close(&plain);
    setenv("CAIRN_CUDA_FUSED_GELU", "1", 1);
    run(&fused, &o);
    assert_int_equal(fused_products(&fused), FUSED);
    assert_non_null(strstr(fused.backend->describe, ", GELU in products ("));
    double apart = fabs(fused.loss[STEPS - 1] - plain.loss[STEPS - 1]);
    if (!(apart < 1e-2)) fail_msg("the loss with GELU in products is %g from that without", apart);
    o.audit = o.poison = true;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        o.policy = policies[p];
        run(&other, &o);
        assert_int_equal(fused_products(&other), FUSED);
        training_same_bits(&other, &fused, 0, STEPS, policies[p]);
        training_close(&other);
    }
    training_close(&fused);
}

/* Other types, forms and widths keep their ops apart, and so do all where the switch is off. */
static void test_others_stay_apart(void **state)
{
    (void)state;
    const TrainingOptions apart[] = {{.backend = BACKEND, .compute = F32, .sizes = sizes},
                                     {.backend = BACKEND, .compute = F16, .sizes = sizes},
                                     {.backend = BACKEND, .compute = BF16, .sizes = training_head_32},
                                     {.backend = BACKEND, .compute = BF16, .sizes = tanh_form}};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) {
        Training t;
        training_open(&t, &apart[i]);
        assert_int_equal(fused_products(&t), 0);
        training_close(&t);
    }
    Training t;
    const TrainingOptions o = {.backend = BACKEND, .compute = BF16, .sizes = sizes};
    setenv("CAIRN_CUDA_FUSED_GELU", "0", 1);
    training_open(&t, &o);
    assert_int_equal(fused_products(&t), 0);
    training_close(&t);
    setenv("CAIRN_CUDA_FUSED_GELU", "1", 1);
}

static void test_refusals(void **state)
{
    Backend *b = NULL;
    (void)state;
    if (on_a_gpu()) skip();
    setenv("CAIRN_TEST_CUDA_HOST_MAJOR", "8", 1);
    assert_status(backend_open(BACKEND, NULL, &b), E_USAGE);
    assert_message("CAIRN_CUDA_FUSED_GELU: it is for GPUs of compute capability 9.0 (Hopper), and");
    unsetenv("CAIRN_TEST_CUDA_HOST_MAJOR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_others_stay_apart),
        cmocka_unit_test(test_refusals),
    };
    setenv("CAIRN_CUDA_FUSED_GELU", "1", 1);
    which_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
