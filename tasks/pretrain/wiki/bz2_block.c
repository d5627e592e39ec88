#include "tasks/pretrain/wiki/bz2_block.h"

#include <string.h>

#define MAGIC_BITS 48
#define RUN_A      0
#define RUN_B      1

/* ---- bits ---- */

typedef struct {
    const uint8_t *data;
    uint64_t bytes, at; /* at: byte that is loaded next */
    uint64_t word;      /* unread bits, from the highest; then zeros */
    unsigned n;         /* unread bits in `word` */
    unsigned over;      /* zero bits that were added behind the data */
} Bits;

/* At least 56 unread bits. */
static inline void fill(Bits *b)
{
    if (b->at + 8 <= b->bytes) {
        uint64_t next;
        memcpy(&next, b->data + b->at, 8);
        b->word |= __builtin_bswap64(next) >> b->n;
        unsigned taken = (63 - b->n) >> 3;
        b->at += taken;
        b->n += 8 * taken;
        return;
    }
    for (; b->n <= 56; b->n += 8) {
        if (b->at < b->bytes)
            b->word |= (uint64_t)b->data[b->at++] << (56 - b->n);
        else
            b->over += 8;
    }
}

static inline void skip(Bits *b, unsigned n)
{
    b->word <<= n;
    b->n -= n;
}

/* n: 1 to 32. */
static inline uint32_t take(Bits *b, unsigned n)
{
    if (b->n < n) fill(b);
    uint32_t value = (uint32_t)(b->word >> (64 - n));
    skip(b, n);
    return value;
}

/* ---- codes ---- */

static bool make_code(Bz2Code *c, const uint8_t *lengths, int n)
{
    uint32_t code = 0;
    int index = 0;
    memset(c->lookup, 0, sizeof c->lookup);
    for (unsigned length = 1; length <= BZ2_MOST_LENGTH; length++) {
        c->base[length] = index - (int32_t)code;
        for (int s = 0; s < n; s++) {
            if (lengths[s] != length) continue;
            if (code >> length) return false; /* more codes than bits can tell apart */
            c->symbols[index++] = (uint16_t)s;
            if (length <= BZ2_LOOKUP_BITS)
                for (uint32_t i = 0; i < 1u << (BZ2_LOOKUP_BITS - length); i++)
                    c->lookup[(code << (BZ2_LOOKUP_BITS - length)) + i] = (uint16_t)((unsigned)s << 5 | length);
            code++;
        }
        c->limit[length] = code << (BZ2_MOST_LENGTH - length);
        code <<= 1;
    }
    return true;
}

/* A symbol; -1: no code. Wants 20 bits in `word`. */
static inline int take_symbol(Bits *b, const Bz2Code *c)
{
    uint16_t found = c->lookup[b->word >> (64 - BZ2_LOOKUP_BITS)];
    if (found) {
        skip(b, found & 31);
        return found >> 5;
    }
    uint32_t bits = (uint32_t)(b->word >> (64 - BZ2_MOST_LENGTH));
    for (unsigned length = BZ2_LOOKUP_BITS + 1; length <= BZ2_MOST_LENGTH; length++)
        if (bits < c->limit[length]) {
            skip(b, length);
            return c->symbols[(int32_t)(bits >> (BZ2_MOST_LENGTH - length)) + c->base[length]];
        }
    return -1;
}

/* ---- a block ---- */

/* Symbols in use. */
static int read_symbols(Bits *b, Bz2Block *k)
{
    uint32_t groups = take(b, 16);
    int n = 0;
    for (int i = 0; i < 16; i++) {
        if (!(groups >> (15 - i) & 1)) continue;
        uint32_t set = take(b, 16);
        for (int j = 0; j < 16; j++)
            if (set >> (15 - j) & 1) k->bytes[n++] = (uint8_t)(16 * i + j);
    }
    return n;
}

static bool read_selectors(Bits *b, Bz2Block *k, int tables)
{
    uint8_t order[BZ2_MOST_TABLES] = {0, 1, 2, 3, 4, 5};
    int n = (int)take(b, 15);
    if (n == 0) return false;
    for (int i = 0; i < n; i++) {
        int j = 0;
        while (take(b, 1))
            if (++j >= tables) return false;
        uint8_t table = order[j];
        memmove(order + 1, order, (size_t)j);
        order[0] = table;
        if (i < BZ2_MOST_GROUPS) k->selectors[i] = table; /* more are written by some programs, and never used */
    }
    memset(k->selectors + (n < BZ2_MOST_GROUPS ? n : BZ2_MOST_GROUPS), BZ2_MOST_TABLES,
           n < BZ2_MOST_GROUPS ? (size_t)(BZ2_MOST_GROUPS - n) : 0);
    return true;
}

