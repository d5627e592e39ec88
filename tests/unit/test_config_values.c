/* Values of options: ranges, words, sizes, times, values in files; --print-config prints a file that --config reads. */
#include "config_testing.h"

/* ---- values ---- */

typedef struct {
    const char *flag, *text; /* refused, with `expected` in the message */
    const char *expected;
} Refused;

static void test_ranges(void **state)
{
    (void)state;
    static const Refused table[] = {
        {"--batch-size", "0", "a number from 1 to 1048576"},
        {"--batch-size", "1048577", "a number from 1 to 1048576"},
        {"--batch-size", "99999999999999999999", "a number from 1"},
        {"--batch-size", "-1", "a number from 1"},
        {"--batch-size", "3.5", "a whole number"},
        {"--batch-size", "", "a whole number"},
        {"--batch-size", " 3", "a whole number"},
        {"--batch-size", "3 ", "a whole number"},
        {"--batch-size", "0x10", "a whole number"},
        {"--max-seq-length", "2", "a number from 3 to 65536"},
        {"--seed", "-1", "a number from 0"},
        {"--seed", "9223372036854775808", "a number from 0"},
        {"--learning-rate", "-1e-9", "a number from 0 to 100"},
        {"--learning-rate", "nan", "a number from 0 to 100"},
        {"--learning-rate", "inf", "a number from 0 to 100"},
        {"--learning-rate", "1e-5x", "a number"},
        {"--learning-rate", "", "a number"},
        {"--epochs", "0", "a number from 1e-06"},
        {"--dropout", "1", "a number from -1 to 0.999"},
        {"--dropout", "-1.5", "a number from -1 to 0.999"},
        {"--optimizer", "adam", "one of: adamw lamb nvlamb"},
        {"--optimizer", "adam w", "one of: adamw lamb nvlamb"},
        {"--optimizer", "", "one of: adamw lamb nvlamb"},
        {"--precision", "fp8", "one of: auto fp32 tf32 bf16 fp16"},
        {"--do-lower-case", "maybe", "one of: auto yes no"},
        {"--memory-budget", "0", "a size"},
        {"--memory-budget", "0.5", "a size"},
        {"--memory-budget", "16", "a size with its unit (16GiB, 500MB, 4096B)"},
        {"--bucket-size", "999999", "a size with its unit"},
        {"--memory-budget", "-1G", "a size"},
        {"--memory-budget", "16 GiB", "a size"},
        {"--memory-budget", "16Gb/s", "a size"},
        {"--memory-budget", "inf", "a size"},
        {"--memory-budget", "1e30", "a size"},
        {"--memory-budget", "0x10", "a size"},
        {"--memory-budget", "", "a size"},
        {"--save-every", "often", "a time"},
        {"--save-every", "-3s", "a time"},
        {"--save-every", "0s", "a time"},
        {"--save-every", "0.0004s", "a time"},
        {"--save-every", "1e9d", "a time"},
        {"--save-every", "", "a time"},
    };
    Config c;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *flag = mem_printf("%s=%s", table[i].flag, table[i].text), *quoted = mem_printf("'%s'", table[i].text);
        assert_refused(parse(&c, "glue", flag, NULL), "the command line", table[i].flag, quoted, table[i].expected);
        free(flag);
        free(quoted);
    }
    assert_ok(parse(&c, "glue", "--batch-size=1048576", "--max-seq-length=3", "--seed=9223372036854775807",
                    "--dropout=0.999", "--learning-rate=0", NULL));
    assert_int_equal(c.batch_size, 1048576);
    assert_int_equal(c.max_seq_length, 3);
    assert_true(c.seed == INT64_MAX);
    assert_true(c.dropout == 0.999);
    config_free(&c);

    /* The message names the source of a bad value. */
    char *environment[] = {(char *)"CAIRN_BATCH_SIZE=many", NULL}, *dir = testing_directory();
    char *file = store(dir, "bad.json", "{\"batch-size\": 0}"), *wrong = store(dir, "wrong.json", "{\"seed\": null}"),
         *list = store(dir, "list.json", "[1]");
    assert_refused(parse_env(&c, environment, "glue", NULL), "CAIRN_BATCH_SIZE", "'many'");
    assert_refused(parse(&c, "glue", "--config", file, NULL), file, "--batch-size", "'0'");
    assert_refused(parse(&c, "glue", "--config", wrong, NULL), wrong, "'seed'");
    assert_refused(parse(&c, "glue", "--config", list, NULL), list, "JSON object");
    assert_status(parse(&c, "glue", "--config", "/no/such/file.json", NULL), E_IO);
    assert_message("/no/such/file.json");
    assert_ok(file_remove_tree(dir));
    free(file);
    free(wrong);
    free(list);
    free(dir);
}

