/* From a pickle's values to tensors: finds the state_dict, and checks that every tensor is inside its storage. */

#include "formats/pickle.h"

/* A tuple of integers. */
static bool read_dims(const Pickle *p, PickleId tuple, int64_t *out, int *n)
{
    const PickleValue *t = &p->values[tuple];
    if (t->list.count > TENSOR_MAX_DIMS) return false;
    for (uint32_t i = 0; i < t->list.count; i++) {
        const PickleValue *v = &p->values[t->list.items[i]];
        if (v->kind != PICKLE_INT) return false;
        out[i] = v->integer;
    }
    *n = (int)t->list.count;
    return true;
}

/* Whether offset, dims and strides stay within `room` elements. `last`: the last element reached, for messages; −1 on
   overflow or a negative number. */
static bool fits_storage(int64_t offset, const TensorInfo *t, const int64_t *strides, int64_t room, int64_t *last)
{
    int64_t reach, at = offset;
    *last = -1;
    if (offset < 0) return false;
    if (t->count == 0) return offset <= room;
    for (int d = 0; d < t->n_dims; d++)
        if (strides[d] < 0 || __builtin_mul_overflow(t->dims[d] - 1, strides[d], &reach) ||
            __builtin_add_overflow(at, reach, &at))
            return false;
    *last = at;
    return at < room;
}

static Status add_tensor(TensorFile *f, int shard, const Pickle *p, const PickleValue *name, const PickleValue *v,
                         StorageFind find, void *context)
{
    const char *path = f->shards[shard].path;
    const PickleValue *s = &p->values[v->tensor.storage];
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS], offset = v->tensor.offset;
    int n_dims = 0, n_strides = 0, sum = -1;
    uint64_t start = 0, element = dtype_size(v->dtype), file_bytes = f->shards[shard].map.size;
    const char *quoted = QUOTED(name->text.data, name->text.len);
    if (!read_dims(p, v->tensor.dims, dims, &n_dims) || !read_dims(p, v->tensor.strides, strides, &n_strides) ||
        n_dims != n_strides)
        return fail(E_FORMAT, "%s: tensor '%s': size and stride must be tuples of as many integers, at most %d", path,
                    quoted, TENSOR_MAX_DIMS);

    TensorInfo *t;
    TRY(reader_add_tensor(f, shard, path, name->text.data, name->text.len, v->dtype, dims, n_dims, &t));
    if (t->bytes > file_bytes)
        return fail(E_FORMAT, "%s: tensor '%s' takes %" PRIu64 " bytes, the file has only %" PRIu64, path, quoted,
                    t->bytes, file_bytes);
    Status status = find(context, p, s, &start, &sum);
    if (status != OK) return status_context(status, "%s: tensor '%s'", path, quoted);
    int64_t last;
    if (!fits_storage(offset, t, strides, s->storage.view_count, &last))
        return fail(E_FORMAT,
                    "%s: tensor '%s': offset %" PRId64 " with its size and stride reaches element %" PRId64
                    ", its storage has %" PRId64,
                    path, quoted, offset, last, s->storage.view_count);
    if (t->count > 0) memcpy(t->strides, strides, sizeof strides[0] * (size_t)n_dims);
    t->offset = start + (uint64_t)(s->storage.view_offset + offset) * element;
    t->sum = sum;
    return OK;
}

/* Training checkpoints nest the state_dict one level down. */
static PickleId choose_dict(const Pickle *p, PickleId root)
{
    static const char *const keys[] = {"model", "state_dict", "model_state_dict", "module"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        PickleId inner = pickle_get(p, root, keys[i]);
        if (inner != PICKLE_ABSENT && p->values[inner].kind == PICKLE_DICT) return inner;
    }
    return root;
}

