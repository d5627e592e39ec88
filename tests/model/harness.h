/* Golden models (tests/golden/bert) run through plans: reads a model and its batches, plans, binds, steps. */
#pragma once

#include "testing.h"

#include <math.h>

#include "exec/exec.h"
#include "formats/tensor_file.h"
#include "model/model.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "train/planner/planning.h"

typedef struct {
    char dir[256];
    Json *json;
    TensorFile *golden, *weights_file;
    Model model;
    float *weights; /* (params.size) as in the file */
} Golden;

/* One packed batch of a golden file, by pointers to (rows) arrays. */
typedef struct {
    int n_tokens, n_seqs, n_masked, width; /* labels of a sequence */
    int32_t ids[512], types[512], pos[512], seq[512];
    int32_t spans[128], seq_index[64], first[64], labels[128], masked[512], masked_labels[512];
    float scores[64];
} GoldenBatch;

/* A plan bound to memory, with its weights loaded. */
typedef struct {
    Golden *g;
    Backend *backend;
    Plan plan;
    ModelTensors t;
    Segment *segments;
    Memory memory;
    Exec *exec;
    Ctl ctl;
} GoldenRun;

typedef struct {
    const char *backend;
    Dtype compute;
    const LayerKeep *keeps;
    Optimizer optimizer;
    bool evaluate;
    bool audit; /* recomputed tensors are compared with their first values */
    ExecOptions exec;
    float loss_scale;          /* of fp16; 0: 1024 */
    const uint8_t *forms;      /* NULL: what the weights ask for */
    int cap_tokens;            /* 0: 256 */
    const Kfac *kfac;          /* NULL: none */
    void (*change)(Backend *); /* may be NULL: changes the backend after it was opened */
    void (*rewrite)(Plan *);   /* may be NULL: changes the plan before it is bound to memory */
} RunOptions;

static inline Head golden_head(const Json *json)
{
    const char *head = js_string(js_get(json, "head"), "");
    if (strcmp(head, "regression") == 0) return (Head){HEAD_REGRESSION, 1};
    if (strcmp(head, "pretraining") == 0) return (Head){HEAD_PRETRAINING, 2};
    if (strcmp(head, "mlm") == 0) return (Head){HEAD_PRETRAINING, 0};
    if (strcmp(head, "embedding") == 0) return (Head){HEAD_EMBEDDING, 0};
    if (strcmp(head, "span") == 0) return (Head){HEAD_SPAN, 2};
    return (Head){HEAD_CLASSIFIER, 3};
}

static inline void golden_open(Golden *g, const char *name)
{
    ModelConfig config;
    char path[320];
    *g = (Golden){0};
    snprintf(g->dir, sizeof g->dir, "tests/golden/bert/%s", name);
    snprintf(path, sizeof path, "%s/golden.json", g->dir);
    assert_ok(js_read(path, &g->json));
    snprintf(path, sizeof path, "%s/golden.safetensors", g->dir);
    assert_ok(tensor_file_open(path, &g->golden));
    const char *model = js_string(js_get(g->json, "model"), g->dir);
    assert_ok(tensor_file_open(model, &g->weights_file));
    assert_ok(model_config_read(model, &config));
    assert_ok(model_init(&g->model, config, golden_head(g->json)));
    g->weights = mem_array((size_t)g->model.params.size, sizeof(float));
    for (int i = 0; i < g->model.params.count; i++) {
        const Param *p = &g->model.params.params[i];
        char *file_name = param_file_name(&g->model.params, p);
        int f = tensor_file_find(g->weights_file, file_name);
        if (f < 0) fail_msg("%s is not in %s", file_name, model);
        free(file_name);
        assert_ok(tensor_file_read_f32(g->weights_file, f, g->weights + p->offset, param_exported(p)));
    }
}

static inline void golden_close(Golden *g)
{
    js_free(g->json);
    tensor_file_close(g->golden);
    tensor_file_close(g->weights_file);
    model_free(&g->model);
    free(g->weights);
}

/* A golden tensor; caller frees. */
static inline float *golden_tensor(const Golden *g, const char *name, int64_t *count)
{
    int i = tensor_file_find(g->golden, name);
    if (i < 0) fail_msg("%s has no golden '%s'", g->dir, name);
    *count = tensor_file_info(g->golden, i)->count;
    float *x = mem_array((size_t)*count, sizeof *x);
    assert_ok(tensor_file_read_f32(g->golden, i, x, *count));
    return x;
}

static inline void read_ints(const Json *batch, const char *key, int32_t *out)
{
    const Json *list = js_get(batch, key);
    for (size_t i = 0; i < js_size(list); i++) out[i] = (int32_t)js_int(js_at(list, i), 0);
}

