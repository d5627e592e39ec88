/* --help and --help-all: which flags they name, in which words, with which defaults. The examples are run by
   tests/scripts/test_help.sh. */
#include "config/table.h"
#include "config_testing.h"

static void assert_narrow(const Buf *help, int columns)
{
    for (const char *p = help->data; *p; p += strcspn(p, "\n") + 1) assert_true((int)strcspn(p, "\n") <= columns);
    assert_true(help->data[help->len - 1] == '\n');
}

/* --help-all has each flag of the command once, with its text before the next flag. */
static void test_help_all(void **state)
{
    (void)state;
    for (int command = 0; command < N_COMMANDS; command++) {
        Buf help = {0};
        config_help((Command)command, true, 80, false, &help);
        for (int i = 0; i < N_OPTIONS; i++) {
            char *line = mem_printf("\n  --%s", config_flag(i));
            char *first = strstr(help.data, line);
            while (first && !strchr(" \n", first[strlen(line)])) first = strstr(first + 1, line); /* a longer name */
            assert_int_equal(first != NULL, config_option_of(i, (Command)command));
            if (first) {
                Buf text = {0};
                config_wording(config_table[i].help, (Command)command, &text);
                assert_true(text.len >= 4);
                text.data[strcspn(text.data, " ")] = '\0';
                const char *next = strstr(first + 1, "\n  --"), *at = strstr(first + strlen(line), text.data);
                assert_true(at && (!next || at < next));
                buf_free(&text);
            }
            free(line);
        }
        assert_narrow(&help, 80);
        buf_free(&help);
    }
}

/* --help is short, has examples, and names --help-all. */
static void test_help_usual(void **state)
{
    (void)state;
    enum { MOST_FLAGS = 10, ALL = 14 }; /* those that matter; of a command with few flags all */
    for (int command = 0; command < N_COMMANDS; command++) {
        Buf help = {0};
        const CommandInfo *info = &config_commands[command];
        const char *name = info->name;
        int named = 0, wanted = 0;
        config_help((Command)command, false, 80, false, &help);
        for (const char *p = help.data; (p = strstr(p, "\n  --")); p++) named++;
        for (int i = 0; i < N_OPTIONS; i++)
            wanted += config_option_of(i, (Command)command) &&
                      (!*info->flags || str_list_has(info->flags, ' ', config_flag(i), strlen(config_flag(i))));
        int words = *info->flags != '\0';
        for (const char *p = info->flags; *p; p++) words += *p == ' ';
        if (named != wanted || named > (*info->flags ? MOST_FLAGS : ALL) || (words && words != wanted))
            fail_msg("cairn %s --help: %d flags, %d of them in HELP_LIST's %d", name, named, wanted, words);
        assert_non_null(strstr(help.data, "\n\nExamples\n  "));
        assert_non_null(strstr(help.data, SHORT_TEXT("cairn %s", name)));
        assert_non_null(strstr(help.data, SHORT_TEXT("\nall flags: cairn %s --help-all\n", name)));
        assert_narrow(&help, 80);
        buf_free(&help);
    }
}

/* Four groups, each with its title once, and all commands. */
static void test_help_of_the_program(void **state)
{
    (void)state;
    Buf all = {0};
    config_help(N_COMMANDS, false, 80, false, &all);
    assert_narrow(&all, 80);
    int titles = 0;
    const char *before = all.data;
    for (int i = 0; i < N_COMMANDS; i++) {
        const CommandInfo *info = &config_commands[config_by_group[i]];
        if (*info->title) {
            titles++;
            before = strstr(before, SHORT_TEXT("\n\n%s\n", info->title));
            assert_non_null(before);
        }
        const char *row = strstr(before, SHORT_TEXT("\n  %s ", info->name)), *empty = strstr(before + 1, "\n\n");
        assert_true(row && row < empty);
    }
    assert_int_equal(titles, 4);
    buf_free(&all);
}

/* ---- wordings ---- */

/* Fails where the text has another command's name before a colon, or a flag that the command lacks. */
static void check_wording(Command command, const char *what, const char *text)
{
    for (int i = 0; i < N_COMMANDS; i++)
        for (const char *p = text; (p = strstr(p, config_commands[i].name)); p++)
            if (p[strlen(config_commands[i].name)] == ':' && (p == text || !isalpha((unsigned char)p[-1])))
                fail_msg("cairn %s: --%s speaks to %s: %s", config_commands[command].name, what,
                         config_commands[i].name, text);
    for (const char *p = text; (p = strstr(p, "--")); p += 2) {
        char *flag = mem_printf("%.*s", (int)strspn(p + 2, "abcdefghijklmnopqrstuvwxyz0123456789-"), p + 2);
        int option = config_option(flag);
        if (*flag && (option < 0 || !config_option_of(option, command)))
            fail_msg("cairn %s: --%s names --%s: %s", config_commands[command].name, what, flag, text);
        free(flag);
    }
}

