/* Stages of a tiny BERT in this process, with weights of the whole one, and a plain run to compare with. */
#pragma once

#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "train/planner/planning.h"

enum { LAYERS = 4, MOST_STAGES = 4, MOST_MICROS = 9, TOKENS = 64, SEQS = 4, MASKED = 16, READ = SEQS + MASKED };

typedef struct {
    const char *backend, *policy;
    HeadKind head;
    NormForm form;
    bool poison;
} Setting;

typedef struct {
    Model model;
    Plan plan;
    ModelTensors t;
    Memory memory;
    Exec *exec;
} Part;

typedef struct {
    const Setting *s;
    Backend *backend;
    Model whole;
    float *weights; /* (whole.params.size) */
    MicroBatch micro[MOST_MICROS];
    Ctl ctl;
    const ExecRanks *ranks; /* holders of stage `stage`, which parts are of; NULL: none */
    int stage;
} Bench;

/* ---- micro-batches ---- */

static inline void fill_micro(MicroBatch *b, int number)
{
    uint32_t seed = (uint32_t)number * 77 + 5;
    const int lengths[SEQS] = {5 + number % 3, 17, number % 2 ? 9 : 0, 3};
    micro_batch_init(b, (MicroCapacity){TOKENS, SEQS, MASKED});
    for (int s = 0; s < SEQS; s++) {
        if (lengths[s] == 0) continue;
        int n = b->n_seqs++;
        b->spans[2 * n] = b->n_tokens;
        b->seq_index[n] = number * SEQS + s;
        b->labels[n] = (number + s) % 2;
        for (int i = 0; i < lengths[s]; i++) {
            int row = b->n_tokens++;
            seed = seed * 1664525u + 1013904223u;
            b->ids[row] = (int32_t)(1 + (seed >> 8) % 99);
            b->types[row] = 2 * i > lengths[s];
            b->pos[row] = i;
            b->seq[row] = b->seq_index[n];
            if (i == 0) b->first[n] = micro_read(b, row);
            if (i % 4 != 1) continue;
            b->masked[b->n_masked] = micro_read(b, row);
            b->masked_labels[b->n_masked++] = (int32_t)(seed >> 16) % 99;
        }
        b->spans[2 * n + 1] = b->n_tokens;
    }
}

static inline Status send_micro(const Part *p, const Bench *w, const MicroBatch *b, const int slots[N_SLOTS],
                                RowCounts *rows)
{
    const ModelTensors *t = &p->t;
    const Exec *e = p->exec;
    Ctl ctl = w->ctl;
    for (MicroInput i = 0; i < N_MICRO_INPUTS; i++)
        if (t->inputs[i] != NONE) TRY(exec_upload_slot(e, t->inputs[i], slots, b->inputs[i], micro_bytes(b, i, true)));
    ctl.n_tokens = b->n_tokens;
    ctl.n_seqs = b->n_seqs;
    ctl.n_masked = b->n_masked;
    ctl.n_read = b->n_read;
    TRY(exec_upload_slot(e, t->ctl, slots, &ctl, sizeof ctl));
    *rows = exec_rows(e, b->n_tokens, b->n_seqs, b->n_masked);
    return OK;
}

/* ---- parts of the model ---- */

static inline void bench_open(Bench *w, const Setting *s)
{
    static const char sizes[] = "{\"vocab_size\": 100, \"hidden_size\": 32, \"num_hidden_layers\": 4, "
                                "\"num_attention_heads\": 2, \"intermediate_size\": 64, "
                                "\"max_position_embeddings\": 64}";
    ModelConfig config;
    const BackendOptions one = {.threads = 1};
    *w = (Bench){.s = s, .ctl = {.dropout_key = 99, .batch = 3, .bias1 = 1, .bias2 = 1}};
    w->ctl.scale_seqs = 1.0f / 16;
    w->ctl.scale_masked = 1.0f / 32;
    assert_ok(model_config_parse("test", sizes, sizeof sizes - 1, &config));
    assert_ok(model_init(&w->whole, config, (Head){s->head, 2}));
    assert_ok(backend_open(s->backend, &one, &w->backend));
    w->weights = mem_array((size_t)w->whole.params.size, sizeof *w->weights);
    params_init(&w->whole.params, 1, w->weights);
    for (int m = 0; m < MOST_MICROS; m++) fill_micro(&w->micro[m], m);
}

