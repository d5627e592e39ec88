/* Texts of --recompute: random mixtures come back as they were written, in each way to write them, and wrong texts are
   refused. */
#include "mixture.h"

enum { MOST_LAYERS = 340 };

static bool same_keeps(const LayerKeep *a, const LayerKeep *b, int n)
{
    for (int l = 0; l < n; l++)
        if (a[l].recomputed != b[l].recomputed || a[l].offloaded != b[l].offloaded) return false;
    return true;
}

static void expect_keeps(const char *text, const LayerKeep *keeps, int n_layers)
{
    Policy policy;
    LayerKeep found[MOST_LAYERS];
    bool offloads = false;
    assert_ok(policy_parse(text, &policy));
    assert_int_equal(policy.kind, POLICY_MIXED);
    assert_ok(policy_check(&policy, n_layers));
    policy_keeps(&policy, n_layers, found);
    if (!same_keeps(found, keeps, n_layers)) fail_msg("'%s' keeps something else", text);
    for (int l = 0; l < n_layers; l++) offloads |= keeps[l].offloaded != 0;
    assert_int_equal(policy_offloads(&policy), offloads);
    assert_status(policy_check(&policy, n_layers + 1), E_USAGE);
    assert_message("must add up to the model's");
}

/* With * for ×, and commas for blanks. The caller frees. */
static char *as_typed(const char *text)
{
    Buf typed = {0};
    for (; *text; text++)
        if (*text == '\xc3')
            buf_puts(&typed, "*");
        else if (*text != '\x97')
            buf_printf(&typed, "%c", *text == ' ' ? ',' : *text);
    return typed.data;
}

static void test_round_trips(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        uint64_t seed = mixture_seed(i);
        LayerKeep keeps[POLICY_RUNS];
        Policy policy;
        char formatted[POLICY_TEXT];
        int n = 1 + (int)(testing_random(&seed) % POLICY_RUNS);
        mixture_draw(&seed, true, n, keeps);
        char *text = mixture_name(keeps, n), *typed = as_typed(text);
        expect_keeps(text, keeps, n);
        expect_keeps(typed, keeps, n);
        assert_ok(policy_parse(typed, &policy));
        policy_format(&policy, formatted);
        assert_string_equal(formatted, text);
        free(text);
        free(typed);
    }
}

/* The longest text of a policy is formatted whole. */
static void test_longest(void **state)
{
    Buf text = {0};
    Policy policy, again;
    char formatted[POLICY_TEXT];
    (void)state;
    for (int run = 0; run < POLICY_RUNS; run++)
        buf_printf(&text, "%sx/host+qkv/host+o/host+y1/host+pre/host+g/host×10000", run ? " " : "");
    assert_ok(policy_parse(text.data, &policy));
    policy_format(&policy, formatted);
    assert_string_equal(formatted, text.data);
    assert_ok(policy_parse(formatted, &again));
    assert_memory_equal(&again, &policy, sizeof policy);
    buf_free(&text);
}

/* One run without a number is all layers, of any model. */
static void test_all_layers(void **state)
{
    static const char *const texts[] = {"x+y1", "inner", "x/host+g", "x+qkv/host+pre/host"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int n = 1; n <= MOST_LAYERS; n += 113) {
            Policy policy;
            LayerKeep keeps[MOST_LAYERS];
            char formatted[POLICY_TEXT];
            assert_ok(policy_parse(texts[i], &policy));
            assert_ok(policy_check(&policy, n));
            policy_keeps(&policy, n, keeps);
            char *name = mixture_name(keeps, n), *wanted = mem_printf("%s×%d", texts[i], n);
            assert_string_equal(name, wanted);
            policy_format(&policy, formatted);
            assert_string_equal(formatted, texts[i]);
            free(name);
            free(wanted);
        }
}

/* Parts are taken in any order; levels are names of them; a policy's own name is no mixture. */
static void test_names(void **state)
{
    static const char *const same[][2] = {{"g+pre+x+o+qkv+y1*2", "none×2"},
                                          {"o+x+y1*1,none*1", "selective×1 none×1"},
                                          {"x*1,x/host*3", "full×1 offload×3"},
                                          {"g/host+x*1,o/host*1", "x+g/host×1 o/host×1"},
                                          {"full×10000", "full×10000"}};
    static const char *const names[] = {"none", "lean",    "ffn",     "selective", "half-attention",
                                        "full", "offload", "every:7", "auto"};
    Policy policy;
    char formatted[POLICY_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        assert_ok(policy_parse(same[i][0], &policy));
        policy_format(&policy, formatted);
        assert_string_equal(formatted, same[i][1]);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_ok(policy_parse(names[i], &policy));
        assert_ok(policy_check(&policy, 1 + (int)i));
        assert_int_equal(policy_offloads(&policy), strcmp(names[i], "offload") == 0);
        policy_format(&policy, formatted);
        assert_string_equal(formatted, names[i]);
    }
}

static void test_wrong_texts(void **state)
{
    static const char *const wrong[][2] = {
        /* and the text from the first wrong run on */
        {""},
        {" "},
        {"fulll"},
        {"Full*2"},
        {"full*0"},
        {"full*-1"},
        {"full*+1"},
        {"full*02"},
        {"full*"},
        {"full*2x"},
        {"full*10001"},
        {"full*99999999999999999999"},
        {"full*2*3"},
        {"full 2"},
        {" full*2"},
        {"full *2"},
        {"x+x"},
        {"+x"},
        {"x+"},
        {"x++o"},
        {"x+x/host"},
        {"g/host+g"},
        {"x/hostt"},
        {"x/hos"},
        {"/host"},
        {"qkv/host/host"},
        {"full/host"},
        {"x+none"},
        {"auto*2"},
        {"half-attention*2"},
        {"none*"},
        {"*3"},
        {"×"},
        {"×3"},
        {"full\xc3"},
        {"full\xc3"
         "2"},
        {"full\x97"
         "2"},
        {"full*2 ", ""},
        {"full*2,", ""},
        {"full*2,,none*2", ",none*2"},
        {"full*2, none*2", " none*2"},
        {"full*2 none", "none"},
        {"full*1 none*1 every:2*3", "every:2*3"},
        {"full*2,x+o+y1*6,q*4,none*1", "q*4,none*1"},
        {"full×2 x+o×\xc3", "x+o×\xc3"},
    };
    Policy policy;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *rest = wrong[i][1];
        char *found = mem_printf("--recompute '%s' is unknown%s%s%s; ", wrong[i][0], rest ? " from '" : "",
                                 rest ? rest : "", rest ? "' on" : "");
        if (policy_parse(wrong[i][0], &policy) == OK) fail_msg("'%s' was taken", wrong[i][0]);
        assert_message(found);
        assert_message("expected none, lean, ffn, ");
        free(found);
    }
    for (const char *const *text = (const char *const[]){"every:", "every:0", "every:1001", "every:2*3", NULL}; *text;
         text++) {
        assert_status(policy_parse(*text, &policy), E_USAGE);
        assert_message("takes a number of layers from 1 to 1000");
    }
    for (int runs = POLICY_RUNS; runs <= 40; runs++) {
        Buf text = {0};
        for (int run = 0; run < runs; run++) buf_printf(&text, "%sfull*1", run ? "," : "");
        assert_status(policy_parse(text.data, &policy), runs == POLICY_RUNS ? OK : E_USAGE);
        if (runs > POLICY_RUNS) assert_message("at most 32 of these");
        buf_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_longest),     cmocka_unit_test(test_all_layers),
        cmocka_unit_test(test_names),       cmocka_unit_test(test_wrong_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
