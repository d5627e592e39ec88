/* Names that are not in the table: those of other trainers, and misspelt ones. */
#include <strings.h>

#include "config/table.h"

#define SWITCH(value)    "true=" value " false="
#define PRECISION_SWITCH "true or false (fp32, where no other type is given)"

/* Hugging Face's run_glue.py, run_mlm.py and TrainingArguments, NVIDIA's DeepLearningExamples, Google's BERT. */
const ForeignName config_foreign[] = {
    /* task and files */
    {"task_name", OPTION_task,
     "cola=CoLA sst2=SST-2 sst-2=SST-2 mrpc=MRPC stsb=STS-B sts-b=STS-B qqp=QQP mnli=MNLI qnli=QNLI rte=RTE wnli=WNLI "
     "ax=AX *",
     ""},
    {"model_name_or_path", OPTION_model, "*", ""},
    {"model_name", OPTION_model, "*", ""},
    {"init_checkpoint", OPTION_model, "*", ""},
    {"bert_model", -1, "", "--model DIR has the weights, --model-config bert-large the sizes"},
    {"model_type", -1, "false=", "config.json says whether a model is BERT or DistilBERT"},
    {"bert_config_file", OPTION_model_config, "*", ""},
    {"config_file", OPTION_model_config, "*", ""},
    {"config_name", OPTION_model_config, "*", ""},
    {"vocab_file", OPTION_vocab, "*", ""},
    {"tokenizer_name", -1, "", "--vocab FILE names the vocabulary"},
    {"tokenizer", -1, "", "--vocab FILE names the vocabulary"},
    {"input_dir", OPTION_data_dir, "*", ""},
    {"train_file", -1, "", "--data-dir DIR holds the files of all splits"},
    {"validation_file", -1, "", "--data-dir DIR holds the files of all splits"},
    {"test_file", -1, "", "--data-dir DIR holds the files of all splits"},
    {"predict_file", -1, "", "--data-dir DIR holds the files: --do-eval reads dev, --do-predict test"},
    {"version_2_with_negative", OPTION_version_2, "true=true false=false", "true or false"},
    {"dataset_name", -1, "", "nothing is fetched: --data-dir DIR holds the data"},
    {"dataset_config_name", -1, "", "nothing is fetched: --data-dir DIR holds the data"},
    {"trust_remote_code", -1, "false=", "no code is fetched or executed"},
    {"max_train_samples", -1, "", "--max-steps N ends training early; fewer examples are a shorter file"},
    {"max_predict_samples", -1, "", "--do-predict takes the whole test split; `cairn predict` takes any texts"},
    {"remove_unused_columns", -1, SWITCH(""), ""},
    {"cache_dir", -1, "", "nothing is fetched or cached"},
    {"overwrite_cache", -1, SWITCH(""), ""},
    {"overwrite_output_dir", -1, "false=", "--resume never starts again in a folder that has a checkpoint"},
    {"push_to_hub", -1, "false=", "nothing is uploaded: --output-dir is a Hugging Face folder"},
    /* text */
    {"max_length", OPTION_max_seq_length, "*", ""},
    {"max_predictions_per_seq", OPTION_predictions, "*", ""},
    {"pad_to_max_length", OPTION_padded, "true=true false=false", "true or false"},
    {"mlm_probability", OPTION_mask_fraction, "*", ""},
    {"masked_lm_prob", OPTION_mask_fraction, "*", ""},
    {"do_whole_word_mask", OPTION_whole_words, "true=true false=false", "true or false"},
    {"random_seed", OPTION_seed, "*", ""},
    {"data_seed", -1, "", "--seed N is the seed of the data's order too"},
    {"line_by_line", -1, "false=", "sequences are filled with the sentences of a document; its lines are sentences"},
    {"group_by_length", -1, "false=", "sequences are packed, so that nothing is computed for padding"},
    {"text_column", OPTION_text_columns, "*", ""},
    {"text_column_name", OPTION_text_columns, "*", ""},
    {"label_column_name", OPTION_label_column, "*", ""},
    {"problem_type", OPTION_multi_label, "multi_label_classification=true single_label_classification=false",
     "--labels regression, or --multi-label"},
    /* training */
    {"per_device_train_batch_size", OPTION_batch_size, "*", ""},
    {"per_gpu_train_batch_size", OPTION_batch_size, "*", ""},
    {"train_batch_size", OPTION_batch_size, "*", ""},
    {"gradient_accumulation_steps", -1,
     "1=", "--batch-size counts the sequences of a whole step; --micro-batch-tokens sets the size of one pass"},
    {"num_accumulation_steps", -1,
     "1=", "--batch-size counts the sequences of a whole step; --micro-batch-tokens sets the size of one pass"},
    {"lr", OPTION_learning_rate, "*", ""},
    {"num_train_epochs", OPTION_epochs, "*", ""},
    {"num_epochs", OPTION_epochs, "*", ""},
    {"max_steps", OPTION_max_steps, "-1=0 *", ""},
    {"max_train_steps", OPTION_max_steps, "*", ""},
    {"num_train_steps", OPTION_max_steps, "*", ""},
    {"warmup_steps", OPTION_warmup, "# %", "expected a count of steps, or a share of them below 1"},
    {"num_warmup_steps", OPTION_warmup, "#", "expected a count of steps"},
    {"warmup_ratio", OPTION_warmup, "%", "expected a share of the steps from 0 to 1; --warmup N is a count of steps"},
    {"warmup_proportion", OPTION_warmup, "/",
     "expected a share of the steps from 0 to 1; --warmup N is a count of steps"},
    {"start_warmup_step", OPTION_warmup_start, "*", ""},
    {"lr_scheduler_type", OPTION_schedule, "linear=linear cosine=cosine constant_with_warmup=constant",
     "--schedule linear, cosine, constant or poly:P; --warmup 0 is without warmup"},
    {"label_smoothing_factor", OPTION_label_smoothing, "*", ""},
    {"early_stopping_patience", OPTION_patience, "*", ""},
    {"optim", -1, "",
     "--optimizer adamw; with --bias-correction it is Hugging Face's, with --no-bias-correction BERT's"},
    {"optimizer_type", -1, "",
     "--optimizer lamb --bias-correction is NVIDIA's LAMB, --optimizer adamw --no-bias-correction Google's Adam"},
    {"adam_epsilon", OPTION_adam_eps, "*", ""},
    {"opt_lamb_beta_1", OPTION_adam_beta1, "*", ""},
    {"opt_lamb_beta_2", OPTION_adam_beta2, "*", ""},
    {"distributed_lamb", -1, "false=", "--optimizer lamb or nvlamb; --shard optimizer divides its moments among ranks"},
    {"disable_weight_decay", OPTION_weight_decay, SWITCH("0"), "true or false"},
    {"gradient_clipping", OPTION_max_grad_norm, "*", ""},
    {"hidden_dropout_prob", -1, "", "--dropout sets all rates"},
    {"phase2", -1, "false=", "--preset bert-large-phase2 has the recipe, --model RUN the weights of phase 1"},
    {"phase1_end_step", -1, "", "--model RUN starts phase 2 with the weights of phase 1, at step 0"},
    /* computing and memory */
    {"fp16", OPTION_precision, SWITCH("fp16"), PRECISION_SWITCH},
    {"use_fp16", OPTION_precision, SWITCH("fp16"), PRECISION_SWITCH},
    {"bf16", OPTION_precision, SWITCH("bf16"), PRECISION_SWITCH},
    {"tf32", OPTION_precision, SWITCH("tf32"), PRECISION_SWITCH},
    {"amp", OPTION_precision, SWITCH("fp16"), PRECISION_SWITCH},
    {"mixed_precision", OPTION_precision, "no=fp32 fp16=fp16 bf16=bf16", "--precision fp32, bf16 or fp16"},
    {"fp16_opt_level", -1, "", "--precision fp16 keeps weights and moments in fp32"},
    {"fp16_full_eval", -1, "false=", "--precision is the type of training and of evaluation"},
    {"bf16_full_eval", -1, "false=", "--precision is the type of training and of evaluation"},
    {"torch_dtype", -1, "auto= float32=", "--precision is the compute type; weights and moments are fp32"},
    {"gradient_checkpointing", OPTION_recompute, SWITCH("full"), "true or false; --recompute has more policies"},
    {"checkpoint_activations", OPTION_recompute, SWITCH("full"), "true or false; --recompute has more policies"},
    {"activation_checkpointing", OPTION_recompute, SWITCH("full"), "true or false; --recompute has more policies"},
    {"no_cuda", OPTION_backend, SWITCH("cpu"), "true or false"},
    {"use_cpu", OPTION_backend, SWITCH("cpu"), "true or false"},
    {"use_tpu", -1, "false=", "--backend is cuda, cpu or ref"},
    {"use_xla", -1, SWITCH(""), ""},
    {"torch_compile", -1, SWITCH(""), ""},
    {"attn_implementation", -1, "", "--attention own or cudnn; no attention matrix is stored"},
    {"unpad", -1, SWITCH(""), ""},
    {"unpad_fmha", -1, SWITCH(""), ""},
    {"dense_seq_output", -1, SWITCH(""), ""},
    {"dataloader_num_workers", -1, "", "--threads counts all threads; data is read beside training"},
    {"preprocessing_num_workers", OPTION_threads, "*", ""},
    {"num_workers", -1, "", "--threads counts all threads; data is read beside training"},
    {"dataloader_drop_last", -1, "false=", "the last batch of an epoch is trained with, too"},
    /* saving, watching */
    {"save_strategy", OPTION_save_every, "no=off steps= epoch=epoch", "--save-steps N or --save-every TIME"},
    {"save_checkpoints_steps", OPTION_save_steps, "*", ""},
    {"num_steps_per_checkpoint", OPTION_save_steps, "*", ""},
    {"save_total_limit", OPTION_keep, "*", ""},
    {"resume_from_checkpoint", OPTION_resume, "true=auto false=never *", ""},
    {"resume_step", -1, "-1=", "--resume auto takes the newest checkpoint, --resume DIR another"},
    {"skip_checkpoint", OPTION_save_every, SWITCH("off"), "true or false"},
    {"eval_strategy", FOREIGN_STRATEGY, "no= steps= epoch=", "--eval-every N, or --eval-every epoch"},
    {"evaluation_strategy", FOREIGN_STRATEGY, "no= steps= epoch=", "--eval-every N, or --eval-every epoch"},
    {"eval_steps", OPTION_eval_every, "#", "expected a count of steps, as --eval-every N"},
    {"eval_iter_samples", OPTION_eval_samples, "*", ""},
    {"num_eval_examples", OPTION_eval_count, "*", ""},
    {"max_eval_samples", OPTION_eval_first, "#", "expected a count"},
    {"per_device_eval_batch_size", OPTION_eval_batch_size, "*", ""},
    {"per_gpu_eval_batch_size", OPTION_eval_batch_size, "*", ""},
    {"predict_batch_size", OPTION_eval_batch_size, "*", ""},
    {"load_best_model_at_end", OPTION_final, "true=best false=last", "true or false"},
    {"metric_for_best_model", OPTION_best_by,
     "accuracy eval_accuracy=accuracy f1 eval_f1=f1 macro_f1 eval_macro_f1=macro_f1 matthews_correlation "
     "eval_matthews_correlation=matthews_correlation pearson eval_pearson=pearson loss eval_loss=loss",
     "--best-by has the names of metrics"},
    {"logging_steps", OPTION_log_every, "#", "expected a count of steps, as --log-every N"},
    {"log_freq", OPTION_log_every, "*", ""},
    {"logging_strategy", -1, "steps=", "--log-every N"},
    {"logging_first_step", -1, SWITCH(""), ""},
    {"log_level", OPTION_verbose,
     "debug=true detail=true info= warning= error= critical= passive=", "--verbose logs more"},
    {"verbose_logging", OPTION_verbose, "true=true false=false", "true or false"},
    {"logging_dir", -1, "", "curves are in --output-dir: metrics.jsonl and TensorBoard's events"},
    {"report_to", -1, "none= tensorboard=", "curves are in --output-dir: metrics.jsonl and TensorBoard's events"},
    {"run_name", -1, "", "--output-dir names the run"},
    {"json_summary", -1, "", "--log-format dllogger writes dllogger.json into --output-dir"},
    {"dllog_path", -1, "", "--log-format dllogger writes dllogger.json into --output-dir"},
    {"disable_tqdm", -1, "false=", "a live line appears on a terminal alone"},
    {"disable_progress_bar", -1, "false=", "a live line appears on a terminal alone"},
    /* ranks */
    {"ddp_backend", OPTION_comm, "nccl=nccl gloo=gloo", "--comm nccl or gloo"},
    {"local_rank", -1, "-1=", "the launcher gives it: torchrun, mpirun, srun or `cairn launch`"},
    {"horovod", -1, "false=", "a launcher starts the ranks: mpirun, srun, torchrun or `cairn launch`"},
    {"nproc_per_node", -1, "", "`cairn launch --ranks N -- COMMAND` starts N ranks"},
    {"num_gpus", -1, "", "`cairn launch --ranks N -- COMMAND` starts N ranks, one for each GPU"},
    {"n_gpu", -1, "", "`cairn launch --ranks N -- COMMAND` starts N ranks, one for each GPU"},
    {"deepspeed", -1, "", "--shard optimizer is ZeRO-1; --recompute and --precision are flags of their own"},
    {"fsdp", -1, "", "--shard optimizer divides the optimizer's moments among ranks (ZeRO-1)"},
    {"allreduce_post_accumulation", -1, SWITCH(""), ""},
    {"allreduce_post_accumulation_fp16", -1, "false=", "--wire bf16 sends gradients in 16 bits"},
    {NULL, 0, NULL, NULL},
};