static inline void golden_batch(const Golden *g, int index, GoldenBatch *b)
{
    const Json *batch = js_at(js_get(g->json, "batches"), (size_t)index);
    int32_t lengths[64];
    *b = (GoldenBatch){.width = g->model.head.kind == HEAD_SPAN ? 2 : 1};
    read_ints(batch, "lengths", lengths);
    read_ints(batch, "input_ids", b->ids);
    read_ints(batch, "token_type_ids", b->types);
    b->n_seqs = (int)js_size(js_get(batch, "lengths"));
    for (int s = 0, row = 0; s < b->n_seqs; s++) {
        b->spans[2 * s] = b->first[s] = row;
        b->seq_index[s] = s;
        for (int i = 0; i < lengths[s]; i++, row++) {
            b->pos[row] = i;
            b->seq[row] = s;
        }
        b->spans[2 * s + 1] = b->n_tokens = row;
    }
    if (g->model.head.kind == HEAD_PRETRAINING) {
        read_ints(batch, "nsp_labels", b->labels);
        read_ints(batch, "mlm_rows", b->masked);
        read_ints(batch, "mlm_labels", b->masked_labels);
        b->n_masked = (int)js_size(js_get(batch, "mlm_rows"));
        return;
    }
    read_ints(batch, "labels", b->labels);
    const Json *labels = js_get(batch, "labels");
    for (size_t i = 0; i < js_size(labels); i++) b->scores[i] = (float)js_real(js_at(labels, i), 0);
}

/* The sequences [first, first + count) of a batch as a micro-batch of their own, keeping their indices. */
static inline void golden_slice(const GoldenBatch *b, int first, int count, GoldenBatch *out)
{
    int row0 = b->spans[2 * first], row1 = b->spans[2 * (first + count - 1) + 1];
    *out = (GoldenBatch){.n_tokens = row1 - row0, .n_seqs = count, .width = b->width};
    memcpy(out->ids, b->ids + row0, (size_t)out->n_tokens * 4);
    memcpy(out->types, b->types + row0, (size_t)out->n_tokens * 4);
    memcpy(out->pos, b->pos + row0, (size_t)out->n_tokens * 4);
    memcpy(out->seq, b->seq + row0, (size_t)out->n_tokens * 4);
    for (int s = 0; s < count; s++) {
        out->spans[2 * s] = out->first[s] = b->spans[2 * (first + s)] - row0;
        out->spans[2 * s + 1] = b->spans[2 * (first + s) + 1] - row0;
        out->seq_index[s] = b->seq_index[first + s];
        out->scores[s] = b->scores[first + s];
    }
    for (int i = 0, w = b->width; i < w * count; i++) out->labels[i] = b->labels[w * first + i];
    for (int i = 0; i < b->n_masked; i++) {
        if (b->masked[i] < row0 || b->masked[i] >= row1) continue;
        out->masked[out->n_masked] = b->masked[i] - row0;
        out->masked_labels[out->n_masked++] = b->masked_labels[i];
    }
}

/* False, having said why, if the backend or the precision is not to be had on this machine. */
static inline bool run_possible(const char *name, Dtype compute)
{
    Backend *b = NULL;
    char why[256] = "";
    BackendOptions options = {.threads = 2};
    if (backend_open(name, &options, &b) != OK) {
        print_message("skipped: backend %s: %s\n", name, status_message());
        return false;
    }
    bool can = b->supports(b, compute, why, sizeof why);
    if (!can) print_message("skipped: %s on %s: %s\n", dtype_name(compute), name, why);
    backend_close(b);
    return can;
}

static inline void run_open(GoldenRun *r, Golden *g, const RunOptions *o)
{
    *r = (GoldenRun){.g = g, .segments = mem_array((size_t)g->model.params.count, sizeof(Segment))};
    BackendOptions options = {.threads = 2};
    assert_ok(backend_open(o->backend, &options, &r->backend));
    if (o->change) o->change(r->backend);
    LayerChoice layers;
    layer_choice_init(&layers, g->model.config.layers, o->forms);
    if (!o->forms) model_norm_forms(&g->model, g->weights, layers.norm_forms);
    if (o->keeps) memcpy(layers.keeps, o->keeps, (size_t)g->model.config.layers * sizeof *o->keeps);
    PlanRequest request = {.model = &g->model,
                           .backend = r->backend,
                           .compute = o->compute,
                           .emit = {.training = !o->evaluate, .layers = &layers},
                           .capacity = plan_capacity((MicroCapacity){o->cap_tokens ? o->cap_tokens : 256, 16,
                                                                     g->model.head.kind == HEAD_PRETRAINING ? 64 : 0}),
                           .audit = o->audit,
                           .kfac = o->kfac,
                           .optimizer = o->optimizer};
    assert_ok(plan_make(&request, &r->plan, &r->t, r->segments));
    if (o->rewrite) o->rewrite(&r->plan);
    const Plan *plans[] = {&r->plan};
    assert_ok(memory_init(&r->memory, r->backend, NULL, plans, 1));
    assert_ok(exec_init(&r->exec, &r->plan, &r->memory, o->exec));
    if (!o->evaluate) exec_upload(r->exec, r->t.segments, r->segments, (size_t)g->model.params.count * sizeof(Segment));
    exec_upload(r->exec, r->t.weights, g->weights, (size_t)g->model.params.size * sizeof(float));
    assert_ok(exec_run(r->exec, r->plan.pack, &r->plan.capacity));
    LossScaling scaling = {.scale = o->loss_scale > 0 ? o->loss_scale : 1024};
    if (r->t.scaling != NONE) exec_upload(r->exec, r->t.scaling, &scaling, sizeof scaling);
    r->ctl = (Ctl){.dropout_key = 42 ^ PHILOX_DROPOUT, .bias1 = 1, .bias2 = 1};
    layer_choice_free(&layers);
}

