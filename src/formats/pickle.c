#include "formats/pickle_internal.h"

/* Limits against hostile pickles. BERT-Large with optimizer state has some 20 000 values. */
#define MAX_VALUES 500000u
#define MAX_ITEMS  2000000u
#define MAX_STACK  1000000u

static const char *const kind_names[] = {
    [PICKLE_NONE] = "None",
    [PICKLE_BOOL] = "a bool",
    [PICKLE_INT] = "an integer",
    [PICKLE_LONG] = "an integer",
    [PICKLE_STRING] = "a string",
    [PICKLE_OTHER] = "a float, bytes or a set",
    [PICKLE_TUPLE] = "a tuple",
    [PICKLE_LIST] = "a list",
    [PICKLE_DICT] = "a dict",
    [PICKLE_GLOBAL] = "a global",
    [PICKLE_STORAGE] = "a storage",
    [PICKLE_TENSOR] = "a tensor",
    [PICKLE_OPAQUE] = "an object of an unknown class",
};

static Status take_bytes(Machine *m, uint64_t n, const uint8_t **bytes)
{
    if (n > m->size - m->at)
        return fail(E_FORMAT, "%" PRIu64 " bytes expected, only %zu left: truncated", n, m->size - m->at);
    *bytes = m->data + m->at;
    m->at += (size_t)n;
    return OK;
}

/* A little-endian argument of 1, 2, 4 or 8 bytes. */
static Status take_number(Machine *m, int bytes, uint64_t *number)
{
    const uint8_t *b = NULL;
    TRY(take_bytes(m, (uint64_t)bytes, &b));
    *number = bytes_number(b, (size_t)bytes);
    return OK;
}

/* --- the stack --- */

Status pickle_push(Machine *m, PickleId id)
{
    if (m->n_stack >= MAX_STACK) return fail(E_FORMAT, "more than %u values on the stack", MAX_STACK);
    MEM_PUSH(m->stack, m->n_stack, m->stack_capacity, id);
    return OK;
}

/* The stack's height at the last mark, below which nothing is popped. */
static uint32_t stack_floor(const Machine *m) { return m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0; }

static Status pop(Machine *m, PickleId *id)
{
    if (m->n_stack <= stack_floor(m)) return fail(E_FORMAT, "the stack is empty where a value is needed");
    *id = m->stack[--m->n_stack];
    return OK;
}

/* The values above the last mark are stack[*from … n_stack). */
static Status pop_mark(Machine *m, uint32_t *from)
{
    if (m->n_marks == 0) return fail(E_FORMAT, "no mark where one is needed");
    *from = m->marks[--m->n_marks];
    return OK;
}

PickleKind pickle_top_kind(const Machine *m)
{
    return m->n_stack > stack_floor(m) ? pickle_value(m, m->stack[m->n_stack - 1])->kind : PICKLE_NONE;
}

Status pickle_pop_kind(Machine *m, PickleKind kind, PickleId *id)
{
    TRY(pop(m, id));
    if (pickle_value(m, *id)->kind == kind) return OK;
    return fail(E_FORMAT, "expected %s, found %s", kind_names[kind], kind_names[pickle_value(m, *id)->kind]);
}

/* --- values --- */

Status pickle_push_value(Machine *m, PickleValue v)
{
    if (m->p->count >= MAX_VALUES) return fail(E_FORMAT, "more than %u values", MAX_VALUES);
    MEM_PUSH(m->p->values, m->p->count, m->p->capacity, v);
    return pickle_push(m, m->p->count - 1);
}

static Status push_integer(Machine *m, PickleKind kind, int64_t integer)
{
    return pickle_push_value(m, (PickleValue){.kind = kind, .integer = integer});
}

static Status push_text(Machine *m, PickleKind kind, uint64_t len)
{
    const uint8_t *b = NULL;
    TRY(take_bytes(m, len, &b));
    return pickle_push_value(m, (PickleValue){.kind = kind, .text = {(const char *)b, (size_t)len}});
}

