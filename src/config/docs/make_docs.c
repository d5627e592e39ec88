/* Writes man pages, shell completion and a JSON Schema of the configuration file from the table of options. Run by the
   build: make_docs DIR. */

#include "config/table.h"

/* `text` with a backslash before each character of `special`. */
static void escaped(Buf *out, const char *text, const char *special)
{
    for (; *text; text++) {
        if (strchr(special, *text)) buf_puts(out, "\\");
        buf_append(out, text, 1);
    }
}

/* `text` with to[i] in place of each character from[i]. */
static void replaced(Buf *out, const char *text, const char *from, const char *const *to)
{
    for (; *text; text++) {
        const char *at = strchr(from, *text);
        if (at)
            buf_puts(out, to[at - from]);
        else
            buf_append(out, text, 1);
    }
}

/* ---- man pages (man(7)) ---- */

static void roff(Buf *out, const char *text)
{
    if (*text == '.' || *text == '\'') buf_puts(out, "\\&");
    replaced(out, text, "\\-", (const char *const[]){"\\e", "\\-"});
}

static void man_entry(Buf *out, const char *name, const char *value, const char *text)
{
    buf_puts(out, ".TP\n\\fB");
    roff(out, name);
    buf_puts(out, "\\fR");
    if (*value) buf_puts(out, " \\fI");
    roff(out, value);
    if (*value) buf_puts(out, "\\fR");
    buf_puts(out, "\n");
    roff(out, text);
    buf_puts(out, "\n");
}

static void man_option(Buf *out, int option, Command command)
{
    Buf value = {0}, text = {0};
    char *flag = mem_printf("--%s", config_flag(option));
    config_option_usage(option, command, &value, &text);
    man_entry(out, flag, value.data, text.data);
    free(flag);
    BUF_FREE(&value, &text);
}

static void man_head(Buf *out, const char *page, const char *help)
{
    buf_puts(out, ".TH ");
    for (const char *p = page; *p; p++) buf_printf(out, "%c", toupper((unsigned char)*p));
    buf_printf(out, " 1 \"\" \"Cairn %s\" \"User Commands\"\n.SH NAME\n", CAIRN_VERSION);
    roff(out, page);
    buf_printf(out, " \\- %s\n.SH SYNOPSIS\n", help);
}

static void man_exit_codes(Buf *out)
{
    buf_puts(out, ".SH EXIT STATUS\n");
    int last = -1;
    for (int i = 0; i < N_STATUSES; i++) {
        int code = status_exit_code((Status)i);
        if (code == 1 && last == 2) continue; /* the kinds of failure share a code */
        man_entry(out, SHORT_TEXT("%d", code), "", status_meaning((Status)i));
        last = code;
    }
    man_entry(out, "99", "", "75 under Grid Engine, which starts the job again");
    man_entry(out, "130", "", "a second SIGINT ended the process at once; the last good checkpoint is whole");
}

static void man_examples(Command command, Buf *out)
{
    enum { COLUMNS = 76 };
    Buf examples = {0};
    config_examples(command, COLUMNS, &examples);
    buf_puts(out, ".SH EXAMPLES\n.nf\n");
    roff(out, examples.data);
    buf_puts(out, ".fi\n");
    buf_free(&examples);
}

static void man_command(Command command, Buf *out)
{
    const CommandInfo *c = &config_commands[command];
    char *page = mem_printf("cairn-%s", c->name);
    const char *title = NULL;
    man_head(out, page, c->help);
    buf_printf(out, "\\fBcairn %s\\fR [\\fB\\-\\-flag\\fR \\fIvalue\\fR]... ", c->name);
    roff(out, c->positional);
    buf_puts(out, "\n.SH OPTIONS\nA value comes from its flag, else from the environment (CAIRN_BATCH_SIZE for "
                  "\\-\\-batch\\-size), else from the file of \\-\\-config, else it is the default in brackets.\n");
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!config_option_of(i, command)) continue;
        if (config_group(i) != title) buf_printf(out, ".SS %s\n", config_group(i));
        title = config_group(i);
        man_option(out, i, command);
    }
    man_examples(command, out);
    man_exit_codes(out);
    buf_puts(out, ".SH SEE ALSO\n.BR cairn (1)\n");
    free(page);
}

