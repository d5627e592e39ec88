/* PyTorch's files since 1.6: a zip of stored entries NAME/data.pkl (the pickle) and NAME/data/KEY (a storage each).
   Source: APPNOTE.TXT of PKWARE (zip, zip64), caffe2/serialize/inline_container.h of PyTorch. The central directory
   gives places and sizes; the local headers must match it. */

#include "formats/pickle.h"

#define MAX_VERSION 10 /* of the archive's layout, the newest that PyTorch 2 reads */

typedef struct {
    const char *name;
    size_t name_len;
    uint64_t header, offset, bytes; /* of the local header; of the data */
    uint32_t crc, flags;
    int sum; /* index of its checksum in the TensorFile, −1 until needed */
} ZipEntry;

typedef struct {
    const char *path;
    const uint8_t *data;
    uint64_t size;
    uint64_t directory, directory_bytes, n_entries, end; /* end: of the directory */
    ZipEntry *entries;                                   /* sorted by name */
    int count;
    TensorFile *file;
    int shard;
    const char *prefix; /* "NAME/" of "NAME/data.pkl" */
    size_t prefix_len;
} Zip;

/* --- the directory --- */

/* The end record is last; only its own comment may follow. */
static Status find_end(const Zip *z, uint64_t *at)
{
    for (uint64_t back = 22; back <= z->size && back <= 22 + 65535; back++) {
        const uint8_t *p = z->data + z->size - back;
        if (memcmp(p, "PK\5\6", 4) != 0 || reader_le16(p + 20) != back - 22) continue;
        *at = z->size - back;
        return OK;
    }
    return fail(E_FORMAT, "%s: a zip file without its directory at the end: truncated", z->path);
}

/* Fields of 16 and 32 bits are all ones if the zip64 record holds the number. */
static bool equals_wide(uint64_t small, uint64_t limit, uint64_t wide) { return small == limit || small == wide; }

static Status read_end(Zip *z)
{
    uint64_t at = 0, end;
    TRY(find_end(z, &at));
    const uint8_t *p = z->data + at;
    if (reader_le16(p + 4) != 0 || reader_le16(p + 6) != 0)
        return fail(E_FORMAT, "%s: a zip file in several parts; expected one file", z->path);
    z->n_entries = reader_le16(p + 10);
    z->directory_bytes = reader_le32(p + 12);
    z->directory = reader_le32(p + 16);
    z->end = at;
    bool wide = z->n_entries == 0xffff || z->directory_bytes == 0xffffffff || z->directory == 0xffffffff;
    if (at >= 20 && memcmp(p - 20, "PK\6\7", 4) == 0) {
        end = reader_le64(p - 12);
        if (at < 76 || end > at - 76 || memcmp(z->data + end, "PK\6\6", 4) != 0 ||
            reader_le64(z->data + end + 4) != at - 20 - end - 12)
            return fail(E_FORMAT, "%s: the zip64 end record is not where its locator says", z->path);
        const uint8_t *q = z->data + end;
        uint64_t n = reader_le64(q + 32), bytes = reader_le64(q + 40), start = reader_le64(q + 48);
        if (!equals_wide(z->n_entries, 0xffff, n) || !equals_wide(z->directory_bytes, 0xffffffff, bytes) ||
            !equals_wide(z->directory, 0xffffffff, start) || reader_le64(q + 24) != n)
            return fail(E_FORMAT, "%s: the two end records of the zip directory disagree", z->path);
        z->n_entries = n;
        z->directory_bytes = bytes;
        z->directory = start;
        z->end = end;
    } else if (wide) {
        return fail(E_FORMAT, "%s: the zip64 end record is missing", z->path);
    }
    if (z->directory > z->end || z->directory_bytes != z->end - z->directory)
        return fail(E_FORMAT,
                    "%s: the zip directory claims %" PRIu64 " bytes at %" PRIu64 ", it must end at byte %" PRIu64,
                    z->path, z->directory_bytes, z->directory, z->end);
    if (z->n_entries > z->directory_bytes / 46)
        return fail(E_FORMAT, "%s: the zip directory claims %" PRIu64 " entries in %" PRIu64 " bytes", z->path,
                    z->n_entries, z->directory_bytes);
    return OK;
}