/* Commands by other names. */
static const struct {
    const char *names, *advice;
} foreign_commands[] = {
    {"train", "`cairn glue --do-train` fine-tunes, `cairn pretrain` pretrains"},
    {"finetune fine_tune", "`cairn glue --do-train` fine-tunes"},
    {"run_glue run_glue.py run_classifier run_classifier.py", "`cairn glue` fine-tunes"},
    {"run_squad run_squad.py run_qa run_qa.py", "`cairn squad` fine-tunes and answers"},
    {"run_mlm run_mlm.py run_pretraining run_pretraining.py", "`cairn pretrain` pretrains"},
    {"eval evaluate", "`cairn glue --do-eval` evaluates"},
    {"create_pretraining_data", "`cairn shards` makes pretraining data"},
    {"tokenize", "`cairn vocab` trains a vocabulary, `cairn shards` makes pretraining data"},
    {"export", "`cairn convert` writes a Hugging Face folder"},
    {"run", "`cairn glue` fine-tunes, `cairn pretrain` pretrains, `cairn launch` starts many ranks"},
    {"resume", "the same command resumes from the newest checkpoint of --output-dir"},
};

bool config_same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_'))) return false;
    return *a == *b;
}

const ForeignName *config_foreign_name(const char *name)
{
    for (const ForeignName *f = config_foreign; f->name; f++)
        if (config_same_name(f->name, name)) return f;
    return NULL;
}

