/* `cairn embed`: train sentence embeddings, and evaluate them. */
#include <strings.h>

#include "tasks/embed/embed.h"
#include "train/job/evaluation.h"
#include "train/job/result.h"
#include "train/job/task.h"
#include "train/run/adopt.h"
#include "train/run/check.h"
#include "train/run/start.h"

/* run->own. */
typedef struct {
    Adopted adopted; /* with training the way of --model's vectors alone */
    Config config;   /* of training: its batch size counts sequences */
    EmbedColumns columns;
    Coupling coupling;
    Tokenizer *tokenizer;
    EmbedTexts train, dev;
    EmbedSource source;
    float *vectors; // (dev's sequences, hidden)
    double figures[N_EMBED_METRICS], seconds;
} EmbedRun;

/* ---- the use ---- */

static bool planned(const Config *c) { return strcasecmp(c->task, "embed") == 0; }

static Coupling coupling_of(const Config *c, int texts)
{
    static const char *const names[] = {[COUPLE_INFONCE] = "infonce", [COUPLE_COSINE] = "cosine"};
    Coupling k = {.rows = c->batch_size,
                  .texts = texts,
                  .temperature = (float)c->temperature,
                  .margin = (float)c->margin,
                  .symmetric = c->symmetric};
    while (k.loss < COUPLE_TRIPLET && strcmp(c->loss, names[k.loss]) != 0) k.loss++;
    return k;
}

static Status check_pipeline(const Config *c)
{
    if (!place_wanted(c)) return OK;
    return fail(E_USAGE,
                "--pipeline %s: the loss of embeddings is of all texts of a step, and a pipeline never has them "
                "at once; leave it out: the ranks then share each step",
                c->pipeline);
}

static Status check_loss(const Config *c, int texts)
{
    const Coupling k = coupling_of(c, texts);
    CoupleLoss loss = k.loss;
    if (loss == COUPLE_COSINE && texts != 2)
        return fail(E_USAGE, "--loss cosine is of pairs: --text-columns '%s' names %d columns; give two",
                    c->text_columns, texts);
    if (loss == COUPLE_TRIPLET && texts != 3)
        return fail(E_USAGE,
                    "--loss triplet needs a negative: --text-columns '%s' names %d columns; give those of anchor, "
                    "positive and negative",
                    c->text_columns, texts);
    if (c->batch_size < coupling_least_rows(&k))
        return fail(E_USAGE, "--batch-size 1: --loss infonce chooses among the rows of a step; give 2 or more");
    static const struct {
        int option;
        CoupleLoss loss;
    } of[] = {
        {OPTION_temperature, COUPLE_INFONCE}, {OPTION_symmetric, COUPLE_INFONCE}, {OPTION_margin, COUPLE_TRIPLET}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].loss != loss && !config_is_default(c, of[i].option))
            return fail(E_USAGE, "--%s is without effect on --loss %s; leave it out", config_flag(of[i].option),
                        c->loss);
    return OK;
}

static Status check_scores(const Config *c, int texts)
{
    bool cosine = coupling_of(c, texts).loss == COUPLE_COSINE;
    if (cosine && !*c->label_column)
        return fail(E_USAGE, "--loss cosine needs the scores of the pairs: give their column as --label-column");
    if (!cosine && *c->label_column && !c->do_eval)
        return fail(E_USAGE,
                    "--label-column %s is without effect on --loss %s without --do-eval; leave it out, or give "
                    "--loss cosine",
                    c->label_column, c->loss);
    return OK;
}

/* The columns of --task embed without --text-columns: as few as the loss takes. */
static Status plan(const Config *c, Head *head, PlanInput *need)
{
    static Coupling coupling; /* outlives the plan */
    EmbedColumns columns = {0};
    TRY(check_pipeline(c));
    Status status = *c->text_columns ? embed_columns(c->text_columns, "", &columns) : OK;
    const int texts = columns.n ? columns.n : strcmp(c->loss, "triplet") == 0 ? 3 : 2;
    if (status == OK) status = check_loss(c, texts);
    coupling = coupling_of(c, texts);
    *head = (Head){HEAD_EMBEDDING, 0};
    need->evaluation = true;
    need->coupling = &coupling;
    embed_columns_free(&columns);
    return status;
}

