/* Pass 2: a shard from the documents of a bucket. */

#include "data/data.h"
#include "data/shard_file.h"
#include "tasks/pretrain/shards/job.h"

#define SLICE      1024 /* rows written at once; of a gzip chunk too */
#define GZIP_LEVEL 4

#define MOST_COLUMNS 8

/* A dataset of the file: `bytes` per number, `width` numbers per row (0: lists). */
typedef struct {
    int column, bytes;
    int64_t width;
} Column;

/* The datasets of a form, in the file's order. Ids of more than 32767 pieces need 4 bytes. NVIDIA's have 4 always. */
static int columns_of(const ShardsJob *j, Column out[MOST_COLUMNS])
{
    bool nvidia = j->form == SHARDS_NVIDIA, fixed = nvidia || j->form == SHARDS_FIXED,
         packed = j->form == SHARDS_PACKED;
    int id = nvidia || vocab_size(j->tokenizer.vocab) > INT16_MAX ? 4 : 2,
        place = nvidia || j->pairs.max_length > INT16_MAX ? 4 : 2, n = 0;
    int64_t length = fixed ? j->pairs.max_length : 0, masks = fixed ? j->max_predictions : 0;
    out[n++] = (Column){SHARD_INPUT_IDS, id, length};
    if (fixed && j->is_static) out[n++] = (Column){SHARD_INPUT_MASK, 1, length};
    if (!fixed || j->is_static) out[n++] = (Column){SHARD_SEGMENT_IDS, 1, length};
    if (packed) out[n++] = (Column){SHARD_PACKED_LENGTHS, place, 0};
    if (j->is_static) {
        out[n++] = (Column){SHARD_MASKED_POSITIONS, place, masks};
        out[n++] = (Column){SHARD_MASKED_IDS, id, masks};
        if (packed) out[n++] = (Column){SHARD_PACKED_MASKED, place, 0};
    }
    if (fixed && !j->is_static) out[n++] = (Column){SHARD_SPECIAL_POSITIONS, 4, 3};
    out[n++] = (Column){SHARD_LABELS, 1, packed ? 0 : 1};
    return n;
}

double shards_bytes(const ShardsJob *j, double sequences, double tokens)
{
    Column columns[MOST_COLUMNS];
    int n = columns_of(j, columns);
    double bytes = 0, rows = j->form == SHARDS_PACKED ? tokens / j->pairs.max_length : sequences,
           gzip = j->form == SHARDS_NVIDIA ? 0.4 : 1;
    for (int i = 0; i < n; i++) {
        bool masks = columns[i].column == SHARD_MASKED_POSITIONS || columns[i].column == SHARD_MASKED_IDS;
        if (columns[i].width == 0)
            bytes += rows * (16 + 16 + 4) + tokens * columns[i].bytes * (masks ? 0.15 : 1);
        else
            bytes += rows * (double)columns[i].width * columns[i].bytes * (columns[i].width > 1 ? gzip : 1);
    }
    return bytes;
}

static void store_number(void *out, int bytes, int64_t at, int32_t value)
{
    if (bytes == 1)
        ((int8_t *)out)[at] = (int8_t)value;
    else if (bytes == 2)
        ((int16_t *)out)[at] = (int16_t)value;
    else
        ((int32_t *)out)[at] = value;
}

static void store_numbers(void *out, int bytes, int64_t at, const int32_t *values, int64_t n)
{
    if (bytes == 2) {
        int16_t *to = (int16_t *)out + at;
        for (int64_t k = 0; k < n; k++) to[k] = (int16_t)values[k];
    } else {
        for (int64_t k = 0; k < n; k++) store_number(out, bytes, at + k, values[k]);
    }
}

/* Writes a sequence's numbers of a column to out[at …] and returns their count. `before`: tokens before it in its row.
 */
static int64_t put_sequence(const Column *f, const Examples *e, int64_t i, int64_t before, void *out, int64_t at)
{
    int64_t from = e->offset[i], length = e->offset[i + 1] - from, masks = e->masked_offset[i],
            masked = e->masked_offset[i + 1] - masks, n = length;
    int second = 0;
    switch (f->column) {
    case SHARD_INPUT_IDS:
        store_numbers(out, f->bytes, at, e->ids + from, n);
        return n;
    case SHARD_INPUT_MASK:
        memset((int8_t *)out + at, 1, (size_t)n); /* one byte each, as the next */
        return n;
    case SHARD_SEGMENT_IDS:
        memcpy((int8_t *)out + at, e->types + from, (size_t)n);
        return n;
    case SHARD_MASKED_POSITIONS:
        for (int64_t k = 0; k < masked; k++)
            store_number(out, f->bytes, at + k, (int32_t)before + e->masked_place[masks + k]);
        return masked;
    case SHARD_MASKED_IDS:
        store_numbers(out, f->bytes, at, e->masked_label + masks, masked);
        return masked;
    case SHARD_SPECIAL_POSITIONS:
        while (e->types[from + second] == 0) second++;
        store_number(out, f->bytes, at, 0);
        store_number(out, f->bytes, at + 1, second - 1);
        store_number(out, f->bytes, at + 2, (int32_t)length - 1);
        return 3;
    default:
        store_number(out, f->bytes, at,
                     f->column == SHARD_PACKED_LENGTHS  ? (int32_t)length
                     : f->column == SHARD_PACKED_MASKED ? (int32_t)masked
                                                        : e->label[i]);
        return 1;
    }
}