/* low and high of each row of the table: the bounds are accepted, numbers beyond them refused. */
static void test_bounds_of_the_table(void **state)
{
    (void)state;
    enum { Text, Folder, Path, PathOrName, Paths, Choice, List, Switch, Count, Real, Size, Duration };
    static const struct {
        int type;
        double low, high;
    } table[N_OPTIONS] = {
#define X(field, type, fallback, low, high, ...) [OPTION_##field] = {type, low, high},
        OPTION_LIST(X)
#undef X
    };
    static const char *const names[] = {
#define X(id, name, ...) name,
        COMMAND_LIST(X)
#undef X
    };
    for (int i = 0; i < N_OPTIONS; i++) {
        if (table[i].type != Count && table[i].type != Real) continue;
        int command = 0;
        while (!config_option_of(i, (Command)command)) command++;
        double step = table[i].type == Count ? 1 : 1e-3;
        assert_true(table[i].low < table[i].high);
        for (int k = 0; k < 4; k++) {
            double x = k == 0   ? table[i].low
                       : k == 1 ? table[i].low - step
                       : k == 2 ? table[i].high
                                : table[i].high * (1 + 1e-3) + step;
            if (k >= 2 && x > 9e18) continue;               /* 2^63: tested above, as text */
            if (i == OPTION_max_steps && x == -1) continue; /* Hugging Face's value for 0: test_config_names.c */
            char *flag = table[i].type == Count ? mem_printf("--%s=%.0f", config_flag(i), x)
                                                : mem_printf("--%s=%.17g", config_flag(i), x);
            Config c;
            assert_status(parse(&c, names[command], flag, NULL), k % 2 == 0 ? OK : E_USAGE);
            config_free(&c);
            free(flag);
        }
    }
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } table[] = {{"1B", 1},
                 {"1000000", 1000000},
                 {"7B", 7},
                 {"1K", 1024},
                 {"2k", 2048},
                 {"3KiB", 3072},
                 {"3KB", 3000},
                 {"500MB", 500000000},
                 {"2M", 2 << 20},
                 {"16GiB", INT64_C(16) << 30},
                 {"16gib", INT64_C(16) << 30},
                 {"2G", INT64_C(2) << 30},
                 {"2GB", 2000000000},
                 {"1.5G", INT64_C(3) << 29},
                 {"1T", INT64_C(1) << 40},
                 {"1TiB", INT64_C(1) << 40},
                 {"1TB", 1000000000000},
                 {"1e9", 1000000000},
                 {"auto", 0}};
    Config c;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_ok(parse(&c, "glue", "--memory-budget", table[i].text, NULL));
        assert_true(c.memory_budget == table[i].bytes);
        config_free(&c);
    }
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double seconds;
    } table[] = {{"90", 90},      {"90s", 90}, {"20m", 1200}, {"1.5h", 5400},  {"2d", 172800},    {"01:30:00", 5400},
                 {"59:30", 3570}, {"off", 0},  {"0", 0},      {"0.25s", 0.25}, {"0.0014s", 0.001}};
    Config c;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_ok(parse(&c, "glue", "--save-every", table[i].text, "--max-time", table[i].text, NULL));
        assert_true(c.save_every == table[i].seconds);
        assert_true(c.max_time == table[i].seconds);
        config_free(&c);
    }
}

