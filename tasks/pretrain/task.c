/* `cairn pretrain`: masked words and next sentences on shards. */

#include "tasks/pretrain/pretrain.h"
#include "tasks/pretrain/run.h"
#include "train/job/result.h"
#include "train/ranks/signals.h"
#include "train/run/run.h"
#include "train/run/start.h"

/* ---- before anything is read ---- */

static Status check_use(Run *r, const Config *c)
{
    r->train = c->do_train || !c->do_eval;
    r->evaluate = c->do_eval || *c->eval_dir;
    TRY(pretrain_eval_samples(c, &r->eval_samples));
    if (!r->train && strcmp(c->log_format, "plain") != 0)
        log_warn("--log-format %s is without effect: it records training", c->log_format);
    if (!*c->data_dir && (r->train || !*c->eval_dir))
        return fail(E_USAGE, "give the folder of the shards as --data-dir (`cairn shards` makes them), or a dump as "
                             "--input");
    if (r->train && r->evaluate && !*c->eval_dir)
        return fail(E_USAGE, "--do-eval beside training needs held-out shards: give --eval-dir (`cairn shards "
                             "--eval-fraction` makes them), or --eval-fraction beside --input");
    bool asked = c->eval_every != 0 || c->target_mlm_accuracy > 0 || (r->eval_samples > 0 && r->evaluate);
    if (r->train && c->target_mlm_accuracy > 0 && c->source[OPTION_target_mlm_accuracy] == FROM_PRESET && !r->evaluate)
        return fail(E_USAGE,
                    "--preset %s trains to a masked-word accuracy of %g: give held-out shards as --eval-dir, or "
                    "--target-mlm-accuracy 0 to train without",
                    c->preset, c->target_mlm_accuracy);
    if (r->train && asked && !r->evaluate)
        return fail(E_USAGE, "--eval-every, --eval-samples and --target-mlm-accuracy evaluate while training: give "
                             "--eval-dir too");
    if (r->train && c->target_mlm_accuracy > 0 && c->eval_every == 0 && r->eval_samples == 0)
        return fail(E_USAGE, "--target-mlm-accuracy needs evaluations: give --eval-every or --eval-samples");
    if (strcmp(c->moments, "carried") == 0 && !*c->model)
        return fail(E_USAGE, "--moments carried: give the run to continue as --model");
    return OK;
}

/* --max-seq-length by default: the shards'. */
static Status adopt_length(Run *r)
{
    PretrainRun *p = r->own;
    if (r->c->source[OPTION_max_seq_length] != FROM_DEFAULT) return OK;
    p->sized = *r->c;
    r->c = &p->sized;
    return start_shards_length(pretrain_folder(r->c, !r->train), &p->sized.max_seq_length);
}

/* The run.json of a run that made its data names both: the data is there. */
static bool makes_data(const Config *c)
{
    bool made = *c->data_dir && c->source[OPTION_input] == FROM_FILE && c->source[OPTION_data_dir] == FROM_FILE;
    return *c->input && !made;
}

/* With --input the shards do not exist yet. The stages make them; their options are checked now. */
static Status check(Run *r)
{
    Stages *stages = &((PretrainRun *)r->own)->stages;
    if (r->c->command == COMMAND_ADAPT) TRY(adapt_check(r));
    if (makes_data(r->c)) {
        TRY(stages_plan(stages, r->c));
        return check_use(r, &stages->training);
    }
    TRY(check_use(r, r->c));
    return adopt_length(r);
}

static int64_t predictions_of(const Config *c)
{
    return c->predictions > 0 ? c->predictions : (c->max_seq_length * 15 + 99) / 100;
}

static Head head_of(const Config *c) { return (Head){HEAD_PRETRAINING, strcmp(c->nsp, "on") == 0 ? 2 : 0}; }

static Status check_pretrain_model(const Model *m)
{
    if (m->head.labels && m->config.types < 2)
        return fail(E_USAGE, "this model has token types ('type_vocab_size') for one sentence only; give --nsp off");
    return OK;
}

