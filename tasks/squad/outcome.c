/* The results of `cairn squad`: scores of the dev file, and predictions. */

#include "tasks/squad/run.h"
#include "train/job/evaluation.h"
#include "train/ranks/signals.h"

/* ---- files ---- */

/* predictions.json, nbest_predictions.json and null_odds.json, as run_squad.py names and lays them out. */
typedef struct {
    FileWriter answers, lists, odds;
    bool with_odds;
} Files;

static Status open_file(const Run *r, const SquadSplit *s, const char *name, FileWriter *w)
{
    char *file = mem_printf("%s%s", s->prefix, name), *path = file_join(r->c->output_dir, file);
    Status status = file_writer_open(w, path);
    MEM_FREE(file, path);
    return status;
}

static Status open_files(const Run *r, const SquadSplit *s, Files *f)
{
    f->with_odds = r->c->version_2;
    TRY(file_make_directories(r->c->output_dir));
    TRY(open_file(r, s, "predictions.json", &f->answers));
    TRY(open_file(r, s, "nbest_predictions.json", &f->lists));
    return f->with_odds ? open_file(r, s, "null_odds.json", &f->odds) : OK;
}

static Status write_text(FileWriter *w, Buf *text)
{
    Status status = file_writer_write(w, text->data, text->len);
    buf_free(text);
    return status;
}

static void put_key(Buf *out, const char *id, bool first)
{
    buf_puts(out, first ? "{\n    " : ",\n    ");
    buf_json(out, id);
    buf_puts(out, ": ");
}

static void put_candidate(Buf *out, const SquadCandidate *c)
{
    buf_puts(out, "        {\n            \"text\": ");
    static const char *const names[] = {"probability", "start_logit", "end_logit"};
    const double values[] = {c->probability, c->start, c->end};
    buf_json(out, c->text);
    for (int i = 0; i < 3; i++) {
        buf_printf(out, ",\n            \"%s\": ", names[i]);
        buf_double(out, values[i]);
    }
    buf_puts(out, "\n        }");
}

static Status write_question(Files *f, const char *id, bool first, const SquadPrediction *p)
{
    Buf text = {0};
    put_key(&text, id, first);
    buf_json(&text, p->text);
    TRY(write_text(&f->answers, &text));
    put_key(&text, id, first);
    for (int i = 0; i < p->n; i++) {
        buf_puts(&text, i ? ",\n" : "[\n");
        put_candidate(&text, &p->best[i]);
    }
    buf_puts(&text, "\n    ]");
    TRY(write_text(&f->lists, &text));
    if (!f->with_odds) return OK;
    put_key(&text, id, first);
    buf_double(&text, p->null_odds);
    return write_text(&f->odds, &text);
}

static Status close_files(Files *f)
{
    FileWriter *all[] = {&f->answers, &f->lists, &f->odds};
    for (int i = 0; i < 2 + f->with_odds; i++) {
        TRY(file_writer_write(all[i], "\n}\n", 3));
        TRY(file_writer_close(all[i], NULL, NULL));
    }
    return OK;
}

/* ---- scores ---- */

static Status check_finite(const SquadSplit *s)
{
    const Examples *e = &s->windows.examples;
    for (int64_t i = 0; i < e->count; i++)
        for (int64_t k = 2 * e->offset[i]; k < 2 * e->offset[i + 1]; k++)
            if (!isfinite(s->logits[k]))
                return fail(E_NUMERIC,
                            "%s, question %s: the model's output is %g; its weights are unusable (see `cairn inspect`)",
                            s->file.path, s->file.questions[s->windows.windows[i].question].id, (double)s->logits[k]);
    return OK;
}

