#include "comm/meet/store_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/test_switch.h"

#define GREETING_S 5.0 /* from connecting to the proof */

enum { N_LISTS = 1024 };
#define MOST_BYTES ((size_t)1 << 30) /* of all values */

typedef struct Value {
    struct Value *next;
    char *name;
    void *data;
    size_t size;
} Value;

struct StoreTable {
    Hash128 key;
    int world_size;
    bool *here; // (world_size): the rank has a session
    Value *lists[N_LISTS];
    size_t bytes;
};

Hash128 store_proof(Hash128 key, char side, const StoreHello *h)
{
    uint8_t text[48] = {(uint8_t)side};
    memcpy(text + 1, h->client.bytes, 16);
    memcpy(text + 17, h->server.bytes, 16);
    bytes_put(text + 33, (uint32_t)h->rank, 4);
    bytes_put(text + 37, (uint32_t)h->size, 4);
    return siphash(key, text, sizeof text);
}

/* ---- values ---- */

StoreTable *store_table_new(Hash128 key, int world_size)
{
    StoreTable *t = mem_alloc(sizeof *t);
    t->key = key;
    t->world_size = world_size;
    t->here = mem_array((size_t)world_size, sizeof *t->here);
    return t;
}

void store_table_free(StoreTable *t)
{
    if (!t) return;
    for (int i = 0; i < N_LISTS; i++)
        for (Value *v = t->lists[i], *next; v; v = next) {
            next = v->next;
            MEM_FREE(v->name, v->data, v);
        }
    MEM_FREE(t->here, t);
}

static Value **table_find(StoreTable *t, const char *name)
{
    Hash128 h = siphash(t->key, name, strlen(name));
    Value **v = &t->lists[bytes_number(h.bytes, 8) % N_LISTS];
    while (*v && strcmp((*v)->name, name) != 0) v = &(*v)->next;
    return v;
}

/* False: no room. */
static bool table_set(StoreTable *t, const char *name, const void *data, size_t size)
{
    Value **v = table_find(t, name);
    size_t before = *v ? (*v)->size : 0;
    if (t->bytes - before + size > MOST_BYTES) return false;
    if (!*v) {
        *v = mem_alloc(sizeof **v);
        (*v)->name = mem_strdup(name);
    }
    free((*v)->data);
    (*v)->data = mem_alloc(size);
    if (size) memcpy((*v)->data, data, size);
    (*v)->size = size;
    t->bytes += size - before;
    return true;
}

/* ---- sessions ---- */

void store_session_begin(StoreSession *s, StoreTable *t, double now)
{
    *s = (StoreSession){.table = t, .until = now + test_seconds("GREETING", GREETING_S)};
    hash128_random(&s->hello.server);
}

void store_session_end(StoreSession *s)
{
    if (s->registered) s->table->here[s->hello.rank] = false;
    BUF_FREE(&s->in, &s->out);
    free(s->name);
    *s = (StoreSession){.state = SESSION_ENDING};
}

static void consume(StoreSession *s, size_t n)
{
    memmove(s->in.data, s->in.data + n, s->in.len - n);
    s->in.len -= n;
}

static void send_reply(StoreSession *s, int outcome, const void *data, size_t size)
{
    uint8_t head[STORE_REPLY_BYTES] = {(uint8_t)outcome};
    bytes_put(head + 1, size, 4);
    buf_append(&s->out, head, sizeof head);
    if (size) buf_append(&s->out, data, size);
}

/* Answers a greeting with a greeting, and anything else with the end. */
static void read_greeting(StoreSession *s)
{
    const uint8_t *in = (const uint8_t *)s->in.data;
    size_t known = sizeof STORE_GREETING - 1, have = s->in.len < known ? s->in.len : known;
    if (memcmp(in, STORE_GREETING, have) != 0) {
        s->state = SESSION_ENDING;
        return;
    }
    if (s->in.len < STORE_GREETING_BYTES) return;
    memcpy(s->hello.client.bytes, in + known, 16);
    consume(s, STORE_GREETING_BYTES);
    buf_append(&s->out, STORE_GREETING, known);
    buf_append(&s->out, s->hello.server.bytes, 16);
    s->state = SESSION_PROOF;
}

static void send_verdict(StoreSession *s, const char *refusal)
{
    uint8_t head[STORE_VERDICT_BYTES] = {refusal ? 1 : 0};
    Hash128 h = store_proof(s->table->key, 's', &s->hello);
    memcpy(head + 1, h.bytes, 16);
    bytes_put(head + 17, refusal ? strlen(refusal) : 0, 2);
    buf_append(&s->out, head, sizeof head);
    if (refusal) buf_puts(&s->out, refusal);
    s->state = refusal ? SESSION_ENDING : SESSION_OPEN;
}

