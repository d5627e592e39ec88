/* `cairn verify RUN [--steps A-B]`: computes steps of a run again and compares them with its metrics.jsonl and its
   checkpoints. */
#include <sys/mman.h>
#include <unistd.h>

#include "commands/commands.h"
#include "config/table.h"
#include "report/report.h"
#include "state/checkpoint/checkpoint.h"
#include "train/loop/verify.h"

/* ---- the run's record ---- */

/* run.json of a finished run, else state.json of the newest good checkpoint; both have `config` and `fingerprint`. */
static Status read_record(const char *dir, Json **doc)
{
    CheckpointSeen seen = {0};
    char *path = file_join(dir, "run.json"), *checkpoint = NULL;
    Status status = OK;
    if (file_exists(path)) {
        status = summary_read(path, doc);
        goto done;
    }
    TRY_DONE(checkpoint_newest(dir, 0, 0, &seen, &checkpoint));
    if (!checkpoint)
        status = fail(E_USAGE, "%s has neither run.json nor a checkpoint; expected the output folder of a run", dir);
    else
        status = js_parse(checkpoint, seen.state.data, seen.state.len, doc);
done:
    checkpoint_seen_free(&seen);
    MEM_FREE(checkpoint, path);
    return status;
}

static void put_member(Buf *text, const char *key, const Json *value)
{
    buf_key(text, key);
    (void)js_put_scalar(text, value);
}

/* The run's options, read as --config reads a file. */
static Status parse_config(const char *dir, const Json *doc, Config *c)
{
    const Json *config = js_get(doc, "config");
    char name[32];
    Buf text = {0};
    const char *const words[] = {"cairn", config_commands[commands_of_record(config)].name, "--config", name};
    if (js_kind(config) != JSON_KIND_OBJECT)
        return fail(E_FORMAT, "%s: the run's record has no options ('config')", dir);
    buf_puts(&text, "{");
    for (void *it = js_first(config); it; it = js_next(config, it)) put_member(&text, js_key(it), js_value(it));
    buf_puts(&text, "}");
    int fd = memfd_create("config", MFD_CLOEXEC);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    Status status = fd < 0 ? fail(E_IO, "memfd_create: %m") : file_write_all(fd, name, text.data, text.len);
    if (status == OK) status = config_parse(c, 4, (char **)(uintptr_t)words, NULL);
    if (fd >= 0) close(fd);
    buf_free(&text);
    if (status == OK) return OK;
    const char *message = status_message(), *version = js_string(js_get(doc, "version"), "");
    if (str_starts_with(message, name)) message += strlen(name) + 2;
    return fail(status, "%s: the options that Cairn %s recorded: %s", dir, *version ? version : "before 0.2", message);
}

/* ---- the options of the computation ---- */

static Status set(Config *c, int option, const char *value)
{
    return config_set_value(c, option, "verify", value, FROM_FLAG);
}

/* Nothing is saved, evaluated or measured; none of it changes a bit. */
static Status leave_out(Config *c)
{
    static const struct {
        int option;
        const char *value;
    } off[] = {{OPTION_save_every, "off"},
               {OPTION_save_steps, "0"},
               {OPTION_snapshot_steps, "0"},
               {OPTION_snapshot_replicas, "auto"},
               {OPTION_persist_file, ""},
               {OPTION_max_time, "off"},
               {OPTION_eval_every, "0"},
               {OPTION_eval_samples, ""},
               {OPTION_target_mlm_accuracy, "0"},
               {OPTION_eval_dir, ""},
               {OPTION_do_eval, "false"},
               {OPTION_do_predict, "false"},
               {OPTION_submission, ""},
               {OPTION_do_train, "true"},
               {OPTION_profile, "0"},
               {OPTION_poison, "false"},
               {OPTION_dry_run, "false"},
               {OPTION_audit, "off"},
               {OPTION_override, "false"},
               {OPTION_log_format, "plain"},
               {OPTION_memory_budget, "auto"},
               {OPTION_patience, "0"},
               {OPTION_best_by, ""},
               {OPTION_rendezvous, "auto"},
               {OPTION_stop_after, "off"}};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) TRY(set(c, off[i].option, off[i].value));
    return OK;
}

/* What the run chose by itself on its machine. */
static Status take_choices(Config *c, const Json *doc)
{
    static const char *const precisions[][2] = {{"f32", "fp32"}, {"tf32", "tf32"}, {"bf16", "bf16"}, {"f16", "fp16"}};
    const Json *facts = js_get(doc, "fingerprint");
    const char *precision = js_string(js_get(facts, "precision"), ""),
               *backend = js_string(js_get(facts, "backend"), "");
    int64_t threads = js_int(js_get(doc, "threads"), 0);
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        if (strcmp(precision, precisions[i][0]) == 0) TRY(set(c, OPTION_precision, precisions[i][1]));
    if (*backend) TRY(set(c, OPTION_backend, backend));
    if (strcmp(c->micro_batch_tokens, "auto") == 0)
        TRY(set(c, OPTION_micro_batch_tokens, js_string(js_get(facts, "micro_batch_tokens"), "auto")));
    return c->threads == 0 && threads > 0 ? set(c, OPTION_threads, SHORT_TEXT("%lld", (long long)threads)) : OK;
}

