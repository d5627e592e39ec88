/* Inside src/config: the table's rows. */
#ifndef CAIRN_CONFIG_TABLE_H
#define CAIRN_CONFIG_TABLE_H

#include "config/config.h"

typedef enum { TYPE_Text, TYPE_Choice, TYPE_Switch, TYPE_Count, TYPE_Real, TYPE_Size, TYPE_Duration } OptionType;

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
} CommandInfo;

extern OptionInfo config_table[N_OPTIONS];
extern const CommandInfo config_commands[N_COMMANDS];

/* The value as the text that parses back to it. */
void config_value_text(const Config *c, int option, Buf *out);
/* The title of the group that the option belongs to. */
const char *config_group(int option);
/* For help: the placeholder of its value (a Choice's words with `separator` between them; empty for a Switch), and the
   help text with the default in brackets. Both are appended. */
void config_option_usage(int option, char separator, Buf *value, Buf *text);

#endif
