/* Examples, and how the sequences of a step become the rows of micro-batches. */

#include "data/data.h"

void examples_free(Examples *e)
{
    MEM_FREE(e->offset, e->ids, e->types, e->label, e->score, e->weights, e->masked_offset, e->masked_place,
             e->masked_label);
    *e = (Examples){0};
}

double examples_mean_length(const Examples *e) { return e->count ? (double)e->offset[e->count] / (double)e->count : 0; }

void examples_append(Examples *e, size_t *cap, Tokenizer *tokenizer, RecordText a, RecordText b, int max_length)
{
    TokenIds first = {0}, second = {0};
    size_t used = (size_t)e->offset[e->count];
    bool pair = b.p && b.len > 0; /* an empty second text is none */
    if (pair) tokenizer_encode(tokenizer, b.p, b.len, &second);
    size_t most = second.count < (size_t)max_length ? (size_t)max_length : second.count + 1;
    tokenizer_encode_first(tokenizer, a.p, a.len, most, &first);
    if (used + (size_t)max_length > *cap) {
        *cap = 2 * *cap + (size_t)max_length + 4096;
        e->ids = mem_resize(e->ids, *cap, sizeof *e->ids);
        e->types = mem_resize(e->types, *cap, sizeof *e->types);
    }
    int n = tokenizer_pair(tokenizer, &first, pair ? &second : NULL, max_length, e->ids + used, e->types + used);
    e->cut += first.count + second.count + (pair ? 3 : 2) > (size_t)max_length;
    e->offset[++e->count] = (int64_t)used + n;
    token_ids_free(&first);
    token_ids_free(&second);
}

Digest examples_digest(const Examples *e)
{
    size_t count = (size_t)e->count, tokens = (size_t)e->offset[count];
    int width = e->label_width ? e->label_width : 1;
    DigestStream *s = digest_new();
    digest_update(s, e->offset, (count + 1) * sizeof *e->offset);
    digest_update(s, e->ids, tokens * sizeof *e->ids);
    digest_update(s, e->types, tokens);
    if (e->label) digest_update(s, e->label, count * (size_t)width * sizeof *e->label);
    if (e->score) digest_update(s, e->score, count * (size_t)e->score_width * sizeof *e->score);
    Digest d = digest_value(s);
    digest_free(s);
    return d;
}

int64_t example_length(const Examples *e, int64_t i) { return e->offset[i + 1] - e->offset[i]; }

int64_t example_masked(const Examples *e, int64_t i)
{
    return e->masked_offset ? e->masked_offset[i + 1] - e->masked_offset[i] : 0;
}

size_t micro_bytes(const MicroBatch *b, MicroInput input, bool whole)
{
    const int64_t TOKENS = whole ? b->cap.tokens : b->n_tokens, SEQS = whole ? b->cap.seqs : b->n_seqs,
                  MASKED = whole ? b->cap.masked : b->n_masked, READ = whole ? SEQS + MASKED : b->n_read;
    const int64_t elements[] = {
#define X(name, rows, columns, ...) (rows) * (columns),
        MICRO_INPUT_LIST(X)
#undef X
    };
    return (size_t)(elements[input] * (input == MICRO_labels ? b->label_width : 1)) * sizeof *b->inputs[input];
}

void micro_batch_init(MicroBatch *b, MicroCapacity cap)
{
    *b = (MicroBatch){.cap = cap, .label_width = 1};
    for (MicroInput i = 0; i < N_MICRO_INPUTS; i++) b->inputs[i] = mem_array(micro_bytes(b, i, true), 1);
    b->example = mem_array((size_t)cap.seqs, sizeof *b->example);
    b->grains = mem_array((size_t)cap.seqs, sizeof *b->grains);
}

void micro_batch_free(MicroBatch *b)
{
    for (MicroInput i = 0; i < N_MICRO_INPUTS; i++) free(b->inputs[i]);
    MEM_FREE(b->example, b->grains);
    *b = (MicroBatch){0};
}

