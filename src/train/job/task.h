/* A task: the part of a run that is special to one kind of training (GLUE, pretraining). The run (train/run/run.h) owns
   the ranks, the plan, the session, the loop and the output folder; it asks the task through this table and nothing
   else. A task is a folder with such a table and a reader; docs/design.md, "The life of a run", says how it is
   registered.

   The run asks in the order below. `run->own` is the task's own struct of `size` bytes, zeroed at the start.
   Functions marked "rank 0" run there alone. Those marked "collective" run on all ranks and may meet. All others run
   on every rank by itself and must not meet, because an error of one rank must reach the others. */
#pragma once

#include "report/report.h"
#include "state/models/import.h"
#include "train/job/job.h"

/* Where a figure of an evaluation goes: a line of eval.jsonl for one during training; run.json; eval_results.json and
   .txt, with keys as Hugging Face and Google name them, "eval_" NAME SUFFIX. */
enum { FIGURE_IN_LINES = 1, FIGURE_IN_RUN = 2, FIGURE_IN_RESULTS = 4, FIGURE_ANYWHERE = 7 };
typedef struct {
    const char *split, *name, *suffix;
    double value;
    int places;
} EvalFigure;
typedef struct {
    EvalFigure *items; // (n) in the order of eval_results.json
    int n, cap;
} EvalFigures;
void eval_figure(EvalFigures *f, const char *split, const char *name, const char *suffix, double value, int places);
void eval_count(EvalFigures *f, const char *name, const char *suffix, int64_t count); /* in eval_results alone */

struct Task {
    size_t size;
    bool folder; /* it has --output-dir; else it evaluates alone */

    /* ---- `cairn plan`, which makes no Run. `plan` NULL: it plans no such run ---- */
    /* Whether its options describe this task. NULL: it is the task that `cairn plan` takes where no
       other describes the options. Only one may be so. */
    bool (*planned)(const Config *c);
    /* The head of the task's model, and what a plan needs beyond the training that every task has. E_USAGE. */
    Status (*plan)(const Config *c, Head *head, PlanInput *need);

    /* ---- before the first step ---- */
    /* Errors in the use, found before the ranks meet and before anything is read. Sets run->train, and where it knows
       it already run->evaluate. May replace run->c by a configuration of its own. */
    Status (*check)(Run *run);
    /* Collective; NULL: none. Makes the data that training needs. May replace run->c. */
    Status (*prepare)(Run *run);
    /* Reads text, model and data: fills run->text, run->model, run->name, run->source, run->evaluate. */
    Status (*open)(Run *run);
    /* Lengths and sizes that the plan must have room for; the schedule is known. May warn. */
    void (*need)(Run *run, PlanInput *need);
    /* NULL: none. A check of all data, which may take minutes; run->resume and the plan are there. */
    Status (*check_data)(Run *run);
    Digest (*train_digest)(const Run *run); /* of all training data, for the fingerprint */
    Digest (*eval_digest)(const Run *run);  /* of all evaluation data */
    /* Rank 0; NULL: never. The output folder holds the results of this very run, as of run->resume. */
    bool (*results_there)(const Run *run);
    /* Rank 0; NULL: none. Opens the task's files beside the run's own. */
    Status (*open_output)(Run *run);
    /* Rank 0; NULL: none. Checks and adapts weights that were imported from --model. */
    Status (*take_import)(Run *run, const ImportReport *report, float *weights);

    /* ---- training ---- */
    Status (*training_begins)(Run *run);                 /* collective; NULL: none */
    void (*step_ends)(Run *run, const StepRecord *step); /* rank 0; NULL: none. Its line of metrics.jsonl is written */
    void (*training_ends)(Run *run, Status how);         /* NULL: none */
    /* Collective. Evaluates in the middle of training. `metric` picks the best model: larger is better, and NaN never.
       `text` is one line for people. May return E_STOPPED. */
    Status (*evaluate_during)(Run *run, double *metric, Buf *text);
    bool (*reached)(const Run *run, const TrainProgress *p); /* NULL: never. Training ends after such an evaluation */

    /* ---- the end ---- */
    Status (*evaluate)(Run *run); /* collective; writes predictions */
    /* The figures of the last evaluation; NULL: none. Before the first they have their names alone. */
    void (*figures)(const Run *run, EvalFigures *f);
    void (*members)(const Run *run,
                    Buf *json); /* NULL: none. Further members of eval_results.json, a comma before each */
    void (*close)(Run *run);    /* frees the contents of run->own */
};
static inline bool task_reached(const Run *r, const TrainProgress *p)
{
    return r->task->reached && r->task->reached(r, p);
}
