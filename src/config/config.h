/* The configuration of a command: one table of options (options.h) that parsing, checking, help, environment, files in
   and out all follow.

   A value comes from a flag, else from the environment (CAIRN_BATCH_SIZE), else from --config FILE.json, else from
   --preset, else from the default. Flags are kebab-case; `_` is taken for `-`. An unknown or repeated flag, key or
   CAIRN_ variable is an error that names the nearest one. Behind a "--" all words are positional. Config is read-only
   after config_parse and stops where plans are built: kernels and exec never see it. */
#ifndef CAIRN_CONFIG_CONFIG_H
#define CAIRN_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "config/options.h"

/* X(id, name, its letters in options.h, positional arguments, help). A task's command begins its letters with '*'. */
#define COMMAND_LIST(X)                                                                                                \
    X(GLUE, "glue", "*g", "", "fine-tune, evaluate and predict a GLUE task")                                           \
    X(PLAN, "plan", "p", "", "show the memory and time of a run before anything is allocated")                         \
    X(CONVERT, "convert", "c", "", "turn any checkpoint into a Hugging Face directory")                                \
    X(INSPECT, "inspect", "i", "", "list the tensors of a checkpoint, and how ranks would slice it")                   \
    X(VOCAB, "vocab", "v", "", "train a WordPiece vocabulary")                                                         \
    X(REPORT, "report", "r", "DIR...", "compare finished runs")                                                        \
    X(WIKI, "wiki", "w", "", "turn Wikipedia dumps or folders of text into sentences")                                 \
    X(SHARDS, "shards", "s", "", "turn sentences into pretraining data")                                               \
    X(PRETRAIN, "pretrain", "*t", "", "pretrain BERT on shards: masked words and next sentences")                      \
    X(LAUNCH, "launch", "l", "-- COMMAND [FLAG]...", "start a command on many ranks, here or on other hosts")          \
    X(SNAPSHOT, "snapshot", "n", "list|persist|discard",                                                               \
      "list, save or discard snapshots that runs left in host memory")

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
typedef char *ConfigChoice; /* one of a list of words */
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
    bool help; /* --help was given: print config_help and end */
#define X(field, type, ...) Config##type field;
    OPTION_LIST(X)
#undef X
    uint8_t source[N_OPTIONS]; /* ConfigSource */
    char **positional;         /* (n_positional) */
    int n_positional;
} Config;

/* argv[1] is the command. `environment` as in main's third argument; may be NULL. E_USAGE says what was expected and
   found, also for a --config that is not JSON; E_IO: it cannot be read. */
Status config_parse(Config *c, int argc, char **argv, char **environment);
void config_free(Config *c); /* takes a zeroed one */

/* A JSON object of the command's options; --config of it yields the same configuration. */
void config_json(const Config *c, Buf *out);
/* Text of `cairn --help` (command N_COMMANDS) or of a command's --help. */
void config_help(Command command, Buf *out);

/* Compares with a stored config_json. `worst` is the worst effect of the differences; `report` lists those with an
   effect, first on the result, then on bits: "--seed was 42, is 43; --threads was 2, is 4 (not bit-exact)". Options
   that one of the two does not know are skipped. E_CORRUPT: `stored` is not an object. */
Status config_difference(const Config *now, const Json *stored, Effect *worst, Buf *report);

/* The texts that --preset gives options. `name` "": without one. E_USAGE lists the presets. */
typedef struct {
    const char *value[N_OPTIONS]; /* NULL: not set */
} Preset;
Status config_preset(const char *name, Preset *preset);

/* The option with this flag name ("batch-size"), or −1. For tests and help. */
int config_option(const char *flag);
const char *config_flag(int option);
bool config_option_of(int option, Command command);

#endif
