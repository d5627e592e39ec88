/* The rules of config/config.h: sources of values, refusals with their advice.
   Help: test_config_help.c; values: test_config_values.c; differences: test_config_difference.c. */
#include "config/table.h"
#include "config_testing.h"

#include <ftw.h>

/* ---- sources of values ---- */

static void test_defaults(void **state)
{
    (void)state;
    Config c;
    assert_ok(parse(&c, "glue", NULL));
    assert_int_equal(c.command, COMMAND_GLUE);
    assert_string_equal(c.task, "MNLI");
    assert_int_equal(c.max_seq_length, 128);
    assert_int_equal(c.batch_size, 32);
    assert_true(c.learning_rate == 2e-5);
    assert_true(c.epochs == 3);
    assert_string_equal(c.warmup, "0.1");
    assert_string_equal(c.schedule, "linear");
    assert_string_equal(c.optimizer, "adamw");
    assert_true(c.bias_correction);
    assert_true(c.adam_beta1 == 0.9 && c.adam_beta2 == 0.999 && c.adam_eps == 1e-6);
    assert_true(c.weight_decay == 0.01 && c.max_grad_norm == 1.0);
    assert_true(c.dropout == -1);
    assert_int_equal(c.seed, 42);
    assert_string_equal(c.recompute, "none");
    assert_true(c.save_every == 1200); /* 20m */
    assert_true(c.max_time == 0);      /* off */
    assert_int_equal(c.memory_budget, 0);
    assert_int_equal(c.keep, 1);
    assert_string_equal(c.resume, "auto");
    for (int i = 0; i < N_OPTIONS; i++) assert_int_equal(c.source[i], FROM_DEFAULT);
    config_free(&c);
    config_free(&c); /* takes a zeroed one */
}

static void test_defaults_of_a_task(void **state)
{
    (void)state;
    Config c;
    assert_ok(parse(&c, "plan", "--task", "squad", NULL));
    assert_int_equal(c.max_seq_length, 384);
    config_free(&c);
    assert_ok(parse(&c, "plan", "--task", "SQuAD", "--max-seq-length", "128", NULL));
    assert_int_equal(c.max_seq_length, 128);
    config_free(&c);
    assert_ok(parse(&c, "plan", "--task", "MRPC", NULL));
    assert_int_equal(c.max_seq_length, 128);
    config_free(&c);
}

static void test_record_of_a_run(void **state)
{
    (void)state;
    char *dir = testing_directory();
    char *known = store(dir, "known.json", "{\"format\": 1, \"config\": {\"batch-size\": 7}}");
    char *later = store(dir, "later.json", "{\"format\": 2, \"config\": {\"batch-size\": 7}}");
    char *odd = store(dir, "odd.json", "{\"format\": \"x\", \"config\": {\"batch-size\": 7}}");
    Config c;
    assert_ok(parse(&c, "glue", "--config", known, NULL));
    assert_int_equal(c.batch_size, 7);
    config_free(&c);
    assert_int_equal(parse(&c, "glue", "--config", later, NULL), E_USAGE);
    assert_non_null(strstr(status_message(), "expected a run.json of format 1, found format 2"));
    config_free(&c);
    assert_int_equal(parse(&c, "glue", "--config", odd, NULL), E_USAGE);
    config_free(&c);
    free(known);
    free(later);
    free(odd);
    assert_ok(file_remove_tree(dir));
    free(dir);
}