/* Answers every question; the scores of a labelled file. `files` NULL: nothing is written. */
static Status answer_questions(const Run *r, SquadSplit *s, Files *files)
{
    const SquadRun *own = r->own;
    const Config *c = r->c;
    SquadChoice choice = {.n_best = (int)c->n_best_size,
                          .max_length = (int)c->max_answer_length,
                          .version_2 = c->version_2,
                          .null_threshold = c->null_score_diff_threshold};
    size_t n = (size_t)s->file.n_questions;
    SquadScore *scores = mem_array(n, sizeof *scores);
    double *odds = mem_array(n, sizeof *odds);
    bool *answered = mem_array(n, sizeof *answered);
    Status status = check_finite(s);
    for (size_t i = 0; i < n && status == OK; i++) {
        const SquadQuestion *q = &s->file.questions[i];
        SquadPrediction p;
        if (*signals_stop()) TRY_DONE(fail(E_STOPPED, "stopped in evaluation"));
        squad_predict(&s->file, &s->windows, q, s->logits, r->text.vocab, own->tokenizer, &choice, &p);
        if (s->labelled) scores[i] = squad_score(q, p.text, c->version_2);
        odds[i] = p.null_odds;
        answered[i] = *p.text != '\0';
        if (files) status = write_question(files, q->id, i == 0, &p);
        squad_prediction_free(&p);
    }
    if (status == OK && s->labelled) squad_figures(&s->file, scores, odds, answered, s->figures);
done:
    MEM_FREE(scores, odds, answered);
    return status;
}

/* Rank 0's; the other ranks write nothing. */
static Status answer_into_files(const Run *r, SquadSplit *s)
{
    Files files = {0};
    Status status;
    if (!run_first(r)) return answer_questions(r, s, NULL);
    status = open_files(r, s, &files);
    if (status == OK) status = answer_questions(r, s, &files);
    if (status == OK) status = close_files(&files);
    file_writer_abandon(&files.answers);
    file_writer_abandon(&files.lists);
    file_writer_abandon(&files.odds);
    return status;
}

static Status evaluate_split(Run *r, SquadSplit *s, bool writes)
{
    const Examples *e = &s->windows.examples;
    double start = clock_monotonic(), loss;
    if (!s->logits) s->logits = mem_array(2 * (size_t)e->offset[e->count], sizeof *s->logits);
    TRY(evaluation_logits(r, e, s->logits, &loss)); /* windows of a dev file have no labels, and no loss */
    s->seconds = clock_monotonic() - start;
    return ranks_all(r->ranks, writes ? answer_into_files(r, s) : answer_questions(r, s, NULL));
}

static void describe_result(const Run *r, const SquadSplit *s, Buf *text)
{
    buf_printf(text, "%s%s:", text->len ? "; " : "", s->name);
    for (int m = SQUAD_EXACT; m <= SQUAD_F1; m++)
        buf_printf(text, " %s %.2f", squad_metric_name((SquadMetric)m, r->c->version_2), s->figures[m]);
}

Status squad_evaluate_during(Run *r, double *metric, Buf *text)
{
    SquadRun *own = r->own;
    SquadSplit *s = &own->splits[0];
    TRY(evaluate_split(r, s, false));
    *metric = s->figures[SQUAD_F1];
    describe_result(r, s, text);
    return OK;
}

void squad_figures_of(const Run *r, EvalFigures *f)
{
    const SquadRun *own = r->own;
    for (int i = 0; i < own->n_splits; i++) {
        const SquadSplit *s = &own->splits[i];
        if (!s->labelled) continue;
        for (int m = 0; m < squad_metrics(r->c->version_2); m++)
            if (!isnan(s->figures[m]))
                eval_figure(f, s->name, squad_metric_name((SquadMetric)m, r->c->version_2), "", s->figures[m],
                            m <= SQUAD_F1 ? FIGURE_ANYWHERE : FIGURE_IN_RUN | FIGURE_IN_RESULTS);
        eval_count(f, "total", "", s->file.n_questions);
        eval_count(f, "windows", "", s->windows.examples.count);
    }
}

Status squad_evaluate(Run *r)
{
    SquadRun *own = r->own;
    for (int i = 0; i < own->n_splits; i++) {
        SquadSplit *s = &own->splits[i];
        Buf text = {0};
        TRY(evaluate_split(r, s, true));
        if (s->labelled)
            describe_result(r, s, &text);
        else
            buf_printf(&text, "%s: answered", s->name);
        log_info("%s (%lld questions, %lld windows, %.1f seq/s)", text.data, (long long)s->file.n_questions,
                 (long long)s->windows.examples.count, (double)s->windows.examples.count / s->seconds);
        buf_free(&text);
    }
    return OK;
}