static inline void run_close(GoldenRun *r)
{
    exec_free(r->exec);
    plan_free(&r->plan);
    memory_free(&r->memory);
    backend_close(r->backend);
    free(r->segments);
}

/* Clears for a step of n_seqs sequences and n_masked masked positions. */
static inline void run_begin(GoldenRun *r, int n_seqs, int n_masked)
{
    r->ctl.scale_seqs = 1.0f / (float)n_seqs;
    r->ctl.scale_masked = n_masked ? 1.0f / (float)n_masked : 0;
    assert_ok(exec_run(r->exec, r->plan.begin, &r->plan.capacity));
}

/* The rows that heads read, by sequences; `first` and `masked` as places among them. */
static inline void run_upload_read(GoldenRun *r, const GoldenBatch *b)
{
    int32_t read[16 + 512], pos[16 + 512], seq[16 + 512], first[16] = {0}, masked[512];
    int n = 0, m = 0;
    for (int s = 0; s < b->n_seqs; s++) {
        first[s] = n;
        read[n++] = b->spans[2 * s];
        for (; m < b->n_masked && b->masked[m] < b->spans[2 * s + 1]; m++) {
            masked[m] = n;
            read[n++] = b->masked[m];
        }
    }
    assert_int_equal(n, b->n_seqs + b->n_masked);
    for (int i = 0; i < n; i++) {
        pos[i] = b->pos[read[i]];
        seq[i] = b->seq[read[i]];
    }
    if (r->t.read == NONE) return;
    exec_upload(r->exec, r->t.read, read, (size_t)n * 4);
    exec_upload(r->exec, r->t.read_pos, pos, (size_t)n * 4);
    exec_upload(r->exec, r->t.read_seq, seq, (size_t)n * 4);
    exec_upload(r->exec, r->t.first, first, sizeof first);
    if (r->t.masked != NONE && b->n_masked) exec_upload(r->exec, r->t.masked, masked, (size_t)b->n_masked * 4);
}

static inline void run_upload_batch(GoldenRun *r, const GoldenBatch *b)
{
    size_t tokens = (size_t)b->n_tokens * 4, seqs = (size_t)b->n_seqs * 4;
    r->ctl.n_tokens = b->n_tokens;
    r->ctl.n_seqs = b->n_seqs;
    r->ctl.n_masked = b->n_masked;
    r->ctl.n_read = b->n_seqs + b->n_masked;
    exec_upload(r->exec, r->t.ids, b->ids, tokens);
    exec_upload(r->exec, r->t.types, b->types, tokens);
    exec_upload(r->exec, r->t.pos, b->pos, tokens);
    exec_upload(r->exec, r->t.seq, b->seq, tokens);
    int32_t spans[32] = {0};
    memcpy(spans, b->spans, 2 * seqs);
    exec_upload(r->exec, r->t.spans, spans, sizeof spans);
    run_upload_read(r, b);
    exec_upload(r->exec, r->t.seq_index, b->seq_index, seqs);
    if (r->g->model.head.kind == HEAD_REGRESSION)
        exec_upload(r->exec, r->t.labels, b->scores, seqs);
    else if (r->t.labels != NONE)
        exec_upload(r->exec, r->t.labels, b->labels, seqs * (size_t)b->width);
    if (r->t.masked != NONE && b->n_masked)
        exec_upload(r->exec, r->t.masked_labels, b->masked_labels, (size_t)b->n_masked * 4);
    exec_upload(r->exec, r->t.ctl, &r->ctl, sizeof r->ctl);
}

static inline Status run_micro(GoldenRun *r, const GoldenBatch *b)
{
    run_upload_batch(r, b);
    RowCounts rows = exec_rows(r->exec, b->n_tokens, b->n_seqs, b->n_masked);
    return exec_run(r->exec, r->plan.micro, &rows);
}

static inline Stats run_stats(GoldenRun *r)
{
    Stats stats;
    exec_download(r->exec, r->t.stats, &stats, sizeof stats);
    return stats;
}

/* A flat copy of a space tensor; caller frees. */
static inline float *run_flat(GoldenRun *r, TensorId t)
{
    size_t bytes = (size_t)r->g->model.params.size * sizeof(float);
    float *x = mem_alloc(bytes);
    exec_download(r->exec, t, x, bytes);
    return x;
}

/* ‖a − b‖ / ‖b‖ */
static inline double normalised_error(const float *a, const float *b, int64_t n)
{
    double d = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += (double)b[i] * b[i];
    }
    return s > 0 ? sqrt(d / s) : sqrt(d);
}
