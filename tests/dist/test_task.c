/* A third task, to show that it takes nothing but a table and a reader: a score for each sentence of DIR/scores.tsv,
   by regression. It trains on two ranks, stops, resumes, and equals an uninterrupted run to the last bit. */
#include "testing.h"

#include <math.h>

#include "report/record.h"
#include "train/job/evaluation.h"
#include "train/job/result.h"
#include "train/run/run.h"
#include "train/run/start.h"

/* ---- the task ---- */

typedef struct {
    Examples all;
    LoadedExamples loaded;
    double sum; /* of squared errors */
} Scores;

static Status check(Run *r)
{
    r->train = r->c->do_train;
    r->evaluate = r->c->do_eval;
    return r->train ? OK : fail(E_USAGE, "nothing to do: give --do-train");
}

/* Lines of SCORE, a tab and a sentence. */
static Status read_scores(Run *r, Examples *e)
{
    Buf file = {0};
    TokenIds words = {0};
    Tokenizer *t = tokenizer_new(r->text.vocab, r->text.options);
    char *path = file_join(r->c->data_dir, "scores.tsv"), *at, *next;
    int max = (int)r->c->max_seq_length;
    Status status = OK;
    TRY_DONE(file_read(path, 1 << 20, &file));
    *e = (Examples){.offset = mem_array(file.len + 1, sizeof *e->offset),
                    .ids = mem_array(file.len * 4, sizeof *e->ids),
                    .types = mem_array(file.len * 4, sizeof *e->types),
                    .score = mem_array(file.len, sizeof *e->score),
                    .score_width = 1};
    for (at = file.data; at && *at; at = next) {
        int64_t *end = &e->offset[e->count + 1], begin = end[-1];
        next = strchr(at, '\n');
        if (next) *next++ = '\0';
        e->score[e->count++] = strtof(at, &at);
        if (*at++ != '\t') TRY_DONE(fail(E_FORMAT, "%s:%lld: no tab after the score", path, (long long)e->count));
        words.count = 0;
        tokenizer_encode(t, at, strlen(at), &words);
        *end = begin + tokenizer_pair(t, &words, NULL, max, e->ids + begin, e->types + begin);
    }
    e->digest = digest_of(file.data, file.len);
done:
    tokenizer_free(t);
    token_ids_free(&words);
    buf_free(&file);
    free(path);
    return status;
}

static Status open_task(Run *r)
{
    Scores *s = r->own;
    r->name = "scores";
    TRY(start_text(r->c, NULL, &r->text));
    TRY(start_model(r->c, &r->text, (Head){HEAD_REGRESSION, 1}, r->c->max_seq_length, &r->model, NULL));
    TRY(read_scores(r, &s->all));
    s->loaded = (LoadedExamples){&s->all, (uint64_t)r->c->seed, r->c->batch_size};
    r->source = loaded_source(&s->loaded);
    return OK;
}

static void need(Run *r, PlanInput *n)
{
    const Examples *e = &((Scores *)r->own)->all;
    n->mean_length = (double)e->offset[e->count] / (double)e->count;
}

static Digest data_digest(const Run *r) { return ((const Scores *)r->own)->all.digest; }

static Status add_errors(void *context, const MicroBatch *b, int64_t number)
{
    Run *r = context;
    Scores *s = r->own;
    float score[64], loss[64];
    (void)number;
    TRY(session_evaluate(&r->session, b, score, loss));
    for (int i = 0; i < b->n_seqs; i++) s->sum += pow((double)(score[i] - micro_scores(b)[i]), 2);
    return OK;
}

/* Small enough for each rank to evaluate all of it. */
static Status evaluate_during(Run *r, double *metric, Buf *text)
{
    Scores *s = r->own;
    Status status = OK;
    int64_t index[64];
    Evaluation v;
    evaluation_init(&v, r, s->all.count);
    s->sum = 0;
    for (int64_t i = 0; i < 64; i++) index[i] = i;
    status = evaluation_batch(&v, &s->all, index, s->all.count, add_errors, r);
    evaluation_free(&v);
    *metric = -s->sum;
    buf_printf(text, "squared error %.4f", s->sum);
    return status;
}

static void figures(const Run *r, EvalFigures *f)
{
    eval_figure(f, "all", "squared_error", "", ((const Scores *)r->own)->sum, FIGURE_ANYWHERE);
}

static Status evaluate(Run *r)
{
    Buf text = {0};
    double metric;
    TRY(evaluate_during(r, &metric, &text));
    log_info("evaluation: %s", text.data);
    buf_free(&text);
    return OK;
}

static void close_task(Run *r) { examples_free(&((Scores *)r->own)->all); }