/* The sizes of a model whose vocabulary may not be made yet. */
static Status foresee_model(const Run *r, TokenizerFiles *text, Model *m, double *text_bytes)
{
    const Stages *s = &((const PretrainRun *)r->own)->stages;
    int64_t length = r->c->max_seq_length;
    int pieces;
    TRY(stages_foresee(s, text_bytes, &pieces));
    if (s->makes_vocab) return start_model_sized(r->c, s->vocab, pieces, head_of(r->c), length, m, NULL);
    TRY(start_text(r->c, NULL, text));
    return start_model(r->c, text, head_of(r->c), length, m, NULL);
}

/* What the allocator and the libraries keep after the data was made. 6 MiB were measured. */
#define KEPT_OF_MAKING ((size_t)8 << 20)

static size_t foresee_data(const Run *r, double text_bytes)
{
    const Config *c = r->c;
    const ShardsOptions o = {
        .max_length = (int)c->max_seq_length, .max_predictions = (int)predictions_of(c), .batch_size = c->batch_size};
    double copies = (double)c->dupe_factor, tokens = copies * text_bytes; /* a token is a byte at least */
    double files = copies * (ceil(text_bytes / (double)c->shard_size) + 1);
    return KEPT_OF_MAKING + (r->train ? shards_memory_most(&o, tokens, files, true) : 0) +
           (r->evaluate ? shards_memory_most(&o, tokens, files, false) : 0);
}

/* Rank 0. What training would refuse after hours of preparation: its sizes, its weights, its plan. */
static Status foresee(Run *r)
{
    const Config *c = r->c;
    double text_bytes;
    Status status = OK;
    TokenizerFiles text = {0};
    Model m = {0};
    TRY_DONE(foresee_model(r, &text, &m, &text_bytes));
    TRY_DONE(check_pretrain_model(&m));
    if (*c->model) TRY_DONE(import_check(c->model, &m, NULL));
    PlanInput need = {.model = &m,
                      .training = r->train,
                      .evaluation = r->evaluate,
                      .max_length = c->max_seq_length,
                      .max_masked = predictions_of(c),
                      .mean_length = (double)c->max_seq_length,
                      .later_bytes = foresee_data(r, text_bytes)};
    TRY_DONE(setup_foresee(c, &need, &r->setup));
done:
    model_free(&m);
    tokenizer_files_free(&text);
    return status;
}

/* Rank 0 makes the stages' data, the others find its shards. */
static Status make_data(Run *r)
{
    TRY(stages_make(&((PretrainRun *)r->own)->stages));
    return r->c->command == COMMAND_ADAPT ? adapt_check_held_out(r->c) : OK;
}

static Status prepare(Run *r)
{
    if (!makes_data(r->c)) return OK;
    Stages *stages = &((PretrainRun *)r->own)->stages;
    r->c = &stages->training;
    TRY(run_open_backend(r));
    TRY(ranks_all(r->ranks, run_first(r) && !stages_finished(stages) ? foresee(r) : OK));
    return ranks_all(r->ranks, run_first(r) ? make_data(r) : OK);
}

/* ---- reading ---- */

static bool planned(const Config *c) { return c->predictions > 0; }

static Status plan(const Config *c, Head *head, PlanInput *need)
{
    *head = head_of(c);
    need->max_masked = c->predictions;
    return OK;
}

static Status open_model(Run *r)
{
    const Config *c = r->c;
    Head head = head_of(c);
    TRY(start_text(c, pretrain_folder(c, !r->train), &r->text));
    r->text.options.one_type = false; /* the pairs of shards have two types */
    if (r->evaluate) TRY(start_check_shards(&r->text, pretrain_folder(c, true)));
    TRY(start_model(c, &r->text, head, c->max_seq_length, &r->model, NULL));
    return check_pretrain_model(&r->model);
}