static inline void bench_close(Bench *w)
{
    for (int m = 0; m < MOST_MICROS; m++) micro_batch_free(&w->micro[m]);
    free(w->weights);
    model_free(&w->whole);
    backend_close(w->backend);
}

static inline void part_open(Part *p, Bench *w, const Stage *stage, const int *slots, bool split)
{
    LayerKeep keeps[LAYERS];
    uint8_t forms[2 * LAYERS + 1];
    Policy policy;
    Segment *segments;
    assert_ok(policy_parse(w->s->policy, &policy));
    policy_keeps(&policy, LAYERS, keeps);
    memset(forms, (int)w->s->form, sizeof forms);
    *p = (Part){0};
    model_part(&w->whole, stage, 1, &p->model);
    const LayerChoice layers = {.keeps = keeps, .norm_forms = forms};
    PlanRequest r = {.model = &p->model,
                     .backend = w->backend,
                     .compute = F32,
                     .emit = {.training = true, .layers = &layers},
                     .capacity = plan_capacity((MicroCapacity){TOKENS, SEQS, MASKED}),
                     .optimizer = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f, .loss_scale = 1},
                     .holding = w->ranks ? w->ranks->holding : NULL,
                     .stage = w->stage,
                     .slots = slots,
                     .split = split};
    if (w->ranks) r.room = pieces_room(&w->ranks->holding->mine);
    segments = mem_array((size_t)p->model.params.count, sizeof *segments);
    assert_ok(plan_make(&r, &p->plan, &p->t, segments));
    const Plan *plans[] = {&p->plan};
    assert_ok(memory_init(&p->memory, w->backend, NULL, plans, 1));
    assert_ok(exec_init(&p->exec, &p->plan, &p->memory, (ExecOptions){.poison = w->s->poison, .ranks = w->ranks}));
    assert_ok(exec_open_lane(&p->exec, 1));
    float *weights = exec_data(p->exec, p->t.weights);
    for (int i = 0; i < p->model.params.count; i++) {
        const Param *own = &p->model.params.params[i];
        int from = params_find(&w->whole.params, own->name);
        memcpy(weights + own->offset, w->weights + w->whole.params.params[from].offset,
               (size_t)param_held(own) * sizeof *weights);
    }
    memset(p->memory.base[REGION_ACT], 0xff, p->memory.bytes[REGION_ACT]);
    memset(p->memory.base[REGION_INPUT], 0x7f, p->memory.bytes[REGION_INPUT]);
    assert_ok(exec_run(p->exec, p->plan.begin, &p->plan.capacity));
    assert_ok(exec_run(p->exec, p->plan.pack, &p->plan.capacity));
    free(segments);
}

static inline void part_close(Part *p)
{
    exec_free(p->exec);
    memory_free(&p->memory);
    plan_free(&p->plan);
    model_free(&p->model);
}

static inline const float *grads(const Part *p) { return exec_data(p->exec, p->t.grads); }

/* Micro-batches first, first + step, … one after another, as a plain run has them. */
static inline void run_plain(Part *p, Bench *w, int first, int step, int n)
{
    const int none[N_SLOTS] = {0};
    part_open(p, w, &w->whole.stages[0], NULL, false);
    for (int m = first; m < n; m += step) {
        RowCounts rows;
        assert_ok(send_micro(p, w, &w->micro[m], none, &rows));
        assert_ok(exec_run(p->exec, p->plan.micro, &rows));
    }
}
