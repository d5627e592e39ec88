/* Parsing and checking. Every value, wherever it comes from, is a text that goes through set_value. */
#include "config/config.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/table.h"

#define X(field, kind, preset, least, most, list, u, eff, cmds, text)                                                  \
    {                                                                                                                  \
        .name = #field,                                                                                                \
        .type = TYPE_##kind,                                                                                           \
        .offset = offsetof(Config, field),                                                                             \
        .fallback = preset,                                                                                            \
        .low = (double)(least),                                                                                        \
        .high = (double)(most),                                                                                        \
        .words = list,                                                                                                 \
        .unit = u,                                                                                                     \
        .effect = EFFECT_##eff,                                                                                        \
        .commands = cmds,                                                                                              \
        .help = text,                                                                                                  \
    },
OptionInfo config_table[N_OPTIONS] = {OPTION_LIST(X)};
#undef X

const CommandInfo config_commands[N_COMMANDS] = {
#define X(id, name, letters, positional, help) {name, letters, positional, help},
    COMMAND_LIST(X)
#undef X
};

static void flag_name(const char *field, char out[48])
{
    snprintf(out, 48, "%s", field);
    for (char *p = out; *p; p++)
        if (*p == '_') *p = '-';
}

const char *config_flag(int option)
{
    OptionInfo *o = &config_table[option];
    if (!o->flag[0]) flag_name(o->name, o->flag);
    return o->flag;
}

bool config_option_of(int option, Command command)
{
    return strpbrk(config_table[option].commands, config_commands[command].letters) != NULL;
}

/* Flags and keys are compared with `-` and `_` the same. */
static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_'))) return false;
    return *a == *b;
}

int config_option(const char *flag)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if (same_name(config_table[i].name, flag)) return i;
    return -1;
}

/* ---- the nearest name ---- */

static int min3(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }

/* Levenshtein's distance; long texts are cut. */
static int distance(const char *a, const char *b)
{
    int n = (int)strnlen(b, 63), row[64];
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1] && i < 64; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n];
}

/* The flag of a command (N_COMMANDS: of any) most like `name`. */
static const char *nearest_flag(Command command, const char *name)
{
    int best = -1, least = 1 << 20;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s", name);
    for (char *p = wanted; *p; p++) *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
    for (int i = 0; i < N_OPTIONS; i++) {
        if (command < N_COMMANDS && !config_option_of(i, command)) continue;
        int d = distance(wanted, config_flag(i));
        if (d >= least) continue;
        least = d;
        best = i;
    }
    return config_flag(best);
}

/* ---- values ---- */

static Status bad_value(const OptionInfo *o, const char *from, const char *text, const char *expected)
{
    char flag[48];
    flag_name(o->name, flag);
    return fail(E_USAGE, "%s: --%s is '%s'; expected %s", from, flag, text, expected);
}

static Status out_of_range(const OptionInfo *o, const char *from, const char *text)
{
    char expected[96];
    snprintf(expected, sizeof expected, "a number from %.15g to %.15g", o->low, o->high);
    return bad_value(o, from, text, expected);
}

static Status parse_count(const OptionInfo *o, const char *from, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text)) return bad_value(o, from, text, "a whole number");
    if (errno || (double)n < o->low || (double)n > o->high) return out_of_range(o, from, text);
    *out = n;
    return OK;
}

static Status parse_real(const OptionInfo *o, const char *from, const char *text, double *out)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text)) return bad_value(o, from, text, "a number");
    if (!(x >= o->low && x <= o->high)) return out_of_range(o, from, text);
    *out = x;
    return OK;
}

static Status parse_switch(const OptionInfo *o, const char *from, const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
    for (int i = 0; i < 4; i++) {
        if (strcasecmp(text, yes[i]) == 0) return *out = true, OK;
        if (strcasecmp(text, no[i]) == 0) return *out = false, OK;
    }
    return bad_value(o, from, text, "true or false");
}

/* "16GiB", "500MB", "2G" (binary), bytes; "auto" is 0. 16 rarely means 16 bytes, so small numbers need a unit;
   files, which Cairn writes too, may omit it. */
