/* The table, and the sources of values: defaults, preset, file, environment, flags. */
#include "config/config.h"

#include <strings.h>
#include <unistd.h>

#include "config/table.h"

#define X(field, type, fallback, low, high, words, unit, effect, commands, help)                                       \
    {#field, TYPE_##type, offsetof(Config, field), fallback, low,  high,                                               \
     words,  unit,        EFFECT_##effect,         commands, help, ""},
OptionInfo config_table[N_OPTIONS] = {OPTION_LIST(X)};
#undef X

const CommandInfo config_commands[N_COMMANDS] = {
#define X(id, command, runs, of, arguments, text)                                                                      \
    {.name = command, .letters = of, .positional = arguments, .help = text},
    COMMAND_LIST(X)
#undef X
#define X(id, group, usual, lines)                                                                                     \
    [COMMAND_##id].title = group, [COMMAND_##id].flags = usual, [COMMAND_##id].examples = lines,
        HELP_LIST(X)
#undef X
};

#define X(id, ...) COMMAND_##id,
const Command config_by_group[] = {HELP_LIST(X)};
#undef X
_Static_assert(sizeof config_by_group / sizeof *config_by_group == N_COMMANDS, "a row of HELP_LIST for each command");

const char *config_flag(int option)
{
    OptionInfo *o = &config_table[option];
    if (!o->flag[0]) {
        snprintf(o->flag, sizeof o->flag, "%s", o->name);
        for (char *p = o->flag; (p = strchr(p, '_'));) *p = '-';
    }
    return o->flag;
}

bool config_option_of(int option, Command command)
{
    return strpbrk(config_table[option].commands, config_commands[command].letters) != NULL;
}

Effect config_effect(int option) { return config_table[option].effect; }

int config_option(const char *flag)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if (config_same_name(config_table[i].name, flag)) return i;
    return -1;
}

/* ---- the four sources ---- */

const char *config_fallback(int option, Command command)
{
    bool none = option == OPTION_output_dir && (command == COMMAND_REPORT || command == COMMAND_VARIABILITY);
    return none ? "" : config_table[option].fallback;
}

static Status apply_defaults(Config *c)
{
    for (int i = 0; i < N_OPTIONS; i++)
        TRY(config_set_value(c, i, "default", config_fallback(i, c->command), FROM_DEFAULT));
    return OK;
}

const char *config_advice(Command command, const char *name, const char *before)
{
    static char text[160];
    const char *nearest = config_nearest_flag(command, name);
    *text = '\0';
    if (nearest) snprintf(text, sizeof text, "; the nearest is %s%s", before, nearest);
    return text;
}

/* Another trainer's eval_strategy. Its epochs or "no" replace its steps, but contradict an --eval-every of the same
   source, and yield to one of a stronger source. Its steps without a number are Transformers': those of
   --logging_steps, 500 by default. */
static Status apply_strategy(Config *c)
{
    if (!c->strategy || !config_option_of(OPTION_eval_every, c->command)) return OK;
    ConfigSource every = c->source[OPTION_eval_every];
    bool own = c->eval_every != 0 && !c->foreign[OPTION_eval_every];
    bool steps = strcmp(c->strategy, "steps") == 0, epoch = strcmp(c->strategy, "epoch") == 0;
    if ((steps && c->eval_every > 0) || (own && every > c->strategy_source)) return OK;
    if (own && every == c->strategy_source && !(epoch && c->eval_every < 0))
        return fail(E_USAGE, "--eval_strategy %s and --eval-every %s contradict each other; give one of them",
                    c->strategy, c->eval_every < 0 ? "epoch" : SHORT_TEXT("%lld", (long long)c->eval_every));
    const char *between = c->foreign[OPTION_log_every] ? SHORT_TEXT("%lld", (long long)c->log_every) : "500";
    return config_set_value(c, OPTION_eval_every, "eval_strategy", steps ? between : epoch ? "epoch" : "0", FROM_FLAG);
}

/* CAIRN_ variables that are not options. */
static bool other_variable(const char *name)
{
#define X(variable, help) variable " "
    static const char others[] = VARIABLE_LIST(X) DEVELOPER_VARIABLES;
#undef X
    return str_list_has(others, ' ', name, strlen(name)) || str_starts_with(name, "CAIRN_TEST_");
}

/* Takes the variables; with `only_config`, CAIRN_CONFIG alone. */
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
            char nearest[160];
            snprintf(nearest, sizeof nearest, "%s", config_advice(N_COMMANDS, lower, "CAIRN_"));
            for (char *p = strstr(nearest, "CAIRN_"); p && *p; p++)
                *p = (char)(*p == '-' ? '_' : toupper((unsigned char)*p));
            return fail(E_USAGE, "the environment's %s is not an option%s. Unset it, or correct its name", name,
                        nearest);
        }
        if (!config_option_of(option, c->command)) continue; /* meant for another command */
        if (seen[option]) return fail(E_USAGE, "the environment has --%s twice; once as %s", config_flag(option), name);
        seen[option] = true;
        TRY(config_set_value(c, option, name, *e + len + 1, FROM_ENVIRONMENT));
    }
    return OK;
}

