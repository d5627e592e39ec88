/* Shards through the reader of HDF5 files, where a library that answers as the input says stands in for HDF5's: any
   shape, type and storage, calls that fail, and lists in a file in memory. fuzz_hdf5 has the library itself, which
   needs more than half a millisecond for each input. An input of fuzz_hdf5 means the same shard here; further bytes
   change single answers. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/hdf5_library.h"
#include "shard_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the answers of the input at hand ---- */

typedef enum {
    LINK,
    CLASS,
    SIZE,
    PRECISION,
    SIGN,
    ORDER,
    EXTENT,
    RANK,
    ROWS,
    WIDTH,
    LAYOUT,
    FILTERS,
    FILTER,
    EXTERNAL,
    CHUNK_RANK,
    CHUNK_ROWS,
    CHUNK_WIDTH,
    OFFSET,
    STORED,
    PLACE,
    PLACE_UNKNOWN, /* the library does not report it */
    USERBLOCK,     /* of the file */
    ADDRESS_BYTES,
    LENGTH_BYTES,
    N_ANSWERS
} Answer;

enum { CHUNK = 3, MOST_FILE = 1 << 16 };

static struct {
    Column c;
    int32_t values[MOST_ROWS * MOST_WIDTH];
    int64_t offset[MOST_ROWS + 1];
    uint64_t descriptors; /* where they lie in the file */
    bool is_other[N_ANSWERS];
    int64_t other[N_ANSWERS];
} columns[MOST_COLUMNS];
static int n_columns, gzip, fails_at, handles;
static uint8_t file[MOST_FILE];
static size_t file_bytes;
static hsize_t first_row, selected, in_memory; /* numbers of the next read */

static int64_t answer(int column, Answer what, int64_t usual)
{
    return columns[column].is_other[what] ? columns[column].other[what] : usual;
}

/* A call that the input lets fail. */
static bool fails(void) { return fails_at > 0 && --fails_at == 0; }

/* Handles are numbers above 0: a kind and a column. */
typedef enum { FILE_ID, LIST_ID, DATASET_ID, MADE_ID, TYPE_ID, SUPER_ID, SPACE_ID, MEMORY_ID } Kind;
static hid_t open_handle(Kind kind, int column)
{
    if (fails()) return -1;
    handles++;
    return 1 + (hid_t)kind * MOST_COLUMNS + column;
}
static int column_of(hid_t id)
{
    CHECK(id > 0, "a handle that was never opened");
    return (int)((id - 1) % MOST_COLUMNS);
}
static bool is_kind(hid_t id, Kind kind) { return id > 0 && (id - 1) / MOST_COLUMNS == (hid_t)kind; }
static herr_t close_handle(hid_t id)
{
    if (id > 0) handles--;
    return id > 0 ? 0 : -1;
}

/* ---- the library ---- */

