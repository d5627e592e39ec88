/* `cairn adapt`: a preset of pretraining that says how well a model fits a text before and after. */

#include "state/models/import.h"
#include "tasks/pretrain/run.h"

#define BAD_UNKNOWN 0.01 /* share of pieces above which the vocabulary fits badly */
#define BAD_PIECES  2.0  /* pieces per word */

Status adapt_check(Run *r)
{
    PretrainRun *p = r->own;
    ModelConfig config;
    const Config *c = r->c;
    if (!*c->model) return fail(E_USAGE, "give the model to adapt as --model DIR");
    if (!*c->input)
        return fail(E_USAGE, "give the text as --input: a text file, CSV, TSV or JSON lines, or a folder of them");
    if (!(c->eval_fraction > 0) && !*c->eval_dir)
        return fail(E_USAGE, "--eval-fraction 0 holds nothing out: the effect of the training would be unknown");
    char *path = import_find_config(c->model);
    if (!path || c->source[OPTION_max_seq_length] != FROM_PRESET) {
        free(path);
        return OK;
    }
    Status status = model_config_read(path, &config);
    free(path);
    TRY(status);
    p->sized = *c;
    if (config.positions < p->sized.max_seq_length) p->sized.max_seq_length = config.positions;
    r->c = &p->sized;
    model_config_free(&config);
    return OK;
}

/* Removes the parts and the manifest of a stage. Other files of the folder may be the user's. */
static Status remove_parts(const char *folder)
{
    Status status = OK;
    FileList list = {0};
    TRY_DONE(file_list(folder, &list));
    for (int i = 0; i < list.count; i++) {
        const char *name = strrchr(list.paths[i], '/') + 1;
        int digits = 0;
        bool part = sscanf(name, "part-%*5[0-9]%n", &digits) == 0 && digits == (int)strlen("part-00000");
        if (part || strcmp(name, "manifest.json") == 0) TRY_DONE(file_remove_tree(list.paths[i]));
    }
done:
    file_list_free(&list);
    return status;
}

Status adapt_check_held_out(const Config *c)
{
    Json *doc = NULL;
    char *path = file_join(c->data_dir, "manifest.json"), *text = file_join(c->output_dir, "text"),
         *eval = file_join(c->data_dir, "eval");
    Status status = c->dry_run ? OK : js_read(path, &doc);
    if (status == OK && doc && js_int(js_get(doc, "documents"), 0) <= js_int(js_get(doc, "eval_documents"), 0)) {
        TRY_DONE(remove_parts(eval)); /* they would refuse the same command with more text */
        TRY_DONE(remove_parts(c->data_dir));
        TRY_DONE(remove_parts(text));
        status = fail(E_FORMAT, "%s: too little text to hold a part out and train on the rest", c->input);
    }
done:
    js_free(doc);
    MEM_FREE(path, text, eval);
    return status;
}

/* ---- before training ---- */

static Status count_words(const Run *r, PretrainBefore *b)
{
    enum { AT_ONCE = 1024 };
    PretrainRun *p = r->own;
    SpecialIds special = vocab_special(r->text.vocab);
    int64_t count = shards_count(p->eval_shards);
    for (int64_t first = 0; first < count; first += AT_ONCE) {
        const Examples *e;
        TRY(shards_range(p->eval_shards, first, count - first < AT_ONCE ? count - first : AT_ONCE, &e));
        for (int64_t i = 0; i < e->count; i++) {
            int64_t mask = e->masked_offset[i], masks = e->masked_offset[i + 1];
            for (int64_t k = e->offset[i]; k < e->offset[i + 1]; k++) {
                bool masked = mask < masks && e->masked_place[mask] == k - e->offset[i];
                int32_t id = masked ? e->masked_label[mask++] : e->ids[k];
                if (id == special.cls || id == special.sep) continue;
                b->pieces++;
                b->words += strncmp(vocab_piece(r->text.vocab, id), "##", 2) != 0;
                b->unknown += id == special.unk;
            }
        }
    }
    return OK;
}

