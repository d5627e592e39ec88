#include "train/run/check.h"

#include "base/parallel.h"
#include "config/table.h"
#include "state/models/import.h"
#include "train/job/setup.h"
#include "train/loop/loop.h"
#include "train/parts/audit_choice.h"
#include "train/parts/place.h"
#include "train/planner/planner.h"
#include "train/planner/snapshot_room.h"

/* ---- values ---- */

/* Without --max-steps the number of steps is known only after the data. */
static Status check_schedule(const Config *c)
{
    enum { SOME_EXAMPLES = 1 };
    RateSchedule s = {0};
    if (c->max_steps > 0) return setup_schedule(c, SOME_EXAMPLES, &s);
    TRY(rate_schedule_parse(c->schedule, &s));
    return warmup_parse(c->warmup, INT64_MAX >> 11, false, &s.warmup_steps); /* exact as a double */
}

Status check_evaluations(const Config *c)
{
    if (c->eval_every != 0 && !c->do_eval)
        return fail(E_USAGE, "--eval-every evaluates while training: give --do-eval too");
    if (*c->best_by && !(c->do_train && c->eval_every != 0))
        return fail(E_USAGE, "--best-by chooses among evaluations while training: give --do-train and --eval-every");
    if (c->patience > 0 && !(c->do_train && c->eval_every != 0))
        return fail(E_USAGE, "--patience counts evaluations while training: give --do-train and --eval-every");
    return OK;
}

bool check_patience(const Run *r, const TrainProgress *p)
{
    return r->c->patience > 0 && p->since_best >= r->c->patience;
}

/* Evaluations while training come by --eval-every, in pretraining also by --eval-samples. */
static Status check_final(const Config *c)
{
    bool asked = c->source[OPTION_final] == FROM_FLAG && strcmp(c->final, "best") == 0;
    if (asked && c->eval_every == 0 && !*c->eval_samples)
        return fail(E_USAGE,
                    "--final best: no evaluation would choose the best model: give --do-eval and --eval-every");
    return OK;
}

/* The schedule is fitted after some steps, so nothing may fix the number of steps, nor record those that are taken
   back. */
static Status check_fit(const Config *c)
{
    const char *why = !(c->max_time > 0) ? "it needs --max-time, the time to fit into"
                      : c->max_steps > 0 && c->source[OPTION_max_steps] > FROM_PRESET
                          ? "it chooses the steps: leave --max-steps out"
                      : c->kfac_interval > 0                ? "it cannot take back the statistics of K-FAC"
                      : strcmp(c->log_format, "plain") != 0 ? "it would be in the lines of --log-format"
                      : c->stop_after > 0                   ? "--stop-after would end it before: leave one of them out"
                      : c->do_predict || *c->submission     ? "it does not count the time of predictions: predict "
                                                              "with a second command, without --do-train"
                                                            : NULL;
    return why ? fail(E_USAGE, "--fit-schedule: %s", why) : OK;
}

Status check_options(const Config *c, bool training)
{
    bool stop_asked;
    Policy policy;
    Optimizer optimizer;
    SnapshotWish wish;
    int64_t tokens;
    int replicas;
    AuditChoice audit;
    TRY(place_check(c));
    TRY(planner_policy(c, NULL, 0, &policy));
    TRY(planner_micro_tokens(c, planner_share(c, c->virtual_ranks ? c->virtual_ranks : 1), c->max_seq_length, &tokens));
    if (!training) return OK;
    TRY(check_final(c));
    TRY(kfac_check(c));
    TRY(audit_parse(c->audit, &audit));
    TRY(setup_optimizer(c, &optimizer));
    TRY(check_schedule(c));
    if (c->fit_schedule) TRY(check_fit(c));
    TRY(loop_check_persist_file(c->persist_file, &stop_asked)); /* a sign is taken at the first step */
    TRY(snapshots_replicas(c, INT32_MAX, &replicas));
    return snapshots_wish(c, 1, &wish);
}

/* ---- places ---- */

Status check_model(const char *path)
{
    char *index = mem_printf("%s.index", path);
    bool there = file_exists(path) || file_exists(index);
    free(index);
    if (there) return import_check_folder(path);
    return fail(E_USAGE,
                "--model %s: there is no such file or folder. Expected a Hugging Face folder, a .safetensors, .bin or "
                ".pt file, or the prefix of a TF1 checkpoint; nothing is fetched from a hub",
                path);
}

Status check_places(const Config *c)
{
    if (*c->model) TRY(check_model(c->model));
    if (c->dry_run) return OK;
    TRY(file_try_directory(c->output_dir));
    return *c->submission ? file_try_directory(c->submission) : OK;
}

/* ---- doubts ---- */

