/* The globals that a state_dict needs, and the calls allowed on them. All others give opaque values. */
#include "formats/pickle_internal.h"

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

static Status push_global(Machine *m, const char *module, size_t module_len, const char *name, size_t name_len)
{
    int n = (int)(sizeof globals / sizeof *globals);
    for (int i = 0; i < n; i++) {
        if (strlen(globals[i].module) != module_len || memcmp(globals[i].module, module, module_len) != 0) continue;
        if (strlen(globals[i].name) != name_len || memcmp(globals[i].name, name, name_len) != 0) continue;
        return pickle_push_value(m, (PickleValue){.kind = PICKLE_GLOBAL, .dtype = globals[i].dtype, .global = i});
    }
    if (module_len > MAX_GLOBAL || name_len > MAX_GLOBAL)
        return fail(E_FORMAT, "a global's name does not end within %d bytes", MAX_GLOBAL);
    PickleValue v = {.kind = PICKLE_OPAQUE};
    v.opaque.module = module;
    v.opaque.module_len = (uint32_t)module_len;
    v.opaque.name = name;
    v.opaque.name_len = (uint32_t)name_len;
    /* PyTorch's functions that make tensors */
    v.opaque.tensor = name_len > 8 && memcmp(name, "_rebuild", 8) == 0;
    return pickle_push_value(m, v);
}