/* Paths of a run.json begin in the folder of its run; words in place of a path stay words. */
static void test_paths_of_a_run(void **state)
{
    (void)state;
    static const struct {
        const char *option, *value;
        bool path;
    } members[] = {
        {"model-config", "bert-mini", false}, {"model-config", "size.json", true},
        {"input", "a.txt,-,/b", true},        {"input", "-", false},
        {"output-dir", "out", true},          {"vocab", "", false},
        {"resume", "never", false},           {"resume", "out/checkpoint-3", true},
        {"persist-file", "stop", true},       {"snapshot-steps", "auto", false},
    };
    char *dir = testing_directory(), *size = store(dir, "size.json", "{}");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *option = members[i].option, *value = members[i].value;
        char *record =
            mem_printf("{\"format\": 1, \"folder\": \"%s\", \"config\": {\"%s\": \"%s\"}}", dir, option, value);
        char *expected =
            mem_printf("\"%s\": \"%s%s%s\"", option, members[i].path ? dir : "", members[i].path ? "/" : "", value);
        char *file = store(dir, "run.json", record);
        Config c;
        assert_ok(parse(&c, "pretrain", "--config", file, NULL));
        char *printed = print_json(&c);
        if (!strstr(printed, expected)) fail_msg("%s is not in %s", expected, printed);
        config_free(&c);
        free(printed);
        free(record);
        free(expected);
        free(file);
    }
    free(size);
    assert_ok(file_remove_tree(dir));
    free(dir);
}

static void test_precedence(void **state)
{
    (void)state;
    char *dir = testing_directory();
    char *file = store(dir, "run.json", "{\"batch-size\": 2, \"seed\": 2, \"epochs\": 2}");
    char *environment[] = {(char *)"PATH=/bin", (char *)"CAIRN_BATCH_SIZE=3", (char *)"CAIRN_SEED=3", NULL};
    Config c;
    assert_ok(parse_env(&c, environment, "glue", "--batch-size", "4", "--config", file, NULL));
    assert_int_equal(c.batch_size, 4);
    assert_int_equal(c.source[OPTION_batch_size], FROM_FLAG);
    assert_int_equal(c.seed, 3);
    assert_int_equal(c.source[OPTION_seed], FROM_ENVIRONMENT);
    assert_true(c.epochs == 2);
    assert_int_equal(c.source[OPTION_epochs], FROM_FILE);
    assert_int_equal(c.keep, 1);
    assert_int_equal(c.source[OPTION_keep], FROM_DEFAULT);
    config_free(&c);

    /* A flag with the default value still takes precedence. */
    assert_ok(parse_env(&c, environment, "glue", "--config", file, "--batch-size=32", "--seed=42", NULL));
    assert_int_equal(c.batch_size, 32);
    assert_int_equal(c.seed, 42);
    config_free(&c);
    assert_ok(file_remove_tree(dir));
    free(file);
    free(dir);
}

static void test_config_from_environment(void **state)
{
    (void)state;
    char *dir = testing_directory();
    char *file = store(dir, "a.json", "{\"seed\": 5}"), *other = store(dir, "b.json", "{\"seed\": 6}");
    char *variable = mem_printf("CAIRN_CONFIG=%s", file);
    char *environment[] = {variable, NULL};
    Config c;
    assert_ok(parse_env(&c, environment, "glue", NULL));
    assert_int_equal(c.seed, 5);
    config_free(&c);
    assert_ok(parse_env(&c, environment, "glue", "--config", other, NULL)); /* the flag's file, and only that */
    assert_int_equal(c.seed, 6);
    config_free(&c);
    assert_ok(file_remove_tree(dir));
    free(variable);
    free(file);
    free(other);
    free(dir);
}

/* Every option can be set in each of the three ways, by its own name. */
static void test_every_option_every_way(void **state)
{
    (void)state;
    static const char *const values[N_OPTIONS] = {
#define X(field, type, fallback, ...) [OPTION_##field] = sizeof(fallback) > 1 ? fallback : "text",
        OPTION_LIST(X)
#undef X
    };
    static const char *const names[] = {
#define X(id, name, ...) name,
        COMMAND_LIST(X)
#undef X
    };
    char *dir = testing_directory();
    Config c;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (i == OPTION_config) continue; /* needs a file; tested above */
        int command = 0;
        while (!config_option_of(i, (Command)command)) assert_true(++command < N_COMMANDS);
        const char *value = i == OPTION_preset ? "bert-tiny-phase1" : values[i];
        char *flag = mem_printf("--%s=%s", config_flag(i), value);
        char *json = mem_printf("{\"%s\": \"%s\"}", config_flag(i), value);
        char *file = store(dir, "one.json", json), *variable = mem_printf("CAIRN_%s=%s", config_flag(i), value);
        for (char *p = variable; *p != '='; p++) *p = (char)(*p == '-' ? '_' : *p >= 'a' && *p <= 'z' ? *p - 32 : *p);
        char *environment[] = {variable, NULL};
        assert_ok(parse(&c, names[command], flag, NULL));
        assert_int_equal(c.source[i], FROM_FLAG);
        config_free(&c);
        assert_ok(parse_env(&c, environment, names[command], NULL));
        assert_int_equal(c.source[i], FROM_ENVIRONMENT);
        config_free(&c);
        assert_ok(parse(&c, names[command], "--config", file, NULL));
        assert_int_equal(c.source[i], FROM_FILE);
        config_free(&c);
        free(flag);
        free(json);
        free(file);
        free(variable);
    }
    assert_ok(file_remove_tree(dir));
    free(dir);
}

