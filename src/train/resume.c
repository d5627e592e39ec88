/* Resuming: finds the checkpoint or snapshot, checks that it belongs to this run, and loads it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tensor_file.h"
#include "state/checkpoint.h"
#include "train/recover.h"
#include "train/start.h"
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
                                  .best_step = js_int(js_get(doc, "best_step"), 0),
                                  .evaluated = js_int(js_get(doc, "evaluated"), 0),
                                  .evaluated_samples = js_int(js_get(doc, "evaluated_samples"), -1)};
    r->n_forms = (int)js_size(forms);
    r->norm_forms = mem_alloc((size_t)r->n_forms);
    for (int i = 0; i < r->n_forms; i++) r->norm_forms[i] = (uint8_t)js_int(js_at(forms, (size_t)i), 0);
}

/* Members of a fingerprint whose change alters the run; the others affect only the last bits. */
static const struct {
    const char *key, *what;
} altering[] = {{"data", "the training examples or the vocabulary (by digest)"},
                {"origin", "the initial weights or sizes (by digest)"},
                {"precision", "--precision"}};

static const char *alters(const char *key)
{
    for (size_t i = 0; i < sizeof altering / sizeof *altering; i++)
        if (strcmp(key, altering[i].key) == 0) return altering[i].what;
    return NULL;
}

static Status compare_fingerprints(const Config *config, const Json *stored, const char *now_text, const char *path)
{
    Json *now = NULL;
    Status status = OK;
    Buf bits = {0}, result = {0};
    TRY_DONE(js_parse("the fingerprint of this run", now_text, strlen(now_text), &now));
    for (void *it = js_first(now); it; it = js_next(now, it)) {
        bool ranks = strcmp(js_key(it), "ranks") == 0; /* older checkpoints lack it and come from one rank */
        const char *was = js_string(js_get(stored, js_key(it)), ranks ? "1" : "nothing"),
                   *is = js_string(js_value(it), "");
        if (strcmp(was, is) == 0) continue;
        const char *what = alters(js_key(it));
        Buf *list = what ? &result : &bits;
        buf_puts(list, list->len ? "; " : "");
        buf_printf(list, "%s: was '%s', is '%s'", what ? what : js_key(it), was, is);
    }
    if (bits.len) log_warn("resuming from %s, but not bit-exact: %s", path, bits.data);
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
        status = fail(E_USAGE,
                      "%s was made with other flags, and these would alter the run: %s. Give the same flags, another "
                      "--output-dir, "
                      "--resume never, or --override",
                      path, report.data);
    else if (status == OK && worst != EFFECT_NONE)
        log_warn("resuming from %s with other flags: %s", path, report.data);
    buf_free(&report);
    return status;
}

/* --resume FOLDER: refuses an output folder with checkpoints of another run, which training would replace. */
static Status check_foreign(const char *checkpoint, const char *output_dir)
{
    Status status = OK;
    Buf state = {0};
    char *newest = NULL, *parent = NULL, *from = realpath(checkpoint, NULL), *out = realpath(output_dir, NULL);
    if (!from || !out) goto done;
    parent = file_directory(from);
    if (strcmp(parent, out) == 0) goto done;
    status = checkpoint_newest(output_dir, &state, &newest);
    if (status == OK && !newest) goto done;
    status =
        fail(E_USAGE,
             "--resume %s: %s holds other checkpoints, which would be lost. Use another --output-dir, or --resume auto "
             "to resume from the newest of these",
             checkpoint, output_dir);
done:
    buf_free(&state);
    free(newest);
    free(parent);
    free(from);
    free(out);
    return status;
}

/* On rank 0: finds the checkpoint, its folder and its state.json. */
static Status find_alone(const Config *config, const char *output_dir, Buf *text, TrainResume *r, char **corrupt)
{
    Status status = OK;
    if (strcmp(config->resume, "never") == 0) return OK;
    TRY(checkpoint_remove_leftovers(output_dir));
    if (strcmp(config->resume, "auto") == 0) {
        status = checkpoint_newest(output_dir, text, &r->dir);
        if (status == E_CORRUPT) { /* a snapshot may replace it */
            *corrupt = mem_strdup(status_message());
            return OK;
        }
    } else {
        if (!file_is_directory(config->resume))
            TRY_DONE(
                fail(E_USAGE,
                     "--resume '%s': expected auto, never, or the folder of a checkpoint; this folder does not exist",
                     config->resume));
        TRY_DONE(check_foreign(config->resume, output_dir));
        TRY_DONE(checkpoint_verify(config->resume, text, NULL));
        r->dir = mem_strdup(config->resume);
    }
done:
    return status;
}

