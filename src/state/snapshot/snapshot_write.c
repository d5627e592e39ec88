/* Copies the state into a slot in the background. Safety under a kill depends on the order of writes to a slot: mark it
   invalid, change its contents, then store the matching digest. A dying process neither reverts nor skips a store, so
   plain stores suffice. */
#include "state/snapshot/snapshot_internal.h"

#include <stdatomic.h>
#include <time.h>

#include "base/mapping.h"
#include "base/stream_copy.h"
#include "base/thread.h"

SnapshotMark *snapshot_mark(const Snapshot *s, int slot)
{
    return (SnapshotMark *)(void *)(s->data + s->header->slot_offset[slot]);
}

static float *slot_array(const Snapshot *s, int slot, int array)
{
    return (float *)(void *)(s->data + s->header->slot_offset[slot] + snapshot_array_offset(s->header, array));
}

/* Orders stores before the call ahead of those after it. */
static void fence_stores(void) { atomic_thread_fence(memory_order_seq_cst); }

static void invalidate(Snapshot *s, int slot)
{
    ((volatile SnapshotMark *)snapshot_mark(s, slot))->generation = 0;
    fence_stores();
}

/* The slot that does not hold `keep`: an invalid one, else the older. */
static int choose_slot(const Snapshot *s, int64_t keep)
{
    const SnapshotMark *a = snapshot_mark(s, 0), *b = snapshot_mark(s, 1);
    if (keep > 0 && a->generation == (uint64_t)keep) return 1;
    if (keep > 0 && b->generation == (uint64_t)keep) return 0;
    if (a->generation == 0 || b->generation == 0) return a->generation == 0 ? 0 : 1;
    if (a->step != b->step) return a->step < b->step ? 0 : 1; /* as readers do (snapshot_choose) */
    return a->generation < b->generation ? 0 : 1;
}

/* Whether the next start will find what was written. */
static Status check_file(const Snapshot *s)
{
    struct stat st;
    bool removed = fstat(s->fd, &st) == 0 && st.st_nlink == 0;
    if (!removed && !mapping_cut(s->data)) return OK;
    return fail(E_IO, "%s: another process %s the file; no snapshot can be taken until the next start", s->path,
                removed ? "removed" : "shortened");
}

/* ---- the thread ---- */

/* An exponent of all ones is an infinity or NaN; adding one to it carries into the cleared sign bit. */
static uint32_t carry(float x) { return (f32_bits(x) & 0x7fffffff) + 0x00800000; }

static bool all_finite(const float *x, size_t n)
{
    enum { LANES = 16 }; /* a loop of constant length becomes vector instructions */
    uint32_t carried[LANES] = {0}, any = 0;
    for (; n >= LANES; x += LANES, n -= LANES)
        for (int i = 0; i < LANES; i++) carried[i] |= carry(x[i]);
    for (size_t i = 0; i < n; i++) carried[i] |= carry(x[i]);
    for (int i = 0; i < LANES; i++) any |= carried[i];
    return any < 0x80000000;
}

/* Copies one array. Each block is checked and digested where it is read, so that the digest is that of the source, and
   it comes from memory once. */
static bool copy_array(Snapshot *s, int array, DigestStream *digest)
{
    enum { BLOCK = 1 << 14 }; /* elements */
    const SnapshotSource *from = &s->source;
    const Intervals *slice = &s->part[snapshot_space(array)];
    float *to = slot_array(s, s->slot, array);
    bool finite = true;
    for (int i = 0; i < slice->count; i++) {
        int64_t n = slice->intervals[i].end - slice->intervals[i].begin;
        const float *values = from->arrays[array];
        if (values && !from->own[array]) values += slice->intervals[i].begin;
        if (values && from->own[array]) values += to - slot_array(s, s->slot, array);
        for (int64_t at = 0; at < n; at += BLOCK) {
            size_t part = (size_t)(n - at < BLOCK ? n - at : BLOCK);
            const float *block = (values ? values : to) + at;
            if (array == 0) finite = all_finite(block, part) && finite;
            digest_update(digest, block, part * sizeof *block);
            if (values) stream_copy(to + at, block, part * sizeof *to);
        }
        to += n;
    }
    return finite;
}

static Status write_generation(Snapshot *s)
{
    const SnapshotSource *from = &s->source;
    SnapshotMark *mark = snapshot_mark(s, s->slot);
    bool finite = true;
    DigestStream *digest = digest_new();
    digest_update(digest, (const uint8_t *)mark + SNAPSHOT_PAGE, from->state_size);
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++) finite = copy_array(s, a, digest) && finite;
    sem_post(&s->copy_ended);
    SnapshotMark done = {.generation = (uint64_t)from->generation,
                         .step = from->step,
                         .stamp = clock_wall(),
                         .state_bytes = from->state_size,
                         .payload = digest_value(digest)};
    digest_free(digest);
    TRY(check_file(s));
    if (!finite) return fail(E_NUMERIC, "step %" PRId64 ": weights are not finite", from->step);
    done.digest = snapshot_mark_digest(s->header, &done);
    done.generation = 0; /* until the rest is there */
    fence_stores();
    *mark = done;
    fence_stores();
    ((volatile SnapshotMark *)mark)->generation = (uint64_t)from->generation;
    fence_stores();
    return OK;
}

