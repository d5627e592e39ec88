/* GLUE: the table of tasks, their TSV files, metrics, predictions and the leaderboard's files.

   A GlueTask is read-only data: columns, labels, files, metrics of one task. Labels are numbered as Hugging Face
   numbers them. A GlueExamples is one file, with its texts. Source of the layouts: the files of gluebenchmark.com and
   the processors of google-research/bert and Transformers. */
#pragma once

#include "base/base.h"
#include "data/records.h"
#include "model/model.h"

/* ---- the table of tasks (tasks.c) ---- */

/* X(name, printed name): keys of eval_results.json. All are in 0..1 or −1..1; NaN where undefined (see GlueScores). */
#define GLUE_METRIC_LIST(X)                                                                                            \
    X(GLUE_ACCURACY, "accuracy")                                                                                       \
    X(GLUE_F1, "f1")                                                                                                   \
    X(GLUE_MATTHEWS, "matthews_correlation")                                                                           \
    X(GLUE_PEARSON, "pearson")                                                                                         \
    X(GLUE_SPEARMAN, "spearmanr")                                                                                      \
    X(GLUE_COMBINED, "combined_score")                                                                                 \
    X(GLUE_MACRO_F1, "macro_f1")                                                                                       \
    X(GLUE_WEIGHTED_F1, "weighted_f1")

typedef enum {
#define X(name, text) name,
    GLUE_METRIC_LIST(X)
#undef X
        N_GLUE_METRICS
} GlueMetric;

typedef enum { GLUE_TRAIN, GLUE_DEV, GLUE_TEST } GlueSplitKind;

/* Columns of a file: with a header (`columns` 0) header names, without one positions from "0" on; NULL: no such column.
   Without an index column, or outside test files, an example's index is its row number from 0. */
typedef struct {
    const char *index, *a, *b, *label;
    int columns; /* 0: header; > 0: no header, so many columns; GLUE_COLUMNS_AS_FIRST: no header, as many as in row 1 */
} GlueLayout;

#define GLUE_COLUMNS_AS_FIRST (-1)

typedef struct {
    GlueSplitKind kind;
    const char *name;       /* "dev_matched"; also what --eval-splits takes */
    const char *file;       /* "dev_matched.tsv"; without an ending: .tsv, .csv or .jsonl, packed by gz or not */
    const char *suffix;     /* of metric names: "" or "_mm" */
    const char *submission; /* the leaderboard's file name; NULL: not part of a submission */
    const GlueLayout *layout;
} GlueSplit;

#define GLUE_MAX_SPLITS  5
#define GLUE_MAX_METRICS 3

typedef struct {
    const char *name;          /* "MNLI", also its folder's under GLUE_DIR */
    const char *folder;        /* another name of the folder; NULL: none */
    const char *const *labels; /* (n_labels); NULL for regression */
    int n_labels;              /* width of the classifier: 1 for regression */
    bool regression;
    bool multi;      /* a row has any number of labels */
    float low, high; /* regression: other scores are errors in a file, and clipped in a submission */
    GlueMetric metrics[GLUE_MAX_METRICS];
    int n_metrics;
    GlueMetric best; /* picks the best checkpoint; larger is better */
    GlueSplit splits[GLUE_MAX_SPLITS];
    int n_splits;
    const char *skip_label; /* rows with this label have no majority and are left out: "-" in MNLI */
    bool skip_short_rows;   /* rows with too few columns are left out (QQP, as Google's and HF's readers do) */
    const char *model_task; /* the task whose model is used: "MNLI" for AX; NULL: its own */
} GlueTask;

/* By name in any case, with or without "-" and "_": "sts-b", "STSB". Unknown: E_USAGE with the names. "custom" is
   E_USAGE too: see glue_custom_init. */
Status glue_task_find(const char *name, const GlueTask **task);
bool glue_task_is_custom(const char *name);
/* The head that --task needs. A custom task has the labels of --labels, by default two. */
struct Config;
Status glue_plan_head(const struct Config *c, Head *head);
Head glue_head(const GlueTask *task);
const GlueTask *glue_task_at(int i); /* of the table, from 0; NULL beyond the last */

