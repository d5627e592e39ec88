/* Inside src/config: the table's rows. */
#pragma once

#include "config/config.h"
#include "config/help_list.h"

typedef enum {
    TYPE_Text,
    TYPE_Folder,
    TYPE_Path,
    TYPE_PathOrName,
    TYPE_Paths,
    TYPE_Choice,
    TYPE_List,
    TYPE_Switch,
    TYPE_Count,
    TYPE_Real,
    TYPE_Size,
    TYPE_Duration
} OptionType;

typedef struct {
    const char *name; /* the field */
    OptionType type;
    size_t offset;
    const char *fallback;
    double low, high;
    const char *words, *unit;
    Effect effect;
    const char *commands, *help;
    char flag[48]; /* filled on first use */
} OptionInfo;

typedef struct {
    const char *name;
    const char *letters;
    const char *positional, *help;
    const char *title, *flags, *examples; /* help_list.h */
} CommandInfo;

extern OptionInfo config_table[N_OPTIONS];
/* The table's default; "" for --output-dir of commands that write no file unless it is given. */
const char *config_fallback(int option, Command command);
extern const CommandInfo config_commands[N_COMMANDS];
extern const Command config_by_group[N_COMMANDS]; /* in the order of HELP_LIST */

/* Whether the value is kept as allocated text. */
static inline bool config_is_text(const OptionInfo *o) { return o->type <= TYPE_List; }
static inline bool config_is_path(const OptionInfo *o) { return o->type >= TYPE_Folder && o->type <= TYPE_Paths; }
static inline void *config_place(const Config *c, const OptionInfo *o) { return (char *)c + o->offset; }

/* `from` is for messages: "the command line", "CAIRN_BATCH_SIZE", a file's path. E_USAGE. */
Status config_set_value(Config *c, int option, const char *from, const char *text, ConfigSource source);
/* Whether the text is a value of a Switch or Choice of the command. */
bool config_accepts(int option, Command command, const char *text);
/* The value as the text that config_set_value takes back to it. */
void config_value_text(const Config *c, int option, Buf *out);
/* Appends the text of a string, number or bool of a file. False for any other value. */
bool config_json_text(const Json *v, Buf *text);

/* ---- names.c: names that are not in the table ---- */

/* A flag of another trainer. `values` has a word for each value that is taken: FROM=TO, FROM= for one without an
   effect; then, for all others, # whole numbers (also written 500.0), % shares from 0 to 1 as a percentage, / shares as
   they are but 1 as 100%, or * any value as it is. A switch's begin with true= or are false= alone. Any other value, or
   any where `values` is empty, is refused with the advice. */
typedef struct {
    const char *name;
    int option; /* negative: none */
    const char *values, *advice;
} ForeignName;

enum { FOREIGN_STRATEGY = -2 };            /* the option of rows that set Config's strategy */
extern const ForeignName config_foreign[]; /* the last has no name */

/* Compares flags and keys; `-` and `_` are the same. */
bool config_same_name(const char *a, const char *b);
const ForeignName *config_foreign_name(const char *name); /* NULL: unknown */
/* Cairn's value for theirs, "" where it has no effect. False where it is refused. */
bool config_foreign_value(const ForeignName *f, const char *value, char *out, size_t room);
const char *config_foreign_command(const char *name); /* advice; NULL: unknown */
/* The most similar name, NULL where none is. N_COMMANDS: flags of all commands. */
const char *config_nearest_flag(Command command, const char *name);
const char *config_nearest_command(const char *name);

/* ---- between config.c and file.c ---- */

/* "; the nearest is --batch-size", with `before` in front of the name; empty where no flag is near. Valid until the
   next call. */
const char *config_advice(Command command, const char *name, const char *before);
/* Sets an option by its own name (`foreign` NULL) or another trainer's. */
Status config_set_named(Config *c, int option, const ForeignName *foreign, const char *from, const char *text,
                        ConfigSource source);
/* The options of a --config file. *read keeps the file for a second pass, because a pipe can be read only once; NULL:
   not yet read. */
Status config_apply_file(Config *c, const char *path, Json **read);

/* ---- help.c ---- */

/* Appends the command's examples (N_COMMANDS: those of the program) in indented lines of at most `columns`, with
   backslashes between. */
void config_examples(Command command, int columns, Buf *out);
/* The title of the group that the option belongs to. */
const char *config_group(int option);
/* Appends the wording for the command of a help text or of a Choice's words (options.h); N_COMMANDS: with all words. */
void config_wording(const char *text, Command command, Buf *out);
/* For help: the placeholder of its value (a Choice's words; empty for a Switch), and the help text with the command's
   default in brackets. Both are appended. */
void config_option_usage(int option, Command command, Buf *value, Buf *text);
