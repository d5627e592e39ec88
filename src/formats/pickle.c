#include "formats/pickle.h"

#include <inttypes.h>
#include <stdlib.h>

/* Limits of a hostile pickle. BERT-Large with optimizer state has some 20 000 values. */
#define MAX_VALUES 500000u
#define MAX_ITEMS  2000000u
#define MAX_STACK  1000000u
#define MAX_MARKS  100
#define MAX_GLOBAL 256 /* bytes of a module or a name */

typedef enum { CALL_NOTHING, CALL_ORDERED_DICT, CALL_REBUILD_TENSOR, CALL_REBUILD_PARAMETER } Call;

/* The names that a pickle may refer to. Storage types are valid only inside a persistent id. */
static const struct {
    const char *module, *name;
    Call call;
    Dtype dtype;
} globals[] = {
    {"collections", "OrderedDict", CALL_ORDERED_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", CALL_REBUILD_TENSOR, 0},
    {"torch._utils", "_rebuild_parameter", CALL_REBUILD_PARAMETER, 0},
    {"torch", "FloatStorage", CALL_NOTHING, F32},
    {"torch", "HalfStorage", CALL_NOTHING, F16},
    {"torch", "BFloat16Storage", CALL_NOTHING, BF16},
    {"torch", "DoubleStorage", CALL_NOTHING, F64},
    {"torch", "LongStorage", CALL_NOTHING, I64},
    {"torch", "IntStorage", CALL_NOTHING, I32},
    {"torch", "ShortStorage", CALL_NOTHING, I16},
    {"torch", "CharStorage", CALL_NOTHING, I8},
    {"torch", "ByteStorage", CALL_NOTHING, U8},
    {"torch", "BoolStorage", CALL_NOTHING, U8},
};

static const char *const kind_names[] = {
    [PICKLE_NONE] = "None",       [PICKLE_BOOL] = "a bool",       [PICKLE_INT] = "an integer",
    [PICKLE_LONG] = "an integer", [PICKLE_STRING] = "a string",   [PICKLE_OTHER] = "a float or bytes",
    [PICKLE_TUPLE] = "a tuple",   [PICKLE_LIST] = "a list",       [PICKLE_DICT] = "a dict",
    [PICKLE_GLOBAL] = "a global", [PICKLE_STORAGE] = "a storage", [PICKLE_TENSOR] = "a tensor",
};

/* The unpickling machine. `at` is the next byte to read. */
typedef struct {
    Pickle *p;
    const uint8_t *data;
    size_t size, at;
    PickleId *stack, *memo;
    uint32_t n_stack, stack_capacity, n_memo, memo_capacity;
    uint32_t marks[MAX_MARKS]; /* heights of the stack */
    int n_marks;
} Machine;

static PickleValue *value(const Machine *m, PickleId id) { return &m->p->values[id]; }

static Status take(Machine *m, uint64_t n, const uint8_t **bytes)
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
    TRY(take(m, (uint64_t)bytes, &b));
    *number = 0;
    for (int i = 0; i < bytes; i++) *number |= (uint64_t)b[i] << (8 * i);
    return OK;
}

/* --- the stack --- */

static Status push(Machine *m, PickleId id)
{
    if (m->n_stack >= MAX_STACK) return fail(E_FORMAT, "more than %u values on the stack", MAX_STACK);
    MEM_GROW(m->stack, m->n_stack, m->stack_capacity);
    m->stack[m->n_stack++] = id;
    return OK;
}

