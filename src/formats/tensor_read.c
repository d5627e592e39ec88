/* Reading the elements of an open tensor file: checksum first, then one walk over the strides, a row at a time. */

#include "formats/reader_internal.h"

/* Copies or converts `n` elements of `element` bytes, `stride` bytes apart in the file and contiguous in `out`. */
typedef void (*RowFn)(void *out, const uint8_t *in, int64_t stride, int64_t n, size_t element);

#define CONVERT_ROW(NAME, TYPE, TO_F32)                                                                                \
    static void convert_##NAME(void *out, const uint8_t *in, int64_t stride, int64_t n, size_t element)                \
    {                                                                                                                  \
        float *o = out;                                                                                                \
        (void)element;                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            TYPE x;                                                                                                    \
            memcpy(&x, in + i * stride, sizeof x);                                                                     \
            o[i] = TO_F32(x);                                                                                          \
        }                                                                                                              \
    }
CONVERT_ROW(F32, float, (float))
CONVERT_ROW(BF16, uint16_t, bf16_to_f32)
CONVERT_ROW(F16, uint16_t, f16_to_f32)
CONVERT_ROW(F64, double, (float))
CONVERT_ROW(I32, int32_t, (float))
CONVERT_ROW(I64, int64_t, (float))
CONVERT_ROW(I16, int16_t, (float))
CONVERT_ROW(I8, int8_t, (float))
CONVERT_ROW(U8, uint8_t, (float))

static const RowFn convert[N_DTYPES] = {
#define X(name, bytes, text) [name] = convert_##name,
    DTYPE_LIST(X)
#undef X
};

static void copy_row(void *out, const uint8_t *in, int64_t stride, int64_t n, size_t element)
{
    if ((size_t)stride == element) {
        memcpy(out, in, (size_t)n * element);
        return;
    }
    for (int64_t i = 0; i < n; i++) memcpy((uint8_t *)out + (size_t)i * element, in + i * stride, element);
}

static Status verify_sum(const TensorFile *f, const TensorInfo *t)
{
    if (t->sum < 0) return OK;
    TensorSum *s = &f->sums[t->sum];
    if (atomic_load(&s->good)) return OK;
    const TensorShard *shard = &f->shards[s->shard];
    const uint8_t *data = shard->map.data + s->offset;
    uint32_t found = s->castagnoli ? crc32c_mask(crc32c(0, data, s->bytes)) : crc32_zip(data, s->bytes);
    if (found != s->want)
        return fail(E_FORMAT,
                    "%s: tensor '%s': the %s of its %" PRIu64 " bytes at %" PRIu64
                    " is %08x, the file says %08x: the data is damaged",
                    shard->path, t->name, s->castagnoli ? "masked CRC-32C" : "CRC-32", s->bytes, s->offset, found,
                    s->want);
    atomic_store(&s->good, true);
    return OK;
}

/* Walks the tensor in row-major order. `out_element`: bytes that `row` writes per element. The trailing dimensions that
   are contiguous in the file form one row. */
static void read_rows(const TensorInfo *t, const uint8_t *base, RowFn row, uint8_t *out, size_t out_element)
{
    int64_t element = (int64_t)dtype_size(t->dtype), n = 1, stride = 1, index[TENSOR_MAX_DIMS] = {0};
    int outer = t->n_dims; /* dimensions before the row */
    while (outer > 0) {
        int64_t dim = t->dims[outer - 1], s = t->strides[outer - 1];
        if (dim != 1 && n != 1 && s != n * stride) break;
        if (dim != 1 && n == 1) stride = s;
        n *= dim;
        outer--;
    }
    for (int64_t done = 0; done < t->count; done += n, out += (size_t)n * out_element) {
        int64_t at = 0;
        for (int d = 0; d < outer; d++) at += index[d] * t->strides[d];
        row(out, base + at * element, stride * element, n, (size_t)element);
        for (int d = outer - 1; d >= 0 && ++index[d] == t->dims[d]; d--) index[d] = 0;
    }
}

static Status read_elements(const TensorFile *f, int i, RowFn row, void *out, size_t out_element)
{
    const TensorInfo *t = tensor_file_info(f, i);
    const TensorShard *shard = &f->shards[t->shard];
    if (t->count == 0) return OK;
    if (!shard->mapped)
        return fail(E_IO, "%s: no such file, but the index beside it places tensor '%s' there", shard->path, t->name);
    TRY(verify_sum(f, t));
    read_rows(t, shard->map.data + t->offset, row, out, out_element);
    return file_map_check(&shard->map, shard->path);
}

Status tensor_file_read_f32(const TensorFile *f, int i, float *out, int64_t count)
{
    const TensorInfo *t = tensor_file_info(f, i);
    CHECK(count == t->count, "%s: room for %" PRId64 " elements of '%s', which has %" PRId64, f->path, count, t->name,
          t->count);
    return read_elements(f, i, convert[t->dtype], out, sizeof *out);
}

Status tensor_file_read_raw(const TensorFile *f, int i, void *out, size_t bytes)
{
    const TensorInfo *t = tensor_file_info(f, i);
    CHECK(bytes == t->bytes, "%s: room for %zu bytes of '%s', which has %" PRIu64, f->path, bytes, t->name, t->bytes);
    return read_elements(f, i, copy_row, out, dtype_size(t->dtype));
}