/* Other trainers' flags: those that are taken, then those with an advice alone. */
static void man_foreign(Buf *out)
{
    buf_puts(out, ".SH FLAGS OF OTHER TRAINERS\nFlags of Hugging Face's and NVIDIA's scripts and of Google's BERT are "
                  "taken where they mean the same; any other value ends with an advice. In values, FROM=TO is a "
                  "word and Cairn's for it, # a whole number, % and / a share from 0 to 1, * any value.\n");
    for (int taken = 1; taken >= 0; taken--)
        for (const ForeignName *f = config_foreign; f->name; f++) {
            if ((f->option >= 0) != taken) continue;
            Buf text = {0};
            char *flag = mem_printf("--%s", f->name);
            if (f->option >= 0) buf_printf(&text, "--%s. ", config_flag(f->option));
            if (*f->values && strcmp(f->values, "*") != 0) buf_printf(&text, "Values: %s. ", f->values);
            buf_puts(&text, f->advice);
            man_entry(out, flag, "", text.data);
            free(flag);
            buf_free(&text);
        }
}

static void man_all(Buf *out)
{
    man_head(out, "cairn", "trains BERT in the memory you have");
    buf_puts(out, "\\fBcairn\\fR \\fICOMMAND\\fR [\\fB\\-\\-config\\fR \\fIFILE.json\\fR] [\\fB\\-\\-flag\\fR "
                  "\\fIvalue\\fR]...\n.SH COMMANDS\n");
    for (int i = 0; i < N_COMMANDS; i++) {
        const CommandInfo *c = &config_commands[config_by_group[i]];
        if (*c->title) buf_printf(out, ".SS %s\n", c->title);
        man_entry(out, c->name, "", c->help);
    }
    buf_puts(out, ".SH ENVIRONMENT\nCAIRN_BATCH_SIZE stands for \\-\\-batch\\-size, and so on. Other variables:\n");
#define X(variable, help) man_entry(out, variable, "", help);
    VARIABLE_LIST(X)
#undef X
    man_examples(N_COMMANDS, out);
    man_foreign(out);
    man_exit_codes(out);
    buf_puts(out, ".SH SEE ALSO\n");
    for (int i = 0; i < N_COMMANDS; i++)
        buf_printf(out, ".BR cairn\\-%s (1)%s\n", config_commands[i].name, i + 1 < N_COMMANDS ? "," : "");
}

/* ---- shells ---- */

/* A branch of a shell's `case` for the flags that `of` selects. */
static void bash_values(Buf *out, bool (*of)(const OptionInfo *o), const char *action)
{
    bool any = false;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!of(&config_table[i])) continue;
        buf_printf(out, "%s--%s", any ? "|" : "    ", config_flag(i));
        any = true;
    }
    buf_printf(out, ") %s; return ;;\n", action);
}

static bool is_folder(const OptionInfo *o) { return o->type == TYPE_Folder; }
static bool is_file(const OptionInfo *o) { return config_is_path(o) && !is_folder(o); }

