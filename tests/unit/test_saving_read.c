/* state.json: each value out of its range is refused as damage, by name; null and old states are read. */
#include "testing.h"
#include "train/keep/resume.h"
#include "train/keep/saving.h"
#include "train/run/start.h"

static const char *const good =
    "{\"format\": 1, \"step\": 7, \"batch\": 9, \"skipped\": 2, \"finished\": false, \"loss_sum\": 8.5, "
    "\"last_loss\": 1, \"best_metric\": null, \"best_step\": 0, \"evaluated\": 7, \"evaluated_samples\": 30, "
    "\"norm_forms\": [0, 1, 0], "
    "\"loss_scale\": {\"scale\": 1024, \"good\": 5}, \"fingerprint\": {}, \"config\": {\"seed\": 3}}";

/* The good text with one part replaced. */
static void change(Buf *text, const char *from, const char *to)
{
    const char *at = strstr(good, from);
    assert_non_null(at);
    buf_append(text, good, (size_t)(at - good));
    buf_puts(text, to);
    buf_puts(text, at + strlen(from));
}

static Status read_changed(const char *from, const char *to, int64_t step, TrainProgress *p)
{
    Buf text = {0};
    Json *doc = NULL;
    change(&text, from, to);
    Status status = saving_read("out/checkpoint-7", &text, step, &doc, p);
    js_free(doc);
    buf_free(&text);
    return status;
}

static void test_good(void **state)
{
    TrainProgress p;
    (void)state;
    assert_ok(read_changed("{", "{", 7, &p));
    assert_true(p.step == 7 && p.batch == 9 && !p.finished && p.evaluated == 7 && p.evaluated_samples == 30);
    assert_true(p.loss_sum == 8.5 && p.last_loss == 1 && p.best_metric != p.best_metric);
    assert_ok(read_changed(" \"evaluated_samples\": 30,", "", 7, &p));
    assert_true(p.evaluated_samples == -1 && p.since_best == 0);
    assert_ok(read_changed("\"evaluated\": 7", "\"since_best\": 3, \"evaluated\": 7", 7, &p));
    assert_true(p.since_best == 3);
    assert_ok(read_changed("{\"seed\": 3}", "{\"seed\": 3, \"eval-every\": 2}", 7, &p)); /* an old state */
    assert_true(p.since_best == 3);
    assert_status(read_changed("\"evaluated\": 7", "\"since_best\": 8, \"evaluated\": 7", 7, &p), E_CORRUPT);
    assert_message("'since_best' is 8");
    assert_ok(read_changed("\"loss_scale\": {\"scale\": 1024, \"good\": 5}, ", "", 7, &p)); /* fp32 after fp16 */
    assert_true(p.batch == 9);
}

