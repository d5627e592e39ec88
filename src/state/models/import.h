/* Weights of a BERT from any tensor file (tensor_file.h) into the flat parameter space, strictly: every parameter must
   be found with its shape, every tensor of the file must be understood.

   Names understood, as Hugging Face, NVIDIA's BERT for PyTorch and Google's TensorFlow 1 BERT write them:
     parts that wrappers add: `module.`, `_orig_mod.`, `_fsdp_wrapped_module.`, `_checkpoint_wrapped_module.`
     anywhere, `model.` in front; `bert.` or not (a BertModel saved alone)
     another prefix, as `net.`, that all of the encoder's tensors have; a head's is equal or a shorter part of it
     LayerNorm.gamma, .beta; `dense_act` for `dense`; DistilBERT's (model/names.c)
     bert/encoder/layer_0/attention/self/query/kernel (transposed), …/gamma, …/beta, output_bias, output_weights,
     cls/squad/output_weights (qa_outputs.weight)
   Ignored, and listed in the report: position_ids, counters, optimizer slots (in TensorFlow's files a parameter's name
   and more words), heads that the model does not have.
   cls.predictions.decoder is a copy of the word embedding and must equal it.

   A vocabulary may have exactly the model's size, or that size rounded up to a multiple of 8 or 64 (as trainers pad
   it): the import drops the pad rows. */
#pragma once

#include "base/base.h"
#include "formats/tensor_file.h"
#include "model/model.h"
#include "state/models/model_file.h"
#include "text/text.h"

/* ---- names ---- */
typedef enum {
    SOURCE_WEIGHT,  /* named like a parameter of some BERT */
    SOURCE_TIED,    /* a second copy of the parameter `name` */
    SOURCE_IGNORED, /* not a parameter; `why` describes it */
    SOURCE_UNKNOWN
} SourceKind;

typedef struct {
    SourceKind kind;
    char name[128];   /* as in the parameter table; "" if ignored or unknown */
    char prefix[128]; /* what a wrapper put before it, without `bert.`: "net." */
    bool transpose;   /* the file holds (in, out) */
    bool head;        /* belongs to a head, which a model need not have */
    const char *why;  /* static text, for SOURCE_IGNORED */
} SourceName;

void import_name(const char *name, SourceName *out);
/* Names a file's tensor i likewise. An unknown one of integers, and in TensorFlow's files a single number, is a
   counter: ignored. */
void import_tensor(const TensorFile *file, int i, SourceName *out);

/* Heads of which a file has at least one tensor. */
typedef struct {
    bool pooler, predictions, next_sentence, span;
    int64_t labels; /* rows of the classifier; 0: no classifier */
} ImportHeads;

Status import_find_heads(const TensorFile *file, ImportHeads *heads); /* E_FORMAT: a classifier that is not a matrix */
/* That of a classifier, a span head or pretraining heads: the first that is there. */
Head import_head(const ImportHeads *heads);

/* ---- weights ---- */
/* X(kind, column of the table) */
#define IMPORT_LIST(X)                                                                                                 \
    X(LOADED, "loaded")                                                                                                \
    X(NEW, "new")         /* a head that the file lacks, or has for other labels: initialised */                       \
    X(IGNORED, "ignored") /* buffers, optimizer slots, counters */                                                     \
    X(UNUSED, "not used") /* a head that the model lacks */                                                            \
    X(TIED, "tied")       /* a second copy, found equal */                                                             \
    X(MISSING, "missing") /* from here on: errors */                                                                   \
    X(UNEXPECTED, "unexpected")                                                                                        \
    X(SHAPE, "wrong shape")                                                                                            \
    X(TWICE, "given twice")

typedef enum {
#define X(kind, text) IMPORT_##kind,
    IMPORT_LIST(X)
#undef X
        N_IMPORT_KINDS
} ImportKind;

typedef struct {
    ImportKind kind;
    char *name;   /* of the parameter if one matches, else of the file's tensor */
    char *detail; /* of an error: "expected (768, 768)"; else NULL */
} ImportLine;

/* The outcome for each parameter of the model and each tensor of the file, in the order of the parameter table, then of
   the file. Zero-initialise; import_report_free. */
