/* The table of GLUE tasks. Everything that differs between tasks is a row here. */
#include "tasks/glue/glue.h"

/* ---- columns ---- */

static const GlueLayout cola_labelled = {.a = "3", .label = "1", .columns = 4};
static const GlueLayout cola_test = {.index = "index", .a = "sentence"};
static const GlueLayout sst_labelled = {.a = "sentence", .label = "label"};
static const GlueLayout sst_test = {.index = "index", .a = "sentence"};
static const GlueLayout mrpc_labelled = {.a = "#1 String", .b = "#2 String", .label = "Quality"};
static const GlueLayout mrpc_test = {.index = "index", .a = "#1 String", .b = "#2 String"};
static const GlueLayout qqp_labelled = {.a = "question1", .b = "question2", .label = "is_duplicate"};
static const GlueLayout qqp_test = {.index = "id", .a = "question1", .b = "question2"};
static const GlueLayout qnli_labelled = {.a = "question", .b = "sentence", .label = "label"};
static const GlueLayout qnli_test = {.index = "index", .a = "question", .b = "sentence"};
static const GlueLayout sts_labelled = {.a = "sentence1", .b = "sentence2", .label = "score"};
static const GlueLayout mnli_labelled = {.a = "sentence1", .b = "sentence2", .label = "gold_label"};
static const GlueLayout pair_labelled = {.a = "sentence1", .b = "sentence2", .label = "label"};
static const GlueLayout pair_test = {.index = "index", .a = "sentence1", .b = "sentence2"};

/* ---- labels, numbered as Hugging Face does ---- */

static const char *const zero_one[] = {"0", "1"};
static const char *const two_way[] = {"entailment", "not_entailment"};
static const char *const three_way[] = {"entailment", "neutral", "contradiction"};

#define LABELS(list) .labels = list, .n_labels = (int)(sizeof(list) / sizeof *(list))
/* `picks`: the metric that picks the best checkpoint; then all metrics. */
#define METRICS(picks, ...)                                                                                            \
    .best = picks, .metrics = {__VA_ARGS__},                                                                           \
    .n_metrics = (int)(sizeof((GlueMetric[]){__VA_ARGS__}) / sizeof(GlueMetric))
#define SPLITS(n, ...) .splits = {__VA_ARGS__}, .n_splits = (n)
#define TASK(called, labelled, unlabelled)                                                                             \
    .name = called, SPLITS(3, {GLUE_TRAIN, "train", "train.tsv", "", NULL, labelled},                                  \
                           {GLUE_DEV, "dev", "dev.tsv", "", NULL, labelled},                                           \
                           {GLUE_TEST, "test", "test.tsv", "", called ".tsv", unlabelled})
#define ACCURACY METRICS(GLUE_ACCURACY, GLUE_ACCURACY)
#define BOTH     METRICS(GLUE_COMBINED, GLUE_ACCURACY, GLUE_F1, GLUE_COMBINED)

static const GlueTask tasks[] = {
    {TASK("CoLA", &cola_labelled, &cola_test), LABELS(zero_one), METRICS(GLUE_MATTHEWS, GLUE_MATTHEWS)},
    {TASK("SST-2", &sst_labelled, &sst_test), LABELS(zero_one), ACCURACY},
    {TASK("MRPC", &mrpc_labelled, &mrpc_test), LABELS(zero_one), BOTH},
    {TASK("STS-B", &sts_labelled, &pair_test), .n_labels = 1, .regression = true, .low = 0, .high = 5,
     METRICS(GLUE_COMBINED, GLUE_PEARSON, GLUE_SPEARMAN, GLUE_COMBINED)},
    {TASK("QQP", &qqp_labelled, &qqp_test), LABELS(zero_one), BOTH, .skip_short_rows = true},
    {.name = "MNLI",
     LABELS(three_way),
     ACCURACY,
     .skip_label = "-",
     SPLITS(5, {GLUE_TRAIN, "train", "train.tsv", "", NULL, &mnli_labelled},
            {GLUE_DEV, "dev_matched", "dev_matched.tsv", "", NULL, &mnli_labelled},
            {GLUE_DEV, "dev_mismatched", "dev_mismatched.tsv", "_mm", NULL, &mnli_labelled},
            {GLUE_TEST, "test_matched", "test_matched.tsv", "", "MNLI-m.tsv", &pair_test},
            {GLUE_TEST, "test_mismatched", "test_mismatched.tsv", "_mm", "MNLI-mm.tsv", &pair_test})},
    {TASK("QNLI", &qnli_labelled, &qnli_test), LABELS(two_way), ACCURACY},
    {TASK("RTE", &pair_labelled, &pair_test), LABELS(two_way), ACCURACY},
    {TASK("WNLI", &pair_labelled, &pair_test), LABELS(zero_one), ACCURACY},
    {.name = "AX",
     .folder = "diagnostic",
     LABELS(three_way),
     .best = GLUE_ACCURACY,
     .model_task = "MNLI",
     SPLITS(1, {GLUE_TEST, "test", "diagnostic.tsv", "", "AX.tsv", &pair_test})},
};

