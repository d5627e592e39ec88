/* The record of a run: a line per step in metrics.jsonl and for TensorBoard, a progress line, a summary (run.json),
   charts and report.html. Files are written durably or line by line. Nothing here changes a result. */
#pragma once

#include "base/base.h"

/* ---- per step: OUT/metrics.jsonl and OUT/events.out.tfevents.* (metrics.c, tfevents.c) ---- */
typedef struct {
    bool of_grads, of_weights; /* taken: of the summed gradients; of the weights after the update */
    uint64_t grads, weights;
} StepDigests;

typedef struct {
    int64_t step;
    double epoch, loss, lr, grad_norm;
    double seq_per_s, tokens_per_s; /* of this step; real sequences and tokens, not padding */
    size_t peak_bytes;              /* session_memory_used, largest so far */
    double wall_s;                  /* of all processes of the run, this one since its start */
    double trained_s;               /* in training, all processes of the run */
    bool pretraining;               /* then: parts of the loss; NaN where there is none */
    double mlm_loss, mlm_accuracy, nsp_loss;
    double loss_scale;   /* this update's; 0: not fp16 */
    int64_t skipped;     /* updates skipped since training began */
    bool pipeline;       /* in a pipeline: */
    double bubble;       /* the share of the ranks' time until the last work that has none */
    double filled;       /* with K-FAC, the share of the bubble that its work takes */
    double exposed_s;    /* of sums behind the last work and K-FAC's work outside gaps, of the rank with most */
    bool fill_measured;  /* with K-FAC, its work had places by measured times, not by predicted ones */
    bool kfac;           /* with K-FAC: */
    double kfac_norm;    /* of the tensors that it preconditions; grad_norm is of the others */
    int64_t kfac_set;    /* whose inverses the update used, from 0 */
    int64_t kfac_failed; /* linears that this step's inversion left with their former inverses; −1: it inverted none */
    StepDigests digests;
} StepRecord;

typedef struct Metrics Metrics;

/* Appends. A torn last line and the lines that the run writes again are cut off first, so that the files read as if the
   run had never stopped: steps after `step`, and evaluations after that of step `evaluated`, the last one that the
   state at `step` knows of (0: none). An evaluation of `step` itself may be still to come. */
Status metrics_open(Metrics **m, const char *output_dir, int64_t step, int64_t evaluated);
Status metrics_step(Metrics *m, const StepRecord *r);
/* trained_s of the last step that the file had when it was opened; 0: none. */
double metrics_trained(const Metrics *m);
double metrics_wall(const Metrics *m);             /* wall_s of the last step of all, also of one that was cut off */
void metrics_line(const StepRecord *r, Buf *line); /* its line of metrics.jsonl */
/* Adds the line of step r->step where exactly that line is missing, because rank 0 was lost before it wrote it. A file
   that is missing gets it as its only line. */
Status metrics_complete(const char *output_dir, const StepRecord *r);
/* Does so with the only line of the file in the folder `other`, if there is one. */
Status metrics_join(const char *output_dir, const char *other);
/* A figure of an evaluation during training: to eval.jsonl and TensorBoard ("eval/dev_matched/accuracy"). Without `m`
   (NULL) it does nothing. */
Status metrics_eval(Metrics *m, int64_t step, const char *split, const char *metric, double value);
/* The path of a file that was removed or replaced while it was written; NULL: none. */
const char *metrics_lost(const Metrics *m);
void metrics_close(Metrics *m); /* takes NULL */

typedef struct TfEvents TfEvents;
/* TensorBoard's event file, a new one: TFRecord frames of Event messages (tensorflow/core/util/event.proto). Its
   start mark makes TensorBoard ignore the steps after `step` in older files of the folder. */
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
    const double *x;  /* (n) NULL: 0, 1, 2 … */
    const double *y;  /* (n) NaN and infinities are gaps */
    int n;
    double scale;              /* of y; 0: 1 */
    double width;              /* of the line, pixels; 0: 1.8 */
    int colour;                /* 0: by place, else the colour of the series of that number, from 1 */
    bool dashed, pale, filled; /* `dashed`: else dashes by place where several series have names */
    bool dots, unjoined;       /* a dot at each point; no line between them */
    int mark;                  /* a dot at the point of that number, from 1; 0: none */
} ChartSeries;
typedef struct {
    const char *title, *x_label, *y_label;
    const ChartSeries *series;
    int n_series;
    bool from_zero;    /* the y axis takes in 0 */
    const char *note;  /* small, right of the title; NULL: none */
    const char *about; /* a line below the title; NULL or "": none */
    bool fractions;    /* of x; else it counts steps, instrs … */
    bool from_zero_x;  /* the x axis takes in 0 */
    bool margin;       /* left and right of the points */
    int width;         /* of the picture, pixels; 0: 860 */
} Chart;
/* Series with the same points are drawn as dashes that take turns, their dots as rings. Where each series has dots at a
   few places x, the ticks are these. Texts are UTF-8; elements have classes (paper, grid, note, c0 … c8 for strokes, f0
   … f8 for fills), by which a page can give other colours; an ellipsis cuts a text that is wider than the picture. A
   series takes at most 400 KB for any n, without gaps 60 KB. */