static void bash(Buf *out)
{
    buf_puts(
        out,
        "# bash completion of cairn, made from its table of options\n"
        "_cairn() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} i\n"
        "    COMPREPLY=()\n"
        "    for ((i = 2; i < COMP_CWORD; i++)); do # `launch ... -- COMMAND`\n"
        "        [ \"${COMP_WORDS[i]}\" != -- ] || { command=${COMP_WORDS[i+1]}; [ $((i + 1)) -lt \"$COMP_CWORD\" ] || "
        "command=; }\n"
        "    done\n"
        "    case $before in\n");
    for (int i = 0; i < N_OPTIONS; i++)
        if (config_table[i].type == TYPE_Choice) {
            buf_printf(out, "    --%s) mapfile -t COMPREPLY < <(compgen -W '", config_flag(i));
            config_wording(config_table[i].words, N_COMMANDS, out);
            buf_puts(out, "' -- \"$current\"); return ;;\n");
        }
    bash_values(out, is_folder, "mapfile -t COMPREPLY < <(compgen -d -- \"$current\")");
    bash_values(out, is_file, "mapfile -t COMPREPLY < <(compgen -f -- \"$current\")");
    buf_puts(out, "    esac\n"
                  "    [ \"$COMP_CWORD\" -gt 1 ] || command=\n"
                  "    case $command in\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        buf_printf(out, "    %s) mapfile -t COMPREPLY < <(compgen -W '", config_commands[c].name);
        for (int i = 0; i < N_OPTIONS; i++)
            if (config_option_of(i, (Command)c)) buf_printf(out, " --%s", config_flag(i));
        buf_puts(out, " --help --help-all' -- \"$current\") ;;\n");
    }
    buf_puts(out, "    *) mapfile -t COMPREPLY < <(compgen -W '");
    for (int c = 0; c < N_COMMANDS; c++) buf_printf(out, "%s ", config_commands[c].name);
    buf_puts(out, "--help --version' -- \"$current\") ;;\n"
                  "    esac\n"
                  "}\n"
                  "complete -F _cairn cairn\n");
}

static void zsh_option(Buf *out, int option, Command command)
{
    const OptionInfo *o = &config_table[option];
    buf_printf(out, "        '--%s%s[", config_flag(option), o->type == TYPE_Switch ? "" : "=");
    Buf text = {0}, help = {0};
    config_wording(o->help, command, &text);
    escaped(&help, text.data, "[]:\\");
    replaced(out, help.data, "'", (const char *const[]){"'\\''"});
    BUF_FREE(&text, &help);
    buf_puts(out, "]");
    if (o->type == TYPE_Choice) {
        buf_printf(out, ":%s:(", o->unit);
        config_wording(o->words, command, out);
        buf_puts(out, ")");
    } else if (o->type != TYPE_Switch)
        buf_printf(out, ":%s:%s", config_is_path(o) ? "path" : "value",
                   is_folder(o)        ? "_files -/"
                   : config_is_path(o) ? "_files"
                                       : " ");
    buf_puts(out, "' \\\n");
}

static void zsh(Buf *out)
{
    buf_puts(out, "#compdef cairn\n"
                  "# zsh completion of cairn, made from its table of options\n"
                  "_cairn() {\n"
                  "    local -a commands\n"
                  "    commands=(\n");
    for (int c = 0; c < N_COMMANDS; c++)
        buf_printf(out, "        '%s:%s'\n", config_commands[c].name, config_commands[c].help);
    buf_puts(out, "    )\n"
                  "    if ((CURRENT == 2)); then\n"
                  "        _describe command commands\n"
                  "        return\n"
                  "    fi\n"
                  "    case $words[2] in\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        buf_printf(out, "    %s)\n        _arguments \\\n", config_commands[c].name);
        for (int i = 0; i < N_OPTIONS; i++)
            if (config_option_of(i, (Command)c)) zsh_option(out, i, (Command)c);
        buf_puts(out, "        '--help[print examples and the flags that matter]' \\\n"
                      "        '--help-all[print all flags]' \\\n        '*:argument:_files' ;;\n");
    }
    buf_puts(out, "    esac\n"
                  "}\n"
                  "_cairn \"$@\"\n");
}

static void fish_help(Buf *out, const char *help)
{
    buf_puts(out, " -d '");
    escaped(out, help, "'\\");
    buf_puts(out, "'\n");
}

static void fish(Buf *out)
{
    buf_puts(out, "# fish completion of cairn, made from its table of options\ncomplete -c cairn -f\n"
                  "complete -c cairn -l help -d 'print examples and the flags that matter'\n"
                  "complete -c cairn -l help-all -d 'print all flags'\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        buf_printf(out, "complete -c cairn -n __fish_use_subcommand -a %s", config_commands[c].name);
        fish_help(out, config_commands[c].help);
    }
    for (int c = 0; c < N_COMMANDS; c++)
        for (int i = 0; i < N_OPTIONS; i++) {
            const OptionInfo *o = &config_table[i];
            if (!config_option_of(i, (Command)c)) continue;
            buf_printf(out, "complete -c cairn -n '__fish_seen_subcommand_from %s' -l %s", config_commands[c].name,
                       config_flag(i));
            if (o->type == TYPE_Choice) {
                buf_puts(out, " -x -a '");
                config_wording(o->words, (Command)c, out);
                buf_puts(out, "'");
            }
            if (o->type != TYPE_Choice && o->type != TYPE_Switch) buf_puts(out, config_is_path(o) ? " -r -F" : " -x");
            Buf text = {0};
            config_wording(o->help, (Command)c, &text);
            fish_help(out, text.data);
            buf_free(&text);
        }
}

