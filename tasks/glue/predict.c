/* `cairn predict`: labels and probabilities, or vectors, of texts of any number, read and written in blocks. Rank 0
   reads and writes; each rank evaluates a share of each block. */
#include <sys/stat.h>
#include <unistd.h>

#include "tasks/glue/predict_output.h"
#include "tasks/glue/run.h"
#include "train/job/evaluation.h"
#include "train/ranks/signals.h"
#include "train/run/adopt.h"
#include "train/run/check.h"
#include "train/run/start.h"

enum { BLOCK_ROWS = 4096, BLOCK_KEPT = 16 << 20 }; /* rows, and bytes of --keep-columns, that end a block */

/* run->own. */
typedef struct {
    Adopted adopted; /* length and columns, as the model was trained */
    GlueCustom custom;
    Tokenizer *tokenizer;
    Records *records; /* rank 0's */
    FileWriter writer;
    PredictOutput output;
    bool to_file;
    Examples block;
    size_t cap;    /* tokens that the block has room for */
    float *values; // (BLOCK_ROWS, labels of the head)
    double started;
    RunStage stage; /* and the texts so far */
} PredictRun;

static Status check(Run *r)
{
    static const int of_vectors[] = {OPTION_pooling, OPTION_normalize};
    PredictRun *p = r->own;
    p->to_file = *r->c->output && strcmp(r->c->output, "-") != 0;
    p->started = clock_monotonic();
    r->train = false;
    r->evaluate = true;
    if (!*r->c->model) return fail(E_USAGE, "give the trained model as --model DIR");
    TRY(predict_output_init(&p->output, r->c));
    for (int i = 0; i < 2 && !r->c->embed; i++)
        if (!config_is_default(r->c, of_vectors[i]))
            return fail(E_USAGE, "--%s is of vectors: give --embed too, or leave it out", config_flag(of_vectors[i]));
    if (r->c->embed) TRY(adopt_embedding(r->given, &r->c, &p->adopted));
    return check_model(r->c->model);
}

/* The output would replace the input. */
static Status check_output(const Config *c)
{
    struct stat in, out;
    if (stat(c->input, &in) != 0 || stat(c->output, &out) != 0 || !S_ISREG(in.st_mode)) return OK;
    if (in.st_dev != out.st_dev || in.st_ino != out.st_ino) return OK;
    return fail(E_USAGE, "--output %s is the input, which it would replace; give another file", c->output);
}

static Status open_input(const Run *r)
{
    PredictRun *p = r->own;
    const GlueLayout *l = &p->custom.unlabelled;
    bool given = *r->given->text_columns;
    RecordsOptions o = {.columns = {l->a, l->b},
                        .n = l->b ? 2 : 1,
                        .without_header = l->columns,
                        .plain_lines = !given && !l->b,
                        .advice = given ? NULL : "; name the columns of texts by --text-columns",
                        .stop = signals_stop()};
    if (p->to_file) TRY(check_output(r->c));
    TRY(predict_output_columns(&p->output, &o));
    TRY(records_open(&p->records, *r->c->input ? r->c->input : "-", &o));
    if (p->to_file) TRY(file_writer_open(&p->writer, r->c->output));
    if (p->output.npy && !p->writer.temporary)
        return fail(E_USAGE, "--output %s: expected a regular file, whose beginning is written last", r->c->output);
    return OK;
}

/* The labels of the model and their columns, or its vectors and one column. */
static Status open_outputs(Run *r)
{
    PredictRun *p = r->own;
    bool embed = r->c->embed;
    TRY(adopt_options(r, embed ? ADOPT_TEXTS : ADOPT_COLUMNS, &p->adopted));
    adopt_log(&p->adopted);
    TRY(glue_custom_init(&p->custom, *r->c->text_columns ? r->c->text_columns : "text", NULL, "", false));
    if (!embed) TRY(glue_custom_labels_of_model(&p->custom, r->c->model));
    if (embed && p->custom.unlabelled.b)
        return fail(E_USAGE, "--text-columns %s: --embed makes a vector of each text; give one column",
                    r->c->text_columns);
    p->output.task = embed ? NULL : &p->custom.task;
    return OK;
}

static Status open_task(Run *r)
{
    PredictRun *p = r->own;
    TRY(open_outputs(r));
    r->name = "predict";
    TRY(start_text(r->c, NULL, &r->text));
    Head head = r->c->embed ? (Head){.kind = HEAD_EMBEDDING} : glue_head(&p->custom.task);
    TRY(start_model(r->c, &r->text, head, r->c->max_seq_length, &r->model, NULL));
    adopt_vectors(r, &p->adopted);
    p->tokenizer = tokenizer_new(r->text.vocab, r->text.options);
    p->output.n = r->model.head.labels;
    p->block.offset = mem_array(BLOCK_ROWS + 1, sizeof *p->block.offset);
    p->values = mem_array((size_t)BLOCK_ROWS * (size_t)r->model.head.labels, sizeof *p->values);
    return run_first(r) ? open_input(r) : OK;
}

static void need(Run *r, PlanInput *n) { n->mean_length = (double)r->c->max_seq_length; }

/* The input is rank 0's alone. */
static Digest no_digest(const Run *r)
{
    (void)r;
    return digest_of("", 0);
}

static Status take_import(Run *r, const ImportReport *report, float *weights)
{
    (void)weights;
    if (r->c->embed) return OK;
    return glue_check_import(&((const PredictRun *)r->own)->custom.task, r->c->model, report);
}

/* ---- blocks ---- */

