/* Names that are not in the table: flags and commands of other trainers, and misspelt ones. */
#include "config/table.h"
#include "config_testing.h"

static void test_taken(void **state)
{
    (void)state;
    Config c;
    assert_ok(parse(&c, "glue", "--learning_rate", "3e-5", "--per_device_train_batch_size", "16",
                    "--num_train_epochs=2", "--task_name", "sst2", "--warmup_ratio", "0.06", "--max_steps", "-1",
                    "--save_total_limit", "2", "--lr_scheduler_type", "constant_with_warmup", "--model_name_or_path",
                    "a", NULL));
    assert_true(c.learning_rate == 3e-5 && c.epochs == 2);
    assert_int_equal(c.batch_size, 16);
    assert_string_equal(c.foreign[OPTION_batch_size], "per_device_train_batch_size");
    assert_string_equal(c.task, "SST-2");
    assert_string_equal(c.warmup, "6%");
    assert_int_equal(c.max_steps, 0);
    assert_int_equal(c.keep, 2);
    assert_string_equal(c.schedule, "constant");
    assert_string_equal(c.model, "a");
    assert_int_equal(c.source[OPTION_epochs], FROM_FLAG);
    config_free(&c);
    assert_ok(parse(&c, "glue", "--train_batch_size", "16", "--batch-size", "8", NULL));
    assert_int_equal(c.batch_size, 8);
    assert_null(c.foreign[OPTION_batch_size]); /* counts all ranks */
    config_free(&c);
}

static void test_taken_switches(void **state)
{
    (void)state;
    Config c;
    assert_ok(parse(&c, "glue", "--gradient_checkpointing", "--bf16", "True", "--fp16", "false", "--overwrite_cache",
                    "--resume_from_checkpoint", "--do_lower_case=False", NULL));
    assert_string_equal(c.recompute, "full");
    assert_string_equal(c.precision, "bf16"); /* false sets nothing */
    assert_string_equal(c.resume, "auto");
    assert_string_equal(c.do_lower_case, "no");
    config_free(&c);
    assert_ok(
        parse(&c, "glue", "--resume_from_checkpoint", "out/checkpoint-3", "--gradient-checkpointing=false", NULL));
    assert_string_equal(c.resume, "out/checkpoint-3");
    assert_string_equal(c.recompute, "none");
    config_free(&c);
}

/* Words that set a switch. */
static void test_taken_words(void **state)
{
    (void)state;
    Config c;
    assert_ok(parse(&c, "glue", "--log-level", "debug", "--gradient_clipping", "0.5", "--opt_lamb_beta_1", "0.8",
                    "--disable_weight_decay", "--remove_unused_columns", "False", "--problem_type",
                    "multi_label_classification", NULL));
    assert_true(c.verbose && c.multi_label);
    assert_true(c.max_grad_norm == 0.5 && c.adam_beta1 == 0.8 && c.weight_decay == 0);
    config_free(&c);
    assert_ok(parse(&c, "pretrain", "--log_level=warning", "--start_warmup_step", "-76", "--unpad_fmha",
                    "--dense_seq_output", "--resume_step", "-1", "--verbose_logging", "false", NULL));
    assert_false(c.verbose);
    assert_int_equal(c.warmup_start, -76);
    config_free(&c);
    assert_refused(parse(&c, "glue", "--log_level", "loud", NULL), "--log_level loud", "--verbose");
    assert_refused(parse(&c, "glue", "--log_level", NULL), "--log_level needs a value");
    assert_refused(parse(&c, "glue", "--data_seed", "3", NULL), "--data_seed is unknown", "--seed N");
    assert_refused(parse(&c, "pretrain", "--phase2", NULL), "--preset bert-large-phase2");
}

