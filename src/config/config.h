/* The configuration of a command. One table of options (options.h) drives parsing, checks, help, environment and files.

   A value comes from a flag, else from the environment (CAIRN_BATCH_SIZE), else from --config FILE.json, else from
   --preset, else from the default. FILE may be the run.json of a run: its configuration is taken, with
   paths from the folder where that run was started. Flags are kebab-case; `_` is taken for `-`. Flags and keys of other
   trainers are taken where they mean the same (names.c). An unknown flag, key or CAIRN_ variable is an error that names
   a similar one. Of a repeated flag the last counts; a repeated key or variable is an error. After a "--" all words are
   positional. Config is read-only after config_parse. Kernels and exec never see it. */
#pragma once

#include "base/base.h"
#include "config/options.h"

/* X(id, name, what it runs, its letters in options.h, positional arguments, help). TASK(x) is task_x
   (train/job/task.h), FUNCTION(x) is command_x; a task's command begins its letters with '*'. HELP_LIST (help_list.h)
   has the rest of its help. */
#define COMMAND_LIST(X)                                                                                                \
    X(GLUE, "glue", TASK(glue), "*g", "",                                                                              \
      "fine-tune a classifier on a GLUE task or on own texts, evaluate and predict")                                   \
    X(SQUAD, "squad", TASK(squad), "*k", "", "fine-tune on questions and paragraphs, evaluate and answer")             \
    X(EMBED, "embed", TASK(embed), "*e", "", "train sentence embeddings on pairs of texts, and evaluate them")         \
    X(PREDICT, "predict", TASK(predict), "d", "", "label texts with a fine-tuned model, or write their vectors")       \
    X(PLAN, "plan", FUNCTION(plan), "p", "", "show the memory and time of a run before anything is allocated")         \
    X(CONVERT, "convert", FUNCTION(convert), "c", "", "turn any checkpoint into a Hugging Face directory")             \
    X(INSPECT, "inspect", FUNCTION(inspect), "i", "",                                                                  \
      "list the tensors of a checkpoint, and how ranks would slice it")                                                \
    X(VOCAB, "vocab", FUNCTION(vocab), "v", "", "train a WordPiece vocabulary")                                        \
    X(REPORT, "report", FUNCTION(report), "r", "DIR...", "compare runs: speed, memory, accuracy, losses, curves")      \
    X(SWEEP, "sweep", FUNCTION(sweep), "z", "-- COMMAND [FLAG]...",                                                    \
      "run a command with every combination of values, and compare")                                                   \
    X(VARIABILITY, "variability", FUNCTION(variability), "q", "DIR...",                                                \
      "compare the pace of ranks, over runs and hosts, and name the slow ones")                                        \
    X(WIKI, "wiki", FUNCTION(wiki), "w", "", "turn Wikipedia dumps or folders of text into sentences")                 \
    X(SHARDS, "shards", FUNCTION(shards), "s", "", "turn sentences into pretraining data")                             \
    X(PRETRAIN, "pretrain", TASK(pretrain), "*t", "", "pretrain BERT on shards: masked words and next sentences")      \
    X(ADAPT, "adapt", TASK(pretrain), "*ta", "", "continue the pretraining of a model on your own text")               \
    X(LAUNCH, "launch", FUNCTION(launch), "l", "-- COMMAND [FLAG]...",                                                 \
      "start a command on many ranks, here or on other hosts")                                                         \
    X(VERIFY, "verify", FUNCTION(verify), "y", "RUN",                                                                  \
      "compute steps of a run again, with its options, and compare them with its records")                             \
    X(SNAPSHOT, "snapshot", FUNCTION(snapshot), "n", "list|persist|discard",                                           \
      "list, save or discard snapshots that runs left in host memory")                                                 \
    X(DOCTOR, "doctor", FUNCTION(doctor), "o", "", "show this machine as Cairn sees it, for a bug report")

typedef enum {
#define X(id, ...) COMMAND_##id,
    COMMAND_LIST(X)
#undef X
        N_COMMANDS
} Command;