static void doubt_threads(const Config *c, const Ranks *ranks)
{
    int cores = parallel_cores(), here = ranks_sharing(ranks);
    int64_t threads = c->threads * here;
    char of_ranks[64] = "";
    if (here > 1) snprintf(of_ranks, sizeof of_ranks, " for each of %d ranks", here);
    if (cores > 0 && threads > cores)
        log_warn("--threads %lld%s on %d core%s: threads will wait for each other; 0 takes one for each core",
                 (long long)c->threads, of_ranks, cores, cores == 1 ? "" : "s");
}

/* BERT's own rates are 1e-5 to 1e-4; LAMB's, of batches of thousands, up to 0.01. */
static void doubt_rate(const Config *c)
{
    double most = strcmp(c->optimizer, "adamw") == 0 ? 0.005 : 0.05;
    if (c->learning_rate > most)
        log_warn("--learning-rate %g is far above the usual ones (%s); training will probably diverge",
                 c->learning_rate, most < 0.01 ? "1e-5 to 1e-4" : "1e-3 to 1e-2 for LAMB");
    if (c->learning_rate == 0) log_warn("--learning-rate 0: nothing will be learned");
}

static void doubt_scale(const Config *c)
{
    if (strcmp(c->precision, "fp16") != 0 &&
        (!config_is_default(c, OPTION_init_loss_scale) || !config_is_default(c, OPTION_loss_scale_growth_interval)))
        log_warn("--init-loss-scale and --loss-scale-growth-interval are without effect: only --precision fp16 has a "
                 "loss scale, and this is %s",
                 c->precision);
}

static void doubt_grains(const Config *c)
{
    if (!c->virtual_ranks && !config_is_default(c, OPTION_grain_tokens))
        log_warn("--grain-tokens is without effect: only a run with --virtual-ranks has grains");
}

/* Appends the options that were given with another value than their default, whose letters in options.h have `letter`,
   and none of `without`. Returns their number. */
static int list_given(const Config *c, ConfigSource least, char letter, const char *without, Buf *list)
{
    int n = 0;
    for (int i = 0; i < N_OPTIONS; i++) {
        const char *letters = config_table[i].commands;
        if (!strchr(letters, letter) || strpbrk(letters, without) || !config_option_of(i, c->command)) continue;
        if (c->source[i] < least || config_is_default(c, i)) continue;
        buf_printf(list, "%s--%s", n++ ? ", " : "", config_flag(i));
    }
    return n;
}

static void say_unused(int n, Buf *list, const char *why)
{
    if (n) log_warn("%s %s without effect: %s", list->data, n == 1 ? "is" : "are", why);
    buf_free(list);
}

/* Options of several ranks. The launcher, where there is one, uses those of the meeting. */
static void doubt_alone(const Config *c, bool training)
{
    Buf list = {0};
    bool launched = c->source[OPTION_rendezvous] == FROM_ENVIRONMENT;
    int n = list_given(c, FROM_FILE, 'S', launched && !training ? "TR" : launched ? "R" : training ? "" : "T", &list);
    if (strcmp(c->comm, "gloo") == 0 || strcmp(c->comm, "nccl") == 0) buf_printf(&list, "%s--comm", n++ ? ", " : "");
    say_unused(n, &list, "this run has one rank (`cairn launch`, mpirun and others start several)");
}

/* Options of training. A file of options may be that of a training run. */
static void doubt_untrained(const Config *c)
{
    Buf list = {0};
    say_unused(list_given(c, FROM_FLAG, 'T', "", &list), &list, "this run does not train");
}

void check_doubts(const Config *c, const Ranks *ranks, bool training)
{
    if (!file_exists("/proc/self/status"))
        log_warn("/proc is not mounted here, so memory and its limits cannot be read: neither is in the plan");
    doubt_threads(c, ranks);
    if (!ranks) doubt_alone(c, training);
    if (!training) {
        doubt_untrained(c);
        return;
    }
    doubt_rate(c);
    doubt_scale(c);
    doubt_grains(c);
}

void check_length(const Run *r)
{
    const Config *c = r->c;
    const RateSchedule *s = &r->schedule;
    double steps = strtod(c->warmup, NULL);
    if (c->batch_size > r->source.count)
        log_warn("--batch-size asks for steps of %lld %s: there are %lld, so every step takes all of them",
                 (long long)r->given->batch_size, run_rows(r), (long long)(r->source.count / run_row_texts(r)));
    if (!strchr(c->warmup, '%') && steps >= 1 && steps > (double)s->warmup_steps)
        log_warn(
            "--warmup %s is more than the %lld steps of this run by --epochs %g: the rate rises until the last step",
            c->warmup, (long long)s->total_steps, c->epochs);
}

Status check_foreign_model(const char *dir)
{
    static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                          "pytorch_model.bin.index.json"};
    if (file_exists_in(dir, "metrics.jsonl")) return OK;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        if (file_exists_in(dir, weights[i]))
            return fail(E_USAGE,
                        "%s/%s exists, and Cairn's training did not write it; this run would replace it with another "
                        "model. Use another --output-dir",
                        dir, weights[i]);
    return OK;
}