Status pickle_append(Machine *m, PickleId list, const PickleId *items, uint32_t n)
{
    PickleValue *v = pickle_value(m, list);
    if (n > MAX_ITEMS - m->p->items) return fail(E_FORMAT, "more than %u items in lists and dicts", MAX_ITEMS);
    m->p->items += n;
    uint32_t need = v->list.count + n;
    if (need > v->list.capacity) { /* exactly the size of a tuple; lists that grow further double */
        v->list.capacity = v->list.capacity > need / 2 ? 2 * v->list.capacity : need;
        v->list.items = mem_resize(v->list.items, v->list.capacity, sizeof *v->list.items);
    }
    for (uint32_t i = 0; i < n; i++) v->list.items[v->list.count++] = items[i];
    return OK;
}

static Status push_tuple(Machine *m, uint32_t n)
{
    if (m->n_stack - stack_floor(m) < n) return fail(E_FORMAT, "the stack has fewer than the tuple's %u items", n);
    uint32_t from = m->n_stack - n;
    TRY(pickle_push_value(m, (PickleValue){.kind = PICKLE_TUPLE}));
    PickleId tuple = m->stack[--m->n_stack];
    TRY(pickle_append(m, tuple, m->stack + from, n));
    m->n_stack = from;
    return pickle_push(m, tuple);
}

/* LONG1, LONG4: two's complement of any length. */
static Status push_long(Machine *m, uint64_t len)
{
    if (len > 8) return push_text(m, PICKLE_LONG, len);
    const uint8_t *b = NULL;
    TRY(take_bytes(m, len, &b));
    uint64_t v = len > 0 && b[len - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = len; i-- > 0;) v = v << 8 | b[i];
    return push_integer(m, PICKLE_INT, (int64_t)v);
}

/* Moves the items above the mark, or one pair or item, into the list or dict under them. A set (PICKLE_OTHER) and an
   opaque object drop them. */
static Status append_items(Machine *m, PickleKind kind, uint32_t from)
{
    uint32_t n = m->n_stack - from;
    if (from <= stack_floor(m) || from > m->n_stack)
        return fail(E_FORMAT, "%s is missing under the items", kind_names[kind]);
    PickleId target = m->stack[from - 1];
    PickleKind found = pickle_value(m, target)->kind;
    if (found != kind && found != PICKLE_OPAQUE)
        return fail(E_FORMAT, "expected %s under the items, found %s", kind_names[kind], kind_names[found]);
    if (kind == PICKLE_DICT && n % 2 != 0) return fail(E_FORMAT, "a key without a value");
    if (kind != PICKLE_OTHER && found == kind) TRY(pickle_append(m, target, m->stack + from, n));
    m->n_stack = from;
    return OK;
}

/* --- the memo --- */

static Status memo_put(Machine *m, uint64_t slot)
{
    if (m->n_stack <= stack_floor(m)) return fail(E_FORMAT, "the stack is empty where a value is needed");
    if (slot >= MAX_VALUES || slot > m->size) return fail(E_FORMAT, "memo slot %" PRIu64 " in so small a pickle", slot);
    while (m->n_memo <= slot) {
        MEM_PUSH(m->memo, m->n_memo, m->memo_capacity, PICKLE_ABSENT);
    }
    m->memo[slot] = m->stack[m->n_stack - 1];
    return OK;
}

static Status memo_get(Machine *m, uint64_t slot)
{
    if (slot >= m->n_memo || m->memo[slot] == PICKLE_ABSENT)
        return fail(E_FORMAT, "memo slot %" PRIu64 " holds nothing", slot);
    return pickle_push(m, m->memo[slot]);
}

/* --- the opcodes --- */

