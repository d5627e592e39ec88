#include "tasks/pretrain/wiki/text_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "data/bz2.h"
#include "data/gz.h"
#include "data/records.h"
#include "tasks/pretrain/kind.h"

#define READ_BYTES   ((size_t)1 << 20)
#define PIECE_BYTES  ((size_t)1 << 20) /* of text, from plain and gz files */
#define BLOCK_TEXT   (4u << 20)        /* more than any block of real text; runs of one character reach 46 MB */
#define BLOCK_MOST   (48u << 20)
#define BLOCK_BYTES  ((uint64_t)4 << 20) /* packed; 900 kB of text never need more */
#define BLOCK_MAGIC  UINT64_C(0x314159265359)
#define END_MAGIC    UINT64_C(0x177245385090)
#define MAGIC_BITS   48
#define MOST_BETWEEN (32 + 7 + 32) /* bits between streams: checksum, padding, "BZh9" */
#define NO_BLOCK     UINT64_MAX

struct TextFile {
    char *path;
    int fd;
    Packing packing;
    uint64_t size, base; /* base: file offset of window.data[0] */
    Buf window;          /* unused bytes of the file, and 8 zeros */
    size_t used;         /* of the window */
    bool eof, ended;     /* ended: the last bytes were a complete end */
    uint64_t block;      /* bit of the file at which a block begins; NO_BLOCK */
    uint64_t scan;       /* bit of the file from which the search continues */
    uint64_t after;      /* bit of the file behind the last block or end of a stream */
    GzReader *gz;
    Records *records;
    char *column;
};

void text_piece_free(TextPiece *piece) { BUF_FREE(&piece->packed, &piece->text); }

Packing text_file_packing(const TextFile *file) { return file->packing; }

static Status read_some(TextFile *f)
{
    static const char zeros[8];
    if (f->used > 0) {
        memmove(f->window.data, f->window.data + f->used, f->window.len - f->used);
        f->base += f->used;
        f->window.len -= f->used;
        f->used = 0;
    }
    buf_room(&f->window, READ_BYTES + sizeof zeros);
    ssize_t n = file_read_some(f->fd, f->window.data + f->window.len, READ_BYTES);
    if (n < 0)
        return fail(E_IO, "%s: cannot read at byte %llu: %m", f->path, (unsigned long long)(f->base + f->window.len));
    f->eof = n == 0;
    f->window.len += (size_t)n;
    memcpy(f->window.data + f->window.len, zeros, sizeof zeros);
    return OK;
}

static Status detect(TextFile *f)
{
    TRY(read_some(f));
    Kind kind = kind_of(f->window.data, f->window.len);
    if (kind == KIND_BZ2) f->packing = PACKING_BZ2;
    if (kind == KIND_GZ) f->packing = PACKING_GZ;
    if (kind == KIND_GZ) return status_context(gz_open(&f->gz), "%s", f->path);
    if (kind == KIND_BZ2) return status_context(bz2_available(), "%s", f->path);
    if (kind == KIND_TEXT || kind == KIND_DUMP || kind == KIND_XML) return OK;
    return fail(E_FORMAT, "%s: %s, which is not supported; expected plain text, bz2 or gz. Unpack it first", f->path,
                kind_text(kind));
}

static Status open_records(TextFile *f)
{
    RecordsOptions o = {.columns = {f->column}, .n = 1};
    return records_open(&f->records, f->path, &o);
}

static bool holds_records(const char *path)
{
    RecordsForm form = records_form_of_name(path);
    return form == RECORDS_CSV || form == RECORDS_TSV || form == RECORDS_JSONL;
}

Status text_file_open(TextFile **file, const char *path, const char *column)
{
    uint64_t size;
    int fd;
    *file = NULL;
    TRY(file_size(path, &size));
    TRY(file_open_regular(path, O_RDONLY, &fd));
    TextFile *f = mem_alloc(sizeof *f);
    *f = (TextFile){.path = mem_strdup(path), .fd = fd, .size = size, .block = NO_BLOCK};
    f->column = mem_strdup(column);
    if (holds_records(path)) f->packing = PACKING_RECORDS;
    Status status = f->packing == PACKING_RECORDS ? open_records(f) : detect(f);
    if (status != OK)
        text_file_close(f);
    else
        *file = f;
    return status;
}

