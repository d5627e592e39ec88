/* Pass 1 writes documents of token ids, sorted by bucket, into chunk files. Pass 2 gathers a bucket from all of them.
 */
#include <fcntl.h>
#include <unistd.h>

#include "tasks/pretrain/shards/job.h"

#define WINDOW          (1 << 20)                    /* also the longest line */
#define LONGEST_SEARCH  ((uint64_t)4 << 20)          /* for an empty line, after a chunk's border */
#define DOCUMENT_TOKENS ((size_t)1 << 18)            /* longer documents are cut */
#define PART_TOKENS     ((size_t)1 << 13)            /* without pairs, where a cut costs nothing */
#define NARROW          256                          /* ids that are narrowed at once */
#define MAGIC           UINT64_C(0x31736b6e75686343) /* "Cchunks1" */

typedef struct ShardsDocument {
    uint64_t number;
    uint32_t bucket, sentences, tokens;
    size_t first_length, first_word; /* of `lengths`; of `words`, in ids */
} ShardsDocument;

void shards_worker_free(ShardsWorker *w)
{
    tokenizer_free(w->tokenizer);
    free(w->window);
    token_ids_free(&w->ids);
    buf_free(&w->words);
    MEM_FREE(w->lengths, w->documents);
    documents_free(&w->bucket);
    buf_free(&w->record);
    sequences_free(&w->sequences);
    MEM_FREE(w->rows, w->offset);
}

/* ---- lines ---- */

typedef struct {
    const char *path;
    int fd;
    uint64_t at, size; /* where `text` lies in the file */
    char *text;        // (WINDOW)
    size_t len, used;
} Lines;

static Status fill_window(Lines *l)
{
    memmove(l->text, l->text + l->used, l->len - l->used);
    l->at += l->used;
    l->len -= l->used;
    l->used = 0;
    ssize_t got = file_read_at(l->fd, l->at + l->len, l->text + l->len, WINDOW - l->len);
    if (got < 0) return fail(E_IO, "%s: %m", l->path);
    l->len += (size_t)got;
    return l->len == WINDOW || l->at + l->len >= l->size ? OK
                                                         : fail(E_IO, "%s: the file shrank while it was read", l->path);
}

static void seek_to(Lines *l, uint64_t at)
{
    l->at = at;
    l->len = l->used = 0;
}

/* The offset of the next line in the file. */
static uint64_t lines_offset(const Lines *l) { return l->at + l->used; }

/* The next line without its end; *line is NULL at the end of the file. A line longer than the window comes in pieces,
   cut after a blank where there is one. */
static Status next_line(Lines *l, const char **line, size_t *len, bool *cut)
{
    *line = NULL;
    *cut = false;
    char *end = memchr(l->text + l->used, '\n', l->len - l->used);
    if (!end) {
        TRY(fill_window(l));
        end = memchr(l->text, '\n', l->len);
    }
    size_t left = l->len - l->used;
    if (left == 0) return OK;
    *line = l->text + l->used;
    *len = end ? (size_t)(end - *line) : left;
    *cut = !end && lines_offset(l) + left < l->size;
    if (*cut) {
        const char *blank = memrchr(*line, ' ', left);
        if (blank && blank > *line)
            *len = (size_t)(blank - *line);
        else
            while (*len > 1 && ((*line)[*len - 1] & 0xc0) == 0x80) --*len; /* not within a character */
    }
    l->used += *len + (end != NULL);
    return OK;
}

static bool is_blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

/* Finds the first document after `from`: it follows an empty line, or any line if none is empty for long. So each
   document belongs to one chunk. */
static Status find_border(Lines *l, uint64_t from, uint64_t *at)
{
    const char *line;
    size_t len;
    bool cut, first = true;
    uint64_t fallback = 0;
    *at = from;
    if (from == 0 || from >= l->size) return OK;
    seek_to(l, from);
    while (lines_offset(l) - from < LONGEST_SEARCH) {
        TRY(next_line(l, &line, &len, &cut));
        if (!line) {
            *at = l->size;
            return OK;
        }
        if (!first && is_blank(line, len)) {
            *at = lines_offset(l);
            return OK;
        }
        if (!cut && !fallback) fallback = lines_offset(l); /* the first line began before `from` */
        first = cut;
    }
    *at = fallback ? fallback : from + LONGEST_SEARCH;
    return OK;
}

/* ---- documents ---- */

typedef struct {
    ShardsJob *j;
    ShardsWorker *w;
    ShardsChunkResult *r;
    int chunk;
    uint64_t hash; /* of the document's first sentence */
    bool open;
} Chunking;

/* With pairs the first line decides, so that copies of a document are on one side. Without, documents are held out at
   even distances, the first of a chunk among them, because own texts are often few and begin alike. */
static bool is_held_out(const Chunking *x)
{
    double fraction = x->j->eval_fraction, n = (double)x->w->n_documents;
    if (x->j->pairs.alone) return ceil((n + 1) * fraction) > ceil(n * fraction);
    return (double)(x->hash >> 11) * 0x1p-53 < fraction;
}