/* ---- spelling of flags ---- */

static void test_spelling(void **state)
{
    (void)state;
    Config c;
    assert_ok(
        parse(&c, "glue", "--batch_size", "7", "--max-seq_length=64", "--do_train", "--learning-rate=1e-3", NULL));
    assert_int_equal(c.batch_size, 7);
    assert_int_equal(c.max_seq_length, 64);
    assert_true(c.do_train);
    assert_true(c.learning_rate == 1e-3);
    config_free(&c);

    assert_ok(parse(&c, "glue", "--data-dir=a=b", "--model=", "--vocab", "", NULL)); /* only the first = counts */
    assert_string_equal(c.data_dir, "a=b");
    assert_string_equal(c.model, "");
    assert_string_equal(c.vocab, "");
    config_free(&c);

    assert_ok(parse(&c, "glue", "--dropout", "-1", "--task", "-x", NULL)); /* a single dash does not begin a flag */
    assert_true(c.dropout == -1);
    assert_string_equal(c.task, "-x");
    config_free(&c);
}

static void test_switches(void **state)
{
    (void)state;
    char *environment[] = {(char *)"CAIRN_DO_TRAIN=1", (char *)"CAIRN_DO_EVAL=yes", (char *)"CAIRN_PADDED=ON", NULL};
    Config c;
    assert_ok(parse_env(&c, environment, "glue", "--no-do-eval", "--no_padded", "--poison", "--override=true", NULL));
    assert_true(c.do_train && !c.do_eval && !c.padded && c.poison && c.override);
    config_free(&c);
    assert_ok(parse_env(&c, environment, "glue", "--do-train=false", "--do-eval=off", "--padded=0", NULL));
    assert_false(c.do_train || c.do_eval || c.padded);
    config_free(&c);

    /* A choice of yes and no takes the next word only if it is one of its words. */
    assert_ok(parse(&c, "glue", "--do-lower-case", "--do-train", "--strip-accents", "no", NULL));
    assert_string_equal(c.do_lower_case, "yes");
    assert_true(c.do_train);
    assert_string_equal(c.strip_accents, "no");
    config_free(&c);
    assert_ok(parse(&c, "glue", "--no-do-lower-case", "--strip-accents=auto", NULL));
    assert_string_equal(c.do_lower_case, "no");
    assert_string_equal(c.strip_accents, "auto");
    config_free(&c);

    assert_refused(parse(&c, "glue", "--do-train=maybe", NULL), "--do-train", "'maybe'", "true or false");
    assert_refused(parse(&c, "glue", "--no-do-train=true", NULL), "--no-do-train");
    assert_refused(parse(&c, "glue", "--no-batch-size", NULL), "--no-batch-size");
    assert_refused(parse(&c, "glue", "--do-train", "false", NULL), "'false'", "--do-train=false");
}

static void test_missing_value(void **state)
{
    (void)state;
    Config c;
    assert_refused(parse(&c, "glue", "--batch-size", NULL), "--batch-size needs a value");
    assert_refused(parse(&c, "glue", "--data-dir", "--do-train", NULL), "--data-dir needs a value", "--do-train");
    assert_ok(parse(&c, "glue", "--data-dir=--do-train", NULL)); /* the = makes it a value */
    assert_string_equal(c.data_dir, "--do-train");
    assert_false(c.do_train);
    config_free(&c);
}

