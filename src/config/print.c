/* The configuration for people and for files: JSON, help, differences. */

#include "base/terminal.h"
#include "config/table.h"

void config_json(const Config *c, Buf *out)
{
    bool first = true;
    buf_puts(out, "{");
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!config_option_of(i, c->command) || i == OPTION_config || i == OPTION_print_config || i == OPTION_version)
            continue;
        Buf text = {0};
        buf_puts(&text, "");
        config_value_text(c, i, &text);
        buf_printf(out, "%s\n  \"%s\": ", first ? "" : ",", config_flag(i));
        first = false;
        OptionType type = config_table[i].type;
        if (type == TYPE_Count || type == TYPE_Real || type == TYPE_Switch)
            buf_puts(out, text.data);
        else
            buf_json(out, text.data);
        buf_free(&text);
    }
    buf_puts(out, "\n}\n");
}

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

/* Its default in a command, as text. */
static const char *default_of(int option, Command command)
{
    Preset preset;
    const char *own = NULL;
    const char *name = config_command_preset(command);
    if (name && config_preset(name, &preset) == OK) own = preset.value[option];
    return own ? own : config_table[option].fallback;
}

void config_option_usage(int option, Command command, char separator, Buf *value, Buf *text)
{
    const OptionInfo *o = &config_table[option];
    const char *fallback = default_of(option, command);
    buf_puts(value, o->type == TYPE_Choice ? o->words : o->unit);
    for (char *p = value->data; o->type == TYPE_Choice && *p; p++)
        if (*p == ' ') *p = separator;
    buf_puts(text, o->help);
    if (o->type == TYPE_Switch) fallback = strcmp(fallback, "true") == 0 ? "on" : "";
    if (*fallback) buf_printf(text, " [%s]", fallback);
}

enum { FLAG_COLUMNS = 30, TEXT_COLUMN = FLAG_COLUMNS + 3 };

