/* The order of an epoch, and the thread that makes batches.

   Blocks are permuted; a number of consecutive blocks of that order form a window; the sequences of a window are
   permuted as one. A set that is one window is permuted whole. */

#include "base/thread.h"
#include "data/shards_internal.h"

#define GOLDEN        UINT64_C(0x9e3779b97f4a7c15)
#define LENGTH_SPREAD 1.05 /* of a window's mean length around that of all */

/* ---- the order ---- */

/* Block k of an epoch's order. One window: in file order, so that it can stay for all epochs. */
static int64_t ordered_block(const Shards *s, int64_t epoch, int64_t k)
{
    if (s->n_windows == 1) return k;
    Permutation p = permutation(~s->o.seed, (uint32_t)epoch, s->n_blocks);
    return permutation_at(&p, k);
}

static int64_t blocks_in(const Shards *s, int64_t window)
{
    int64_t left = s->n_blocks - window * s->window_blocks;
    return left < s->window_blocks ? left : s->window_blocks;
}

/* Finds the first sequence of each window of the epoch, from the place of every block. */
static void make_order(Shards *s, int64_t epoch)
{
    if (s->order_epoch == epoch) return;
    s->order_epoch = epoch;
    for (int64_t w = 0, k = 0, at = 0; w < s->n_windows; w++) {
        s->window_first[w] = at;
        for (int64_t end = k + blocks_in(s, w); k < end; k++) at += s->blocks[ordered_block(s, epoch, k)].sequences;
    }
    s->window_first[s->n_windows] = s->count;
}

/* ---- windows ---- */

static Status load_block(Shards *s, ShardWindow *w)
{
    int64_t k = w->index * s->window_blocks + w->loaded;
    TRY(shards_read_block(s, &s->thread_reader, &s->blocks[ordered_block(s, w->epoch, k)], &w->sequences));
    w->loaded++;
    return OK;
}

/* The window; a new one replaces the one that was not used last. */
static ShardWindow *begin_window(Shards *s, int64_t epoch, int64_t index)
{
    for (int i = 0; i < 2; i++)
        if (s->windows[i].index == index && (s->windows[i].epoch == epoch || s->n_windows == 1)) return &s->windows[i];
    ShardWindow *w = &s->windows[1 - s->last_window];
    w->epoch = epoch;
    w->index = index;
    w->n_blocks = blocks_in(s, index);
    w->loaded = 0;
    sequences_clear(&w->sequences);
    return w;
}

static Status whole_window(Shards *s, int64_t epoch, int64_t index, ShardWindow **out)
{
    ShardWindow *w = begin_window(s, epoch, index);
    s->last_window = (int)(w - s->windows);
    while (w->loaded < w->n_blocks) {
        Status status = load_block(s, w);
        if (status != OK) {
            w->index = -1;
            return status;
        }
    }
    *out = w;
    return OK;
}

/* Reads one block of the window after the one in use; false if there is nothing to do. An error is ignored here: it
   occurs again, and is reported, when the window is needed. */
static bool read_ahead(Shards *s)
{
    const ShardWindow *now = &s->windows[s->last_window];
    if (s->n_windows == 1 || now->index < 0) return false;
    bool last = now->index + 1 == s->n_windows;
    ShardWindow *w = begin_window(s, now->epoch + last, last ? 0 : now->index + 1);
    if (w->loaded == w->n_blocks) return false;
    if (load_block(s, w) == OK) return true;
    w->index = -1;
    return false;
}

/* ---- batches ---- */

static Status make_batch(Shards *s, int64_t batch, Sequences *out)
{
    int64_t size = s->o.batch_size, per_epoch = batches_per_epoch(s->count, size), epoch = batch / per_epoch;
    int64_t at = batch % per_epoch * size, end = at + size < s->count ? at + size : s->count;
    sequences_clear(out);
    sequences_reserve(out, end - at, 0, 0);
    make_order(s, epoch);
    while (at < end) {
        int64_t index = shards_find(s->window_first, sizeof *s->window_first, s->n_windows, at),
                first = s->window_first[index], next = s->window_first[index + 1];
        ShardWindow *w;
        TRY(whole_window(s, epoch, index, &w));
        Permutation p = permutation(s->o.seed ^ (uint64_t)index * GOLDEN, (uint32_t)epoch, next - first);
        for (; at < end && at < next; at++)
            shards_take(s, &s->thread_reader, &w->sequences, permutation_at(&p, at - first), (uint32_t)epoch, out);
    }
    return OK;
}