static Status open_shards(Run *r, bool evaluation, Shards **shards)
{
    const Config *c = r->c;
    const char *folder = pretrain_folder(c, evaluation);
    ShardsOptions o = {.vocab = r->text.vocab,
                       .max_length = (int)c->max_seq_length,
                       .max_predictions = (int)((const PretrainRun *)r->own)->predictions,
                       .seed = (uint64_t)c->seed,
                       .batch_size = c->batch_size,
                       .stored_masks = strcmp(c->masking, "static") == 0,
                       .dynamic_masking = strcmp(c->masking, "dynamic") == 0,
                       .mask_fraction = c->mask_fraction,
                       .whole_words = c->whole_words,
                       .picked = !evaluation     ? 0
                                 : c->eval_first ? c->eval_first
                                                 : c->eval_count,
                       .picked_first = c->eval_first > 0};
    TRY(shards_open(folder, &o, shards));
    if (shards_count(*shards) < o.picked &&
        (c->command != COMMAND_ADAPT || o.picked_first || c->source[OPTION_eval_count] != FROM_PRESET))
        log_warn("%s: its %lld sequences are evaluated, fewer than --%s %lld", folder, (long long)shards_count(*shards),
                 o.picked_first ? "eval-first" : "eval-count", (long long)o.picked);
    run_says(r, "%s: %lld sequences for %s", folder, (long long)shards_count(*shards),
             evaluation ? "evaluation" : "training");
    return OK;
}

/* --nsp on needs sequences that say whether their second sentence is the next one. */
static Status check_pairs(const Run *r, const Examples *e)
{
    for (int64_t i = 0; i < e->count; i++)
        if (e->label[i] >= 0) return OK;
    return fail(E_USAGE,
                "%s: none of the first %lld sequences says whether its second sentence is the next one "
                "('next_sentence_labels'), as `cairn shards --nsp off` makes them; give --nsp off",
                pretrain_folder(r->c, !r->train), (long long)e->count);
}

static Status open_task(Run *r)
{
    enum { LOOKED_AT = 1024 };
    PretrainRun *p = r->own;
    const Config *c = r->c;
    const Examples *e;
    r->name = "pretrain";
    r->metric = "mlm_accuracy";
    TRY(open_model(r));
    p->predictions = predictions_of(c);
    if (r->train) TRY(open_shards(r, false, &p->shards));
    if (r->evaluate) TRY(open_shards(r, true, &p->eval_shards));
    if (r->train) r->source = shards_source(p->shards);
    Shards *any = r->train ? p->shards : p->eval_shards;
    int64_t n = shards_count(any) < LOOKED_AT ? shards_count(any) : LOOKED_AT;
    TRY(shards_range(any, 0, n, &e));
    p->mean_length = (double)e->offset[n] / (double)n;
    return r->model.head.labels ? check_pairs(r, e) : OK;
}

/* Every row, before a run that may take days. A run that resumes has done so, and its shards' digest is compared,
   except with --override. Evaluation may have other shards each time. */
static Status check_data(Run *r)
{
    PretrainRun *p = r->own;
    double start = clock_monotonic();
    if (r->train && (!resume_found(&r->resume) || r->c->override)) TRY(shards_check(p->shards, signals_stop()));
    if (r->evaluate) TRY(shards_check(p->eval_shards, signals_stop()));
    log_debug("all rows were checked in %.1f s", clock_monotonic() - start);
    return OK;
}

/* ---- the plan ---- */

/* Nothing is rescaled for a batch of another size than the preset's. */
static void warn_batch(const Run *r)
{
    const Config *c = r->c;
    Preset preset;
    if (!*c->preset || c->fit_schedule || config_preset(c->preset, &preset) != OK) return;
    if (c->batch_size == strtoll(preset.value[OPTION_batch_size], NULL, 10)) return;
    log_info("--batch-size %lld in place of the preset's: nothing else changes with it; the learning rate is %g, "
             "the steps are %lld",
             (long long)c->batch_size, c->learning_rate, (long long)r->schedule.total_steps);
}

static void need(Run *r, PlanInput *n)
{
    const PretrainRun *p = r->own;
    if (r->train) warn_batch(r);
    n->max_masked = p->predictions;
    n->mean_length = p->mean_length;
    if (r->train) n->data_bytes += shards_memory(p->shards, p->mean_length, true);
    if (r->evaluate) n->data_bytes += shards_memory(p->eval_shards, p->mean_length, false);
}

static Digest train_digest(const Run *r) { return shards_digest(((const PretrainRun *)r->own)->shards); }

static Digest eval_digest(const Run *r) { return shards_digest(((const PretrainRun *)r->own)->eval_shards); }

/* ---- the run ---- */

static Status open_log(Run *r) { return runlog_open(&((PretrainRun *)r->own)->log, r->c, resume_found(&r->resume)); }

