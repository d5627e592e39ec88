/* Small shards of every layout, made from random sequences, with a hook that damages them before they are written. */
#pragma once

#include "testing.h"

#include "data/hdf5_file.h"
#include "data/shard_file.h"

#define SAMPLE_VOCAB  1000
#define SAMPLE_LENGTH 32
#define SAMPLE_MASKS  5
#define SAMPLE_CLS    101
#define SAMPLE_SEP    102

/* The sequences of every layout. */
static inline void sample_sequences(Sequences *s, int64_t n, uint64_t seed)
{
    uint64_t x = seed * 2 + 1;
    *s = (Sequences){0};
    for (int64_t i = 0; i < n; i++) {
        int length = 8 + (int)(testing_random(&x) % (SAMPLE_LENGTH - 7)),
            masks = 1 + (int)(testing_random(&x) % SAMPLE_MASKS);
        int second = 3 + (int)(testing_random(&x) % (unsigned)(length - 5));
        int64_t k = sequences_add(s, length, masks), at = s->e.offset[k], m = s->e.masked_offset[k];
        for (int j = 0; j < length; j++) {
            s->e.ids[at + j] = 200 + (int32_t)(testing_random(&x) % (SAMPLE_VOCAB - 200));
            s->e.types[at + j] = j >= second;
        }
        s->e.ids[at] = SAMPLE_CLS;
        s->e.ids[at + second - 1] = s->e.ids[at + length - 1] = SAMPLE_SEP;
        for (int j = 0; j < masks; j++) {
            s->e.masked_place[m + j] = 1 + j; /* any ascending places */
            s->e.masked_label[m + j] = (int32_t)(testing_random(&x) % SAMPLE_VOCAB);
        }
        s->e.label[k] = (int32_t)(testing_random(&x) % 2);
        s->sample[k] = k;
        s->is_masked[k] = true;
    }
}

/* One dataset about to be written: lists throughout, cut to a width for fixed ones. */
typedef struct {
    bool absent;
    int64_t width, rows; /* width 0: lists */
    int bytes;
    int32_t *values;
    int64_t *offset; // (rows + 1)
} SampleColumn;

typedef struct {
    SampleColumn c[N_SHARD_COLUMNS];
    int64_t rows;
    int gzip;
    int64_t chunk_rows;
} SampleFile;

static inline void sample_list(SampleColumn *c, const int32_t *values, int64_t n)
{
    int64_t used = c->rows ? c->offset[c->rows] : 0;
    c->offset = mem_resize(c->offset, (size_t)c->rows + 2, sizeof *c->offset);
    if (c->rows == 0) c->offset[0] = 0;
    int64_t width = c->width ? c->width : n;
    c->values = mem_resize(c->values, (size_t)(used + width) + 1, sizeof *c->values);
    for (int64_t i = 0; i < width; i++) c->values[used + i] = i < n ? values[i] : 0;
    c->offset[++c->rows] = used + width;
}

/* Sequences per row: 1, packed up to 3. */
static inline void sample_fill(SampleFile *f, ShardLayout layout, const Sequences *s)
{
    const bool fixed = layout == SHARD_FIXED || layout == SHARD_DYNAMIC;
    *f = (SampleFile){0};
    for (int i = 0; i < N_SHARD_COLUMNS; i++) f->c[i] = (SampleColumn){.absent = true, .bytes = 2};
    static const int used[N_SHARD_LAYOUTS][N_SHARD_COLUMNS + 1] = {
        {SHARD_INPUT_IDS, SHARD_INPUT_MASK, SHARD_SEGMENT_IDS, SHARD_MASKED_POSITIONS, SHARD_MASKED_IDS, SHARD_LABELS,
         -1},
        {SHARD_INPUT_IDS, SHARD_SPECIAL_POSITIONS, SHARD_LABELS, -1},
        {SHARD_INPUT_IDS, SHARD_SEGMENT_IDS, SHARD_MASKED_POSITIONS, SHARD_MASKED_IDS, SHARD_LABELS, -1},
        {SHARD_INPUT_IDS, SHARD_SEGMENT_IDS, SHARD_MASKED_POSITIONS, SHARD_MASKED_IDS, SHARD_LABELS,
         SHARD_PACKED_LENGTHS, SHARD_PACKED_MASKED, -1},
    };
    for (const int *i = used[layout]; *i >= 0; i++) f->c[*i].absent = false;
    if (fixed) {
        f->c[SHARD_INPUT_IDS].width = f->c[SHARD_INPUT_MASK].width = f->c[SHARD_SEGMENT_IDS].width = SAMPLE_LENGTH;
        f->c[SHARD_MASKED_POSITIONS].width = f->c[SHARD_MASKED_IDS].width = SAMPLE_MASKS;
        f->c[SHARD_SPECIAL_POSITIONS].width = 3;
    }
    if (layout != SHARD_PACKED) f->c[SHARD_LABELS].width = 1;
    f->c[SHARD_LABELS].bytes = f->c[SHARD_SEGMENT_IDS].bytes = f->c[SHARD_INPUT_MASK].bytes = 1;
    for (int64_t i = 0; i < s->e.count; f->rows++) {
        int64_t n = layout != SHARD_PACKED ? 1 : 1 + f->rows % 3;
        if (i + n > s->e.count) n = s->e.count - i;
        int32_t ids[3 * SAMPLE_LENGTH], types[3 * SAMPLE_LENGTH], ones[3 * SAMPLE_LENGTH], places[3 * SAMPLE_MASKS],
            words[3 * SAMPLE_MASKS], labels[3], lengths[3], masked[3], special[3] = {0};
        int tokens = 0, masks = 0;
        for (int64_t k = 0; k < n; k++, i++) {
            int length = (int)example_length(&s->e, i), first = tokens;
            lengths[k] = length;
            masked[k] = (int)example_masked(&s->e, i);
            labels[k] = s->e.label[i];
            for (int m = 0; m < masked[k]; m++, masks++) {
                places[masks] = first + s->e.masked_place[s->e.masked_offset[i] + m];
                words[masks] = s->e.masked_label[s->e.masked_offset[i] + m];
            }
            for (int j = 0; j < length; j++, tokens++) {
                ids[tokens] = s->e.ids[s->e.offset[i] + j];
                types[tokens] = s->e.types[s->e.offset[i] + j];
                ones[tokens] = 1;
                if (types[tokens] == 0) special[1] = j;
            }
            special[2] = length - 1;
        }
        sample_list(&f->c[SHARD_INPUT_IDS], ids, tokens);
        sample_list(&f->c[SHARD_INPUT_MASK], ones, tokens);
        sample_list(&f->c[SHARD_SEGMENT_IDS], types, tokens);
        sample_list(&f->c[SHARD_MASKED_POSITIONS], places, masks);
        sample_list(&f->c[SHARD_MASKED_IDS], words, masks);
        sample_list(&f->c[SHARD_LABELS], labels, n);
        sample_list(&f->c[SHARD_SPECIAL_POSITIONS], special, 3);
        sample_list(&f->c[SHARD_PACKED_LENGTHS], lengths, n);
        sample_list(&f->c[SHARD_PACKED_MASKED], masked, n);
    }
}

