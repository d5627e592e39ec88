#include "text/normalize.h"
#include "text/vocab.h"

void vocab_free_added(Vocab *vocab)
{
    for (int i = 0; i < vocab->n_added; i++) free(vocab->added[i].text);
    free(vocab->added);
    mem_free_texts(vocab->never_split, vocab->n_never_split);
}

static int by_id(const void *a, const void *b)
{
    const AddedToken *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const AddedToken *)a)->text, ((const AddedToken *)b)->text);
}

static AddedToken copy_token(const AddedToken *token, int32_t id)
{
    AddedToken copy = *token;
    copy.text = mem_strdup(token->text);
    copy.id = id;
    return copy;
}

void vocab_add_special(Vocab *vocab)
{
    vocab->added = mem_array(N_SPECIAL, sizeof *vocab->added);
    vocab->n_added = N_SPECIAL;
    for (int i = 0; i < N_SPECIAL; i++) {
        const char *text = special_tokens[i].text;
        vocab->added[i] = copy_token(&special_tokens[i], vocab_find(vocab, text, strlen(text)));
    }
    qsort(vocab->added, N_SPECIAL, sizeof *vocab->added, by_id);
}

/* The lines' digest, and then what the lines do not say. */
static void extend_digest(Vocab *vocab, const void *data, size_t len)
{
    DigestStream *digest = digest_new();
    digest_update(digest, &vocab->digest, sizeof vocab->digest);
    digest_update(digest, data, len);
    vocab->digest = digest_value(digest);
    digest_free(digest);
}

static int flags_of(const AddedToken *t)
{
    return t->special | t->normalized << 1 | t->single_word << 2 | t->lstrip << 3 | t->rstrip << 4;
}

/* The place of a special piece among those that vocab_add_special added, or −1. */
static int find_special(const Vocab *vocab, const char *text)
{
    for (int i = 0; i < N_SPECIAL; i++)
        if (strcmp(vocab->added[i].text, text) == 0) return i;
    return -1;
}

static Status add_token(Vocab *vocab, const AddedToken *t, Buf *changes)
{
    int there = find_special(vocab, t->text);
    int32_t piece = vocab_find(vocab, t->text, strlen(t->text)), id = piece < 0 ? vocab->size : piece;
    if (!*t->text) return fail(E_FORMAT, "the added token with id %d is empty; expected a text", (int)t->id);
    if (t->id != id)
        return fail(E_FORMAT,
                    piece < 0 ? "the added token '%s' has id %d; expected %d, the next one beyond the vocabulary and "
                                "the tokens before it"
                              : "the added token '%s' has id %d; expected %d, its place in the vocabulary",
                    t->text, (int)t->id, (int)id);
    if (there >= 0 && flags_of(&vocab->added[there]) == flags_of(t)) return OK;
    buf_printf(changes, "%d %d %s%c", (int)id, flags_of(t), t->text, 0);
    vocab->size += piece < 0;
    if (there < 0) {
        vocab->added[vocab->n_added++] = copy_token(t, id);
    } else {
        free(vocab->added[there].text);
        vocab->added[there] = copy_token(t, id);
    }
    return OK;
}

Status vocab_set_added(Vocab *vocab, const AddedToken *added, int n)
{
    Buf changes = {0};
    Status status = OK;
    AddedToken *sorted = mem_array((size_t)n + 1, sizeof *sorted);
    CHECK(vocab->n_added == N_SPECIAL, "added tokens are set once");
    memcpy(sorted, added, (size_t)n * sizeof *sorted);
    if (n) qsort(sorted, (size_t)n, sizeof *sorted, by_text);
    for (int i = 1; i < n; i++) {
        if (strcmp(sorted[i].text, sorted[i - 1].text) == 0)
            TRY_DONE(
                fail(E_FORMAT, "the added token '%s' appears twice; expected one entry for each text", sorted[i].text));
    }
    if (n) qsort(sorted, (size_t)n, sizeof *sorted, by_id);
    vocab->added = mem_resize(vocab->added, (size_t)(N_SPECIAL + n), sizeof *vocab->added);
    for (int i = 0; i < n; i++) TRY_DONE(add_token(vocab, &sorted[i], &changes));
    qsort(vocab->added, (size_t)vocab->n_added, sizeof *vocab->added, by_id);
    if (changes.len) extend_digest(vocab, changes.data, changes.len);
done:
    buf_free(&changes);
    free(sorted);
    return status;
}

const AddedToken *vocab_added(const Vocab *vocab, int *n)
{
    *n = vocab->n_added;
    return vocab->added;
}

Status vocab_set_never_split(Vocab *vocab, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (!*words[i]) return fail(E_FORMAT, "never_split: word %d is empty; expected a text", i + 1);
    vocab->never_split = mem_array((size_t)n + 1, sizeof *vocab->never_split);
    vocab->n_never_split = n;
    for (int i = 0; i < n; i++) {
        vocab->never_split[i] = mem_strdup(words[i]);
        extend_digest(vocab, words[i], strlen(words[i]) + 1);
    }
    return OK;
}
