/* Recipes of pretraining as data: --preset SIZE-RECIPE is a model's size and the options it is usually trained with.
   They stand below every other source of a value, above the defaults. Without one, pretraining begins with BERT's own
   batch and rate, for one epoch. */
#include <string.h>

#include "config/table.h"

/* phase1, phase2: NVIDIA's DeepLearningExamples (LAMB, rate without the jump's rescaling). mlperf: MLPerf Training's
   BERT v5.0, NVIDIA's 8-GPU setting, from the checkpoint that MLPerf hands out. original: Devlin et al. 2018. */
static const struct {
    const char *name, *settings;
} recipes[] = {
    {"phase1", "max_seq_length=128 predictions=20 batch_size=65536 max_steps=7038 learning_rate=6e-3 warmup=.2843 "
               "schedule=poly:0.5-nvidia optimizer=lamb bias_correction=true weight_decay=0.01"},
    {"phase2", "max_seq_length=512 predictions=80 batch_size=32768 max_steps=1563 learning_rate=4e-3 warmup=.128 "
               "schedule=poly:0.5-nvidia optimizer=lamb bias_correction=true weight_decay=0.01"},
    {"mlperf", "max_seq_length=512 predictions=76 batch_size=768 max_steps=3680 learning_rate=9.6e-4 warmup=0 "
               "schedule=poly:1-nvidia optimizer=lamb bias_correction=true adam_beta1=.60466 adam_beta2=.85437 "
               "weight_decay=.1 target_mlm_accuracy=.72 eval_samples=mlperf"},
    {"original", "max_seq_length=128 predictions=20 batch_size=256 max_steps=1000000 learning_rate=1e-4 warmup=10000 "
                 "schedule=linear optimizer=adamw weight_decay=0.01"},
};

static const char *const sizes[] = {"bert-tiny", "bert-mini", "bert-small", "bert-medium", "bert-base", "bert-large"};

static bool known_size(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strlen(sizes[i]) == len && strncmp(sizes[i], name, len) == 0) return true;
    return false;
}

Status config_preset(const char *name, Buf *settings)
{
    if (!*name) {
        buf_puts(settings, "batch_size=256 learning_rate=1e-4 warmup=0.01 epochs=1");
        return OK;
    }
    const char *dash = strrchr(name, '-');
    for (size_t i = 0; dash && i < sizeof recipes / sizeof *recipes; i++) {
        if (strcmp(dash + 1, recipes[i].name) != 0 || !known_size(name, (size_t)(dash - name))) continue;
        buf_printf(settings, "model_config=%.*s %s", (int)(dash - name), name, recipes[i].settings);
        return OK;
    }
    Buf expected = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) buf_printf(&expected, "%s%s", i ? ", " : "", sizes[i]);
    buf_puts(&expected, ", and -");
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        buf_printf(&expected, "%s%s", i ? ", -" : "", recipes[i].name);
    Status status = fail(E_USAGE, "--preset '%s' is unknown; expected a size and a recipe, as bert-large-phase1: %s",
                         name, expected.data);
    buf_free(&expected);
    return status;
}
