/* Values of options. Each, wherever it comes from, is a text that goes through config_set_value. */

#include "config/table.h"

static Status bad_value(const OptionInfo *o, const char *from, const char *text, const char *expected)
{
    bool word = *o->words && (o->type == TYPE_Count || o->type == TYPE_Duration);
    return fail(E_USAGE, "%s: --%s is '%s'; expected %s%s%s", from, config_flag((int)(o - config_table)), text,
                expected, word ? ", or " : "", word ? o->words : "");
}

static Status out_of_range(const OptionInfo *o, const char *from, const char *text)
{
    return bad_value(o, from, text, SHORT_TEXT("a number from %.15g to %.15g", o->low, o->high));
}

/* The word that stands for -1 in place of a number or time. */
static bool is_word(const OptionInfo *o, const char *text) { return *o->words && strcmp(text, o->words) == 0; }

static Status parse_count(const OptionInfo *o, const char *from, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (is_word(o, text)) {
        *out = -1;
        return OK;
    }
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
    static const char *const words[] = {"false", "no", "off", "0", "true", "yes", "on", "1"};
    for (int i = 0; i < 8; i++)
        if (strcasecmp(text, words[i]) == 0) {
            *out = i >= 4;
            return OK;
        }
    return bad_value(o, from, text, "true or false");
}

/* "16GiB", "500MB", "2G" (binary), bytes; "auto" is 0. Small numbers need a unit, because 16 rarely means 16 bytes.
   Files, which Cairn writes too, may omit it. */
static Status parse_size(const OptionInfo *o, const char *from, const char *text, ConfigSource source, int64_t *out)
{
    static const struct {
        const char *suffix;
        double bytes;
    } units[] = {{"", 1},       {"B", 1},        {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30},
                 {"T", 0x1p40}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
                 {"KB", 1e3},   {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    char *end;
    if (strcmp(text, "auto") == 0) {
        *out = 0;
        return OK;
    }
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
    bool word = is_word(o, text);
    if (word || strcmp(text, "off") == 0 || strcmp(text, "0") == 0) {
        *out = word ? -1 : 0;
        return OK;
    }
    if (clock_parse_duration(text, &seconds) != OK || seconds < 1e-3)
        return bad_value(o, from, text, "a time (90s, 20m, 1.5h, 01:30:00) or off");
    *out = round(1e3 * seconds) / 1e3;
    return OK;
}

/* true and false for yes and no, as other trainers write it. */
static const char *choice_word(const OptionInfo *o, const char *text)
{
    if (!strstr(o->words, "yes no")) return text;
    return strcasecmp(text, "true") == 0 ? "yes" : strcasecmp(text, "false") == 0 ? "no" : text;
}

static Status check_choice(const OptionInfo *o, Command command, const char *from, const char *text)
{
    Buf words = {0};
    config_wording(o->words, command, &words);
    bool known = str_list_has(words.data, ' ', text, strlen(text));
    Status status = known ? OK : bad_value(o, from, text, SHORT_TEXT("one of: %s", words.data));
    buf_free(&words);
    return status;
}

bool config_accepts(int option, Command command, const char *text)
{
    const OptionInfo *o = &config_table[option];
    bool on;
    return (o->type == TYPE_Switch ? parse_switch(o, "", text, &on)
                                   : check_choice(o, command, "", choice_word(o, text))) == OK;
}

Status config_set_value(Config *c, int option, const char *from, const char *text, ConfigSource source)
{
    const OptionInfo *o = &config_table[option];
    void *at = config_place(c, o);
    switch (o->type) {
    case TYPE_Choice:
        text = choice_word(o, text);
        TRY(check_choice(o, c->command, from, text)); /* fall through */
    default:                                          /* other texts */
        free(*(char **)at);
        *(char **)at = mem_strdup(text);
        break;
    case TYPE_List: {
        char *before = *(char **)at;
        bool more = before && *before && c->source[option] == source && source == FROM_FLAG;
        *(char **)at = more ? mem_printf("%s\n%s", before, text) : mem_strdup(text);
        free(before);
        break;
    }
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
    c->foreign[option] = NULL;
    return OK;
}

void config_value_text(const Config *c, int option, Buf *out)
{
    const OptionInfo *o = &config_table[option];
    const void *at = config_place(c, o);
    switch (o->type) {
    default: /* texts */
        buf_puts(out, *(char *const *)at);
        break;
    case TYPE_Switch:
        buf_puts(out, *(const bool *)at ? "true" : "false");
        break;
    case TYPE_Count:
        if (*(const int64_t *)at < 0 && *o->words)
            buf_puts(out, o->words);
        else
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
    case TYPE_Duration: {
        double seconds = *(const double *)at;
        if (seconds > 0)
            buf_printf(out, "%.*fs", seconds == trunc(seconds) ? 0 : 3, seconds);
        else
            buf_puts(out, seconds < 0 ? o->words : "off");
        break;
    }
    }
}

bool config_is_default(const Config *c, int option)
{
    Config fallback = {0};
    Buf now = {0}, before = {0};
    Status status = config_set_value(&fallback, option, "default", config_fallback(option, c->command), FROM_DEFAULT);
    CHECK(status == OK, "the default of --%s", config_flag(option));
    config_value_text(c, option, &now);
    config_value_text(&fallback, option, &before);
    bool same = strcmp(now.data ? now.data : "", before.data ? before.data : "") == 0;
    BUF_FREE(&now, &before);
    config_free(&fallback);
    return same;
}

bool config_json_text(const Json *v, Buf *text)
{
    if (js_kind(v) == JSON_KIND_NULL) return false;
    if (!js_text(v)) return false;
    if (js_kind(v) == JSON_KIND_REAL) /* 8.0 is 8 */
        buf_double(text, js_real(v, 0));
    else
        buf_puts(text, js_text(v));
    return true;
}