/* What an opaque class or function makes of its arguments; or a tensor that is made of an opaque storage. */
static Status push_opaque(Machine *m, PickleId maker, bool tensor)
{
    PickleValue v = *pickle_value(m, maker);
    v.opaque.tensor |= tensor;
    return pickle_push_value(m, v);
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

Status pickle_read_global(Machine *m)
{
    const char *module, *name;
    size_t module_len, name_len;
    TRY(take_line(m, &module, &module_len));
    TRY(take_line(m, &name, &name_len));
    return push_global(m, module, module_len, name, name_len);
}

Status pickle_read_stack_global(Machine *m)
{
    PickleId module, name;
    TRY(pickle_pop_kind(m, PICKLE_STRING, &name));
    TRY(pickle_pop_kind(m, PICKLE_STRING, &module));
    PickleValue a = *pickle_value(m, module), b = *pickle_value(m, name);
    return push_global(m, a.text.data, a.text.len, b.text.data, b.text.len);
}

/* Item i of a list of the wanted kind; NULL otherwise. */
static const PickleValue *item_of_kind(const Machine *m, const PickleValue *list, uint32_t i, PickleKind kind)
{
    if (i >= list->list.count) return NULL;
    const PickleValue *v = pickle_value(m, list->list.items[i]);
    return v->kind == kind ? v : NULL;
}

/* OrderedDict(), or Python 2's OrderedDict([[key, value], …]). */
static Status call_ordered_dict(Machine *m, const PickleValue *args)
{
    PickleValue list = {.kind = PICKLE_LIST};
    if (args->list.count > 0) {
        const PickleValue *pairs = item_of_kind(m, args, 0, PICKLE_LIST);
        if (!pairs || args->list.count > 1)
            return fail(E_FORMAT, "OrderedDict: expected a list of pairs as its argument");
        list = *pairs;
    }
    TRY(pickle_push_value(m, (PickleValue){.kind = PICKLE_DICT}));
    PickleId dict = m->stack[m->n_stack - 1];
    for (uint32_t i = 0; i < list.list.count; i++) {
        const PickleValue *pair = pickle_value(m, list.list.items[i]);
        if ((pair->kind != PICKLE_LIST && pair->kind != PICKLE_TUPLE) || pair->list.count != 2)
            return fail(E_FORMAT, "OrderedDict: item %u is not a pair", i);
        TRY(pickle_append(m, dict, pair->list.items, 2));
    }
    return OK;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks[, metadata]) */
static Status call_rebuild_tensor(Machine *m, const PickleValue *args)
{
    if (item_of_kind(m, args, 0, PICKLE_OPAQUE)) return push_opaque(m, args->list.items[0], true);
    const PickleValue *storage = item_of_kind(m, args, 0, PICKLE_STORAGE),
                      *offset = item_of_kind(m, args, 1, PICKLE_INT), *size = item_of_kind(m, args, 2, PICKLE_TUPLE),
                      *stride = item_of_kind(m, args, 3, PICKLE_TUPLE);
    if (!storage || !offset || !size || !stride || args->list.count < 6 || args->list.count > 7)
        return fail(E_FORMAT, "_rebuild_tensor_v2: expected (storage, integer, tuple, tuple, requires_grad, hooks)");
    PickleValue v = {.kind = PICKLE_TENSOR, .dtype = storage->dtype};
    v.tensor.storage = args->list.items[0];
    v.tensor.offset = offset->integer;
    v.tensor.dims = args->list.items[2];
    v.tensor.strides = args->list.items[3];
    return pickle_push_value(m, v);
}

/* _rebuild_parameter(tensor, requires_grad, backward_hooks) returns the tensor. */
static Status call_rebuild_parameter(Machine *m, const PickleValue *args)
{
    if (item_of_kind(m, args, 0, PICKLE_OPAQUE)) return push_opaque(m, args->list.items[0], true);
    if (!item_of_kind(m, args, 0, PICKLE_TENSOR) || args->list.count != 3)
        return fail(E_FORMAT, "_rebuild_parameter: expected (tensor, requires_grad, hooks)");
    return pickle_push(m, args->list.items[0]);
}

/* A tuple of arguments, under it a global or an opaque value. */
static Status pop_callable(Machine *m, PickleId *callable, PickleId *args)
{
    TRY(pickle_pop_kind(m, PICKLE_TUPLE, args));
    if (pickle_top_kind(m) == PICKLE_OPAQUE) return pickle_pop_kind(m, PICKLE_OPAQUE, callable);
    return pickle_pop_kind(m, PICKLE_GLOBAL, callable);
}

Status pickle_reduce(Machine *m)
{
    PickleId function, args;
    TRY(pop_callable(m, &function, &args));
    if (pickle_value(m, function)->kind == PICKLE_OPAQUE) return push_opaque(m, function, false);
    int g = pickle_value(m, function)->global;
    PickleValue tuple = *pickle_value(m, args); /* a copy: the array of values may move */
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

Status pickle_new_object(Machine *m, bool keywords)
{
    PickleId class, args;
    if (keywords) TRY(pickle_pop_kind(m, PICKLE_DICT, &args));
    TRY(pop_callable(m, &class, &args));
    if (pickle_value(m, class)->kind == PICKLE_OPAQUE) return push_opaque(m, class, false);
    int g = pickle_value(m, class)->global;
    return fail(E_FORMAT, "it makes an object of '%s.%s', which a state_dict does not need", globals[g].module,
                globals[g].name);
}

/* ('storage', type, key, location, count[, view]); view is None or (key, offset, count), in the old form. */
Status pickle_persistent_id(Machine *m)
{
    PickleId id;
    TRY(pickle_pop_kind(m, PICKLE_TUPLE, &id));
    PickleValue t = *pickle_value(m, id);
    if (item_of_kind(m, &t, 1, PICKLE_OPAQUE)) return push_opaque(m, t.list.items[1], true);
    const PickleValue *what = item_of_kind(m, &t, 0, PICKLE_STRING), *type = item_of_kind(m, &t, 1, PICKLE_GLOBAL),
                      *key = item_of_kind(m, &t, 2, PICKLE_STRING), *count = item_of_kind(m, &t, 4, PICKLE_INT);
    if (!what || !type || !key || !count || !pickle_is_text(m->p, t.list.items[0], "storage") || t.list.count > 6)
        return fail(E_FORMAT, "a persistent id is not ('storage', type, key, location, count)");
    if (globals[type->global].call != CALL_NOTHING)
        return fail(E_FORMAT, "'%s.%s' is not a storage type", globals[type->global].module,
                    globals[type->global].name);
    if (count->integer < 0) return fail(E_FORMAT, "a storage of %" PRId64 " elements", count->integer);
    PickleValue v = {.kind = PICKLE_STORAGE, .dtype = type->dtype};
    v.storage.key = t.list.items[2];
    v.storage.count = v.storage.view_count = count->integer;
    if (t.list.count == 6 && !item_of_kind(m, &t, 5, PICKLE_NONE)) {
        const PickleValue *view = item_of_kind(m, &t, 5, PICKLE_TUPLE);
        const PickleValue *offset = view ? item_of_kind(m, view, 1, PICKLE_INT) : NULL;
        const PickleValue *part = view ? item_of_kind(m, view, 2, PICKLE_INT) : NULL;
        if (!offset || !part || offset->integer < 0 || part->integer < 0 || part->integer > count->integer ||
            offset->integer > count->integer - part->integer)
            return fail(E_FORMAT, "the view of a storage of %" PRId64 " elements exceeds the storage", count->integer);
        v.storage.view_offset = offset->integer;
        v.storage.view_count = part->integer;
    }
    return pickle_push_value(m, v);
}
