/* A tiny BERT trained through a Session, for tests that compare backends, policies and resumed runs: dropout, two
   micro-batches of uneven sequences in a step, clipping, weight decay. */
#pragma once

#include "testing.h"

#include <math.h>

#include "place_of.h"
#include "train/keep/resume.h"
#include "train/keep/saving.h"
#include "train/session/session.h"

enum {
    TRAINING_STEPS = 10,
    TRAINING_MOST_STEPS = 16,
    TRAINING_MICROS = 2,
    TRAINING_TOKENS = 128,
    TRAINING_SEQS = 8,
    TRAINING_LABELS = 3
};

static const char training_head_16[] = "{\"vocab_size\": 300, \"hidden_size\": 32, \"num_hidden_layers\": 2, "
                                       "\"num_attention_heads\": 2, \"intermediate_size\": 64, "
                                       "\"max_position_embeddings\": 64}";
static const char training_head_32[] = "{\"vocab_size\": 300, \"hidden_size\": 64, \"num_hidden_layers\": 2, "
                                       "\"num_attention_heads\": 2, \"intermediate_size\": 128, "
                                       "\"max_position_embeddings\": 64}";

typedef struct {
    const char *backend;
    Dtype compute;
    const char *policy;        /* NULL: none */
    const char *saves;         /* a policy for the time of a save; NULL: the save buffer is beside the activations */
    bool waits;                /* there is no save buffer */
    const char *sizes;         /* NULL: training_head_16 */
    void (*change)(Backend *); /* may be NULL: changes the backend after it is opened */
    bool no_dropout;
    bool poison, may_skip; /* may_skip: an update whose gradients are not finite is allowed */
    bool tf32;
    AttentionKind attention;
    bool pretraining;                    /* without a masked position; else three labels */
    const int (*lengths)[TRAINING_SEQS]; /* (TRAINING_MICROS): of sequences, 0 ends a list; NULL: uneven ones */
    Ranks *ranks;                        /* NULL: one */
    bool audit;                          /* --audit recompute */
    const Coupling *coupling;            /* of embeddings; NULL: none */
    Pooling pooling;
    KfacOptions kfac; /* interval 0: none */
    float loss_scale; /* fp16: 0 chooses one that does not overflow here */
} TrainingOptions;

typedef struct {
    Model model;
    Backend *backend;
    Session session;
    Optimizer optimizer;
    bool may_skip;
    RankPlace *place;
    MicroBatch batch[TRAINING_MICROS];
    double loss[TRAINING_MOST_STEPS]; /* of the steps so far */
} Training;

/* Sequences of these lengths, whose words and labels follow from `seed`. */
static inline void training_fill(MicroBatch *b, MicroCapacity capacity, const int *lengths, int first_index,
                                 uint32_t seed, int labels)
{
    micro_batch_init(b, capacity);
    for (int s = 0; s < TRAINING_SEQS && lengths[s]; s++) {
        int first = b->spans[2 * s] = b->n_tokens;
        b->seq_index[s] = first_index + s;
        b->labels[s] = (first_index + s) % labels;
        for (int i = 0; i < lengths[s]; i++) {
            int row = b->n_tokens++;
            seed = seed * 1664525u + 1013904223u;
            b->ids[row] = (int32_t)(1 + (seed >> 8) % 299);
            b->types[row] = 2 * i > lengths[s];
            b->pos[row] = i;
            b->seq[row] = first_index + s;
        }
        b->first[s] = micro_read(b, first);
        b->spans[2 * s + 1] = b->n_tokens;
        b->n_seqs++;
    }
}