const char *config_foreign_command(const char *name)
{
    char wanted[32];
    if (snprintf(wanted, sizeof wanted, "%s", name) >= (int)sizeof wanted) return NULL;
    for (char *p = wanted; *p; p++) *p = *p == '-' ? '_' : *p;
    for (size_t i = 0; i < sizeof foreign_commands / sizeof *foreign_commands; i++)
        if (str_list_has(foreign_commands[i].names, ' ', wanted, strlen(wanted))) return foreign_commands[i].advice;
    return NULL;
}

/* Cairn's text for a number of theirs, by the sign in `values`. False: another number, or none. */
static bool number_value(char sign, const char *value, char *out, size_t room)
{
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || isspace((unsigned char)*value)) return false;
    if (sign == '#') return x == trunc(x) && fabs(x) < 1e15 && snprintf(out, room, "%.0f", x) < (int)room;
    if (!(x >= 0 && x <= 1)) return false;
    if (sign == '/') return snprintf(out, room, "%s", x == 1 ? "100%" : value) < (int)room;
    return snprintf(out, room, "%.15g%%", 100 * x) < (int)room;
}

bool config_foreign_value(const ForeignName *f, const char *value, char *out, size_t room)
{
    size_t len = strlen(value);
    for (const char *p = f->values; *p; p += strcspn(p, " "), p += *p == ' ') {
        if (*p == '*') return snprintf(out, room, "%s", value) < (int)room;
        if (strchr("#%/", *p) && number_value(*p, value, out, room)) return true;
        if (strcspn(p, "=") != len || strncasecmp(p, value, len) != 0) continue;
        p += len + 1;
        return snprintf(out, room, "%.*s", (int)strcspn(p, " "), p) < (int)room;
    }
    return false;
}

