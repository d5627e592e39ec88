/* A plan in memory, with weights, ready to make steps. */
#include "bench/bench_step/rig.h"

#include <stdlib.h>
#include <string.h>

#define GRAIN_TOKENS 2048 /* the default of --grain-tokens */

static Status place(Rig *r, const Segment *segments)
{
    const Plan *plans[] = {&r->plan};
    TRY(memory_init(&r->memory, backend, NULL, plans, 1));
    TRY(exec_init(&r->exec, &r->plan, &r->memory, (ExecOptions){0}));
    TRY(exec_upload(r->exec, r->t.segments, segments, (size_t)model.params.count * sizeof *segments));
    TRY(exec_upload(r->exec, r->t.weights, weights, (size_t)model.params.size * sizeof *weights));
    return exec_run(r->exec, r->plan.pack, &r->plan.capacity);
}

/* Whether a policy's name has this mark; *n becomes the length of what is before it. */
static bool marked(const char *name, const char *mark, size_t *n)
{
    const char *at = strstr(name, mark);
    if (at && (size_t)(at - name) < *n) *n = (size_t)(at - name);
    return at != NULL;
}

Status rig_open(Rig *r, const char *policy_name)
{
    Policy policy;
    *r = (Rig){.optimizer = {.kind = strcmp(want.optimizer, "lamb") == 0 ? OPTIMIZER_LAMB : OPTIMIZER_ADAMW,
                             .beta1 = 0.9f,
                             .beta2 = 0.999f,
                             .eps = 1e-6f,
                             .weight_decay = 0.01f,
                             .max_grad_norm = 1},
               .ctl = {.dropout_key = 1 ^ PHILOX_DROPOUT, .learning_rate = 1e-5f}};
    size_t n = strlen(policy_name); /* of the policy alone */
    bool audited = marked(policy_name, "+audit", &n), checked = marked(policy_name, "+check", &n);
    r->noted = audited || checked;
    r->checked = checked && !audited;
    r->grains = marked(policy_name, "+grains", &n);
    char *name = mem_strndup(policy_name, n);
    Status parsed = policy_parse(name, &policy);
    free(name);
    TRY(parsed);
    TRY(policy_check(&policy, model.config.layers));
    Segment *segments = mem_array((size_t)model.params.count, sizeof *segments);
    LayerKeep *keeps = mem_array((size_t)model.config.layers, sizeof *keeps);
    policy_keeps(&policy, model.config.layers, keeps);
    const LayerChoice layers = {.keeps = keeps};
    PlanRequest request = {.model = &model,
                           .backend = backend,
                           .compute = want.compute,
                           .emit = {.training = true, .layers = &layers, .apart = r->grains},
                           .capacity = capacity,
                           .audit = audited,
                           .watch = r->noted,
                           .optimizer = r->optimizer};
    Status status = plan_make(&request, &r->plan, &r->t, segments);
    if (status == OK) status = place(r, segments);
    free(segments);
    free(keeps);
    return status;
}

void rig_close(Rig *r)
{
    exec_free(r->exec);
    plan_free(&r->plan);
    memory_free(&r->memory);
}

/* Grains of whole sequences, as a run with --virtual-ranks has them. */
static void divide(Rig *r, const Batch *m)
{
    const MicroBatch *b = &m->b;
    int32_t begin = 0, masked = 0;
    exec_clear_grains(r->exec);
    for (int32_t s = 0; s < b->n_seqs && r->grains; s++) {
        int32_t end = b->spans[2 * s + 1];
        if (s + 1 < b->n_seqs && b->spans[2 * s + 3] - begin <= GRAIN_TOKENS) continue;
        while (masked < b->n_masked && b->read[b->masked[masked]] < end) masked++;
        exec_add_grain(r->exec, end, s + 1, masked);
        begin = end;
    }
}

static Status feed(Rig *r, const Batch *m, int step)
{
    const ModelTensors *t = &r->t;
    const MicroBatch *b = &m->b;
    for (MicroInput i = 0; i < N_MICRO_INPUTS; i++)
        if (t->inputs[i] != NONE) TRY(exec_upload(r->exec, t->inputs[i], b->inputs[i], micro_bytes(b, i, false)));
    divide(r, m);
    r->ctl.batch = (uint32_t)step;
    r->ctl.n_tokens = b->n_tokens;
    r->ctl.n_seqs = b->n_seqs;
    r->ctl.n_masked = b->n_masked;
    r->ctl.n_read = b->n_read;
    r->ctl.scale_seqs = 1.0f / (float)b->n_seqs;
    r->ctl.scale_masked = b->n_masked ? 1.0f / (float)b->n_masked : 1;
    optim_bias(&r->optimizer, step + 1, &r->ctl.bias1, &r->ctl.bias2);
    return exec_upload(r->exec, t->ctl, &r->ctl, sizeof r->ctl);
}

Status rig_step(Rig *r, int step)
{
    const Batch *m = &batches[step % BATCHES];
    TRY(feed(r, m, step));
    RowCounts rows = exec_rows(r->exec, m->b.n_tokens, m->b.n_seqs, m->b.n_masked);
    TRY(exec_run(r->exec, r->plan.begin, &r->plan.capacity));
    exec_virtual_begin(r->exec, 0);
    TRY(exec_run(r->exec, r->plan.micro, &rows));
    TRY(exec_virtual_end(r->exec, true));
    if (r->checked) TRY(exec_run(r->exec, r->plan.pack, &r->plan.capacity));
    if (r->checked) TRY(exec_run(r->exec, r->plan.check, &r->plan.capacity));
    TRY(exec_run(r->exec, r->plan.update, &r->plan.capacity));
    return r->noted ? exec_run(r->exec, r->plan.note, &r->plan.capacity) : OK;
}