/* ---- JSON Schema (draft 2020-12) of the file of --config ---- */

static void schema_type(Buf *out, const OptionInfo *o)
{
    Buf words = {0};
    switch (o->type) {
    case TYPE_Switch:
        buf_puts(out, "\"type\": \"boolean\"");
        break;
    case TYPE_Count:
    case TYPE_Real:
        if (*o->words) buf_printf(out, "\"anyOf\": [{\"const\": \"%s\"}, {", o->words);
        buf_printf(out, "\"type\": \"%s\", \"minimum\": ", o->type == TYPE_Count ? "integer" : "number");
        buf_double(out, o->low);
        buf_member(out, "maximum", o->high);
        if (*o->words) buf_puts(out, "}]");
        break;
    case TYPE_Choice:
        config_wording(o->words, N_COMMANDS, &words);
        buf_puts(out, "\"enum\": [\"");
        replaced(out, words.data, " ", (const char *const[]){"\", \""});
        buf_puts(out, "\"]");
        buf_free(&words);
        break;
    default:
        buf_puts(out, "\"type\": \"string\"");
    }
}

/* The wordings of all commands; behind the first, each with its first command. */
static void schema_help(Buf *out, int option)
{
    Buf wordings[N_COMMANDS] = {0}, text = {0};
    for (int c = 0, first = 0; c < N_COMMANDS; c++, first = 0) {
        if (!config_option_of(option, (Command)c)) continue;
        config_wording(config_table[option].help, (Command)c, &wordings[c]);
        while (!wordings[first].data || strcmp(wordings[first].data, wordings[c].data) != 0) first++;
        if (first < c) continue;
        if (text.len) buf_printf(&text, ". %s: ", config_commands[c].name);
        buf_puts(&text, wordings[c].data);
    }
    buf_member_text(out, "description", text.data);
    for (int c = 0; c < N_COMMANDS; c++) buf_free(&wordings[c]);
    buf_free(&text);
}

static void schema(Buf *out)
{
    buf_printf(out,
               "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
               "  \"title\": \"Configuration file of Cairn %s\",\n  \"type\": \"object\",\n"
               "  \"additionalProperties\": false,\n  \"properties\": {",
               CAIRN_VERSION);
    bool first = true;
    for (int i = 0; i < N_OPTIONS; i++) {
        const OptionInfo *o = &config_table[i];
        if (i == OPTION_config) continue; /* refused inside a file */
        buf_printf(out, "%s\n    \"%s\": {", first ? "" : ",", config_flag(i));
        first = false;
        schema_type(out, o);
        schema_help(out, i);
        buf_puts(out, "}");
    }
    buf_puts(out, "\n  }\n}\n");
}

static Status write_all(const char *folder)
{
    static const struct {
        const char *name;
        void (*write)(Buf *out);
    } files[] = {{"cairn.1", man_all},
                 {"cairn.bash", bash},
                 {"_cairn", zsh},
                 {"cairn.fish", fish},
                 {"config.schema.json", schema}};
    Buf text = {0};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        files[i].write(&text);
        TRY(file_write_text(folder, files[i].name, &text));
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        char *name = mem_printf("cairn-%s.1", config_commands[i].name);
        man_command((Command)i, &text);
        Status status = file_write_text(folder, name, &text);
        free(name);
        TRY(status);
    }
    return OK;
}

int main(int argc, char **argv)
{
    Status status = argc == 2 ? write_all(argv[1]) : fail(E_USAGE, "usage: make_docs DIR");
    if (status != OK) fprintf(stderr, "make_docs: %s\n", status_message());
    return status_exit_code(status);
}
