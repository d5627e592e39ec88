/* `cairn squad`: fine-tune, evaluate and predict on SQuAD 1.1 or 2.0. */
#include <strings.h>

#include "report/record.h"
#include "tasks/squad/run.h"
#include "train/job/result.h"
#include "train/ranks/signals.h"
#include "train/run/check.h"
#include "train/run/start.h"

/* ---- the use ---- */

static bool planned(const Config *c) { return strcasecmp(c->task, "squad") == 0; }

static Head head(void) { return (Head){HEAD_SPAN, 2}; }

static Status plan(const Config *c, Head *of, PlanInput *need)
{
    (void)c;
    *of = head();
    need->evaluation = true;
    return OK;
}

static Status check(Run *r)
{
    const Config *c = r->c;
    r->train = c->do_train;
    if (!c->do_train && !c->do_eval && !c->do_predict)
        return fail(E_USAGE, "nothing to do: give --do-train, --do-eval or --do-predict");
    TRY(check_evaluations(c));
    if (!r->train) TRY(adopt_options(r, ADOPT_WINDOWS, &((SquadRun *)r->own)->adopted));
    c = r->c;
    if (c->max_seq_length < c->max_query_length + 4)
        return fail(E_USAGE,
                    "--max-seq-length %lld leaves no room for the paragraph behind a question of --max-query-length "
                    "%lld tokens and [CLS], [SEP], [SEP]; give at least %lld",
                    (long long)c->max_seq_length, (long long)c->max_query_length, (long long)c->max_query_length + 4);
    int64_t room = c->max_seq_length - c->max_query_length - 3;
    if (c->doc_stride > room)
        log_warn(
            "--doc-stride %lld: a window has room for %lld tokens of the paragraph behind a long question, so words "
            "between two windows are in none; give at most %lld",
            (long long)c->doc_stride, (long long)room, (long long)room);
    if (!c->version_2 && c->source[OPTION_null_score_diff_threshold] != FROM_DEFAULT &&
        c->null_score_diff_threshold != 0)
        return fail(E_USAGE, "--null-score-diff-threshold is for questions without an answer: give --version-2");
    return OK;
}

/* ---- reading ---- */

/* DIR/SPLIT-v1.1.json or -v2.0.json, else DIR/SPLIT.json. */
static Status find_file(const Config *c, const char *split, char **path)
{
    const char *version = c->version_2 ? "v2.0" : "v1.1", *other = c->version_2 ? "v1.1" : "v2.0";
    char *named = mem_printf("%s-%s.json", split, version), *plain = mem_printf("%s.json", split),
         *others = mem_printf("%s-%s.json", split, other);
    char *a = file_join(c->data_dir, named), *b = file_join(c->data_dir, plain), *o = file_join(c->data_dir, others);
    Status status = OK;
    *path = NULL;
    if (!*c->data_dir)
        status = fail(E_USAGE, "give the folder of SQuAD's files as --data-dir DIR (%s or %s)", named, plain);
    else if (file_exists(a) || file_exists(b))
        *path = mem_strdup(file_exists(a) ? a : b);
    else if (file_exists(o))
        status = fail(E_USAGE, "%s has %s, but neither %s nor %s; give %s", c->data_dir, others, named, plain,
                      c->version_2 ? "--no-version-2" : "--version-2");
    else
        status = fail(E_IO, "%s has neither %s nor %s", c->data_dir, named, plain);
    MEM_FREE(named, plain, others, a, b, o);
    return status;
}

static Status read_file(Run *r, const char *split, SquadUse use, SquadFile *file, SquadWindows *windows)
{
    const Config *c = r->c;
    SquadCut cut = {.max_length = (int)c->max_seq_length,
                    .stride = (int)c->doc_stride,
                    .max_query = (int)c->max_query_length,
                    .training = use == SQUAD_TRAIN,
                    .special = vocab_special(r->text.vocab),
                    .one_type = r->text.options.one_type};
    char *path = NULL;
    TRY(find_file(c, split, &path));
    Status status = squad_read(path, c->version_2, use, file);
    free(path);
    TRY(status);
    TRY(squad_windows(file, ((const SquadRun *)r->own)->tokenizer, cut, signals_stop(), windows));
    run_says(r, "%s: %lld questions, %lld cut at %d tokens, %lld windows of %.1f tokens on average",
             run_file(r, file->path), (long long)file->n_questions, (long long)windows->cut, cut.max_query,
             (long long)windows->examples.count, examples_mean_length(&windows->examples));
    if (windows->skipped)
        log_warn("%s: %lld questions are left out, because their answer is not at 'answer_start' of the paragraph",
                 file->path, (long long)windows->skipped);
    return OK;
}

static Status read_training(Run *r)
{
    SquadRun *own = r->own;
    SquadFile file = {0};
    Status status = read_file(r, "train", SQUAD_TRAIN, &file, &own->train);
    squad_file_free(&file);
    own->loaded = (LoadedExamples){&own->train.examples, (uint64_t)r->c->seed, r->c->batch_size};
    r->source = loaded_source(&own->loaded);
    return status;
}