/* By name ("dev_matched"). Unknown: E_USAGE with the names of the task's splits. */
Status glue_split_find(const GlueTask *task, const char *name, const GlueSplit **split);
/* The i-th split of a kind, from 0; NULL beyond the last. */
const GlueSplit *glue_split_at(const GlueTask *task, GlueSplitKind kind, int i);
/* The label's number, where blanks around it do not count; −1 if the task has no such label. */
int32_t glue_label_find(const GlueTask *task, const char *text, size_t len);
const char *glue_metric_name(GlueMetric metric);

/* ---- a user's own files (custom.c) ---- */

/* train, dev and test, each .tsv, .csv or .jsonl (data/records.h). `text_columns` is "a" or "a,b". Columns are names in
   the header or keys; if all of them are numbers, the files have no header and the numbers are positions from 0.
   `label_column` may be NULL if only unlabelled files are read. `labels` is "x,y,z" in the order of their numbers,
   "regression", or "": then glue_custom_labels must follow. The caller owns the struct, which points into itself:
   never copy it. */
typedef struct {
    GlueTask task;
    GlueLayout labelled, unlabelled;
    char *text_columns, *label_column; /* cut into the strings above */
    char **label_names;                // (n_label_names)
    int n_label_names;
} GlueCustom;

Status glue_custom_init(GlueCustom *custom, const char *text_columns, const char *label_column, const char *labels,
                        bool multi);
/* The labels and the kind of --model. */
Status glue_custom_labels_of_model(GlueCustom *custom, const char *model);
/* Finds labels that were not given: for training those in train's file, else those of --model. With --multi-label, or
   where the model has it, rows have several. */
Status glue_custom_labels(GlueCustom *custom, const struct Config *c);
void glue_custom_free(GlueCustom *custom); /* takes a zeroed one */

/* True where a split of the task has two texts in a row. */
bool glue_task_has_pairs(const GlueTask *task);

/* ---- reading (reader.c) ---- */

typedef struct {
    RecordText a, b;      /* valid UTF-8; b.p is NULL for single sentences */
    int64_t index;        /* in predictions: the test file's index column, elsewhere the row number from 0 */
    int32_t label;        /* −1: unlabelled, regression, or several labels */
    float score;          /* regression; else 0 */
    const float *targets; /* (n_labels) several labels: 1 for each that the row has; else NULL */
    int64_t line;         /* in the file, from 1 */
} GlueExample;

typedef struct {
    GlueExample *examples; /* (count) */
    size_t count;
    bool labelled;
    size_t skipped_unlabelled; /* rows with task->skip_label */
    size_t skipped_short;      /* rows with too few columns, where the task allows it */
    char *path;
    float *targets; // (count, n_labels) several labels; else NULL
    size_t whole;   /* several labels: rows that have all, which are numbers */
    char **blocks;  /* (n_blocks) the texts */
    int n_blocks, cap_blocks;
    char *block_at; /* free space in the last block */
    size_t block_left;
} GlueExamples;

/* Reads DIR/<task's folder>/<file> if that folder exists, else DIR/<file>. Errors (E_IO, E_FORMAT) name the file, and
   the line where there is one. Skipped rows are counted and warned about. */
Status glue_read(GlueExamples *examples, const char *dir, const GlueTask *task, const GlueSplit *split);
/* Reads from memory, or the file `name` where `data` is NULL. Errors call it `name`. */
Status glue_parse(GlueExamples *examples, const char *name, const void *data, size_t size, const GlueTask *task,
                  const GlueSplit *split);
/* The file that glue_read reads; the caller frees. E_IO: there is none; E_USAGE: there are two. */
Status glue_split_path(const char *dir, const GlueTask *task, const GlueSplit *split, char **path);
/* Moves a share of the rows to `held`, the dev split of --eval-fraction: by each label's share, of several labels by
   that of their set, where rare sets count as one. Which rows is a function of the file and `seed` alone. Both keep the
   file's order and index; `held` uses the texts and targets of `x`. Logs both, and warns of texts on both sides.
   E_FORMAT: no row can be held out. */
Status glue_hold_out(GlueExamples *x, const GlueTask *task, double fraction, uint64_t seed, GlueExamples *held);
void glue_examples_drop_texts(GlueExamples *examples); /* once they are tokenised */
void glue_examples_free(GlueExamples *examples);       /* takes a zeroed one */

/* ---- metrics (metrics.c) ---- */

