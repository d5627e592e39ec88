/* The files of a folder, their blocks, and reading in file order. */
#include "data/shards.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parallel.h"
#include "data/shards_internal.h"

#define PIECES      16
#define PIECE_BYTES 65536

#define DEFAULT_FRACTION 0.15

/* ---- files ---- */

/* By its name, or by its first bytes: MLPerf's packed shards have no suffix. */
static bool is_shard(const char *path)
{
    static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    const char *name = file_basename(path), *ending = strrchr(name, '.');
    uint8_t first[8];
    struct stat info;
    if (name[0] == '.' || strstr(name, ".tmp.") || stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    if (ending && (strcmp(ending, ".hdf5") == 0 || strcmp(ending, ".h5") == 0)) return true;
    int fd = file_open(path, O_RDONLY);
    bool found = fd >= 0 && read(fd, first, sizeof first) == sizeof first && memcmp(first, signature, 8) == 0;
    if (fd >= 0) close(fd);
    return found;
}

static Status find_files(Shards *s, const char *dir)
{
    FileList list;
    int cap = 0;
    if (!file_is_directory(dir)) {
        MEM_PUSH(s->paths, s->n_files, cap, mem_strdup(dir));
        return OK;
    }
    TRY(file_list(dir, &list));
    for (int i = 0; i < list.count; i++) {
        if (!is_shard(list.paths[i])) continue;
        MEM_PUSH(s->paths, s->n_files, cap, mem_strdup(list.paths[i]));
    }
    file_list_free(&list);
    if (s->n_files > 0) return OK;
    return fail(E_FORMAT, "%s: no shards in it; expected HDF5 files, as `cairn shards` writes them", dir);
}

/* ---- blocks ---- */

static Status add_blocks(Shards *s, int file, ShardFile *f)
{
    int64_t unit = f->unit, rows = unit >= SHARDS_BLOCK_ROWS ? unit : SHARDS_BLOCK_ROWS / unit * unit;
    Status status = OK;
    if (rows > SHARDS_MOST_ROWS) rows = SHARDS_MOST_ROWS;
    int32_t *counts = mem_array((size_t)rows, sizeof *counts);
    for (int64_t first = 0; first < f->rows; first += rows) {
        int64_t n = f->rows - first < rows ? f->rows - first : rows, sequences = 0;
        TRY_DONE(shard_counts(f, first, n, counts));
        for (int64_t i = 0; i < n; i++) sequences += counts[i];
        MEM_PUSH(s->blocks, s->n_blocks, s->cap_blocks,
                 (ShardBlock){file, (int32_t)n, (int32_t)sequences, first, s->count});
        s->count += sequences;
    }
done:
    free(counts);
    return status;
}

/* Pieces of a file, evenly over its length. */
static Status digest_pieces(const char *path, DigestStream *d)
{
    uint64_t size;
    Status status = OK;
    TRY(file_size(path, &size));
    int fd;
    TRY(file_open_regular(path, O_RDONLY, &fd));
    uint8_t *piece = mem_alloc(PIECE_BYTES);
    const char *name = file_basename(path);
    digest_update(d, name, strlen(name) + 1);
    digest_update(d, &size, sizeof size);
    uint64_t pieces = size / PIECE_BYTES < PIECES ? size / PIECE_BYTES + 1 : PIECES;
    for (uint64_t i = 0; i < pieces; i++) {
        uint64_t at = pieces > 1 ? (size - PIECE_BYTES) / (pieces - 1) * i : 0;
        ssize_t got = pread(fd, piece, PIECE_BYTES, (off_t)at);
        if (got < 0) TRY_DONE(fail(E_IO, "%s: %m", path));
        digest_update(d, piece, (size_t)got);
    }
done:
    free(piece);
    close(fd);
    return status;
}

/* Logs the contents of the folder, and refuses options that do not go with it. */
static Status check_folder(const Shards *s, const char *dir, const int layouts[N_SHARD_LAYOUTS])
{
    bool drawn = s->o.dynamic_masking || s->n_masked < s->n_files;
    Buf said = {0};
    for (int i = 0; i < N_SHARD_LAYOUTS; i++)
        if (layouts[i]) buf_printf(&said, ", %d %s", layouts[i], shard_layout_name((ShardLayout)i));
    log_debug("%s: %lld sequences in %d shards%s; %s", dir, (long long)s->count, s->n_files, said.data,
              s->o.dynamic_masking || s->n_masked == 0 ? "masks are drawn each epoch"
              : s->n_masked == s->n_files              ? "masks as stored"
                                                       : "masks as stored, else drawn each epoch");
    buf_free(&said);
    if (!drawn && (s->o.whole_words || s->o.mask_fraction != DEFAULT_FRACTION))
        log_warn("%s: --whole-words and --mask-fraction are without effect: its masks are as stored; --masking dynamic "
                 "draws new ones",
                 dir);
    if (drawn && (s->o.stored_masks || !s->o.vocab))
        return fail(E_USAGE,
                    "%s: %d of its %d shards hold no masks, and none may be drawn: leave out --masking static, or make "
                    "the shards again with `cairn shards --masking static`",
                    dir, s->n_files - s->n_masked, s->n_files);
    return s->count ? OK : fail(E_FORMAT, "%s: its %d shards have no rows", dir, s->n_files);
}

static bool picks(const Shards *s) { return s->o.picked > 0 && s->o.picked < s->count; }

static Status open_files(Shards *s, const char *dir)
{
    int layouts[N_SHARD_LAYOUTS] = {0};
    DigestStream *d = digest_new();
    Status status = OK;
    for (int i = 0; i < s->n_files; i++) {
        ShardFile f;
        int64_t before = s->count;
        TRY_DONE(shard_open(&f, s->paths[i], s->limits));
        layouts[f.layout]++;
        s->n_masked += f.is_masked;
        status = add_blocks(s, i, &f);
        shard_close(&f);
        if (status != OK) goto done;
        if (s->count == before) log_warn("%s: no rows in it", s->paths[i]);
        TRY_DONE(digest_pieces(s->paths[i], d));
    }
    digest_update(d, &s->count, sizeof s->count);
    if (picks(s)) digest_update(d, &s->o.picked, sizeof s->o.picked);
    if (picks(s) && s->o.picked_first) digest_update(d, "first", 5);
    s->digest = digest_value(d);
    status = check_folder(s, dir, layouts);
done:
    digest_free(d);
    return status;
}

/* ---- life ---- */

Status shards_open(const char *dir, const ShardsOptions *o, Shards **out)
{
    Shards *s = mem_alloc(sizeof *s);
    Status status = OK;
    *out = NULL;
    s->o = *o;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (s->o.max_predictions == 0) s->o.max_predictions = (int)ceil(DEFAULT_FRACTION * o->max_length);
    if (s->o.mask_fraction == 0) s->o.mask_fraction = DEFAULT_FRACTION;
    if (o->vocab) {
        s->o.vocab_size = vocab_size(o->vocab);
        masking_init(&s->masking, o->vocab, o->seed, s->o.mask_fraction, s->o.max_predictions, o->whole_words);
    }
    s->limits = (ShardLimits){s->o.vocab_size, o->max_length, s->o.max_predictions,
                              o->vocab ? vocab_special(o->vocab).cls : -1};
    TRY_DONE(find_files(s, dir));
    TRY_DONE(shard_digests_read(s->paths, s->n_files, &s->digests));
    TRY_DONE(open_files(s, dir));
    TRY_DONE(shards_start(s));
done:
    if (status != OK) {
        shards_close(s);
        return status;
    }
    *out = s;
    return OK;
}

void shards_close(Shards *s)
{
    if (!s) return;
    shards_stop(s);
    shard_reader_free(&s->reader);
    sequences_free(&s->read);
    sequences_free(&s->range);
    masking_free(&s->masking);
    mem_free_texts(s->paths, s->n_files);
    MEM_FREE(s->blocks, s->digests);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

int64_t shards_count(const Shards *s) { return picks(s) ? s->o.picked : s->count; }
Digest shards_digest(const Shards *s) { return s->digest; }

/* ---- reading ---- */

/* The file among the open ones. It replaces the one whose last use is longest ago. */
static Status open_file(Shards *s, ShardReader *r, int32_t file, ShardFile **f)
{
    int oldest = 0;
    if (!r->clock)
        for (int i = 0; i < SHARDS_OPEN_FILES; i++) r->open[i].file = -1;
    r->clock++;
    for (int i = 0; i < SHARDS_OPEN_FILES; i++) {
        if (r->open[i].file == file) {
            r->open[i].used = r->clock;
            *f = &r->open[i].f;
            return OK;
        }
        if (r->open[i].used < r->open[oldest].used) oldest = i;
    }
    shard_close(&r->open[oldest].f);
    r->open[oldest].file = -1;
    TRY(shard_digest_check(s->paths[file], &s->digests[file]));
    TRY(shard_open(&r->open[oldest].f, s->paths[file], s->limits));
    r->open[oldest].file = file;
    r->open[oldest].used = r->clock;
    *f = &r->open[oldest].f;
    return OK;
}

Status shards_read_block(Shards *s, ShardReader *r, const ShardBlock *b, Sequences *out)
{
    ShardFile *f;
    int64_t before = out->e.count;
    TRY(open_file(s, r, b->file, &f));
    if (f->rows < b->first_row + b->rows)
        return fail(E_FORMAT, "%s: changed during the run: it had more than %lld rows at the start", s->paths[b->file],
                    (long long)f->rows);
    TRY(shard_read(f, b->first_row, b->rows, b->first, &r->rows, out));
    if (out->e.count - before != b->sequences)
        return fail(E_FORMAT, "%s: changed during the run: rows from %lld have %lld sequences, %d at the start",
                    s->paths[b->file], (long long)b->first_row, (long long)(out->e.count - before), b->sequences);
    return OK;
}

void shard_reader_free(ShardReader *r)
{
    for (int i = 0; i < SHARDS_OPEN_FILES; i++) shard_close(&r->open[i].f);
    shard_rows_free(&r->rows);
    free(r->scratch);
    *r = (ShardReader){0};
}

void shards_take(Shards *s, ShardReader *r, const Sequences *from, int64_t i, uint32_t epoch, Sequences *to)
{
    const Examples *e = &from->e;
    int64_t at = e->offset[i], length = e->offset[i + 1] - at, masks = e->masked_offset[i];
    int64_t stored = e->masked_offset[i + 1] - masks;
    bool drawn = s->o.dynamic_masking || !from->is_masked[i];
    int64_t k = sequences_add(to, length, drawn ? s->o.max_predictions : stored);
    int32_t *ids = to->e.ids + to->e.offset[k], *place = to->e.masked_place + to->e.masked_offset[k],
            *word = to->e.masked_label + to->e.masked_offset[k];
    memcpy(ids, e->ids + at, (size_t)length * sizeof *ids);
    memcpy(to->e.types + to->e.offset[k], e->types + at, (size_t)length);
    to->e.label[k] = e->label[i];
    to->sample[k] = from->sample[i];
    to->is_masked[k] = true;
    if (!drawn && stored == 0) return;
    if (!drawn) {
        memcpy(place, e->masked_place + masks, (size_t)stored * sizeof *place);
        memcpy(word, e->masked_label + masks, (size_t)stored * sizeof *word);
        return;
    }
    for (int64_t m = masks; m < masks + stored; m++) ids[e->masked_place[m]] = e->masked_label[m];
    if (!r->scratch) r->scratch = mem_array((size_t)s->o.max_length, sizeof *r->scratch);
    int chosen = masking_draw(&s->masking, (uint64_t)from->sample[i], epoch, ids, (int)length, place, word, r->scratch);
    to->e.masked_offset[k + 1] = to->e.masked_offset[k] + chosen;
}

typedef struct {
    Shards *s;
    const volatile sig_atomic_t *stop;
    pthread_mutex_t lock;
    int64_t block; /* the first bad one */
    int64_t longest;
    Status status;
    char *message;
} Checking;

static void check_blocks(void *arg, size_t begin, size_t end)
{
    Checking *c = arg;
    ShardReader reader = {0};
    Sequences rows = {0};
    int64_t longest = 0;
    for (size_t b = begin; b < end; b++) {
        sequences_clear(&rows);
        Status status = c->stop && *c->stop ? fail(E_STOPPED, "stopped while the shards were checked")
                                            : shards_read_block(c->s, &reader, &c->s->blocks[b], &rows);
        for (int64_t i = 0; i < rows.e.count; i++)
            if (example_length(&rows.e, i) > longest) longest = example_length(&rows.e, i);
        if (status == OK) continue;
        pthread_mutex_lock(&c->lock);
        if (c->status == OK || (int64_t)b < c->block) {
            free(c->message);
            c->block = (int64_t)b;
            c->status = status;
            c->message = mem_strdup(status_message());
        }
        pthread_mutex_unlock(&c->lock);
        break;
    }
    pthread_mutex_lock(&c->lock);
    if (longest > c->longest) c->longest = longest;
    pthread_mutex_unlock(&c->lock);
    shard_reader_free(&reader);
    sequences_free(&rows);
}

Status shards_check(Shards *s, const volatile sig_atomic_t *stop)
{
    Checking c = {.s = s, .stop = stop, .lock = PTHREAD_MUTEX_INITIALIZER};
    parallel_ranges((size_t)s->n_blocks, 16, check_blocks, &c);
    Status status = c.status == OK ? OK : fail(c.status, "%s", c.message);
    if (status == OK && 2 * c.longest <= s->o.max_length) /* phase 2 may have phase 1's shards */
        log_warn("%s: no sequence of this folder is longer than %lld tokens, --max-seq-length is %d; check that "
                 "these are the intended shards",
                 s->paths[0], (long long)c.longest, s->o.max_length);
    free(c.message);
    return status;
}

/* The number in the set of the i-th picked sequence. */
static int64_t picked_at(const Shards *s, int64_t i)
{
    return picks(s) && !s->o.picked_first ? i * s->count / s->o.picked : i;
}

Status shards_range(Shards *s, int64_t first, int64_t n, const Examples **e)
{
    int64_t count = shards_count(s);
    CHECK(first >= 0 && n >= 0 && first <= count && n <= count - first, "sequences %lld + %lld of %lld",
          (long long)first, (long long)n, (long long)count);
    sequences_clear(&s->range);
    sequences_reserve(&s->range, n, 0, 0);
    for (int64_t i = first; i < first + n; i++) {
        int64_t which = picked_at(s, i), held = s->read.e.count ? s->read.sample[0] : -1;
        if (held < 0 || which < held || which >= held + s->read.e.count) {
            int64_t b = shards_find(&s->blocks->first, sizeof *s->blocks, s->n_blocks, which);
            sequences_clear(&s->read);
            Status status = shards_read_block(s, &s->reader, &s->blocks[b], &s->read);
            if (status != OK) {
                sequences_clear(&s->read);
                return status;
            }
            held = s->blocks[b].first;
        }
        shards_take(s, &s->reader, &s->read, which - held, 0, &s->range);
    }
    *e = &s->range.e;
    return OK;
}