int32_t micro_read(MicroBatch *b, int32_t row)
{
    CHECK(b->n_read < b->cap.seqs + b->cap.masked, "read rows beyond the capacity of %lld",
          (long long)(b->cap.seqs + b->cap.masked));
    b->read[b->n_read] = row;
    b->read_pos[b->n_read] = b->pos[row];
    b->read_seq[b->n_read] = b->seq[row];
    return b->n_read++;
}

/* ---- micro-batches ---- */

typedef struct {
    int64_t place, rows, seqs, masked, micro;
} SequenceRows;

/* The example that is the sequence at `place` of a step. `masked`: with its masked positions. */
static SequenceRows sequence_rows(const Examples *e, int64_t example, int64_t place, int64_t padded_length, bool masked)
{
    return (SequenceRows){.place = place,
                          .rows = padded_length ? padded_length : example_length(e, example),
                          .seqs = 1,
                          .masked = masked ? example_masked(e, example) : 0};
}

static int longest_first(const void *a, const void *b)
{
    const SequenceRows *x = a, *y = b;
    if (x->rows != y->rows) return x->rows < y->rows ? 1 : -1;
    return x->place < y->place ? -1 : 1;
}

static int by_micro(const void *a, const void *b)
{
    const SequenceRows *x = a, *y = b;
    if (x->micro != y->micro) return x->micro < y->micro ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

static bool has_room(const MicroCapacity *left, const SequenceRows *p)
{
    return left->tokens >= p->rows && left->seqs >= p->seqs && left->masked >= p->masked;
}

static void take_room(MicroCapacity *left, const SequenceRows *p)
{
    left->tokens -= p->rows;
    left->seqs -= p->seqs;
    left->masked -= p->masked;
}

int64_t micro_split(const Examples *e, const int64_t *index, const int64_t *places, int64_t n, const MicroCapacity *cap,
                    int64_t padded_length, int64_t *order, MicroRange *ranges)
{
    SequenceRows *pieces = mem_array((size_t)n, sizeof *pieces);
    MicroCapacity *left = mem_array((size_t)n, sizeof *left); /* room in each micro-batch */
    int64_t count = 0, open = 0;                              /* all before `open` are full */
    for (int64_t i = 0; i < n; i++) {
        int64_t place = places ? places[i] : i;
        pieces[i] = sequence_rows(e, index[place], place, padded_length, cap->masked > 0);
    }
    qsort(pieces, (size_t)n, sizeof *pieces, longest_first);
    for (int64_t i = 0; i < n; i++) {
        SequenceRows *p = &pieces[i];
        while (open < count && (left[open].tokens == 0 || left[open].seqs == 0)) open++;
        for (p->micro = open; p->micro < count && !has_room(&left[p->micro], p);) p->micro++;
        if (p->micro == count) left[count++] = *cap;
        CHECK(has_room(&left[p->micro], p),
              "a sequence of %lld rows and %lld masked positions does not fit a micro-batch of %lld and %lld",
              (long long)p->rows, (long long)p->masked, (long long)cap->tokens, (long long)cap->masked);
        take_room(&left[p->micro], p);
    }
    qsort(pieces, (size_t)n, sizeof *pieces, by_micro);
    memset(ranges, 0, (size_t)count * sizeof *ranges);
    for (int64_t i = 0; i < n; i++) {
        MicroRange *r = &ranges[pieces[i].micro];
        order[i] = pieces[i].place;
        if (r->count++ == 0) r->first = i;
    }
    MEM_FREE(pieces, left);
    return count;
}

/* ---- grains ---- */

int64_t micro_split_grains(const Examples *e, const int64_t *index, const int64_t *places, int64_t n,
                           const MicroCapacity *cap, const MicroCapacity *grain, int64_t padded_length, int64_t *order,
                           MicroRange *ranges)
{
    MicroCapacity left = {0};
    int64_t count = 0;
    for (int64_t i = 0, next; i < n; i = next) {
        MicroCapacity room = *grain;
        for (next = i; next < n; next++) {
            int64_t place = places ? places[next] : next;
            SequenceRows p = sequence_rows(e, index[place], place, padded_length, grain->masked > 0);
            if (!has_room(&room, &p)) break;
            take_room(&room, &p);
            order[next] = place;
        }
        SequenceRows sum = {
            .rows = grain->tokens - room.tokens, .seqs = next - i, .masked = grain->masked - room.masked};
        CHECK(next > i, "a sequence does not fit a grain of %lld rows and %lld masked positions",
              (long long)grain->tokens, (long long)grain->masked);
        if (count == 0 || !has_room(&left, &sum)) {
            CHECK(has_room(cap, &sum), "a grain of %lld rows does not fit a micro-batch of %lld", (long long)sum.rows,
                  (long long)cap->tokens);
            left = *cap;
            ranges[count++] = (MicroRange){.first = i};
        }
        take_room(&left, &sum);
        ranges[count - 1].count += next - i;
    }
    return count;
}

/* The micro-batch ends at `end` with this sequence: its last grain takes it, or it begins another one. `left` is the
   room of the last grain. */
static void add_to_grain(MicroBatch *b, MicroCapacity *left, const SequenceRows *p, GrainEnd end)
{
    if (!b->grain.tokens) return;
    if (b->n_grains == 0 || !has_room(left, p)) {
        *left = b->grain;
        b->n_grains++;
    }
    take_room(left, p);
    b->grains[b->n_grains - 1] = end;
}

/* ---- shares of ranks ---- */

typedef struct {
    int64_t rows, seqs;
    int rank;
} Load;

static bool has_fewer_rows(const Load *a, const Load *b)
{
    return a->rows != b->rows ? a->rows < b->rows : a->rank < b->rank;
}

/* A heap with the lightest rank on top, whose top may be out of place. */
static void sift_down(Load *heap, int n)
{
    for (int at = 0, least; 2 * at + 1 < n; at = least) {
        least = 2 * at + 1;
        if (least + 1 < n && has_fewer_rows(&heap[least + 1], &heap[least])) least++;
        if (!has_fewer_rows(&heap[least], &heap[at])) return;
        Load x = heap[at];
        heap[at] = heap[least];
        heap[least] = x;
    }
}

static int by_place(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

int64_t rank_share(const Examples *e, const int64_t *index, int64_t n, int64_t padded_length, int rank, int size,
                   int64_t *places)
{
    int64_t most = (n + size - 1) / size, mine = 0;
    SequenceRows *pieces = mem_array((size_t)n, sizeof *pieces);
    Load *heap = mem_array((size_t)size, sizeof *heap);
    for (int64_t i = 0; i < n; i++) pieces[i] = sequence_rows(e, index[i], i, padded_length, false);
    for (int r = 0; r < size; r++) heap[r].rank = r;
    qsort(pieces, (size_t)n, sizeof *pieces, longest_first);
    int left = size;
    for (int64_t i = 0; i < n; i++) {
        if (heap[0].rank == rank) places[mine++] = pieces[i].place;
        heap[0].rows += pieces[i].rows;
        if (++heap[0].seqs == most) heap[0] = heap[--left]; /* its share is full */
        sift_down(heap, left);
    }
    qsort(places, (size_t)mine, sizeof *places, by_place);
    MEM_FREE(pieces, heap);
    return mine;
}

/* ---- rows ---- */

/* One sequence's rows, and the pad rows behind it up to `rows`. */
static void fill_sequence(MicroBatch *b, const Examples *e, int64_t example, int32_t row, int64_t rows,
                          int32_t seq_index, int32_t pad_id)
{
    int64_t start = e->offset[example], length = example_length(e, example);
    for (int64_t i = 0; i < rows; i++) {
        bool real = i < length;
        b->ids[row + i] = real ? e->ids[start + i] : pad_id;
        b->types[row + i] = real ? e->types[start + i] : 0;
        b->pos[row + i] = (int32_t)i;
        b->seq[row + i] = seq_index;
    }
}

static void fill_masked(MicroBatch *b, const Examples *e, int64_t example, int32_t row)
{
    int64_t from = e->masked_offset[example], n = example_masked(e, example);
    CHECK(b->n_masked + n <= b->cap.masked, "masked positions beyond the capacity of %lld", (long long)b->cap.masked);
    for (int64_t i = 0; i < n; i++) {
        b->masked[b->n_masked] = micro_read(b, row + e->masked_place[from + i]);
        b->masked_labels[b->n_masked++] = e->masked_label[from + i];
    }
}

/* Makes room for as many labels or scores as the examples have. */
static void fit_labels(MicroBatch *b, const Examples *e)
{
    int32_t width = e->weights                       ? e->n_weights
                    : e->score                       ? e->score_width
                    : e->label && e->label_width > 0 ? e->label_width
                                                     : 1;
    CHECK(width >= 1, "labels of width %d", width);
    if (b->label_width == width) return;
    free(b->labels);
    b->label_width = width;
    b->labels = mem_array(micro_bytes(b, MICRO_labels, true), 1);
}

static void fill_labels(MicroBatch *b, const Examples *e, int64_t example, int64_t s)
{
    int64_t width = b->label_width;
    for (int64_t k = 0; k < width; k++)
        if (e->weights)
            micro_scores(b)[s * width + k] = example_target(e, example, (int32_t)k);
        else if (e->score)
            micro_scores(b)[s * width + k] = e->score[example * width + k];
        else
            b->labels[s * width + k] = e->label ? e->label[example * width + k] : 0;
}

/* Harmless values for the rows behind the filled ones. */
static void pad_rows(MicroBatch *b, int32_t pad_id)
{
    for (MicroInput i = 0; i < N_MICRO_INPUTS; i++) {
        size_t size = sizeof *b->inputs[i], end = micro_bytes(b, i, true) / size;
        int32_t value = i == MICRO_ids ? pad_id : i == MICRO_spans ? b->n_tokens : i == MICRO_masked_labels ? -1 : 0;
        for (size_t k = micro_bytes(b, i, false) / size; k < end; k++) b->inputs[i][k] = value;
    }
    for (int64_t s = b->n_seqs; s < b->cap.seqs; s++) b->example[s] = -1;
}

void micro_fill(MicroBatch *b, const Examples *e, const int64_t *index, const int64_t *places, int64_t n,
                int64_t padded_length, int32_t pad_id)
{
    int32_t row = 0;
    MicroCapacity left = {0};
    CHECK(n <= b->cap.seqs, "%lld sequences, capacity %lld", (long long)n, (long long)b->cap.seqs);
    b->n_masked = b->n_read = b->n_grains = 0;
    fit_labels(b, e);
    for (int64_t s = 0; s < n; s++) {
        int64_t example = index[places[s]];
        const SequenceRows p = sequence_rows(e, example, places[s], padded_length, b->grain.masked > 0);
        CHECK(row + p.rows <= b->cap.tokens, "rows beyond the capacity of %lld", (long long)b->cap.tokens);
        fill_sequence(b, e, example, row, p.rows, (int32_t)places[s], pad_id);
        b->spans[2 * s] = row;
        b->spans[2 * s + 1] = row + (int32_t)example_length(e, example);
        b->seq_index[s] = (int32_t)places[s];
        b->first[s] = micro_read(b, row);
        fill_labels(b, e, example, s);
        b->example[s] = example;
        if (b->cap.masked && e->masked_offset) fill_masked(b, e, example, row);
        row += (int32_t)p.rows;
        add_to_grain(b, &left, &p, (GrainEnd){row, (int32_t)s + 1, b->n_masked});
    }
    b->n_tokens = row;
    b->n_seqs = (int32_t)n;
    pad_rows(b, pad_id);
}