static void test_help_and_positional(void **state)
{
    (void)state;
    Config c;
    assert_ok(parse(&c, "plan", "--help", NULL));
    assert_true(c.help);
    config_free(&c);
    assert_ok(parse(&c, "plan", "-h", NULL));
    assert_true(c.help && !c.help_all);
    config_free(&c);
    assert_ok(parse(&c, "plan", "--help-all", NULL));
    assert_true(c.help && c.help_all);
    config_free(&c);
    assert_ok(parse(&c, "report", "a", "--output-dir", "out", "b", NULL));
    assert_int_equal(c.n_positional, 2);
    assert_string_equal(c.positional[0], "a");
    assert_string_equal(c.positional[1], "b");
    assert_string_equal(c.output_dir, "out");
    config_free(&c);
    assert_refused(parse(&c, "glue", "stray", NULL), "unexpected argument 'stray'");
    assert_refused(parse(&c, "glue", "-b", "3", NULL), "unexpected argument '-b'");
    assert_refused(parse(&c, "report", "a", "--bath-size", NULL), "--bath-size");
}

/* No word after "--" is a flag of cairn. */
static void test_words_behind(void **state)
{
    (void)state;
    Config c;
    assert_int_equal(parse(&c, "launch", "--ranks", "4", "--", "glue", "--ranks", "--", "--no-such", NULL), OK);
    assert_int_equal(c.ranks, 4);
    assert_int_equal(c.n_positional, 4);
    assert_string_equal(c.positional[1], "--ranks");
    assert_string_equal(c.positional[2], "--");
    assert_string_equal(c.positional[3], "--no-such");
    config_free(&c);
    assert_refused(parse(&c, "launch", "glue", NULL), "-- COMMAND");
    assert_refused(parse(&c, "launch", "--ranks", "2", "glue", "--task", "MNLI", NULL),
                   "--task is not a flag of `cairn launch`", "`cairn launch [FLAG]... -- COMMAND [FLAG]...`");
    assert_refused(parse(&c, "glue", "--ranks", "2", NULL), "`cairn launch --ranks … -- glue …` starts several ranks");
    assert_refused(parse(&c, "glue", "--", "word", NULL), "unknown flag --");
}

/* ---- unknown and repeated ---- */

