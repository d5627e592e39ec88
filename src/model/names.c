/* Names of parameters in files of a DistilBERT. */
#include "model/params.h"

/* Parts of names, replaced one after the other: each row at most once in a name. */
static const struct {
    const char *file, *table;
} parts[] = {
    {"pre_classifier.", "bert.pooler.dense."},
    {"transformer.layer.", "encoder.layer."},
    {".attention.q_lin.", ".attention.self.query."},
    {".attention.k_lin.", ".attention.self.key."},
    {".attention.v_lin.", ".attention.self.value."},
    {".attention.out_lin.", ".attention.output.dense."},
    {".sa_layer_norm.", ".attention.output.LayerNorm."},
    {".ffn.lin1.", ".intermediate.dense."},
    {".ffn.lin2.", ".output.dense."},
    {".output_layer_norm.", ".output.LayerNorm."},
    {"vocab_transform.", "cls.predictions.transform.dense."},
    {"vocab_layer_norm.", "cls.predictions.transform.LayerNorm."},
    {"vocab_projector.weight", "cls.predictions.decoder.weight"},
    {"vocab_projector.bias", "cls.predictions.bias"},
    {"distilbert.", "bert."},
};

static char *translate(const char *name, bool to_table)
{
    char *now = mem_strdup(name);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *from = to_table ? parts[i].file : parts[i].table, *to = to_table ? parts[i].table : parts[i].file;
        const char *at = strstr(now, from);
        if (!at) continue;
        char *next = mem_printf("%.*s%s%s", (int)(at - now), now, to, at + strlen(from));
        free(now);
        now = next;
    }
    return now;
}

char *param_file_name(const ParamTable *t, const Param *p)
{
    return t->kind == MODEL_DISTILBERT ? translate(p->name, false) : mem_strdup(p->name);
}

char *param_table_name(const char *file_name) { return translate(file_name, true); }