static void take_snapshot(Snapshot *s)
{
    double processor = clock_thread(), start = clock_monotonic();
    free(s->message);
    s->message = NULL;
    s->status = write_generation(s);
    if (s->status != OK) s->message = mem_strdup(status_message());
    Status after = s->after ? s->after(s->after_context, s, s->slot, s->status == OK) : OK;
    if (s->status == OK && after != OK) s->message = mem_strdup(status_message());
    if (s->status == OK) s->status = after;
    s->processor_s = clock_thread() - processor;
    s->clock_s = clock_monotonic() - start;
}

static void *snapshot_thread(void *snapshot)
{
    take_snapshot(snapshot);
    return NULL;
}

/* ---- the training thread ---- */

void snapshot_set_after(Snapshot *s, SnapshotAfter after, void *context)
{
    s->after = after;
    s->after_context = context;
}

static Status fetch_arrays(Snapshot *s)
{
    const SnapshotSource *from = &s->source;
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++) {
        const Intervals *slice = &s->part[snapshot_space(a)];
        float *to = slot_array(s, s->slot, a);
        for (int i = 0; i < slice->count && !from->arrays[a]; i++) {
            const Interval *x = &slice->intervals[i];
            TRY(from->fetch(from->context, a, x->begin, x->end, to));
            to += x->end - x->begin;
        }
    }
    return OK;
}

Status snapshot_begin(Snapshot *s, const SnapshotSource *source, int64_t keep)
{
    CHECK(!s->begun, "snapshot_begin before the previous outcome was polled");
    CHECK(source->generation > 0 && source->generation != keep, "generation %" PRId64, source->generation);
    if (source->state_size > SNAPSHOT_STATE)
        return fail(E_FAIL, "the state's text has %zu bytes; a snapshot has room for %" PRIu64, source->state_size,
                    SNAPSHOT_STATE);
    s->source = *source;
    s->slot = choose_slot(s, keep);
    invalidate(s, s->slot);
    memcpy((uint8_t *)snapshot_mark(s, s->slot) + SNAPSHOT_PAGE, source->state, source->state_size);
    TRY(fetch_arrays(s));
    while (sem_trywait(&s->copy_ended) == 0) continue; /* of a generation for which no caller waited */
    s->begun = true;
    s->copied = true;
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++) s->copied = s->copied && !source->arrays[a];
    s->started = thread_start(&s->thread, snapshot_thread, s) == OK;
    if (!s->started) take_snapshot(s);
    return OK;
}

void snapshot_wait_copied(Snapshot *s)
{
    if (!s->begun || s->copied) return;
    while (sem_wait(&s->copy_ended) != 0) continue; /* a signal arrived */
    s->copied = true;
}

SnapshotOutcome snapshot_poll(Snapshot *s, bool wait)
{
    if (!s->begun) return SNAPSHOT_IDLE;
    if (s->started && (wait ? pthread_join(s->thread, NULL) : pthread_tryjoin_np(s->thread, NULL)) != 0)
        return SNAPSHOT_BUSY;
    s->begun = false;
    if (s->status != OK) {
        (void)fail(s->status, "%s", s->message);
        return SNAPSHOT_FAILED;
    }
    s->newest = s->source.generation;
    return SNAPSHOT_COMPLETE;
}

void snapshot_cost(const Snapshot *s, double *processor_s, double *clock_s)
{
    *processor_s = s->processor_s;
    *clock_s = s->clock_s;
}

int64_t snapshot_newest(const Snapshot *s) { return s->newest; }

/* ---- slots received from other ranks ---- */

uint64_t snapshot_slot_bytes(const Snapshot *s) { return snapshot_slot_size(s->header); }

/* A received slot begins with its mark, whose digest matches only once the contents are complete. */
uint8_t *snapshot_slot_data(const Snapshot *s, int slot) { return s->data + s->header->slot_offset[slot]; }

int snapshot_receive_begin(Snapshot *s, int64_t keep)
{
    int slot = choose_slot(s, keep);
    invalidate(s, slot);
    return slot;
}

Status snapshot_receive_end(Snapshot *s, int slot, int64_t generation)
{
    TRY(check_file(s));
    fence_stores();
    if (snapshot_mark(s, slot)->generation == (uint64_t)generation && snapshot_slot_whole(s->data, s->header, slot)) {
        s->newest = generation;
        return OK;
    }
    invalidate(s, slot);
    return fail(E_CORRUPT, "%s: the received copy of generation %" PRId64 " is not whole", s->path, generation);
}
