#include "train/keep/resume.h"

#include "formats/tensor_file.h"
#include "state/checkpoint/checkpoint.h"
#include "train/keep/saving.h"

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

/* Refuses a change that alters the run. --override takes it for steps that are still to come; a finished run has none.
 */
static Status refuse(const Config *config, const char *path, bool finished, const char *changes)
{
    if (finished)
        return fail(E_USAGE,
                    "%s is the end of a finished run, and these changes would alter its steps: %s. Give the flags of "
                    "that run to see its results, more steps with --override to continue it, another --output-dir, "
                    "or --resume never to train again",
                    path, changes);
    if (!config->override)
        return fail(E_USAGE,
                    "%s was made with other flags or data, and these changes would alter the run: %s. Give the same "
                    "ones, another --output-dir, --resume never, or --override",
                    path, changes);
    log_warn("--override: resuming from %s with other flags: %s", path, changes);
    return OK;
}

static Status compare_fingerprints(const Config *config, const Json *stored, const char *now_text, const char *path,
                                   bool finished)
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
    if (result.len) status = refuse(config, path, finished, result.data);
done:
    js_free(now);
    BUF_FREE(&bits, &result);
    return status;
}

static Status compare_config(const Config *config, const Json *stored, const char *path, bool finished)
{
    Effect worst = EFFECT_NONE;
    Buf report = {0};
    Status status = config_difference(config, stored, &worst, &report);
    if (status == OK && worst == EFFECT_RESULT)
        status = refuse(config, path, finished, report.data);
    else if (status == OK && worst != EFFECT_NONE)
        log_warn("resuming from %s with other flags: %s", path, report.data);
    buf_free(&report);
    return status;
}

/* --resume FOLDER: refuses an output folder with checkpoints of another run, which training would replace. */
static Status check_foreign(const char *checkpoint, const char *output_dir)
{
    Status status = OK;
    char *newest = NULL, *parent = NULL, *from = realpath(checkpoint, NULL), *out = realpath(output_dir, NULL);
    if (!from || !out) goto done;
    parent = file_directory(from);
    if (strcmp(parent, out) == 0) goto done;
    status = checkpoint_newest(output_dir, 0, 0, NULL, &newest);
    if (status == OK && !newest) goto done;
    status =
        fail(E_USAGE,
             "--resume %s: %s holds other checkpoints, which would be lost. Use another --output-dir, or --resume auto "
             "to resume from the newest of these",
             checkpoint, output_dir);
done:
    MEM_FREE(newest, parent, from, out);
    return status;
}

/* On rank 0: finds the checkpoint and its folder, and verifies it. */
static Status find_alone(const Config *config, const char *output_dir, const Suspects *suspects, Resume *r,
                         char **corrupt)
{
    Status status = OK;
    if (strcmp(config->resume, "never") == 0) return OK;
    TRY(checkpoint_remove_leftovers(output_dir));
    if (strcmp(config->resume, "auto") == 0) {
        status = checkpoint_newest(output_dir, suspects->from, suspects->to, &r->seen, &r->dir);
        if (status == E_CORRUPT) { /* a snapshot may replace it */
            *corrupt = mem_strdup(status_message());
            return OK;
        }
    } else {
        if (!file_is_directory(config->resume))
            return fail(
                E_USAGE,
                "--resume '%s': expected auto, never, or the folder of a checkpoint; this folder does not exist",
                config->resume);
        TRY(check_foreign(config->resume, output_dir));
        TRY(checkpoint_verify(config->resume, &r->seen));
        r->dir = mem_strdup(config->resume);
    }
    return status;
}

/* Collective. The newest state that is not suspect. */
static Status find_state(const Config *config, const char *output_dir, Ranks *ranks, const Suspects *suspects,
                         Resume *r)
{
    Status status = OK;
    char *corrupt = NULL;
    *r = (Resume){0};
    TRY_DONE(ranks_all(ranks, ranks_first(ranks) ? find_alone(config, output_dir, suspects, r, &corrupt) : OK));
    if (strcmp(config->resume, "auto") == 0)
        TRY_DONE(recover_find(config, output_dir, ranks, suspects, r->dir ? r->seen.step : -1, &r->memory));
    if (r->memory.set.generation) {
        if (corrupt) log_warn("%s", corrupt);
        free(r->dir);
        r->dir = NULL;
        r->name = mem_printf("the snapshot of step %lld in %s", (long long)r->memory.set.step, config->snapshot_dir);
        checkpoint_seen_free(&r->seen);
        TRY_DONE(recover_state(&r->memory, ranks, &r->seen.state));
        r->seen.step = r->memory.set.step;
    } else {
        TRY_DONE(ranks_all(ranks, corrupt ? fail(E_CORRUPT, "%s", corrupt) : OK));
        TRY_DONE(ranks_broadcast_path(ranks, &r->dir));
        if (r->dir) r->name = mem_strdup(r->dir);
        TRY_DONE(ranks_broadcast_text(ranks, &r->seen.state));
        TRY_DONE(ranks_broadcast(ranks, &r->seen.step, sizeof r->seen.step));
    }
    if (!r->name) goto done;
    TRY_DONE(ranks_all(ranks, saving_read(r->name, &r->seen.state, r->seen.step, &r->state, &r->progress)));
    r->progress.snapshot_newest = r->memory.set.newest; /* for the Snapshots that continue these generations */
    r->progress.snapshot_kept = r->memory.set.generation;
done:
    free(corrupt);
    if (status != OK) resume_free(r);
    return status;
}

/* Collective. Takes what --audit found to be damaged out of the way, on disk and in the hosts' memory: a run that
   resumes makes the states of these steps again, and those are good. */