/* States of 0.1.0 have no count of skipped updates but that of their own time in fp16. */
static void test_old(void **state)
{
    static const struct {
        int batch;
        const char *scale;
        Status status;
    } cases[] = {{7, "", OK},
                 {9, "", OK}, /* fp32 after fp16 */
                 {6, "", E_CORRUPT},
                 {9, "\"loss_scale\": {\"scale\": 8, \"good\": 5, \"skipped\": 2}, ", OK},
                 {12, "\"loss_scale\": {\"scale\": 8, \"good\": 5, \"skipped\": 2}, ", OK}, /* fp16, fp32, fp16 */
                 {8, "\"loss_scale\": {\"scale\": 8, \"good\": 5, \"skipped\": 2}, ", E_CORRUPT}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf text = {0};
        Json *doc = NULL;
        TrainProgress p;
        buf_printf(
            &text,
            "{\"format\": 1, \"step\": 7, \"batch\": %d, \"finished\": false, \"loss_sum\": 8.5, \"last_loss\": 1, "
            "\"best_metric\": null, \"best_step\": 0, \"evaluated\": 7, \"norm_forms\": [0], "
            "%s\"fingerprint\": {}, \"config\": {\"seed\": 3}}",
            cases[i].batch, cases[i].scale);
        assert_int_equal(saving_read("out/checkpoint-7", &text, 7, &doc, &p), cases[i].status);
        if (cases[i].status == OK) assert_int_equal(p.batch, cases[i].batch);
        js_free(doc);
        buf_free(&text);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *from, *to, *expected;
    } cases[] = {{"\"format\": 1", "\"format\": 2", "format 1, found format 2"},
                 {"\"format\": 1, ", "", "format 1, found format -1"},
                 {"\"batch\": 9", "\"batch\": -5", "'batch' is -5; expected a whole number from 9 to 9"},
                 {"\"batch\": 9", "\"batch\": 16.5", "'batch' is 16.5"},
                 {"\"batch\": 9", "\"batch\": 6", "'batch' is 6"},
                 {"\"batch\": 9", "\"batch\": 10", "'batch' is 10"},
                 {"\"skipped\": 2", "\"skipped\": 1", "'batch' is 9; expected a whole number from 8 to 8"},
                 {"\"skipped\": 2, ", "", "'skipped' is missing"}, /* old in fp16: `loss_scale` would have it */
                 {"\"batch\": 9", "\"batch\": 9223372036854775807", "'batch' is 9223372036854775807"},
                 {"\"step\": 7", "\"step\": 8", "'step' is 8; expected a whole number from 7 to 7"},
                 {"\"step\": 7", "\"step\": \"7\"", "'step' is \"7\""},
                 {"\"finished\": false", "\"finished\": 0", "'finished' is 0"},
                 {"\"loss_sum\": 8.5", "\"loss_sum\": [8.5]", "'loss_sum' is a list or an object"},
                 {" \"last_loss\": 1,", "", "'last_loss' is missing"},
                 {"\"best_step\": 0", "\"best_step\": 8", "'best_step' is 8"},
                 {"\"evaluated\": 7", "\"evaluated\": -1", "'evaluated' is -1"},
                 {"\"evaluated_samples\": 30", "\"evaluated_samples\": -2", "'evaluated_samples' is -2"},
                 {"[0, 1, 0]", "[0, 2, 0]", "'norm_forms' is 2"},
                 {"[0, 1, 0]", "3", "'norm_forms' is 3"},
                 {"\"scale\": 1024", "\"scale\": 0.5", "'scale' is 0.5"},
                 {"\"good\": 5", "\"good\": 2147483648", "'good' is 2147483648"},
                 {"\"skipped\": 2", "\"skipped\": -1", "'skipped' is -1"},
                 {"\"scale\": 1024, ", "", "'scale' is missing"},
                 {"\"fingerprint\": {}", "\"fingerprint\": 1", "'fingerprint' is 1"},
                 {"\"config\": {\"seed\": 3}", "\"config\": []", "'config' is a list or an object"},
                 {"\"config\": {\"seed\": 3}", "\"config\": {}", "'seed' is missing"},
                 {"{\"format\"", "{{\"format\"", "not valid JSON"}};
    TrainProgress p;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Status status = read_changed(cases[i].from, cases[i].to, 7, &p);
        if (status != E_CORRUPT || !strstr(status_message(), cases[i].expected) ||
            !strstr(status_message(), "out/checkpoint-7"))
            fail_msg("%s: %s: '%s'", cases[i].to, status_name(status), status_message());
    }
    assert_int_equal(read_changed("{", "{", 8, &p), E_CORRUPT); /* another step than the manifest's */
}

/* The forms of a state whose run began with a model of `layers` layers, for a model of two. */
static Status read_forms(const char *forms, int layers)
{
    Config c = {.model = ""};
    Model was = {.config.layers = layers}, model = {.config.layers = 2};
    Resume resume = {.dir = (char *)"out/checkpoint-7", .name = (char *)"out/checkpoint-7"};
    Json *doc = NULL;
    uint8_t *read = NULL;
    char origin[33];
    digest_format(resume_origin(&was, ""), origin);
    char *text = mem_printf("{\"norm_forms\": %s, \"fingerprint\": {\"origin\": \"%s\"}}", forms, origin);
    assert_ok(js_parse("state.json", text, strlen(text), &doc));
    resume.state = doc;
    Status status = start_norm_forms(&c, &model, &resume, NULL, &read);
    js_free(doc);
    free(read);
    free(text);
    return status;
}

/* Another number of forms is damage in a state of the same model, and another model otherwise. */
static void test_forms(void **state)
{
    (void)state;
    assert_ok(read_forms("[0, 1, 0, 1, 0]", 2));
    assert_int_equal(read_forms("[0, 1, 0]", 2), E_CORRUPT);
    assert_non_null(strstr(status_message(), "'norm_forms' has 3 values; expected 5 for 2 layers"));
    assert_int_equal(read_forms("[0, 1, 0]", 1), E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_old),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_forms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
