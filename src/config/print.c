/* The configuration for files: JSON, differences. */

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
        if ((type == TYPE_Count || type == TYPE_Real || type == TYPE_Switch) &&
            strcmp(text.data, config_table[i].words) != 0)
            buf_puts(out, text.data);
        else
            buf_json(out, text.data);
        buf_free(&text);
    }
    buf_puts(out, "\n}\n");
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