static Status check(Run *r)
{
    EmbedRun *own = r->own;
    const Config *c = r->c;
    r->train = c->do_train;
    r->evaluate = c->do_eval;
    if (!c->do_train && !c->do_eval) return fail(E_USAGE, "nothing to do: give --do-train or --do-eval");
    TRY(check_evaluations(c));
    TRY(adopt_embedding(r->given, &r->c, &own->adopted));
    if (!r->train || own->adopted.embedding.said)
        TRY(adopt_options(r, r->train ? ADOPT_NOTHING : ADOPT_COLUMNS, &own->adopted));
    c = r->c;
    if (!*c->text_columns)
        return fail(E_USAGE, "give the columns of the texts as --text-columns anchor,positive[,negative]");
    TRY(embed_columns(c->text_columns, c->label_column, &own->columns));
    if (!r->train) return OK;
    TRY(check_pipeline(c));
    TRY(check_loss(c, own->columns.n));
    TRY(check_scores(c, own->columns.n));
    own->coupling = coupling_of(c, own->columns.n);
    own->config = *c;
    own->config.batch_size *= own->columns.n;
    r->c = &own->config;
    return OK;
}

/* ---- reading ---- */

static Status read_split(Run *r, const char *split, int texts, EmbedScores scores, EmbedTexts *x)
{
    const Config *c = r->c;
    const EmbedRun *own = r->own;
    char *path = NULL;
    if (!*c->data_dir) return fail(E_USAGE, "give the folder of train and dev as --data-dir DIR");
    Status status = records_find(c->data_dir, split, &path);
    if (status == OK && !path)
        status = fail(E_IO,
                      "--data-dir %s: expected %s.tsv, .csv or .jsonl (.ndjson, .json), perhaps with .gz behind, and "
                      "there is no such file%s",
                      c->data_dir, split,
                      strcmp(split, "dev") == 0
                          ? "; validation is another name of dev; without such a file leave out --do-eval"
                          : "");
    if (status == OK)
        status = embed_read(x, path, NULL, 0, &own->columns, texts, scores, own->tokenizer, (int)c->max_seq_length);
    free(path);
    TRY(status);
    run_says(r, "%s: %lld rows of %d texts, %.1f tokens on average, %lld cut at %lld", run_file(r, x->path),
             (long long)x->rows, texts, examples_mean_length(&x->examples), (long long)x->examples.cut,
             (long long)c->max_seq_length);
    return OK;
}

/* Steps without another row to choose from. */
static Status check_rows(const EmbedRun *own)
{
    const EmbedTexts *x = &own->train;
    if (coupling_least_rows(&own->coupling) == 1) return OK;
    if (x->rows == 1)
        return fail(E_FORMAT, "%s: has one row; expected two or more, since --loss infonce chooses among rows",
                    x->path);
    if (x->rows % own->coupling.rows == 1)
        log_warn("%s: the last step of an epoch has one of the %lld rows, and learns nothing from it; give another "
                 "--batch-size",
                 x->path, (long long)x->rows);
    return OK;
}

static Status open_task(Run *r)
{
    EmbedRun *own = r->own;
    const Config *c = r->c;
    bool scored = own->columns.score != NULL;
    r->name = "embeddings";
    r->metric = embed_metric_name(scored ? EMBED_SPEARMAN : EMBED_MRR);
    r->use = (ModelUse){.max_length = c->max_seq_length,
                        .text_columns = c->text_columns,
                        .label_column = c->label_column,
                        .prompts = own->adopted.embedding.prompts,
                        .similarity = own->adopted.embedding.similarity};
    adopt_log(&own->adopted);
    TRY(start_text(c, NULL, &r->text));
    TRY(start_model(c, &r->text, (Head){HEAD_EMBEDDING, 0}, c->max_seq_length, &r->model, NULL));
    adopt_vectors(r, &own->adopted);
    own->tokenizer = tokenizer_new(r->text.vocab, r->text.options);
    if (c->do_eval) TRY(read_split(r, "dev", 2, scored ? SCORES_ANY : SCORES_NONE, &own->dev));
    if (!c->do_train) return OK;
    TRY(read_split(r, "train", own->columns.n, own->coupling.loss == COUPLE_COSINE ? SCORES_COSINES : SCORES_NONE,
                   &own->train));
    TRY(check_rows(own));
    own->source = (EmbedSource){&own->train, (uint64_t)c->seed, c->batch_size / own->columns.n};
    r->source = embed_source(&own->source);
    return OK;
}