typedef struct {
    char *path; /* of the file read */
    TensorFormat format;
    ImportLine *lines;
    int count, cap;
    int n[N_IMPORT_KINDS];
    int64_t parameters; /* elements loaded */
    int64_t labels;     /* rows of the file's classifier, where it is for others than the model's; else 0 */
    char *foreign;      /* import_foreign_class: its head is not used; NULL: none */
} ImportReport;

/* Fills `weights` (m->params.size), gaps and pad rows with 0. Parameters of a head that the file lacks as a whole, and
   a classifier for another number of labels, are initialised from `seed` and counted in report->n[IMPORT_NEW];
   evaluation must refuse them. Errors: E_IO; E_FORMAT after a table of log_error lines (missing, unexpected and wrongly
   shaped tensors), or if a decoder differs from the embedding; E_NUMERIC for NaN and infinity, naming tensor and index.
   After an error the weights are undefined. `report` is filled either way and may be NULL. Allocates at most one
   tensor's memory besides. */
Status import_weights(const char *path, const Model *m, uint64_t seed, float *weights, ImportReport *report);
/* import_weights' checks without reading the weights. `norms` may be NULL; else it becomes a parameter space
   (params.size, zeros never touched) that holds the LayerNorms' parameters alone, for model_norm_forms; the caller
   frees, also after an error. */
Status import_check(const char *path, const Model *m, float **norms);
bool import_report_loaded(const ImportReport *report, const char *parameter); /* read from the file, not new */
void import_report_log(const ImportReport *report);                           /* a line of log_info */
/* E_FORMAT, after a table of log_error lines, if the report has lines of errors. */
Status import_report_errors(const ImportReport *report);
void import_report_free(ImportReport *report);

/* ---- files beside the weights ---- */
/* `path`: as tensor_file_open takes it. config.json or bert_config.json in the same directory, or NULL; the caller
   frees. */
char *import_find_config(const char *path);
/* EMBEDDING_TRANSFORMER in the same directory, or the file of another of the names that sentence-transformers gave it;
   NULL: there is none. The caller frees. */
char *import_find_transformer(const char *path);
/* The labels by the config.json beside `path`, in order: id2label, else label2id, else LABEL_0 … of num_labels, by
   default two, as Transformers has it. n is 0 if there is no config. mem_free_texts. E_FORMAT: names or numbers are
   missing, or two keys contradict each other. */
Status import_labels(const char *path, char ***labels, int *n);
/* Reads them from a document that errors call `name`. `said`: it has a key for them. */
Status import_labels_in(const char *name, const Json *config, char ***labels, int *n, bool *said);
/* Newly allocated texts: import_use_free. E_FORMAT: a value of another kind. */
Status import_use(const char *path, ModelUse *use);
void import_use_free(ModelUse *use);
/* What a folder of sentence-transformers says of its vectors. Without its modules.json beside `path`: the mean, not
   normalized. E_FORMAT: something that changes vectors and that Cairn does not have, by file, key and value. */
typedef struct {
    bool said; /* there is a modules.json */
    Pooling pooling;
    bool normalized;
    bool lower_case; /* a tokenizer that keeps capital letters gets texts without them (import_embedding_case) */
    char *model;     /* the BERT: `path`, or a folder in it */
    char *prompts, *similarity; /* as ModelUse's */
} Embedding;
Status import_embedding(const char *path, Embedding *e);
void import_embedding_free(Embedding *e); /* takes a zeroed one */
/* E_USAGE: the weights are not in this folder, but in one of it that its modules.json names. */
Status import_check_folder(const char *path);
void import_embedding_case(const Embedding *e, TokenizerOptions *o);
/* What that config.json says that the model gives: answers ("architectures"), else labels ("problem_type"; without it
   one label is a score). E_FORMAT: a head that Cairn does not have, named by its class. E_USAGE: its "problem_type" is
   another than `wanted` (NULL: any) needs. */
Status import_problem(const char *path, const HeadKind *wanted, HeadKind *kind);
/* Reads it from a document, or NULL for none. `said`: by "problem_type". */
Status import_problem_in(const char *name, const Json *config, HeadKind *kind, bool *said);
/* The class of "architectures" whose head Cairn does not have, as BertForTokenClassification; NULL: none. The caller
   frees. */
char *import_foreign_class(const char *path);
