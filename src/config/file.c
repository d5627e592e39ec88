/* A --config file: a JSON object of options, or a run.json. */
#include <unistd.h>

#include "config/config.h"
#include "config/table.h"

/* Appends `path` as it is from here where it begins in `folder`. */
static void put_path(const OptionInfo *o, const char *folder, const char *path, Buf *out)
{
    char *whole = file_join(folder, path);
    bool stays = !*path || *path == '/' || str_list_has(o->words, ' ', path, strlen(path)) ||
                 (o->type == TYPE_PathOrName && !file_exists(whole));
    buf_puts(out, stays ? path : whole);
    free(whole);
}

/* Paths in a run.json begin in the folder where its run was started. */
static void resolve_paths(int option, const char *folder, Buf *text)
{
    const OptionInfo *o = &config_table[option];
    if (!config_is_path(o)) return;
    Buf out = {0};
    buf_puts(&out, "");
    for (char *rest = text->data, *path; (path = strsep(&rest, o->type == TYPE_Paths ? "," : ""));) {
        put_path(o, folder, path, &out);
        if (rest) buf_puts(&out, ",");
    }
    buf_free(text);
    *text = out;
}

/* One option of a file. `folder`: where its paths begin; "": here. */
static Status apply_member(Config *c, const char *path, const char *folder, const char *key, const Json *v,
                           bool seen[N_OPTIONS])
{
    const ForeignName *foreign = config_foreign_name(key);
    int option = foreign ? foreign->option : config_option(key);
    if (option == OPTION_config)
        return fail(E_USAGE, "%s: '%s' is allowed only on the command line or in CAIRN_CONFIG", path, key);
    if (option < 0 && !foreign)
        return fail(E_USAGE, "%s: unknown option '%s'%s", path, key, config_advice(N_COMMANDS, key, ""));
    Buf text = {0};
    char own[4096];
    buf_puts(&text, "");
    bool plain = config_json_text(v, &text);
    /* "fp16": false chooses no type, and "bf16": true with "tf32": true chooses bf16. */
    bool idle = foreign && plain && config_foreign_value(foreign, text.data, own, sizeof own) && !*own;
    bool beside = foreign && option == OPTION_precision && c->foreign[option];
    if (option >= 0 && !idle && !beside && seen[option]) {
        buf_free(&text);
        return fail(E_USAGE, "%s: '%s' is given twice", path, config_flag(option));
    }
    if (option >= 0 && !idle) seen[option] = true;
    if (plain && option >= 0 && *folder) resolve_paths(option, folder, &text);
    Status status = plain ? config_set_named(c, option, foreign, path, text.data, FROM_FILE)
                          : fail(E_USAGE, "%s: '%s' must be a string, a number, true or false", path, key);
    buf_free(&text);
    return status;
}

Status config_apply_file(Config *c, const char *path, Json **read)
{
    bool seen[N_OPTIONS] = {false};
    Status status = *read ? OK : js_read(path, read);
    if (status != OK) return status == E_FORMAT ? E_USAGE : status; /* the file is part of the command */
    const Json *record = js_get(*read, "config");                   /* a run.json has its options there */
    const Json *options = js_kind(record) == JSON_KIND_OBJECT ? record : *read;
    const Json *written = options == record ? js_get(*read, "format") : NULL;
    int64_t format = written ? js_int(written, -1) : RUN_JSON_FORMAT;
    if (format != RUN_JSON_FORMAT)
        return fail(E_USAGE, "%s: expected a run.json of format %d, found format %lld: another version wrote it", path,
                    RUN_JSON_FORMAT, (long long)format);
    if (js_kind(options) != JSON_KIND_OBJECT) return fail(E_USAGE, "%s: expected a JSON object of options", path);
    if (js_repeated(options)) return fail(E_USAGE, "%s: '%s' is given twice", path, js_repeated(options));
    char here[4096];
    const char *folder = options == record ? js_string(js_get(*read, "folder"), "") : "";
    bool elsewhere = *folder && file_is_directory(folder) && !(getcwd(here, sizeof here) && strcmp(here, folder) == 0);
    for (void *it = js_first(options); it; it = js_next(options, it))
        TRY(apply_member(c, path, elsewhere ? folder : "", js_key(it), js_value(it), seen));
    return OK;
}