static void help_option(int i, Command command, int columns, Buf *out)
{
    Buf value = {0}, text = {0};
    config_option_usage(i, command, '|', &value, &text);
    char *left = mem_printf("--%s%s%s", config_flag(i), value.len ? " " : "", value.data);
    buf_printf(out, "  %-*s ", FLAG_COLUMNS, left);
    if (strlen(left) > FLAG_COLUMNS) buf_printf(out, "\n%*s", TEXT_COLUMN, "");
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

static void help_row(const char *name, int width, const char *help, int columns, Buf *out)
{
    buf_printf(out, "  %-*s ", width, name);
    terminal_wrap(out, help, width + 3, columns);
}

static void help_all(int columns, bool styled, Buf *out)
{
    enum { COMMAND_COLUMNS = 11, VARIABLE_COLUMNS = 27 };
    buf_printf(out, "Cairn %s: trains BERT in the memory you have.\n\n", CAIRN_VERSION);
    buf_puts(out, "cairn COMMAND [--config FILE.json] [--flag value]...\n");
    help_title("Commands", styled, out);
    for (int i = 0; i < N_COMMANDS; i++)
        help_row(config_commands[i].name, COMMAND_COLUMNS, config_commands[i].help, columns, out);
    help_title("Variables of the environment", styled, out);
    terminal_wrap(out, "Besides CAIRN_BATCH_SIZE for --batch-size and so on:", 0, columns);
#define X(variable, help) help_row(variable, VARIABLE_COLUMNS, help, columns, out);
    VARIABLE_LIST(X)
#undef X
    buf_puts(out, "\n");
    terminal_wrap(out,
                  "`cairn COMMAND --help` lists a command's flags. Exit codes: 0 done, 1 failed, 2 usage, 75 stopped "
                  "by a signal or a limit, with its work saved (99 under Grid Engine), 76 does not fit in memory, 77 a "
                  "rank or host was lost, 78 a verified step differs or --audit found damaged memory, 79 checkpoint "
                  "corrupt.",
                  0, columns);
}

void config_help(Command command, int columns, bool styled, Buf *out)
{
    if (command >= N_COMMANDS) {
        help_all(columns, styled, out);
        return;
    }
    const CommandInfo *info = &config_commands[command];
    bool behind = strncmp(info->positional, "-- ", 3) == 0; /* the flags come first */
    buf_printf(out, "cairn %s %s%s[--flag value]...%s%s\n", info->name, behind ? "" : info->positional,
               !behind && *info->positional ? " " : "", behind ? " " : "", behind ? info->positional : "");
    terminal_wrap(out, info->help, 0, columns);
    help_options(command, columns, styled, out);
    buf_puts(out, "\n");
    terminal_wrap(
        out,
        "A value comes from its flag, else from the environment (CAIRN_BATCH_SIZE for --batch-size), else from "
        "--config's file, else from the default in brackets. `--no-x` switches x off; `_` may stand for `-`. "
        "Flags of Hugging Face's, NVIDIA's and Google's scripts are taken where they mean the same (man "
        "cairn).",
        0, columns);
}

static bool same_value(const OptionInfo *o, const char *a, const char *b, const Config *now, const Json *stored)
{
    if (strcmp(a, b) == 0) return true;
    if (o->type != TYPE_Real) return false;
    return js_real(stored, -1e300) == *(const double *)config_place(now, o);
}

/* The effect that a change of this option has. */
static Effect effect_of(int option, const Config *now, const Json *stored)
{
    int64_t was = js_int(js_get(stored, config_flag(OPTION_virtual_ranks)), 0);
    bool same = was > 0 && was == now->virtual_ranks;
    static const int none[] = {OPTION_micro_batch_tokens, OPTION_pipeline, OPTION_bucket_size};
    for (size_t i = 0; same && i < sizeof none / sizeof *none; i++)
        if (option == none[i]) return EFFECT_NONE;
    return config_table[option].effect;
}

/* Appends the differences of the options of one effect; returns whether there are any. */
static bool list_differences(const Config *now, const Json *stored, Effect effect, Buf *report)
{
    bool any = false;
    for (int i = 0; i < N_OPTIONS; i++) {
        const OptionInfo *o = &config_table[i];
        const Json *v = js_get(stored, config_flag(i));
        if (!v || effect_of(i, now, stored) != effect || !config_option_of(i, now->command)) continue;
        Buf was = {0}, is = {0};
        buf_puts(&was, "");
        buf_puts(&is, "");
        config_json_text(v, &was);
        config_value_text(now, i, &is);
        if (!same_value(o, was.data, is.data, now, v)) {
            buf_printf(report, "%s--%s was %s, is %s%s", report->len ? "; " : "", config_flag(i), was.data, is.data,
                       effect == EFFECT_BITS ? " (not bit-exact)" : "");
            any = true;
        }
        BUF_FREE(&was, &is);
    }
    return any;
}

Status config_difference(const Config *now, const Json *stored, Effect *worst, Buf *report)
{
    *worst = EFFECT_NONE;
    if (js_kind(stored) != JSON_KIND_OBJECT) return fail(E_CORRUPT, "the checkpoint holds no configuration");
    for (int effect = EFFECT_RESULT; effect > EFFECT_NONE; effect--)
        if (list_differences(now, stored, (Effect)effect, report) && *worst == EFFECT_NONE) *worst = (Effect)effect;
    return OK;
}

bool config_keep_former(Config *now, const Json *stored, Buf *kept)
{
    static const struct {
        int option;
        const char *value;
    } former[] = {{OPTION_bias_correction, "false"}};
    bool any = false;
    for (size_t i = 0; i < sizeof former / sizeof *former; i++) {
        int option = former[i].option;
        bool given = now->source[option] != FROM_DEFAULT || !config_option_of(option, now->command);
        const Json *v = given ? NULL : js_get(stored, config_flag(option));
        Buf was = {0};
        if (v) config_json_text(v, &was);
        if (v && strcmp(was.data, former[i].value) == 0 &&
            config_set_value(now, option, "the run", former[i].value, FROM_FILE) == OK) {
            buf_printf(kept, "%s--%s=%s", kept->len ? " " : "", config_flag(option), former[i].value);
            any = true;
        }
        buf_free(&was);
    }
    return any;
}