/* A Choice that --no-x can set. */
static bool is_yes_or_no(const OptionInfo *o) { return o->type == TYPE_Choice && strstr(o->words, "yes"); }

/* One argument as a flag: its option and, if written with "=", its value. */
typedef struct {
    int option;   /* −1: a foreign name without an effect */
    bool negated; /* --no-do-train */
    const char *value;
    const ForeignName *foreign; /* NULL: an option's own name */
} Flag;

/* What to do with a flag of other commands. */
static const char *misplaced(const Config *c, int option, const char *name)
{
    static char text[160];
    const CommandInfo *command = &config_commands[c->command];
    if (strncmp(command->positional, "-- ", 3) == 0)
        snprintf(text, sizeof text, "; the flags of the command follow it: `cairn %s [FLAG]... %s`", command->name,
                 command->positional);
    else if (*command->letters == '*' && config_option_of(option, COMMAND_LAUNCH))
        snprintf(text, sizeof text, "; `cairn launch --%s … -- %s …` starts several ranks", config_flag(option),
                 command->name);
    else
        snprintf(text, sizeof text, "%s", config_advice(c->command, name, "--"));
    return text;
}

static Status parse_flag(const Config *c, const char *arg, Flag *f)
{
    char name[64];
    const char *equals = strchr(arg, '=');
    snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
    const ForeignName *foreign = config_foreign_name(name);
    const char *command = config_commands[c->command].name;
    *f = (Flag){.option = foreign ? foreign->option : config_option(name),
                .value = equals ? equals + 1 : NULL,
                .foreign = foreign};
    if (f->option < 0 && foreign && !*foreign->values)
        return fail(E_USAGE, "--%s is unknown; in Cairn, %s", name, foreign->advice);
    if (f->option < 0 && !foreign && (strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0)) {
        f->option = config_option(name + 3);
        f->negated = true;
        const OptionInfo *o = f->option >= 0 ? &config_table[f->option] : NULL;
        if (!o || f->value || (o->type != TYPE_Switch && !is_yes_or_no(o))) f->option = -1;
    }
    if (f->option < 0 && !foreign)
        return fail(E_USAGE, "unknown flag --%s%s. `cairn %s --help-all` lists all", name,
                    config_advice(c->command, name, "--"), command);
    if (f->option >= 0 && !config_option_of(f->option, c->command))
        return fail(E_USAGE, "--%s is not a flag of `cairn %s`%s. `cairn %s --help-all` lists all", name, command,
                    misplaced(c, f->option, name), command);
    return OK;
}

/* `before` is the argument in front of it. `behind`: it follows a "--". */
static Status add_positional(Config *c, const char *before, char *arg, bool behind)
{
    Flag f;
    if (!behind && strncmp(before, "--", 2) == 0 && parse_flag(c, before + 2, &f) == OK && !f.negated && !f.value &&
        f.option >= 0 && config_table[f.option].type == TYPE_Switch && config_accepts(f.option, c->command, arg))
        return fail(E_USAGE, "unexpected argument '%s' after %s; write %s=%s", arg, before, before, arg);
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

/* Another trainer's switch. */
static bool is_foreign_switch(const Flag *f)
{
    return f->foreign && (strncmp(f->foreign->values, "true=", 5) == 0 || strcmp(f->foreign->values, "false=") == 0);
}

/* Whether a flag without "=" takes the next argument. A Switch never does, a choice of yes and no only one of its
   words, another trainer's switch only a value of its own. Any other flag of another trainer always does, even where
   it stands for a Switch of Cairn's. */
static bool takes_next(const Config *c, const Flag *f, const char *next)
{
    char value[4096];
    if (is_foreign_switch(f))
        return next && strncmp(next, "--", 2) != 0 && config_foreign_value(f->foreign, next, value, sizeof value);
    if (f->option < 0 || f->foreign) return true;
    const OptionInfo *o = &config_table[f->option];
    return o->type != TYPE_Switch && (!is_yes_or_no(o) || (next && config_accepts(f->option, c->command, next)));
}

/* The value of a flag that has none of its own. */
static const char *value_of_switch(const Flag *f)
{
    return is_foreign_switch(f) || config_table[f->option].type == TYPE_Switch ? "true" : "yes";
}

/* Wrappers append flags, so the last value of a repeated flag counts. */
static void note_repeated(Config *c, int times[N_OPTIONS], int option)
{
    if (option < 0 || config_table[option].type == TYPE_List || ++times[option] != 2) return;
    buf_printf(&c->repeated, "%s--%s", c->repeated.len ? ", " : "", config_flag(option));
}

/* `only_config`: looks for --config, --help and --help-all alone, before anything is set. */
static Status apply_flags(Config *c, int argc, char **argv, bool only_config)
{
    int times[N_OPTIONS] = {0};
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0 && *config_commands[c->command].positional) { /* no flags follow */
            while (++i < argc && !only_config) TRY(add_positional(c, "", argv[i], true));
            break;
        }
        bool all = strcmp(argv[i], "--help-all") == 0;
        if (all || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            c->help = true;
            c->help_all |= all;
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0) {
            if (!only_config) TRY(add_positional(c, argv[i - 1], argv[i], false));
            continue;
        }
        Flag f;
        TRY(parse_flag(c, argv[i] + 2, &f));
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (f.negated) {
            f.value = config_table[f.option].type == TYPE_Switch ? "false" : "no";
        } else if (!f.value && takes_next(c, &f, next)) {
            const char *unit = f.option >= 0 ? config_table[f.option].unit : "WORD";
            int len = (int)strcspn(argv[i] + 2, "=");
            if (!next) return fail(E_USAGE, "--%.*s needs a value (%s)", len, argv[i] + 2, unit);
            if (strncmp(next, "--", 2) == 0)
                return fail(E_USAGE, "--%.*s needs a value (%s), but %s follows; if that is the value, write --%.*s=%s",
                            len, argv[i] + 2, unit, next, len, argv[i] + 2, next);
            f.value = next;
            i++;
        } else if (!f.value) {
            f.value = value_of_switch(&f);
        }
        if (only_config && f.option != OPTION_config) continue;
        if (!only_config) note_repeated(c, times, f.option);
        TRY(config_set_named(c, f.option, f.foreign, "the command line", f.value, FROM_FLAG));
    }
    return OK;
}