static Status set_damaged_aside(const Config *config, const char *output_dir, Ranks *ranks)
{
    Status status = OK;
    bool first = ranks_first(ranks);
    Suspects s = {0};
    char *output = NULL; /* canonical, from rank 0 */
    if (first && suspects_find_damaged(output_dir, &s)) {
        log_warn(
            "--audit found that the states of steps %lld to %lld may be damaged: they are set aside, and the state "
            "before them is taken, if there is one",
            (long long)s.from, (long long)s.to - 1);
        output = snapshot_canonical(output_dir);
    }
    TRY_DONE(ranks_broadcast(ranks, &s, sizeof s));
    if (s.to <= s.from) goto done;
    TRY_DONE(ranks_broadcast_path(ranks, &output));
    TRY_DONE(ranks_all(ranks, snapshot_forget(config->snapshot_dir, output, s.from, s.to)));
    TRY_DONE(ranks_all(ranks, first ? checkpoint_set_aside(output_dir, s.from, s.to, config->resume) : OK));
    status = ranks_all(ranks, first ? suspects_forget_damaged(output_dir) : OK);
done:
    free(output);
    return status;
}

Status resume_find(const Config *config, const char *output_dir, Ranks *ranks, Resume *r)
{
    Suspects suspects = {0};
    if (*output_dir) TRY(set_damaged_aside(config, output_dir, ranks));
    if (strcmp(config->resume, "auto") == 0 && !config->override && ranks_first(ranks))
        suspects_read(output_dir, &suspects);
    TRY(ranks_broadcast(ranks, &suspects, sizeof suspects));
    TRY(find_state(config, output_dir, ranks, &suspects, r));
    if (suspects.to == 0 || resume_found(r)) return OK;
    if (ranks_first(ranks)) log_warn("%s has no state before step %lld", output_dir, (long long)suspects.from);
    return find_state(config, output_dir, ranks, &(const Suspects){0}, r);
}

Status resume_compare(const Config *config, const char *fingerprint, const Resume *r, bool finished)
{
    if (!resume_found(r)) return OK;
    TRY(compare_config(config, js_get(r->state, "config"), r->name, finished));
    return compare_fingerprints(config, js_get(r->state, "fingerprint"), fingerprint, r->name, finished);
}

/* Checkpoints of other precisions lack a scale, which then begins as in a new run. A fixed scale comes from the flag.
 */
static Status load_scaling(const Resume *r, Session *s)
{
    const Json *stored = js_get(r->state, "loss_scale");
    LossScaling scaling = {.scale = (float)js_real(js_get(stored, "scale"), 0),
                           .good = (int32_t)js_int(js_get(stored, "good"), 0),
                           .skipped = r->progress.batch - r->progress.step};
    if (!session_scale_is_dynamic(s) || !stored) scaling.scale = s->scaling.scale;
    return session_set_scaling(s, scaling);
}

/* A checkpoint of a run without K-FAC, which --override allows, has no sets. */
Status resume_load(Resume *r, Session *s)
{
    TRY(load_scaling(r, s));
    if (r->dir) return load_checkpoint(r->dir, &r->seen, s, session_kfac(s) != NULL);
    TRY(recover_load(&r->memory, s));
    run_snapshots_free(&r->memory); /* unmaps the snapshots as soon as possible */
    return OK;
}

void resume_free(Resume *r)
{
    MEM_FREE(r->dir, r->name);
    js_free(r->state);
    run_snapshots_free(&r->memory);
    checkpoint_seen_free(&r->seen);
    *r = (Resume){0};
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

Digest resume_origin(const Model *model, const char *weights_path)
{
    const ModelConfig *c = &model->config;
    DigestStream *d = digest_new();
    char *sizes = mem_printf("%d %d %d %d %d %d %d | %.9g %.9g %.9g %.9g %.9g | %d | %d %d", c->vocab_size, c->hidden,
                             c->layers, c->heads, c->ffn, c->positions, c->types, (double)c->norm_eps,
                             (double)c->hidden_dropout, (double)c->attention_dropout, (double)c->classifier_dropout,
                             (double)c->initializer_range, (int)c->gelu, (int)model->head.kind, model->head.labels);
    digest_update(d, sizes, strlen(sizes));
    free(sizes);
    if (c->kind != MODEL_BERT) {
        char *more = mem_printf(" | %s %.9g", model_kinds[c->kind].type, (double)c->span_dropout);
        digest_update(d, more, strlen(more));
        free(more);
    }
    if (*weights_path) digest_weights(d, weights_path);
    Digest value = digest_value(d);
    digest_free(d);
    return value;
}

void resume_fingerprint(const Run *r, Digest data, Buf *out)
{
    const Backend *backend = r->setup.backend;
    buf_puts(out, "{");
    buf_member_text(out, "backend", backend->name);
    buf_member_text(out, "libraries", backend->describe);
    const RunPlan *plan = &r->setup.plan;
    int replicas = grid_holders(&plan->input.place->grid);
    bool virtual = plan->input.virtual.ranks > 0; /* then neither ranks nor micro-batches change a bit */
    buf_printf(out, ", \"precision\": \"%s\", \"micro_batch_tokens\": \"%s%lld\", \"ranks\": \"%lld%s\"",
               backend_precision(backend, r->setup.compute), virtual ? "grains of " : "",
               (long long)(virtual ? plan->grain.tokens : plan->micro.tokens),
               (long long)(virtual ? plan->input.virtual.ranks : replicas), virtual ? " virtual" : "");
    buf_printf(out, ", \"data\": \"%s\", \"origin\": \"%s\"}", DIGEST_TEXT(data),
               DIGEST_TEXT(resume_origin(&r->model, r->c->model)));
}