/* Values that mean something else under Cairn's own name, and flags that depend on each other. */
static void test_meanings(void **state)
{
    (void)state;
    Config c;
    static const struct {
        const char *flag, *value, *warmup;
    } warmups[] = {{"--warmup_ratio", "1", "100%"},
                   {"--warmup_ratio", "1.0", "100%"},
                   {"--warmup_ratio=0.06", NULL, "6%"},
                   {"--warmup_steps", "1", "1"},
                   {"--warmup_steps", "1.0", "1"},
                   {"--warmup_steps", "0.25", "25%"},
                   {"--warmup_proportion", "1.0", "100%"},
                   {"--warmup_proportion", "0.1", "0.1"},
                   {"--warmup", "1", "1"}};
    for (size_t i = 0; i < sizeof warmups / sizeof *warmups; i++) {
        assert_ok(parse(&c, "glue", warmups[i].flag, warmups[i].value, NULL));
        assert_string_equal(c.warmup, warmups[i].warmup);
        config_free(&c);
    }
    static const struct {
        const char *flags[4], *precision;
    } types[] = {{{"--fp16=false"}, "fp32"},
                 {{"--fp16=false", "--bf16=true"}, "bf16"},
                 {{"--bf16=true", "--tf32=true"}, "bf16"},
                 {{"--tf32=true", "--bf16=true"}, "bf16"},
                 {{"--tf32=true", "--bf16=false", "--fp16=false"}, "tf32"},
                 {{"--bf16=true", "--bf16=false"}, "fp32"},
                 {{"--fp16", "--amp=false"}, "fp16"},
                 {{"--precision=bf16", "--fp16=false"}, "bf16"},
                 {{"--mixed_precision=no"}, "fp32"},
                 {{"--mixed_precision=no", "--tf32=true"}, "tf32"},
                 {{"--tf32=true", "--mixed_precision=no"}, "tf32"},
                 {{"--mixed_precision=bf16", "--fp16=false"}, "bf16"},
                 {{"--fp16=false", "--mixed_precision=bf16"}, "bf16"},
                 {{"--precision=bf16", "--mixed_precision=no"}, "fp32"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const char *const *f = types[i].flags;
        assert_ok(parse(&c, "glue", f[0], f[1], f[2], NULL));
        assert_string_equal(c.precision, types[i].precision);
        config_free(&c);
    }
    assert_refused(parse(&c, "glue", "--fp16", "--bf16", NULL), "--fp16 and --bf16 both set --precision");
    assert_refused(parse(&c, "glue", "--mixed_precision", "no", "--fp16", NULL),
                   "--mixed_precision and --fp16 both set --precision");
    assert_refused(parse(&c, "glue", "--bf16=true", "--mixed_precision=no", NULL),
                   "--bf16 and --mixed_precision both set --precision");
    assert_refused(parse(&c, "glue", "--mixed_precision=fp16", "--bf16=true", NULL),
                   "--mixed_precision and --bf16 both set --precision");
    assert_refused(parse(&c, "glue", "--warmup_steps", "0", "--warmup_ratio", "0.1", NULL),
                   "--warmup_steps and --warmup_ratio 0.1 both set --warmup");
    assert_ok(parse(&c, "glue", "--num_train_epochs", "2", "--num_epochs=2", "--eval_steps", "500.0", NULL));
    assert_int_equal(c.eval_every, 500);
    config_free(&c);
    assert_ok(parse(&c, "glue", "--eval_strategy", "steps", NULL)); /* Transformers' --eval_steps is --logging_steps */
    assert_int_equal(c.eval_every, 500);
    config_free(&c);
    assert_ok(parse(&c, "glue", "--eval_strategy", "steps", "--logging_steps", "7", NULL));
    assert_int_equal(c.eval_every, 7);
    config_free(&c);
    assert_ok(parse(&c, "glue", "--evaluation_strategy=steps", "--eval-every", "5", NULL));
    assert_int_equal(c.eval_every, 5);
    config_free(&c);
    assert_ok(parse(&c, "glue", "--eval_strategy", "no", "--eval_steps", "5", NULL));
    assert_int_equal(c.eval_every, 0);
    config_free(&c);
    assert_ok(parse(&c, "glue", "--eval_strategy", "epoch", "--save_strategy", "epoch", "--eval_steps", "5",
                    "--load_best_model_at_end", "false", NULL));
    assert_true(c.eval_every == -1 && c.save_every == -1);
    assert_string_equal(c.final, "last");
    config_free(&c);
    assert_ok(parse(&c, "glue", "--load_best_model_at_end", "--eval-every", "epoch", "--eval_strategy=epoch", NULL));
    assert_string_equal(c.final, "best");
    config_free(&c);
    assert_refused(parse(&c, "glue", "--eval_strategy", "epoch", "--eval-every", "5", NULL),
                   "--eval_strategy epoch and --eval-every 5 contradict each other");
    assert_refused(parse(&c, "glue", "--eval_strategy", "steps", "--eval-every", "epoch", NULL),
                   "--eval_strategy steps and --eval-every epoch contradict each other");
    assert_refused(parse(&c, "glue", "--eval_strategy", "never", NULL), "--eval_strategy never", "--eval-every epoch");
    assert_ok(parse(&c, "glue", "--max_eval_samples", "10", NULL));
    assert_int_equal(c.eval_first, 10);
    config_free(&c);
}

static void test_keys_of_a_file(void **state)
{
    (void)state;
    Config c;
    char *dir = testing_directory();
    char *file =
        store(dir, "hf.json",
              "{\"per_device_train_batch_size\": 4, \"fp16\": true, \"bf16\": false, \"num_train_epochs\": 1.5}");
    assert_ok(parse(&c, "glue", "--config", file, NULL));
    assert_int_equal(c.batch_size, 4);
    assert_string_equal(c.precision, "fp16");
    assert_true(c.epochs == 1.5);
    config_free(&c);
    free(file);
    file =
        store(dir, "types.json", "{\"tf32\": true, \"bf16\": true, \"eval_strategy\": \"steps\", \"eval_steps\": 4.0}");
    assert_ok(parse(&c, "glue", "--config", file, NULL));
    assert_string_equal(c.precision, "bf16");
    assert_int_equal(c.eval_every, 4);
    config_free(&c);
    free(file);
    file = store(dir, "no.json", "{\"eval_strategy\": \"no\", \"eval_steps\": 4}");
    assert_ok(parse(&c, "glue", "--config", file, "--eval-every", "5", NULL)); /* a flag is stronger than a file */
    assert_int_equal(c.eval_every, 5);
    config_free(&c);
    assert_ok(parse(&c, "glue", "--config", file, NULL));
    assert_int_equal(c.eval_every, 0);
    config_free(&c);
    free(file);
    assert_refused(parse(&c, "glue", "--eval_strategy", "no", "--eval-every", "5", NULL),
                   "--eval_strategy no and --eval-every 5 contradict each other");
    file = store(dir, "types.json", "{\"fp16\": true, \"bf16\": true}");
    assert_refused(parse(&c, "glue", "--config", file, NULL), "--fp16 and --bf16 both set --precision");
    free(file);
    file = store(dir, "twice.json", "{\"batch-size\": 4, \"train_batch_size\": 8}");
    assert_refused(parse(&c, "glue", "--config", file, NULL), "'batch-size' is given twice");
    free(file);
    assert_ok(file_remove_tree(dir));
    free(dir);
}

static void test_refused_with_advice(void **state)
{
    (void)state;
    Config c;
    assert_refused(parse(&c, "glue", "--lr_scheduler_type", "inverse_sqrt", NULL), "inverse_sqrt", "--schedule linear");
    assert_refused(parse(&c, "glue", "--gradient_accumulation_steps", "4", NULL), "--batch-size",
                   "--micro-batch-tokens");
    assert_ok(parse(&c, "glue", "--gradient_accumulation_steps", "1", NULL));
    config_free(&c);
    assert_refused(parse(&c, "glue", "--optim", "adamw_torch", NULL), "--optimizer adamw", "--bias-correction");
    assert_refused(parse(&c, "glue", "--fp16=maybe", NULL), "--fp16 maybe", "true or false");
    assert_refused(parse(&c, "glue", "--lr", NULL), "--lr needs a value");
    assert_refused(parse(&c, "glue", "--lr", "x", NULL), "--learning-rate is 'x'");
    assert_refused(parse(&c, "vocab", "--lr", "1", NULL), "--lr is not a flag of `cairn vocab`");
    assert_refused(parse(&c, "glue", "--warmup_ratio", "100", NULL), "--warmup_ratio 100", "--warmup N");
    assert_refused(parse(&c, "glue", "--eval_steps", "0.1", NULL), "--eval_steps 0.1", "--eval-every N");
    assert_refused(parse(&c, "squad", "--max_eval_samples", "10", NULL), "--max_eval_samples is not a flag of");
    assert_refused(parse(&c, "train", NULL), "unknown command 'train'", "`cairn glue --do-train`", "`cairn pretrain`");
}

/* A guess only where a name is similar. */
static void test_similar(void **state)
{
    (void)state;
    Config c;
    assert_refused(parse(&c, "glue", "--batch", "3", NULL), "nearest is --batch-size");
    assert_refused(parse(&c, "glue", "--recomput", "full", NULL), "nearest is --recompute");
    assert_refused(parse(&c, "glue", "--steps", "3", NULL), "nearest is --max-steps"); /* a whole part */
    assert_string_equal(config_nearest_flag(COMMAND_GLUE, "layers"), "stage-layers");
    assert_string_equal(config_nearest_flag(COMMAND_GLUE, "grad_norm"), "max-grad-norm");
    assert_string_equal(config_nearest_flag(COMMAND_GLUE, "label"), "labels"); /* not label-column */
    assert_string_equal(config_nearest_flag(COMMAND_GLUE, "wramup"), "warmup");
    static const char *const misled[] = {"data_seed", "trace", "peers", "xarmupp", "zebra-crossing"};
    for (size_t i = 0; i < sizeof misled / sizeof *misled; i++)
        assert_null(config_nearest_flag(COMMAND_GLUE, misled[i]));
    assert_null(config_nearest_flag(COMMAND_VOCAB, "wire-up"));
    assert_null(config_nearest_command("nonsense"));
    assert_string_equal(config_nearest_command("pretrian"), "pretrain");
    assert_string_equal(config_nearest_command("gleu"), "glue"); /* two letters exchanged */
}

/* Every row is of use: its option takes its values, no name hides an option, and what is refused has an advice. */
static void test_rows(void **state)
{
    (void)state;
    for (const ForeignName *f = config_foreign; f->name; f++) {
        char value[64];
        int own = config_option(f->name);
        assert_true(own < 0 || own == f->option);
        assert_ptr_equal(config_foreign_name(f->name), f); /* no name twice */
        assert_true(f->option >= 0 || *f->values || *f->advice);
        assert_true(strpbrk(f->values, "*") || *f->advice || strncmp(f->values, "true= false=", 12) == 0);
        for (const char *p = f->values; *p; p += strcspn(p, " "), p += *p == ' ') {
            char word[64];
            if (strchr("*#%/", *p)) continue;
            snprintf(word, sizeof word, "%.*s", (int)strcspn(p, "="), p);
            assert_true(config_foreign_value(f, word, value, sizeof value));
            Config c = {0};
            if (f->option >= 0 && *value) assert_ok(config_set_value(&c, f->option, "", value, FROM_FLAG));
            config_free(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),          cmocka_unit_test(test_taken_switches),
        cmocka_unit_test(test_taken_words),    cmocka_unit_test(test_meanings),
        cmocka_unit_test(test_keys_of_a_file), cmocka_unit_test(test_refused_with_advice),
        cmocka_unit_test(test_similar),        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
