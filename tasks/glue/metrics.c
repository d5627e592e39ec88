/* GLUE's metrics. Classification needs counts; regression keeps all values, because centred sums and ranks need
   them. */
#include "base/correlation.h"
#include "tasks/glue/glue.h"

int32_t glue_argmax(const float *values, int n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        if (values[i] > values[best]) best = i;
    }
    return best;
}

void glue_probabilities(const GlueTask *task, float *values, int64_t rows)
{
    int n = task->n_labels;
    for (int64_t r = 0; r < rows && !task->regression; r++) {
        float *x = values + r * n;
        double largest = (double)x[0], sum = 0;
        for (int i = 1; i < n; i++)
            if ((double)x[i] > largest) largest = (double)x[i];
        for (int i = 0; i < n; i++) sum += exp((double)x[i] - largest);
        for (int i = 0; i < n; i++)
            x[i] = task->multi ? (float)(1 / (1 + exp(-(double)x[i]))) : (float)(exp((double)x[i] - largest) / sum);
    }
}

void glue_put_labels(const GlueTask *task, const float *probabilities, Buf *out)
{
    bool any = false;
    if (!task->multi) buf_puts(out, task->labels[glue_argmax(probabilities, task->n_labels)]);
    for (int i = 0; i < task->n_labels && task->multi; i++) {
        if (probabilities[i] <= 0.5f) continue;
        buf_printf(out, "%s%s", any ? "," : "", task->labels[i]);
        any = true;
    }
}

void glue_scores_add_score(GlueScores *s, double predicted, double truth)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 1024;
        s->predicted = mem_resize(s->predicted, (size_t)s->cap, sizeof *s->predicted);
        s->truth = mem_resize(s->truth, (size_t)s->cap, sizeof *s->truth);
    }
    s->predicted[s->n] = predicted;
    s->truth[s->n++] = truth;
}

static void add_labels(GlueScores *s, const GlueTask *task, const float *values, const GlueExample *e)
{
    size_t n = (size_t)task->n_labels;
    int32_t likely = glue_argmax(values, task->n_labels);
    bool correct = true;
    if (!s->labels) {
        s->labels = mem_array(n, sizeof *s->labels);
        if (!task->multi && n <= GLUE_MOST_MATRIX) s->matrix = mem_array(n * n, sizeof *s->matrix);
    }
    for (int32_t i = 0; i < task->n_labels; i++) {
        bool predicted = task->multi ? glue_has_label(values[i]) : i == likely;
        bool truth = task->multi ? e->targets[i] > 0.5f : i == e->label;
        correct = correct && predicted == truth;
        s->labels[i].right += predicted && truth;
        s->labels[i].predicted += predicted;
        s->labels[i].rows += truth;
    }
    if (s->matrix) s->matrix[e->label * task->n_labels + likely]++;
    s->n++;
    s->correct += correct;
}

void glue_scores_add(GlueScores *s, const GlueTask *task, const float *values, const GlueExample *example)
{
    CHECK(task->regression || (task->multi ? example->targets != NULL : example->label >= 0), "line %lld has no label",
          (long long)example->line);
    if (task->regression)
        glue_scores_add_score(s, (double)values[0], (double)example->score);
    else
        add_labels(s, task, values, example);
}

void glue_scores_free(GlueScores *s)
{
    MEM_FREE(s->labels, s->matrix, s->predicted, s->truth);
    *s = (GlueScores){0};
}

/* ---- classification ---- */

/* Label 1's, or with several labels that of all labels' counts. */
static double f1(const GlueScores *s, const GlueTask *task)
{
    GlueLabelCounts sum = {0};
    if (!task->multi) return glue_label_score(&s->labels[1]).f1;
    for (int i = 0; i < task->n_labels; i++) {
        sum.right += s->labels[i].right;
        sum.predicted += s->labels[i].predicted;
        sum.rows += s->labels[i].rows;
    }
    return glue_label_score(&sum).f1;
}

static double matthews(const GlueScores *s)
{
    const GlueLabelCounts *positive = &s->labels[1];
    double tp = (double)positive->right, fp = (double)positive->predicted - tp;
    double fn = (double)positive->rows - tp, tn = (double)s->n - tp - fp - fn;
    double predicted = (tp + fp) * (tn + fn), truth = (tp + fn) * (tn + fp);
    if (predicted == 0 || truth == 0) return 0.0;
    return (tp * tn - fp * fn) / (sqrt(predicted) * sqrt(truth));
}

/* ---- one metric ---- */

static double combined(const GlueScores *s, const GlueTask *task)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < task->n_metrics; i++) {
        if (task->metrics[i] == GLUE_COMBINED) continue;
        sum += glue_scores_value(s, task, task->metrics[i]);
        n++;
    }
    return n ? sum / n : NAN;
}

double glue_scores_value(const GlueScores *s, const GlueTask *task, GlueMetric metric)
{
    if (s->n == 0) return NAN;
    switch (metric) {
    case GLUE_ACCURACY:
        return (double)s->correct / (double)s->n;
    case GLUE_F1:
        return f1(s, task);
    case GLUE_MATTHEWS:
        return matthews(s);
    case GLUE_PEARSON:
        return correlation_pearson(s->predicted, s->truth, (size_t)s->n);
    case GLUE_SPEARMAN:
        return correlation_spearman(s->predicted, s->truth, (size_t)s->n);
    case GLUE_COMBINED:
        return combined(s, task);
    case GLUE_MACRO_F1:
    case GLUE_WEIGHTED_F1:
        return glue_label_means(s, task, metric == GLUE_WEIGHTED_F1).f1;
    case N_GLUE_METRICS:
        break;
    }
    CHECK(0, "metric %d", (int)metric);
    return NAN;
}

static bool constant(const double *x, size_t n) // (n)
{
    for (size_t i = 1; i < n; i++)
        if (x[i] != x[0]) return false;
    return true;
}

void glue_scores_undefined(const GlueScores *s, const GlueTask *task, char *why, size_t room)
{
    bool undefined = false;
    *why = '\0';
    for (int i = 0; i < task->n_metrics; i++) undefined |= isnan(glue_scores_value(s, task, task->metrics[i]));
    if (!undefined) return;
    if (s->n < 2)
        snprintf(why, room, "a correlation needs two rows or more, and there are %lld", (long long)s->n);
    else if (constant(s->truth, (size_t)s->n))
        snprintf(why, room, "the correlation is undefined where every label is the same, here %g", s->truth[0]);
    else if (constant(s->predicted, (size_t)s->n))
        snprintf(why, room, "the correlation is undefined where every prediction is the same, here %g",
                 s->predicted[0]);
    else
        snprintf(why, room, "labels or predictions are too large or too close to each other for a double");
}