static double per_word(const PretrainBefore *b) { return b->words ? (double)b->pieces / (double)b->words : 0; }
static double unknown(const PretrainBefore *b) { return b->pieces ? (double)b->unknown / (double)b->pieces : 0; }

static void log_before(const PretrainBefore *b)
{
    log_info("before training: mlm_accuracy %.4f mlm_loss %.4f; %.2f pieces per word, %.3g %% of the pieces are [UNK]",
             b->mlm_accuracy, b->mlm_loss, per_word(b), 100 * unknown(b));
    if (unknown(b) > BAD_UNKNOWN || per_word(b) > BAD_PIECES)
        log_warn(
            "the model's vocabulary fits this text badly: expected at most %g pieces per word and %g %% [UNK]. Check "
            "the language and the encoding of the text; a model with its own vocabulary needs `cairn pretrain`",
            BAD_PIECES, 100 * BAD_UNKNOWN);
}

static Status write_file(const Run *r, bool done)
{
    const PretrainRun *p = r->own;
    const PretrainBefore *b = &p->before;
    Buf out = {0};
    buf_printf(&out, "{\"data\": \"%s\", \"pieces\": %lld, \"words\": %lld, \"unknown\": %lld",
               DIGEST_TEXT(shards_digest(p->eval_shards)), (long long)b->pieces, (long long)b->words,
               (long long)b->unknown);
    buf_member(&out, "mlm_loss_before", b->mlm_loss);
    buf_member(&out, "mlm_accuracy_before", b->mlm_accuracy);
    if (done) buf_member(&out, "mlm_loss_after", p->result.mlm_loss);
    if (done) buf_member(&out, "mlm_accuracy_after", p->result.mlm_accuracy);
    buf_puts(&out, "}\n");
    return file_write_text(r->c->output_dir, "adapt.json", &out);
}

/* What an earlier start of this run found. */
static bool read_file(const Run *r, PretrainBefore *b)
{
    Json *doc = NULL;
    const char *digest = DIGEST_TEXT(shards_digest(((const PretrainRun *)r->own)->eval_shards));
    bool there =
        js_read_in(r->c->output_dir, "adapt.json", &doc) && strcmp(js_string(js_get(doc, "data"), ""), digest) == 0;
    if (there)
        *b = (PretrainBefore){.mlm_loss = js_real(js_get(doc, "mlm_loss_before"), 0),
                              .mlm_accuracy = js_real(js_get(doc, "mlm_accuracy_before"), 0),
                              .pieces = js_int(js_get(doc, "pieces"), 0),
                              .words = js_int(js_get(doc, "words"), 0),
                              .unknown = js_int(js_get(doc, "unknown"), 0)};
    js_free(doc);
    return there;
}

Status adapt_begin(Run *r)
{
    PretrainRun *p = r->own;
    bool there = run_first(r) && r->progress.step > 0 && read_file(r, &p->before);
    TRY(ranks_broadcast(r->ranks, &there, sizeof there));
    if (there || r->progress.step > 0) return OK;
    TRY(pretrain_evaluate_all(r));
    p->before = (PretrainBefore){.mlm_loss = p->result.mlm_loss, .mlm_accuracy = p->result.mlm_accuracy};
    TRY(ranks_all(r->ranks, run_first(r) ? count_words(r, &p->before) : OK));
    if (!run_first(r)) return ranks_all(r->ranks, OK);
    log_before(&p->before);
    return ranks_all(r->ranks, write_file(r, false));
}

Status adapt_write(const Run *r)
{
    PretrainRun *p = r->own;
    if (p->before.pieces == 0 && !read_file(r, &p->before)) return OK;
    log_info("masked words of the held-out text: loss %.4f before, %.4f after; accuracy %.4f before, %.4f after",
             p->before.mlm_loss, p->result.mlm_loss, p->before.mlm_accuracy, p->result.mlm_accuracy);
    return write_file(r, true);
}
