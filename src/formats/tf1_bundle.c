/* TensorFlow 1's checkpoints, the V2 form ("tensor bundle"): PREFIX.index, a LevelDB-like table from names to
   BundleEntryProto, and PREFIX.data-0000i-of-0000N with the elements. Source: tensorflow/core/lib/io/format.cc and
   tensor_bundle.proto; the table is described in LevelDB's doc/table_format.md. */

#include "formats/reader_internal.h"

#define MAGIC      UINT64_C(0xdb4775248b80fb57)
#define FOOTER     48u
#define TRAILER    5u /* after a block: its type, its masked CRC-32C */
#define MAX_KEY    1024u
#define MAX_SHARDS 4096u

/* The unread bytes. */
typedef struct {
    const uint8_t *p;
    uint64_t left;
} Cursor;

static bool take_part(Cursor *c, uint64_t n, Cursor *part)
{
    if (n > c->left) return false;
    *part = (Cursor){c->p, n};
    c->p += n;
    c->left -= n;
    return true;
}

static bool take_varint(Cursor *c, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (c->left == 0) return false;
        uint8_t byte = *c->p;
        c->p++;
        c->left--;
        if (shift == 63 && byte > 1) return false;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

/* One field of a protocol buffer message. Numbers of every width are in `number`, lengths' bytes in `bytes`. */
typedef struct {
    uint64_t id;
    int wire; /* 0 varint, 1 fixed 64, 2 bytes, 5 fixed 32 */
    uint64_t number;
    Cursor bytes;
} Field;

static bool take_field(Cursor *c, Field *f)
{
    uint64_t tag, n;
    if (!take_varint(c, &tag)) return false;
    *f = (Field){.id = tag >> 3, .wire = (int)(tag & 7)};
    if (f->id == 0) return false;
    if (f->wire == 0) return take_varint(c, &f->number);
    if (f->wire == 2) return take_varint(c, &n) && take_part(c, n, &f->bytes);
    if (f->wire != 1 && f->wire != 5) return false;
    if (!take_part(c, f->wire == 1 ? 8 : 4, &f->bytes)) return false;
    f->number = f->wire == 1 ? reader_le64(f->bytes.p) : reader_le32(f->bytes.p);
    return true;
}

/* --- the table --- */

typedef struct {
    uint64_t offset, size;
} Handle; /* of a block, without its trailer */

typedef struct {
    TensorFile *file;
    const char *prefix, *path; /* of the index */
    FileMap map;
    uint8_t *unpacked; /* the last Snappy block */
    Handle *blocks;    /* the data blocks, as the index block lists them */
    int n_blocks, blocks_capacity;
    uint64_t n_shards;
    bool has_header;
    int *shard_of; /* (n_shards) in the TensorFile, by TensorFlow's number; −1 until needed */
} Bundle;

/* Called for every entry of a block, in ascending order of keys. The bytes live until the next block is loaded. */
typedef Status (*EntryFn)(Bundle *b, const char *key, size_t key_len, Cursor value);

/* Returns the contents of a block, CRC checked and unpacked if needed. */
static Status load_block(Bundle *b, uint64_t offset, uint64_t size, Cursor *block)
{
    uint64_t room = b->map.size - FOOTER;
    if (offset > room || size > room - offset || room - offset - size < TRAILER)
        return fail(E_FORMAT, "%s: a block of %" PRIu64 " bytes at %" PRIu64 ", the file has only %" PRIu64, b->path,
                    size, offset, (uint64_t)b->map.size);
    const uint8_t *p = b->map.data + offset;
    uint32_t want = reader_le32(p + size + 1), found = crc32c_mask(crc32c(0, p, (size_t)size + 1));
    if (want != found)
        return fail(E_FORMAT,
                    "%s: the masked CRC-32C of the block at byte %" PRIu64
                    " is %08x, the file says %08x: it is damaged",
                    b->path, offset, found, want);
    if (p[size] == 0) {
        *block = (Cursor){p, size};
        return OK;
    }
    if (p[size] != 1)
        return fail(E_FORMAT, "%s: the block at byte %" PRIu64 " has compression %u, expected 0 (none) or 1 (Snappy)",
                    b->path, offset, p[size]);
    size_t decoded, header;
    free(b->unpacked);
    b->unpacked = NULL;
    if (snappy_length(p, (size_t)size, &decoded, &header)) b->unpacked = mem_alloc(decoded);
    if (!b->unpacked || !snappy_decode(p, (size_t)size, b->unpacked, decoded))
        return fail(E_FORMAT, "%s: the block at byte %" PRIu64 " is not valid Snappy data", b->path, offset);
    *block = (Cursor){b->unpacked, decoded};
    return OK;
}

/* Entries: lengths of the part shared with the previous key, of the rest, of the value, as varints; the rest; the
   value. Then the restart points, which only a search needs. `last` is the previous key over all blocks of a kind,
   because keys ascend; it is zeroed before the first. */
static Status walk_block(Bundle *b, Cursor block, Buf *last, EntryFn entry)
{
    uint64_t restarts = block.left >= 4 ? reader_le32(block.p + block.left - 4) : UINT64_MAX;
    if (block.left < 4 || restarts > (block.left - 4) / 4)
        return fail(E_FORMAT, "%s: a block of %" PRIu64 " bytes lacks its restart points", b->path, block.left);
    block.left -= 4 * (restarts + 1);
    for (bool fresh = true; block.left > 0; fresh = false) {
        uint64_t shared, rest, length;
        Cursor tail, value;
        const char *quoted = QUOTED(last->data, last->len);
        if (!take_varint(&block, &shared) || !take_varint(&block, &rest) || !take_varint(&block, &length) ||
            shared > (fresh ? 0 : last->len) || !take_part(&block, rest, &tail) || !take_part(&block, length, &value))
            return fail(E_FORMAT, "%s: the table entry after '%s' does not fit its block", b->path, quoted);
        if (shared + rest > MAX_KEY)
            return fail(E_FORMAT, "%s: the key after '%s' has %" PRIu64 " bytes, expected at most %u", b->path, quoted,
                        shared + rest, MAX_KEY);
        size_t old = last->len - (size_t)shared, common = old < rest ? old : (size_t)rest;
        int order = common > 0 ? memcmp(tail.p, last->data + shared, common) : 0;
        if (last->data && (order < 0 || (order == 0 && rest <= old)))
            return fail(E_FORMAT, "%s: the key after '%s' is not greater: keys must ascend", b->path, quoted);
        last->len = (size_t)shared;
        buf_append(last, tail.p, (size_t)rest);
        TRY(entry(b, last->data, last->len, value));
    }
    return OK;
}

static Status add_block(Bundle *b, const char *key, size_t key_len, Cursor value)
{
    Handle h;
    if (!take_varint(&value, &h.offset) || !take_varint(&value, &h.size) || value.left > 0)
        return fail(E_FORMAT, "%s: the index entry '%s' is not the place of a block", b->path, QUOTED(key, key_len));
    const Handle *before = b->n_blocks ? &b->blocks[b->n_blocks - 1] : NULL;
    if (before && (h.offset < before->offset || h.offset - before->offset < before->size))
        return fail(E_FORMAT, "%s: the block of '%s' does not follow the previous block", b->path,
                    QUOTED(key, key_len));
    MEM_PUSH(b->blocks, b->n_blocks, b->blocks_capacity, h);
    return OK;
}

/* --- the entries --- */

/* BundleHeaderProto, under the empty key: 1 num_shards, 2 endianness (0 little), 3 version {2 min_consumer}. */
static Status read_header(Bundle *b, Cursor value)
{
    uint64_t endianness = 0, least_reader = 0;
    Field f, v;
    while (value.left > 0) {
        bool good = take_field(&value, &f);
        if (good && f.id == 1 && f.wire == 0) b->n_shards = f.number;
        if (good && f.id == 2 && f.wire == 0) endianness = f.number;
        while (good && f.id == 3 && f.wire == 2 && f.bytes.left > 0) {
            good = take_field(&f.bytes, &v);
            if (good && v.id == 2 && v.wire == 0) least_reader = v.number;
        }
        if (!good) return fail(E_FORMAT, "%s: the header (BundleHeaderProto) does not parse", b->path);
    }
    if (endianness != 0)
        return fail(E_FORMAT, "%s: written on a big-endian machine; save it again on a little-endian one", b->path);
    if (b->n_shards < 1 || b->n_shards > MAX_SHARDS)
        return fail(E_FORMAT, "%s: the header claims %" PRIu64 " data files, expected 1 to %u", b->path, b->n_shards,
                    MAX_SHARDS);
    if (least_reader > 1)
        return fail(E_FORMAT, "%s: needs a reader of bundle version %" PRIu64 ", this one knows 1", b->path,
                    least_reader);
    b->shard_of = mem_array((size_t)b->n_shards, sizeof *b->shard_of);
    for (uint64_t i = 0; i < b->n_shards; i++) b->shard_of[i] = -1;
    b->has_header = true;
    return OK;
}

/* BundleEntryProto, and the needed fields of its shape (TensorShapeProto). */
typedef struct {
    uint64_t type, shard, offset, size, crc; /* fields 1, 3, 4, 5, 6 */
    int64_t dims[TENSOR_MAX_DIMS];           /* field 2 */
    int n_dims;
    bool sliced, unknown_rank, has_crc;
} Entry;

static bool parse_shape(Cursor shape, Entry *e)
{
    Field f, d;
    while (shape.left > 0) {
        if (!take_field(&shape, &f)) return false;
        if (f.id == 3 && f.wire == 0 && f.number) e->unknown_rank = true;
        if (f.id != 2) continue;
        int64_t size = 0; /* a size of 0 is not written */
        if (f.wire != 2) return false;
        while (f.bytes.left > 0) {
            if (!take_field(&f.bytes, &d)) return false;
            if (d.id == 1 && d.wire == 0) size = (int64_t)d.number;
        }
        if (e->n_dims < TENSOR_MAX_DIMS) e->dims[e->n_dims] = size;
        if (e->n_dims <= TENSOR_MAX_DIMS) e->n_dims++; /* an excess is detected later */
    }
    return true;
}

static bool parse_entry(Cursor value, Entry *e)
{
    Field f;
    *e = (Entry){0};
    uint64_t *const numbers[] = {NULL, &e->type, NULL, &e->shard, &e->offset, &e->size, &e->crc};
    while (value.left > 0) {
        if (!take_field(&value, &f)) return false;
        if (f.id == 7) e->sliced = true;
        if (f.id == 2 && (f.wire != 2 || !parse_shape(f.bytes, e))) return false;
        if (f.id == 2 || f.id > 6) continue;
        if (f.wire != (f.id == 6 ? 5 : 0)) return false;
        *numbers[f.id] = f.number;
        if (f.id == 6) e->has_crc = true;
    }
    return true;
}

/* TensorFlow's DataType numbers. */
static const struct {
    uint64_t number;
    Dtype dtype;
} types[] = {{1, F32}, {2, F64}, {3, I32}, {4, U8}, {5, I16}, {6, I8}, {9, I64}, {10, U8}, {14, BF16}, {19, F16}};

#define N_TYPES   (sizeof types / sizeof *types)
#define DT_STRING 7

/* The data file with TensorFlow's number, mapped on first use. A missing file is an error when it is read. */
static Status find_shard(Bundle *b, uint64_t number, int *shard)
{
    if (b->shard_of[number] < 0) {
        TensorFile *f = b->file;
        char *path = mem_printf("%s.data-%05d-of-%05d", b->prefix, (int)number, (int)b->n_shards);
        Status status = OK;
        if (file_exists(path)) {
            status = reader_add_shard(f, path, &b->shard_of[number]);
            free(path);
        } else {
            b->shard_of[number] = f->n_shards;
            MEM_PUSH(f->shards, f->n_shards, f->shards_capacity, (TensorShard){.path = path});
        }
        TRY(status);
    }
    *shard = b->shard_of[number];
    return OK;
}

static Status add_tensor(Bundle *b, const char *name, size_t name_len, const Entry *e)
{
    TensorFile *f = b->file;
    TensorInfo *t;
    int shard;
    const char *quoted = QUOTED(name, name_len);
    if (e->sliced)
        return fail(
            E_FORMAT,
            "%s: tensor '%s' is stored in slices (a partitioned variable), which this reader does not join; save "
            "the checkpoint without partitions",
            b->path, quoted);
    size_t k = 0;
    while (k < N_TYPES && types[k].number != e->type) k++;
    if (k == N_TYPES)
        return fail(E_FORMAT, "%s: tensor '%s' has TensorFlow's type %" PRIu64 ", expected a type of real numbers",
                    b->path, quoted, e->type);
    if (e->unknown_rank) return fail(E_FORMAT, "%s: tensor '%s' has no known shape", b->path, quoted);
    if (e->shard >= b->n_shards)
        return fail(E_FORMAT, "%s: tensor '%s' is in data file %" PRIu64 " of %" PRIu64, b->path, quoted, e->shard,
                    b->n_shards);
    TRY(find_shard(b, e->shard, &shard));
    TRY(reader_add_tensor(f, shard, b->path, name, name_len, types[k].dtype, e->dims, e->n_dims, &t));
    if (t->bytes != e->size)
        return fail(E_FORMAT, "%s: tensor '%s': its shape takes %" PRIu64 " bytes as %s, the index gives it %" PRIu64,
                    b->path, quoted, t->bytes, dtype_name(t->dtype), e->size);
    const TensorShard *s = &f->shards[shard];
    if (s->mapped && (e->size > s->map.size || e->offset > s->map.size - e->size))
        return fail(E_FORMAT,
                    "%s: tensor '%s' is %" PRIu64 " bytes at %" PRIu64 ", the file has only %zu: it is truncated, or "
                    "the index is wrong",
                    s->path, quoted, e->size, e->offset, s->map.size);
    t->offset = e->offset;
    if (!e->has_crc) return fail(E_FORMAT, "%s: tensor '%s' has no CRC-32C", b->path, quoted);
    t->sum = reader_add_sum(f, shard, true, (uint32_t)e->crc, e->offset, e->size);
    return OK;
}

static Status read_entry(Bundle *b, const char *key, size_t key_len, Cursor value)
{
    Entry e;
    if (key_len == 0) return read_header(b, value); /* the smallest key, so the first */
    if (!b->has_header) return fail(E_FORMAT, "%s: a table, but its first key is not a checkpoint's header", b->path);
    if (!parse_entry(value, &e))
        return fail(E_FORMAT, "%s: tensor '%s': its entry (BundleEntryProto) does not parse", b->path,
                    QUOTED(key, key_len));
    if (e.type == DT_STRING) return OK;
    return add_tensor(b, key, key_len, &e);
}

/* The footer: places of the metaindex (not used) and of the index, padded to 40 bytes, then the magic number. */
static Status read_footer(const Bundle *b, Handle *index)
{
    Handle meta;
    if (b->map.size < FOOTER || reader_le64(b->map.data + b->map.size - 8) != MAGIC)
        return fail(E_FORMAT,
                    "%s: %zu bytes that do not end with a TensorFlow table's magic number: truncated, or not an index",
                    b->path, b->map.size);
    Cursor c = {b->map.data + b->map.size - FOOTER, FOOTER - 8};
    if (take_varint(&c, &meta.offset) && take_varint(&c, &meta.size) && take_varint(&c, &index->offset) &&
        take_varint(&c, &index->size))
        return OK;
    return fail(E_FORMAT, "%s: the table's footer does not parse", b->path);
}

Status tf1_bundle_read(TensorFile *f, const char *prefix)
{
    Status status = OK;
    char *path = mem_printf("%s.index", prefix);
    Bundle b = {.file = f, .prefix = prefix, .path = path};
    Buf last_index = {0}, last = {0};
    Handle index;
    Cursor block;
    f->format = TENSORS_TF1;
    TRY_DONE(file_map(&b.map, path));
    TRY_DONE(read_footer(&b, &index));
    TRY_DONE(load_block(&b, index.offset, index.size, &block));
    TRY_DONE(walk_block(&b, block, &last_index, add_block));
    for (int i = 0; i < b.n_blocks; i++) {
        TRY_DONE(load_block(&b, b.blocks[i].offset, b.blocks[i].size, &block));
        TRY_DONE(walk_block(&b, block, &last, read_entry));
    }
    if (!b.has_header) status = fail(E_FORMAT, "%s: a table without entries; expected a checkpoint's index", path);
done:
    if (b.map.data) file_unmap(&b.map);
    MEM_FREE(b.unpacked, b.blocks, b.shard_of);
    BUF_FREE(&last_index, &last);
    free(path);
    return status;
}