static inline void training_open(Training *t, const TrainingOptions *o)
{
    static const int uneven[TRAINING_MICROS][TRAINING_SEQS] = {{40, 2, 17, 9, 0}, {1, 40, 0}};
    const int(*lengths)[TRAINING_SEQS] = o->lengths ? o->lengths : uneven;
    const Head head = o->pretraining ? (Head){HEAD_PRETRAINING, 2}
                      : o->coupling  ? (Head){HEAD_EMBEDDING, 0}
                                     : (Head){HEAD_CLASSIFIER, TRAINING_LABELS};
    const char *sizes = o->sizes ? o->sizes : training_head_16;
    ModelConfig config;
    Policy policy;
    *t = (Training){.may_skip = o->may_skip || o->loss_scale > 0,
                    .optimizer = {.beta1 = 0.9f,
                                  .beta2 = 0.999f,
                                  .eps = 1e-6f,
                                  .weight_decay = 0.01f,
                                  .max_grad_norm = 1,
                                  .bias_correction = true,
                                  .loss_scale = o->loss_scale > 0 ? o->loss_scale : 1024,
                                  .scale_growth = 2000}};
    assert_ok(model_config_parse("test", sizes, strlen(sizes), &config));
    if (o->no_dropout) config.hidden_dropout = config.attention_dropout = config.classifier_dropout = 0;
    assert_ok(model_init(&t->model, config, head));
    t->model.pooling = o->pooling;
    assert_ok(policy_parse(o->policy ? o->policy : "none", &policy));
    BackendOptions one = {.threads = 1, .tf32 = o->tf32, .attention = o->attention};
    assert_ok(backend_open(o->backend, &one, &t->backend));
    if (o->change) o->change(t->backend);
    MicroCapacity capacity = {TRAINING_TOKENS, TRAINING_SEQS, o->pretraining ? 16 : 0};
    t->place = place_of(&t->model, &o->kfac, ranks_size(o->ranks), ranks_rank(o->ranks), 8 << 10);
    t->optimizer.kfac = o->kfac.interval > 0;
    PlanInput input = {.model = &t->model,
                       .backend = t->backend,
                       .compute = o->compute,
                       .training = true,
                       .evaluation = true,
                       .optimizer = t->optimizer,
                       .coupling = o->coupling,
                       .audit = o->audit,
                       .watch = o->audit,
                       .place = t->place};
    SessionOptions session = {.backend = t->backend, .poison = o->poison, .seed = 5, .ranks = o->ranks};
    RunPlan plan;
    run_plan_init(&plan, &input);
    policy_keeps(&policy, config.layers, plan.layers.keeps);
    plan.micro = plan.eval_micro = capacity;
    plan.save_buffer = !o->waits;
    assert_ok(run_plan_make(&plan));
    if (o->saves) {
        LayerChoice saves;
        assert_ok(policy_parse(o->saves, &policy));
        layer_choice_init(&saves, config.layers, NULL);
        policy_keeps(&policy, config.layers, saves.keeps);
        assert_ok(run_plan_make_other(&plan, &saves));
        layer_choice_free(&saves);
    }
    assert_ok(session_open(&t->session, &plan, &session));
    for (int m = 0, first = 0; m < TRAINING_MICROS; m++) {
        training_fill(&t->batch[m], capacity, lengths[m], first, (uint32_t)m + 1, head.labels > 0 ? head.labels : 1);
        first += t->batch[m].n_seqs;
    }
}

/* Sets the initial weights. */
static inline void training_begin(Training *t)
{
    params_init(&t->model.params, 1, session_fill(&t->session));
    assert_ok(session_ready(&t->session));
}

static inline void training_close(Training *t)
{
    session_close(&t->session);
    place_free(t->place);
    for (int m = 0; m < TRAINING_MICROS; m++) micro_batch_free(&t->batch[m]);
    model_free(&t->model);
    backend_close(t->backend);
}

static inline const MicroBatch *training_fill_micro(void *batches, int share, int64_t m)
{
    (void)share;
    return (MicroBatch *)batches + m;
}

static inline int training_sequences(const Training *t)
{
    int n = 0;
    for (int m = 0; m < TRAINING_MICROS; m++) n += t->batch[m].n_seqs;
    return n;
}

/* Micro-batches first … first + n − 1 as this rank's of a step; n may be 0. */
static inline Status training_micros(Training *t, int first, int n)
{
    static const float scores[] = {0.9f, -0.2f, 0.4f};
    const SessionShare share = {.micros = n};
    const Coupling *coupling = t->session.plan.input.coupling;
    const int data_rows = coupling ? training_sequences(t) / coupling->texts : 0;
    return session_run(&t->session, &(SessionStep){.shares = &share,
                                                   .n_shares = 1,
                                                   .sums = true,
                                                   .data_rows = data_rows,
                                                   .scores = scores,
                                                   .fill = training_fill_micro,
                                                   .self = t->batch + first});
}

