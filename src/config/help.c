/* Help of the program and its commands, and what man pages and completions share with it. */
#include "base/terminal.h"
#include "config/table.h"

/* ---- texts ---- */

const char *config_group(int option)
{
    static const char *const titles[N_OPTIONS] = {
#define X(first, title) [OPTION_##first] = title,
        OPTION_GROUP_LIST(X)
#undef X
    };
    while (!titles[option]) option--;
    return titles[option];
}

/* Whether one of the letters before a wording's colon is the command's; none are for all. */
static bool wording_is_for(const char *wording, Command command)
{
    if (*wording == ':' || command == N_COMMANDS) return true;
    for (; *wording != ':'; wording++)
        if (strchr(config_commands[command].letters, *wording)) return true;
    return false;
}

void config_wording(const char *text, Command command, Buf *out)
{
    for (buf_puts(out, "");; text = strchr(text, '>') + 1) {
        size_t plain = strcspn(text, "<");
        buf_append(out, text, plain);
        if (!text[plain]) return;
        for (text += plain + 1; *text != '>' && !wording_is_for(text, command); text += *text == '|')
            text += strcspn(text, "|>");
        if (*text == '>') continue;
        text = strchr(text, ':') + 1;
        buf_append(out, text, strcspn(text, "|>"));
    }
}

/* Its default in a command, as text. */
static const char *default_of(int option, Command command)
{
    Preset preset;
    const char *own = NULL;
    const char *name = config_command_preset(command);
    if (command == COMMAND_VERIFY) return ""; /* the run's own */
    if (name && config_preset(name, &preset) == OK) own = preset.value[option];
    return own ? own : config_fallback(option, command);
}

void config_option_usage(int option, Command command, Buf *value, Buf *text)
{
    const OptionInfo *o = &config_table[option];
    const char *fallback = default_of(option, command);
    config_wording(o->type == TYPE_Choice ? o->words : o->unit, command, value);
    for (char *p = value->data; o->type == TYPE_Choice && *p; p++)
        if (*p == ' ') *p = '|';
    config_wording(o->help, command, text);
    if (o->type == TYPE_Switch) fallback = strcmp(fallback, "true") == 0 ? "on" : "";
    if (*fallback && !strstr(text->data, "default:")) buf_printf(text, " [%s]", fallback);
}

/* ---- examples ---- */

/* A command in lines of at most `columns`, broken before its flags. */
static void put_example(const char *line, const char *end, int columns, Buf *out)
{
    enum { INDENT = 2, CONTINUED = 6 };
    int column = INDENT;
    buf_printf(out, "%*s", INDENT, "");
    for (const char *p = line, *flag; p < end; p = flag) {
        flag = strstr(p + 1, " --");
        if (!flag || flag > end) flag = end;
        size_t len = (size_t)(flag - p);
        if (p > line && column + (int)len > columns - 2) {
            buf_printf(out, " \\\n%*s", CONTINUED - 1, "");
            column = CONTINUED - 1;
        }
        buf_append(out, p, len);
        column += (int)len;
    }
    buf_puts(out, "\n");
}

static void put_examples(Command command, bool first, int columns, Buf *out)
{
    for (const char *p = config_commands[command].examples, *end; *p; p = end + (*end == '\n')) {
        end = p + strcspn(p, "\n");
        put_example(p, end, columns, out);
        if (first && *p != '#') return;
    }
}

void config_examples(Command command, int columns, Buf *out)
{
    static const Command shown[] = {COMMAND_GLUE, COMMAND_PLAN, COMMAND_LAUNCH};
    if (command < N_COMMANDS) put_examples(command, false, columns, out);
    for (size_t i = 0; command == N_COMMANDS && i < sizeof shown / sizeof *shown; i++)
        put_examples(shown[i], true, columns, out);
}

/* ---- help ---- */

enum { FLAG_COLUMNS = 30, TEXT_COLUMN = FLAG_COLUMNS + 3, COMMAND_COLUMNS = 11 };