#define N_TASKS ((int)(sizeof tasks / sizeof *tasks))

static const char *const metric_names[] = {
#define X(name, text) text,
    GLUE_METRIC_LIST(X)
#undef X
};

/* ---- lookup ---- */

/* Equal apart from case, "-" and "_". */
static bool same_name(const char *a, const char *b)
{
    for (;;) {
        while (*a == '-' || *a == '_') a++;
        while (*b == '-' || *b == '_') b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
        a++, b++;
    }
}

const GlueTask *glue_task_at(int i) { return i < N_TASKS ? &tasks[i] : NULL; }

bool glue_task_is_custom(const char *name) { return same_name(name, "custom"); }

Status glue_task_find(const char *name, const GlueTask **task)
{
    for (int i = 0; (*task = glue_task_at(i)); i++)
        if (same_name(name, (*task)->name)) return OK;
    if (glue_task_is_custom(name))
        return fail(E_USAGE, "--task custom has no columns of its own: give --text-columns and --label-column");
    Buf known = {0};
    for (int i = 0; i < N_TASKS; i++) buf_printf(&known, "%s ", tasks[i].name);
    Status status = fail(E_USAGE, "--task '%s' is unknown; expected one of %sor custom", name, known.data);
    buf_free(&known);
    return status;
}

Status glue_split_find(const GlueTask *task, const char *name, const GlueSplit **split)
{
    *split = NULL;
    for (int i = 0; i < task->n_splits; i++) {
        if (same_name(name, task->splits[i].name)) {
            *split = &task->splits[i];
            return OK;
        }
    }
    Buf known = {0};
    for (int i = 0; i < task->n_splits; i++) buf_printf(&known, "%s%s", i ? ", " : "", task->splits[i].name);
    Status status = fail(E_USAGE, "task %s has no split '%s'; expected one of %s", task->name, name, known.data);
    buf_free(&known);
    return status;
}

const GlueSplit *glue_split_at(const GlueTask *task, GlueSplitKind kind, int i)
{
    for (int k = 0; k < task->n_splits; k++) {
        if (task->splits[k].kind == kind && i-- == 0) return &task->splits[k];
    }
    return NULL;
}

int32_t glue_label_find(const GlueTask *task, const char *text, size_t len)
{
    RecordText as_is = {text, len}, trimmed = record_trim(as_is);
    int n = task->regression ? 0 : task->n_labels;
    for (int32_t i = 0; i < n; i++)
        if (record_text_is(as_is, task->labels[i])) return i;
    for (int32_t i = 0; i < n; i++) {
        RecordText name = record_trim((RecordText){task->labels[i], strlen(task->labels[i])});
        if (name.len == trimmed.len && memcmp(name.p, trimmed.p, name.len) == 0) return i;
    }
    return -1;
}

bool glue_task_has_pairs(const GlueTask *task)
{
    for (int i = 0; i < task->n_splits; i++)
        if (task->splits[i].layout->b) return true;
    return false;
}

const char *glue_metric_name(GlueMetric metric) { return metric_names[metric]; }
