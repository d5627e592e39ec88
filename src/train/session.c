#include "train/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t process_resident(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    size_t kib = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long value;
        if (sscanf(line, "RssAnon: %lu", &value) == 1 || sscanf(line, "RssShmem: %lu", &value) == 1) kib += value;
    }
    fclose(f);
    return kib * 1024;
}

static int form_count(const Session *s) { return 2 * s->model->config.layers + 1; }

static PlanRequest request(const Session *s, bool training)
{
    const SessionOptions *o = &s->options;
    return (PlanRequest){
        .model = s->model,
        .backend = o->backend,
        .compute = o->compute,
        .training = training,
        .beside_training = !training && o->training,
        .capacity = plan_capacity(training ? o->micro : o->eval),
        .levels = s->levels,
        .norm_forms = s->norm_forms,
        .optimizer = o->optimizer,
        .save_buffer = o->save_buffer,
    };
}

static Status make_plans(Session *s)
{
    if (s->options.training) {
        PlanRequest r = request(s, true);
        TRY(plan_make(&r, &s->train_plan, &s->train_tensors, s->segments));
    }
    if (s->options.eval.tokens > 0) {
        PlanRequest r = request(s, false);
        TRY(plan_make(&r, &s->eval_plan, &s->eval_tensors, NULL));
    }
    return OK;
}

static Status bind_plans(Session *s)
{
    ExecOptions options = {.poison = s->options.poison, .stop = s->options.stop};
    size_t before = process_resident();
    if (s->options.training) {
        TRY(exec_init(&s->train, &s->train_plan, &s->memory, options));
        TRY(exec_upload(s->train, s->train_tensors.segments, s->segments,
                        (size_t)s->model->params.count * sizeof(Segment)));
    }
    if (s->options.eval.tokens > 0) TRY(exec_init(&s->eval, &s->eval_plan, &s->memory, options));
    size_t after = process_resident();
    s->library_bytes = after > before ? after - before : 0;
    return OK;
}

static void free_plans(Session *s)
{
    exec_free(s->train);
    exec_free(s->eval);
    plan_free(&s->train_plan);
    plan_free(&s->eval_plan);
    s->train = s->eval = NULL;
}

Status session_open(Session *s, Model *model, const SessionOptions *options, const uint8_t *norm_forms)
{
    Status status = OK;
    *s = (Session){.model = model, .options = *options};
    s->levels = mem_alloc((size_t)model->config.layers);
    if (options->levels) memcpy(s->levels, options->levels, (size_t)model->config.layers);
    s->norm_forms = mem_alloc((size_t)form_count(s)); /* NORM_FORM_Y is 0 */
    if (norm_forms) memcpy(s->norm_forms, norm_forms, (size_t)form_count(s));
    s->segments = mem_array((size_t)model->params.count, sizeof *s->segments);
    s->ctl = (Ctl){.dropout_key = options->seed ^ PHILOX_DROPOUT, .loss_scale = 1, .bias1 = 1, .bias2 = 1};
    TRY_DONE(make_plans(s));
    const Plan *plans[] = {&s->train_plan, &s->eval_plan};
    TRY_DONE(memory_init(&s->memory, options->backend, plans, 2));
    TRY_DONE(bind_plans(s));
done:
    if (status != OK) session_close(s);
    return status;
}

void session_close(Session *s)
{
    free_plans(s);
    memory_free(&s->memory);
    free(s->levels);
    free(s->norm_forms);
    free(s->segments);
    *s = (Session){0};
}

static float *region_start(const Session *s, Region r, size_t elements)
{
    return s->memory.base[r] ? (float *)s->memory.base[r] + elements : NULL;
}

float *session_weights(const Session *s) { return region_start(s, REGION_WEIGHT, 0); }
float *session_grads(const Session *s) { return region_start(s, REGION_GRAD, 0); }
float *session_m(const Session *s) { return region_start(s, REGION_MOMENT, 0); }
float *session_v(const Session *s) { return region_start(s, REGION_MOMENT, (size_t)s->model->params.size); }
float *session_save_buffer(const Session *s) { return region_start(s, REGION_SAVE, 0); }

Status session_ready(Session *s)
{
    if (s->train) return exec_run(s->train, s->train_plan.pack, &s->train_plan.capacity);
    return exec_run(s->eval, s->eval_plan.pack, &s->eval_plan.capacity);
}

/* Plans again. Only activations can change in size, and not by much; the regions that hold state stay where they are.
 */
static Status replan(Session *s)
{
    free_plans(s);
    TRY(make_plans(s));
    const Plan *plans[] = {&s->train_plan, &s->eval_plan};
    for (int i = 0; i < 2; i++) {
        for (int r = 0; r < N_REGIONS; r++) {
            if (plans[i]->region_bytes[r] <= s->memory.bytes[r]) continue;
            CHECK(r == REGION_ACT || r == REGION_SCRATCH, "region %s grew when planned again", region_name((Region)r));
            s->memory.backend->release(s->memory.base[r], s->memory.bytes[r]);
            s->memory.base[r] = NULL;
            s->memory.bytes[r] = 0;
            TRY(s->memory.backend->alloc(plans[i]->region_bytes[r], &s->memory.base[r]));
            s->memory.bytes[r] = plans[i]->region_bytes[r];
        }
    }
    TRY(bind_plans(s));
    return session_ready(s);
}

