#include "text/normalize.h"
#include "text/parts.h"
#include "text/vocab.h"

/* The texts of a Lookup while they are gathered. */
typedef struct {
    TrieKey *keys; // (count)
    size_t count, cap;
} Keys;

static void add_key(Keys *k, const char *text, size_t len, int32_t id)
{
    if (len > 0) MEM_PUSH(k->keys, k->count, k->cap, (TrieKey){mem_strndup(text, len), len, id});
}

/* The lowest id of keys with one text counts. Ids become those modulo n. */
static void take_keys(Keys *k, int n, Lookup *l)
{
    size_t kept = 0;
    trie_sort(k->keys, k->count);
    for (size_t i = 0; i < k->count; i++) {
        TrieKey key = k->keys[i];
        if (kept && k->keys[kept - 1].len == key.len && memcmp(k->keys[kept - 1].text, key.text, key.len) == 0) {
            free((char *)key.text);
            continue;
        }
        key.id %= n;
        k->keys[kept++] = key;
        l->begins[(uint8_t)key.text[0]] = true;
    }
    if (kept) l->nodes = trie_build(k->keys, kept, NULL);
    for (size_t i = 0; i < kept; i++) free((char *)k->keys[i].text);
    free(k->keys);
}

/* The library looks for special tokens first, then for the others in the order of their ids: among equal texts the
   first counts. */
static void library_lookups(TextRules *r, int n)
{
    Keys raw = {0}, normal = {0};
    for (int i = 0; i < n; i++) {
        const AddedToken *t = &r->added[i];
        int32_t id = t->special ? i : n + i;
        Buf text = {0};
        if (t->normalized)
            text_normalised(r, t->text, strlen(t->text), &text);
        else
            buf_puts(&text, t->text);
        add_key(t->normalized ? &normal : &raw, text.data, text.len, id); /* nothing is left of some */
        buf_free(&text);
    }
    take_keys(&raw, n, &r->raw);
    take_keys(&normal, n, &r->normal);
}

static void python_lookups(TextRules *r, int n, char *const *never_split, int n_never_split)
{
    Keys raw = {0}, all = {0}, whole = {0};
    for (int i = 0; i < n; i++) {
        const AddedToken *t = &r->added[i];
        Buf text = {0};
        if (!t->special && t->normalized && r->options.lower_case)
            text_lowered(&r->whole, t->text, t->text + strlen(t->text), &text);
        else
            buf_puts(&text, t->text);
        add_key(&all, text.data, text.len, i);
        if (t->special) add_key(&raw, text.data, text.len, i);
        if (t->special && r->options.split_words) add_key(&whole, text.data, text.len, 2);
        if (t->single_word) r->across = true;
        buf_free(&text);
    }
    for (int i = 0; i < n_never_split && r->options.split_words; i++)
        add_key(&whole, never_split[i], strlen(never_split[i]), 1);
    take_keys(&raw, n, &r->raw);
    take_keys(&all, n, &r->normal);
    take_keys(&whole, 2, &r->whole);
}

static bool has_white_space(const char *text) { return text[strcspn(text, " \t\n\r")] != '\0'; }

void text_rules_init(TextRules *r, TokenizerOptions options, const Vocab *vocab)
{
    (void)unicode_record(0); /* makes unicode_ascii, which text_words reads */
    int n = vocab ? vocab->n_added : N_SPECIAL, n_never_split = vocab ? vocab->n_never_split : 0;
    if (!options.split_words) {
        options.lower_case = options.split_chinese = options.clean_text = false;
        options.strip_accents = 0;
    }
    *r = (TextRules){.options = options, .added = vocab ? vocab->added : special_tokens};
    if (options.kind == TOKENIZER_FAST)
        library_lookups(r, n);
    else
        python_lookups(r, n, vocab ? vocab->never_split : NULL, n_never_split);
    for (int i = 0; i < n; i++) r->across |= has_white_space(r->added[i].text);
    r->across |= r->normal.begins[' ']; /* around an ideograph */
    r->ascii = options.split_words && n_never_split == 0 && !r->across;
    for (int c = 0; c < 0x80; c++) r->ascii &= c == '[' || !(r->raw.begins[c] | r->normal.begins[c]);
}

void text_rules_free(TextRules *r) { MEM_FREE(r->raw.nodes, r->normal.nodes, r->whole.nodes); }
