/* PyTorch's files before 1.6 (and _use_new_zipfile_serialization=False): five pickles (a magic number, the protocol,
   machine properties, the object, the keys of its storages), then for each key an 8-byte element count and the
   elements. Source: _legacy_save in torch/serialization.py. There are no checksums. */

#include "formats/pickle.h"

#define PROTOCOL 1001

static const char magic[] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"; /* 0x1950a86a20f9469cfc6c */

typedef struct {
    const char *key;
    size_t key_len;
    int64_t count;
    Dtype dtype;
    uint64_t offset; /* of the elements in the file; 0 until known */
} OldStorage;

typedef struct {
    const char *path;
    const uint8_t *data;
    size_t size, at;
    Pickle pickle;
    OldStorage *storages; /* sorted by key */
    int n_storages;
} Old;

static Status next_pickle(Old *o, PickleId *root)
{
    return pickle_read(&o->pickle, o->path, o->data, o->size, &o->at, root);
}

static Status read_preamble(Old *o)
{
    PickleId id;
    const Pickle *p = &o->pickle;
    TRY(next_pickle(o, &id));
    const PickleValue *v = &p->values[id];
    if (v->kind != PICKLE_LONG || v->text.len != sizeof magic - 1 || memcmp(v->text.data, magic, sizeof magic - 1) != 0)
        return fail(E_FORMAT,
                    "%s: a pickle that does not begin with PyTorch's magic number; expected a file of torch.save",
                    o->path);
    TRY(next_pickle(o, &id));
    if (p->values[id].kind != PICKLE_INT || p->values[id].integer != PROTOCOL)
        return fail(E_FORMAT, "%s: the second pickle must be PyTorch's protocol version %d", o->path, PROTOCOL);
    TRY(next_pickle(o, &id));
    PickleId little = pickle_get(p, id, "little_endian");
    if (little == PICKLE_ABSENT || p->values[little].kind != PICKLE_BOOL)
        return fail(E_FORMAT, "%s: the third pickle must be a dict with little_endian", o->path);
    if (!p->values[little].integer)
        return fail(E_FORMAT, "%s: written on a big-endian machine; save it again on a little-endian one", o->path);
    return OK;
}

static int compare_keys(const void *a, const void *b)
{
    const OldStorage *x = a, *y = b;
    return reader_order(x->key, x->key_len, y->key, y->key_len);
}

/* Collects every storage of the object's pickle once. */
static Status list_storages(Old *o)
{
    const Pickle *p = &o->pickle;
    int n = 0, capacity = 0, unique = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const PickleValue *v = &p->values[i];
        if (v->kind != PICKLE_STORAGE) continue;
        const PickleValue *key = &p->values[v->storage.key];
        MEM_PUSH(o->storages, n, capacity, (OldStorage){key->text.data, key->text.len, v->storage.count, v->dtype, 0});
    }
    if (n > 0) qsort(o->storages, (size_t)n, sizeof *o->storages, compare_keys);
    for (int i = 0; i < n; i++) {
        const OldStorage *s = &o->storages[i], *last = &o->storages[unique - (unique > 0)];
        if (unique == 0 || compare_keys(s, last) != 0)
            o->storages[unique++] = *s;
        else if (s->count != last->count || s->dtype != last->dtype)
            return fail(E_FORMAT, "%s: storage '%s' has two sizes or types", o->path, QUOTED(s->key, s->key_len));
    }
    o->n_storages = unique;
    return OK;
}

static OldStorage *find_key(const Old *o, const PickleValue *text)
{
    OldStorage wanted = {.key = text->text.data, .key_len = text->text.len};
    if (o->n_storages == 0) return NULL;
    return bsearch(&wanted, o->storages, (size_t)o->n_storages, sizeof wanted, compare_keys);
}

/* The raw storages, in the order of the list of keys. */
static Status place_storages(Old *o, PickleId keys)
{
    const Pickle *p = &o->pickle;
    const PickleValue *list = &p->values[keys];
    if (list->kind != PICKLE_LIST)
        return fail(E_FORMAT, "%s: the fifth pickle must be the list of storage keys", o->path);
    for (uint32_t i = 0; i < list->list.count; i++) {
        const PickleValue *key = &p->values[list->list.items[i]];
        OldStorage *s = key->kind == PICKLE_STRING ? find_key(o, key) : NULL;
        if (!s || s->offset > 0)
            return fail(E_FORMAT, "%s: storage key %u is %s", o->path, i,
                        s ? "listed twice" : "unknown to the object, or of a type that is not read");
        const char *quoted = QUOTED(s->key, s->key_len);
        uint64_t left = o->size - o->at, element = dtype_size(s->dtype);
        if (left < 8) return fail(E_FORMAT, "%s: storage '%s' is missing: the file is truncated", o->path, quoted);
        uint64_t count = reader_le64(o->data + o->at);
        if (count != (uint64_t)s->count)
            return fail(E_FORMAT, "%s: storage '%s' has %" PRIu64 " elements, the pickle says %" PRId64, o->path,
                        quoted, count, s->count);
        if (count > (left - 8) / element)
            return fail(E_FORMAT,
                        "%s: storage '%s' claims %" PRIu64 " elements of %s, only %" PRIu64 " bytes are left: "
                        "the file is truncated",
                        o->path, quoted, count, dtype_name(s->dtype), left - 8);
        s->offset = o->at + 8;
        o->at += 8 + (size_t)(count * element);
    }
    if (o->at != o->size)
        return fail(E_FORMAT, "%s: %zu bytes follow the last storage; expected none", o->path, o->size - o->at);
    return OK;
}

static Status find_storage(void *context, const Pickle *p, const PickleValue *storage, uint64_t *offset, int *sum)
{
    const Old *o = context;
    const PickleValue *key = &p->values[storage->storage.key];
    const OldStorage *s = find_key(o, key);
    if (!s || s->offset == 0)
        return fail(E_FORMAT, "the file lacks its storage '%s'", QUOTED(key->text.data, key->text.len));
    *offset = s->offset;
    *sum = -1;
    return OK;
}

Status pytorch_old_read(TensorFile *f, int shard)
{
    Status status = OK;
    const FileMap *map = &f->shards[shard].map;
    Old o = {.path = f->shards[shard].path, .data = map->data, .size = map->size};
    PickleId object, keys;
    TRY_DONE(read_preamble(&o));
    TRY_DONE(next_pickle(&o, &object));
    TRY_DONE(list_storages(&o));
    TRY_DONE(next_pickle(&o, &keys));
    TRY_DONE(place_storages(&o, keys));
    TRY_DONE(state_dict_read(f, shard, &o.pickle, object, find_storage, &o));
done:
    pickle_free(&o.pickle);
    free(o.storages);
    return status;
}
