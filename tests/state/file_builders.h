/* Hand-made files for tests and fuzz targets: zip archives, pickles and TensorFlow tables with correct checksums and
   any contents. */
#pragma once

#include "formats/reader_internal.h"

static inline void put_le(Buf *b, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) buf_append(b, &(char){i < 8 ? (char)(value >> (8 * i)) : 0}, 1);
}

/* --- zip --- */

/* The entries of one archive; `zip_end` writes the directory. Tests change fields in the bytes afterwards.
 */
typedef struct {
    Buf out, directory;
    int count;
    bool wide; /* sizes and places in zip64 fields */
} ZipBuilder;

static inline void zip_add(ZipBuilder *z, const char *name, const void *data, size_t len)
{
    uint64_t header = z->out.len, limit = 0xffffffff;
    uint32_t crc = crc32_zip(data, len);
    buf_append(&z->out, "PK\3\4", 4);
    put_le(&z->out, 0, 2 + 2 + 2 + 4); /* version, flags, method, time */
    put_le(&z->out, crc, 4);
    put_le(&z->out, z->wide ? limit : len, 4);
    put_le(&z->out, z->wide ? limit : len, 4);
    put_le(&z->out, strlen(name), 2);
    put_le(&z->out, 0, 2);
    buf_puts(&z->out, name);
    buf_append(&z->out, data, len);

    Buf *d = &z->directory;
    buf_append(d, "PK\1\2", 4);
    put_le(d, 0, 2 + 2 + 2 + 2 + 4);
    put_le(d, crc, 4);
    put_le(d, z->wide ? limit : len, 4);
    put_le(d, z->wide ? limit : len, 4);
    put_le(d, strlen(name), 2);
    put_le(d, z->wide ? 28 : 0, 2);
    put_le(d, 0, 2 + 2 + 2 + 4); /* comment, disk, attributes */
    put_le(d, z->wide ? limit : header, 4);
    buf_puts(d, name);
    if (z->wide) {
        put_le(d, 1, 2);
        put_le(d, 24, 2);
        put_le(d, len, 8);
        put_le(d, len, 8);
        put_le(d, header, 8);
    }
    z->count++;
}

/* Finishes into z->out. */
static inline void zip_end(ZipBuilder *z)
{
    size_t start = z->out.len, bytes = z->directory.len;
    buf_append(&z->out, z->directory.data, bytes);
    buf_append(&z->out, "PK\5\6", 4);
    put_le(&z->out, 0, 4);
    put_le(&z->out, (uint64_t)z->count, 2);
    put_le(&z->out, (uint64_t)z->count, 2);
    put_le(&z->out, bytes, 4);
    put_le(&z->out, start, 4);
    put_le(&z->out, 0, 2);
    buf_free(&z->directory);
}

/* --- pickles --- */

static inline void pickle_string(Buf *b, const char *s)
{
    buf_puts(b, "X");
    put_le(b, strlen(s), 4);
    buf_puts(b, s);
}

static inline void pickle_int(Buf *b, int64_t v)
{
    buf_append(b, "\x8a\x08", 2); /* LONG1 */
    put_le(b, (uint64_t)v, 8);
}

static inline void pickle_dims(Buf *b, int n, const int64_t *dims)
{
    buf_puts(b, "(");
    for (int d = 0; d < n; d++) pickle_int(b, dims[d]);
    buf_puts(b, "t");
}

/* ('storage', torch.<type>, key, 'cpu', count) as a persistent id. */
static inline void pickle_storage(Buf *b, const char *type, const char *key, int64_t count)
{
    buf_puts(b, "(");
    pickle_string(b, "storage");
    buf_printf(b, "ctorch\n%s\n", type);
    pickle_string(b, key);
    pickle_string(b, "cpu");
    pickle_int(b, count);
    buf_puts(b, "tQ");
}

/* torch._utils._rebuild_tensor_v2(storage, offset, dims, strides, False, OrderedDict()) */
static inline void pickle_tensor(Buf *b, const char *type, const char *key, int64_t count, int64_t offset, int n_dims,
                                 const int64_t *dims, const int64_t *strides)
{
    buf_puts(b, "ctorch._utils\n_rebuild_tensor_v2\n(");
    pickle_storage(b, type, key, count);
    pickle_int(b, offset);
    pickle_dims(b, n_dims, dims);
    pickle_dims(b, n_dims, strides);
    buf_puts(b, "\x89"
                "ccollections\nOrderedDict\n)RtR");
}

/* --- PyTorch's files --- */

static const uint8_t elements[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

/* A zip archive of this pickle and a storage '0' of `n` bytes. */
static inline Buf pytorch_zip_of(const void *pickle, size_t len, size_t n)
{
    ZipBuilder z = {0};
    zip_add(&z, "x/data.pkl", pickle, len);
    zip_add(&z, "x/data/0", elements, n);
    zip_end(&z);
    return z.out;
}

/* The old form's first three pickles. */
static inline Buf pytorch_old_start(void)
{
    Buf b = {0};
    static const char magic[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}";
    buf_append(&b, magic, sizeof magic - 1);
    pickle_string(&b, "little_endian");
    buf_puts(&b, "\x88s.");
    return b;
}

/* --- TensorFlow tables --- */

static inline void put_varint(Buf *b, uint64_t v)
{
    for (; v >= 128; v >>= 7) put_le(b, (v & 127) | 128, 1);
    put_le(b, v, 1);
}

/* One entry with its key in full. */
static inline void table_entry(Buf *block, const void *key, size_t key_len, const void *value, size_t len)
{
    put_varint(block, 0);
    put_varint(block, key_len);
    put_varint(block, len);
    buf_append(block, key, key_len);
    buf_append(block, value, len);
}

/* Appends the block with its trailer; its place (a handle) goes to `place`. */
static inline void table_block(Buf *out, Buf *place, const void *contents, size_t len, uint8_t type)
{
    size_t start = out->len;
    put_varint(place, start);
    put_varint(place, len);
    buf_append(out, contents, len);
    put_le(out, type, 1);
    put_le(out, crc32c_mask(crc32c(0, out->data + start, len + 1)), 4);
}

static inline void table_footer(Buf *out, Buf *places)
{
    while (places->len < 40) put_le(places, 0, 1);
    buf_append(out, places->data, 40);
    put_le(out, UINT64_C(0xdb4775248b80fb57), 8);
}

/* A whole table of one data block; `entries` without restart points; with `type` Snappy as given. */
static inline Buf table_of(const Buf *entries, uint8_t type)
{
    static const char no_restarts[8] = {0, 0, 0, 0, 1, 0, 0, 0};
    Buf out = {0}, data = {0}, index = {0}, handle = {0}, places = {0};
    buf_append(&data, entries->data, entries->len);
    if (type == 0) buf_append(&data, no_restarts, 8);
    table_block(&out, &handle, data.data, data.len, type);
    table_block(&out, &places, no_restarts, 8, 0); /* an empty metaindex */
    table_entry(&index, "\xff\xff", 2, handle.data, handle.len);
    buf_append(&index, no_restarts, 8);
    table_block(&out, &places, index.data, index.len, 0);
    table_footer(&out, &places);
    buf_free(&data);
    buf_free(&index);
    buf_free(&handle);
    buf_free(&places);
    return out;
}