static void test_unknown(void **state)
{
    (void)state;
    Config c;
    char *dir = testing_directory();
    assert_ok(parse(&c, "plan", "--pipeline", "all", NULL)); /* words of one command alone */
    config_free(&c);
    assert_refused(parse(&c, "glue", "--pipeline", "all", NULL), "zb-h1 zb-v");
    assert_refused(parse(&c, "glue", "--bach-size", "3", NULL), "unknown flag --bach-size", "nearest is --batch-size");
    assert_refused(parse(&c, "glue", "--learnign_rate=1", NULL), "--learnign_rate", "nearest is --learning-rate");
    assert_refused(parse(&c, "glue", "--no-do-trian", NULL), "--no-do-trian", "nearest is --do-train");
    assert_refused(parse(&c, "glue", "--", NULL), "unknown flag --");
    assert_refused(parse(&c, "glu", NULL), "unknown command 'glu'", "nearest is 'glue'");
    assert_ok(parse(&c, "plan", "--pipeline", "all", NULL)); /* words of one command alone */
    config_free(&c);
    assert_refused(parse(&c, "glue", "--pipeline", "all", NULL), "zb-h1 zb-v");
    assert_refused(parse(&c, "glue", "--bach-size", "3", NULL), "`cairn glue --help-all`");
    assert_refused(parse(&c, "vocab", "--seed", "3", NULL), "--seed is not a flag of `cairn vocab`. `cairn vocab");
    char *argv[] = {(char *)"cairn", NULL};
    assert_refused(config_parse(&c, 1, argv, NULL), "no command");

    char *environment[] = {(char *)"CAIRN_BATCHSIZE=3", NULL};
    assert_refused(parse_env(&c, environment, "glue", NULL), "CAIRN_BATCHSIZE", "nearest is CAIRN_BATCH_SIZE");
    assert_ok(parse_env(&c, environment, "glue", "--help", NULL)); /* help needs no valid variables */
    config_free(&c);
    char *endless[] = {(char *)"CAIRN_A_VARIABLE_WITH_A_NAME_THAT_IS_LONGER_THAN_ANY_BUFFER_THAT_COULD_HOLD_IT_"
                               "ALTHOUGH_ONE_NEVER_KNOWS=3",
                       NULL};
    assert_refused(parse_env(&c, endless, "glue", NULL), "CAIRN_A_VARIABLE_WITH");
    char *foreign[] = {(char *)"CAIRN", (char *)"CAIRNS=3", (char *)"XCAIRN_SEED=3", NULL}; /* not of cairn */
    assert_ok(parse_env(&c, foreign, "glue", NULL));
    assert_int_equal(c.seed, 42);
    config_free(&c);
    char *another[] = {(char *)"CAIRN_RANKS=3", (char *)"CAIRN_SEED=3", NULL}; /* an option of another command */
    assert_ok(parse_env(&c, another, "glue", NULL));
    assert_int_equal(c.seed, 3);
    config_free(&c);

    char *file = store(dir, "bad.json", "{\"batch-sise\": 2}");
    assert_refused(parse(&c, "glue", "--config", file, NULL), file, "'batch-sise'", "nearest is batch-size");
    free(file);
    file = store(dir, "chain.json", "{\"config\": \"other.json\"}"); /* a file cannot name another */
    assert_refused(parse(&c, "glue", "--config", file, NULL), file, "'config'", "only on the command line");
    free(file);
    file = store(dir, "no.json", "{\"no-do-train\": true}");
    assert_refused(parse(&c, "glue", "--config", file, NULL), file, "'no-do-train'", "nearest is do-train");
    free(file);
    assert_ok(file_remove_tree(dir));
    free(dir);
}

static void test_repeated(void **state)
{
    (void)state;
    Config c;
    char *dir = testing_directory();
    assert_ok(parse(&c, "glue", "--seed", "1", "--batch-size=1", "--seed", "2", "--do-train", "--batch_size=2",
                    "--no-do-train", "--seed=3", NULL)); /* the last counts */
    assert_int_equal(c.seed, 3);
    assert_int_equal(c.batch_size, 2);
    assert_false(c.do_train);
    assert_string_equal(c.repeated.data, "--seed, --batch-size, --do-train");
    config_free(&c);
    char *file = store(dir, "twice.json", "{\"batch-size\": 2, \"batch_size\": 3}");
    assert_refused(parse(&c, "glue", "--config", file, NULL), file, "'batch-size' is given twice");
    char *other = store(dir, "other.json", "{\"seed\": 7}");
    assert_ok(parse(&c, "glue", "--config", file, "--config", other, NULL));
    assert_int_equal(c.seed, 7);
    config_free(&c);
    free(other);
    free(file);
    file = store(dir, "same.json", "{\"seed\": 2, \"seed\": 3}");
    assert_refused(parse(&c, "glue", "--config", file, NULL), file, "seed");
    char *environment[] = {(char *)"CAIRN_SEED=3", (char *)"CAIRN_seed=4", NULL};
    assert_refused(parse_env(&c, environment, "glue", NULL), "CAIRN_seed", "twice");
    assert_ok(file_remove_tree(dir));
    free(file);
    free(dir);
}

/* ---- variables that are not options ---- */

static int n_read; /* variables found by check_source */

