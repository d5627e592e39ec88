/* `cairn vocab`: a WordPiece vocabulary from text files. From files named *.tsv only the text columns of GLUE's headers
   are read (sentence, sentence1, sentence2, question …), so that indices and labels do not enter the vocabulary. */

#include "base/parallel.h"
#include "base/thread.h"
#include "tasks/pretrain/inputs.h"
#include "tasks/pretrain/pool.h"
#include "tasks/pretrain/pretrain.h"
#include "text/text.h"
#include "train/ranks/signals.h"

#define MAX_COLUMNS 64
#define LEAST_PART  ((size_t)1 << 20) /* bytes of a file that a thread is worth */

static bool is_text_column(const char *name, size_t len)
{
    static const char names[] = "sentence,sentence1,sentence2,question,question1,question2,premise,hypothesis,text,"
                                "#1 String,#2 String";
    return str_list_has(names, ',', name, len);
}

/* The columns of a line. `t` NULL: it is the header, and `wanted` says which columns hold text. Else their texts are
   added. False: no column is wanted. */
static bool take_columns(VocabTrainer *t, const char *line, size_t len, bool wanted[MAX_COLUMNS])
{
    bool any = false;
    int column = 0;
    for (size_t i = 0; i <= len && column < MAX_COLUMNS; column++) {
        const char *tab = memchr(line + i, '\t', len - i);
        size_t size = tab ? (size_t)(tab - line) - i : len - i;
        if (!t) wanted[column] = is_text_column(line + i, size);
        if (t && wanted[column]) vocab_trainer_add(t, line + i, size);
        any |= wanted[column];
        i += size + 1;
    }
    return any;
}

/* The lines of a text without columns. */
static void add_lines(VocabTrainer *t, const char *text, const char *end)
{
    for (const char *stop; text < end; text = stop + 1) {
        stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        size_t len = (size_t)(stop - text);
        if (len && text[len - 1] == '\r') len--;
        vocab_trainer_add(t, text, len);
    }
}

typedef struct {
    VocabTrainer *trainer;
    const char *begin, *end;
    pthread_t thread;
    bool started;
} TrainerPart;

static void *count_part(void *arg)
{
    TrainerPart *p = arg;
    add_lines(p->trainer, p->begin, p->end);
    return NULL;
}

/* Adds a text by all cores: each counts the words of consecutive lines, and the counts are added. */
static void add_text(VocabTrainer *t, const VocabTraining *training, const char *text, const char *end)
{
    TrainerPart parts[POOL_MOST];
    size_t cores = (size_t)parallel_cores(), most = (size_t)(end - text) / LEAST_PART;
    size_t n = cores < POOL_MOST ? cores : POOL_MOST, share;
    if (n > most) n = most;
    if (n < 2) {
        add_lines(t, text, end);
        return;
    }
    share = (size_t)(end - text) / n;
    for (size_t i = 0; i < n; i++) {
        TrainerPart *p = &parts[i];
        *p = (TrainerPart){.trainer = i ? vocab_trainer_new(*training) : t, .begin = text, .end = end};
        const char *stop =
            i + 1 < n && (size_t)(end - text) > share ? memchr(text + share, '\n', (size_t)(end - text) - share) : NULL;
        if (stop) p->end = stop + 1;
        text = p->end;
        p->started = i > 0 && thread_start(&p->thread, count_part, p) == OK;
    }
    for (size_t i = 0; i < n; i++)
        if (!parts[i].started) count_part(&parts[i]);
    for (size_t i = 1; i < n; i++) {
        if (parts[i].started) pthread_join(parts[i].thread, NULL);
        vocab_trainer_merge(t, parts[i].trainer);
        vocab_trainer_free(parts[i].trainer);
    }
}

static Status add_file(VocabTrainer *t, const VocabTraining *training, const char *path)
{
    FileMap map;
    bool wanted[MAX_COLUMNS] = {false};
    TRY(file_map(&map, path));
    const char *text = (const char *)map.data;
    int64_t bad = text_utf8_error(text, map.size);
    if (bad >= 0) {
        file_unmap(&map);
        return fail(E_FORMAT, "%s: the byte at %lld is not UTF-8", path, (long long)bad);
    }
    size_t start = map.size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a byte order mark */
    bool table = str_ends_with(path, ".tsv"), first = true;
    if (!table && map.size) add_text(t, training, text + start, text + map.size);
    for (size_t i = start; table && i < map.size; first = false) {
        const char *end = memchr(text + i, '\n', map.size - i);
        size_t len = end ? (size_t)(end - text) - i : map.size - i, cut = len;
        if (cut && text[i + cut - 1] == '\r') cut--;
        if (table && first) {
            table = take_columns(NULL, text + i, cut, wanted);
            if (!table) add_text(t, training, text + i, text + map.size); /* no known header: all columns are text */
        } else {
            (void)take_columns(t, text + i, cut, wanted);
        }
        i += len + 1;
    }
    Status status = file_map_check(&map, path);
    file_unmap(&map);
    return status;
}

static Status add_inputs(VocabTrainer *t, const VocabTraining *training, const FileList *inputs)
{
    for (int i = 0; i < inputs->count; i++) {
        if (*signals_stop()) return fail(E_STOPPED, "stopped; the same command begins the vocabulary again");
        TRY(add_file(t, training, inputs->paths[i]));
    }
    return OK;
}

Status command_vocab(const Config *c)
{
    Vocab *vocab = NULL;
    FileList inputs = {0};
    Status status = OK;
    if (!*c->input || !*c->output) return fail(E_USAGE, "give --input FILE or folder, and --output vocab.txt");
    TRY(file_try_place(c->output));
    TokenizerOptions text = tokenizer_options(strcmp(c->do_lower_case, "no") != 0);
    if (strcmp(c->strip_accents, "auto") != 0) text.strip_accents = strcmp(c->strip_accents, "yes") == 0;
    VocabTraining training = {.size = (int32_t)c->size, .min_count = c->min_count, .normalisation = text};
    VocabTrainer *t = vocab_trainer_new(training);
    TRY_DONE(inputs_find(&inputs, c->input, false));
    TRY_DONE(add_inputs(t, &training, &inputs));
    TRY_DONE(vocab_trainer_finish(t, &vocab));
    TRY_DONE(vocab_write(vocab, c->output));
    log_info("%s: %d pieces", c->output, vocab_size(vocab));
done:
    file_list_free(&inputs);
    vocab_trainer_free(t);
    vocab_free(vocab);
    return status;
}
