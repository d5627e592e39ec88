/* Recipes of pretraining: --preset SIZE-RECIPE is a model's size and the options it is usually trained with. */
#include <string.h>

#include "config/table.h"

/* phase1, phase2: NVIDIA's DeepLearningExamples (LAMB, rate without the jump's rescaling). mlperf: MLPerf Training's
   BERT v5.0, NVIDIA's setting for 8 GPUs, from MLPerf's initial checkpoint. original: Devlin et al. 2018. The first has
   no name: BERT's own batch and rate for one epoch, where no preset was asked for. */
static const char *const recipes[] = {"", "phase1", "phase2", "mlperf", "original"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

static const struct {
    int option;
    const char *value[N_RECIPES];
} settings[] = {
    {OPTION_max_seq_length, {NULL, "128", "512", "512", "128"}},
    {OPTION_predictions, {NULL, "20", "80", "76", "20"}},
    {OPTION_batch_size, {"256", "65536", "32768", "768", "256"}},
    {OPTION_epochs, {"1", NULL, NULL, NULL, NULL}},
    {OPTION_max_steps, {NULL, "7038", "1563", "3680", "1000000"}},
    {OPTION_learning_rate, {"1e-4", "6e-3", "4e-3", "9.6e-4", "1e-4"}},
    {OPTION_warmup, {"0.01", ".2843", ".128", "0", "10000"}},
    {OPTION_schedule, {NULL, "poly:0.5-nvidia", "poly:0.5-nvidia", "poly:1-nvidia", "linear"}},
    {OPTION_optimizer, {NULL, "lamb", "lamb", "lamb", "adamw"}},
    {OPTION_bias_correction, {NULL, "true", "true", "true", NULL}},
    {OPTION_adam_beta1, {NULL, NULL, NULL, ".60466", NULL}},
    {OPTION_adam_beta2, {NULL, NULL, NULL, ".85437", NULL}},
    {OPTION_weight_decay, {NULL, "0.01", "0.01", ".1", "0.01"}},
    {OPTION_target_mlm_accuracy, {NULL, NULL, NULL, ".72", NULL}},
    {OPTION_eval_samples, {NULL, NULL, NULL, "mlperf", NULL}},
};

static const char *const sizes[] = {"bert-tiny", "bert-mini", "bert-small", "bert-medium", "bert-base", "bert-large"};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* The index of the word of `len` bytes, or −1. */
static int find(const char *const *words, int n, const char *word, size_t len)
{
    for (int i = 0; i < n; i++)
        if (strlen(words[i]) == len && strncmp(words[i], word, len) == 0) return i;
    return -1;
}

static Status unknown(const char *name)
{
    Buf expected = {0};
    for (int i = 0; i < N_SIZES; i++) buf_printf(&expected, "%s%s", i ? ", " : "", sizes[i]);
    buf_puts(&expected, ", and ");
    for (int i = 1; i < N_RECIPES; i++) buf_printf(&expected, "%s-%s", i > 1 ? ", " : "", recipes[i]);
    Status status = fail(E_USAGE, "--preset '%s' is unknown; expected a size and a recipe, as bert-large-phase1: %s",
                         name, expected.data);
    buf_free(&expected);
    return status;
}

Status config_preset(const char *name, Preset *preset)
{
    const char *dash = strrchr(name, '-');
    int recipe = 0, size = -1;
    *preset = (Preset){{NULL}};
    if (*name) {
        size = dash ? find(sizes, N_SIZES, name, (size_t)(dash - name)) : -1;
        recipe = dash ? find(recipes, N_RECIPES, dash + 1, strlen(dash + 1)) : -1;
        if (size < 0 || recipe < 1) return unknown(name);
        preset->value[OPTION_model_config] = sizes[size];
    }
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        preset->value[settings[i].option] = settings[i].value[recipe];
    return OK;
}