void text_file_close(TextFile *file)
{
    if (!file) return;
    gz_close(file->gz);
    records_close(file->records);
    free(file->column);
    close(file->fd);
    buf_free(&file->window);
    MEM_FREE(file->path, file);
}

Status text_file_seek(TextFile *f, uint64_t mark)
{
    uint64_t byte = f->packing == PACKING_BZ2 ? mark / 8 : mark;
    if (f->packing == PACKING_RECORDS) {
        CHECK(mark == 0, "records at mark %llu", (unsigned long long)mark);
        records_close(f->records);
        return open_records(f);
    }
    if (f->packing == PACKING_GZ && mark != 0)
        return fail(E_FAIL, "%s: a gz file cannot be entered at a mark", f->path);
    if (f->packing == PACKING_GZ) {
        gz_close(f->gz);
        TRY(gz_open(&f->gz));
    }
    if (lseek(f->fd, (off_t)byte, SEEK_SET) < 0)
        return fail(E_IO, "%s: cannot go to byte %llu: %m", f->path, (unsigned long long)byte);
    f->base = byte;
    f->window.len = f->used = 0;
    f->eof = f->ended = false;
    f->block = NO_BLOCK;
    f->scan = f->after = mark;
    return OK;
}

/* ---- bz2 ---- */

/* A bit per 16-bit value: set if a magic number, beginning at any bit, can have it as second and third byte. */
static uint8_t candidates[65536 / 8];
static pthread_once_t candidates_once = PTHREAD_ONCE_INIT;

static void make_candidates(void)
{
    for (int shift = 0; shift < 8; shift++) {
        uint32_t block = (uint32_t)(BLOCK_MAGIC >> (24 + shift)) & 0xFFFF;
        uint32_t end = (uint32_t)(END_MAGIC >> (24 + shift)) & 0xFFFF;
        candidates[block / 8] = (uint8_t)(candidates[block / 8] | 1u << block % 8);
        candidates[end / 8] = (uint8_t)(candidates[end / 8] | 1u << end % 8);
    }
}

uint64_t text_file_find_magic(const uint8_t *data, uint64_t from, uint64_t n_bits, bool *block)
{
    pthread_once(&candidates_once, make_candidates);
    for (uint64_t i = from / 8; 8 * i + MAGIC_BITS <= n_bits; i++) {
        uint32_t two = (uint32_t)data[i + 1] << 8 | data[i + 2];
        if (!(candidates[two / 8] >> two % 8 & 1)) continue;
        uint64_t eight = 0;
        for (int k = 0; k < 8; k++) eight = eight << 8 | data[i + (uint64_t)k];
        for (unsigned shift = 0; shift < 8; shift++) {
            uint64_t bit = 8 * i + shift, found = eight >> (16 - shift) & ((UINT64_C(1) << MAGIC_BITS) - 1);
            if (bit < from || bit + MAGIC_BITS > n_bits || (found != BLOCK_MAGIC && found != END_MAGIC)) continue;
            *block = found == BLOCK_MAGIC;
            return bit;
        }
    }
    return UINT64_MAX;
}

/* The block [f->block, end) of the file as a piece. */
static void make_block(TextFile *f, TextPiece *piece, uint64_t end, PieceState state)
{
    uint64_t first = f->block / 8, bytes = (end + 7) / 8 - first;
    piece->mark = f->block;
    piece->place = first;
    piece->read = end / 8;
    piece->first_bit = (unsigned)(f->block % 8);
    piece->n_bits = end - f->block;
    piece->state = state;
    piece->packed.len = 0;
    if (state == PIECE_WHOLE) buf_append(&piece->packed, f->window.data + (first - f->base), bytes);
}