/* The attributes of an OrderedDict (_metadata) and the state of an opaque object are parsed and dropped. */
static Status pop_state(Machine *m)
{
    PickleId state = 0, target = 0;
    TRY(pop(m, &state));
    TRY(pop(m, &target));
    PickleKind is = pickle_value(m, target)->kind, has = pickle_value(m, state)->kind;
    if (is != PICKLE_OPAQUE && (is != PICKLE_DICT || has != PICKLE_DICT))
        return fail(E_FORMAT, "expected a dict, found %s", kind_names[is != PICKLE_DICT ? is : has]);
    return pickle_push(m, target);
}

/* Opcodes by their names in pickletools.py. */
enum {
    MARK = '(',
    EMPTY_TUPLE = ')',
    STOP = '.',
    BINBYTES = 'B',
    SHORT_BINBYTES = 'C',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    NONE = 'N',
    BINPERSID = 'Q',
    REDUCE = 'R',
    BINSTRING = 'T',
    SHORT_BINSTRING = 'U',
    BINUNICODE = 'X',
    EMPTY_LIST = ']',
    APPEND = 'a',
    BUILD = 'b',
    GLOBAL = 'c',
    APPENDS = 'e',
    BINGET = 'h',
    LONG_BINGET = 'j',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    SETITEM = 's',
    TUPLE = 't',
    SETITEMS = 'u',
    EMPTY_DICT = '}',
    PROTO = 0x80,
    NEWOBJ = 0x81,
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a,
    LONG4 = 0x8b,
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE8 = 0x8d,
    BINBYTES8 = 0x8e,
    EMPTY_SET = 0x8f,
    ADDITEMS = 0x90,
    FROZENSET = 0x91,
    NEWOBJ_EX = 0x92,
    STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94,
    FRAME = 0x95,
    BYTEARRAY8 = 0x96,
};

/* Executes one opcode. `widths` has the argument's width of those with an argument. */
static Status execute(Machine *m, uint8_t op)
{
    static const uint8_t widths[256] = {
        [PROTO] = 1,       [FRAME] = 8,    [BININT] = 4,      [BININT1] = 1,          [BININT2] = 2,
        [LONG1] = 1,       [LONG4] = 4,    [BINUNICODE] = 4,  [SHORT_BINUNICODE] = 1, [BINUNICODE8] = 8,
        [BINSTRING] = 4,   [BINBYTES] = 4, [BINPUT] = 1,      [SHORT_BINSTRING] = 1,  [SHORT_BINBYTES] = 1,
        [LONG_BINPUT] = 4, [BINGET] = 1,   [LONG_BINGET] = 4, [BINBYTES8] = 8,        [BYTEARRAY8] = 8,
    };
    uint64_t n = 0;
    uint32_t from = 0;
    if (widths[op] > 0) TRY(take_number(m, widths[op], &n));
    switch (op) {
    case PROTO:
        return n <= 5 ? OK : fail(E_FORMAT, "protocol %" PRIu64 ", expected at most 5", n);
    case FRAME:
        if (n <= m->size - m->at) return OK;
        return fail(E_FORMAT, "a frame of %" PRIu64 " bytes, only %zu are left", n, m->size - m->at);
    case MARK:
        if (m->n_marks == MAX_MARKS) return fail(E_FORMAT, "nested deeper than %d", MAX_MARKS);
        m->marks[m->n_marks++] = m->n_stack;
        return OK;
    case NONE:
        return push_integer(m, PICKLE_NONE, 0);
    case NEWTRUE:
    case NEWFALSE:
        return push_integer(m, PICKLE_BOOL, op == NEWTRUE);
    case BININT:
        return push_integer(m, PICKLE_INT, (int32_t)(uint32_t)n);
    case BININT1:
    case BININT2:
        return push_integer(m, PICKLE_INT, (int64_t)n);
    case LONG1:
    case LONG4:
        return push_long(m, n);
    case BINFLOAT:
        return push_text(m, PICKLE_OTHER, 8);
    case BINUNICODE:
    case SHORT_BINUNICODE:
    case BINUNICODE8:
    case BINSTRING:
    case SHORT_BINSTRING:
        return push_text(m, PICKLE_STRING, n);
    case BINBYTES:
    case SHORT_BINBYTES:
    case BINBYTES8:
    case BYTEARRAY8:
        return push_text(m, PICKLE_OTHER, n);
    case EMPTY_DICT:
        return pickle_push_value(m, (PickleValue){.kind = PICKLE_DICT});
    case EMPTY_LIST:
        return pickle_push_value(m, (PickleValue){.kind = PICKLE_LIST});
    case EMPTY_SET:
        return pickle_push_value(m, (PickleValue){.kind = PICKLE_OTHER});
    case FROZENSET:
        TRY(pop_mark(m, &from));
        m->n_stack = from;
        return pickle_push_value(m, (PickleValue){.kind = PICKLE_OTHER});
    case EMPTY_TUPLE:
        return push_tuple(m, 0);
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
        return push_tuple(m, op - TUPLE1 + 1u);
    case TUPLE:
        TRY(pop_mark(m, &from));
        return push_tuple(m, m->n_stack - from);
    case APPEND:
        return append_items(m, PICKLE_LIST, m->n_stack - 1);
    case SETITEM:
        return append_items(m, PICKLE_DICT, m->n_stack - 2);
    case APPENDS:
    case SETITEMS:
    case ADDITEMS:
        TRY(pop_mark(m, &from));
        return append_items(m, op == APPENDS ? PICKLE_LIST : op == SETITEMS ? PICKLE_DICT : PICKLE_OTHER, from);
    case GLOBAL:
        return pickle_read_global(m);
    case STACK_GLOBAL:
        return pickle_read_stack_global(m);
    case REDUCE:
        return pickle_reduce(m);
    case NEWOBJ:
    case NEWOBJ_EX:
        return pickle_new_object(m, op == NEWOBJ_EX);
    case BUILD:
        return pop_state(m);
    case BINPERSID:
        return pickle_persistent_id(m);
    case BINPUT:
    case LONG_BINPUT:
        return memo_put(m, n);
    case MEMOIZE:
        return memo_put(m, m->n_memo);
    case BINGET:
    case LONG_BINGET:
        return memo_get(m, n);
    default:
        return fail(E_FORMAT, "opcode 0x%02x is not on the list of opcodes that a state_dict needs", op);
    }
}

