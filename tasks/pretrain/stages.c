#include "tasks/pretrain/stages.h"

#include "base/lock.h"
#include "base/test_switch.h"
#include "model/model.h"
#include "state/models/import.h"
#include "tasks/pretrain/pretrain.h"
#include "tasks/pretrain/wiki/wiki.h"
#include "text/tokenizer_files.h"
#include "train/ranks/signals.h"

/* ---- paths ---- */

static Status check_use(const Config *c)
{
    if (*c->data_dir) return fail(E_USAGE, "--input makes the shards that --data-dir names; give one of the two");
    if (c->do_eval && !c->do_train)
        return fail(E_USAGE,
                    "--input makes shards for training, and --do-eval alone does not train: add --do-train, or "
                    "evaluate shards that exist, as --data-dir");
    if (*c->eval_dir && c->eval_fraction > 0)
        return fail(E_USAGE, "--eval-fraction holds out what --eval-dir names; give one of the two");
    if (*c->eval_dir && !file_is_directory(c->eval_dir))
        return fail(E_USAGE, "--eval-dir %s: no such folder; --eval-fraction holds out a part of --input", c->eval_dir);
    return shards_check_use(c);
}

/* The default of --size is the vocabulary size of --model-config. */
static Status choose_size(Config *training)
{
    ModelConfig model;
    const char *path = training->model_config;
    if (!config_is_default(training, OPTION_size) || !*path || !file_exists(path)) return OK;
    TRY(model_config_read(path, &model));
    training->size = model.vocab_size;
    model_config_free(&model);
    return OK;
}

/* Those of a tokenizer that exists; one that Cairn has not is refused before hours of work. */
static Status read_options(const Config *given, TokenizerOptions *text)
{
    TokenizerFiles t = {0};
    Status status = tokenizer_files_read(*given->vocab ? given->vocab : NULL, *given->model ? given->model : NULL,
                                         signals_stop(), &t);
    if (status == OK) tokenizer_files_choose(&t, given->do_lower_case, given->strip_accents);
    *text = t.options;
    tokenizer_files_free(&t);
    return status;
}

Status stages_plan(Stages *s, const Config *given)
{
    const char *out = given->output_dir;
    TokenizerOptions text = tokenizer_options(true);
    *s = (Stages){.given = given, .training = *given};
    TRY(check_use(given));
    s->text = file_join(out, "text");
    s->shards = file_join(out, "shards");
    s->eval = file_join(s->shards, "eval");
    s->record = file_join(out, "stages.json");
    if (*given->vocab)
        s->vocab = mem_strdup(given->vocab);
    else if (*given->model)
        s->vocab = tokenizer_files_find(given->model);
    s->makes_vocab = !s->vocab;
    if (!s->vocab && *given->model) TRY(import_check_folder(given->model));
    if (!s->vocab && *given->model)
        return fail(E_USAGE, "--model %s: no vocab.txt and no tokenizer.json is beside it; give --vocab FILE",
                    given->model);
    if (!s->vocab) s->vocab = file_join(out, "vocab.txt");
    if (!s->makes_vocab) TRY(read_options(given, &text));
    Config *t = &s->training;
    t->vocab = s->vocab;
    t->data_dir = s->shards;
    if (given->eval_fraction > 0) t->eval_dir = s->eval;
    /* Vocabulary and shards must be made with the options with which training reads text (start_text). */
    if (strcmp(given->do_lower_case, "auto") == 0) t->do_lower_case = (char *)(text.lower_case ? "yes" : "no");
    if (strcmp(given->strip_accents, "auto") == 0 && text.strip_accents >= 0)
        t->strip_accents = (char *)(text.strip_accents ? "yes" : "no");
    return choose_size(t);
}

void stages_free(Stages *s)
{
    MEM_FREE(s->text, s->vocab, s->shards, s->eval, s->record);
    *s = (Stages){0};
}

/* ---- the stages ---- */

static Config command_config(const Stages *s, Command command, char *input, char *output_dir)
{
    Config c = s->training;
    c.command = command;
    c.input = input;
    c.output_dir = output_dir;
    c.source[OPTION_output_dir] = FROM_FLAG;
    return c;
}