static inline void sample_drop_masks(SampleFile *f)
{
    f->c[SHARD_MASKED_POSITIONS].absent = f->c[SHARD_MASKED_IDS].absent = f->c[SHARD_PACKED_MASKED].absent = true;
}

static inline void *sample_narrow(const int32_t *values, int64_t n, int bytes)
{
    uint8_t *out = mem_alloc((size_t)(n * bytes) + 1);
    for (int64_t i = 0; i < n; i++) memcpy(out + i * bytes, &values[i], (size_t)bytes);
    return out;
}

static inline Status sample_write(const SampleFile *f, const char *path)
{
    Hdf5Spec specs[N_SHARD_COLUMNS];
    Hdf5Writer *w = NULL;
    Status status = OK;
    int n = 0, which[N_SHARD_COLUMNS];
    for (int i = 0; i < N_SHARD_COLUMNS; i++) {
        const SampleColumn *c = &f->c[i];
        if (c->absent) continue;
        which[n] = i;
        specs[n++] = (Hdf5Spec){shard_column_names[i], c->bytes, c->width, c->rows};
    }
    TRY(hdf5_create(path, specs, n, f->rows, f->gzip, f->chunk_rows, &w));
    for (int i = 0; i < n && status == OK; i++) {
        const SampleColumn *c = &f->c[which[i]];
        void *values = sample_narrow(c->values, c->offset[c->rows], c->bytes);
        status =
            c->width ? hdf5_write(w, i, 0, c->rows, values) : hdf5_write_lists(w, i, 0, c->rows, values, c->offset);
        free(values);
    }
    if (status == OK) return hdf5_finish(w);
    hdf5_abandon(w);
    return status;
}

static inline void sample_free(SampleFile *f)
{
    for (int i = 0; i < N_SHARD_COLUMNS; i++) {
        free(f->c[i].values);
        free(f->c[i].offset);
    }
}

/* A file of one layout in a folder. */
static inline void sample_shard(const char *dir, const char *name, ShardLayout layout, const Sequences *s, int gzip,
                                bool masked)
{
    SampleFile f;
    char *path = file_join(dir, name);
    sample_fill(&f, layout, s);
    f.gzip = gzip;
    f.chunk_rows = 37;
    if (!masked) sample_drop_masks(&f);
    assert_ok(sample_write(&f, path));
    sample_free(&f);
    free(path);
}

/* Whether sequence i of a is sequence j of b; with their masks if `masks`. */
static inline void assert_same_sequence(const Examples *a, int64_t i, const Examples *b, int64_t j, bool masks)
{
    int64_t n = example_length(a, i), m = example_masked(a, i);
    assert_int_equal(n, example_length(b, j));
    assert_int_equal(a->label[i], b->label[j]);
    assert_memory_equal(a->ids + a->offset[i], b->ids + b->offset[j], (size_t)n * sizeof *a->ids);
    assert_memory_equal(a->types + a->offset[i], b->types + b->offset[j], (size_t)n);
    if (!masks) return;
    assert_int_equal(m, example_masked(b, j));
    if (!m) return;
    assert_memory_equal(a->masked_place + a->masked_offset[i], b->masked_place + b->masked_offset[j],
                        (size_t)m * sizeof(int32_t));
    assert_memory_equal(a->masked_label + a->masked_offset[i], b->masked_label + b->masked_offset[j],
                        (size_t)m * sizeof(int32_t));
}