static void need(Run *r, PlanInput *n)
{
    const EmbedRun *own = r->own;
    const Examples *dev = &own->dev.examples;
    n->mean_length = examples_mean_length(r->train ? &own->train.examples : dev);
    if (r->train) n->coupling = &own->coupling;
    if (r->evaluate) /* all vectors; with ranks, what travels */
        n->data_bytes = (size_t)dev->count * (size_t)r->model.config.hidden * sizeof(float) * (r->ranks ? 3 : 1) +
                        embed_measure_bytes(&own->dev, r->model.config.hidden);
}

static Digest train_digest(const Run *r) { return ((const EmbedRun *)r->own)->train.examples.digest; }

/* The search tells texts of the same tokens apart. */
static Digest eval_digest(const Run *r)
{
    const EmbedTexts *x = &((const EmbedRun *)r->own)->dev;
    const Digest both[2] = {x->examples.digest, digest_of(x->digests, (size_t)x->examples.count * sizeof *x->digests)};
    return digest_of(both, sizeof both);
}

/* ---- evaluation ---- */

static Status evaluate_dev(Run *r, Buf *text)
{
    EmbedRun *own = r->own;
    const EmbedTexts *x = &own->dev;
    int64_t h = r->model.config.hidden;
    double start = clock_monotonic(), loss;
    if (!own->vectors) own->vectors = mem_array((size_t)(x->examples.count * h), sizeof *own->vectors);
    TRY(evaluation_logits(r, &x->examples, own->vectors, &loss)); /* vectors have no loss */
    for (int64_t i = 0; i < x->examples.count * h; i++)
        if (!isfinite(own->vectors[i]))
            return fail(E_NUMERIC,
                        "%s: the vector of a text of row %lld has the value %g; the model's weights are unusable (see "
                        "`cairn inspect`)",
                        x->path, (long long)(i / h / 2 + 1), (double)own->vectors[i]);
    own->seconds = clock_monotonic() - start;
    TRY(embed_measure(x, own->vectors, (int)h, r->ranks, own->figures));
    buf_puts(text, "dev:");
    for (int m = 0; m < N_EMBED_METRICS; m++)
        if (embed_measures(x, (EmbedMetric)m))
            buf_printf(text, " %s %.4f", embed_metric_name((EmbedMetric)m), own->figures[m]);
    if (x->examples.score && isnan(own->figures[EMBED_SPEARMAN]))
        buf_puts(text, " (nan: it needs two rows or more whose scores differ, and whose cosines do)");
    return OK;
}

static Status evaluate_during(Run *r, double *metric, Buf *text)
{
    const EmbedRun *own = r->own;
    TRY(evaluate_dev(r, text));
    *metric = own->figures[own->columns.score ? EMBED_SPEARMAN : EMBED_MRR];
    return OK;
}

static Status evaluate(Run *r)
{
    const EmbedRun *own = r->own;
    Buf text = {0};
    Status status = evaluate_dev(r, &text);
    if (status == OK)
        log_info("%s (%lld rows, %.1f seq/s)", text.data, (long long)own->dev.rows,
                 (double)own->dev.examples.count / own->seconds);
    buf_free(&text);
    return status;
}

static void figures(const Run *r, EvalFigures *f)
{
    const EmbedRun *own = r->own;
    if (!r->evaluate) return;
    for (int m = 0; m < N_EMBED_METRICS; m++)
        if (embed_measures(&own->dev, (EmbedMetric)m))
            eval_figure(f, "dev", embed_metric_name((EmbedMetric)m), "", own->figures[m], FIGURE_ANYWHERE);
    eval_count(f, "samples", "", own->dev.rows);
    eval_count(f, "texts_cut", "", own->dev.examples.cut);
}

static void close_task(Run *r)
{
    EmbedRun *own = r->own;
    embed_texts_free(&own->train);
    embed_texts_free(&own->dev);
    embed_columns_free(&own->columns);
    tokenizer_free(own->tokenizer);
    adopt_free(&own->adopted);
    free(own->vectors);
}

const Task task_embed = {.size = sizeof(EmbedRun),
                         .folder = true,
                         .planned = planned,
                         .plan = plan,
                         .check = check,
                         .open = open_task,
                         .need = need,
                         .train_digest = train_digest,
                         .eval_digest = eval_digest,
                         .results_there = result_there,
                         .evaluate_during = evaluate_during,
                         .reached = check_patience,
                         .evaluate = evaluate,
                         .figures = figures,
                         .close = close_task};
