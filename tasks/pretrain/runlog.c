#include "tasks/pretrain/runlog.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"

struct RunLog {
    const Config *c;
    FILE *file;
    char *path;
    bool mlperf, warned, continued; /* continued: the file has the run's start */
    bool in_block;
    int64_t block_start;   /* sequences when the block of training began */
    int64_t every, total;  /* sequences between evaluations, and of all training */
    double opened, before; /* clock_monotonic; seconds of the run until then, in earlier processes */
};

static void write_line(RunLog *l, const Buf *line)
{
    bool good = fwrite(line->data, 1, line->len, l->file) == line->len && fflush(l->file) == 0;
    if (!good && !l->warned) log_warn("%s: %s; later lines may be missing too", l->path, strerror(errno));
    l->warned |= !good;
}

/* ---- MLPerf ---- */

typedef enum { POINT, START, END } Event;

/* `value` and `metadata` are JSON; metadata without braces, may be "". */
static void mllog(RunLog *l, Event event, const char *key, const char *value, const char *metadata)
{
    static const char *const events[] = {"POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"};
    Buf line = {0};
    buf_printf(
        &line,
        ":::MLLOG {\"namespace\": \"\", \"time_ms\": %lld, \"event_type\": \"%s\", \"key\": \"%s\", \"value\": %s, "
        "\"metadata\": {\"file\": \"runlog.c\", \"lineno\": 1%s%s}}\n",
        (long long)(clock_wall() * 1e3), events[event], key, value, *metadata ? ", " : "", metadata);
    write_line(l, &line);
    buf_free(&line);
}

static void mllog_real(RunLog *l, const char *key, double value)
{
    Buf text = {0};
    buf_double(&text, value);
    mllog(l, POINT, key, text.data, "");
    buf_free(&text);
}

static void mllog_samples(RunLog *l, Event event, const char *key, const char *value, int64_t samples)
{
    mllog(l, event, key, value, SHORT_TEXT("\"epoch_num\": %lld", (long long)samples));
}

static void mllog_block(RunLog *l, Event event, const char *key, int64_t count)
{
    mllog(l, event, key, "null",
          SHORT_TEXT("\"first_epoch_num\": %lld, \"epoch_count\": %lld", (long long)l->block_start, (long long)count));
}

/* The rules require the block's count of sequences at its start, and forbid 0. */
static void block_begin(RunLog *l, int64_t samples)
{
    int64_t left = l->total - samples;
    l->block_start = samples;
    l->in_block = left > 0;
    if (l->in_block) mllog_block(l, START, "block_start", l->every > 0 && l->every < left ? l->every : left);
}

static void block_end(RunLog *l, int64_t samples)
{
    if (l->in_block) mllog_block(l, END, "block_stop", samples - l->block_start);
    l->in_block = false;
}

static void mllog_text(RunLog *l, const char *key, const char *value)
{
    Buf text = {0};
    buf_json(&text, value);
    mllog(l, POINT, key, text.data, "");
    buf_free(&text);
}

static void mllog_submission(RunLog *l)
{
    mllog(l, POINT, "cache_clear", l->c->mlperf_cache_clear ? "true" : "false", "");
    mllog(l, START, "init_start", "null", "");
    mllog_text(l, "submission_benchmark", "bert");
    mllog_text(l, "submission_org", l->c->mlperf_org);
    mllog_text(l, "submission_division", l->c->mlperf_division);
    mllog_text(l, "submission_status", l->c->mlperf_status);
    mllog_text(l, "submission_platform", l->c->mlperf_platform);
}

static void mllog_settings(RunLog *l, const RunLogStart *start)
{
    const RateSchedule *s = start->schedule;
    mllog_real(l, "seed", (double)l->c->seed);
    mllog_real(l, "global_batch_size", (double)l->c->batch_size);
    mllog_real(l, "d_batch_size", (double)l->c->batch_size);
    mllog_real(l, "gradient_accumulation_steps", (double)start->micros);
    mllog_real(l, "max_predictions_per_seq", (double)start->predictions);
    mllog_real(l, "opt_learning_rate_training_steps", (double)s->total_steps);
    mllog_real(l, "num_warmup_steps", (double)s->warmup_steps);
    mllog_real(l, "opt_learning_rate_warmup_steps", (double)s->warmup_steps);
    mllog_real(l, "start_warmup_step", (double)s->warmup_start);
    mllog_real(l, "opt_base_learning_rate", s->learning_rate);
    mllog_real(l, "opt_epsilon", l->c->adam_eps);          /* as given: the optimizer's are rounded to fp32 */
    if (start->optimizer->kind == OPTIMIZER_ADAMW) return; /* the rules have no keys for it */
    mllog_real(l, "opt_lamb_epsilon", l->c->adam_eps);
    mllog_real(l, "opt_lamb_beta_1", l->c->adam_beta1);
    mllog_real(l, "opt_lamb_beta_2", l->c->adam_beta2);
    mllog_real(l, "opt_lamb_weight_decay_rate", l->c->weight_decay);
    mllog_real(l, "opt_lamb_learning_rate_decay_poly_power", s->power);
}

