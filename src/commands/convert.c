/* `cairn convert --model ANY --output DIR`: any weights into a Hugging Face directory, with every head they have. */
#include <sys/stat.h>

#include "commands/commands.h"
#include "state/models/export.h"
#include "state/models/import.h"
#include "state/models/manifest.h"
#include "text/tokenizer_files.h"

/* ---- the model that a file holds ---- */

/* Adds the parameters of a donor whose names begin with `prefix`. */
static void take_params(ParamTable *t, const ParamTable *donor, const char *prefix)
{
    for (int i = 0; i < donor->count; i++) {
        Param p = donor->params[i];
        if (strncmp(p.name, prefix, strlen(prefix)) != 0) continue;
        p.offset = t->size;
        t->size = (t->size + param_held(&p) + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
        MEM_PUSH(t->params, t->count, t->cap, p);
    }
}

/* A model of exactly the file's tensors, which can only be read and written. Takes over `config`. */
static Status make_model(const ImportHeads *h, ModelConfig config, Model *m)
{
    Status status = model_init(m, config, (Head){HEAD_NONE, 0});
    ModelConfig sizes = config; /* without owned memory */
    sizes.extra = NULL;
    sizes.untied = sizes.untied && h->predictions;
    m->head = import_head(h);
    const struct {
        bool there;
        Head head; /* of the donor */
        const char *prefix;
    } parts[] = {{h->pooler, {HEAD_CLASSIFIER, 2}, "bert.pooler."},
                 {h->predictions, {HEAD_PRETRAINING, 0}, "cls.predictions."},
                 {h->next_sentence, {HEAD_PRETRAINING, 2}, "cls.seq_relationship."},
                 {h->labels > 0, m->head, "classifier."},
                 {h->span, {HEAD_SPAN, 2}, "qa_outputs."}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == OK; i++) {
        Model donor = {0};
        if (!parts[i].there) continue;
        status = model_init(&donor, sizes, parts[i].head);
        if (status == OK) take_params(&m->params, &donor.params, parts[i].prefix);
        model_free(&donor);
    }
    return status;
}

/* ---- files beside the weights ---- */

/* What config.json says of the head that the weights have: sets its kind. E_FORMAT: the classifier has another number
   of labels. */
static Status read_labels(Model *m, const ImportHeads *h, char ***labels, int *n)
{
    static const char name[] = "the model's config.json";
    Json *doc = NULL;
    bool said;
    Status status = OK;
    if (!h->labels && !h->span) return OK;
    TRY(js_parse(name, m->config.extra, strlen(m->config.extra), &doc));
    HeadKind kind;
    TRY_DONE(import_problem_in(name, doc, &kind, &said));
    if (!h->labels) goto done;
    TRY_DONE(import_labels_in(name, doc, labels, n, &said));
    if (*n == h->labels) {
        if (kind != HEAD_SPAN) m->head.kind = kind;
        goto done;
    }
    if (said)
        status =
            fail(E_FORMAT, "classifier.weight has %lld rows, and %s says %d labels; correct 'id2label' or 'num_labels'",
                 (long long)h->labels, name, *n);
    mem_free_texts(*labels, *n);
    *labels = NULL;
    *n = 0;
done:
    js_free(doc);
    return status;
}

/* The tokenizer; stays empty, with a warning, where there is none. */
static Status read_tokenizer(const Config *c, int32_t rows, TokenizerFiles *t)
{
    char *found = tokenizer_files_find(c->model);
    bool none = !*c->vocab && !found;
    free(found);
    if (none) {
        log_warn("%s: no vocab.txt or tokenizer.json beside the weights and no --vocab: the output gets no tokenizer",
                 c->model);
        return OK;
    }
    TRY(tokenizer_files_read(*c->vocab ? c->vocab : NULL, c->model, NULL, t));
    if (vocab_size(t->vocab) > rows)
        return fail(E_FORMAT,
                    "%s: %d pieces, but the model has embeddings for %d; give the vocabulary it was trained with",
                    t->path, vocab_size(t->vocab), rows);
    if (vocab_size(t->vocab) < rows)
        log_warn("%s: %d pieces for %d embeddings; the rest can never be used", t->path, vocab_size(t->vocab), rows);
    return OK;
}

/* A conversion must not overwrite the source's config.json and tokenizer. */
static Status check_output(const Config *c, const TensorFile *f)
{
    struct stat a, b;
    char *source = file_directory(tensor_file_path(f));
    Status status = OK;
    if (stat(source, &a) == 0 && stat(c->output, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        status = fail(E_USAGE, "--output %s: the weights to convert lie there; give another directory", c->output);
    free(source);
    char *model = file_join(c->output, "model.safetensors");
    if (status == OK && file_exists(model))
        status = fail(E_USAGE, "%s already exists; give another directory as --output, or remove it", model);
    free(model);
    return status;
}

Status command_convert(const Config *given)
{
    Config own = *given, *c = &own; /* whose --model becomes the folder of the weights */
    Status status = OK;
    TensorFile *file = NULL;
    ModelConfig config = {0};
    Model m = {0};
    ImportReport report = {0};
    TokenizerFiles tokenizer = {0};
    float *weights = NULL;
    ImportHeads heads;
    ModelUse use = {0};
    Embedding embedding = {0};
    char **labels = NULL;
    int n_labels = 0;
    if (!*c->model) return fail(E_USAGE, "convert: give the weights with --model");
    if (!*c->output) return fail(E_USAGE, "convert: give the directory to write with --output");
    TRY_DONE(import_embedding(c->model, &embedding));
    c->model = embedding.model;
    TRY_DONE(manifest_check_model(c->model));
    TRY_DONE(tensor_file_open(c->model, &file));
    TRY_DONE(check_output(c, file));
    TRY_DONE(import_find_heads(file, &heads));
    TRY_DONE(commands_model_config(c, &config));
    TRY_DONE(make_model(&heads, config, &m));
    m.pooling = embedding.pooling;
    m.normalized = embedding.normalized;
    TRY_DONE(read_labels(&m, &heads, &labels, &n_labels));
    TRY_DONE(read_tokenizer(c, m.config.vocab_size, &tokenizer));
    import_embedding_case(&embedding, &tokenizer.options);
    TRY_DONE(import_use(c->model, &use));
    TRY_DONE(import_check(c->model, &m, NULL)); /* before memory is allocated for the sizes in config.json */
    ModelUse of_vectors = use;
    of_vectors.prompts = embedding.prompts;
    of_vectors.similarity = embedding.similarity;
    weights = mem_array((size_t)m.params.size, sizeof *weights);
    TRY_DONE(import_weights(c->model, &m, 0, weights, &report));
    import_report_log(&report);
    TRY_DONE(export_model(c->output, &m, export_read_values, weights,
                          &(ExportText){
                              .vocab = tokenizer.vocab,
                              .tokenizer = tokenizer.options,
                              .labels = (const char *const *)labels,
                              .n_labels = n_labels,
                              .use = of_vectors,
                              .embedding = embedding.said,
                          }));
    log_info("written: %s", c->output);
done:
    tensor_file_close(file);
    import_report_free(&report);
    mem_free_texts(labels, n_labels);
    import_use_free(&use);
    tokenizer_files_free(&tokenizer);
    import_embedding_free(&embedding);
    free(weights);
    model_free(&m);
    return status;
}