/* The sequences of each row, in the order of the file. */
typedef struct {
    int64_t count, *order;   // (count)
    int64_t *packed, *first; /* of packed rows, as shards_pack gives them; NULL: one sequence per row */
} RowOrder;

static RowOrder rows_of(const ShardsJob *j, const Examples *e, int shard)
{
    RowOrder r = {.count = e->count};
    if (j->form == SHARDS_PACKED) {
        r.packed = mem_array((size_t)e->count, sizeof *r.packed);
        r.first = mem_array((size_t)e->count + 1, sizeof *r.first);
        r.count = shards_pack(e->offset, e->count, j->pairs.max_length, r.packed, r.first);
    }
    Permutation order = permutation(j->pairs.seed, (uint32_t)shard, r.count);
    r.order = mem_array((size_t)r.count, sizeof *r.order);
    for (int64_t i = 0; i < r.count; i++) r.order[i] = permutation_at(&order, i);
    return r;
}

/* Writes a row of a column to out[at …] and returns its count of numbers. */
static int64_t put_row(const Column *f, const Examples *e, const RowOrder *rows, int64_t row, void *out, int64_t at)
{
    int64_t n = 0, before = 0, begin = rows->first ? rows->first[row] : row,
            end = rows->first ? rows->first[row + 1] : row + 1;
    for (int64_t m = begin; m < end; m++) {
        int64_t i = rows->packed ? rows->packed[m] : m;
        n += put_sequence(f, e, i, before, out, at + n);
        before += example_length(e, i);
    }
    for (int64_t pad = n; pad < f->width; pad++) store_number(out, f->bytes, at + pad, 0);
    return f->width ? f->width : n;
}

static Status write_rows(const ShardsJob *j, ShardsWorker *w, const RowOrder *r, const char *path)
{
    const Examples *e = &w->sequences.e;
    Column columns[MOST_COLUMNS];
    Hdf5Spec specs[MOST_COLUMNS];
    Hdf5Writer *file = NULL;
    Status status = OK;
    int n = columns_of(j, columns);
    int64_t count = r->count;
    for (int i = 0; i < n; i++)
        specs[i] = (Hdf5Spec){shard_column_names[columns[i].column], columns[i].bytes, columns[i].width, 0};
    if (!w->rows) w->rows = mem_array((size_t)SLICE * (size_t)j->pairs.max_length, sizeof(int32_t));
    if (!w->offset) w->offset = mem_array(SLICE + 1, sizeof *w->offset);
    TRY(hdf5_create(path, specs, n, count, j->form == SHARDS_NVIDIA ? GZIP_LEVEL : 0, SLICE, &file));
    for (int64_t first = 0; first < count && status == OK; first += SLICE) {
        int64_t rows = count - first < SLICE ? count - first : SLICE;
        for (int i = 0; i < n && status == OK; i++) {
            for (int64_t k = 0; k < rows; k++)
                w->offset[k + 1] =
                    w->offset[k] + put_row(&columns[i], e, r, r->order[first + k], w->rows, w->offset[k]);
            status = columns[i].width ? hdf5_write(file, i, first, rows, w->rows)
                                      : hdf5_write_lists(file, i, first, rows, w->rows, w->offset);
        }
    }
    if (status == OK) return hdf5_finish(file);
    hdf5_abandon(file);
    return status;
}

/* Bucket and round of a shard; true: it is held out. */
static bool place_of(const ShardsJob *j, int shard, int *bucket, int *round)
{
    int trained = j->rounds * j->buckets;
    bool held_out = shard >= trained;
    *round = held_out ? 0 : shard / j->buckets;
    *bucket = held_out ? j->buckets + shard - trained : shard % j->buckets;
    return held_out;
}

bool shards_held_out(const ShardsJob *j, int i)
{
    int bucket, round;
    return place_of(j, i, &bucket, &round);
}

char *shards_name(const ShardsJob *j, int i)
{
    int bucket, round;
    return place_of(j, i, &bucket, &round) ? mem_printf("eval/part-%05d.hdf5", bucket - j->buckets)
                                           : mem_printf("part-%05d.hdf5", i);
}

Status shards_make(ShardsJob *j, ShardsWorker *w, int i, ShardsResult *r)
{
    int bucket, round;
    place_of(j, i, &bucket, &round);
    *r = (ShardsResult){0};
    TRY(shards_gather(j, w, bucket, &w->bucket));
    if (*j->stop) return fail(E_STOPPED, "stopped; the same command resumes");
    sequences_clear(&w->sequences);
    sequences_reserve(&w->sequences, 0, w->bucket.tokens + w->bucket.tokens / 4, 0);
    documents_sequences(&w->bucket, (uint32_t)round, &j->pairs, j->is_static ? &j->masking : NULL, &w->sequences);
    const Examples *e = &w->sequences.e;
    r->sequences = e->count;
    r->tokens = e->offset[e->count];
    r->masked = e->masked_offset[e->count];
    r->documents = w->bucket.count;
    for (int64_t k = 0; k < e->count; k++) r->random += e->label[k] == 1;
    if (*j->stop) return fail(E_STOPPED, "stopped; the same command resumes");
    if (r->sequences == 0) return OK; /* an empty bucket makes no shard */
    char *name = shards_name(j, i), *path = file_join(j->dir, name);
    RowOrder rows = rows_of(j, e, i);
    Status status = write_rows(j, w, &rows, path);
    if (status == OK) status = file_digest(path, &r->digest, &r->size);
    MEM_FREE(rows.order, rows.packed, rows.first, name, path);
    return status;
}