static Status parse_size(const OptionInfo *o, const char *from, const char *text, ConfigSource source, int64_t *out)
{
    static const struct {
        const char *suffix;
        double bytes;
    } units[] = {{"", 1},       {"B", 1},        {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30},
                 {"T", 0x1p40}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
                 {"KB", 1e3},   {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    char *end;
    if (strcmp(text, "auto") == 0) return *out = 0, OK;
    double x = strtod(text, &end);
    bool decimal = isdigit((unsigned char)*text) && !strpbrk(text, "xX");
    for (size_t i = 0; decimal && i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(end, units[i].suffix) != 0) continue;
        double bytes = x * units[i].bytes;
        if (!(bytes >= 1 && bytes < 0x1p62)) break;
        if (i == 0 && bytes < 1e6 && source >= FROM_ENVIRONMENT)
            return bad_value(o, from, text, "a size with its unit (16GiB, 500MB, 4096B)");
        *out = (int64_t)bytes;
        return OK;
    }
    return bad_value(o, from, text, "a size (16GiB, 500MB, 1000000) or auto");
}

/* Kept in whole milliseconds, so that it can be written in digits and read back. */
static Status parse_duration(const OptionInfo *o, const char *from, const char *text, double *out)
{
    double seconds = 0;
    if (strcmp(text, "off") == 0 || strcmp(text, "0") == 0) return *out = 0, OK;
    if (clock_parse_duration(text, &seconds) != OK || seconds < 1e-3)
        return bad_value(o, from, text, "a time (90s, 20m, 1.5h, 01:30:00) or off");
    return *out = round(1e3 * seconds) / 1e3, OK;
}

static Status check_choice(const OptionInfo *o, const char *from, const char *text)
{
    size_t len = strlen(text);
    for (const char *p = o->words; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == len && strncmp(p, text, len) == 0) return OK;
    char expected[160];
    snprintf(expected, sizeof expected, "one of: %s", o->words);
    return bad_value(o, from, text, expected);
}

static void *place(const Config *c, const OptionInfo *o) { return (char *)c + o->offset; }

/* `from`: "the command line", "CAIRN_BATCH_SIZE", a file's path. */
static Status set_value(Config *c, int option, const char *from, const char *text, ConfigSource source)
{
    const OptionInfo *o = &config_table[option];
    void *at = place(c, o);
    switch (o->type) {
    case TYPE_Choice:
        TRY(check_choice(o, from, text)); /* fall through */
    case TYPE_Text:
        free(*(char **)at);
        *(char **)at = mem_strdup(text);
        break;
    case TYPE_Switch:
        TRY(parse_switch(o, from, text, at));
        break;
    case TYPE_Count:
        TRY(parse_count(o, from, text, at));
        break;
    case TYPE_Real:
        TRY(parse_real(o, from, text, at));
        break;
    case TYPE_Size:
        TRY(parse_size(o, from, text, source, at));
        break;
    case TYPE_Duration:
        TRY(parse_duration(o, from, text, at));
        break;
    }
    c->source[option] = (uint8_t)source;
    return OK;
}

/* The text set_value takes back to the same value. */
void config_value_text(const Config *c, int option, Buf *out)
{
    const OptionInfo *o = &config_table[option];
    const void *at = place(c, o);
    switch (o->type) {
    case TYPE_Choice:
    case TYPE_Text:
        buf_puts(out, *(char *const *)at);
        break;
    case TYPE_Switch:
        buf_puts(out, *(const bool *)at ? "true" : "false");
        break;
    case TYPE_Count:
        buf_printf(out, "%lld", (long long)*(const int64_t *)at);
        break;
    case TYPE_Real:
        buf_double(out, *(const double *)at);
        break;
    case TYPE_Size:
        if (*(const int64_t *)at)
            buf_printf(out, "%lld", (long long)*(const int64_t *)at);
        else
            buf_puts(out, "auto");
        break;
    case TYPE_Duration:
        if (*(const double *)at > 0)
            buf_printf(out, "%.*fs", *(const double *)at == trunc(*(const double *)at) ? 0 : 3, *(const double *)at);
        else
            buf_puts(out, "off");
        break;
    }
}

/* ---- the four sources ---- */

static Status apply_defaults(Config *c)
{
    for (int i = 0; i < N_OPTIONS; i++) TRY(set_value(c, i, "default", config_table[i].fallback, FROM_DEFAULT));
    return OK;
}

static Status apply_preset(Config *c)
{
    Preset preset;
    TRY(config_preset(c->preset, &preset));
    for (int i = 0; i < N_OPTIONS; i++)
        if (preset.value[i]) TRY(set_value(c, i, c->preset, preset.value[i], FROM_PRESET));
    return OK;
}

static Status json_text(const char *path, const char *key, const Json *v, Buf *text)
{
    switch (js_kind(v)) {
    case JSON_KIND_STRING:
        buf_puts(text, js_string(v, ""));
        break;
    case JSON_KIND_BOOL:
        buf_puts(text, js_bool(v, false) ? "true" : "false");
        break;
    case JSON_KIND_INT:
        buf_printf(text, "%lld", (long long)js_int(v, 0));
        break;
    case JSON_KIND_REAL:
        buf_double(text, js_real(v, 0));
        break;
    default:
        return fail(E_USAGE, "%s: '%s' must be a string, a number, true or false", path, key);
    }
    return OK;
}

/* `read`: the text if it was read before (a pipe can be read only once); NULL: it is read here. */
static Status apply_file(Config *c, const char *path, Json **read)
{
    Status status = OK;
    bool seen[N_OPTIONS] = {false};
    Buf text = {0};
    if (!*read) status = js_read(path, read);
    if (status == E_FORMAT) status = E_USAGE; /* it is part of the command */
    if (status != OK) goto done;
    const Json *doc = *read;
    if (js_kind(doc) != JSON_KIND_OBJECT) {
        status = fail(E_USAGE, "%s: expected a JSON object of options", path);
        goto done;
    }
    for (void *it = js_first(doc); it; it = js_next(doc, it)) {
        const char *key = js_key(it);
        int option = config_option(key);
        if (option == OPTION_config) {
            status = fail(E_USAGE, "%s: '%s' is allowed only on the command line or in CAIRN_CONFIG", path, key);
            goto done;
        }
        if (option < 0) {
            status =
                fail(E_USAGE, "%s: unknown option '%s'; the nearest is '%s'", path, key, nearest_flag(N_COMMANDS, key));
            goto done;
        }
        if (seen[option]) {
            status = fail(E_USAGE, "%s: '%s' is given twice", path, config_flag(option));
            goto done;
        }
        seen[option] = true;
        text.len = 0;
        buf_puts(&text, "");
        TRY_DONE(json_text(path, key, js_value(it), &text));
        TRY_DONE(set_value(c, option, path, text.data, FROM_FILE));
    }
done:
    buf_free(&text);
    return status;
}

/* CAIRN_ variables that are not options. */
static bool other_variable(const char *name)
{
    static const char *const others[] = {
#define X(variable, help) variable,
        VARIABLE_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return true;
    return strncmp(name, "CAIRN_TEST_", 11) == 0;
}

/* As apply_flags: with `only_config`, CAIRN_CONFIG alone. */
static Status apply_environment(Config *c, char **environment, bool only_config)
{
    bool seen[N_OPTIONS] = {false};
    for (char **e = environment; e && *e; e++) {
        char name[96], lower[96];
        size_t len = strcspn(*e, "=");
        if (strncmp(*e, "CAIRN_", 6) != 0 || (*e)[len] != '=') continue;
        snprintf(name, sizeof name, "%.*s", (int)len, *e); /* cut, it is still no option */
        if (other_variable(name)) continue;
        size_t n = 0;
        for (const char *p = name + 6; *p; p++) lower[n++] = (char)tolower((unsigned char)*p);
        lower[n] = '\0';
        int option = config_option(lower);
        if (only_config && option != OPTION_config) continue;
        if (option < 0) {
            char *nearest = mem_printf("CAIRN_%s", nearest_flag(N_COMMANDS, lower));
            for (char *p = nearest; *p; p++) *p = (char)(*p == '-' ? '_' : toupper((unsigned char)*p));
            Status status =
                fail(E_USAGE, "the environment's %s is not an option; the nearest is %s. Unset it, or correct its name",
                     name, nearest);
            free(nearest);
            return status;
        }
        if (!config_option_of(option, c->command)) continue; /* meant for another command */
        if (seen[option]) return fail(E_USAGE, "the environment has --%s twice; once as %s", config_flag(option), name);
        seen[option] = true;
        TRY(set_value(c, option, name, *e + len + 1, FROM_ENVIRONMENT));
    }
    return OK;
}

/* One argument as a flag: its option and, if written with "=", its value. */
typedef struct {
    int option;
    bool negated; /* --no-do-train */
    const char *value;
} Flag;

static Status parse_flag(const Config *c, const char *arg, Flag *f)
{
    char name[64];
    const char *equals = strchr(arg, '=');
    size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
    if (len >= sizeof name) len = sizeof name - 1;
    memcpy(name, arg, len);
    name[len] = '\0';
    *f = (Flag){.option = config_option(name), .value = equals ? equals + 1 : NULL};
    if (f->option < 0 && (strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0)) {
        f->option = config_option(name + 3);
        f->negated = true;
        bool can = f->option >= 0 &&
                   (config_table[f->option].type == TYPE_Switch || strstr(config_table[f->option].words, "yes"));
        if (!can || f->value) f->option = -1;
    }
    const char *command = config_commands[c->command].name;
    if (f->option < 0)
        return fail(E_USAGE, "unknown flag --%s; the nearest is --%s. `cairn %s --help` lists all", name,
                    nearest_flag(c->command, name), command);
    if (!config_option_of(f->option, c->command))
        return fail(E_USAGE, "--%s is not a flag of `cairn %s`; the nearest is --%s. `cairn %s --help` lists all", name,
                    command, nearest_flag(c->command, name), command);
    return OK;
}

/* `before`: the argument in front of it. `behind`: it comes behind a "--". */
static Status add_positional(Config *c, const char *before, char *arg, bool behind)
{
    bool worth;
    Flag f;
    if (!behind && strncmp(before, "--", 2) == 0 && parse_flag(c, before + 2, &f) == OK && !f.negated && !f.value &&
        config_table[f.option].type == TYPE_Switch && parse_switch(&config_table[f.option], "", arg, &worth) == OK)
        return fail(E_USAGE, "unexpected argument '%s' behind %s; write %s=%s", arg, before, before, arg);
    const CommandInfo *command = &config_commands[c->command];
    if (!*command->positional)
        return fail(E_USAGE, "unexpected argument '%s'; `cairn %s` takes flags only (--flag value)", arg,
                    command->name);
    if (strncmp(command->positional, "-- ", 3) == 0 && !behind)
        return fail(E_USAGE, "unexpected argument '%s'; write `cairn %s [FLAG]... %s`", arg, command->name,
                    command->positional);
    c->positional = mem_resize(c->positional, (size_t)c->n_positional + 1, sizeof *c->positional);
    c->positional[c->n_positional++] = mem_strdup(arg);
    return OK;
}

/* Whether a flag without "=" takes the next argument. A Switch never does; a Choice of yes and no only one of its
 * words. */
static bool takes_next(const OptionInfo *o, const char *next)
{
    if (o->type == TYPE_Switch) return false;
    if (o->type == TYPE_Choice && strstr(o->words, "yes")) return next && check_choice(o, "", next) == OK;
    return true;
}

/* `only_config`: looks for --config and --help alone, before anything is set. */
static Status apply_flags(Config *c, int argc, char **argv, bool only_config)
{
    bool seen[N_OPTIONS] = {false};
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0 && *config_commands[c->command].positional) { /* no flags follow */
            while (++i < argc && !only_config) TRY(add_positional(c, "", argv[i], true));
            break;
        }
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            c->help = true;
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0) {
            if (!only_config) TRY(add_positional(c, argv[i - 1], argv[i], false));
            continue;
        }
        Flag f;
        TRY(parse_flag(c, argv[i] + 2, &f));
        const OptionInfo *o = &config_table[f.option];
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (f.negated)
            f.value = o->type == TYPE_Switch ? "false" : "no";
        else if (!f.value && takes_next(o, next)) {
            if (!next) return fail(E_USAGE, "--%s needs a value (%s)", config_flag(f.option), o->unit);
            if (strncmp(next, "--", 2) == 0)
                return fail(E_USAGE, "--%s needs a value (%s), but %s follows; if that is the value, write --%s=%s",
                            config_flag(f.option), o->unit, next, config_flag(f.option), next);
            f.value = next;
            i++;
        } else if (!f.value)
            f.value = o->type == TYPE_Switch ? "true" : "yes";
        if (seen[f.option]) return fail(E_USAGE, "--%s is given twice", config_flag(f.option));
        seen[f.option] = true;
        if (only_config && f.option != OPTION_config) continue;
        TRY(set_value(c, f.option, "the command line", f.value, FROM_FLAG));
    }
    return OK;
}