static Status next_block(TextFile *f, TextPiece *piece, bool *end)
{
    for (;;) {
        uint64_t base = 8 * f->base, stop = base + 8 * (uint64_t)f->window.len;
        bool block = false;
        uint64_t found =
            f->window.len == 0 || f->scan < base
                ? UINT64_MAX
                : text_file_find_magic((const uint8_t *)f->window.data, f->scan - base, stop - base, &block);
        if (found != UINT64_MAX) {
            uint64_t bit = base + found, before = f->block;
            if (before == NO_BLOCK && bit - f->after > MOST_BETWEEN) { /* a magic number between is damaged */
                f->block = f->after;
                make_block(f, piece, bit, PIECE_BROKEN);
                f->block = NO_BLOCK;
                f->after = f->scan = bit;
                return OK;
            }
            f->scan = f->after = bit + MAGIC_BITS;
            f->ended = !block;
            if (before != NO_BLOCK) make_block(f, piece, bit, PIECE_WHOLE);
            f->block = block ? bit : NO_BLOCK;
            if (before != NO_BLOCK) return OK;
            continue;
        }
        if (f->eof) break;
        if (stop - base >= MAGIC_BITS && stop - MAGIC_BITS + 1 > f->scan) f->scan = stop - MAGIC_BITS + 1;
        if (f->block != NO_BLOCK && stop - f->block > 8 * BLOCK_BYTES) { /* the next magic number is damaged */
            make_block(f, piece, stop, PIECE_BROKEN);
            f->block = NO_BLOCK;
            f->after = stop;
            return OK;
        }
        uint64_t keep = (f->block != NO_BLOCK && f->block < f->scan ? f->block : f->scan) / 8;
        if (keep > f->base) f->used = keep - f->base < f->window.len ? (size_t)(keep - f->base) : f->window.len;
        TRY(read_some(f));
    }
    *end = f->block == NO_BLOCK && f->ended;
    if (*end) return OK;
    if (f->block == NO_BLOCK) f->block = 8 * (f->base + f->window.len);
    make_block(f, piece, 8 * (f->base + f->window.len), PIECE_CUT);
    f->block = NO_BLOCK;
    f->ended = true;
    return OK;
}

void text_piece_unpack(TextPiece *piece, bool alone)
{
    if (piece->packing != PACKING_BZ2 || piece->state != PIECE_WHOLE) return;
    Status status = bz2_unpack_block((const uint8_t *)piece->packed.data, piece->first_bit, piece->n_bits,
                                     alone ? BLOCK_MOST : BLOCK_TEXT, &piece->text);
    piece->big = status == E_MEMORY && !alone;
    if (status != OK && !piece->big) piece->state = PIECE_BROKEN;
}

/* ---- gz and plain ---- */

static Status next_gz(TextFile *f, TextPiece *piece, bool *end)
{
    piece->place = f->base + f->used;
    for (;;) {
        const uint8_t *data = (const uint8_t *)f->window.data + f->used;
        size_t len = f->window.len - f->used;
        bool ended = false;
        Status status = f->ended ? OK : gz_read(f->gz, &data, &len, PIECE_BYTES, &piece->text, &ended);
        f->used = f->window.len - len;
        piece->read = f->base + f->used;
        if (status != OK) { /* the rest cannot be unpacked */
            f->ended = f->eof = true;
            piece->state = PIECE_CUT;
            return OK;
        }
        if (piece->text.len > 0) return OK;
        if (f->eof) {
            *end = f->ended || ended;
            if (!*end) piece->state = PIECE_CUT;
            f->ended = true;
            return OK;
        }
        TRY(read_some(f));
    }
}

static Status next_plain(TextFile *f, TextPiece *piece, bool *end)
{
    if (f->used == f->window.len) TRY(read_some(f));
    piece->mark = piece->place = f->base + f->used;
    buf_append(&piece->text, f->window.data + f->used, f->window.len - f->used);
    f->used = f->window.len;
    piece->read = f->base + f->used;
    *end = piece->text.len == 0;
    return OK;
}

/* Two blank lines end a document of paragraphs. */
static Status next_records(TextFile *f, TextPiece *piece, bool *end)
{
    const Record *row;
    while (piece->text.len < PIECE_BYTES) {
        TRY(records_next(f->records, &row));
        if (!row) break;
        buf_append(&piece->text, row->texts[0].p, row->texts[0].len);
        buf_puts(&piece->text, "\n\n\n");
    }
    piece->place = f->base;
    f->base += piece->text.len; /* of the text; the file's place is unknown */
    piece->read = f->base < f->size ? f->base : f->size;
    *end = piece->text.len == 0;
    if (*end) records_warn_quotes(f->records);
    return OK;
}

Status text_file_next(TextFile *f, TextPiece *piece, bool *end)
{
    *end = false;
    piece->packing = f->packing;
    piece->state = PIECE_WHOLE;
    piece->big = false;
    piece->mark = 0;
    piece->text.len = 0;
    return f->packing == PACKING_BZ2       ? next_block(f, piece, end)
           : f->packing == PACKING_GZ      ? next_gz(f, piece, end)
           : f->packing == PACKING_RECORDS ? next_records(f, piece, end)
                                           : next_plain(f, piece, end);
}