/* A word in place of a number or a time is printed as the word, and read back. */
static void test_epoch(void **state)
{
    (void)state;
    char *dir = testing_directory();
    Config c;
    assert_ok(parse(&c, "glue", "--eval-every", "epoch", "--save-every=epoch", NULL));
    assert_true(c.eval_every == -1 && c.save_every == -1);
    char *text = print_json(&c), *file = store(dir, "printed.json", text);
    assert_non_null(strstr(text, "\"eval-every\": \"epoch\""));
    assert_non_null(strstr(text, "\"save-every\": \"epoch\""));
    config_free(&c);
    assert_ok(parse(&c, "glue", "--config", file, NULL));
    assert_true(c.eval_every == -1 && c.save_every == -1);
    config_free(&c);
    assert_refused(parse(&c, "glue", "--eval-every", "epochs", NULL), "--eval-every is 'epochs'",
                   "a whole number, or epoch");
    assert_refused(parse(&c, "glue", "--save-every", "epochs", NULL), "--save-every is 'epochs'", "or off, or epoch");
    assert_refused(parse(&c, "glue", "--max-steps", "epoch", NULL), "--max-steps is 'epoch'", "a whole number");
    assert_ok(file_remove_tree(dir));
    free(file);
    free(text);
    free(dir);
}

/* A file may write numbers as JSON numbers or as text, switches as true, text or 0 and 1. */
static void test_file_kinds(void **state)
{
    (void)state;
    char *dir = testing_directory();
    char *file =
        store(dir, "kinds.json",
              "{\"batch_size\": \"24\", \"seed\": 7, \"learning-rate\": 3e-5, \"epochs\": 2, \"do-train\": true,"
              " \"do-eval\": \"yes\", \"padded\": 0, \"warmup\": 0.25, \"memory-budget\": 1048576,"
              " \"save-every\": 90, \"micro-batch-tokens\": 512, \"max-steps\": 100000}");
    Config c;
    assert_ok(parse(&c, "glue", "--config", file, NULL));
    assert_int_equal(c.batch_size, 24);
    assert_int_equal(c.seed, 7);
    assert_true(c.learning_rate == 3e-5);
    assert_true(c.epochs == 2);
    assert_true(c.do_train && c.do_eval && !c.padded);
    assert_string_equal(c.warmup, "0.25");
    assert_int_equal(c.memory_budget, 1048576);
    assert_true(c.save_every == 90);
    assert_string_equal(c.micro_batch_tokens, "512");
    assert_int_equal(c.max_steps, 100000);
    config_free(&c);
    assert_ok(file_remove_tree(dir));
    free(file);
    free(dir);
}

/* ---- print-config ---- */