static Status read_split(Run *r, SquadUse use)
{
    SquadRun *own = r->own;
    SquadSplit *s = &own->splits[own->n_splits++];
    s->labelled = use == SQUAD_DEV;
    s->name = s->labelled ? "dev" : "test";
    s->prefix = s->labelled ? "" : "test_";
    return read_file(r, s->name, use, &s->file, &s->windows);
}

static Status open_model(Run *r)
{
    char *path = NULL;
    Status status = start_model(r->c, &r->text, head(), r->c->max_seq_length, &r->model, &path);
    if (status == OK && r->model.config.types == 1)
        status =
            fail(E_USAGE,
                 "a question and its paragraph are a pair, and %s has token types ('type_vocab_size') for one text "
                 "only; give a model that was made for pairs",
                 path);
    free(path);
    return status;
}

static Status open_task(Run *r)
{
    SquadRun *own = r->own;
    const Config *c = r->c;
    r->name = c->version_2 ? "SQuAD 2.0" : "SQuAD 1.1";
    r->metric = "F1";
    r->evaluate = c->do_eval || c->do_predict;
    r->use = (ModelUse){
        .max_length = c->max_seq_length, .doc_stride = c->doc_stride, .max_query_length = c->max_query_length};
    adopt_log(&own->adopted);
    TRY(start_text(c, NULL, &r->text));
    own->tokenizer = tokenizer_new(r->text.vocab, r->text.options);
    TRY(open_model(r));
    if (c->do_train) TRY(read_training(r));
    if (c->do_eval) TRY(read_split(r, SQUAD_DEV));
    if (c->do_predict) TRY(read_split(r, SQUAD_TEST));
    return OK;
}

static void need(Run *r, PlanInput *n)
{
    const SquadRun *own = r->own;
    n->mean_length = examples_mean_length(r->train ? &own->train.examples : &own->splits[0].windows.examples);
    for (int i = 0; i < own->n_splits; i++) { /* logits of all tokens; with ranks, what travels */
        const Examples *e = &own->splits[i].windows.examples;
        n->data_bytes += (size_t)e->offset[e->count] * 2 * sizeof(float) * (r->ranks ? 3 : 1);
    }
}

/* ---- digests and weights ---- */

static Digest train_digest(const Run *r) { return ((const SquadRun *)r->own)->train.examples.digest; }

static Digest eval_digest(const Run *r)
{
    const SquadRun *own = r->own;
    Digest parts[4]; /* windows have neither the case of a paragraph nor answers */
    for (int i = 0; i < own->n_splits; i++) {
        parts[2 * i] = own->splits[i].windows.examples.digest;
        parts[2 * i + 1] = own->splits[i].file.digest;
    }
    return digest_of(parts, 2 * (size_t)own->n_splits * sizeof *parts);
}

/* Training can begin with a new head; evaluation cannot use one. */
static Status take_import(Run *r, const ImportReport *report, float *weights)
{
    (void)weights;
    if (r->train || !report->n[IMPORT_NEW]) return OK;
    return fail(E_FORMAT, "%s has no trained head for answers (qa_outputs); train first", report->path);
}

/* ---- results ---- */

/* The options that choose among answers were those of now. */
static bool same_choice(const Run *r)
{
    RunRecord record;
    if (run_record_read(r->c->output_dir, &record) != OK) return false;
    const Json *stored = js_get(record.doc, "config");
    bool same = js_int(js_get(stored, "n-best-size"), 0) == r->c->n_best_size &&
                js_int(js_get(stored, "max-answer-length"), 0) == r->c->max_answer_length &&
                js_real(js_get(stored, "null-score-diff-threshold"), NAN) == r->c->null_score_diff_threshold;
    run_record_free(&record);
    return same;
}

static bool results_there(const Run *r)
{
    return !r->c->do_predict && result_there(r) && (!r->evaluate || same_choice(r));
}

static void close_task(Run *r)
{
    SquadRun *own = r->own;
    squad_windows_free(&own->train);
    for (int i = 0; i < own->n_splits; i++) {
        squad_windows_free(&own->splits[i].windows);
        squad_file_free(&own->splits[i].file);
        free(own->splits[i].logits);
    }
    tokenizer_free(own->tokenizer);
    adopt_free(&own->adopted);
}

const Task task_squad = {.size = sizeof(SquadRun),
                         .folder = true,
                         .planned = planned,
                         .plan = plan,
                         .check = check,
                         .open = open_task,
                         .need = need,
                         .train_digest = train_digest,
                         .eval_digest = eval_digest,
                         .results_there = results_there,
                         .take_import = take_import,
                         .evaluate_during = squad_evaluate_during,
                         .reached = check_patience,
                         .evaluate = squad_evaluate,
                         .figures = squad_figures_of,
                         .close = close_task};
