/* SQuAD 1.1 and 2.0 (Rajpurkar et al., 2016 and 2018): questions whose answers are parts of a paragraph.

   Reading, windows and n-best answers follow Google's run_squad.py, the scores follow the official evaluate-v1.1.py and
   evaluate-v2.0.py (docs/squad.md lists the differences). A paragraph is cut into words at white space, words into
   pieces; a window is [CLS] question [SEP] pieces of the paragraph [SEP]. */
#pragma once

#include <signal.h>

#include "data/data.h"
#include "text/text.h"

/* ---- reading (read.c) ---- */

typedef struct {
    uint32_t at, len; /* bytes in the paragraph */
    int64_t first;    /* number of its first character in the paragraph */
} SquadWord;

typedef struct {
    char *text; /* UTF-8 */
    SquadWord *words;
    int32_t n_words;
    int32_t *piece_ids;  // (n_pieces) of the whole paragraph; NULL before squad_windows
    int32_t *piece_word; // (n_pieces) the word that a piece belongs to
    int32_t n_pieces;
} SquadParagraph;

typedef struct {
    char *text;
    int64_t start; /* its first character in the paragraph; −1: not given */
} SquadAnswer;

typedef struct {
    char *id, *text;
    int32_t paragraph;
    SquadAnswer *answers; // (n_answers)
    int32_t n_answers;
    bool impossible;           /* SQuAD 2.0: the paragraph has no answer */
    int64_t window, n_windows; /* its windows; set by squad_windows */
} SquadQuestion;

typedef struct {
    char *path;
    SquadParagraph *paragraphs; // (n_paragraphs)
    SquadQuestion *questions;   // (n_questions)
    int64_t n_paragraphs, n_questions;
    int64_t cap_paragraphs, cap_questions;
    Digest digest; /* of its bytes */
} SquadFile;

/* What a file is for. TRAIN: every question has an answer and its place, or is impossible. DEV: has an answer, or with
   version 2 may have none. TEST: answers are not read. */
typedef enum { SQUAD_TRAIN, SQUAD_DEV, SQUAD_TEST } SquadUse;

/* JSON of SQuAD 1.1 or 2.0; with `version_2` a question may have no answer. E_FORMAT names the article, the paragraph
   and the question. */
Status squad_read(const char *path, bool version_2, SquadUse use, SquadFile *file);
Status squad_parse(const char *name, const char *text, size_t len, bool version_2, SquadUse use, SquadFile *file);
void squad_file_free(SquadFile *file); /* takes a zeroed one */

/* ---- windows (windows.c) ---- */

typedef struct {
    int32_t question, start, length; /* pieces [start, start + length) of the paragraph */
    int32_t query;                   /* pieces of the question */
} SquadWindow;

typedef struct {
    SquadWindow *windows; // (examples.count)
    int64_t cap;
    Examples examples; /* labels (count, 2): rows of the first and last piece of the answer; −1 unless training */
    int64_t cut;       /* questions longer than max_query */
    int64_t skipped;   /* training: questions whose answer is not at its place in the paragraph */
} SquadWindows;

typedef struct {
    int max_length, stride, max_query; /* max_length ≥ max_query + 4 */
    bool training;                     /* the file was read as SQUAD_TRAIN */
    SpecialIds special;
    bool one_type; /* as in TokenizerOptions */
} SquadCut;

/* Windows of all questions, in the file's order. In training a window without the whole answer has both labels at
   [CLS], as an impossible question has. E_STOPPED if *stop becomes set. */
Status squad_windows(SquadFile *file, Tokenizer *tokenizer, SquadCut cut, const volatile sig_atomic_t *stop,
                     SquadWindows *out);
void squad_windows_free(SquadWindows *w); /* takes a zeroed one */
/* Whether a piece of the paragraph has its most context, of the n windows that hold it, in number `at`. */
bool squad_most_context(const SquadWindow *windows, int64_t n, int64_t at, int32_t piece);

/* ---- answers (answers.c) ---- */

typedef struct {
    char *text; /* "": none */
    double start, end, probability;
} SquadCandidate;

typedef struct {
    SquadCandidate *best; // (n) at least one
    int n;
    double null_odds; /* version_2: the score of no answer minus that of the best text */
    const char *text; /* the answer: one of `best` */
} SquadPrediction;

typedef struct {
    int n_best, max_length;
    bool version_2;
    double null_threshold;
} SquadChoice;

/* The answers to a question. logits: of all windows of the file, those of window i from row offset[i] on, (tokens, 2).
 */
void squad_predict(const SquadFile *file, const SquadWindows *w, const SquadQuestion *q, const float *logits,
                   const Vocab *vocab, const Tokenizer *tokenizer, const SquadChoice *choice, SquadPrediction *out);
void squad_prediction_free(SquadPrediction *p); /* takes a zeroed one */
/* The part of `original` that gave `predicted`, which is made of pieces: run_squad.py's get_final_text. */
void squad_final_text(const Tokenizer *tokenizer, const char *predicted, const char *original, Buf *out);

/* ---- scores (scores.c) ---- */

/* Appends the words of a text with one blank between them, as str.split() finds them; `out` is empty. */
void squad_put_words(const char *at, const char *end, Buf *out);

/* Per question: 0 or 1, and 0 to 1; the largest over its answers. */
typedef struct {
    double exact, f1;
} SquadScore;

/* Lower-cased, without ASCII punctuation, articles and superfluous white space: the scripts' normalize_answer. */
void squad_normalise(const char *text, Buf *out);
SquadScore squad_score(const SquadQuestion *q, const char *answer, bool version_2);

/* The figures of a file, as the scripts print them: per cent, and thresholds of null_odds. NaN where there is no such
 * question. */
#define SQUAD_METRIC_LIST(X)                                                                                           \
    X(EXACT, "exact")                                                                                                  \
    X(F1, "f1")                                                                                                        \
    X(HAS_EXACT, "HasAns_exact")                                                                                       \
    X(HAS_F1, "HasAns_f1")                                                                                             \
    X(NO_EXACT, "NoAns_exact")                                                                                         \
    X(NO_F1, "NoAns_f1")                                                                                               \
    X(BEST_EXACT, "best_exact")                                                                                        \
    X(BEST_EXACT_THRESHOLD, "best_exact_thresh")                                                                       \
    X(BEST_F1, "best_f1")                                                                                              \
    X(BEST_F1_THRESHOLD, "best_f1_thresh")

typedef enum {
#define X(name, text) SQUAD_##name,
    SQUAD_METRIC_LIST(X)
#undef X
        N_SQUAD_METRICS
} SquadMetric;

/* The script's name: version 1 says exact_match. */
const char *squad_metric_name(SquadMetric metric, bool version_2);
/* Version 1 has the first two alone. */
static inline int squad_metrics(bool version_2) { return version_2 ? N_SQUAD_METRICS : 2; }

/* scores, odds (n_questions); `answered`: whether an answer is given, (n_questions). */
void squad_figures(const SquadFile *file, const SquadScore *scores, const double *odds, const bool *answered,
                   double figures[N_SQUAD_METRICS]);

/* ---- the task of `cairn squad` (task.c) ---- */

extern const struct Task task_squad; /* train/job/task.h */