static Status read_block(const Run *r)
{
    PredictRun *p = r->own;
    const Record *row;
    p->block.count = 0;
    predict_output_forget(&p->output);
    while (p->block.count < BLOCK_ROWS && p->output.kept.len < BLOCK_KEPT) {
        if (*signals_stop()) return fail(E_STOPPED, "stopped after %lld texts", (long long)p->stage.done);
        TRY(records_next(p->records, &row));
        if (!row) break;
        TRY(predict_output_keep(&p->output, p->records, row));
        examples_append(&p->block, &p->cap, p->tokenizer, row->texts[0],
                        p->custom.unlabelled.b ? row->texts[1] : (RecordText){NULL, 0}, (int)r->c->max_seq_length);
    }
    return OK;
}

/* Rank 0's block to all. */
static Status share_block(Run *r)
{
    PredictRun *p = r->own;
    Examples *e = &p->block;
    TRY(ranks_broadcast(r->ranks, &e->count, sizeof e->count));
    if (e->count == 0) return OK;
    TRY(ranks_broadcast(r->ranks, e->offset, ((size_t)e->count + 1) * sizeof *e->offset));
    size_t tokens = (size_t)e->offset[e->count];
    if (tokens > p->cap) {
        p->cap = tokens;
        e->ids = mem_resize(e->ids, tokens, sizeof *e->ids);
        e->types = mem_resize(e->types, tokens, sizeof *e->types);
    }
    TRY(ranks_broadcast(r->ranks, e->ids, tokens * sizeof *e->ids));
    return ranks_broadcast(r->ranks, e->types, tokens);
}

static Status write_block(const Run *r)
{
    PredictRun *p = r->own;
    int64_t n = p->output.n;
    Buf out = {0};
    Status status = OK;
    if (p->stage.done == 0) predict_output_header(&p->output, 0, &out);
    for (int64_t i = 0; i < p->block.count * n; i++)
        if (!isfinite(p->values[i]))
            TRY_DONE(fail(E_NUMERIC,
                          "text %lld: the model's output is %g; its weights are unusable (see `cairn inspect`)",
                          (long long)(p->stage.done + i / n), (double)p->values[i]));
    if (p->output.task) glue_probabilities(p->output.task, p->values, p->block.count);
    for (int64_t i = 0; i < p->block.count; i++)
        predict_output_row(&p->output, p->stage.done + i, (int)i, p->values + i * n, &out);
    p->stage.done += p->block.count;
    p->stage.share += p->stage.part;
    status = p->to_file ? file_writer_write(&p->writer, out.data, out.len)
                        : file_write_all(STDOUT_FILENO, "the standard output", out.data, out.len);
done:
    buf_free(&out);
    return status;
}

/* A row of texts takes up to three times its bytes: one of 2 MiB is counted in the plan's peak, a larger one takes what
   the budget leaves. A JSON row of many numbers takes up to 22 times, which this does not count. */
static void limit_rows(const Run *r)
{
    const Accounts *a = &r->session.plan.accounts;
    const Account *machine = &a->row[a->n - 1];
    PredictRun *p = r->own;
    if (machine->budget == SIZE_MAX || !p->records) return;
    size_t spare = machine->budget > machine->peak ? machine->budget - machine->peak : 0;
    records_limit(p->records, ((size_t)2 << 20) + spare / 3);
}

/* The header of NumPy's form has the number of rows. */
static Status close_file(PredictRun *p)
{
    Buf header = {0};
    if (!p->to_file) return OK;
    predict_output_header(&p->output, p->stage.done, &header);
    Status status = p->output.npy ? file_writer_begin(&p->writer, header.data, header.len) : OK;
    buf_free(&header);
    if (status == OK) status = file_writer_close(&p->writer, NULL, NULL);
    if (status == OK) p->to_file = false;
    return status;
}

static Status evaluate(Run *r)
{
    PredictRun *p = r->own;
    double loss;
    limit_rows(r);
    if (run_first(r) && (p->to_file || !isatty(STDOUT_FILENO))) { /* a live line would run into rows on a terminal */
        stage_progress_open(&p->stage.progress);
        r->stage = &p->stage;
    }
    for (;;) {
        TRY(ranks_all(r->ranks, run_first(r) ? read_block(r) : OK));
        TRY(share_block(r));
        if (p->block.count == 0) break;
        p->stage.count = p->block.count;
        if (r->stage) p->stage.part = records_share(p->records) - p->stage.share;
        TRY(evaluation_logits(r, &p->block, p->values, &loss));
        TRY(ranks_all(r->ranks, run_first(r) ? write_block(r) : OK));
    }
    if (!run_first(r)) return OK;
    stage_progress_close(&p->stage.progress);
    records_warn_quotes(p->records);
    TRY(close_file(p));
    double seconds = clock_monotonic() - p->started;
    log_info("%lld texts in %.1f s, %lld cut at %lld tokens%s%s", (long long)p->stage.done, seconds,
             (long long)p->block.cut, (long long)r->c->max_seq_length,
             *r->c->output ? SHORT_TEXT("; their %s are in ", r->c->embed ? "vectors" : "labels") : "", r->c->output);
    return OK;
}

static void close_task(Run *r)
{
    PredictRun *p = r->own;
    stage_progress_close(&p->stage.progress);
    if (p->to_file) file_writer_abandon(&p->writer);
    records_close(p->records);
    examples_free(&p->block);
    tokenizer_free(p->tokenizer);
    glue_custom_free(&p->custom);
    adopt_free(&p->adopted);
    predict_output_free(&p->output);
    free(p->values);
}

const Task task_predict = {.size = sizeof(PredictRun),
                           .check = check,
                           .open = open_task,
                           .need = need,
                           .train_digest = no_digest,
                           .eval_digest = no_digest,
                           .take_import = take_import,
                           .evaluate = evaluate,
                           .close = close_task};