/* The record of vocab.txt: the digest of its text, and its options. */
static Status describe_vocab(const Stages *s, Buf *out)
{
    const Config *c = &s->training;
    char *manifest = file_join(s->text, "manifest.json");
    Digest text;
    Status status = file_digest(manifest, &text, NULL);
    free(manifest);
    TRY(status);
    buf_printf(
        out, "{\"vocab\": {\"text\": \"%s\", \"size\": %lld, \"do-lower-case\": \"%s\", \"strip-accents\": \"%s\"}}\n",
        DIGEST_TEXT(text), (long long)c->size, c->do_lower_case, c->strip_accents);
    return OK;
}

static Status make_vocab(const Stages *s)
{
    Config c = command_config(s, COMMAND_VOCAB, s->text, s->given->output_dir);
    Buf now = {0}, before = {0};
    Status status = OK;
    bool made = file_exists(s->vocab), recorded = file_exists(s->record);
    c.output = s->vocab;
    TRY_DONE(describe_vocab(s, &now));
    if (recorded) TRY_DONE(file_read(s->record, 1 << 20, &before));
    if (made && !recorded)
        TRY_DONE(fail(E_USAGE, "%s is not the work of an earlier run; give it as --vocab, or give another --output-dir",
                      s->vocab));
    if (made && strcmp(now.data, before.data ? before.data : "") != 0)
        TRY_DONE(fail(E_USAGE,
                      "%s was made from other text or with other options (%s); give another --output-dir, or remove it",
                      s->vocab, s->record));
    if (made) {
        log_info("%s exists already", s->vocab);
        goto done;
    }
    TRY_DONE(file_write_text(NULL, s->record, &now));
    test_at("vocab", 0);
    TRY_DONE(command_vocab(&c));
done:
    BUF_FREE(&now, &before);
    return status;
}

/* Shards are made of all files in the folder of the text. */
static Status check_text_folder(const Stages *s)
{
    Status status = OK;
    FileList list = {0};
    TRY_DONE(file_list(s->text, &list));
    for (int i = 0; i < list.count && status == OK; i++) {
        const char *name = strrchr(list.paths[i], '/') + 1;
        bool own = *name == '.' || str_starts_with(name, "part-") || str_starts_with(name, "manifest.json") ||
                   str_starts_with(name, "progress.json");
        if (!own)
            status = fail(E_USAGE,
                          "%s: expected only files of `cairn wiki` in this folder, as all its text is trained on; "
                          "move the file, or give another --output-dir",
                          list.paths[i]);
    }
done:
    file_list_free(&list);
    return status;
}

static Status run_stages(const Stages *s)
{
    TRY(check_text_folder(s));
    Config wiki = command_config(s, COMMAND_WIKI, s->given->input, s->text);
    Config shards = command_config(s, COMMAND_SHARDS, s->text, s->shards);
    TRY(command_wiki(&wiki));
    if (s->makes_vocab) TRY(make_vocab(s));
    TRY(command_shards(&shards));
    if (*signals_stop()) return fail(E_STOPPED, "stopped before training; the same command resumes");
    return OK;
}

bool stages_finished(const Stages *s) { return file_exists_in(s->shards, "manifest.json"); }

/* A small text may have fewer pieces than --size asks for. It is prepared soon enough to plan with what it has. */
Status stages_foresee(const Stages *s, double *text, int *pieces)
{
    enum { ENOUGH_TEXT = 16 << 20, FEW_PIECES = 1000 };
    WikiFiles files;
    bool named = !file_exists(s->training.model_config);
    TRY(wiki_files_find(&files, s->given->input));
    *text = files.text;
    *pieces = (int)s->training.size;
    if (named && *pieces > FEW_PIECES && files.text < ENOUGH_TEXT) *pieces = FEW_PIECES;
    wiki_files_free(&files);
    return OK;
}

Status stages_make(const Stages *s)
{
    FolderLock lock = {0};
    if (s->given->dry_run)
        return stages_finished(s)
                   ? OK
                   : fail(E_USAGE, "--dry-run writes nothing and needs finished shards to plan; %s is not finished yet",
                          s->shards);
    TRY(lock_take(&lock, s->given->output_dir));
    Status status = run_stages(s);
    lock_release(&lock);
    return status;
}