/* Steps from + 1 to `to`. */
static inline void training_steps(Training *t, int from, int to)
{
    const Coupling *coupling = t->session.plan.input.coupling;
    int n_seqs = training_sequences(t), n_tokens = 0;
    const double weight = coupling ? coupling_terms(coupling, n_seqs) : n_seqs;
    for (int m = 0; m < TRAINING_MICROS; m++) n_tokens += t->batch[m].n_tokens;
    for (int step = from + 1; step <= to; step++) {
        Stats stats;
        assert_ok(session_begin(&t->session, (uint32_t)step, weight, 0));
        assert_ok(session_gather(&t->session, step, n_tokens));
        assert_ok(training_micros(t, 0, TRAINING_MICROS));
        assert_ok(session_update(&t->session, &t->optimizer, step, 1e-3, &stats));
        if (!t->may_skip) assert_int_equal(stats.finite, 1);
        t->loss[step - 1] = (stats.loss[0] + stats.loss[1]) / weight;
    }
}

/* An array of the state; the caller frees. */
static inline float *training_state(const Training *t, StateArray which)
{
    float *copy = mem_array((size_t)t->model.params.size, sizeof *copy);
    assert_ok(session_read_range(&t->session, which, 0, t->model.params.size, copy));
    return copy;
}

/* Makes a γ small, so that the form of its LayerNorm no longer holds. */
static inline void training_shrink_gamma(Training *t)
{
    float *weights = training_state(t, STATE_WEIGHTS), *to = session_fill(&t->session);
    int g = params_find(&t->model.params, "bert.encoder.layer.1.output.LayerNorm.weight");
    weights[t->model.params.params[g].offset + 3] = 0.01f;
    memcpy(to, weights, (size_t)t->model.params.size * sizeof *to);
    assert_ok(session_ready(&t->session));
    free(weights);
}

/* `changed`: the session must be planned and bound again. */
static inline void training_check_forms(Training *t, bool changed)
{
    bool found = !changed;
    assert_ok(session_check_forms(&t->session, &found));
    assert_int_equal(found, changed);
}

/* Both have the same losses of steps from + 1 to `to`, and the same weights and moments, to the last bit. */
static inline void training_same_bits(const Training *a, const Training *b, int from, int to, const char *what)
{
    static const char *const names[] = {"weights", "m", "v"};
    for (int i = from; i < to; i++)
        if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0)
            fail_msg("%s: the loss of step %d is %.17g, expected %.17g", what, i + 1, a->loss[i], b->loss[i]);
    for (StateArray which = 0; which < N_STATE_ARRAYS; which++) {
        float *x = training_state(a, which), *y = training_state(b, which);
        if (memcmp(x, y, (size_t)a->model.params.size * sizeof *x) != 0) fail_msg("%s: %s differ", what, names[which]);
        free(x);
        free(y);
    }
}

/* A run that saves this training's state; it borrows the session. */
static inline Run training_run(const Training *t, const Config *config, int64_t step)
{
    return (Run){.c = config,
                 .session = t->session,
                 .fingerprint = {.data = (char *)"{}", .len = 2},
                 .config_json = {.data = (char *)"{}", .len = 2},
                 .progress = {.step = step}};
}

/* Saves as the loop does; the folder of the checkpoint is `dir`/checkpoint-<step>. */
static inline Status training_save(Training *t, char *dir, int64_t step)
{
    const Config config = {.keep = 1, .output_dir = dir};
    Run run = training_run(t, &config, step);
    Saving *saving;
    assert_ok(saving_open(&saving, &run));
    Status status = saving_begin(saving);
    if (status == OK) status = saving_wait(saving);
    saving_close(saving);
    return status;
}

static inline void training_load(Training *t, const char *dir, int64_t step)
{
    Resume resume = {.dir = mem_printf("%s/checkpoint-%lld", dir, (long long)step)};
    assert_ok(checkpoint_verify(resume.dir, &resume.seen));
    assert_ok(resume_load(&resume, &t->session));
    resume_free(&resume);
}