static void read_proof(StoreSession *s)
{
    Hash128 given;
    char text[128];
    const uint8_t *in = (const uint8_t *)s->in.data;
    StoreTable *t = s->table;
    if (s->in.len < STORE_PROOF_BYTES) return;
    memcpy(given.bytes, in, 16);
    s->hello.rank = (int32_t)bytes_number(in + 16, 4);
    s->hello.size = (int32_t)bytes_number(in + 20, 4);
    consume(s, STORE_PROOF_BYTES);
    if (!hash128_equal(given, store_proof(t->key, 'c', &s->hello))) {
        s->state = SESSION_ENDING;
        return;
    }
    int rank = s->hello.rank, size = s->hello.size;
    if (size != t->world_size || rank < -1 || rank >= size) {
        snprintf(text, sizeof text, "rank %d was started as one of %d ranks, the others as of %d", rank, size,
                 t->world_size);
        send_verdict(s, text);
    } else if (rank >= 0 && t->here[rank]) {
        snprintf(text, sizeof text, "another process is already rank %d", rank);
        send_verdict(s, text);
    } else {
        if (rank >= 0) s->registered = t->here[rank] = true;
        send_verdict(s, NULL);
    }
}

static void read_request(StoreSession *s, double now)
{
    const uint8_t *in = (const uint8_t *)s->in.data;
    if (s->in.len < STORE_REQUEST_BYTES) return;
    size_t name = bytes_number(in + 1, 2), value = bytes_number(in + 7, 4);
    double wait_s = (double)bytes_number(in + 3, 4) * 1e-3;
    if ((in[0] != 'S' && in[0] != 'G') || name == 0 || name > STORE_MAX_NAME ||
        value > (in[0] == 'S' ? STORE_MAX_VALUE : 0)) {
        s->state = SESSION_ENDING;
        return;
    }
    if (s->in.len < STORE_REQUEST_BYTES + name + value) return;
    const char *text = s->in.data + STORE_REQUEST_BYTES;
    if (memchr(text, '\0', name)) {
        s->state = SESSION_ENDING;
        return;
    }
    char *key = mem_strndup(text, name);
    if (in[0] == 'S') {
        send_reply(s, table_set(s->table, key, text + name, value) ? STORE_DONE : STORE_REFUSED, NULL, 0);
        free(key);
    } else {
        s->name = key;
        s->state = SESSION_WAITING;
        s->until = now + wait_s;
    }
    consume(s, STORE_REQUEST_BYTES + name + value);
}

/* True: the value is there, or the time is up. */
static bool end_waiting(StoreSession *s, double now)
{
    const Value *v = *table_find(s->table, s->name);
    if (!v && now < s->until) return false;
    send_reply(s, v ? STORE_DONE : STORE_NOTHING, v ? v->data : NULL, v ? v->size : 0);
    free(s->name);
    s->name = NULL;
    s->state = SESSION_OPEN;
    return true;
}

/* Handles the received bytes as far as they are complete. */
static void session_advance(StoreSession *s, double now)
{
    while (s->state != SESSION_ENDING && s->out.len - s->sent < STORE_MOST_OUT) {
        size_t before = s->in.len;
        if (s->state == SESSION_WAITING && !end_waiting(s, now)) return;
        if (s->in.len == 0) return;
        if (s->state == SESSION_GREETING)
            read_greeting(s);
        else if (s->state == SESSION_PROOF)
            read_proof(s);
        else
            read_request(s, now);
        if (s->in.len == before) return;
    }
}

void store_session_tick(StoreSession *s, double now)
{
    bool stranger = s->state == SESSION_GREETING || s->state == SESSION_PROOF;
    if (stranger && now > s->until) s->state = SESSION_ENDING;
    if (!stranger) session_advance(s, now);
    if (s->sent == s->out.len)
        s->stalled = 0;
    else if (s->stalled == 0)
        s->stalled = now;
    double patience = s->state == SESSION_ENDING ? GREETING_S : STORE_STALL_S;
    if (s->stalled == 0 || now - s->stalled <= patience) return;
    s->state = SESSION_ENDING;
    buf_free(&s->out);
    s->sent = 0;
}

void store_session_feed(StoreSession *s, const void *data, size_t size, double now)
{
    if (s->state == SESSION_ENDING) return;
    buf_append(&s->in, data, size);
    session_advance(s, now);
}