/* Collective: sends rank 0's checkpoint, if any, to all. */
static Status take_checkpoint(Ranks *ranks, Buf *text, TrainResume *r)
{
    Buf dir = {0};
    buf_puts(&dir, r->dir ? r->dir : "");
    Status status = ranks_broadcast_text(ranks, &dir);
    if (status == OK) status = ranks_broadcast_text(ranks, text);
    free(r->dir);
    r->dir = status == OK && dir.len > 0 ? mem_strndup(dir.data, dir.len) : NULL;
    if (r->dir) r->name = mem_strdup(r->dir);
    buf_free(&dir);
    return status;
}

/* The step in a state.json's text; −1 if missing. */
static int64_t step_in(const char *path, const Buf *text)
{
    Json *doc = NULL;
    if (js_parse(path, text->data, text->len, &doc) != OK) return -1;
    int64_t step = js_int(js_get(doc, "step"), -1);
    js_free(doc);
    return step;
}

static Status take_snapshot(const Config *config, Ranks *ranks, Buf *text, TrainResume *r)
{
    free(r->dir);
    r->dir = NULL;
    r->name = mem_printf("the snapshot of step %lld in %s", (long long)r->memory->set.step, config->snapshot_dir);
    buf_free(text);
    return recover_state(r->memory, ranks, text);
}

Status train_find(const Config *config, const char *output_dir, Ranks *ranks, TrainResume *r)
{
    Status status = OK;
    Buf text = {0};
    char *corrupt = NULL;
    *r = (TrainResume){0};
    TRY_DONE(ranks_follow(ranks, ranks_first(ranks) ? find_alone(config, output_dir, &text, r, &corrupt) : OK));
    if (strcmp(config->resume, "auto") == 0)
        TRY_DONE(recover_find(config, output_dir, ranks, r->dir ? step_in(r->dir, &text) : -1, &r->memory));
    if (corrupt && r->memory) log_warn("%s", corrupt);
    if (!r->memory) TRY_DONE(ranks_follow(ranks, corrupt ? fail(E_CORRUPT, "%s", corrupt) : OK));
    if (r->memory)
        TRY_DONE(take_snapshot(config, ranks, &text, r));
    else
        TRY_DONE(take_checkpoint(ranks, &text, r));
    if (!r->name) goto done;
    TRY_DONE(js_parse(r->name, text.data, text.len, &r->state));
    read_progress(r->state, r);
    if (r->memory) recover_progress(r->memory, &r->progress);
done:
    free(corrupt);
    buf_free(&text);
    if (status != OK) train_resume_free(r);
    return status;
}

Status train_compare(const Config *config, const char *fingerprint, const TrainResume *r)
{
    if (!train_found(r)) return OK;
    TRY(compare_config(config, js_get(r->state, "config"), r->name));
    return compare_fingerprints(config, js_get(r->state, "fingerprint"), fingerprint, r->name);
}

/* Checkpoints of other precisions lack a loss scale, which then begins as in a new run. A fixed scale comes from the
   flag. */
static Status load_scaling(const Json *state, Session *s)
{
    const Json *stored = js_get(state, "loss_scale");
    double scale = js_real(js_get(stored, "scale"), 0);
    if (!stored) return OK;
    LossScaling scaling = {.scale = (float)scale,
                           .good = (int32_t)js_int(js_get(stored, "good"), 0),
                           .skipped = js_int(js_get(stored, "skipped"), 0)};
    if (!(scale >= (double)LOSS_SCALE_LEAST && scale <= (double)LOSS_SCALE_MOST))
        return fail(E_FORMAT, "state.json: a loss scale of %g; expected 1 to 2^32", scale);
    if (!session_scale_is_dynamic(s)) scaling.scale = s->scaling.scale;
    return session_set_scaling(s, scaling);
}

