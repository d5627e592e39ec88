/* The flat parameter space: one table of all parameters, in the order in which backward finishes their gradients
   (heads, then layers from last to first, then embeddings; the word embedding last). An interval of it is a gradient
   bucket, an optimizer slice, a checkpoint range. docs/contracts.md 8. */
#pragma once

#include "base/base.h"

/* DISTILBERT (Sanh et al., 2019): BERT without token types, without next-sentence prediction and without dropout behind
   the attention; its pooler is a classifier's alone and ends with max(x, 0). */
typedef enum { MODEL_BERT, MODEL_DISTILBERT, N_MODEL_KINDS } ModelKind;

typedef enum { INIT_NORMAL, INIT_ZERO, INIT_ONE } Init; /* INIT_NORMAL: N(0, initializer_range), by Philox */

#define PARAM_ALIGN 64 /* elements */

typedef struct {
    char name[96];      /* as a BERT's in Hugging Face's files: "bert.encoder.layer.0.attention.self.query.weight" */
    int64_t rows, cols; /* as exported; a vector has rows = its length, cols = 1 */
    int n_dims;         /* 1 or 2, as exported */
    int64_t padded;     /* rows held inside: more than `rows` only for the vocabulary; extra rows stay 0 */
    int64_t offset;     /* elements from the start of the space */
    Init init;
    bool decay;    /* weight decay applies: not to biases and LayerNorm */
    bool head;     /* of a task head: initialised where an import lacks it */
    int16_t layer; /* −1 outside layers */
} Param;

/* Parameters that lie side by side (query, key, value) form a group: its start is a multiple of PARAM_ALIGN, its
   members follow without a gap; with hidden sizes that are a multiple of 64 every member is aligned. */
typedef struct {
    Param *params;
    int count, cap;
    int64_t size; /* elements of the whole space, a multiple of PARAM_ALIGN */
    double initializer_range;
    ModelKind kind; /* whose names the tensors have in files */
} ParamTable;

/* Two spaces make the state of a run: the model's tensors, and K-FAC's sets as they are saved. A part of both; the
   second has no tensors where there is no K-FAC. */
enum { SPACE_MODEL, SPACE_SETS, N_SPACES };
typedef struct {
    const ParamTable *params[N_SPACES];
    const Intervals *part[N_SPACES];
} HeldPart;

static inline int64_t param_held(const Param *p) { return p->padded * p->cols; } /* elements inside */
/* Whether it is a linear layer's of the encoder. */
static inline bool param_is_linear(const Param *p) { return p->layer >= 0 && !strstr(p->name, "LayerNorm"); }
static inline int64_t param_exported(const Param *p) { return p->rows * p->cols; }

int params_find(const ParamTable *t, const char *name); /* −1 if absent */
/* The parameter's name in files, and back: names.c. A file's name may have wrappers' prefixes. The caller frees. */
char *param_file_name(const ParamTable *t, const Param *p);
char *param_table_name(const char *file_name);
void params_free(ParamTable *t);
/* Fills `weights` (t->size) as a new model: INIT_NORMAL is N(0, range) by Philox(seed, parameter's name digest,
   element), so the values depend on seed, name and place alone. Gaps and pad rows are 0. */
void params_init(const ParamTable *t, uint64_t seed, float *weights);
void params_zero(const ParamTable *t, float *weights); /* all of t->size */
void params_init_one(const ParamTable *t, int i, uint64_t seed, float *weights);
/* Row from[i] of parameter `p` moves to row i; `from` (rows) is a permutation. */
void params_permute_rows(const ParamTable *t, int p, const int *from, float *weights);
/* The flat space is cut into parts between norm blocks (NORM_BLOCK elements, counted from a tensor's start), so that a
   rank computes whole terms of every norm (docs/contracts.md 8). Returns the end of part `rank` of [begin, end), which
   begins and ends at cuts; a part begins at the end of the previous one. No part is more than a norm block and its
   tensor's padding from the even share. */
int64_t slice_cut(const ParamTable *params, int64_t begin, int64_t end, int rank, int ranks);
/* What elements of a parameter add to the digest of their space: a sum modulo 2^64 over norm blocks. `place`: the first
   one, which begins a norm block; `count` of them. */
uint64_t param_sum(const float *values, int64_t count, int64_t place);
/* Digest of names, shapes and offsets. */
Digest params_digest(const ParamTable *t);