/* Every variable that the sources read is known; an unknown one could not be set. */
static int check_source(const char *path, const struct stat *stat, int kind, struct FTW *where)
{
    (void)stat, (void)where;
    static const char call[] = "getenv(\"CAIRN_";
    Buf text = {0};
    size_t len = strlen(path);
    if (kind != FTW_F || len < 2 || (strcmp(path + len - 2, ".c") != 0 && strcmp(path + len - 2, ".h") != 0)) return 0;
    assert_ok(file_read(path, 1 << 26, &text));
    for (const char *p = text.data; p && (p = strstr(p, call)); p += sizeof call) {
        const char *name = strchr(p, '"') + 1;
        char *variable = mem_printf("%.*s=x", (int)strcspn(name, "\""), name), *environment[] = {variable, NULL};
        Config c;
        if (parse_env(&c, environment, "glue", NULL) != OK)
            fail_msg("%s reads %s: %s", path, variable, status_message());
        config_free(&c);
        free(variable);
        n_read++;
    }
    buf_free(&text);
    return 0;
}

static void test_variables(void **state)
{
    (void)state;
    static const char *const folders[] = {"src", "kernels", "tasks", "tests"};
    Config c;
    Buf help = {0}, developers = {0};
    config_help(N_COMMANDS, false, 1000, false, &help);
    assert_null(strstr(help.data, "CAIRN_"));
    assert_ok(file_read("CONTRIBUTING.md", 1 << 20, &developers));
#define X(name, text) name " "
    static const char others[] = VARIABLE_LIST(X), all[] = VARIABLE_LIST(X) DEVELOPER_VARIABLES;
#undef X
    for (const char *p = all; *p; p += strcspn(p, " "), p += *p == ' ') {
        int len = (int)strcspn(p, " ");
        char *environment[] = {mem_printf("%.*s=x", len, p), NULL};
        assert_ok(parse_env(&c, environment, "glue", NULL));
        config_free(&c);
        bool described = strstr(developers.data, SHORT_TEXT("\n| `%.*s` | ", len, p));
        assert_int_equal(described, p >= all + sizeof others - 1);
        free(environment[0]);
    }
    BUF_FREE(&help, &developers);
    n_read = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(nftw(folders[i], check_source, 16, FTW_PHYS), 0);
    assert_true(n_read >= 4); /* the cpu backend's three and the backends' folder */
}

/* ---- names ---- */

static void test_option_names(void **state)
{
    (void)state;
    assert_int_equal(config_option("batch-size"), OPTION_batch_size);
    assert_int_equal(config_option("batch_size"), OPTION_batch_size);
    assert_int_equal(config_option("batch"), -1);
    assert_int_equal(config_option("batch-size-"), -1);
    assert_int_equal(config_option(""), -1);
    for (int i = 0; i < N_OPTIONS; i++) {
        assert_int_equal(config_option(config_flag(i)), i); /* all names differ */
        assert_null(strchr(config_flag(i), '_'));
    }
}

/* The names that the documentation promises. */
static void test_promised_flags(void **state)
{
    (void)state;
    char *promised = mem_strdup(
             "task data-dir model model-config vocab output-dir do-train do-eval do-predict "
             "max-seq-length batch-size micro-batch-tokens learning-rate epochs max-steps warmup "
             "schedule optimizer weight-decay seed precision attention backend threads recompute memory-budget "
             "save-every save-steps keep resume max-time log-every eval-every eval-batch-size "
             "eval-splits max-grad-norm adam-beta1 adam-beta2 adam-eps dropout override print-config "
             "dry-run version submission text-columns label-column labels padded do-lower-case "
             "strip-accents poison profile"),
         *rest = promised;
    for (char *name; (name = strsep(&rest, " "));) {
        int option = config_option(name);
        if (option < 0 || !config_option_of(option, COMMAND_GLUE)) fail_msg("--%s is missing", name);
    }
    free(promised);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_defaults_of_a_task),
        cmocka_unit_test(test_record_of_a_run),
        cmocka_unit_test(test_paths_of_a_run),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_config_from_environment),
        cmocka_unit_test(test_every_option_every_way),
        cmocka_unit_test(test_spelling),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_missing_value),
        cmocka_unit_test(test_help_and_positional),
        cmocka_unit_test(test_words_behind),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_option_names),
        cmocka_unit_test(test_promised_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