static Status load_alone(const TrainResume *r, Session *s)
{
    return checkpoint_load(r->dir, &s->model->params, session_fill(s, STATE_WEIGHTS), session_fill(s, STATE_M),
                           session_fill(s, STATE_V), NULL);
}

Status train_load(TrainResume *r, Session *s)
{
    Ranks *ranks = s->options.ranks;
    TRY(load_scaling(r->state, s));
    if (r->memory) {
        TRY(recover_load(r->memory, s));
        recover_free(r->memory); /* unmaps the snapshots as soon as possible */
        r->memory = NULL;
    } else {
        TRY(ranks_follow(ranks, ranks_first(ranks) ? load_alone(r, s) : OK));
    }
    return start_share(s, true);
}

void train_resume_free(TrainResume *r)
{
    free(r->dir);
    free(r->name);
    free(r->norm_forms);
    js_free(r->state);
    recover_free(r->memory);
    *r = (TrainResume){0};
}

Status train_check_output(const char *dir)
{
    static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                          "pytorch_model.bin.index.json"};
    char *metrics = file_join(dir, "metrics.jsonl");
    bool ours = file_exists(metrics);
    Status status = OK;
    free(metrics);
    for (size_t i = 0; !ours && status == OK && i < sizeof weights / sizeof *weights; i++) {
        char *path = file_join(dir, weights[i]);
        if (file_exists(path))
            status =
                fail(E_USAGE,
                     "%s exists, and Cairn's training did not write it; this run would replace it with another model. "
                     "Use another --output-dir",
                     path);
        free(path);
    }
    return status;
}

#define SMALL_TENSOR ((size_t)64 << 10) /* bytes: biases, LayerNorms, token types */

static void digest_weights(DigestStream *d, const char *path)
{
    TensorFile *file = NULL;
    uint8_t *bytes = mem_alloc(SMALL_TENSOR);
    Status status = tensor_file_open(path, &file);
    for (int i = 0; status == OK && i < tensor_file_count(file); i++) {
        const TensorInfo *t = tensor_file_info(file, i);
        size_t size = (size_t)t->count * dtype_size(t->dtype);
        digest_update(d, t->name, strlen(t->name) + 1);
        digest_update(d, t->dims, (size_t)t->n_dims * sizeof *t->dims);
        if (size == 0 || size > SMALL_TENSOR) continue;
        status = tensor_file_read_raw(file, i, bytes, size);
        digest_update(d, bytes, size);
    }
    if (status != OK) digest_update(d, "unreadable", 10);
    tensor_file_close(file);
    free(bytes);
}

Digest train_origin(const Model *model, const char *weights_path)
{
    const ModelConfig *c = &model->config;
    DigestStream *d = digest_new();
    char *sizes = mem_printf("%d %d %d %d %d %d %d | %.9g %.9g %.9g %.9g %.9g | %d | %d %d", c->vocab_size, c->hidden,
                             c->layers, c->heads, c->ffn, c->positions, c->types, (double)c->norm_eps,
                             (double)c->hidden_dropout, (double)c->attention_dropout, (double)c->classifier_dropout,
                             (double)c->initializer_range, (int)c->gelu, (int)model->head.kind, model->head.labels);
    digest_update(d, sizes, strlen(sizes));
    free(sizes);
    if (*weights_path) digest_weights(d, weights_path);
    Digest value = digest_value(d);
    digest_free(d);
    return value;
}

void train_fingerprint(const Backend *backend, Dtype compute, int64_t micro_tokens, int ranks, Digest data,
                       Digest origin, Buf *out)
{
    char data_hex[33], origin_hex[33];
    digest_format(data, data_hex);
    digest_format(origin, origin_hex);
    buf_puts(out, "{\"backend\": ");
    buf_json(out, backend->name);
    buf_puts(out, ", \"libraries\": ");
    buf_json(out, backend->describe);
    buf_printf(out,
               ", \"precision\": \"%s\", \"micro_batch_tokens\": \"%lld\", \"ranks\": \"%d\", \"data\": \"%s\", "
               "\"origin\": \"%s\"}",
               backend_precision(backend, compute), (long long)micro_tokens, ranks, data_hex, origin_hex);
}