static Status find_command(Config *c, const char *name)
{
    int best = 0, least = 1 << 20;
    for (int i = 0; i < N_COMMANDS; i++) {
        int d = distance(name, config_commands[i].name);
        if (d == 0) return c->command = (Command)i, OK;
        if (d < least) {
            least = d;
            best = i;
        }
    }
    return fail(E_USAGE, "unknown command '%s'; the nearest is '%s'. `cairn --help` lists all", name,
                config_commands[best].name);
}

/* File, environment, flags; with --help nothing is set. */
static Status apply_sources(Config *c, int argc, char **argv, char **environment, Json **read)
{
    TRY(apply_environment(c, environment, true));
    TRY(apply_flags(c, argc, argv, true));
    if (c->help) return OK;
    char *file = mem_strdup(c->config);
    Status status = *file ? apply_file(c, file, read) : OK;
    free(file);
    TRY(status);
    TRY(apply_environment(c, environment, false));
    return apply_flags(c, argc, argv, false);
}

/* Any source may name a preset, which ranks below all of them: they are applied again after it. */
static Status parse_again(Config *c, int argc, char **argv, char **environment, Json **read)
{
    Config named = {.command = c->command, .preset = mem_strdup(c->preset)};
    Status status = OK;
    config_free(c);
    *c = (Config){.command = named.command};
    TRY_DONE(apply_defaults(c));
    TRY_DONE(set_value(c, OPTION_preset, "", named.preset, FROM_DEFAULT));
    TRY_DONE(apply_preset(c));
    TRY_DONE(apply_sources(c, argc, argv, environment, read));
    if (*c->model && c->source[OPTION_model_config] == FROM_PRESET) /* weights have their own sizes */
        TRY_DONE(set_value(c, OPTION_model_config, "", "", FROM_PRESET));
done:
    free(named.preset);
    return status;
}

static Status parse(Config *c, int argc, char **argv, char **environment)
{
    Json *read = NULL; /* the --config file */
    Status status = OK;
    if (argc < 2) return fail(E_USAGE, "no command given; `cairn --help` lists them");
    TRY(find_command(c, argv[1]));
    TRY(apply_defaults(c));
    TRY_DONE(apply_sources(c, argc, argv, environment, &read));
    bool preset = *c->preset || c->command == COMMAND_PRETRAIN;
    if (preset && !c->help) TRY_DONE(parse_again(c, argc, argv, environment, &read));
done:
    js_free(read);
    return status;
}

Status config_parse(Config *c, int argc, char **argv, char **environment)
{
    *c = (Config){0};
    Status status = parse(c, argc, argv, environment);
    if (status != OK) config_free(c);
    return status;
}

void config_free(Config *c)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const OptionInfo *o = &config_table[i];
        if (o->type == TYPE_Text || o->type == TYPE_Choice) free(*(char **)place(c, o));
    }
    for (int i = 0; i < c->n_positional; i++) free(c->positional[i]);
    free(c->positional);
    *c = (Config){0};
}