/* No command's help has the wording of another. */
static void test_own_wording(void **state)
{
    (void)state;
    for (int command = 0; command < N_COMMANDS; command++)
        for (int i = 0; i < N_OPTIONS; i++) {
            Buf text = {0};
            if (!config_option_of(i, (Command)command)) continue;
            config_wording(config_table[i].help, (Command)command, &text);
            assert_null(strpbrk(text.data, "<>|"));
            check_wording((Command)command, config_flag(i), text.data);
            buf_free(&text);
        }
}

/* Each letter of a wording is that of a command that has the option. */
static void test_letters_of_wordings(void **state)
{
    (void)state;
    int wordings = 0;
    for (int i = 0; i < N_OPTIONS; i++)
        for (const char *p = config_table[i].help; (p = strpbrk(p, "<|"));) {
            for (p++; *p != ':'; p++) {
                bool known = false;
                for (int c = 0; c < N_COMMANDS; c++)
                    known |= config_option_of(i, (Command)c) && strchr(config_commands[c].letters, *p);
                if (!known) fail_msg("--%s has a wording for the letter %c", config_flag(i), *p);
            }
            wordings++;
        }
    assert_true(wordings > 20);
}

static void test_config_wording(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        Command command;
        const char *expected;
    } cases[] = {{"all", COMMAND_GLUE, "all"},
                 {"", COMMAND_GLUE, ""},
                 {"a<g:1|k:2|:3>b", COMMAND_GLUE, "a1b"},
                 {"a<g:1|k:2|:3>b", COMMAND_SQUAD, "a2b"},
                 {"a<g:1|k:2|:3>b", COMMAND_PLAN, "a3b"},
                 {"<g:1>b", COMMAND_PLAN, "b"},
                 {"<t:1|a:2>", COMMAND_ADAPT, "1"},
                 {"<a:2|t:1>: x", COMMAND_PRETRAIN, "1: x"},
                 {"<p:x: y|:><*:z>", COMMAND_PLAN, "x: y"},
                 {"n<p: all>", N_COMMANDS, "n all"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf text = {0};
        config_wording(cases[i].text, cases[i].command, &text);
        assert_string_equal(text.data, cases[i].expected);
        buf_free(&text);
    }
}

/* ---- defaults and groups ---- */

/* Each command's help prints its own defaults. */
static void test_help_defaults(void **state)
{
    (void)state;
    static const struct {
        Command command;
        const char *flag, *text;
    } cases[] = {{COMMAND_GLUE, "--learning-rate", "[2e-5]"},
                 {COMMAND_GLUE, "--batch-size", "[32]"},
                 {COMMAND_GLUE, "--epochs", "[3]"},
                 {COMMAND_PRETRAIN, "--learning-rate", "[1e-4]"},
                 {COMMAND_PRETRAIN, "--batch-size", "[256]"},
                 {COMMAND_PRETRAIN, "--epochs", "[1]"},
                 {COMMAND_PRETRAIN, "--warmup", "[0.01]"},
                 {COMMAND_PLAN, "--batch-size", "[32]"},
                 {COMMAND_SQUAD, "--max-seq-length", "[384]"},
                 {COMMAND_ADAPT, "--do-train", "[on]"},
                 {COMMAND_PREDICT, "--max-seq-length", "default: the model's"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf help = {0};
        config_help(cases[i].command, true, 200, false, &help);
        char *line = mem_printf("\n  %s ", cases[i].flag), *at = strstr(help.data, line);
        assert_non_null(at);
        at[1 + strcspn(at + 1, "\n")] = '\0';
        if (!strstr(at, cases[i].text)) fail_msg("%s: no %s", at, cases[i].text);
        free(line);
        buf_free(&help);
    }
}

/* A title precedes the options of its group that the command has, and occurs nowhere else. */
static void test_help_groups(void **state)
{
    (void)state;
    static const struct {
        int first;
        const char *title;
    } groups[] = {
#define X(first, title) {OPTION_##first, title},
        OPTION_GROUP_LIST(X)
#undef X
            {N_OPTIONS, ""}};
    assert_int_equal(groups[0].first, 0); /* every option has a title */
    for (int command = 0; command < N_COMMANDS; command++) {
        Buf help = {0};
        config_help((Command)command, true, 80, false, &help);
        for (int g = 0; groups[g].first < N_OPTIONS; g++) {
            assert_true(groups[g].first < groups[g + 1].first);
            int first = groups[g].first;
            while (first < groups[g + 1].first && !config_option_of(first, (Command)command)) first++;
            char *title = mem_printf("\n\n%s\n", groups[g].title);
            char *together = mem_printf("%s  --%s ", title, first < N_OPTIONS ? config_flag(first) : "");
            if (first < groups[g + 1].first)
                assert_non_null(strstr(help.data, together));
            else
                assert_null(strstr(help.data, title));
            free(title);
            free(together);
        }
        buf_free(&help);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help_all),
        cmocka_unit_test(test_help_usual),
        cmocka_unit_test(test_help_of_the_program),
        cmocka_unit_test(test_own_wording),
        cmocka_unit_test(test_letters_of_wordings),
        cmocka_unit_test(test_config_wording),
        cmocka_unit_test(test_help_defaults),
        cmocka_unit_test(test_help_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