/* Effect of a changed option on a run that resumes from a checkpoint. */
typedef enum {
    EFFECT_NONE,  /* nothing */
    EFFECT_BITS,  /* other last bits: the run resumes with a warning */
    EFFECT_RESULT /* another run: refused without --override */
} Effect;

/* How options are kept. */
typedef char *ConfigText;
typedef char *ConfigFolder, *ConfigPath;
typedef char *ConfigPathOrName; /* a name where no file is called so */
typedef char *ConfigPaths;      /* with commas between them */
typedef char *ConfigChoice;     /* one of a list of words */
typedef char *ConfigList;       /* words with a line end between them; each flag adds one */
typedef bool ConfigSwitch;
typedef int64_t ConfigCount;
typedef double ConfigReal;
typedef int64_t ConfigSize;    /* bytes; 0: auto */
typedef double ConfigDuration; /* seconds; 0: off */

typedef enum { FROM_DEFAULT, FROM_PRESET, FROM_FILE, FROM_ENVIRONMENT, FROM_FLAG } ConfigSource;

enum {
#define X(field, ...) OPTION_##field,
    OPTION_LIST(X)
#undef X
        N_OPTIONS
};

typedef struct Config {
    Command command;
    bool help, help_all; /* --help or --help-all was given: print config_help and end */
#define X(field, type, ...) Config##type field;
    OPTION_LIST(X)
#undef X
    uint8_t source[N_OPTIONS];      /* ConfigSource */
    const char *foreign[N_OPTIONS]; /* another trainer's name by which the option was given; else NULL */
    const char *strategy; /* value of another trainer's eval_strategy: "no", "steps" or "epoch"; NULL: not given */
    ConfigSource strategy_source;
    Buf repeated;      /* flags that were given more than once, for a message */
    Buf line;          /* the command line, quoted for a shell */
    char **positional; /* (n_positional) */
    int n_positional;
    char *const *words; /* (n_words) the command line from the command on; the caller's */
    int n_words;
} Config;

/* argv[1] is the command. `environment` as in main's third argument; may be NULL. E_USAGE says what was expected and
   found, also for a --config that is not JSON; E_IO: it cannot be read. */
Status config_parse(Config *c, int argc, char **argv, char **environment);
void config_free(Config *c); /* takes a zeroed one */

/* Whether the option has its default, by value: a file that Cairn printed names every option. */
bool config_is_default(const Config *c, int option);
/* A JSON object of the command's options; --config of it yields the same configuration. */
void config_json(const Config *c, Buf *out);
/* Text of `cairn --help` (command N_COMMANDS), or of a command's --help or (`all`) --help-all, in lines of at most
   `columns`, from 60 on. `styled`: titles in bold. */
void config_help(Command command, bool all, int columns, bool styled, Buf *out);

/* Compares with a stored config_json. `worst` is the worst effect of the differences; `report` lists those with an
   effect, first on the result, then on bits: "--seed was 42, is 43; --threads was 2, is 4 (not bit-exact)". Options
   that one of the two does not know are skipped. E_CORRUPT: `stored` is not an object. */
Status config_difference(const Config *now, const Json *stored, Effect *worst, Buf *report);

/* Before that comparison. An earlier version had another default for some options: where the run that resumes does not
   give one of them, it keeps the stored value if that is the former default. `kept` lists these as flags,
   "--bias-correction=false"; returns whether there are any. `now` may be a plain copy of another configuration: none of
   these options has memory. */
bool config_keep_former(Config *now, const Json *stored, Buf *kept);

/* Texts of the options that --preset sets. `name` "": no preset. E_USAGE lists the presets. */
typedef struct {
    const char *value[N_OPTIONS]; /* NULL: not set */
} Preset;
Status config_preset(const char *name, Preset *preset);
/* The preset of a command that has defaults of its own; NULL: it has those of the table. */
const char *config_command_preset(Command command);

/* The option with this flag name ("batch-size"), or −1. For tests and help. */
int config_option(const char *flag);
const char *config_flag(int option);
bool config_option_of(int option, Command command);
Effect config_effect(int option);
