#include "tasks/pretrain/wiki/unpack_bz2.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/pretrain/wiki/bz2_block.h"

#define RUN_LIMIT 4 /* equal bytes, before a count */

/* ---- text ---- */

/* The list is followed from many places at once, as each step waits for memory. A walk ends at the next place where one
   began. The text is the walks one behind the other, from the one that begins at the block's first byte. */
enum {
    WALKS = 64,                                  /* of a block */
    LANES = 8,                                   /* walks at a time */
    CHUNK = 4096,                                /* bytes of a walk, together in memory */
    CHUNKS = BZ2_MOST_BYTES / CHUNK + WALKS + 1, /* the last for lanes without a walk */
};
#define BEGIN 0x80000000u /* in an entry of the list: a walk begins here */

typedef struct {
    uint32_t start, end; /* places */
    uint32_t len;        /* bytes, in chunks of which the last may be shorter */
    int chunk;           /* the first */
} Walk;

typedef struct {
    int walk; /* NO_WALK: none is left */
    int chunk;
    uint32_t at, room; /* room: of the chunk, in bytes */
} WalkLane;
#define NO_WALK (-1)

typedef struct {
    Walk walks[WALKS];
    WalkLane lanes[LANES];
    int n, begun, ended, chunks;
    int following[CHUNKS]; /* chunk of the same walk */
    uint8_t bytes[CHUNKS][CHUNK];
} Walks;

static void choose_starts(Bz2Block *k, Walks *w)
{
    for (uint32_t i = 0; i < WALKS; i++) {
        uint32_t place = i == 0 ? k->next[k->first] >> 8 : (uint32_t)((uint64_t)k->n * i / WALKS);
        if (k->next[place] & BEGIN) continue;
        k->next[place] |= BEGIN;
        w->walks[w->n++] = (Walk){.start = place};
    }
}

/* Gives the lane the next walk, at its second byte: the first one's entry is marked. */
static void begin_walk(const Bz2Block *k, Walks *w, WalkLane *l)
{
    *l = (WalkLane){
        .walk = NO_WALK, .chunk = CHUNKS - 1, .at = BZ2_MOST_BYTES, .room = CHUNK}; /* a circle of one place */
    if (w->begun == w->n) return;
    Walk *begun = &w->walks[w->begun];
    uint32_t entry = k->next[begun->start] & ~BEGIN;
    begun->chunk = w->chunks++;
    begun->len = 1;
    w->bytes[begun->chunk][0] = (uint8_t)entry;
    *l = (WalkLane){.walk = w->begun++, .chunk = begun->chunk, .at = entry >> 8, .room = CHUNK - 1};
}

/* Moves all lanes as far as each has room, or until one comes to a marked place. */
static void follow(const uint32_t *next, Walks *w)
{
    uint32_t at[LANES], entry[LANES], steps = CHUNK, i;
    uint8_t *to[LANES];
    for (int j = 0; j < LANES; j++) {
        const WalkLane *l = &w->lanes[j];
        at[j] = l->at;
        to[j] = w->bytes[l->chunk] + CHUNK - l->room;
        if (l->room < steps) steps = l->room;
    }
    for (i = 0; i < steps; i++) {
        uint32_t seen = 0;
        for (int j = 0; j < LANES; j++) seen |= entry[j] = next[at[j]];
        if (seen & BEGIN) break;
        for (int j = 0; j < LANES; j++) {
            to[j][i] = (uint8_t)entry[j];
            at[j] = entry[j] >> 8;
        }
    }
    for (int j = 0; j < LANES; j++) {
        WalkLane *l = &w->lanes[j];
        l->at = at[j];
        l->room -= i;
        if (l->walk != NO_WALK) w->walks[l->walk].len += i;
    }
}

static void walk_all(Bz2Block *k, Walks *w)
{
    w->n = w->begun = w->ended = w->chunks = 0;
    k->next[BZ2_MOST_BYTES] = (uint32_t)BZ2_MOST_BYTES << 8;
    choose_starts(k, w);
    for (int j = 0; j < LANES; j++) begin_walk(k, w, &w->lanes[j]);
    while (w->ended < w->n) {
        follow(k->next, w);
        for (int j = 0; j < LANES; j++) {
            WalkLane *l = &w->lanes[j];
            if (k->next[l->at] & BEGIN) {
                w->walks[l->walk].end = l->at;
                w->ended++;
                begin_walk(k, w, l);
            } else if (l->room == 0) {
                l->room = CHUNK;
                if (l->walk != NO_WALK) l->chunk = w->following[l->chunk] = w->chunks++;
            }
        }
    }
}