static Status find_command(Config *c, const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(name, config_commands[i].name) == 0) {
            c->command = (Command)i;
            return OK;
        }
    const char *ours = config_foreign_command(name), *nearest = config_nearest_command(name);
    if (ours) return fail(E_USAGE, "unknown command '%s'; in Cairn, %s", name, ours);
    return fail(E_USAGE, "unknown command '%s'%s%s%s. `cairn --help` lists all", name,
                nearest ? "; the nearest is '" : "", nearest ? nearest : "", nearest ? "'" : "");
}

/* File, environment, flags; with --help nothing is set. */
static Status apply_sources(Config *c, int argc, char **argv, char **environment, Json **read)
{
    TRY(apply_environment(c, environment, true));
    TRY(apply_flags(c, argc, argv, true));
    if (c->help) return OK;
    char *file = mem_strdup(c->config);
    Status status = *file ? config_apply_file(c, file, read) : OK;
    free(file);
    TRY(status);
    TRY(apply_environment(c, environment, false));
    return apply_flags(c, argc, argv, false);
}

/* Ranks below all sources, so these are applied again after it. */
static Status apply_preset(Config *c, const char *name)
{
    Preset preset;
    TRY(config_set_value(c, OPTION_preset, "", name, FROM_DEFAULT));
    TRY(config_preset(name, &preset));
    for (int i = 0; i < N_OPTIONS; i++)
        if (preset.value[i]) TRY(config_set_value(c, i, name, preset.value[i], FROM_PRESET));
    return OK;
}

static Status parse(Config *c, int argc, char **argv, char **environment)
{
    Json *read = NULL; /* the --config file */
    char *preset = NULL;
    Status status = OK;
    if (argc < 2) return fail(E_USAGE, "no command given; `cairn --help` lists them");
    TRY(find_command(c, argv[1]));
    TRY(apply_defaults(c));
    TRY_DONE(apply_sources(c, argc, argv, environment, &read));
    Command command = c->command;
    bool as_squad = command == COMMAND_PLAN && strcasecmp(c->task, "squad") == 0;
    const char *own = config_command_preset(as_squad ? COMMAND_SQUAD : command);
    if (c->help || (!*c->preset && !own)) goto done;
    preset = mem_strdup(*c->preset ? c->preset : own); /* any source may name one */
    config_free(c);
    c->command = command;
    TRY_DONE(apply_defaults(c));
    TRY_DONE(apply_preset(c, preset));
    TRY_DONE(apply_sources(c, argc, argv, environment, &read));
    if (*c->model && c->source[OPTION_model_config] == FROM_PRESET) /* weights have their own sizes */
        TRY_DONE(config_set_value(c, OPTION_model_config, "", "", FROM_PRESET));
done:
    if (status == OK && !c->help) status = apply_strategy(c);
    free(preset);
    js_free(read);
    return status;
}

Status config_parse(Config *c, int argc, char **argv, char **environment)
{
    *c = (Config){0};
    Status status = parse(c, argc, argv, environment);
    for (int i = 0; i < argc && status == OK; i++) {
        if (i) buf_puts(&c->line, " ");
        buf_word(&c->line, argv[i]);
    }
    if (argc > 1) c->words = argv + 1, c->n_words = argc - 1;
    if (status != OK) config_free(c);
    return status;
}

void config_free(Config *c)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const OptionInfo *o = &config_table[i];
        if (config_is_text(o)) free(*(char **)config_place(c, o));
    }
    mem_free_texts(c->positional, c->n_positional);
    BUF_FREE(&c->repeated, &c->line);
    *c = (Config){0};
}