static void begin_document(Chunking *x, const char *line, size_t len, bool continues)
{
    ShardsWorker *w = x->w;
    const ShardsJob *j = x->j;
    if (!continues) x->hash = digest_of(line, len).lo;
    uint64_t number = (uint64_t)x->chunk << 24 | w->n_documents;
    Draws draw = draws(j->pairs.seed ^ PHILOX_PAIRS, UINT32_MAX, (uint32_t)number, (uint32_t)(number >> 32));
    bool held_out = is_held_out(x);
    uint32_t bucket = held_out ? (uint32_t)j->buckets + draw_below(&draw, (uint32_t)j->eval_buckets)
                               : draw_below(&draw, (uint32_t)j->buckets);
    MEM_PUSH(w->documents, w->n_documents, w->cap_documents,
             (ShardsDocument){number, bucket, 0, 0, w->n_lengths, w->words.len / (size_t)j->id_bytes});
    x->r->documents++;
    x->r->eval_documents += held_out;
    x->open = true;
}

static void add_sentence(Chunking *x, const char *line, size_t len)
{
    ShardsWorker *w = x->w;
    ShardsJob *j = x->j;
    if (text_utf8_error(line, len) >= 0) x->r->bad_lines++;
    w->ids.count = 0;
    tokenizer_encode(w->tokenizer, line, len, &w->ids);
    if (w->ids.count == 0) return;
    bool full = x->open && w->documents[w->n_documents - 1].tokens >= (j->pairs.alone ? PART_TOKENS : DOCUMENT_TOKENS);
    if (!x->open || full) begin_document(x, line, len, full);
    x->r->cut_documents += full && !j->pairs.alone;
    ShardsDocument *d = &w->documents[w->n_documents - 1];
    d->sentences++;
    d->tokens += (uint32_t)w->ids.count;
    MEM_PUSH(w->lengths, w->n_lengths, w->cap_lengths, (uint32_t)w->ids.count);
    if (j->id_bytes == 4) {
        buf_append(&w->words, w->ids.ids, w->ids.count * sizeof *w->ids.ids);
    } else {
        uint16_t narrow[NARROW];
        for (size_t at = 0, n; at < w->ids.count; at += n) {
            n = w->ids.count - at < NARROW ? w->ids.count - at : NARROW;
            for (size_t k = 0; k < n; k++) narrow[k] = (uint16_t)w->ids.ids[at + k];
            buf_append(&w->words, narrow, n * sizeof *narrow);
        }
    }
    x->r->sentences++;
    x->r->tokens += (int64_t)w->ids.count;
}

