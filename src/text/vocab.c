#include "text/vocab.h"

#include "text/normalize.h"

#define FILE_MAX ((size_t)1 << 28) /* bytes; the largest published vocabulary has 5 MB */

static bool stopped(const volatile sig_atomic_t *stop) { return stop && *stop; }

static Status check_stop(const char *name, const volatile sig_atomic_t *stop)
{
    return stopped(stop) ? fail(E_STOPPED, "stopped while the vocabulary %s was read; nothing is lost", name) : OK;
}

/* ---- Reading ---- */

/* Returns the line at text[*at] without its end, and moves *at past it. */
static TrieKey next_line(const char *text, size_t len, size_t *at, int32_t id)
{
    size_t start = *at, end = start;
    while (end < len && text[end] != '\n' && text[end] != '\r') end++;
    *at = end + 1;
    if (end + 1 < len && text[end] == '\r' && text[end + 1] == '\n') ++*at;
    return (TrieKey){text + start, end - start, id};
}

static Status check_line(const char *name, TrieKey line)
{
    long number = (long)line.id + 1;
    if (line.len == 0) return fail(E_FORMAT, "%s: line %ld is blank; expected one piece per line", name, number);
    if (line.len > PIECE_MAX) {
        return fail(E_FORMAT,
                    "%s: line %ld has %zu bytes; expected one piece of at most %d per line: is this a vocabulary?",
                    name, number, line.len, PIECE_MAX);
    }
    int64_t bad = text_utf8_error(line.text, line.len);
    if (bad >= 0) {
        return fail(E_FORMAT, "%s: line %ld, byte %ld (0x%02x) is not UTF-8; convert the file", name, number,
                    (long)bad + 1, (unsigned)(uint8_t)line.text[bad]);
    }
    if (memchr(line.text, 0, line.len)) return fail(E_FORMAT, "%s: line %ld has a NUL byte in it", name, number);
    return OK;
}

static Status find_special(const char *name, Vocab *v)
{
    int32_t *ids[N_SPECIAL] = {&v->special.pad, &v->special.unk, &v->special.cls, &v->special.sep, &v->special.mask};
    for (int i = 0; i < N_SPECIAL; i++) {
        *ids[i] = vocab_find(v, special_tokens[i].text, strlen(special_tokens[i].text));
        if (*ids[i] < 0) {
            return fail(E_FORMAT, "%s: no line is %s; a BERT vocabulary has [PAD], [UNK], [CLS], [SEP] and [MASK]",
                        name, special_tokens[i].text);
        }
    }
    return OK;
}

void vocab_lines(const Vocab *vocab, Buf *out)
{
    for (int32_t i = 0; i < vocab->pieces; i++) {
        buf_append(out, vocab->text + vocab->start[i], vocab->start[i + 1] - vocab->start[i] - 1);
        buf_append(out, "\n", 1);
    }
}

Status vocab_parse(const char *name, const char *text, size_t len, const volatile sig_atomic_t *stop, Vocab **vocab)
{
    Status status = OK;
    Vocab *v = mem_alloc(sizeof *v);
    TrieKey *keys = NULL;
    size_t count = 0, cap = 0;
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        len -= 3;
    }
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) len--;
    if (len == 0) TRY_DONE(fail(E_FORMAT, "%s: empty; expected one piece per line", name));
    for (size_t at = 0; at < len && !stopped(stop);) {
        MEM_GROW(keys, count, cap);
        keys[count] = next_line(text, len, &at, (int32_t)count);
        TRY_DONE(check_line(name, keys[count]));
        count++;
    }
    TRY_DONE(check_stop(name, stop));

    v->pieces = v->size = (int32_t)count;
    v->text = mem_alloc(len + 1);
    v->start = mem_array(count + 1, sizeof *v->start);
    for (size_t i = 0, at = 0; i < count; i++) {
        memcpy(v->text + at, keys[i].text, keys[i].len);
        v->start[i] = at;
        v->start[i + 1] = at += keys[i].len + 1;
    }
    Buf lines = {0};
    vocab_lines(v, &lines);
    v->digest = digest_of(lines.data, lines.len);
    buf_free(&lines);
    trie_sort(keys, count);
    for (size_t i = 1; i < count; i++) {
        if (keys[i].len == keys[i - 1].len && memcmp(keys[i].text, keys[i - 1].text, keys[i].len) == 0)
            TRY_DONE(fail(E_FORMAT, "%s: line %ld repeats line %ld, '%.*s'; a piece has one id", name,
                          (long)keys[i].id + 1, (long)keys[i - 1].id + 1, (int)keys[i].len, keys[i].text));
    }
    v->nodes = trie_build(keys, count, stop);
    TRY_DONE(check_stop(name, stop));
    v->continuation = trie_walk(v->nodes, 0, "##", 2);
    TRY_DONE(find_special(name, v));
    vocab_add_special(v);
done:
    free(keys);
    if (status != OK) {
        vocab_free(v);
        v = NULL;
    }
    *vocab = v;
    return status;
}

Status vocab_read(const char *path, const volatile sig_atomic_t *stop, Vocab **vocab)
{
    Buf text = {0};
    *vocab = NULL;
    Status status = file_read(path, FILE_MAX, &text);
    if (status == OK) status = vocab_parse(path, text.data ? text.data : "", text.len, stop, vocab);
    buf_free(&text);
    return status;
}

Status vocab_write(const Vocab *vocab, const char *path)
{
    Buf text = {0};
    vocab_lines(vocab, &text);
    return file_write_text(NULL, path, &text);
}

void vocab_free(Vocab *vocab)
{
    if (!vocab) return;
    vocab_free_added(vocab);
    MEM_FREE(vocab->text, vocab->start, vocab->nodes, vocab);
}

/* ---- Queries ---- */

int32_t vocab_size(const Vocab *vocab) { return vocab->size; }

int32_t vocab_pieces(const Vocab *vocab) { return vocab->pieces; }

const char *vocab_piece(const Vocab *vocab, int32_t id)
{
    CHECK(id >= 0 && id < vocab->size, "piece %d of a vocabulary of %d", (int)id, (int)vocab->size);
    if (id >= vocab->pieces) return vocab->added[vocab->n_added - (vocab->size - id)].text;
    return vocab->text + vocab->start[id];
}

int32_t vocab_find(const Vocab *vocab, const char *piece, size_t len)
{
    int32_t node = trie_walk(vocab->nodes, 0, piece, len);
    return node < 0 ? -1 : vocab->nodes[node].id;
}

Digest vocab_digest(const Vocab *vocab) { return vocab->digest; }

SpecialIds vocab_special(const Vocab *vocab) { return vocab->special; }