static Status take_import(Run *r, const ImportReport *report, float *weights)
{
    (void)weights;
    if (r->c->command == COMMAND_ADAPT && r->train && report->n[IMPORT_NEW])
        log_warn(
            "%s has no masked-word head (cls.predictions), so one is trained from random weights: losses before and "
            "after are mostly its own. Start from a pretrained model, not from a fine-tuned one or an encoder",
            report->path);
    if (!r->train && report->n[IMPORT_NEW])
        return fail(E_FORMAT, "%s has no pretraining heads to evaluate; train first", report->path);
    return OK;
}

/* Sequences from one evaluation to the next: the smaller of --eval-every and --eval-samples. */
static int64_t between_evaluations(const Run *r)
{
    int64_t every = r->c->eval_every, samples = r->eval_samples,
            steps = every < 0 ? r->source.count : batches_examples(r->source.count, r->c->batch_size, every);
    if (!r->evaluate) return 0;
    return steps > 0 && (samples == 0 || steps < samples) ? steps : samples;
}

static Status training_begins(Run *r)
{
    PretrainRun *p = r->own;
    const Config *c = r->c;
    double tokens = (c->padded ? (double)c->max_seq_length : p->mean_length) * (double)c->batch_size;
    RunLogStart start = {.optimizer = &r->setup.optimizer,
                         .schedule = &r->schedule,
                         .train_samples = batches_examples(r->source.count, c->batch_size, r->schedule.total_steps),
                         .eval_samples = r->evaluate ? shards_count(p->eval_shards) : 0,
                         .predictions = p->predictions,
                         .micros = (int64_t)ceil(tokens / (double)r->session.plan.micro.tokens / ranks_size(r->ranks)),
                         .step = r->progress.step,
                         .samples = pretrain_samples(r),
                         .evaluated = r->progress.evaluated_samples,
                         .every = between_evaluations(r)};
    runlog_start(p->log, &start);
    return c->command == COMMAND_ADAPT ? adapt_begin(r) : OK;
}

/* The reader must never be slower than the trainer. */
static void log_reader(const Run *r)
{
    ShardsWork work = shards_work(((const PretrainRun *)r->own)->shards);
    if (!(work.busy > 0 && r->progress.seconds > 0)) return;
    double reads = (double)work.tokens / work.busy, trains = (double)r->progress.tokens / r->progress.seconds;
    log_info("the reader makes %.3g tokens/s, %.0f times the rate of training, which waited for it %.2f s in all",
             reads, reads / trains, work.waited);
}

static void step_ends(Run *r, const StepRecord *s)
{
    runlog_step(((PretrainRun *)r->own)->log, (int64_t)ceil(s->epoch) - 1, s->step, s->loss, s->lr);
}

static void training_ends(Run *r, Status how)
{
    const TrainProgress *p = &r->progress;
    bool success = how == OK && (r->reached || !(r->c->target_mlm_accuracy > 0));
    if (how != E_STOPPED && how != E_PEER) /* such a run resumes */
        runlog_stop(((PretrainRun *)r->own)->log, pretrain_samples(r), success,
                    p->seconds > 0 ? (double)p->sequences / p->seconds : 0, p->seconds, p->last_loss);
    if (how == OK) log_reader(r);
}

static bool reached(const Run *r, const TrainProgress *p) { return pretrain_reached(r, p->best_metric); }

static void close_task(Run *r)
{
    PretrainRun *p = r->own;
    runlog_close(p->log);
    shards_close(p->shards);
    shards_close(p->eval_shards);
    stages_free(&p->stages);
}

const Task task_pretrain = {.size = sizeof(PretrainRun),
                            .folder = true,
                            .planned = planned,
                            .plan = plan,
                            .check = check,
                            .prepare = prepare,
                            .open = open_task,
                            .check_data = check_data,
                            .need = need,
                            .train_digest = train_digest,
                            .eval_digest = eval_digest,
                            .results_there = result_there,
                            .open_output = open_log,
                            .take_import = take_import,
                            .training_begins = training_begins,
                            .step_ends = step_ends,
                            .training_ends = training_ends,
                            .evaluate_during = pretrain_evaluate_during,
                            .reached = reached,
                            .evaluate = pretrain_evaluate,
                            .figures = pretrain_figures,
                            .close = close_task};