/* ---- options by their names ---- */

/* Another trainer's name for --precision: a switch of one type, as --fp16, or the type. TF32 is a way to multiply fp32
   beside all others. Without any name other trainers compute in fp32, so a switch that is off gives fp32 unless a type
   was chosen otherwise. */
static Status set_precision(Config *c, const ForeignName *foreign, bool on, const char *type, const char *from,
                            ConfigSource source)
{
    const char *now = c->precision, *name = c->source[OPTION_precision] == source ? c->foreign[OPTION_precision] : NULL;
    bool same = strcmp(now, type) == 0, tf32 = strcmp(type, "tf32") == 0;
    if (!on) {
        bool undone = same && (!name || strcmp(name, foreign->name) == 0);
        return undone || strcmp(now, "auto") == 0 ? config_set_value(c, OPTION_precision, from, "fp32", source) : OK;
    }
    if (name && !same && !tf32 && strcmp(now, "tf32") != 0)
        return fail(E_USAGE, "%s: --%s and --%s both set --precision; give one of them", from, name, foreign->name);
    if (name && (tf32 ? strcmp(now, "fp32") != 0 : strcmp(type, "fp32") == 0)) return OK;
    TRY(config_set_value(c, OPTION_precision, from, type, source));
    c->foreign[OPTION_precision] = foreign->name;
    return OK;
}