Status pickle_read(Pickle *p, const char *path, const uint8_t *data, size_t size, size_t *at, PickleId *root)
{
    Status status = OK;
    Machine m = {.p = p, .data = data, .size = size, .at = *at};
    size_t start = 0;
    for (;;) {
        const uint8_t *op = NULL;
        start = m.at;
        TRY_DONE(take_bytes(&m, 1, &op));
        if (*op == STOP) break;
        TRY_DONE(execute(&m, *op));
    }
    TRY_DONE(pop(&m, root));
    if (m.n_stack > 0 || m.n_marks > 0) status = fail(E_FORMAT, "%u values remain on the stack at its end", m.n_stack);
    *at = m.at;
done:
    MEM_FREE(m.stack, m.memo);
    return status == OK ? OK : status_context(status, "%s: pickle, byte %zu", path, start);
}

void pickle_free(Pickle *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        PickleKind kind = p->values[i].kind;
        if (kind == PICKLE_TUPLE || kind == PICKLE_LIST || kind == PICKLE_DICT) free(p->values[i].list.items);
    }
    free(p->values);
    *p = (Pickle){0};
}

bool pickle_is_text(const Pickle *p, PickleId id, const char *text)
{
    const PickleValue *v = &p->values[id];
    return v->kind == PICKLE_STRING && v->text.len == strlen(text) && memcmp(v->text.data, text, v->text.len) == 0;
}

PickleId pickle_get(const Pickle *p, PickleId dict, const char *key)
{
    const PickleValue *d = &p->values[dict];
    if (d->kind != PICKLE_DICT) return PICKLE_ABSENT;
    for (uint32_t i = 0; i + 1 < d->list.count; i += 2)
        if (pickle_is_text(p, d->list.items[i], key)) return d->list.items[i + 1];
    return PICKLE_ABSENT;
}
