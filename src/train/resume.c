/* Going on from a checkpoint: which one, whether this run may, and its contents. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "state/checkpoint.h"
#include "train/train.h"

static void read_progress(const Json *doc, TrainResume *r)
{
    const Json *forms = js_get(doc, "norm_forms");
    r->progress = (TrainProgress){.step = js_int(js_get(doc, "step"), 0),
                                  .batch = js_int(js_get(doc, "batch"), 0),
                                  .finished = js_bool(js_get(doc, "finished"), false),
                                  .loss_sum = js_real(js_get(doc, "loss_sum"), 0),
                                  .last_loss = js_real(js_get(doc, "last_loss"), NAN),
                                  .best_metric = js_real(js_get(doc, "best_metric"), NAN),
                                  .best_step = js_int(js_get(doc, "best_step"), 0)};
    r->n_forms = (int)js_size(forms);
    r->norm_forms = mem_alloc((size_t)r->n_forms);
    for (int i = 0; i < r->n_forms; i++) r->norm_forms[i] = (uint8_t)js_int(js_at(forms, (size_t)i), 0);
}

/* What the fingerprints disagree on: "data" alters the run, everything else only its last bits. */
static Status compare_fingerprints(const Config *config, const Json *stored, const char *now_text, const char *path)
{
    Json *now = NULL;
    Status status = OK;
    Buf bits = {0}, result = {0};
    TRY_DONE(js_parse("the fingerprint of this run", now_text, strlen(now_text), &now));
    for (void *it = js_first(now); it; it = js_next(now, it)) {
        const char *was = js_string(js_get(stored, js_key(it)), "nothing"), *is = js_string(js_value(it), "");
        if (strcmp(was, is) == 0) continue;
        Buf *list = strncmp(js_key(it), "data", 4) == 0 ? &result : &bits;
        buf_printf(list, "%s%s was '%s', is '%s'", list->len ? "; " : "", js_key(it), was, is);
    }
    if (bits.len) log_warn("going on from %s, but not bit-exact: %s", path, bits.data);
    if (result.len && !config->override)
        status = fail(E_USAGE, "%s belongs to another run: %s. Use another --output-dir, --resume never, or --override",
                      path, result.data);
    else if (result.len)
        log_warn("--override: %s", result.data);
done:
    js_free(now);
    buf_free(&bits);
    buf_free(&result);
    return status;
}

static Status compare_config(const Config *config, const Json *stored, const char *path)
{
    Effect worst = EFFECT_NONE;
    Buf report = {0};
    Status status = config_difference(config, stored, &worst, &report);
    if (status == OK && worst == EFFECT_RESULT && !config->override)
        status = fail(
            E_USAGE,
            "%s was made with other flags, which would alter the run: %s. Give the same flags, another --output-dir, "
            "--resume never, or --override",
            path, report.data);
    else if (status == OK && worst != EFFECT_NONE)
        log_warn("going on from %s with other flags: %s", path, report.data);
    buf_free(&report);
    return status;
}

Status train_find(const Config *config, const char *output_dir, const char *fingerprint, TrainResume *r)
{
    Status status = OK;
    Buf text = {0};
    Json *doc = NULL;
    *r = (TrainResume){0};
    if (strcmp(config->resume, "never") == 0) return OK;
    TRY(checkpoint_remove_leftovers(output_dir));
    if (strcmp(config->resume, "auto") == 0) {
        TRY_DONE(checkpoint_newest(output_dir, &text, &r->dir));
        if (!r->dir) return OK;
    } else {
        TRY_DONE(checkpoint_verify(config->resume, &text, NULL));
        r->dir = mem_strdup(config->resume);
    }
    TRY_DONE(js_parse(r->dir, text.data, text.len, &doc));
    read_progress(doc, r);
    TRY_DONE(compare_config(config, js_get(doc, "config"), r->dir));
    TRY_DONE(compare_fingerprints(config, js_get(doc, "fingerprint"), fingerprint, r->dir));
done:
    buf_free(&text);
    js_free(doc);
    if (status != OK) train_resume_free(r);
    return status;
}

Status train_load(TrainResume *r, Session *s)
{
    TRY(checkpoint_load(r->dir, &s->model->params, session_weights(s), session_m(s), session_v(s), NULL));
    return session_ready(s);
}

void train_resume_free(TrainResume *r)
{
    free(r->dir);
    free(r->norm_forms);
    r->dir = NULL;
    r->norm_forms = NULL;
}

void train_fingerprint(const Backend *backend, Dtype compute, int64_t micro_tokens, Digest data, Buf *out)
{
    char hex[33];
    digest_format(data, hex);
    buf_puts(out, "{\"backend\": ");
    buf_json(out, backend->name);
    buf_puts(out, ", \"libraries\": ");
    buf_json(out, backend->describe);
    buf_printf(out, ", \"precision\": \"%s\", \"micro_batch_tokens\": \"%lld\", \"data\": \"%s\"}", dtype_name(compute),
               (long long)micro_tokens, hex);
}