/* Takes the next number of the zip64 extra field if the small one is all ones. */
static bool take_wide(uint64_t *number, const uint8_t **extra, uint64_t *left)
{
    if (*number != 0xffffffff) return true;
    if (*left < 8) return false;
    *number = reader_le64(*extra);
    *extra += 8;
    *left -= 8;
    return true;
}

/* The zip64 field (id 1) among the extra fields; `*n` is 0 without one. False if the fields do not fit. */
static bool find_zip64(const uint8_t *extra, uint64_t len, const uint8_t **field, uint64_t *n)
{
    *field = extra;
    *n = 0;
    while (len >= 4) {
        uint64_t size = reader_le16(extra + 2);
        if (size > len - 4) return false;
        if (reader_le16(extra) == 1 && *n == 0) {
            *field = extra + 4;
            *n = size;
        }
        extra += 4 + size;
        len -= 4 + size;
    }
    return true;
}

/* Returns the start of the data, after comparing the local header with the directory's entry. */
static Status check_local(const Zip *z, ZipEntry *e, uint32_t method, const char *quoted)
{
    if (e->header > z->directory || z->directory - e->header < 30)
        return fail(E_FORMAT, "%s: entry '%s': its header at byte %" PRIu64 " is outside the file's data", z->path,
                    quoted, e->header);
    const uint8_t *p = z->data + e->header;
    uint64_t room = z->directory - e->header - 30, name_len = reader_le16(p + 26), extra_len = reader_le16(p + 28);
    if (memcmp(p, "PK\3\4", 4) != 0 || reader_le16(p + 8) != method || name_len != e->name_len || name_len > room ||
        memcmp(p + 30, e->name, name_len) != 0 || extra_len > room - name_len)
        return fail(E_FORMAT, "%s: entry '%s': the header at byte %" PRIu64 " differs from the directory's entry",
                    z->path, quoted, e->header);
    room -= name_len + extra_len;
    if (e->bytes > room)
        return fail(E_FORMAT, "%s: entry '%s' claims %" PRIu64 " bytes, only %" PRIu64 " precede the directory",
                    z->path, quoted, e->bytes, room);
    uint32_t crc = reader_le32(p + 14), packed = reader_le32(p + 18), bytes = reader_le32(p + 22);
    bool later = reader_le16(p + 6) & 8; /* the numbers follow the data; these fields are zeros or the same numbers */
    if (!(later && crc == 0 && packed == 0 && bytes == 0) &&
        (crc != e->crc || !equals_wide(packed, 0xffffffff, e->bytes) || !equals_wide(bytes, 0xffffffff, e->bytes)))
        return fail(E_FORMAT, "%s: entry '%s': size or CRC-32 in its header differ from those in the directory",
                    z->path, quoted);
    e->offset = e->header + 30 + name_len + extra_len;
    return OK;
}

