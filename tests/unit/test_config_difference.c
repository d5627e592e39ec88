/* What differs between a configuration and the one that a run was started with. */
#include "config_testing.h"

/* The difference between a configuration of these flags and the stored default one. */
static void assert_difference(const char *flag, Effect effect, const char *expected)
{
    Config c;
    Json *stored;
    Buf report = {0};
    Effect worst = EFFECT_RESULT;
    assert_ok(parse(&c, "glue", NULL));
    char *text = print_json(&c);
    config_free(&c);
    assert_ok(js_parse("stored", text, strlen(text), &stored));
    assert_ok(parse(&c, "glue", flag, NULL));
    assert_ok(config_difference(&c, stored, &worst, &report));
    assert_int_equal(worst, effect);
    if (!*expected)
        assert_int_equal(report.len, 0);
    else
        assert_string_equal(report.data, expected);
    buf_free(&report);
    js_free(stored);
    free(text);
    config_free(&c);
}

static void test_difference(void **state)
{
    (void)state;
    assert_difference("--batch-size=32", EFFECT_NONE, ""); /* given, with the same value */
    assert_difference("--batch-size=16", EFFECT_RESULT, "--batch-size was 32, is 16");
    assert_difference("--seed=43", EFFECT_RESULT, "--seed was 42, is 43");
    assert_difference("--learning-rate=0.00002", EFFECT_NONE, "");
    assert_difference("--learning-rate=3e-5", EFFECT_RESULT, "--learning-rate was 2e-05, is 3e-05");
    assert_difference("--epochs=3.0", EFFECT_NONE, "");
    assert_difference("--optimizer=lamb", EFFECT_RESULT, "--optimizer was adamw, is lamb");
    assert_difference("--no-bias-correction", EFFECT_RESULT, "--bias-correction was true, is false");
    assert_difference("--threads=3", EFFECT_NONE, "");
    assert_difference("--backend=ref", EFFECT_BITS, "--backend was auto, is ref (not bit-exact)");
    assert_difference("--recompute=full", EFFECT_NONE, ""); /* changes no bit */
    assert_difference("--memory-budget=1G", EFFECT_NONE, "");
    assert_difference("--save-every=1m", EFFECT_NONE, "");
    assert_difference("--output-dir=elsewhere", EFFECT_NONE, "");
}

static void test_difference_of_several(void **state)
{
    (void)state;
    Config c;
    Json *stored;
    Buf report = {0};
    Effect worst;
    static const char text[] = "{\"threads\": 2, \"task\": \"RTE\", \"gone\": 1, \"batch-size\": \"32\", \"padded\": "
                               "true, \"optimizer\": \"lamb\"}";
    assert_ok(js_parse("stored", text, sizeof text - 1, &stored));
    assert_ok(parse(&c, "glue", "--threads=4", "--micro-batch-tokens=512", NULL)); /* threads change no bit */
    assert_ok(config_difference(&c, stored, &worst, &report));
    assert_int_equal(worst, EFFECT_RESULT); /* the worst of all, which comes first; --padded follows */
    assert_string_equal(report.data, "--task was RTE, is MNLI; --optimizer was lamb, is adamw; "
                                     "--padded was true, is false (not bit-exact)");
    js_free(stored);
    buf_free(&report);

    assert_ok(js_parse("stored", "[1]", 3, &stored));
    assert_status(config_difference(&c, stored, &worst, &report), E_CORRUPT);
    js_free(stored);
    assert_status(config_difference(&c, NULL, &worst, &report), E_CORRUPT);
    buf_free(&report);
    config_free(&c);
}

/* With the same virtual ranks no bit depends on these options. */
static void test_difference_with_virtual_ranks(void **state)
{
    (void)state;
    static const char text[] =
        "{\"virtual-ranks\": 4, \"bucket-size\": 4096, \"micro-batch-tokens\": \"96\", \"pipeline\": \"1f1b\"}";
    static const char *const now[] = {"--virtual-ranks=4", "--virtual-ranks=2", "--virtual-ranks=0"};
    Json *stored;
    assert_ok(js_parse("stored", text, sizeof text - 1, &stored));
    for (size_t i = 0; i < sizeof now / sizeof *now; i++) {
        Config c;
        Buf report = {0};
        Effect worst;
        assert_ok(parse(&c, "glue", now[i], NULL));
        assert_ok(config_difference(&c, stored, &worst, &report));
        assert_int_equal(worst, i == 0 ? EFFECT_NONE : EFFECT_BITS);
        buf_free(&report);
        config_free(&c);
    }
    js_free(stored);
}

/* What was a default when the run began stays, unless it is given now. */
static void test_former_default(void **state)
{
    (void)state;
    static const struct {
        const char *command, *stored, *given;
        bool kept, value;
    } cases[] = {
        {"glue", "{\"bias-correction\": false}", NULL, true, false},
        {"squad", "{\"bias-correction\": false}", NULL, true, false},
        {"adapt", "{\"bias-correction\": false}", NULL, true, false},
        {"glue", "{\"bias-correction\": false}", "--bias-correction", false, true},
        {"glue", "{\"bias-correction\": true}", NULL, false, true},
        {"glue", "{}", NULL, false, true},
        {"pretrain", "{\"bias-correction\": false}", NULL, false, false}, /* is still its default */
        {"pretrain", "{\"bias-correction\": false}", "--preset=bert-base-phase1", false, true},
        {"pretrain", "{\"bias-correction\": false}", "--preset=bert-base-original", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Config c;
        Json *stored;
        Buf kept = {0};
        assert_ok(js_parse("stored", cases[i].stored, strlen(cases[i].stored), &stored));
        assert_ok(parse(&c, cases[i].command, cases[i].given, NULL));
        assert_int_equal(config_keep_former(&c, stored, &kept), cases[i].kept);
        assert_int_equal(c.bias_correction, cases[i].value);
        if (cases[i].kept)
            assert_string_equal(kept.data, "--bias-correction=false");
        else
            assert_int_equal(kept.len, 0);
        buf_free(&kept);
        js_free(stored);
        config_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_difference),
        cmocka_unit_test(test_difference_of_several),
        cmocka_unit_test(test_difference_with_virtual_ranks),
        cmocka_unit_test(test_former_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
