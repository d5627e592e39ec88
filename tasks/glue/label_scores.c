/* Precision, recall and F1 of each label, their means, and the confusion matrix. */
#include "tasks/glue/glue.h"

static double share(int64_t part, int64_t whole) { return whole ? (double)part / (double)whole : 0; }

GlueLabelScore glue_label_score(const GlueLabelCounts *c)
{
    return (GlueLabelScore){share(c->right, c->predicted), share(c->right, c->rows),
                            share(2 * c->right, c->predicted + c->rows)};
}

GlueLabelScore glue_label_means(const GlueScores *s, const GlueTask *task, bool weighted)
{
    GlueLabelScore sum = {0};
    double weights = 0;
    for (int i = 0; i < task->n_labels; i++) {
        const GlueLabelCounts *c = &s->labels[i];
        const GlueLabelScore x = glue_label_score(c);
        double weight = weighted ? (double)c->rows : task->multi || c->rows + c->predicted > 0;
        sum.precision += weight * x.precision;
        sum.recall += weight * x.recall;
        sum.f1 += weight * x.f1;
        weights += weight;
    }
    weights = fmax(weights, 1); /* where it is 0, all sums are 0 */
    return (GlueLabelScore){sum.precision / weights, sum.recall / weights, sum.f1 / weights};
}

/* ---- as JSON ---- */

static void put_score(Buf *out, GlueLabelScore x)
{
    buf_member(out, "precision", x.precision);
    buf_member(out, "recall", x.recall);
    buf_member(out, "f1", x.f1);
}

static void put_matrix(const GlueScores *s, int n, Buf *out)
{
    buf_puts(out, ",\n      \"confusion_matrix\": [");
    for (int i = 0; i < n; i++) {
        buf_puts(out, i ? ",\n        [" : "\n        [");
        for (int k = 0; k < n; k++) buf_printf(out, "%s%lld", k ? ", " : "", (long long)s->matrix[i * n + k]);
        buf_puts(out, "]");
    }
    buf_puts(out, "]");
}

void glue_label_scores_put(const GlueScores *s, const GlueTask *task, Buf *out)
{
    buf_puts(out, "{\n      \"labels\": [");
    for (int i = 0; i < task->n_labels; i++) {
        const GlueLabelCounts *c = &s->labels[i];
        buf_puts(out, i ? ",\n        {" : "\n        {");
        buf_member_text(out, "label", task->labels[i]);
        put_score(out, glue_label_score(c));
        buf_member(out, "support", (double)c->rows);
        buf_member(out, "predicted", (double)c->predicted);
        buf_puts(out, "}");
    }
    buf_puts(out, "],\n      \"macro\": {");
    put_score(out, glue_label_means(s, task, false));
    buf_puts(out, "},\n      \"weighted\": {");
    put_score(out, glue_label_means(s, task, true));
    buf_puts(out, "}");
    if (s->matrix) put_matrix(s, task->n_labels, out);
    buf_puts(out, "\n    }");
}