/* The place in the dict's list of its first tensor whose name ends like `end` (NULL: any name); else PICKLE_ABSENT. */
static uint32_t find_tensor(const Pickle *p, PickleId dict, const PickleValue *end)
{
    const PickleValue *d = &p->values[dict];
    for (uint32_t i = 0; d->kind == PICKLE_DICT && i + 1 < d->list.count; i += 2) {
        const PickleValue *key = &p->values[d->list.items[i]];
        if (key->kind != PICKLE_STRING || p->values[d->list.items[i + 1]].kind != PICKLE_TENSOR) continue;
        if (!end) return i;
        size_t least = key->text.len < end->text.len ? key->text.len : end->text.len;
        if (memcmp(key->text.data + key->text.len - least, end->text.data + end->text.len - least, least) == 0)
            return i;
    }
    return PICKLE_ABSENT;
}

static const char *quote_key(char out[128], const PickleValue *key)
{
    bool text = key->kind == PICKLE_STRING;
    return reader_quote(out, text ? key->text.data : "?", text ? key->text.len : 1);
}

/* E_FORMAT: a dict beside the chosen one has a tensor of the same name, as an average of the weights (EMA). */
static Status check_one_model(const char *path, const Pickle *p, PickleId root, PickleId chosen)
{
    const PickleValue *top = &p->values[root];
    uint32_t first = find_tensor(p, chosen, NULL);
    if (root == chosen || first == PICKLE_ABSENT) return OK;
    const PickleValue *name = &p->values[p->values[chosen].list.items[first]];
    for (uint32_t i = 0; i + 1 < top->list.count; i += 2) {
        const PickleValue *key = &p->values[top->list.items[i]];
        if (top->list.items[i + 1] == chosen || find_tensor(p, top->list.items[i + 1], name) == PICKLE_ABSENT) continue;
        char quoted[128];
        return fail(E_FORMAT, "%s: the file holds more than one model, another under '%s'; save the wanted one alone",
                    path, quote_key(quoted, key));
    }
    return OK;
}

/* `what` of the file is opaque. */
static Status refuse_opaque(const char *path, const char *what, const PickleValue *v)
{
    return fail(E_FORMAT,
                "%s: %s is made by '%s.%s', which is not on the list of names that a state_dict needs (nothing was "
                "executed); save only model.state_dict(), or convert the file to safetensors at its origin",
                path, what, QUOTED(v->opaque.module, v->opaque.module_len), QUOTED(v->opaque.name, v->opaque.name_len));
}

static Status refuse_opaque_item(const char *path, const PickleValue *key, const PickleValue *v)
{
    char quoted[128];
    return refuse_opaque(path, SHORT_TEXT("its value '%s'", quote_key(quoted, key)), v);
}

Status state_dict_read(TensorFile *f, int shard, const Pickle *p, PickleId root, StorageFind find, void *context)
{
    const char *path = f->shards[shard].path;
    PickleId chosen = choose_dict(p, root);
    const PickleValue *dict = &p->values[chosen];
    PickleId opaque = PICKLE_ABSENT; /* the first among the items: its place in the list */
    int before = f->count;
    if (dict->kind == PICKLE_OPAQUE) return refuse_opaque(path, "its top value", dict);
    if (dict->kind != PICKLE_DICT)
        return fail(E_FORMAT, "%s: the pickle's top value is not a dict; expected a state_dict (names to tensors)",
                    path);
    TRY(check_one_model(path, p, root, chosen));
    for (uint32_t i = 0; i + 1 < dict->list.count; i += 2) {
        const PickleValue *key = &p->values[dict->list.items[i]], *v = &p->values[dict->list.items[i + 1]];
        if (v->kind == PICKLE_OPAQUE && v->opaque.tensor) return refuse_opaque_item(path, key, v);
        if (v->kind == PICKLE_OPAQUE && opaque == PICKLE_ABSENT) opaque = i;
        if (v->kind != PICKLE_TENSOR) continue; /* epoch counters and the like */
        if (key->kind != PICKLE_STRING)
            return fail(E_FORMAT, "%s: a tensor's key in the state_dict is not a string", path);
        TRY(add_tensor(f, shard, p, key, v, find, context));
    }
    if (f->count > before) return OK;
    if (opaque != PICKLE_ABSENT)
        return refuse_opaque_item(path, &p->values[dict->list.items[opaque]], &p->values[dict->list.items[opaque + 1]]);
    return fail(
        E_FORMAT,
        "%s: found no named tensor at the top level or under 'model', 'state_dict', 'model_state_dict' or 'module'",
        path);
}
