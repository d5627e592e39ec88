/* For the readers of tensor files: the open file, and the functions that fill it. Private to formats/. Each
   <format>_read parses one mapped file and adds its tensors. */
#pragma once

#include <stdatomic.h>

#include "formats/tensor_file.h"

/* One mapped file. A TF1 data shard that does not exist stays unmapped. */
typedef struct {
    char *path;
    FileMap map;
    bool mapped;
} TensorShard;

/* A checksum over a range of a shard, verified before the first tensor inside it is read. */
typedef struct {
    int shard;
    bool castagnoli; /* TensorFlow's masked CRC-32C, else zip's CRC-32 */
    uint32_t want;
    uint64_t offset, bytes;
    atomic_bool good;
} TensorSum;

struct TensorFile {
    TensorFormat format;
    char *path;
    TensorInfo *infos;
    int count, capacity;
    int *by_name; /* indices of infos, sorted by name */
    TensorShard *shards;
    int n_shards, shards_capacity;
    TensorSum *sums;
    int n_sums, sums_capacity;
};

/* Maps a file as the next shard. */
Status reader_add_shard(TensorFile *f, const char *path, int *shard);
/* Adds a contiguous tensor at offset 0 of a shard: name, dims and their product are checked, strides, count and bytes
   filled. `path` is the file that describes the tensor, for messages. The reader sets `offset` (and strides, sum) and
   checks the range. `*info` lives until the next call. */
Status reader_add_tensor(TensorFile *f, int shard, const char *path, const char *name, size_t name_len, Dtype dtype,
                         const int64_t *dims, int n_dims, TensorInfo **info);
int reader_add_sum(TensorFile *f, int shard, bool castagnoli, uint32_t want, uint64_t offset, uint64_t bytes);
/* Shortens and cleans bytes of a file for a message. Returns `out`. */
const char *reader_quote(char out[128], const void *text, size_t len);
#define QUOTED(text, len) reader_quote((char[128]){""}, text, len) /* lasts as SHORT_TEXT does (base/mem.h) */
bool reader_name_valid(const char *name, size_t len);
/* The order of two texts by their bytes. */
int reader_order(const char *a, size_t a_len, const char *b, size_t b_len);

Status safetensors_read(TensorFile *f, int shard);
Status pytorch_zip_read(TensorFile *f, int shard);
Status pytorch_old_read(TensorFile *f, int shard);
Status tf1_bundle_read(TensorFile *f, const char *prefix);

/* CRC-32 as in zip (polynomial 0xEDB88320). */
uint32_t crc32_zip(const void *data, size_t len);

/* Decodes one raw Snappy block. Fails (false) on anything wrong; never reads or writes outside. */
bool snappy_length(const uint8_t *data, size_t len, size_t *decoded, size_t *header);
bool snappy_decode(const uint8_t *data, size_t len, uint8_t *out, size_t out_len);

static inline uint32_t reader_le16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t reader_le32(const uint8_t *p) { return reader_le16(p) | reader_le16(p + 2) << 16; }
static inline uint64_t reader_le64(const uint8_t *p) { return reader_le32(p) | (uint64_t)reader_le32(p + 4) << 32; }