#define GLUE_MOST_MATRIX 1000 /* labels of a confusion matrix */

/* Rows that have a label, for which it was predicted, and both. */
typedef struct {
    int64_t rows, predicted, right;
} GlueLabelCounts;

/* Each is 0 where its denominator is 0. */
typedef struct {
    double precision, recall, f1;
} GlueLabelScore;

/* Running sums over the examples of one split. Zero-initialise. Double precision throughout; equal to scikit-learn and
   SciPy to 1e-12. F1 and Matthews take label 1 as positive and are 0 where their denominator is 0. With several labels
   a row is correct where all are, and F1 counts the labels of all rows (micro). Undefined (NaN):
   everything for no examples; Pearson and Spearman for one example, for constant values and when a value is not finite.
 */
typedef struct {
    int64_t n, correct, cap;
    GlueLabelCounts *labels;   // (n_labels) classification only
    int64_t *matrix;           // (n_labels, n_labels) truth, then prediction; NULL: several labels, or too many
    double *predicted, *truth; /* (cap), n of them: regression only */
} GlueScores;

void glue_scores_add_score(GlueScores *scores, double predicted, double truth);
/* One labelled example with the model's output: values (n_labels), logits, for one label also probabilities;
   regression: (1). */
void glue_scores_add(GlueScores *scores, const GlueTask *task, const float *values, const GlueExample *example);
/* GLUE_COMBINED is the plain mean of the task's other metrics. Macro and weighted F1 are those of glue_label_means, of
   a classification. */
double glue_scores_value(const GlueScores *scores, const GlueTask *task, GlueMetric metric);
/* Writes why a correlation is NaN, for people; "" where all metrics of the task are numbers. */
void glue_scores_undefined(const GlueScores *scores, const GlueTask *task, char *why, size_t room);
void glue_scores_free(GlueScores *scores); /* takes a zeroed one */

/* ---- scores of each label (label_scores.c) ---- */

GlueLabelScore glue_label_score(const GlueLabelCounts *counts);
/* Means over the labels: plain ones, of one label over those that occur in truth or predictions (scikit-learn's macro),
   or by the labels' rows (its weighted). */
GlueLabelScore glue_label_means(const GlueScores *scores, const GlueTask *task, bool weighted);
/* Appends all of them as a JSON object: a value of "eval_labels" in eval_results.json. */
void glue_label_scores_put(const GlueScores *scores, const GlueTask *task, Buf *out);

/* Several labels: whether a logit says that the row has the label. */
static inline bool glue_has_label(float logit) { return logit > 0; }
/* Logits become probabilities, in place: softmax, or with several labels each by itself. Regression: no change. */
void glue_probabilities(const GlueTask *task, float *values, int64_t rows); // (rows, n_labels)
/* Appends the labels' names, with commas between; probabilities (n_labels). */
void glue_put_labels(const GlueTask *task, const float *probabilities, Buf *out);
/* Position of the largest; the first of equals. */
int32_t glue_argmax(const float *values, int n); // (n)

/* ---- writing (submission.c) ---- */

/* values: (examples->count, n_labels) probabilities, or (count, 1) scores, all finite. Both create the directory and
   write durably. */

/* DIR/<split's submission name>, which it must have: "index\tprediction", label text, or the score with 3 decimals
 * clipped to low..high. */
Status glue_submission_write(const char *dir, const GlueTask *task, const GlueSplit *split,
                             const GlueExamples *examples, const float *values);
/* DIR/predictions_<split>.tsv: index, prediction, and for classification probability_<label>… (9 significant digits, so
   that a float reads back equal; the same bytes for the same values everywhere). Scores are not clipped. */
Status glue_predictions_write(const char *dir, const GlueTask *task, const GlueSplit *split,
                              const GlueExamples *examples, const float *values);

/* The header and a row of that file, or of a CSV file, without the line's end; v (n_labels). */
void glue_put_header(const GlueTask *task, bool csv, Buf *out);
void glue_put_prediction(const GlueTask *task, int64_t index, const float *v, bool csv, Buf *out);
void glue_put_cell(bool csv, const char *text, size_t len, Buf *out); /* in CSV within quotes where it needs them */

/* ---- the tasks of `cairn glue` (task.c) and `cairn predict` (predict.c) ---- */

extern const struct Task task_glue, task_predict; /* train/job/task.h */