static Status pop(Machine *m, PickleId *id)
{
    uint32_t floor = m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0;
    if (m->n_stack <= floor) return fail(E_FORMAT, "the stack is empty where a value is needed");
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

static Status pop_kind(Machine *m, PickleKind kind, PickleId *id)
{
    TRY(pop(m, id));
    if (value(m, *id)->kind == kind) return OK;
    return fail(E_FORMAT, "expected %s, found %s", kind_names[kind], kind_names[value(m, *id)->kind]);
}

/* --- values --- */

static Status push_value(Machine *m, PickleValue v)
{
    if (m->p->count >= MAX_VALUES) return fail(E_FORMAT, "more than %u values", MAX_VALUES);
    MEM_GROW(m->p->values, m->p->count, m->p->capacity);
    m->p->values[m->p->count] = v;
    return push(m, m->p->count++);
}

static Status push_integer(Machine *m, PickleKind kind, int64_t integer)
{
    return push_value(m, (PickleValue){.kind = kind, .integer = integer});
}

static Status push_text(Machine *m, PickleKind kind, uint64_t len)
{
    const uint8_t *b = NULL;
    TRY(take(m, len, &b));
    return push_value(m, (PickleValue){.kind = kind, .text = {(const char *)b, (size_t)len}});
}

static Status append(Machine *m, PickleId list, const PickleId *items, uint32_t n)
{
    PickleValue *v = value(m, list);
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
    uint32_t floor = m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0;
    if (m->n_stack - floor < n) return fail(E_FORMAT, "the stack has fewer than the tuple's %u items", n);
    uint32_t from = m->n_stack - n;
    TRY(push_value(m, (PickleValue){.kind = PICKLE_TUPLE}));
    PickleId tuple = m->stack[--m->n_stack];
    TRY(append(m, tuple, m->stack + from, n));
    m->n_stack = from;
    return push(m, tuple);
}

/* LONG1, LONG4: two's complement of any length. */
static Status push_long(Machine *m, uint64_t len)
{
    if (len > 8) return push_text(m, PICKLE_LONG, len);
    const uint8_t *b = NULL;
    TRY(take(m, len, &b));
    uint64_t v = len > 0 && b[len - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = len; i-- > 0;) v = v << 8 | b[i];
    return push_integer(m, PICKLE_INT, (int64_t)v);
}

/* Moves the items above the mark, or one pair or item, into the list or dict under them. */
static Status extend(Machine *m, PickleKind kind, uint32_t from)
{
    uint32_t n = m->n_stack - from, floor = m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0;
    if (from <= floor || from > m->n_stack) return fail(E_FORMAT, "%s is missing under the items", kind_names[kind]);
    PickleId target = m->stack[from - 1];
    if (value(m, target)->kind != kind)
        return fail(E_FORMAT, "expected %s under the items, found %s", kind_names[kind],
                    kind_names[value(m, target)->kind]);
    if (kind == PICKLE_DICT && n % 2 != 0) return fail(E_FORMAT, "a key without a value");
    TRY(append(m, target, m->stack + from, n));
    m->n_stack = from;
    return OK;
}

static Status extend_from_mark(Machine *m, PickleKind kind)
{
    uint32_t from = 0;
    TRY(pop_mark(m, &from));
    return extend(m, kind, from);
}

/* --- the memo --- */

static Status memo_put(Machine *m, uint64_t slot)
{
    uint32_t floor = m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0;
    if (m->n_stack <= floor) return fail(E_FORMAT, "the stack is empty where a value is needed");
    if (slot >= MAX_VALUES || slot > m->size) return fail(E_FORMAT, "memo slot %" PRIu64 " in so small a pickle", slot);
    while (m->n_memo <= slot) {
        MEM_GROW(m->memo, m->n_memo, m->memo_capacity);
        m->memo[m->n_memo++] = PICKLE_ABSENT;
    }
    m->memo[slot] = m->stack[m->n_stack - 1];
    return OK;
}

static Status memo_get(Machine *m, uint64_t slot)
{
    if (slot >= m->n_memo || m->memo[slot] == PICKLE_ABSENT)
        return fail(E_FORMAT, "memo slot %" PRIu64 " holds nothing", slot);
    return push(m, m->memo[slot]);
}

/* --- globals and the calls allowed on them --- */

static Status push_global(Machine *m, const char *module, size_t module_len, const char *name, size_t name_len)
{
    int n = (int)(sizeof globals / sizeof *globals);
    for (int i = 0; i < n; i++) {
        if (strlen(globals[i].module) != module_len || memcmp(globals[i].module, module, module_len) != 0) continue;
        if (strlen(globals[i].name) != name_len || memcmp(globals[i].name, name, name_len) != 0) continue;
        return push_value(m, (PickleValue){.kind = PICKLE_GLOBAL, .dtype = globals[i].dtype, .global = i});
    }
    char a[128], b[128];
    return fail(
        E_FORMAT,
        "it asks for '%s.%s', which is not on the list of names that a state_dict needs (nothing was executed); "
        "save only model.state_dict(), or convert the file to safetensors at its origin",
        reader_quote(a, module, module_len), reader_quote(b, name, name_len));
}

static Status take_line(Machine *m, const char **text, size_t *len)
{
    size_t room = m->size - m->at < MAX_GLOBAL ? m->size - m->at : MAX_GLOBAL;
    const uint8_t *start = m->data + m->at, *end = room > 0 ? memchr(start, '\n', room) : NULL;
    if (!end) return fail(E_FORMAT, "a global's name does not end within %zu bytes", room);
    *text = (const char *)start;
    *len = (size_t)(end - start);
    m->at += *len + 1;
    return OK;
}

static Status read_global(Machine *m)
{
    const char *module, *name;
    size_t module_len, name_len;
    TRY(take_line(m, &module, &module_len));
    TRY(take_line(m, &name, &name_len));
    return push_global(m, module, module_len, name, name_len);
}

static Status read_stack_global(Machine *m)
{
    PickleId module, name;
    TRY(pop_kind(m, PICKLE_STRING, &name));
    TRY(pop_kind(m, PICKLE_STRING, &module));
    PickleValue a = *value(m, module), b = *value(m, name);
    return push_global(m, a.text.data, a.text.len, b.text.data, b.text.len);
}

/* Item i of a list of the wanted kind; NULL otherwise. */
static const PickleValue *item(const Machine *m, const PickleValue *list, uint32_t i, PickleKind kind)
{
    if (i >= list->list.count) return NULL;
    const PickleValue *v = value(m, list->list.items[i]);
    return v->kind == kind ? v : NULL;
}

/* OrderedDict(), or Python 2's OrderedDict([[key, value], …]). */
static Status call_ordered_dict(Machine *m, const PickleValue *args)
{
    PickleValue list = {.kind = PICKLE_LIST};
    if (args->list.count > 0) {
        const PickleValue *pairs = item(m, args, 0, PICKLE_LIST);
        if (!pairs || args->list.count > 1)
            return fail(E_FORMAT, "OrderedDict: expected a list of pairs as its argument");
        list = *pairs;
    }
    TRY(push_value(m, (PickleValue){.kind = PICKLE_DICT}));
    PickleId dict = m->stack[m->n_stack - 1];
    for (uint32_t i = 0; i < list.list.count; i++) {
        const PickleValue *pair = value(m, list.list.items[i]);
        if ((pair->kind != PICKLE_LIST && pair->kind != PICKLE_TUPLE) || pair->list.count != 2)
            return fail(E_FORMAT, "OrderedDict: item %u is not a pair", i);
        TRY(append(m, dict, pair->list.items, 2));
    }
    return OK;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks[, metadata]) */
static Status call_rebuild_tensor(Machine *m, const PickleValue *args)
{
    const PickleValue *storage = item(m, args, 0, PICKLE_STORAGE), *offset = item(m, args, 1, PICKLE_INT),
                      *size = item(m, args, 2, PICKLE_TUPLE), *stride = item(m, args, 3, PICKLE_TUPLE);
    if (!storage || !offset || !size || !stride || args->list.count < 6 || args->list.count > 7)
        return fail(E_FORMAT, "_rebuild_tensor_v2: expected (storage, integer, tuple, tuple, requires_grad, hooks)");
    PickleValue v = {.kind = PICKLE_TENSOR, .dtype = storage->dtype};
    v.tensor.storage = args->list.items[0];
    v.tensor.offset = offset->integer;
    v.tensor.dims = args->list.items[2];
    v.tensor.strides = args->list.items[3];
    return push_value(m, v);
}

/* _rebuild_parameter(tensor, requires_grad, backward_hooks) returns the tensor. */
static Status call_rebuild_parameter(Machine *m, const PickleValue *args)
{
    if (!item(m, args, 0, PICKLE_TENSOR) || args->list.count != 3)
        return fail(E_FORMAT, "_rebuild_parameter: expected (tensor, requires_grad, hooks)");
    return push(m, args->list.items[0]);
}

static Status reduce(Machine *m)
{
    PickleId function, args;
    TRY(pop_kind(m, PICKLE_TUPLE, &args));
    TRY(pop_kind(m, PICKLE_GLOBAL, &function));
    int g = value(m, function)->global;
    PickleValue tuple = *value(m, args); /* a copy: the array of values may move */
    switch (globals[g].call) {
    case CALL_ORDERED_DICT:
        return call_ordered_dict(m, &tuple);
    case CALL_REBUILD_TENSOR:
        return call_rebuild_tensor(m, &tuple);
    case CALL_REBUILD_PARAMETER:
        return call_rebuild_parameter(m, &tuple);
    case CALL_NOTHING:
        break;
    }
    return fail(E_FORMAT, "it calls '%s.%s', which is valid only as the type of a storage", globals[g].module,
                globals[g].name);
}

/* The attributes of an OrderedDict (_metadata) are parsed and dropped. */
static Status build(Machine *m)
{
    PickleId state, target;
    TRY(pop_kind(m, PICKLE_DICT, &state));
    TRY(pop_kind(m, PICKLE_DICT, &target));
    return push(m, target);
}

/* ('storage', type, key, location, count[, view]); view is None or (key, offset, count), in the old form. */
static Status persistent_id(Machine *m)
{
    PickleId id;
    TRY(pop_kind(m, PICKLE_TUPLE, &id));
    PickleValue t = *value(m, id);
    const PickleValue *what = item(m, &t, 0, PICKLE_STRING), *type = item(m, &t, 1, PICKLE_GLOBAL),
                      *key = item(m, &t, 2, PICKLE_STRING), *count = item(m, &t, 4, PICKLE_INT);
    if (!what || !type || !key || !count || !pickle_is_text(m->p, t.list.items[0], "storage") || t.list.count > 6)
        return fail(E_FORMAT, "a persistent id is not ('storage', type, key, location, count)");
    if (globals[type->global].call != CALL_NOTHING)
        return fail(E_FORMAT, "'%s.%s' is not a storage type", globals[type->global].module,
                    globals[type->global].name);
    if (count->integer < 0) return fail(E_FORMAT, "a storage of %" PRId64 " elements", count->integer);
    PickleValue v = {.kind = PICKLE_STORAGE, .dtype = type->dtype};
    v.storage.key = t.list.items[2];
    v.storage.count = v.storage.view_count = count->integer;
    if (t.list.count == 6 && !item(m, &t, 5, PICKLE_NONE)) {
        const PickleValue *view = item(m, &t, 5, PICKLE_TUPLE);
        const PickleValue *offset = view ? item(m, view, 1, PICKLE_INT) : NULL;
        const PickleValue *part = view ? item(m, view, 2, PICKLE_INT) : NULL;
        if (!offset || !part || offset->integer < 0 || part->integer < 0 || part->integer > count->integer ||
            offset->integer > count->integer - part->integer)
            return fail(E_FORMAT, "the view of a storage of %" PRId64 " elements exceeds the storage", count->integer);
        v.storage.view_offset = offset->integer;
        v.storage.view_count = part->integer;
    }
    return push_value(m, v);
}

/* --- the loop --- */

static Status read_frame(Machine *m)
{
    uint64_t n;
    TRY(take_number(m, 8, &n));
    if (n > m->size - m->at)
        return fail(E_FORMAT, "a frame of %" PRIu64 " bytes, only %zu are left", n, m->size - m->at);
    return OK;
}

static Status set_mark(Machine *m)
{
    if (m->n_marks == MAX_MARKS) return fail(E_FORMAT, "nested deeper than %d", MAX_MARKS);
    m->marks[m->n_marks++] = m->n_stack;
    return OK;
}

static Status tuple_from_mark(Machine *m)
{
    uint32_t from = 0;
    TRY(pop_mark(m, &from));
    return push_tuple(m, m->n_stack - from);
}

static Status check_protocol(uint64_t protocol)
{
    if (protocol <= 5) return OK;
    return fail(E_FORMAT, "protocol %" PRIu64 ", expected at most 5", protocol);
}

/* Executes one opcode. `widths` has the argument's width of those with an argument. */
static Status step(Machine *m, uint8_t op)
{
    static const uint8_t widths[256] = {
        [0x80] = 1, ['J'] = 4, ['K'] = 1, ['M'] = 2, [0x8a] = 1, [0x8b] = 4, ['X'] = 4, [0x8c] = 1, [0x8d] = 8,
        ['T'] = 4,  ['U'] = 1, ['B'] = 4, ['C'] = 1, ['q'] = 1,  ['r'] = 4,  ['h'] = 1, ['j'] = 4,
    };
    uint64_t n = 0;
    const uint8_t *skipped;
    if (widths[op] > 0) TRY(take_number(m, widths[op], &n));
    switch (op) {
    case 0x80:
        return check_protocol(n); /* PROTO */
    case 0x95:
        return read_frame(m); /* FRAME */
    case '(':
        return set_mark(m); /* MARK */
    case 'N':
        return push_integer(m, PICKLE_NONE, 0); /* NONE */
    case 0x88:
        return push_integer(m, PICKLE_BOOL, 1); /* NEWTRUE */
    case 0x89:
        return push_integer(m, PICKLE_BOOL, 0); /* NEWFALSE */
    case 'J':
        return push_integer(m, PICKLE_INT, (int32_t)(uint32_t)n); /* BININT */
    case 'K':                                                     /* BININT1 */
    case 'M':
        return push_integer(m, PICKLE_INT, (int64_t)n); /* BININT2 */
    case 0x8a:                                          /* LONG1 */
    case 0x8b:
        return push_long(m, n); /* LONG4 */
    case 'G':                   /* BINFLOAT */
        TRY(take(m, 8, &skipped));
        return push_value(m, (PickleValue){.kind = PICKLE_OTHER});
    case 'X':  /* BINUNICODE */
    case 0x8c: /* SHORT_BINUNICODE */
    case 0x8d: /* BINUNICODE8 */
    case 'T':  /* BINSTRING */
    case 'U':
        return push_text(m, PICKLE_STRING, n); /* SHORT_BINSTRING */
    case 'B':                                  /* BINBYTES */
    case 'C':
        return push_text(m, PICKLE_OTHER, n); /* SHORT_BINBYTES */
    case '}':
        return push_value(m, (PickleValue){.kind = PICKLE_DICT}); /* EMPTY_DICT */
    case ']':
        return push_value(m, (PickleValue){.kind = PICKLE_LIST}); /* EMPTY_LIST */
    case ')':
        return push_tuple(m, 0); /* EMPTY_TUPLE */
    case 0x85:                   /* TUPLE1 */
    case 0x86:                   /* TUPLE2 */
    case 0x87:
        return push_tuple(m, op - 0x84u); /* TUPLE3 */
    case 't':
        return tuple_from_mark(m); /* TUPLE */
    case 'a':
        return extend(m, PICKLE_LIST, m->n_stack - 1); /* APPEND */
    case 'e':
        return extend_from_mark(m, PICKLE_LIST); /* APPENDS */
    case 's':
        return extend(m, PICKLE_DICT, m->n_stack - 2); /* SETITEM */
    case 'u':
        return extend_from_mark(m, PICKLE_DICT); /* SETITEMS */
    case 'c':
        return read_global(m); /* GLOBAL */
    case 0x93:
        return read_stack_global(m); /* STACK_GLOBAL */
    case 'R':
        return reduce(m); /* REDUCE */
    case 'b':
        return build(m); /* BUILD */
    case 'Q':
        return persistent_id(m); /* BINPERSID */
    case 'q':                    /* BINPUT */
    case 'r':
        return memo_put(m, n); /* LONG_BINPUT */
    case 0x94:
        return memo_put(m, m->n_memo); /* MEMOIZE */
    case 'h':                          /* BINGET */
    case 'j':
        return memo_get(m, n); /* LONG_BINGET */
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
        TRY_DONE(take(&m, 1, &op));
        if (*op == '.') break; /* STOP */
        TRY_DONE(step(&m, *op));
    }
    TRY_DONE(pop(&m, root));
    if (m.n_stack > 0 || m.n_marks > 0) status = fail(E_FORMAT, "%u values remain on the stack at its end", m.n_stack);
    *at = m.at;
done:
    free(m.stack);
    free(m.memo);
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
