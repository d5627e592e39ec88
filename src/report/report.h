/* The record of a run: a line per step in metrics.jsonl and for TensorBoard, a progress line, a summary (run.json),
   charts and report.html. Files are written durably or line by line. Nothing here changes a result. */
#ifndef CAIRN_REPORT_REPORT_H
#define CAIRN_REPORT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

/* ---- per step: OUT/metrics.jsonl and OUT/events.out.tfevents.* (metrics.c, tfevents.c) ---- */
typedef struct {
    int64_t step;
    double epoch, loss, lr, grad_norm;
    double seq_per_s, tokens_per_s; /* of this step; real sequences and tokens, not padding */
    size_t peak_bytes;              /* session_memory_used, largest so far */
    double wall_s;                  /* since the program's start */
    bool pretraining;               /* then: parts of the loss; NaN where there is none */
    double mlm_loss, mlm_accuracy, nsp_loss;
    double loss_scale; /* this update's; 0: not fp16 */
    int64_t skipped;   /* updates skipped since training began */
} StepRecord;

typedef struct Metrics Metrics;

/* Appends. Lines of steps after `step` (of a run that was killed after its last save) and a torn last line are cut off
   first, so that the file reads as if the run had never stopped. */
Status metrics_open(Metrics **m, const char *output_dir, int64_t step);
Status metrics_step(Metrics *m, const StepRecord *r);
/* Adds the line of a step to the file that rank 0 was lost before it wrote it to: where just that line is missing. */
Status metrics_complete(const char *output_dir, const StepRecord *r);
/* A figure of an evaluation during training: to eval.jsonl and TensorBoard ("eval/dev_matched/accuracy"). NULL:
 * nowhere.
 */
Status metrics_eval(Metrics *m, int64_t step, const char *split, const char *metric, double value);
void metrics_close(Metrics *m); /* takes NULL */

typedef struct TfEvents TfEvents;
/* TensorBoard's event file, a new one: TFRecord frames of Event messages (tensorflow/core/util/event.proto). It begins
   with a mark by which TensorBoard leaves out what older files of the folder hold of steps after `step`. */
Status tfevents_open(TfEvents **t, const char *output_dir, int64_t step);
Status tfevents_scalar(TfEvents *t, int64_t step, const char *tag, double value);
void tfevents_close(TfEvents *t); /* takes NULL */

/* ---- the progress line (progress.c): a live one on a terminal, else a line every `every` steps, on stderr ---- */
typedef struct Progress Progress;
Progress *progress_open(int64_t total_steps, int64_t first_step, int64_t every);
void progress_step(Progress *p, const StepRecord *r, int64_t n_seqs, int64_t n_tokens, double seconds);
void progress_close(Progress *p); /* takes NULL */

/* ---- charts (svg.c) ---- */
typedef struct {
    const char *name; /* in the legend; NULL or "": not in it */
    const double *x;  /* (n) counts: steps, instrs; NULL: 0, 1, 2 … */
    const double *y;  /* (n) NaN and infinities are gaps */
    int n;
    double scale; /* of y; 0: 1 */
    double width; /* of the line, pixels; 0: 1.8 */
    int colour;   /* 0: by place, else the colour of the series of that number, from 1 */
    bool dashed, pale, filled;
} ChartSeries;
typedef struct {
    const char *title, *x_label, *y_label;
    const ChartSeries *series;
    int n_series;
    bool from_zero;   /* the y axis takes in 0 */
    const char *note; /* small, at the end of the title's line; NULL: none */
} Chart;
/* Texts are UTF-8; an ellipsis cuts a text that is wider than the picture. A series takes at most 400 KB for any n,
   without gaps 60 KB. */
void chart_svg(const Chart *chart, Buf *out);
/* Text of XML and HTML, also inside "…": escaped; control characters become '?'. */
void markup_text(Buf *out, const char *s);

/* ---- the summary of a run: OUT/run.json (summary.c) ---- */
#define SUMMARY_MOST 32
typedef struct {
    char name[96];
    double value;
} SummaryValue;
typedef struct {
    const char *task, *recompute, *precision, *backend;
    int threads;
    int64_t steps;
    double final_loss, seq_per_s, tokens_per_s, wall_s;
    double save_stall_s; /* longest time that training stood for a save */
    size_t planned_peak_bytes, measured_peak_bytes;
    const double *memory_series; /* (n_memory) bytes live per instr of one step */
    int n_memory;
    const char *config_json;
    SummaryValue regions[SUMMARY_MOST], evals[SUMMARY_MOST]; /* bytes; "dev_matched accuracy" */
    int n_regions, n_evals;
} RunSummary;
void summary_add_region(RunSummary *s, const char *name, size_t bytes);
void summary_add_eval(RunSummary *s, const char *split, const char *metric, double value);
Status summary_write(const char *output_dir, const RunSummary *s);
Status summary_remove(const char *output_dir); /* durably; fine if there is none */

/* A summary read back, with the losses of metrics.jsonl. */
typedef struct {
    Json *doc;
    RunSummary s;           /* points into doc and the arrays below */
    double *memory;         /* (s.n_memory) */
    int64_t *steps;         /* (n_steps) */
    double *losses, *rates; /* (n_steps) loss and learning rate; null is NaN */
    char **loss_texts;      /* (n_steps) as written */
    int n_steps;
} RunRecord;
Status run_record_read(const char *dir, RunRecord *r);
void run_record_free(RunRecord *r); /* takes a zeroed one */

/* ---- OUT/report.html (html.c): self-contained; curves, results, plan, configuration. Reads metrics.jsonl. ---- */
Status report_write(const char *output_dir, const RunSummary *s);

#endif
