#include "text/trie.h"

#include "base/base.h"

static int compare_keys(const void *a, const void *b)
{
    const TrieKey *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    if (order) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void trie_sort(TrieKey *keys, size_t count)
{
    if (count) qsort(keys, count, sizeof *keys, compare_keys);
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

TrieNode *trie_build(const TrieKey *keys, size_t count, const volatile sig_atomic_t *stop)
{
    TrieBuilder b = {0};
    Branch *stack = NULL;
    size_t depth = 0, cap = 0;
    trie_reserve(&b, 1024);
    for (int i = 0; i < 9; i++) b.look_from[i] = 256; /* keeps every base from being negative */
    b.nodes[0].parent = INT32_MAX;                    /* in use, without a parent */
    MEM_PUSH(stack, depth, cap, (Branch){0, 0, count, 0});
    while (depth > 0 && !(stop && *stop)) {
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

int32_t trie_walk(const TrieNode *nodes, int32_t node, const char *text, size_t len)
{
    for (size_t i = 0; i < len && node >= 0; i++) {
        int32_t next = nodes[node].base + (uint8_t)text[i];
        node = nodes[next].parent == node ? next : -1;
    }
    return node;
}