static void help_option(int i, Command command, int columns, Buf *out)
{
    Buf value = {0}, text = {0};
    config_option_usage(i, command, &value, &text);
    char *left = mem_printf("--%s%s%s", config_flag(i), value.len ? " " : "", value.data);
    bool beside = strlen(left) <= FLAG_COLUMNS;
    buf_printf(out, "  %-*s%s%*s", beside ? FLAG_COLUMNS : 0, left, beside ? "" : "\n", beside ? 1 : TEXT_COLUMN, "");
    terminal_wrap(out, text.data, TEXT_COLUMN, columns);
    free(left);
    BUF_FREE(&value, &text);
}

static void help_title(const char *title, bool styled, Buf *out)
{
    buf_printf(out, "\n%s%s%s\n", styled ? TERMINAL_BOLD : "", title, styled ? TERMINAL_PLAIN : "");
}

/* The options of a command, each group under its title. */
static void help_options(Command command, int columns, bool styled, Buf *out)
{
    const char *title = NULL;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!config_option_of(i, command)) continue;
        if (config_group(i) != title) help_title(config_group(i), styled, out);
        title = config_group(i);
        help_option(i, command, columns, out);
    }
}

/* Those that matter, in the order of HELP_LIST. */
static void help_usual_options(Command command, int columns, bool styled, Buf *out)
{
    char flag[48];
    help_title("Flags that matter most", styled, out);
    for (const char *p = config_commands[command].flags; *p; p += strcspn(p, " "), p += *p == ' ') {
        snprintf(flag, sizeof flag, "%.*s", (int)strcspn(p, " "), p);
        help_option(config_option(flag), command, columns, out);
    }
}

static void help_program(int columns, bool styled, Buf *out)
{
    terminal_wrap(out,
                  "Cairn " CAIRN_VERSION
                  " trains BERT in the memory you have: it plans memory and time before anything "
                  "is allocated, and recomputes what does not fit.",
                  0, columns);
    buf_puts(out, "\ncairn COMMAND [--flag value]...\n");
    for (int i = 0; i < N_COMMANDS; i++) {
        const CommandInfo *info = &config_commands[config_by_group[i]];
        if (*info->title) help_title(info->title, styled, out);
        buf_printf(out, "  %-*s ", COMMAND_COLUMNS, info->name);
        terminal_wrap(out, info->help, COMMAND_COLUMNS + 3, columns);
    }
    help_title("Examples", styled, out);
    config_examples(N_COMMANDS, columns, out);
    buf_puts(out, "\n");
    terminal_wrap(
        out,
        "`cairn COMMAND --help` has examples and the flags that matter, `cairn COMMAND --help-all` all flags. "
        "`man cairn` has variables of the environment, exit codes and the flags of other trainers that are "
        "taken. README.md has the first steps.",
        0, columns);
}

void config_help(Command command, bool all, int columns, bool styled, Buf *out)
{
    if (command >= N_COMMANDS) {
        help_program(columns, styled, out);
        return;
    }
    const CommandInfo *info = &config_commands[command];
    bool behind = strncmp(info->positional, "-- ", 3) == 0; /* the flags come first */
    buf_printf(out, "cairn %s %s%s[--flag value]...%s%s\n", info->name, behind ? "" : info->positional,
               !behind && *info->positional ? " " : "", behind ? " " : "", behind ? info->positional : "");
    terminal_wrap(out, info->help, 0, columns);
    if (!all) {
        help_title("Examples", styled, out);
        config_examples(command, columns, out);
    }
    if (all || !*info->flags)
        help_options(command, columns, styled, out);
    else
        help_usual_options(command, columns, styled, out);
    buf_puts(out, "\n");
    if (all)
        terminal_wrap(
            out,
            "A value comes from its flag, else from the environment (CAIRN_BATCH_SIZE for --batch-size), else from "
            "--config's file, else from the default in brackets. `--no-x` switches x off; `_` may stand for `-`. "
            "Flags of Hugging Face's, NVIDIA's and Google's scripts are taken where they mean the same (man "
            "cairn).",
            0, columns);
    else
        buf_printf(out, "all flags: cairn %s --help-all\n", info->name);
}