static bool read_codes(Bits *b, Bz2Block *k, int tables, int symbols)
{
    uint8_t lengths[BZ2_MOST_SYMBOLS];
    for (int t = 0; t < tables; t++) {
        int length = (int)take(b, 5);
        for (int s = 0; s < symbols; s++) {
            while (take(b, 1)) length += take(b, 1) ? -1 : 1;
            if (length < 1 || length > BZ2_MOST_LENGTH) return false;
            lengths[s] = (uint8_t)length;
        }
        if (!make_code(&k->codes[t], lengths, symbols)) return false;
    }
    return true;
}

/* The byte at `place` of the order, moved to its front. */
static inline uint8_t move_to_front(uint8_t *order, unsigned place)
{
    uint8_t byte = order[place];
    if (place < 8) {
        uint64_t all, low;
        memcpy(&all, order, 8);
        low = place == 7 ? ~UINT64_C(0) : (UINT64_C(1) << (8 * place + 8)) - 1;
        all = (all & ~low) | ((all << 8) & low) | byte;
        memcpy(order, &all, 8);
    } else {
        memmove(order + 1, order, place);
        order[0] = byte;
    }
    return byte;
}

static bool read_bytes(Bits *b, Bz2Block *k, int symbols)
{
    int end = symbols - 1, group = 0;
    uint32_t n = 0, run = 0, weight = 1, *next = k->next;
    memset(k->count, 0, sizeof k->count);
    for (;;) {
        if (group >= BZ2_MOST_GROUPS || k->selectors[group] >= BZ2_MOST_TABLES) return false;
        const Bz2Code *code = &k->codes[k->selectors[group++]];
        for (int i = 0; i < BZ2_GROUP; i++) {
            if (b->n < BZ2_MOST_LENGTH) fill(b);
            int symbol = take_symbol(b, code);
            if (symbol == RUN_A || symbol == RUN_B) {
                if (weight > BZ2_MOST_BYTES) return false;
                run += weight << symbol;
                weight <<= 1;
                continue;
            }
            if (run) {
                if (run > BZ2_MOST_BYTES - n) return false;
                uint8_t byte = k->bytes[0];
                k->count[byte] += run;
                for (; run; run--) next[n++] = byte;
                weight = 1;
            }
            if (symbol == end) {
                k->n = n;
                return b->over <= b->n;
            }
            if (symbol < 0 || n == BZ2_MOST_BYTES) return false;
            uint8_t byte = move_to_front(k->bytes, (unsigned)symbol - 1);
            k->count[byte]++;
            next[n++] = byte;
        }
        if (b->over > b->n) return false; /* beyond the end */
    }
}

/* The block up to its symbol of the end. */
static bool read_block(Bits *b, Bz2Block *k)
{
    for (int i = 0; i < MAGIC_BITS; i += 16) take(b, 16);
    k->checksum = take(b, 32);
    if (take(b, 1)) return false; /* "randomised": written by versions before 1.0 alone */
    k->first = take(b, 24);
    int symbols = read_symbols(b, k) + 2, tables = (int)take(b, 3);
    if (symbols == 2 || tables < 2 || tables > BZ2_MOST_TABLES) return false;
    return read_selectors(b, k, tables) && read_codes(b, k, tables, symbols) && read_bytes(b, k, symbols) &&
           k->first < k->n;
}

/* Makes k->next a list, by a stable sort of the bytes (Burrows and Wheeler 1994). */
static void link_bytes(Bz2Block *k)
{
    uint32_t sum = 0, *next = k->next;
    for (int i = 0; i < 256; i++) {
        uint32_t count = k->count[i];
        k->count[i] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < k->n; i++) next[k->count[next[i] & 0xFF]++] |= i << 8;
}

bool bz2_block_read(Bz2Block *k, const uint8_t *data, unsigned first_bit, uint64_t n_bits)
{
    Bits b = {.data = data, .bytes = (first_bit + n_bits + 7) / 8};
    fill(&b);
    skip(&b, first_bit);
    if (!read_block(&b, k) || 8 * b.at + b.over - b.n != first_bit + n_bits) return false;
    link_bytes(k);
    return true;
}
