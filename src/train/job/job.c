#include "train/job/job.h"

#include "state/checkpoint/checkpoint.h"

bool run_first(const Run *r) { return ranks_first(r->ranks); }

int64_t run_padded_length(const Run *r) { return r->c->padded ? r->c->max_seq_length : 0; }

ExportText run_export_text(const Run *r)
{
    return (ExportText){.vocab = r->text.vocab,
                        .tokenizer = r->text.options,
                        .labels = r->labels,
                        .n_labels = r->n_labels,
                        .use = r->use};
}

uint64_t run_checkpoint_bytes(const Run *r)
{
    return checkpoint_bytes(&r->model.params, &r->setup.place->whole_kfac->saved);
}