/* A schedule in place of the run's, or none: its stages are its own, and K-FAC's lag is the run's. */
static Status leave_pipeline(Config *c)
{
    static const int stages[] = {OPTION_stages, OPTION_stage_chunks, OPTION_stage_layers};
    const char *lag = SHORT_TEXT("%lld", strcmp(c->pipeline, "none") != 0 ? (long long)c->kfac_interval : 0);
    if (c->kfac_interval > 0 && strcmp(c->kfac_lag, "auto") == 0) TRY(set(c, OPTION_kfac_lag, lag));
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        TRY(set(c, stages[i], config_table[stages[i]].fallback));
    return OK;
}

/* The flags of this command, beside --steps: where things are here, how ranks meet, and their pipeline. */
static Status take_flags(Config *c, const Config *own)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!config_option_of(i, COMMAND_VERIFY) || !config_option_of(i, c->command)) continue;
        if (i == OPTION_config || own->source[i] == FROM_DEFAULT) continue;
        Buf text = {0};
        buf_puts(&text, "");
        config_value_text(own, i, &text);
        Status status = config_set_value(c, i, "verify", text.data, (ConfigSource)own->source[i]);
        buf_free(&text);
        TRY(status);
    }
    return OK;
}

/* ---- steps ---- */

static Status read_steps(const char *dir, Verify *v)
{
    char *path = file_join(dir, "metrics.jsonl");
    Status status = file_read(path, (size_t)4 << 30, &v->recorded);
    const char *line = v->recorded.data;
    long long step;
    for (; status == OK && line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (sscanf(line, "{\"step\": %lld", &step) == 1 && strchr(line, '\n')) v->last = step;
    if (status == OK && v->last == 0) status = fail(E_USAGE, "%s has no steps to compare with", path);
    free(path);
    return status;
}

static Status choose_steps(const char *text, Verify *v)
{
    long long first = 1, last = v->last;
    int end = 0;
    if (!*text) return OK;
    bool pair = sscanf(text, "%lld-%lld%n", &first, &last, &end) == 2 && text[end] == '\0';
    bool one = !pair && sscanf(text, "%lld%n", &first, &end) == 1 && text[end] == '\0';
    if (one) last = first;
    if ((!pair && !one) || first < 1 || last < first || last > v->last)
        return fail(E_USAGE, "--steps '%s': expected A-B, or one number, within the recorded steps 1 to %lld", text,
                    (long long)v->last);
    v->first = first;
    v->last = last;
    return OK;
}

/* The newest whole checkpoint before the first step; without one the run begins from its start. */
static Status choose_start(const char *dir, const Verify *v, Config *c)
{
    CheckpointList list = {0};
    Status status = checkpoint_find(dir, &list);
    bool found = false;
    if (status == OK) status = set(c, OPTION_resume, "never");
    for (int i = 0; i < list.count && status == OK && !found; i++) {
        if (list.items[i].step >= v->first || list.items[i].step == 0) continue;
        found = checkpoint_verify(list.items[i].path, NULL) == OK;
        if (found)
            status = set(c, OPTION_resume, list.items[i].path);
        else
            log_warn("%s", status_message());
    }
    checkpoint_list_free(&list);
    return status;
}

static Status configure(const Config *own, const Json *doc, Verify *v, Config *c)
{
    TRY(parse_config(v->dir, doc, c));
    TRY(leave_out(c));
    TRY(take_choices(c, doc));
    v->pipelined = strcmp(c->pipeline, "none") != 0;
    if (own->source[OPTION_pipeline] != FROM_DEFAULT) TRY(leave_pipeline(c));
    TRY(take_flags(c, own));
    TRY(set(c, OPTION_output_dir, v->dir));
    TRY(read_steps(v->dir, v));
    TRY(choose_steps(own->steps, v));
    return choose_start(v->dir, v, c);
}

Status command_verify(const Config *own)
{
    Json *doc = NULL;
    Config c = {0};
    Verify v = {.first = 1};
    Status status = OK;
    if (own->n_positional != 1) return fail(E_USAGE, "give one output folder of a run: cairn verify RUN");
    v.dir = own->positional[0];
    TRY_DONE(read_record(v.dir, &doc));
    v.fingerprint = js_get(doc, "fingerprint");
    TRY_DONE(configure(own, doc, &v, &c));
    TRY_DONE(commands_run_verify(&c, &v));
    const char *checkpoints = v.checkpoints > 1   ? SHORT_TEXT(", as do %d checkpoints", v.checkpoints)
                              : v.checkpoints > 0 ? ", as does 1 checkpoint"
                              : v.damaged > 0     ? ""
                                                  : "; there is no checkpoint of these steps";
    const char *damaged = v.damaged > 1   ? SHORT_TEXT("; %d checkpoints are damaged and were not compared", v.damaged)
                          : v.damaged > 0 ? "; 1 checkpoint is damaged and was not compared"
                                          : "";
    if (v.compared > 0)
        printf("%s: %lld steps computed again, up to step %lld; all agree%s%s\n", v.dir, (long long)v.compared,
               (long long)v.last, checkpoints, damaged);
done:
    config_free(&c);
    js_free(doc);
    buf_free(&v.recorded);
    return status;
}