/* Prints, reads back, prints again: the same text, and the same values. */
static void assert_round_trip(const Config *c, const char *command, const char *dir)
{
    char *text = print_json(c), *file = store(dir, "printed.json", text);
    Config again;
    assert_ok(parse(&again, command, "--config", file, NULL));
    char *second = print_json(&again);
    assert_string_equal(text, second);
#define SAME_Text(field)       assert_string_equal(c->field, again.field)
#define SAME_Folder(field)     SAME_Text(field)
#define SAME_Path(field)       SAME_Text(field)
#define SAME_PathOrName(field) SAME_Text(field)
#define SAME_Paths(field)      SAME_Text(field)
#define SAME_Choice(field)     SAME_Text(field)
#define SAME_List(field)       SAME_Text(field)
#define SAME_Switch(field)     assert_true(c->field == again.field)
#define SAME_Count(field)      assert_true(c->field == again.field)
#define SAME_Real(field)       assert_memory_equal(&c->field, &again.field, sizeof c->field)
#define SAME_Size(field)       assert_true(c->field == again.field)
#define SAME_Duration(field)   SAME_Real(field)
#define X(field, type, ...)                                                                                            \
    if (config_option_of(OPTION_##field, c->command) && OPTION_##field != OPTION_config &&                             \
        OPTION_##field != OPTION_print_config)                                                                         \
        SAME_##type(field);
    OPTION_LIST(X)
#undef X
    config_free(&again);
    free(text);
    free(second);
    free(file);
}

static void test_round_trip(void **state)
{
    (void)state;
    char *dir = testing_directory();
    Config c;
    static const char *const commands[] = {"glue",   "plan", "convert", "inspect",  "vocab",
                                           "report", "wiki", "shards",  "pretrain", "sweep"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_ok(parse(&c, commands[i], NULL));
        assert_round_trip(&c, commands[i], dir);
        config_free(&c);
    }
    /* A list has a word of each flag. */
    assert_ok(parse(&c, "sweep", "--vary=batch-size=2,4", "--vary", "seed=1-3", NULL));
    assert_string_equal(c.vary, "batch-size=2,4\nseed=1-3");
    assert_int_equal(c.repeated.len, 0);
    assert_round_trip(&c, "sweep", dir);
    config_free(&c);
    assert_ok(parse(&c, "glue", "--task=custom", "--labels=a \"b\",c\\d,\t\xc3\xa9", "--text-columns=x,y\x01",
                    "--learning-rate=0.1000000000000000055", "--epochs=3.3333333333333335", "--adam-eps=1e-300",
                    "--weight-decay=5e-324", "--dropout=-0.0", "--seed=9223372036854775807", "--save-every=0.1s",
                    "--max-time=0.001s", "--memory-budget=4503599627370497", "--do-train", "--precision=bf16",
                    "--do-lower-case=no", "--warmup=10%", "--max-steps=1000000000000000", "--print-config",
                    "--output-dir= with spaces ", NULL));
    assert_true(c.dropout == 0 && c.weight_decay == 5e-324);
    assert_round_trip(&c, "glue", dir);
    config_free(&c);
    assert_ok(parse(&c, "glue", "--max-time=36500d", "--save-every=1234567.8914s", "--memory-budget=1.5TiB", NULL));
    assert_round_trip(&c, "glue", dir);
    config_free(&c);
    assert_ok(parse(&c, "plan", "--device=h200", "--json", "--svg=a/b.svg", "--memory-budget=80GB", NULL));
    assert_round_trip(&c, "plan", dir);
    config_free(&c);
    assert_ok(parse(&c, "inspect", "--ranks=1000000", "--model=x", NULL));
    assert_round_trip(&c, "inspect", dir);
    config_free(&c);
    assert_ok(parse(&c, "vocab", "--input=a,b", "--size=10", "--min-count=1", "--strip-accents", NULL));
    assert_round_trip(&c, "vocab", dir);
    config_free(&c);
    assert_ok(parse(&c, "wiki", "--input=a,b", "--output-dir=o", "--part-size=1MB", "--max-article=8KiB",
                    "--text-form=paragraphs", "--threads=3", NULL));
    assert_true(c.part_size == 1000000 && c.max_article == 8192 && c.threads == 3);
    assert_round_trip(&c, "wiki", dir);
    config_free(&c);
    assert_ok(file_remove_tree(dir));
    free(dir);
}

static void test_printed_config_is_the_commands_own(void **state)
{
    (void)state;
    Config c;
    Json *doc;
    assert_ok(parse(&c, "vocab", NULL));
    char *text = print_json(&c);
    assert_ok(js_parse("printed", text, strlen(text), &doc));
    size_t expected = 0;
    for (int i = 0; i < N_OPTIONS; i++) {
        bool control = i == OPTION_config || i == OPTION_print_config || i == OPTION_version;
        bool has = config_option_of(i, COMMAND_VOCAB) && !control;
        assert_int_equal(js_get(doc, config_flag(i)) != NULL, has);
        expected += has;
    }
    assert_int_equal(js_size(doc), expected);
    js_free(doc);
    free(text);
    config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),     cmocka_unit_test(test_bounds_of_the_table),
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_durations),
        cmocka_unit_test(test_epoch),      cmocka_unit_test(test_file_kinds),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_printed_config_is_the_commands_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