static Status read_chunk(Chunking *x, Lines *l, const ShardsChunk *chunk)
{
    uint64_t begin, end;
    const char *line;
    size_t len;
    bool cut;
    TRY(find_border(l, chunk->begin, &begin));
    TRY(find_border(l, chunk->end, &end));
    seek_to(l, begin);
    while (lines_offset(l) < end) {
        TRY(next_line(l, &line, &len, &cut));
        if (!line) break;
        x->r->cut_lines += cut;
        if (lines_offset(l) == len + 1 && len >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
            line += 3, len -= 3; /* a BOM */
        if (is_blank(line, len))
            x->open = x->open && cut;
        else
            add_sentence(x, line, len);
        if (*x->j->stop) return fail(E_STOPPED, "stopped; the same command resumes");
    }
    return OK;
}

/* ---- chunk files ---- */

/* 8 bytes magic, buckets + 1 offsets (8), then the documents, by bucket and number: number (8), sentences (4), tokens
   (4), each sentence's length (4), ids. In this machine's byte order, because no other machine reads them. */
static Status write_chunk(ShardsJob *j, ShardsWorker *w, int i, ShardsChunkResult *r)
{
    size_t buckets = (size_t)(j->buckets + j->eval_buckets), id_bytes = (size_t)j->id_bytes;
    uint64_t *offset = mem_array(buckets + 1, sizeof *offset), at = 8 + 8 * (buckets + 1), magic = MAGIC;
    size_t *first = mem_array(buckets + 1, sizeof *first), *order = mem_array(w->n_documents, sizeof *order);
    char *path = shards_chunk_path(j, i);
    FileWriter f;
    Status status = file_writer_open(&f, path);
    if (status != OK) goto done;
    for (size_t d = 0; d < w->n_documents; d++) {
        const ShardsDocument *x = &w->documents[d];
        offset[x->bucket + 1] += 16 + 4 * (uint64_t)x->sentences + id_bytes * x->tokens;
        first[x->bucket + 1]++;
    }
    offset[0] = at;
    for (size_t b = 0; b < buckets; b++) offset[b + 1] += offset[b], first[b + 1] += first[b];
    for (size_t d = 0; d < w->n_documents; d++) order[first[w->documents[d].bucket]++] = d;
    status = file_writer_write(&f, &magic, sizeof magic);
    if (status == OK) status = file_writer_write(&f, offset, (buckets + 1) * sizeof *offset);
    for (size_t k = 0; k < w->n_documents && status == OK; k++) {
        const ShardsDocument *x = &w->documents[order[k]];
        uint32_t counts[4] = {(uint32_t)x->number, (uint32_t)(x->number >> 32), x->sentences, x->tokens};
        status = file_writer_write(&f, counts, sizeof counts);
        if (status == OK) status = file_writer_write(&f, w->lengths + x->first_length, 4 * (size_t)x->sentences);
        if (status == OK)
            status = file_writer_write(&f, w->words.data + x->first_word * id_bytes, id_bytes * x->tokens);
    }
    if (status == OK)
        status = file_writer_close(&f, &r->digest, &r->size);
    else
        file_writer_abandon(&f);
done:
    MEM_FREE(path, offset, first, order);
    return status;
}

char *shards_chunk_path(const ShardsJob *j, int i) { return mem_printf("%s/chunk-%06d", j->unfinished, i); }

Status shards_chunk(ShardsJob *j, ShardsWorker *w, int i, ShardsChunkResult *r)
{
    const ShardsChunk *chunk = &j->chunks[i];
    Chunking x = {.j = j, .w = w, .r = r, .chunk = i};
    Lines l = {.path = j->inputs.paths[chunk->input], .size = j->sizes[chunk->input]};
    *r = (ShardsChunkResult){0};
    if (!w->window) w->window = mem_alloc(WINDOW);
    if (!w->tokenizer) w->tokenizer = tokenizer_new(j->tokenizer.vocab, j->tokenizer.options);
    l.text = w->window;
    w->words.len = w->n_lengths = w->n_documents = 0;
    TRY(file_open_regular(l.path, O_RDONLY, &l.fd));
    Status status = read_chunk(&x, &l, chunk);
    close(l.fd);
    return status == OK ? write_chunk(j, w, i, r) : status;
}

/* ---- gathering a bucket ---- */

static Status fail_damaged(const char *path)
{
    return fail(E_CORRUPT, "%s: damaged; remove the folder 'unfinished' and run the same command again", path);
}

static Status read_exactly(int fd, const char *path, uint64_t at, void *out, size_t n)
{
    ssize_t got = file_read_at(fd, at, out, n);
    if (got < 0) return fail(E_IO, "%s: %m", path);
    return (size_t)got == n ? OK : fail_damaged(path);
}

/* Widens n little-endian ids, as every machine that Cairn runs on has them; true if all are below limit. */
static bool widen(const char *from, size_t id_bytes, size_t n, uint32_t limit, int32_t *out)
{
    uint32_t most = 0;
    if (id_bytes == 4) {
        memcpy(out, from, 4 * n);
        for (size_t i = 0; i < n; i++) most = (uint32_t)out[i] > most ? (uint32_t)out[i] : most;
    } else {
        for (size_t i = 0; i < n; i++) {
            uint16_t id;
            memcpy(&id, from + 2 * i, sizeof id);
            out[i] = id;
            most = id > most ? id : most;
        }
    }
    return most < limit;
}

static Status parse_documents(const ShardsJob *j, const char *path, const Buf *record, Documents *d)
{
    size_t id_bytes = (size_t)j->id_bytes;
    uint32_t limit = (uint32_t)vocab_size(j->tokenizer.vocab);
    for (size_t at = 0; at < record->len;) {
        uint32_t counts[4], length;
        if (record->len - at < sizeof counts) return fail_damaged(path);
        memcpy(counts, record->data + at, sizeof counts);
        at += sizeof counts;
        size_t lengths = at, ids = at + 4 * (size_t)counts[2], end = ids + id_bytes * counts[3];
        if (ids > record->len || end > record->len) return fail_damaged(path);
        documents_begin(d, counts[0] | (uint64_t)counts[1] << 32);
        for (uint32_t s = 0; s < counts[2]; s++) {
            memcpy(&length, record->data + lengths + 4 * (size_t)s, 4);
            if (length == 0 || id_bytes * length > end - ids) return fail_damaged(path);
            int32_t *out = documents_sentence(d, length);
            if (!widen(record->data + ids, id_bytes, length, limit, out)) return fail_damaged(path);
            ids += id_bytes * length;
        }
        at = end;
    }
    return OK;
}

Status shards_gather(ShardsJob *j, ShardsWorker *w, int bucket, Documents *d)
{
    documents_clear(d);
    for (int i = 0; i < j->n_chunks; i++) {
        uint64_t offset[2], magic;
        char *path = shards_chunk_path(j, i);
        int fd;
        Status status = file_open_regular(path, O_RDONLY, &fd);
        if (status == OK) status = read_exactly(fd, path, 0, &magic, sizeof magic);
        if (status == OK) status = read_exactly(fd, path, 8 + 8 * (uint64_t)bucket, offset, sizeof offset);
        if (status == OK && (magic != MAGIC || offset[1] < offset[0] || offset[1] > j->chunked[i].size))
            status = fail_damaged(path);
        if (status == OK) {
            w->record.len = 0;
            buf_room(&w->record, offset[1] - offset[0]);
            w->record.len = offset[1] - offset[0];
            status = read_exactly(fd, path, offset[0], w->record.data, w->record.len);
        }
        if (status == OK) status = parse_documents(j, path, &w->record, d);
        if (fd >= 0) close(fd);
        free(path);
        if (status != OK) return status;
    }
    return OK;
}