static Status read_entry(const Zip *z, uint64_t *at, ZipEntry *e)
{
    uint64_t room = z->end - *at, left;
    const uint8_t *p = z->data + *at, *wide;
    if (room < 46 || memcmp(p, "PK\1\2", 4) != 0)
        return fail(E_FORMAT, "%s: no zip directory entry at byte %" PRIu64 " where one is expected", z->path, *at);
    uint32_t method = reader_le16(p + 10), name_len = reader_le16(p + 28), extra_len = reader_le16(p + 30);
    uint64_t total = 46 + (uint64_t)name_len + extra_len + reader_le16(p + 32);
    if (total > room) return fail(E_FORMAT, "%s: the zip directory entry at byte %" PRIu64 " is cut off", z->path, *at);
    *e = (ZipEntry){.name = (const char *)p + 46, .name_len = name_len, .crc = reader_le32(p + 16), .sum = -1};
    const char *quoted = QUOTED(e->name, e->name_len);
    e->flags = reader_le16(p + 8);
    uint64_t packed = reader_le32(p + 20);
    e->bytes = reader_le32(p + 24);
    e->header = reader_le32(p + 42);
    if (!find_zip64(p + 46 + name_len, extra_len, &wide, &left) || !take_wide(&e->bytes, &wide, &left) ||
        !take_wide(&packed, &wide, &left) || !take_wide(&e->header, &wide, &left))
        return fail(E_FORMAT, "%s: entry '%s': its extra fields do not fit", z->path, quoted);
    if (e->flags & 1)
        return fail(E_FORMAT, "%s: entry '%s' is encrypted; expected a file of torch.save", z->path, quoted);
    if (method != 0 || packed != e->bytes)
        return fail(E_FORMAT, "%s: entry '%s' is compressed (method %u); torch.save only stores", z->path, quoted,
                    method);
    *at += total;
    return check_local(z, e, method, quoted);
}

static int by_name(const void *a, const void *b)
{
    const ZipEntry *x = a, *y = b;
    return reader_order(x->name, x->name_len, y->name, y->name_len);
}

static int compare_places(const void *a, const void *b)
{
    const ZipEntry *x = a, *y = b;
    return (x->header > y->header) - (x->header < y->header);
}

static Status read_directory(Zip *z)
{
    uint64_t at;
    TRY(read_end(z));
    z->entries = mem_array((size_t)z->n_entries, sizeof *z->entries);
    at = z->directory;
    for (; (uint64_t)z->count < z->n_entries; z->count++) TRY(read_entry(z, &at, &z->entries[z->count]));
    if (at != z->end)
        return fail(E_FORMAT, "%s: %" PRIu64 " bytes follow the last zip directory entry; expected none", z->path,
                    z->end - at);
    qsort(z->entries, (size_t)z->count, sizeof *z->entries, compare_places);
    for (int i = 1; i < z->count; i++)
        if (z->entries[i].header < z->entries[i - 1].offset + z->entries[i - 1].bytes)
            return fail(E_FORMAT, "%s: entry '%s' overlaps the previous one", z->path,
                        QUOTED(z->entries[i].name, z->entries[i].name_len));
    qsort(z->entries, (size_t)z->count, sizeof *z->entries, by_name);
    for (int i = 1; i < z->count; i++)
        if (by_name(&z->entries[i - 1], &z->entries[i]) == 0)
            return fail(E_FORMAT, "%s: entry '%s' occurs twice in the zip file", z->path,
                        QUOTED(z->entries[i].name, z->entries[i].name_len));
    return OK;
}

/* --- the archive --- */

/* The entry PREFIX + `folder` + `name`; NULL if missing. */
static ZipEntry *find_entry(const Zip *z, const char *folder, const char *name, size_t name_len)
{
    Buf full = {0};
    buf_append(&full, z->prefix, z->prefix_len);
    buf_puts(&full, folder);
    buf_append(&full, name, name_len);
    ZipEntry wanted = {.name = full.data, .name_len = full.len};
    ZipEntry *found = bsearch(&wanted, z->entries, (size_t)z->count, sizeof *z->entries, by_name);
    buf_free(&full);
    return found;
}

static Status find_pickle(Zip *z, const ZipEntry **pickle)
{
    static const char ending[] = "/data.pkl";
    size_t n = sizeof ending - 1;
    *pickle = NULL;
    for (int i = 0; i < z->count; i++) {
        const ZipEntry *e = &z->entries[i];
        if (e->name_len <= n || memcmp(e->name + e->name_len - n, ending, n) != 0) continue;
        if (memchr(e->name, '/', e->name_len - n)) continue;
        if (*pickle) return fail(E_FORMAT, "%s: two entries NAME/data.pkl; expected one", z->path);
        *pickle = e;
        z->prefix = e->name;
        z->prefix_len = e->name_len - n + 1;
    }
    if (*pickle) return OK;
    return fail(E_FORMAT, "%s: a zip file without an entry NAME/data.pkl; expected a file of torch.save", z->path);
}