static ShardSlot *wanted_slot(Shards *s)
{
    for (int i = 0; i < 3; i++)
        if (s->slots[i].state == SLOT_WANTED) return &s->slots[i];
    return NULL;
}

static void *make_batches(void *arg)
{
    Shards *s = arg;
    bool ahead = false; /* false: nothing to read until the next batch */
    pthread_mutex_lock(&s->lock);
    while (!s->quit) {
        ShardSlot *slot = wanted_slot(s);
        if (!slot && ahead) {
            pthread_mutex_unlock(&s->lock);
            ahead = read_ahead(s);
            pthread_mutex_lock(&s->lock);
            continue;
        }
        if (!slot) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        slot->state = SLOT_BUSY;
        pthread_mutex_unlock(&s->lock);
        double start = clock_monotonic();
        Status status = make_batch(s, slot->batch, &slot->sequences);
        double seconds = clock_monotonic() - start;
        free(slot->message);
        slot->message = status == OK ? NULL : mem_strdup(status_message());
        pthread_mutex_lock(&s->lock);
        slot->status = status;
        slot->state = SLOT_READY;
        s->work.busy += seconds;
        if (status == OK) s->work.tokens += slot->sequences.e.offset[slot->sequences.e.count];
        ahead = status == OK;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Under the lock. */
static void request_batch(Shards *s, ShardSlot *slot, int64_t batch)
{
    slot->batch = batch;
    slot->state = SLOT_WANTED;
    pthread_cond_broadcast(&s->changed);
}

Status shards_step(Shards *s, int64_t batch, const Examples **e)
{
    ShardSlot *slot = &s->slots[s->next];
    double start = clock_monotonic();
    CHECK(batch >= 0, "batch %lld", (long long)batch);
    pthread_mutex_lock(&s->lock);
    while (slot->state == SLOT_BUSY) pthread_cond_wait(&s->changed, &s->lock);
    if (slot->batch != batch || slot->state == SLOT_EMPTY) request_batch(s, slot, batch);
    while (slot->state != SLOT_READY) pthread_cond_wait(&s->changed, &s->lock);
    s->work.waited += clock_monotonic() - start;
    Status status = slot->status;
    if (status == OK) {
        s->next = (s->next + 1) % 3;
        request_batch(s, &s->slots[s->next], batch + 1);
    } else {
        slot->state = SLOT_EMPTY; /* the next call tries again */
    }
    pthread_mutex_unlock(&s->lock);
    if (status != OK) return fail(status, "%s", slot->message);
    *e = &slot->sequences.e;
    return OK;
}

static Status source_step(void *self, int64_t batch, const Examples **examples, int64_t *index, int64_t *n)
{
    TRY(shards_step(self, batch, examples));
    *n = (*examples)->count;
    for (int64_t i = 0; i < *n; i++) index[i] = i;
    return OK;
}

ExampleSource shards_source(Shards *s) { return (ExampleSource){s, s->count, source_step}; }

/* Bytes of so many sequences, of which each has up to `masks` masked positions. */
static double bytes_of(double sequences, double length, double masks)
{
    double token = sizeof(int32_t) + sizeof(uint8_t), mask = 2 * sizeof(int32_t);
    double other = 3 * sizeof(int64_t) + sizeof(int32_t) + sizeof(bool); /* offsets, number, label, is_masked */
    return sequences * (length * token + masks * mask + other);
}

/* What the memory depends on. */
typedef struct {
    double files, count, rows;       /* rows: sequences of a block */
    double longest, length;          /* of a sequence: any, and on average */
    double masks, stored;            /* of a sequence: drawn, and in the files */
    double batch, window, n_windows; /* sequences; windows in all */
} Sizes;

static size_t memory_of(const Sizes *z, bool steps)
{
    enum { WIDE_COLUMNS = 3, KEPT_BY_CALLERS = 128 };
    double open = fmin(z->files, SHARDS_OPEN_FILES) * (double)SHARDS_OPEN_BYTES;
    double as_read = z->rows * z->longest * WIDE_COLUMNS * sizeof(int32_t) + open;
    if (!steps) return (size_t)(as_read + bytes_of(2 * z->rows, z->length, z->masks));
    double window = fmin(z->window, z->count), batch = fmin(z->batch, z->count);
    return (size_t)(as_read + bytes_of((z->n_windows > 1 ? 2 : 1) * window, z->length, z->stored) +
                    bytes_of(3 * batch, z->length, z->masks) + batch * KEPT_BY_CALLERS);
}

size_t shards_memory(const Shards *s, double mean_length, bool steps)
{
    Sizes z = {.files = s->n_files,
               .count = (double)s->count,
               .rows = 1,
               .longest = (double)s->o.max_length,
               .batch = (double)s->o.batch_size,
               .n_windows = (double)s->n_windows};
    z.length = fmin(LENGTH_SPREAD * mean_length, z.longest);
    z.masks = fmin((double)s->o.max_predictions, z.length);
    z.stored = s->n_masked ? z.masks : 0;
    for (int64_t i = 0; i < s->n_blocks; i++) z.rows = fmax(z.rows, (double)s->blocks[i].sequences);
    z.window = (double)s->window_blocks * z.rows;
    return memory_of(&z, steps);
}

size_t shards_memory_most(const ShardsOptions *o, double tokens, double files, bool steps)
{
    double longest = (double)o->max_length;
    Sizes z = {.files = files,
               .count = ceil(tokens / longest),
               .rows = SHARDS_BLOCK_ROWS,
               .longest = longest,
               .length = longest,
               .masks = (double)o->max_predictions,
               .stored = (double)o->max_predictions,
               .batch = (double)o->batch_size,
               .window = fmax(SHARDS_WINDOW_TOKENS / longest, SHARDS_BLOCK_ROWS)};
    z.n_windows = z.count / z.window;
    return memory_of(&z, steps);
}

ShardsWork shards_work(Shards *s)
{
    pthread_mutex_lock(&s->lock);
    ShardsWork work = s->work;
    pthread_mutex_unlock(&s->lock);
    return work;
}

/* ---- the thread ---- */

Status shards_start(Shards *s)
{
    CHECK(s->o.batch_size > 0 && s->o.max_length > 0, "batch size and length");
    int64_t rows = s->blocks[0].rows;
    for (int64_t i = 0; i < s->n_blocks; i++)
        if (s->blocks[i].sequences > rows) rows = s->blocks[i].sequences;
    s->window_blocks = SHARDS_WINDOW_TOKENS / (rows * s->o.max_length);
    if (s->window_blocks < 1) s->window_blocks = 1;
    s->n_windows = (s->n_blocks + s->window_blocks - 1) / s->window_blocks;
    s->window_first = mem_array((size_t)s->n_windows + 1, sizeof *s->window_first);
    s->order_epoch = s->windows[0].index = s->windows[1].index = -1;
    for (int i = 0; i < 3; i++) s->slots[i].batch = -1;
    Status status = thread_start(&s->thread, make_batches, s);
    s->started = status == OK;
    return status_context(status, "the thread that reads shards");
}

void shards_stop(Shards *s)
{
    if (s->started) {
        pthread_mutex_lock(&s->lock);
        s->quit = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (int i = 0; i < 3; i++) {
        sequences_free(&s->slots[i].sequences);
        free(s->slots[i].message);
    }
    for (int i = 0; i < 2; i++) sequences_free(&s->windows[i].sequences);
    shard_reader_free(&s->thread_reader);
    free(s->window_first);
}