void chart_svg(const Chart *chart, Buf *out);
/* Series with names and points of their own (chart_lines.c). Zero-initialise; the caller may set more of a series. */
typedef struct {
    char *name;
    double *x, *y; // (cap)
    int cap;
} ChartPoints;
typedef struct {
    ChartSeries *series; // (n)
    ChartPoints *points; // (n)
    int n, cap;
} ChartLines;
int chart_line(ChartLines *l, const char *name);       /* adds a line; its place */
int chart_line_named(ChartLines *l, const char *name); /* the line of that name; adds it at first */
void chart_point(ChartLines *l, int line, double x, double y);
void chart_lines_free(ChartLines *l);
/* ---- timelines of pipelines (schedule_svg.c) ---- */
typedef enum {
    BAR_FORWARD,
    BAR_BACKWARD,
    BAR_INPUT,
    BAR_WEIGHT,
    BAR_CURVATURE,
    BAR_INVERSE,
    BAR_SUM,
    BAR_UPDATE,
    N_BARS
} BarKind;
typedef struct {
    int row;
    BarKind kind;
    double start, end; /* seconds */
    int number;        /* written on it where it is wide enough; below 0: none */
} TimelineBar;
typedef struct {
    char title[200];
    int rows;
    TimelineBar *bars; /* (n) later ones lie on top */
    int n, cap;
} TimelinePanel;
void timeline_add(TimelinePanel *panel, TimelineBar bar);
void timeline_panels_free(TimelinePanel *panels, int n);
/* Panels below each other, on one axis of milliseconds. `rows`: what a row is, "places of the pipeline". */
void schedule_svg(const TimelinePanel *panels, int n, const char *rows, Buf *out);
/* file_write_text of a picture, with the colours of the page on a dark screen (page.c). */
Status svg_write(const char *folder, const char *name, Buf *svg);
void svg_begin(Buf *out, int width, int height); /* the start of every picture; "</svg>" ends it */
/* Text of XML and HTML, also inside "…": escaped; control characters become '?', invalid UTF-8 U+FFFD. */
void markup_text(Buf *out, const char *s);
/* About the width of a text in the wider of the usual sans-serif fonts; never much too small. */
double markup_text_width(const char *s, double size);
/* The text, or as much of it as fits with an ellipsis behind it. */
void markup_fitting(Buf *out, const char *s, double size, double room);

/* ---- the summary of a run: OUT/run.json (summary.c) ---- */
#define SUMMARY_MOST 32
#define SUMMARY_HOST "host: " /* begins the name of a region of a device's run that lies in the host's memory */
typedef struct {
    char name[96];
    double value;
} SummaryValue;
typedef struct {
    const char *task, *recompute, *precision, *backend;
    const char *version, *started, *hosts; /* Cairn's; UTC; "node1 (4 ranks), node2 (4 ranks)" */
    const char *folder, *command;          /* where it was started, and its command line */
    const char *again;                     /* the command that makes the same run again */
    const char *model, *device;            /* "BERT of 12 layers, …"; a GPU or a processor */
    const char *waited_for;                /* the rank that the others waited for, and how long; NULL or "": none */
    const char *while_saving;              /* the plan then, or that training waits; NULL or "": as otherwise */
    const char *best;                      /* the best evaluation while training, and its step; likewise */
    int ranks, threads;
    int64_t steps;
    double final_loss, seq_per_s, tokens_per_s, wall_s;
    double micro_batches;                /* of a step of one rank */
    double save_stall_s;                 /* longest time that training waited for a save */
    double planned_step_s, bound_step_s; /* predicted; no schedule within the budget takes less: 0, not known */
    size_t bound_peak_bytes;             /* none that is as fast peaks lower */
    size_t planned_peak_bytes, measured_peak_bytes;
    const double *memory_series; /* (n_memory) bytes live per instr of one step */
    int n_memory;
    const char *config_json, *fingerprint; /* JSON objects: options; facts that the bits depend on (train/job/job.h) */
    SummaryValue regions[SUMMARY_MOST], evals[SUMMARY_MOST]; /* bytes; "dev_matched accuracy" */
    int n_regions, n_evals;
} RunSummary;
void summary_add_region(RunSummary *s, const char *name, size_t bytes);
void summary_add_eval(RunSummary *s, const char *split, const char *metric, double value);
double summary_value(const SummaryValue *values, int n, const char *name); /* NaN: there is none of that name */
Status summary_write(const char *output_dir, const RunSummary *s);
/* Reads it back; the caller frees with js_free. E_FORMAT: not JSON, or of a format that this version does not know. */
Status summary_read(const char *path, Json **doc);
Status summary_remove(const char *output_dir); /* durably; fine if there is none */

/* ---- OUT/report.html (html.c): self-contained; curves, results, plan, configuration. Reads run.json, metrics.jsonl,
   and the record of faults. ---- */
Status report_write(const char *output_dir);
