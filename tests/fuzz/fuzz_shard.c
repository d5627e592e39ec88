/* Columns of any shape and content as a shard, by a reader in memory that stands in for data/hdf5_file.c. */
#include <stdlib.h>

#include "shard_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct Hdf5Column {
    Column c;
    int32_t values[MOST_ROWS * MOST_WIDTH];
    int64_t offset[MOST_ROWS + 1];
};

struct Hdf5File {
    int n;
    Hdf5Column columns[MOST_COLUMNS];
};

static Hdf5File file; /* of the input at hand */

bool hdf5_available(void) { return true; }

Status hdf5_open(const char *path, Hdf5File **f)
{
    (void)path;
    *f = &file;
    return OK;
}

void hdf5_close(Hdf5File *f) { (void)f; }

const char *hdf5_path(const Hdf5File *f)
{
    (void)f;
    return "memory.hdf5";
}

Status hdf5_column(Hdf5File *f, const char *name, Hdf5Column **c)
{
    *c = NULL;
    for (int i = 0; i < f->n && !*c; i++)
        if (strcmp(f->columns[i].c.spec.name, name) == 0) *c = &f->columns[i];
    return OK;
}

Hdf5Shape hdf5_shape(const Hdf5Column *c)
{
    const Hdf5Spec *s = &c->c.spec;
    return (Hdf5Shape){
        .lists = s->width == 0, .rows = c->c.rows, .width = s->width, .chunk_rows = 1, .bytes = s->bytes};
}

Status hdf5_read(Hdf5Column *c, int64_t first, int64_t n, int32_t *out)
{
    CHECK(first >= 0 && first + n <= c->c.rows, "rows");
    memcpy(out, c->values + c->offset[first], (size_t)(n * c->c.spec.width) * sizeof *out);
    return OK;
}

Status hdf5_list_lengths(Hdf5Column *c, int64_t first, int64_t n, int64_t most, int32_t *lengths)
{
    CHECK(first >= 0 && first + n <= c->c.rows, "rows");
    for (int64_t i = 0; i < n; i++) {
        int64_t length = c->offset[first + i + 1] - c->offset[first + i];
        if (length > most) return fail(E_FORMAT, "memory.hdf5: row %lld is too long", (long long)(first + i));
        lengths[i] = (int32_t)length;
    }
    return OK;
}

Status hdf5_read_lists(Hdf5Column *c, int64_t first, int64_t n, int64_t most, Hdf5Lists *out)
{
    int32_t lengths[MOST_ROWS];
    TRY(hdf5_list_lengths(c, first, n, most, lengths));
    hdf5_lists_free(out);
    out->cap_rows = n + 1;
    out->offset = mem_array((size_t)n + 1, sizeof *out->offset);
    for (int64_t i = 0; i < n; i++) out->offset[i + 1] = out->offset[i] + lengths[i];
    out->cap_values = out->offset[n];
    out->values = mem_array((size_t)out->cap_values, sizeof *out->values); /* exact, so that ASan sees what is behind */
    if (out->cap_values > 0)
        memcpy(out->values, c->values + c->offset[first], (size_t)out->cap_values * sizeof *out->values);
    return OK;
}

void hdf5_lists_free(Hdf5Lists *l)
{
    free(l->values);
    free(l->offset);
    *l = (Hdf5Lists){0};
}

/* As numbers of so many bytes, signed, come back from a file. */
static int32_t narrowed(int32_t x, int bytes) { return bytes == 1 ? (int8_t)x : bytes == 2 ? (int16_t)x : x; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input in = {data, data + size};
    Column columns[MOST_COLUMNS];
    int64_t rows;
    log_set_level(LOG_ERROR);
    file.n = take_columns(&in, columns, &rows);
    (void)byte(&in); /* fuzz_hdf5's, whether the file is compressed: the two share their inputs */
    for (int i = 0; i < file.n; i++) {
        Hdf5Column *c = &file.columns[i];
        c->c = columns[i];
        take_rows(&in, &c->c, c->values, c->offset);
        for (int64_t k = 0; k < c->offset[c->c.rows]; k++) c->values[k] = narrowed(c->values[k], c->c.spec.bytes);
    }
    if (file.n > 0) check_shard("memory.hdf5");
    return 0;
}