/* ---- dllogger ---- */

/* Seconds since the run's start, without those between its processes. */
static double elapsed(const RunLog *l) { return l->before + clock_monotonic() - l->opened; }

/* `step`: JSON, "\"PARAMETER\"", "[]", "[epoch, step]" or "[samples]". */
static void dllogger(RunLog *l, const char *step, const char *data)
{
    char now[32];
    Buf line = {0};
    clock_iso(now, sizeof now);
    buf_printf(&line,
               "DLLL {\"timestamp\": \"%.6f\", \"datetime\": \"%s\", \"elapsedtime\": \"%.6f\", \"type\": \"LOG\", "
               "\"step\": %s, \"data\": {%s}}\n",
               clock_wall(), now, elapsed(l), step, data);
    write_line(l, &line);
    buf_free(&line);
}

/* ---- both ---- */

/* Offset of the last occurrence of a text in the file; −1: none. */
static int64_t last_place(const Buf *file, const char *text)
{
    int64_t place = -1;
    for (const char *at = file->data; at && (at = strstr(at, text)); at++) place = at - file->data;
    return place;
}

/* Where the file's last run starts, if it has no end; else −1. */
static int64_t open_run(const RunLog *l, const Buf *text)
{
    int64_t start = last_place(text, l->mlperf ? "\"run_start\"" : "\"PARAMETER\"");
    return start > last_place(text, l->mlperf ? "\"run_stop\"" : "\"step\": [],") ? start : -1;
}

/* The number behind `key` in a line; −1: none. */
static int64_t number_of(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    char *end;
    if (!at) return -1;
    long long n = strtoll(at + strlen(key), &end, 10);
    return end == at + strlen(key) ? -1 : n;
}

/* Whether the run writes a line of dllogger.json again. */
static bool is_repeated(const char *line, const RunLogStart *start)
{
    long long first, step;
    const char *at = strstr(line, "\"step\": [");
    int n = at ? sscanf(at, "\"step\": [%lld, %lld]", &first, &step) : 0;
    return n == 2 ? step > start->step : n == 1 && start->evaluated >= 0 && first > start->evaluated;
}

/* Cuts off a torn line, and the steps and evaluations that the run makes again. In mlperf.log an evaluation's first
   line is the stop of the block before it. The lines that stay say whether a block is open, and how long the run took.
 */
static void continue_run(RunLog *l, const RunLogStart *begins)
{
    static const char time[] = "\"elapsedtime\": \"";
    int64_t evaluated = begins->evaluated;
    Buf text = {0};
    bool good = file_read(l->path, (size_t)1 << 30, &text) == OK;
    int64_t start = good ? open_run(l, &text) : -1;
    size_t kept = start < 0 ? text.len : (size_t)start;
    while (start >= 0 && kept > 0 && text.data[kept - 1] != '\n') kept--;
    for (char *line = text.data + kept, *end; start >= 0 && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        bool stop = strstr(line, "\"block_stop\"");
        int64_t at = number_of(line, "\"first_epoch_num\": ");
        const char *took = strstr(line, time);
        if (l->mlperf ? evaluated >= 0 && stop && at >= evaluated : is_repeated(line, begins)) break;
        if (took) l->before = strtod(took + strlen(time), NULL);
        if (at >= 0) {
            l->in_block = !stop;
            l->block_start = at;
        }
        kept = (size_t)(end + 1 - text.data);
    }
    if (!good || ftruncate(fileno(l->file), (off_t)kept) != 0)
        log_warn("%s: lines of steps and evaluations that are made again cannot be cut off (%s)", l->path,
                 good ? strerror(errno) : status_message());
    buf_free(&text);
}