/* Two of their names for one option, with two values. */
static Status check_names(const Config *c, int option, const ForeignName *foreign, const char *from, const char *text,
                          const char *own, ConfigSource source)
{
    Buf before = {0};
    const char *name = c->foreign[option];
    if (!name || c->source[option] != source || config_same_name(name, foreign->name)) return OK;
    config_value_text(c, option, &before);
    bool same = strcmp(before.data ? before.data : "", own) == 0;
    buf_free(&before);
    if (same) return OK;
    return fail(E_USAGE, "%s: --%s and --%s %s both set --%s; give one of them", from, name, foreign->name, text,
                config_flag(option));
}

Status config_set_named(Config *c, int option, const ForeignName *foreign, const char *from, const char *text,
                        ConfigSource source)
{
    char own[4096];
    if (foreign) {
        if (!config_foreign_value(foreign, text, own, sizeof own))
            return fail(E_USAGE, "%s: --%s %s is not taken; %s", from, foreign->name, text,
                        *foreign->advice ? foreign->advice : "this value is unknown");
        if (option == FOREIGN_STRATEGY) {
            c->strategy = strcasecmp(text, "no") == 0 ? "no" : strcasecmp(text, "epoch") == 0 ? "epoch" : "steps";
            c->strategy_source = source;
        }
        if (option == OPTION_precision) {
            char type[16];
            bool is_switch = config_foreign_value(foreign, "true", type, sizeof type);
            return set_precision(c, foreign, *own != '\0', is_switch ? type : own, from, source);
        }
        bool as_ours = strcmp(own, "") == 0 && *text; /* without an effect */
        if (option < 0 || as_ours) return OK;
        TRY(check_names(c, option, foreign, from, text, own, source));
        text = own;
    }
    TRY(config_set_value(c, option, from, text, source));
    if (foreign) c->foreign[option] = foreign->name;
    return OK;
}

