/* Progress as state.json, and back. A digest shows that it is as it was written, not that Cairn wrote it: every value
   is checked. */

#include "train/keep/saving.h"

#define MOST ((int64_t)1 << 53) /* of a count */

void saving_state(const Run *run, Buf *out)
{
    const Session *s = &run->session;
    const TrainProgress *p = &run->progress;
    buf_printf(out, "{\"format\": %d, \"step\": %lld, \"batch\": %lld, \"skipped\": %lld, \"finished\": %s,\n",
               SAVING_FORMAT, (long long)p->step, (long long)p->batch, (long long)(p->batch - p->step),
               p->finished ? "true" : "false");
    buf_puts(out, " \"loss_sum\": ");
    buf_double(out, p->loss_sum);
    buf_member(out, "last_loss", p->last_loss);
    buf_member(out, "best_metric", p->best_metric); /* NaN: null */
    buf_printf(out,
               ", \"best_step\": %lld, \"since_best\": %lld, \"evaluated\": %lld, \"evaluated_samples\": %lld,\n "
               "\"norm_forms\": [",
               (long long)p->best_step, (long long)p->since_best, (long long)p->evaluated,
               (long long)p->evaluated_samples);
    for (int i = 0; i < 2 * s->model->config.layers + 1; i++)
        buf_printf(out, "%s%d", i ? ", " : "", s->plan.layers.norm_forms[i]);
    buf_puts(out, "],\n");
    if (s->scaling.scale > 0) {
        buf_puts(out, " \"loss_scale\": {\"scale\": ");
        buf_double(out, (double)s->scaling.scale);
        buf_printf(out, ", \"good\": %d},\n", s->scaling.good);
    }
    buf_printf(out, " \"fingerprint\": %s,\n \"config\": %s}\n", run->fingerprint.data, run->config_json.data);
}

static Status refuse(const char *name, const char *key, const Json *found, const char *expected)
{
    Buf value = {0};
    if (!found)
        buf_puts(&value, "missing");
    else if (!js_put_scalar(&value, found))
        buf_puts(&value, "a list or an object");
    Status status = fail(E_CORRUPT,
                         "%s: state.json: '%s' is %.80s; expected %s: damaged or edited. --resume FOLDER takes another "
                         "checkpoint",
                         name, key, value.data, expected);
    buf_free(&value);
    return status;
}

static Status read_count(const char *name, const Json *object, const char *key, int64_t least, int64_t most,
                         int64_t *value)
{
    const Json *found = js_get(object, key);
    const char *expected = SHORT_TEXT("a whole number from %lld to %lld", (long long)least, (long long)most);
    if (js_kind(found) != JSON_KIND_INT) return refuse(name, key, found, expected);
    *value = js_int(found, 0);
    return *value >= least && *value <= most ? OK : refuse(name, key, found, expected);
}

/* null stands for a value that is not finite. */
static Status read_number(const char *name, const Json *doc, const char *key, double *value)
{
    const Json *found = js_get(doc, key);
    JsonKind kind = js_kind(found);
    *value = js_real(found, NAN);
    bool good = found && (kind == JSON_KIND_INT || kind == JSON_KIND_REAL || kind == JSON_KIND_NULL);
    return good ? OK : refuse(name, key, found, "a number or null");
}

/* Updates and skipped updates. States of 0.1.0 lack `skipped`; in fp16 they count the skipped updates since the last
   change to fp16. */
static Status read_batch(const char *name, const Json *doc, int64_t step, int64_t *batch)
{
    const Json *scale = js_get(doc, "loss_scale");
    bool old = !js_get(doc, "skipped");
    int64_t skipped = 0;
    if (!old || scale) TRY(read_count(name, old ? scale : doc, "skipped", 0, MOST, &skipped));
    return read_count(name, doc, "batch", step + skipped, old ? MOST : step + skipped, batch);
}

static Status check_scale(const char *name, const Json *doc)
{
    const Json *stored = js_get(doc, "loss_scale"), *scale = js_get(stored, "scale");
    double value = js_real(scale, 0);
    int64_t ignored;
    if (!stored) return OK;
    if (!(value >= (double)LOSS_SCALE_LEAST && value <= (double)LOSS_SCALE_MOST))
        return refuse(name, "scale", scale, "1 to 2^32");
    return read_count(name, stored, "good", 0, INT32_MAX, &ignored);
}

static Status check_forms(const char *name, const Json *doc)
{
    const Json *forms = js_get(doc, "norm_forms");
    for (size_t i = 0; i < js_size(forms); i++) {
        int64_t form = js_int(js_at(forms, i), -1);
        if (form < 0 || form > 1) return refuse(name, "norm_forms", js_at(forms, i), "a list of 0 and 1");
    }
    return js_kind(forms) == JSON_KIND_ARRAY ? OK : refuse(name, "norm_forms", forms, "a list of 0 and 1");
}

static Status check(const char *name, const Json *doc, int64_t step, TrainProgress *p)
{
    const Json *finished = js_get(doc, "finished"), *config = js_get(doc, "config"),
               *fingerprint = js_get(doc, "fingerprint");
    int64_t format = js_int(js_get(doc, "format"), -1), every = js_int(js_get(config, "eval-every"), 0), seed;
    if (format != SAVING_FORMAT)
        return fail(E_CORRUPT,
                    "%s: expected a state.json of format %d, found format %lld (-1: none): damaged, or written by "
                    "another version",
                    name, SAVING_FORMAT, (long long)format);
    TRY(read_count(name, doc, "step", step, step, &p->step));
    TRY(read_batch(name, doc, step, &p->batch));
    TRY(check_scale(name, doc));
    if (js_kind(finished) != JSON_KIND_BOOL) return refuse(name, "finished", finished, "true or false");
    p->finished = js_bool(finished, false);
    TRY(read_number(name, doc, "loss_sum", &p->loss_sum));
    TRY(read_number(name, doc, "last_loss", &p->last_loss));
    TRY(read_number(name, doc, "best_metric", &p->best_metric));
    TRY(read_count(name, doc, "best_step", 0, step, &p->best_step));
    TRY(read_count(name, doc, "evaluated", 0, step, &p->evaluated));
    p->evaluated_samples = -1; /* old states lack it */
    if (js_get(doc, "evaluated_samples"))
        TRY(read_count(name, doc, "evaluated_samples", -1, MOST, &p->evaluated_samples));
    if (js_get(doc, "since_best")) /* old states counted --eval-every */
        TRY(read_count(name, doc, "since_best", 0, step, &p->since_best));
    else if (every > 0)
        p->since_best = p->evaluated / every - p->best_step / every;
    TRY(check_forms(name, doc));
    if (js_kind(config) != JSON_KIND_OBJECT) return refuse(name, "config", config, "an object");
    TRY(read_count(name, config, "seed", INT64_MIN, INT64_MAX, &seed)); /* every configuration has one */
    return js_kind(fingerprint) == JSON_KIND_OBJECT ? OK : refuse(name, "fingerprint", fingerprint, "an object");
}

Status saving_read(const char *name, const Buf *text, int64_t step, Json **doc, TrainProgress *progress)
{
    *progress = (TrainProgress){0};
    Status status = js_parse(name, text->data, text->len, doc);
    if (status == E_FORMAT) return fail(E_CORRUPT, "state.json of %s: damaged", status_message());
    return status == OK ? check(name, *doc, step, progress) : status;
}
