#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "text/normalize.h"

#define FILE_MAX  ((size_t)1 << 28) /* bytes; the largest published vocabulary has 5 MB */
#define PIECE_MAX 1000              /* bytes; words have at most 100 characters */

static bool stopped(const volatile sig_atomic_t *stop) { return stop && *stop; }

static Status check_stop(const char *name, const volatile sig_atomic_t *stop)
{
    return stopped(stop) ? fail(E_STOPPED, "stopped while the vocabulary %s was read; nothing is lost", name) : OK;
}

/* ---- The trie ---- */

typedef struct {
    const char *text;
    size_t len;
    int32_t id;
} Key;

static int compare_keys(const void *a, const void *b)
{
    const Key *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    if (order) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

typedef struct {
    TrieNode *nodes;
    size_t size;
    size_t look_from[9]; /* where to look for room for 1, 2 … 8, or more children */
} TrieBuilder;

/* Extends the nodes to `size`; new ones are free. */
static void trie_reserve(TrieBuilder *b, size_t size)
{
    if (size <= b->size) return;
    size_t grown = size > 2 * b->size ? size : 2 * b->size;
    CHECK(grown < INT32_MAX, "a vocabulary of %zu trie nodes", grown);
    b->nodes = mem_resize(b->nodes, grown, sizeof *b->nodes);
    for (size_t i = b->size; i < grown; i++) b->nodes[i] = (TrieNode){.base = 0, .parent = -1, .id = -1};
    b->size = grown;
}

/* Returns a base at which the nodes of all `count` labels (ascending) are free. A part of the nodes in which a search
   takes long is too crowded and is skipped for good, or building would be quadratic. */
static size_t trie_find_base(TrieBuilder *b, const uint8_t *labels, int count)
{
    enum { MISFIT = 8, CROWDED = 64 * MISFIT }; /* time, in nodes that are looked at */
    size_t *from = &b->look_from[count < 9 ? count - 1 : 8], spent = 0;
    for (size_t at = *from;; at++) {
        trie_reserve(b, at + 512);
        if (spent >= CROWDED) {
            *from = at;
            spent = 0;
        }
        if (b->nodes[at].parent >= 0) {
            if (at == *from) ++*from;
            spent++;
            continue;
        }
        size_t base = at - labels[0];
        int fits = 1;
        while (fits < count && b->nodes[base + labels[fits]].parent < 0) fits++;
        if (fits == count) return base;
        spent += MISFIT;
    }
}

typedef struct {
    int32_t node;
    size_t low, high, depth; /* keys[low … high) share `depth` bytes, which lead to `node` */
} Branch;

/* Builds the trie from distinct keys in order; a part of it after a stop. */
static TrieNode *trie_build(const Key *keys, size_t count, const volatile sig_atomic_t *stop)
{
    TrieBuilder b = {0};
    Branch *stack = NULL;
    size_t depth = 0, cap = 0;
    trie_reserve(&b, 1024);
    for (int i = 0; i < 9; i++) b.look_from[i] = 256; /* keeps every base from being negative */
    b.nodes[0].parent = INT32_MAX;                    /* in use, without a parent */
    MEM_PUSH(stack, depth, cap, (Branch){0, 0, count, 0});
    while (depth > 0 && !stopped(stop)) {
        Branch at = stack[--depth];
        size_t low = at.low;
        if (low < at.high && keys[low].len == at.depth) b.nodes[at.node].id = keys[low++].id;
        if (low == at.high) continue;
        uint8_t labels[256];
        size_t starts[257];
        int n = 0;
        for (size_t i = low; i < at.high; i++) {
            uint8_t label = (uint8_t)keys[i].text[at.depth];
            if (n > 0 && labels[n - 1] == label) continue;
            labels[n] = label;
            starts[n++] = i;
        }
        starts[n] = at.high;
        size_t base = trie_find_base(&b, labels, n);
        b.nodes[at.node].base = (int32_t)base;
        for (int i = 0; i < n; i++) b.nodes[base + labels[i]].parent = at.node;
        for (int i = n - 1; i >= 0; i--) {
            MEM_PUSH(stack, depth, cap, (Branch){(int32_t)(base + labels[i]), starts[i], starts[i + 1], at.depth + 1});
        }
    }
    free(stack);
    return b.nodes;
}

/* ---- Reading ---- */

/* Returns the line at text[*at] without its end, and moves *at past it. */
static Key next_line(const char *text, size_t len, size_t *at, int32_t id)
{
    size_t start = *at, end = start;
    while (end < len && text[end] != '\n' && text[end] != '\r') end++;
    *at = end + 1;
    if (end + 1 < len && text[end] == '\r' && text[end + 1] == '\n') ++*at;
    return (Key){text + start, end - start, id};
}

static Status check_line(const char *name, Key line)
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
        *ids[i] = vocab_find(v, special_pieces[i].text, special_pieces[i].len);
        if (*ids[i] < 0) {
            return fail(E_FORMAT, "%s: no line is %s; a BERT vocabulary has [PAD], [UNK], [CLS], [SEP] and [MASK]",
                        name, special_pieces[i].text);
        }
    }
    return OK;
}

static int32_t trie_walk(const Vocab *v, int32_t node, const char *text, size_t len)
{
    for (size_t i = 0; i < len && node >= 0; i++) {
        int32_t next = v->nodes[node].base + (uint8_t)text[i];
        node = v->nodes[next].parent == node ? next : -1;
    }
    return node;
}

Status vocab_parse(const char *name, const char *text, size_t len, const volatile sig_atomic_t *stop, Vocab **vocab)
{
    Status status = OK;
    Vocab *v = mem_alloc(sizeof *v);
    Key *keys = NULL;
    size_t count = 0, cap = 0;
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        len -= 3;
    }
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) len--;
    if (len == 0) {
        status = fail(E_FORMAT, "%s: empty; expected one piece per line", name);
        goto done;
    }
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
    DigestStream *digest = digest_new();
    for (size_t i = 0; i < count; i++) {
        digest_update(digest, keys[i].text, keys[i].len);
        digest_update(digest, "\n", 1);
    }
    v->digest = digest_value(digest);
    digest_free(digest);

    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++) {
        if (keys[i].len == keys[i - 1].len && memcmp(keys[i].text, keys[i - 1].text, keys[i].len) == 0) {
            status = fail(E_FORMAT, "%s: line %ld repeats line %ld, '%.*s'; a piece has one id", name,
                          (long)keys[i].id + 1, (long)keys[i - 1].id + 1, (int)keys[i].len, keys[i].text);
            goto done;
        }
    }
    v->nodes = trie_build(keys, count, stop);
    TRY_DONE(check_stop(name, stop));
    v->continuation = trie_walk(v, 0, "##", 2);
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
    for (int32_t i = 0; i < vocab->pieces; i++) {
        buf_append(&text, vocab->text + vocab->start[i], vocab->start[i + 1] - vocab->start[i] - 1);
        buf_append(&text, "\n", 1);
    }
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
    int32_t node = trie_walk(vocab, 0, piece, len);
    return node < 0 ? -1 : vocab->nodes[node].id;
}

Digest vocab_digest(const Vocab *vocab) { return vocab->digest; }

SpecialIds vocab_special(const Vocab *vocab) { return vocab->special; }