/* ---- the nearest name ---- */

static int min3(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }

enum { MOST_WRONG = 2 };

/* Wrong, missing, added and exchanged letters; MOST_WRONG + 1 if there are more. Long texts are cut. */
static int distance(const char *a, const char *b)
{
    int m = (int)strnlen(a, 63), n = (int)strnlen(b, 63), rows[3][64];
    int *before = rows[0], *above = rows[1], *row = rows[2];
    if (abs(m - n) > MOST_WRONG) return MOST_WRONG + 1;
    for (int j = 0; j <= n; j++) above[j] = before[j] = j;
    for (int i = 1; i <= m; i++) {
        int least = row[0] = i;
        for (int j = 1; j <= n; j++) {
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (exchanged && before[j - 2] + 1 < row[j]) row[j] = before[j - 2] + 1;
            if (row[j] < least) least = row[j];
        }
        if (least > MOST_WRONG) return MOST_WRONG + 1; /* further rows have no less */
        int *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[n];
}

/* Whether the name is one or more whole parts of the other, as `steps` of `max-steps`. */
static bool is_part(const char *name, const char *other)
{
    size_t len = strlen(name);
    for (const char *p = other; *name && (p = strstr(p, name)); p++)
        if ((p == other || p[-1] == '-') && (p[len] == '\0' || p[len] == '-')) return true;
    return false;
}

/* How far the other name is from what was written; NOT_NEAR where a guess would mislead. One wrong letter is nearer
   than a part, a part nearer than two wrong letters, which only longer names with the same first letter may have. */
enum { NOT_NEAR = 4 };

static int away(const char *name, const char *other)
{
    int d = distance(name, other);
    if (d <= 1) return d;
    if (is_part(name, other)) return 2;
    return d == 2 && strlen(name) > 5 && *name == *other ? 3 : NOT_NEAR;
}

static void consider(const char *name, const char *other, int *least, const char **nearest)
{
    int d = away(name, other);
    if (d >= *least) return;
    *least = d;
    *nearest = other;
}

const char *config_nearest_flag(Command command, const char *name)
{
    const char *nearest = NULL;
    int least = NOT_NEAR;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s", name);
    for (char *p = wanted; *p; p++) *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
    if (strncmp(wanted, "no-", 3) == 0) memmove(wanted, wanted + 3, strlen(wanted) - 2);
    for (int i = 0; i < N_OPTIONS; i++)
        if (command == N_COMMANDS || config_option_of(i, command)) consider(wanted, config_flag(i), &least, &nearest);
    return nearest;
}

const char *config_nearest_command(const char *name)
{
    const char *nearest = NULL;
    int least = NOT_NEAR;
    for (int i = 0; i < N_COMMANDS; i++) consider(name, config_commands[i].name, &least, &nearest);
    return nearest;
}