static const Task task_scores = {.size = sizeof(Scores),
                                 .folder = true,
                                 .check = check,
                                 .open = open_task,
                                 .need = need,
                                 .train_digest = data_digest,
                                 .eval_digest = data_digest,
                                 .results_there = result_there,
                                 .evaluate_during = evaluate_during,
                                 .evaluate = evaluate,
                                 .figures = figures,
                                 .close = close_task};

/* ---- its runs ---- */

enum { RANKS = 2, SENTENCES = 40, STEPS = 6 };

static void write_text(const char *name, const char *text, size_t size)
{
    assert_ok(file_write_durable(name, text, size));
}

/* Sentences of a few of ten words; the score is the mean of the words' numbers. */
static void make_files(const char *dir)
{
    static const char sizes[] = "{\"vocab_size\": 15, \"hidden_size\": 32, \"num_hidden_layers\": 2, "
                                "\"num_attention_heads\": 2, \"intermediate_size\": 64, "
                                "\"max_position_embeddings\": 32, \"type_vocab_size\": 2}";
    static const char words[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\ni\nj\n";
    Buf data = {0};
    uint32_t seed = 7;
    for (int s = 0; s < SENTENCES; s++) {
        int n = 1 + s % 9, sum = 0;
        Buf line = {0};
        for (int i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            int word = (int)(seed >> 16) % 10;
            buf_printf(&line, "%s%c", i ? " " : "", 'a' + word);
            sum += word;
        }
        buf_printf(&data, "%.3f\t%s\n", (double)sum / n, line.data);
        buf_free(&line);
    }
    assert_int_equal(chdir(dir), 0);
    write_text("config.json", sizes, sizeof sizes - 1);
    write_text("vocab.txt", words, sizeof words - 1);
    write_text("scores.tsv", data.data, data.len);
    buf_free(&data);
}

static int rank_work(int rank, const char *output)
{
    const char *argv[] = {"cairn",          "glue",        "--do-train",        "--do-eval",
                          "--data-dir",     ".",           "--vocab",           "vocab.txt",
                          "--model-config", "config.json", "--backend",         "ref",
                          "--precision",    "fp32",        "--max-seq-length",  "16",
                          "--batch-size",   "8",           "--max-steps",       "6",
                          "--eval-every",   "3",           "--eval-batch-size", "64",
                          "--save-every",   "off",         "--learning-rate",   "1e-3",
                          "--persist-file", "stop",        "--snapshot-steps",  "0",
                          "--peer-timeout", "1h",          "--output-dir",      output};
    char number[12], job[32];
    Config c = {0};
    snprintf(number, sizeof number, "%d", rank);
    setenv("RANK", number, 1);
    setenv("LOCAL_RANK", number, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    snprintf(job, sizeof job, "task-%ld", (long)getppid());
    setenv("CAIRN_JOB", job, 1);
    Status status = config_parse(&c, sizeof argv / sizeof *argv, (char **)(uintptr_t)argv, NULL);
    if (status == OK) status = run_task(&c, &task_scores, NULL);
    if (status != OK) fprintf(stderr, "rank %d: %s\n", rank, status_message());
    config_free(&c);
    return (int)status;
}

static void run(const char *output, Status expected)
{
    pid_t children[RANKS];
    int how;
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        children[r] = fork();
        assert_true(children[r] >= 0);
        if (children[r] == 0) _exit(rank_work(r, output));
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(waitpid(children[r], &how, 0), children[r]);
        assert_true(WIFEXITED(how));
        assert_string_equal(status_name((Status)WEXITSTATUS(how)), status_name(expected));
    }
}

static void a_third_task_stops_and_resumes(void **state)
{
    RunRecord whole = {0}, parts = {0};
    make_files(*state);
    run("whole", OK);
    write_text("stop", "", 0);
    run("parts", E_STOPPED);
    assert_false(file_exists("stop"));
    assert_true(file_is_directory("parts/checkpoint-1"));
    run("parts", OK);
    testing_same_file("whole", "model.safetensors", "parts", "model.safetensors");
    testing_same_file("whole", "best/model.safetensors", "parts", "best/model.safetensors");
    testing_same_file("whole", "checkpoint-6/optimizer.safetensors", "parts", "checkpoint-6/optimizer.safetensors");
    assert_ok(run_record_read("whole", &whole));
    assert_ok(run_record_read("parts", &parts));
    assert_string_equal(whole.s.task, "scores");
    assert_int_equal(parts.n_steps, STEPS);
    for (int i = 0; i < STEPS; i++) assert_string_equal(whole.text[STEP_LOSS_TEXT][i], parts.text[STEP_LOSS_TEXT][i]);
    assert_true(whole.column[STEP_LOSS][STEPS - 1] < whole.column[STEP_LOSS][0]);
    assert_memory_equal(&whole.s.evals[0].value, &parts.s.evals[0].value, sizeof(double));
    run_record_free(&whole);
    run_record_free(&parts);
    assert_int_equal(chdir("/"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_third_task_stops_and_resumes, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
