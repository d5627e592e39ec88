/* Shards with next-sentence labels for some pairs or for none, or without masked words: the divisors of training and
   evaluation. Runs the real program (CAIRN_BINARY). */
#include "shard_testing.h"

#include <math.h>

static const char config[] = "{\"vocab_size\": 1000, \"hidden_size\": 32, \"num_hidden_layers\": 1, "
                             "\"num_attention_heads\": 2, \"intermediate_size\": 64, \"max_position_embeddings\": 32}";

static void put_vocab(const char *dir)
{
    static const char *const special[] = {"[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    Buf text = {0};
    buf_puts(&text, "[PAD]\n");
    for (int id = 1; id < SAMPLE_VOCAB; id++)
        if (id >= 100 && id < 104)
            buf_printf(&text, "%s\n", special[id - 100]);
        else
            buf_printf(&text, "w%d\n", id);
    testing_write(dir, "vocab.txt", text.data);
    buf_free(&text);
}

/* Exit code of `cairn pretrain` with these flags, in the folder; errors.txt gets its messages. */
static int pretrain(const char *dir, const char *flags)
{
    char *line = mem_printf("cd '%s' && '%s' pretrain --backend ref --threads 1 --precision fp32 --masking static "
                            "--max-seq-length 32 --vocab vocab.txt %s >errors.txt 2>&1",
                            dir, getenv("CAIRN_BINARY"), flags);
    int status = system(line);
    free(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A member's number in the first line that has it; NaN: null. */
static double number(const char *dir, const char *name, const char *key)
{
    Buf text = {0};
    char *path = file_join(dir, name), *wanted = mem_printf("\"%s\": ", key);
    assert_ok(file_read(path, 1 << 20, &text));
    const char *at = strstr(text.data, wanted);
    assert_non_null(at);
    at += strlen(wanted);
    double value = strncmp(at, "null", 4) == 0 ? NAN : strtod(at, NULL);
    buf_free(&text);
    free(path);
    free(wanted);
    return value;
}

static bool says(const char *dir, const char *text)
{
    Buf all = {0};
    char *path = file_join(dir, "errors.txt");
    assert_ok(file_read(path, 1 << 20, &all));
    bool found = strstr(all.data, text) != NULL;
    buf_free(&all);
    free(path);
    return found;
}

/* `pairs`: the head of next sentences is trained. One step of all 60 at rate 0 has the losses of evaluation with the
 * same weights. */
#define TRAIN                                                                                                          \
    "--data-dir part.hdf5 --model-config config.json --dropout 0 --batch-size 60 --max-steps 1 --learning-rate 0 "     \
    "--resume never --output-dir run "
#define EVALUATE "--data-dir part.hdf5 --do-eval --model run --output-dir eval "

static void train_and_evaluate(const char *dir, const Sequences *s, bool pairs)
{
    sample_shard(dir, "part.hdf5", SHARD_LISTS, s, 0, true);
    assert_int_equal(pretrain(dir, pairs ? TRAIN : TRAIN "--nsp off"), 0);
    assert_int_equal(pretrain(dir, pairs ? EVALUATE : EVALUATE "--nsp off"), 0);
    double mlm = number(dir, "run/metrics.jsonl", "mlm_loss"),
           again = number(dir, "eval/eval_results.json", "eval_mlm_loss");
    assert_true(fabs(mlm - again) < 1e-5 * again);
}

static void unlabelled_pairs(void **state)
{
    Sequences s;
    if (!hdf5_available() || !getenv("CAIRN_BINARY")) skip();
    testing_write(*state, "config.json", config);
    put_vocab(*state);
    sample_sequences(&s, 60, 5);
    for (int64_t i = 0; i < 60; i += 3) s.e.label[i] = -1;
    train_and_evaluate(*state, &s, true);
    double nsp = number(*state, "run/metrics.jsonl", "nsp_loss"),
           again = number(*state, "eval/eval_results.json", "eval_nsp_loss");
    assert_true(again > 0.5 && fabs(nsp - again) < 1e-5 * again);
    for (int64_t i = 0; i < 60; i++) s.e.label[i] = -1; /* not one */
    sample_shard(*state, "part.hdf5", SHARD_LISTS, &s, 0, true);
    assert_int_equal(pretrain(*state, TRAIN), 2);
    assert_true(says(*state, "give --nsp off"));
    train_and_evaluate(*state, &s, false);
    assert_true(number(*state, "run/metrics.jsonl", "loss") == number(*state, "run/metrics.jsonl", "mlm_loss"));
    sequences_free(&s);
}

static void no_masked_word(void **state)
{
    Sequences s;
    if (!hdf5_available() || !getenv("CAIRN_BINARY")) skip();
    testing_write(*state, "config.json", config);
    put_vocab(*state);
    sample_sequences(&s, 60, 6);
    train_and_evaluate(*state, &s, true);
    for (int64_t i = 0; i <= 60; i++) s.e.masked_offset[i] = 0;
    sample_shard(*state, "bare.hdf5", SHARD_LISTS, &s, 0, true);
    assert_int_equal(pretrain(*state, "--data-dir bare.hdf5 --do-eval --model run --output-dir eval"), 1);
    assert_true(says(*state, "bare.hdf5: no word of its 60 sequences is masked"));
    sequences_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(unlabelled_pairs, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(no_masked_word, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