Status runlog_open(RunLog **log, const Config *c, bool resumed)
{
    Buf text = {0};
    *log = NULL;
    if (strcmp(c->log_format, "plain") == 0) return OK;
    RunLog *l = mem_alloc(sizeof *l);
    l->c = c;
    l->opened = clock_monotonic();
    l->mlperf = strcmp(c->log_format, "mlperf") == 0;
    l->path = file_join(c->output_dir, l->mlperf ? "mlperf.log" : "dllogger.json");
    if (resumed && file_exists(l->path) && file_read(l->path, (size_t)1 << 30, &text) == OK)
        l->continued = open_run(l, &text) >= 0;
    buf_free(&text);
    int fd;
    Status status = file_open_regular(l->path, O_WRONLY | O_CREAT | (resumed ? O_APPEND : O_TRUNC), &fd);
    if (status == OK && !(l->file = fdopen(fd, resumed ? "a" : "w"))) status = fail(E_IO, "%s: %m", l->path);
    if (status != OK) {
        runlog_close(l);
        return status;
    }
    if (l->mlperf && !l->continued) mllog_submission(l);
    *log = l;
    return OK;
}

void runlog_start(RunLog *l, const RunLogStart *start)
{
    if (!l) return;
    const RateSchedule *s = start->schedule;
    l->every = start->every;
    l->total = start->train_samples;
    if (l->continued) {
        continue_run(l, start);
        return;
    }
    if (!l->mlperf) {
        dllogger(l, "\"PARAMETER\"",
                 SHORT_TEXT("\"train_batch_size\": %lld, \"learning_rate\": %.9g, \"max_steps\": %lld, \"seed\": %lld",
                            (long long)l->c->batch_size, s->learning_rate, (long long)s->total_steps,
                            (long long)l->c->seed));
        return;
    }
    mllog_settings(l, start);
    mllog(l, END, "init_stop", "null", "");
    mllog(l, START, "run_start", "null", "");
    mllog_real(l, "train_samples", (double)start->train_samples);
    mllog_real(l, "eval_samples", (double)start->eval_samples);
    mllog_samples(l, START, "epoch_start", "null", start->samples);
    block_begin(l, start->samples);
}

void runlog_step(RunLog *l, int64_t epoch, int64_t step, double loss, double rate)
{
    if (!l || l->mlperf) return;
    dllogger(l, SHORT_TEXT("[%lld, %lld]", (long long)epoch, (long long)step),
             SHORT_TEXT("\"average_loss\": %.9g, \"step_loss\": %.9g, \"learning_rate\": %.9g", loss, loss, rate));
}

void runlog_evaluation_start(RunLog *l, int64_t samples)
{
    if (!l || !l->mlperf) return;
    block_end(l, samples);
    mllog_samples(l, START, "eval_start", "null", samples);
}

void runlog_evaluation_end(RunLog *l, int64_t samples, double mlm_accuracy, bool more)
{
    if (!l) return;
    if (!l->mlperf) {
        dllogger(l, SHORT_TEXT("[%lld]", (long long)samples), SHORT_TEXT("\"eval_mlm_accuracy\": %.9g", mlm_accuracy));
        return;
    }
    mllog_samples(l, POINT, "eval_accuracy", SHORT_TEXT("%.9g", mlm_accuracy), samples);
    mllog_samples(l, END, "eval_stop", "null", samples);
    if (more) block_begin(l, samples);
}

void runlog_stop(RunLog *l, int64_t samples, bool success, double seq_per_s, double seconds, double loss)
{
    if (!l) return;
    if (!l->mlperf) {
        dllogger(l, "[]",
                 SHORT_TEXT("\"e2e_train_time\": %.6f, \"training_sequences_per_second\": %.6g, \"final_loss\": %.9g, "
                            "\"raw_train_time\": %.6f, \"train_samples\": %lld",
                            elapsed(l), seq_per_s, loss, seconds, (long long)samples));
        return;
    }
    block_end(l, samples);
    mllog_samples(l, POINT, "tracked_stats", SHORT_TEXT("{\"throughput\": %.6g}", seq_per_s), samples);
    mllog_samples(l, END, "epoch_stop", "null", samples);
    mllog(l, END, "run_stop", "null", success ? "\"status\": \"success\"" : "\"status\": \"aborted\"");
}

void runlog_close(RunLog *l)
{
    if (!l) return;
    if (l->file) fclose(l->file);
    MEM_FREE(l->path, l);
}
