/* The configuration for people and for files: JSON, help, differences. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/table.h"

static bool is_number(OptionType t) { return t == TYPE_Count || t == TYPE_Real || t == TYPE_Switch; }

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
        if (is_number(config_table[i].type))
            buf_puts(out, text.data);
        else
            buf_json(out, text.data);
        buf_free(&text);
    }
    buf_puts(out, "\n}\n");
}

/* Words of `text` in lines of at most 100 columns, the following ones indented. */
static void wrap(Buf *out, const char *text, int indent)
{
    int column = indent;
    for (const char *p = text; *p;) {
        int len = (int)strcspn(p, " ");
        if (column + len > 100) {
            buf_printf(out, "\n%*s", indent, "");
            column = indent;
        }
        buf_append(out, p, (size_t)len);
        p += len;
        column += len + 1;
        if (*p == ' ') {
            p++;
            if (*p && column + (int)strcspn(p, " ") <= 100) buf_puts(out, " ");
        }
    }
    buf_puts(out, "\n");
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

void config_option_usage(int option, char separator, Buf *value, Buf *text)
{
    const OptionInfo *o = &config_table[option];
    buf_puts(value, o->type == TYPE_Choice ? o->words : o->unit);
    for (char *p = value->data; o->type == TYPE_Choice && *p; p++)
        if (*p == ' ') *p = separator;
    buf_puts(text, o->help);
    if (*o->fallback && o->type != TYPE_Switch) buf_printf(text, " [%s]", o->fallback);
}

static void help_option(int i, Buf *out)
{
    Buf value = {0}, text = {0};
    config_option_usage(i, '|', &value, &text);
    char *left = mem_printf("--%s%s%s", config_flag(i), value.len ? " " : "", value.data);
    buf_printf(out, "  %-30s ", left);
    if (strlen(left) > 30) buf_printf(out, "\n%33s", "");
    wrap(out, text.data, 33);
    free(left);
    buf_free(&value);
    buf_free(&text);
}

/* The options of a command, each group under its title. */
static void help_options(Command command, Buf *out)
{
    const char *title = NULL;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!config_option_of(i, command)) continue;
        if (config_group(i) != title) buf_printf(out, "\n%s\n", config_group(i));
        title = config_group(i);
        help_option(i, out);
    }
}

void config_help(Command command, Buf *out)
{
    if (command >= N_COMMANDS) {
        buf_printf(
            out,
            "Cairn %s: trains BERT in the memory you have.\n\ncairn COMMAND [--config FILE.json] [--flag value]...\n\n",
            CAIRN_VERSION);
        for (int i = 0; i < N_COMMANDS; i++)
            buf_printf(out, "  %-9s %s\n", config_commands[i].name, config_commands[i].help);
        buf_puts(out, "\nVariables of the environment, besides CAIRN_BATCH_SIZE for --batch-size and so on:\n");
#define X(variable, help) buf_printf(out, "  %-19s %s\n", variable, help);
        VARIABLE_LIST(X)
#undef X
        buf_puts(out, "\n`cairn COMMAND --help` lists a command's flags. Exit codes: 0 done, 1 failed, 2 usage,\n"
                      "75 stopped with a durable checkpoint (99 under Grid Engine), 76 does not fit in memory,\n"
                      "77 peer lost, 79 checkpoint corrupt.\n");
        return;
    }
    const CommandInfo *info = &config_commands[command];
    if (strncmp(info->positional, "-- ", 3) == 0)
        buf_printf(out, "cairn %s [--flag value]... %s\n%s\n", info->name, info->positional, info->help);
    else
        buf_printf(out, "cairn %s %s%s[--flag value]...\n%s\n", info->name, info->positional,
                   *info->positional ? " " : "", info->help);
    help_options(command, out);
    buf_puts(out,
             "\nA value comes from its flag, else from the environment (CAIRN_BATCH_SIZE for --batch-size), else from\n"
             "--config's file, else from the default in brackets. `--no-x` switches x off; `_` may stand for `-`.\n");
}

/* The stored value as text, in the form config_value_text gives. */
static void stored_text(const Json *v, Buf *out)
{
    switch (js_kind(v)) {
    case JSON_KIND_STRING:
        buf_puts(out, js_string(v, ""));
        break;
    case JSON_KIND_BOOL:
        buf_puts(out, js_bool(v, false) ? "true" : "false");
        break;
    case JSON_KIND_INT:
        buf_printf(out, "%lld", (long long)js_int(v, 0));
        break;
    case JSON_KIND_REAL:
        buf_double(out, js_real(v, 0));
        break;
    default:
        break;
    }
}

static bool same_value(const OptionInfo *o, const char *a, const char *b, const Config *now, const Json *stored)
{
    if (strcmp(a, b) == 0) return true;
    if (o->type != TYPE_Real) return false;
    return js_real(stored, -1e300) == *(const double *)((const char *)now + o->offset);
}

/* Appends the differences of the options of one effect; returns whether there are any. */
static bool list_differences(const Config *now, const Json *stored, Effect effect, Buf *report)
{
    bool any = false;
    for (int i = 0; i < N_OPTIONS; i++) {
        const OptionInfo *o = &config_table[i];
        const Json *v = js_get(stored, config_flag(i));
        if (!v || o->effect != effect || !config_option_of(i, now->command)) continue;
        Buf was = {0}, is = {0};
        buf_puts(&was, "");
        buf_puts(&is, "");
        stored_text(v, &was);
        config_value_text(now, i, &is);
        if (!same_value(o, was.data, is.data, now, v)) {
            buf_printf(report, "%s--%s was %s, is %s%s", report->len ? "; " : "", config_flag(i), was.data, is.data,
                       effect == EFFECT_BITS ? " (not bit-exact)" : "");
            any = true;
        }
        buf_free(&was);
        buf_free(&is);
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