herr_t H5open(void) { return 0; }
herr_t H5set_free_list_limits(int a, int b, int c, int d, int e, int f)
{
    return (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, 0;
}
herr_t H5Eset_auto2(hid_t stack, H5E_auto2_t f, void *data) { return (void)stack, (void)f, (void)data, 0; }
herr_t H5Ewalk2(hid_t stack, H5E_direction_t direction, H5E_walk2_t f, void *data)
{
    return (void)stack, (void)direction, f(0, &(H5E_error2_t){.desc = "as the input says"}, data);
}

hid_t H5Pcreate(hid_t kind) { return (void)kind, open_handle(LIST_ID, 0); }
herr_t H5Pset_fclose_degree(hid_t list, H5F_close_degree_t degree) { return (void)degree, list > 0 ? 0 : -1; }
herr_t H5Pset_chunk_cache(hid_t list, size_t slots, size_t bytes, double w)
{
    return (void)slots, (void)bytes, (void)w, list > 0 ? 0 : -1;
}
herr_t H5Pclose(hid_t list) { return close_handle(list); }

hid_t H5Fopen(const char *path, unsigned flags, hid_t list)
{
    return (void)path, (void)flags, list > 0 ? open_handle(FILE_ID, 0) : -1;
}
herr_t H5Fclose(hid_t id) { return close_handle(id); }
hid_t H5Fget_create_plist(hid_t id) { return open_handle(MADE_ID, column_of(id)); }
herr_t H5Pget_userblock(hid_t list, hsize_t *bytes)
{
    *bytes = (hsize_t)answer(column_of(list), USERBLOCK, 0);
    return fails() ? -1 : 0;
}
herr_t H5Pget_sizes(hid_t list, size_t *address, size_t *length)
{
    *address = (size_t)answer(column_of(list), ADDRESS_BYTES, 8);
    *length = (size_t)answer(column_of(list), LENGTH_BYTES, 8);
    return fails() ? -1 : 0;
}

static int find_column(const char *name)
{
    int i = 0;
    while (i < n_columns && strcmp(columns[i].c.spec.name, name) != 0) i++;
    return i < n_columns ? i : -1;
}
htri_t H5Lexists(hid_t id, const char *name, hid_t list)
{
    return (void)list, !is_kind(id, FILE_ID) || fails() ? -1 : find_column(name) >= 0;
}
herr_t H5Lget_info(hid_t id, const char *name, H5L_info_t *info, hid_t list)
{
    (void)list;
    info->type = (H5L_type_t)answer(find_column(name), LINK, H5L_TYPE_HARD);
    return !is_kind(id, FILE_ID) || fails() ? -1 : 0;
}

hid_t H5Dopen2(hid_t id, const char *name, hid_t list)
{
    return (void)list, is_kind(id, FILE_ID) ? open_handle(DATASET_ID, find_column(name)) : -1;
}
herr_t H5Dclose(hid_t id) { return close_handle(id); }

/* ---- types ---- */

hid_t H5Dget_type(hid_t id) { return open_handle(TYPE_ID, column_of(id)); }
hid_t H5Tget_super(hid_t type) { return open_handle(SUPER_ID, column_of(type)); }
herr_t H5Tclose(hid_t type) { return close_handle(type); }
static bool is_lists(int column) { return columns[column].c.spec.width == 0; }
H5T_class_t H5Tget_class(hid_t type)
{
    if (fails()) return H5T_NO_CLASS;
    if (is_kind(type, TYPE_ID) && is_lists(column_of(type))) return H5T_VLEN;
    return (H5T_class_t)answer(column_of(type), CLASS, H5T_INTEGER);
}
size_t H5Tget_size(hid_t type)
{
    return fails() ? 0 : (size_t)answer(column_of(type), SIZE, columns[column_of(type)].c.spec.bytes);
}
size_t H5Tget_precision(hid_t type)
{
    return (size_t)answer(column_of(type), PRECISION, 8 * (int64_t)H5Tget_size(type));
}
H5T_sign_t H5Tget_sign(hid_t type) { return (H5T_sign_t)answer(column_of(type), SIGN, H5T_SGN_2); }
H5T_order_t H5Tget_order(hid_t type) { return (H5T_order_t)answer(column_of(type), ORDER, H5T_ORDER_LE); }

/* ---- shapes ---- */

static int rank_of(int column) { return (int)answer(column, RANK, columns[column].c.spec.width > 1 ? 2 : 1); }
static hsize_t dimension(int column, int i)
{
    return i == 0 ? (hsize_t)answer(column, ROWS, columns[column].c.rows)
                  : (hsize_t)answer(column, WIDTH, columns[column].c.spec.width);
}
hid_t H5Dget_space(hid_t id) { return open_handle(SPACE_ID, column_of(id)); }
H5S_class_t H5Sget_simple_extent_type(hid_t space)
{
    return fails() ? H5S_NO_CLASS : (H5S_class_t)answer(column_of(space), EXTENT, H5S_SIMPLE);
}
int H5Sget_simple_extent_ndims(hid_t space) { return space < 0 || fails() ? -1 : rank_of(column_of(space)); }
int H5Sget_simple_extent_dims(hid_t space, hsize_t *dims, hsize_t *most)
{
    int rank = rank_of(column_of(space));
    CHECK(rank <= 2 && !most, "room for %d dimensions", rank);
    for (int i = 0; i < rank; i++) dims[i] = dimension(column_of(space), i);
    return rank;
}
hid_t H5Screate_simple(int rank, const hsize_t *dims, const hsize_t *most)
{
    if (rank < 0) return -1;
    CHECK(rank <= 2 && !most, "%d dimensions", rank);
    in_memory = 1;
    for (int i = 0; i < rank; i++) in_memory *= dims[i];
    return open_handle(MEMORY_ID, 0);
}
herr_t H5Sselect_hyperslab(hid_t space, H5S_seloper_t how, const hsize_t *from, const hsize_t *stride,
                           const hsize_t *count, const hsize_t *block)
{
    (void)how, (void)stride, (void)block;
    if (space < 0 || fails()) return -1;
    int column = column_of(space), rank = rank_of(column);
    CHECK(from[0] + count[0] <= dimension(column, 0), "rows that the column does not have");
    CHECK(rank < 2 || from[1] + count[1] <= dimension(column, 1), "numbers that the rows do not have");
    first_row = from[0];
    selected = count[0] * (rank < 2 ? 1 : count[1]);
    return 0;
}
herr_t H5Sclose(hid_t space) { return close_handle(space); }

/* ---- storage ---- */

hid_t H5Dget_create_plist(hid_t id) { return open_handle(MADE_ID, column_of(id)); }
static bool is_packed(int column) { return gzip && !is_lists(column); }
H5D_layout_t H5Pget_layout(hid_t made)
{
    int column = column_of(made);
    return (H5D_layout_t)answer(column, LAYOUT, is_packed(column) ? H5D_CHUNKED : H5D_CONTIGUOUS);
}
int H5Pget_nfilters(hid_t made)
{
    return fails() ? -1 : (int)answer(column_of(made), FILTERS, is_packed(column_of(made))) % 4;
}
H5Z_filter_t H5Pget_filter2(hid_t made, unsigned i, unsigned *flags, size_t *n, unsigned *values, size_t room,
                            char *name, unsigned *config)
{
    (void)i, (void)values, (void)room, (void)name;
    *flags = *config = 0;
    *n = 0;
    return fails() ? H5Z_FILTER_ERROR : (H5Z_filter_t)answer(column_of(made), FILTER, H5Z_FILTER_DEFLATE);
}
int H5Pget_external_count(hid_t made) { return fails() ? -1 : (int)answer(column_of(made), EXTERNAL, 0); }
static hsize_t chunk_rows(int column)
{
    int64_t rows = columns[column].c.rows;
    return (hsize_t)answer(column, CHUNK_ROWS, rows < CHUNK ? rows : CHUNK);
}
int H5Pget_chunk(hid_t made, int most, hsize_t *dims)
{
    int column = column_of(made), rank = (int)answer(column, CHUNK_RANK, rank_of(column));
    if (fails()) return -1;
    if (rank > 0 && most > 0) dims[0] = chunk_rows(column);
    if (rank > 1 && most > 1) dims[1] = (hsize_t)answer(column, CHUNK_WIDTH, columns[column].c.spec.width);
    return rank;
}
haddr_t H5Dget_offset(hid_t id)
{
    uint64_t usual = columns[column_of(id)].descriptors + (uint64_t)answer(0, USERBLOCK, 0);
    return fails() ? HADDR_UNDEF : (haddr_t)answer(column_of(id), OFFSET, (int64_t)usual);
}
herr_t H5Dget_chunk_storage_size(hid_t id, const hsize_t *at, hsize_t *bytes)
{
    (void)at;
    *bytes = (hsize_t)answer(column_of(id), STORED, (int64_t)chunk_rows(column_of(id)) * HEAP_DESCRIPTOR);
    return fails() ? -1 : 0;
}
static haddr_t chunk_place(int column, hsize_t row)
{
    return (haddr_t)answer(column, PLACE, (int64_t)columns[column].descriptors) + row * HEAP_DESCRIPTOR;
}
herr_t H5Dget_chunk_info_by_coord(hid_t id, const hsize_t *at, unsigned *mask, haddr_t *place, hsize_t *bytes)
{
    *mask = 0;
    *place = fails() || answer(column_of(id), PLACE_UNKNOWN, 0) ? HADDR_UNDEF : chunk_place(column_of(id), at[0]);
    return H5Dget_chunk_storage_size(id, at, bytes);
}

/* ---- numbers ---- */

herr_t H5Dread_chunk(hid_t id, hid_t list, const hsize_t *at, uint32_t *mask, void *out)
{
    hsize_t bytes;
    haddr_t place = chunk_place(column_of(id), at[0]);
    (void)list;
    *mask = 0;
    if (H5Dget_chunk_storage_size(id, at, &bytes) < 0 || place > file_bytes || bytes > file_bytes - place) return -1;
    memcpy(out, file + place, bytes);
    return 0;
}
herr_t H5Dread(hid_t id, hid_t type, hid_t memory, hid_t space, hid_t list, void *out)
{
    int32_t *numbers = out;
    int column = column_of(id);
    (void)type, (void)list;
    if (memory < 0 || space < 0 || fails()) return -1;
    CHECK(in_memory == selected, "room for %llu numbers of %llu", (unsigned long long)in_memory,
          (unsigned long long)selected);
    uint64_t from = first_row * (rank_of(column) < 2 ? 1 : dimension(column, 1));
    uint64_t n = (uint64_t)columns[column].offset[columns[column].c.rows];
    for (uint64_t i = 0; i < selected; i++) numbers[i] = from + i < n ? columns[column].values[from + i] : 0;
    return 0;
}

/* ---- the file and the input ---- */

static void put(uint64_t x, int bytes)
{
    CHECK(file_bytes + (size_t)bytes <= MOST_FILE, "room in the file");
    for (int i = 0; i < bytes; i++) file[file_bytes++] = i < 8 ? (uint8_t)(x >> 8 * i) : 0;
}

/* A column of lists: descriptors, then a heap that has the numbers. */
static void put_lists(int column)
{
    const int64_t *offset = columns[column].offset;
    int64_t rows = columns[column].c.rows, bytes = columns[column].c.spec.bytes;
    uint64_t heap = file_bytes + (uint64_t)rows * HEAP_DESCRIPTOR, size = 32;
    columns[column].descriptors = file_bytes;
    for (int64_t row = 0; row < rows; row++) {
        uint64_t n = (uint64_t)(offset[row + 1] - offset[row]);
        put(n, 4);
        put(n ? heap : 0, 8);
        put(n ? (uint64_t)row + 1 : 0, 4);
        if (n) size += 16 + (n * (uint64_t)bytes + 7) / 8 * 8;
    }
    put(0x014c4f4347, 8); /* GCOL, version 1 */
    put(size, 8);
    for (int64_t row = 0; row < rows; row++) {
        uint64_t used = (uint64_t)(offset[row + 1] - offset[row]) * (uint64_t)bytes;
        if (used == 0) continue;
        put((uint64_t)row + 1, 8);
        put(used, 8);
        for (int64_t k = offset[row]; k < offset[row + 1]; k++) put((uint32_t)columns[column].values[k], (int)bytes);
        put(0, (int)(-used % 8));
    }
    put(0, 16);
}

/* As numbers of so many bytes, signed, come back from a file. */
static int32_t narrowed(int32_t x, int bytes) { return bytes == 1 ? (int8_t)x : bytes == 2 ? (int16_t)x : x; }

static void take_shard(Input *in)
{
    Column taken[MOST_COLUMNS];
    int64_t rows;
    n_columns = take_columns(in, taken, &rows);
    gzip = byte(in) % 2;
    file_bytes = 16; /* an address of 0 means none */
    for (int i = 0; i < n_columns; i++) {
        columns[i].c = taken[i];
        take_rows(in, &taken[i], columns[i].values, columns[i].offset);
        for (int64_t k = 0; k < columns[i].offset[taken[i].rows]; k++)
            columns[i].values[k] = narrowed(columns[i].values[k], taken[i].spec.bytes);
        if (taken[i].spec.width == 0)
            put_lists(i);
        else if (!gzip) /* room, for H5Dread has the numbers */
            put(0, (int)columns[i].offset[taken[i].rows] * taken[i].spec.bytes);
    }
}

/* Changed bytes of the file, its end, the call that fails, then answers: a column, what, and a number with its shift.
 */
static void take_changes(Input *in)
{
    for (uint32_t n = byte(in) % 8; n > 0; n--) {
        size_t at = byte(in) | byte(in) << 8;
        file[at % file_bytes] = (uint8_t)byte(in);
    }
    if (byte(in) % 2) file_bytes = number(in) % file_bytes;
    fails_at = (int)byte(in);
    for (int i = 0; i < MOST_COLUMNS; i++) memset(columns[i].is_other, 0, sizeof columns[i].is_other);
    for (int n = 0; n < 32 && in->at < in->end; n++) {
        uint32_t column = byte(in) % MOST_COLUMNS, what = byte(in) % N_ANSWERS;
        int64_t x = number(in);
        columns[column].is_other[what] = true;
        columns[column].other[what] = (int64_t)((uint64_t)x << byte(in) % 48);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    Input in = {data, data + size};
    log_set_level(LOG_ERROR);
    if (fd < 0) {
        fd = memfd_create("shard", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    take_shard(&in);
    take_changes(&in);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)file_bytes) == 0 && pwrite(fd, file, file_bytes, 0) == (ssize_t)file_bytes,
          "a file in memory");
    check_shard(path);
    CHECK(handles == 0, "%d handles are still open", handles);
    return 0;
}