static const Walk *walk_from(const Walks *w, uint32_t place)
{
    const Walk *walk = w->walks;
    while (walk->start != place) walk++;
    return walk;
}

/* The n bytes of the text. A list may be a circle that is shorter: then it is repeated, as for a text that repeats. */
static void join_walks(const Walks *w, uint8_t *text, uint32_t n)
{
    const Walk *walk = w->walks;
    for (uint32_t done = 0; done < n; walk = walk_from(w, walk->end)) {
        uint32_t left = walk->len < n - done ? walk->len : n - done;
        for (int chunk = walk->chunk; left > 0; chunk = w->following[chunk]) {
            uint32_t bytes = left < CHUNK ? left : CHUNK;
            memcpy(text + done, w->bytes[chunk], bytes);
            done += bytes;
            left -= bytes;
        }
    }
}

static pthread_once_t tables_once = PTHREAD_ONCE_INIT;
static uint32_t crc_tables[8][256]; /* [i][x]: of byte x with i zero bytes behind it */

static void make_tables(void)
{
    for (uint32_t x = 0; x < 256; x++) {
        uint32_t crc = x << 24;
        for (int bit = 0; bit < 8; bit++) crc = crc << 1 ^ (crc >> 31 ? 0x04C11DB7u : 0);
        crc_tables[0][x] = crc;
    }
    for (int i = 1; i < 8; i++)
        for (int x = 0; x < 256; x++) {
            uint32_t crc = crc_tables[i - 1][x];
            crc_tables[i][x] = crc << 8 ^ crc_tables[0][crc >> 24];
        }
}

/* CRC-32 with the highest bit first, as bz2 has it. */
static uint32_t checksum(const uint8_t *p, size_t n)
{
    const uint32_t(*t)[256] = crc_tables;
    uint32_t crc = 0xFFFFFFFFu;
    for (; n >= 8; p += 8, n -= 8) {
        crc ^= (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        crc = t[7][crc >> 24] ^ t[6][crc >> 16 & 0xFF] ^ t[5][crc >> 8 & 0xFF] ^ t[4][crc & 0xFF] ^ t[3][p[4]] ^
              t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
    }
    for (; n > 0; p++, n--) crc = crc << 8 ^ t[0][(crc >> 24) ^ *p];
    return ~crc;
}

/* The place behind the next four equal bytes of p[from, n); n without any. */
static uint32_t find_run(const uint8_t *p, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i + RUN_LIMIT <= n;) {
        if (p[i + 3] != p[i + 2])
            i += 3;
        else if (p[i + 2] != p[i + 1])
            i += 2;
        else if (p[i + 1] != p[i])
            i += 1;
        else
            return i + RUN_LIMIT;
    }
    return n;
}

/* Four equal bytes are followed by a count of more. */
static Status spread_runs(const uint8_t *p, uint32_t n, size_t most, Buf *out)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t end = find_run(p, i, n);
        buf_append(out, p + i, end - i);
        if (end < n) {
            char more[255];
            memset(more, p[end - 1], p[end]);
            buf_append(out, more, p[end]);
            end++;
        }
        if (out->len > most) return fail(E_MEMORY, "it unpacks to more than %zu bytes", most);
        i = end;
    }
    return OK;
}

struct Bz2Room {
    Bz2Block block;
    Walks walks;
};

Bz2Room *bz2_room_new(void) { return mem_alloc(sizeof(Bz2Room)); }
void bz2_room_free(Bz2Room *room) { free(room); }

Status unpack_bz2_block(Bz2Room *room, const uint8_t *data, unsigned first_bit, uint64_t n_bits, size_t most, Buf *out)
{
    Bz2Block *k = &room->block;
    Walks *w = &room->walks;
    Status status = OK;
    uint8_t *text = (uint8_t *)k->next; /* in place of the list */
    pthread_once(&tables_once, make_tables);
    out->len = 0;
    if (!bz2_block_read(k, data, first_bit, n_bits)) {
        status = fail(E_FORMAT, "damaged");
    } else {
        walk_all(k, w);
        join_walks(w, text, k->n);
        status = spread_runs(text, k->n, most, out);
        if (status == OK && checksum((uint8_t *)out->data, out->len) != k->checksum) status = fail(E_FORMAT, "damaged");
    }
    if (status != OK) out->len = 0;
    return status;
}
