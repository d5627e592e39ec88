/* Recipes of pretraining: --preset SIZE-RECIPE sets a model's size and the usual options of its training. */

#include "config/table.h"

/* phase1, phase2: NVIDIA's DeepLearningExamples (LAMB, rate without the jump's rescaling). mlperf: MLPerf Training's
   BERT v5.0, NVIDIA's setting for 8 GPUs, from MLPerf's initial checkpoint. original: Devlin et al. 2018. variability:
   250 steps of phase1, for `cairn variability`. adapt: `cairn adapt`, masked words alone on own text (Gururangan et al.
   2020, at the rate of fine-tuning); it has no size. The first has no name: BERT's own batch, rate and AdamW for one
   epoch, without a preset. The last is `cairn squad`'s, the defaults of Google's run_squad.py; no flag names it. */
static const char *const recipes[] = {"", "phase1", "phase2", "mlperf", "original", "variability", "adapt", "(squad)"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes, SQUAD = N_RECIPES - 1, ADAPT = SQUAD - 1 };

static const struct {
    int option;
    const char *value[N_RECIPES];
} settings[] = {
    {OPTION_max_seq_length, {NULL, "128", "512", "512", "128", "128", "256", "384"}},
    {OPTION_predictions, {NULL, "20", "80", "76", "20", "20", NULL, NULL}},
    {OPTION_batch_size, {"256", "65536", "32768", "768", "256", "256", "64", NULL}},
    {OPTION_epochs, {"1", NULL, NULL, NULL, NULL, NULL, "3", NULL}},
    {OPTION_max_steps, {NULL, "7038", "1563", "3680", "1000000", "250", NULL, NULL}},
    {OPTION_learning_rate, {"1e-4", "6e-3", "4e-3", "9.6e-4", "1e-4", "6e-3", "5e-5", "5e-5"}},
    {OPTION_warmup, {"0.01", ".2843", ".128", "0", "10000", ".2843", "0.06", NULL}},
    {OPTION_nsp, {NULL, NULL, NULL, NULL, NULL, NULL, "off", NULL}},
    {OPTION_masking, {NULL, NULL, NULL, NULL, NULL, NULL, "dynamic", NULL}},
    {OPTION_whole_words, {NULL, NULL, NULL, NULL, NULL, NULL, "true", NULL}},
    {OPTION_eval_fraction, {NULL, NULL, NULL, NULL, NULL, NULL, "0.05", NULL}},
    {OPTION_do_train, {NULL, NULL, NULL, NULL, NULL, NULL, "true", NULL}},
    {OPTION_do_eval, {NULL, NULL, NULL, NULL, NULL, NULL, "true", NULL}},
    {OPTION_schedule,
     {NULL, "poly:0.5-nvidia", "poly:0.5-nvidia", "poly:1-nvidia", "linear", "poly:0.5-nvidia", NULL, NULL}},
    {OPTION_optimizer, {NULL, "lamb", "lamb", "lamb", "adamw", "lamb", NULL, NULL}},
    {OPTION_bias_correction, {"false", "true", "true", "true", "false", "true", NULL, NULL}},
    {OPTION_adam_beta1, {NULL, NULL, NULL, ".60466", NULL, NULL, NULL, NULL}},
    {OPTION_adam_beta2, {NULL, NULL, NULL, ".85437", NULL, NULL, NULL, NULL}},
    {OPTION_weight_decay, {NULL, "0.01", "0.01", ".1", "0.01", "0.01", NULL, NULL}},
    {OPTION_target_mlm_accuracy, {NULL, NULL, NULL, ".72", NULL, NULL, NULL, NULL}},
    {OPTION_eval_samples, {NULL, NULL, NULL, "mlperf", NULL, NULL, NULL, NULL}},
    {OPTION_eval_count, {NULL, NULL, NULL, "10000", NULL, NULL, "1000", NULL}},
};

static const char *const sizes[] = {"bert-tiny", "bert-mini", "bert-small", "bert-medium", "bert-base", "bert-large"};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* The index of the word of `len` bytes, or −1. */
static int word_index(const char *const *words, int n, const char *word, size_t len)
{
    for (int i = 0; i < n; i++)
        if (strlen(words[i]) == len && strncmp(words[i], word, len) == 0) return i;
    return -1;
}

static Status unknown_preset(const char *name)
{
    Buf expected = {0};
    for (int i = 0; i < N_SIZES; i++) buf_printf(&expected, "%s%s", i ? ", " : "", sizes[i]);
    buf_puts(&expected, ", and ");
    for (int i = 1; i < ADAPT; i++) buf_printf(&expected, "%s-%s", i > 1 ? ", " : "", recipes[i]);
    buf_puts(&expected, "; or adapt");
    Status status = fail(E_USAGE, "--preset '%s' is unknown; expected a size and a recipe, as bert-large-phase1: %s",
                         name, expected.data);
    buf_free(&expected);
    return status;
}

const char *config_command_preset(Command command)
{
    switch (command) {
    case COMMAND_PRETRAIN:
        return recipes[0];
    case COMMAND_ADAPT:
        return recipes[ADAPT];
    case COMMAND_SQUAD:
        return recipes[SQUAD];
    default:
        return NULL;
    }
}

Status config_preset(const char *name, Preset *preset)
{
    const char *dash = strrchr(name, '-');
    int recipe = 0, size = -1;
    *preset = (Preset){{NULL}};
    if (strcmp(name, recipes[ADAPT]) == 0 || strcmp(name, recipes[SQUAD]) == 0) {
        recipe = strcmp(name, recipes[ADAPT]) == 0 ? ADAPT : SQUAD;
    } else if (*name) {
        size = dash ? word_index(sizes, N_SIZES, name, (size_t)(dash - name)) : -1;
        recipe = dash ? word_index(recipes, N_RECIPES, dash + 1, strlen(dash + 1)) : -1;
        if (size < 0 || recipe < 1 || recipe >= ADAPT) return unknown_preset(name);
        preset->value[OPTION_model_config] = sizes[size];
    }
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        preset->value[settings[i].option] = settings[i].value[recipe];
    return OK;
}