static Status check_crc(const Zip *z, const ZipEntry *e)
{
    uint32_t found = crc32_zip(z->data + e->offset, (size_t)e->bytes);
    if (found == e->crc) return OK;
    return fail(E_FORMAT, "%s: entry '%s': its CRC-32 is %08x, the zip directory says %08x: %s", z->path,
                QUOTED(e->name, e->name_len), found, e->crc,
                e->crc == 0 ? "if it was saved with set_crc32_options(False), save it again without"
                            : "the file is damaged");
}

/* Checks the small entries that describe the format. Files of older versions lack "byteorder". */
static Status check_header_entries(const Zip *z)
{
    const ZipEntry *order = find_entry(z, "", "byteorder", 9), *version = find_entry(z, "", "version", 7);
    if (order) {
        TRY(check_crc(z, order));
        if (order->bytes != 6 || memcmp(z->data + order->offset, "little", 6) != 0)
            return fail(E_FORMAT, "%s: byte order is '%s', expected 'little'; save it again on a little-endian machine",
                        z->path, QUOTED(z->data + order->offset, (size_t)order->bytes));
    }
    if (version) {
        TRY(check_crc(z, version));
        const uint8_t *p = z->data + version->offset;
        int number = 0;
        for (uint64_t i = 0; i < version->bytes && i < 4 && p[i] >= '0' && p[i] <= '9'; i++)
            number = 10 * number + p[i] - '0';
        if (number < 1 || number > MAX_VERSION)
            return fail(E_FORMAT, "%s: archive version '%s', expected 1 to %d", z->path,
                        QUOTED(p, (size_t)version->bytes), MAX_VERSION);
    }
    return OK;
}

static Status find_storage(void *context, const Pickle *p, const PickleValue *storage, uint64_t *offset, int *sum)
{
    Zip *z = context;
    const PickleValue *key = &p->values[storage->storage.key];
    ZipEntry *e = find_entry(z, "data/", key->text.data, key->text.len);
    const char *quoted = QUOTED(key->text.data, key->text.len);
    if (!e) return fail(E_FORMAT, "the entry 'data/%s' of its storage is missing", quoted);
    uint64_t element = dtype_size(storage->dtype);
    if ((uint64_t)storage->storage.count > e->bytes / element || (uint64_t)storage->storage.count * element != e->bytes)
        return fail(E_FORMAT, "its storage 'data/%s' has %" PRIu64 " bytes, the pickle says %" PRId64 " elements of %s",
                    quoted, e->bytes, storage->storage.count, dtype_name(storage->dtype));
    if (e->sum < 0) e->sum = reader_add_sum(z->file, z->shard, false, e->crc, e->offset, e->bytes);
    *offset = e->offset;
    *sum = e->sum;
    return OK;
}

Status pytorch_zip_read(TensorFile *f, int shard)
{
    Status status = OK;
    const FileMap *map = &f->shards[shard].map;
    Zip z = {.path = f->shards[shard].path, .data = map->data, .size = map->size, .file = f, .shard = shard};
    Pickle pickle = {0};
    PickleId root;
    const ZipEntry *e;
    size_t used = 0;
    TRY_DONE(read_directory(&z));
    TRY_DONE(find_pickle(&z, &e));
    TRY_DONE(check_header_entries(&z));
    TRY_DONE(check_crc(&z, e));
    TRY_DONE(pickle_read(&pickle, z.path, z.data + e->offset, (size_t)e->bytes, &used, &root));
    if (used != e->bytes)
        TRY_DONE(fail(E_FORMAT, "%s: the pickle ends at byte %zu of %" PRIu64, z.path, used, e->bytes));
    TRY_DONE(state_dict_read(f, shard, &pickle, root, find_storage, &z));
done:
    pickle_free(&pickle);
    free(z.entries);
    return status;
}
