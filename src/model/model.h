/* BERT and DistilBERT: sizes, parameters, and the one place that describes the computation (bert.c emits forward
   instrs). */
#pragma once

#include "base/base.h"
#include "model/inputs.h"
#include "model/params.h"
#include "plan/plan.h"

#define MODEL_MOST_LAYERS 340 /* a dropout site has 10 bits, and a layer three sites */

/* A kind's name, and in Hugging Face's files its `model_type`, the prefix of its classes, and the key of GELU's form.
 */
typedef struct {
    const char *name, *type, *prefix, *activation;
} ModelKindNames;
extern const ModelKindNames model_kinds[N_MODEL_KINDS];

/* From Hugging Face's config.json or Google's bert_config.json; the keys are the same. */
typedef struct {
    ModelKind kind;
    int32_t vocab_size, hidden, layers, heads, head_dim, ffn, positions, types; /* types: 0 in DistilBERT */
    int64_t vocab_padded;                                                       /* rounded up to a multiple of 64 */
    float norm_eps, hidden_dropout, attention_dropout, classifier_dropout, span_dropout, initializer_range;
    GeluKind gelu;
    int32_t pad_token_id;
    bool untied; /* the MLM decoder is not the word embedding: no model with pretraining's heads */
    char *extra; /* the source's JSON text, so that unknown keys are exported again; NULL if made by hand */
} ModelConfig;

/* A number of ModelConfig and its key in config.json, by kind. */
typedef struct {
    const char *keys[N_MODEL_KINDS]; /* NULL: it has none, and the number is the fallback */
    double fallback[N_MODEL_KINDS];  /* of an absent key; −1: a size must be there, a rate is hidden_dropout */
    double most;
    bool real;
    size_t at; /* int32_t or float */
} ModelNumber;
enum { N_MODEL_NUMBERS = 13 };
extern const ModelNumber model_numbers[N_MODEL_NUMBERS];

/* `path`: the file, or a directory with config.json or bert_config.json. Refuses other models and names the key:
   other model types, relative positions, hidden not divisible by heads, sizes below 1 or absurd, unknown
   activations, decoders, pruned heads, quantized weights, code of its own. tests/state/config_keys.tsv lists all keys.
 */
Status model_config_read(const char *path, ModelConfig *config);
/* Sets all dropout rates that the model has; a negative rate keeps those of the file. */
void model_config_set_dropout(ModelConfig *config, float rate);
Status model_config_parse(const char *name, const char *text, size_t len, ModelConfig *config);
void model_config_free(ModelConfig *config);

/* "bert-tiny", -mini, -small, -medium, -base, -large: the sizes of Google's published models, with `vocab_size`
   pieces. False: unknown name. model_config_read takes these names too (30522 pieces), unless a file has the name. */
bool model_config_named(const char *name, int32_t vocab_size, ModelConfig *config);

/* CLASSIFIER: one label of several; MULTI: any number of labels at once; SPAN: where an answer begins and ends;
   EMBEDDING: a vector for each sequence, without parameters. */
typedef enum {
    HEAD_NONE,
    HEAD_CLASSIFIER,
    HEAD_REGRESSION,
    HEAD_PRETRAINING,
    HEAD_MULTI,
    HEAD_SPAN,
    HEAD_EMBEDDING
} HeadKind;
/* The mean of all of a sequence's rows, or its first row. */
typedef enum { POOLING_MEAN, POOLING_CLS } Pooling;

typedef struct {
    HeadKind kind;
    int32_t labels; /* classifier: ≥ 2; multi: ≥ 1; regression: 1; span: 2; pretraining: 2 with next-sentence
                       prediction, else 0; embedding: the hidden size, set by model_init */
} Head;

/* A stage of a pipeline: consecutive layers, the first stage with the embeddings, the last with the heads. */
typedef struct {
    int32_t first, layers;
} Stage;

typedef struct {
    ModelConfig config;
    Head head;
    ParamTable params; /* of a part of a model: what its stages hold, in the order of the whole table */
    int32_t longest;   /* most tokens of a sequence; at first all positions */
    bool soft_labels;  /* a classifier is trained on targets (Examples.weights), not on classes; at first false */
    Pooling pooling;   /* of embeddings; at first the mean */
    bool normalized;   /* an embedding's length is 1; at first false */
    Stage *stages;     /* (n_stages) what is emitted, in this order; the whole model is one */
    int n_stages;
} Model;

/* Takes ownership of `config`'s memory, also after an error: E_FORMAT, pretraining's heads with an untied decoder;
   E_USAGE, next-sentence prediction by a DistilBERT. */