Status session_check_forms(Session *s, bool *changed)
{
    uint8_t *forms = mem_alloc((size_t)form_count(s));
    Status status = OK;
    model_norm_forms(s->model, session_weights(s), forms);
    bool differ = memcmp(forms, s->norm_forms, (size_t)form_count(s)) != 0;
    if (changed) *changed = differ;
    if (differ) {
        memcpy(s->norm_forms, forms, (size_t)form_count(s));
        status = replan(s);
    }
    free(forms);
    return status;
}

/* ---- a step ---- */

static Status upload_batch(Exec *e, const ModelTensors *t, const MicroBatch *b, bool regression)
{
    size_t tokens = (size_t)b->cap.tokens * sizeof(int32_t), seqs = (size_t)b->cap.seqs * sizeof(int32_t),
           masked = (size_t)b->cap.masked * sizeof(int32_t);
    TRY(exec_upload(e, t->ids, b->ids, tokens));
    TRY(exec_upload(e, t->types, b->types, tokens));
    TRY(exec_upload(e, t->pos, b->pos, tokens));
    TRY(exec_upload(e, t->seq, b->seq, tokens));
    TRY(exec_upload(e, t->spans, b->spans, 2 * seqs));
    TRY(exec_upload(e, t->seq_index, b->seq_index, seqs));
    TRY(exec_upload(e, t->first, b->first, seqs));
    if (t->labels != NONE) TRY(exec_upload(e, t->labels, regression ? (const void *)b->score : b->label, seqs));
    if (t->masked == NONE) return OK;
    TRY(exec_upload(e, t->masked, b->masked, masked));
    TRY(exec_upload(e, t->masked_labels, b->masked_label, masked));
    return OK;
}

static Status run_micro(Session *s, Exec *e, const Plan *p, const ModelTensors *t, const MicroBatch *b)
{
    s->ctl.n_tokens = b->n_tokens;
    s->ctl.n_seqs = b->n_seqs;
    s->ctl.n_masked = b->n_masked;
    TRY(upload_batch(e, t, b, s->model->head.kind == HEAD_REGRESSION));
    TRY(exec_upload(e, t->ctl, &s->ctl, sizeof s->ctl));
    RowCounts rows = exec_rows(e, b->n_tokens, b->n_seqs, b->n_masked);
    return exec_run(e, p->micro, &rows);
}

Status session_begin(Session *s, uint32_t batch, int64_t n_seqs, int64_t n_masked)
{
    s->ctl.batch = batch;
    s->ctl.scale_seqs = 1.0f / (float)n_seqs;
    s->ctl.scale_masked = n_masked ? 1.0f / (float)n_masked : 0;
    return exec_run(s->train, s->train_plan.begin, &s->train_plan.capacity);
}

Status session_micro(Session *s, const MicroBatch *b)
{
    return run_micro(s, s->train, &s->train_plan, &s->train_tensors, b);
}

Status session_update(Session *s, const Optimizer *o, int64_t step, double learning_rate, Stats *stats)
{
    s->ctl.learning_rate = (float)learning_rate;
    optim_bias(o, step, &s->ctl.bias1, &s->ctl.bias2);
    TRY(exec_upload(s->train, s->train_tensors.ctl, &s->ctl, sizeof s->ctl));
    TRY(exec_run(s->train, s->train_plan.update, &s->train_plan.capacity));
    TRY(exec_download(s->train, s->train_tensors.stats, stats, sizeof *stats));
    return OK;
}

Status session_find_bad(Session *s, const MicroBatch *b)
{
    exec_set_check(s->train, true);
    Status status = session_micro(s, b);
    exec_set_check(s->train, false);
    return status;
}

static Status run_evaluation(Session *s, const MicroBatch *b)
{
    TRY(exec_run(s->eval, s->eval_plan.begin, &s->eval_plan.capacity));
    return run_micro(s, s->eval, &s->eval_plan, &s->eval_tensors, b);
}

Status session_evaluate(Session *s, const MicroBatch *b, float *logits, float *loss)
{
    size_t labels = (size_t)s->model->head.labels;
    TRY(run_evaluation(s, b));
    TRY(exec_download(s->eval, s->eval_tensors.logits, logits, (size_t)b->n_seqs * labels * sizeof(float)));
    TRY(exec_download(s->eval, s->eval_tensors.loss, loss, (size_t)b->n_seqs * sizeof(float)));
    return OK;
}

Status session_evaluate_sums(Session *s, const MicroBatch *b, Stats *sums)
{
    TRY(run_evaluation(s, b));
    return exec_download(s->eval, s->eval_tensors.stats, sums, sizeof *sums);
}