Status model_init(Model *m, ModelConfig config, Head head);
void model_free(Model *m);

#define WORD_EMBEDDING "bert.embeddings.word_embeddings.weight"

/* ---- stages (stages.c) ---- */
static inline bool stage_is_first(const Stage *s) { return s->first == 0; }
static inline bool stage_is_last(const Model *m, const Stage *s) { return s->first + s->layers == m->config.layers; }
/* The part of a model that a rank holds: n stages of it, with a parameter table of its own. The word
   embedding belongs to the first stage and, where the model is pretrained, to the last. */
void model_part(const Model *whole, const Stage *stages, int n, Model *part);
/* Whether a stage of the model uses that parameter. */
bool stage_holds(const Model *m, const Stage *s, const Param *p);
/* The parameter that a stage with embeddings and one with the heads share; NULL: it is not tied. */
const Param *model_tied(const Model *m);
/* Shares out layers so that the slowest stage is as fast as can be; of equal ones that with fewer layers in the last
   stage, then in the first. `layer` (layers), `embeddings` and `heads` are seconds; 1 ≤ n ≤ layers. */
void stages_split(const double *layer, int layers, double embeddings, double heads, int n, Stage *stages);
/* "4,4,3": layers of each of `n` stages. E_USAGE names `option`, the count, the sum or the stage without a layer. */
Status stages_parse(const char *option, const char *text, int layers, int n, Stage *stages);

/* ---- emitting ---- */
typedef struct {
    bool training; /* dropout on, gradients and optimizer state planned, losses write their gradients */
    bool twins;    /* of an evaluation that shares memory with training: plan the copies that DGRAD reads, too */
    const LayerChoice *layers; /* bert_emit reads the forms, and passes after it what layers keep */
    int waiting;               /* Plan.waiting, of training */
    /* The decoder's gradient of the word embedding lies apart, behind the gradients of the space, so that neither it
       nor the embedding's depends on the order of micro-batches or of a schedule's works. */
    bool apart;
    bool unit; /* vectors of embeddings have length 1, whatever the model's have */
    /* plan_make sets these: */
    int64_t received; /* elements of other ranks' sums, for which there is room behind the gradients */
    size_t (*copy_bytes)(Dtype compute, int64_t n, int64_t k, bool transposed); /* the backend's */
    bool rounded_biases; /* LINEAR reads its bias in its output's type, from a compute copy */
    bool all_rows;       /* the last layer computes all rows, not only those that the heads read */
    int64_t moments;     /* elements of m, and of v, for a slice; 0: the whole space */
} EmitOptions;

/* Tensors that the host reads or writes; NONE where a head does not have them. */
typedef struct {
    union { /* by name and by number: model/inputs.h */
        struct {
#define X(name, ...) TensorId name;
            MICRO_INPUT_LIST(X)
#undef X
        };
        TensorId inputs[N_MICRO_INPUTS];
    };
    TensorId ctl;
    TensorId logits, loss, stats; /* (S, labels), of a span head (T, 2), F32; (S) F32, of embeddings NONE; Stats */
    TensorId given;               /* of embeddings, in training: the gradient of `logits`, (S, labels) F32 */
    TensorId mlm_loss;            /* (M) F32 */
    TensorId weights, grads, moments_m, moments_v, segments; /* the flat space as single tensors */
    TensorId cleared;                                        /* grads, and behind them the decoder's that lies apart */
    TensorId scaling;                                        /* training in fp16: LossScaling */
    TensorId own_segments, whole_segments;                   /* a sharded optimizer's, and a part's: see optim_emit */
    TensorId step_ctl; /* the `ctl` of ranges outside micro-batches: `ctl`, but of a stage a tensor of its own */
    TensorId audit;    /* AuditFound, where plan_audit compares; else NONE */
    PlanWatch watch;   /* of plan_watch; else NONE */
    PlanCouple couple; /* of plan_couple; else NONE */
} ModelTensors;

/* Emits parameters, compute copies and forward instrs with loss into an initialised plan. Dropout sites: 0 embeddings;
   layer l has 3l+1 attention, 3l+2 attention output, 3l+3 feed-forward output; 1023 the classifier or
   the span head. */
void bert_emit(const Model *m, Plan *p, const EmitOptions *options, ModelTensors *t);

/* A LayerNorm may keep its output (form Y) where every column has |γ| ≥ max(1, |β|)/8 (contracts.md 5): there it is as
   exact in bf16 as xhat; γ = 0.05 with β = 2 gives 7 % error. Fills (2·layers + 1) forms; those of LayerNorms that a
   part of a model lacks are Y. */
void model_norm_forms(const Model *m, const float *weights, uint8_t *forms);
