/* A tiny model's state for the checkpoint tests. Step and batch determine every number, so a test can compare a loaded
   state with the saved one. By default the batch is the step. */
#pragma once

#include "state/checkpoint/checkpoint.h"
#include "testing.h"

#include <fcntl.h>
#include <sys/stat.h>

static Param sample_params[] = {
    {.name = "classifier.weight", .rows = 3, .cols = 8, .n_dims = 2, .padded = 3},
    {.name = "classifier.bias", .rows = 3, .cols = 1, .n_dims = 1, .padded = 3},
    {.name = "bert.encoder.layer.0.attention.self.query.weight", .rows = 8, .cols = 8, .n_dims = 2, .padded = 8},
    {.name = "bert.embeddings.LayerNorm.weight", .rows = 8, .cols = 1, .n_dims = 1, .padded = 8},
    {.name = "bert.embeddings.word_embeddings.weight", .rows = 70, .cols = 8, .n_dims = 2, .padded = 128},
};

static inline ParamTable sample_table(void)
{
    ParamTable t = {.params = sample_params, .count = (int)(sizeof sample_params / sizeof *sample_params)};
    for (int i = 0; i < t.count; i++) {
        t.params[i].offset = t.size;
        t.size += (param_held(&t.params[i]) + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    }
    return t;
}

/* An ArrayRead; the context is the arrays. */
static inline Status sample_arrays_read(void *arrays, int array, int64_t begin, int64_t end, float *to)
{
    memcpy(to, ((float *const *)arrays)[array] + begin, (size_t)(end - begin) * sizeof *to);
    return OK;
}

/* Array number `array` (weights, m, v) of a batch. Gaps and pad rows are 0. */
static inline void sample_fill(const ParamTable *t, int64_t batch, int array, float *values)
{
    memset(values, 0, (size_t)t->size * sizeof *values);
    uint64_t seed = (uint64_t)batch * 3 + (uint64_t)array + 1;
    for (int i = 0; i < t->count; i++)
        for (int64_t k = 0; k < param_exported(&t->params[i]); k++)
            values[t->params[i].offset + k] = f32_from_bits((uint32_t)(testing_random(&seed) >> 32) & 0x3fffffffu);
}

typedef struct {
    ParamTable table;
    TrainingState state;
    float *arrays[3];
    char *text;
    ModelFile files[1];
} Sample;

static inline char *sample_text(int64_t step, int64_t batch)
{
    return mem_printf("{\"step\": %lld, \"batch\": %lld, \"loss_sum\": 0.125}\n", (long long)step, (long long)batch);
}

static inline Sample *sample_make(int64_t step, int64_t batch)
{
    Sample *s = mem_alloc(sizeof *s);
    s->table = sample_table();
    for (int a = 0; a < 3; a++) {
        s->arrays[a] = mem_array((size_t)s->table.size, sizeof(float));
        sample_fill(&s->table, batch, a, s->arrays[a]);
    }
    s->text = sample_text(step, batch);
    s->files[0] = (ModelFile){"config.json", "{\"hidden_size\": 8}\n", 19};
    s->state = (TrainingState){.params = &s->table,
                               .step = step,
                               .read = sample_arrays_read,
                               .read_context = s->arrays,
                               .state = s->text,
                               .state_size = strlen(s->text),
                               .files = s->files,
                               .n_files = 1};
    return s;
}

static inline Sample *sample_of(int64_t step) { return sample_make(step, step); }

static inline void sample_free(Sample *s)
{
    for (int a = 0; a < 3; a++) free(s->arrays[a]);
    free(s->text);
    free(s);
}

/* Saves without a thread. */
static inline Status sample_save_batch(const char *out, int64_t step, int64_t batch, int keep)
{
    Saver saver;
    Sample *s = sample_make(step, batch);
    Status status = saver_init(&saver, out, keep);
    if (status == OK) status = saver_begin(&saver, &s->state);
    saver_free(&saver);
    sample_free(s);
    return status;
}

static inline Status sample_save(const char *out, int64_t step, int keep)
{
    return sample_save_batch(out, step, step, keep);
}

/* The result of a load. `step` −1: no checkpoint. */
typedef struct {
    Status status;
    int64_t step, batch;
    bool equal; /* bit for bit the state saved at that step */
} Loaded;

static inline Loaded sample_compare(const ParamTable *t, float *const arrays[3], const Buf *text)
{
    Loaded got = {.status = OK, .step = -1};
    long long step, batch;
    if (sscanf(text->data, "{\"step\": %lld, \"batch\": %lld", &step, &batch) != 2) return got;
    got.step = step;
    got.batch = batch;
    Sample *s = sample_make(step, batch);
    got.equal = text->len == s->state.state_size && memcmp(text->data, s->text, text->len) == 0;
    for (int a = 0; a < 3; a++)
        got.equal = got.equal && memcmp(arrays[a], s->arrays[a], (size_t)t->size * sizeof(float)) == 0;
    sample_free(s);
    return got;
}

static inline void sample_tables(const ParamTable *t, const ParamTable *params[N_SPACES])
{
    static const ParamTable none;
    params[SPACE_MODEL] = t;
    params[SPACE_SETS] = &none;
}

/* Reads a checkpoint that was verified, each array by itself (t->size). */
static inline Status sample_read(const char *path, const ParamTable *t, CheckpointSeen *seen, float *const arrays[3])
{
    const ParamTable *params[N_SPACES];
    CheckpointReader *reader = NULL;
    bool sets;
    sample_tables(t, params);
    Status status = checkpoint_find_tensors(path, params, &seen->files, &sets);
    if (status == OK) status = checkpoint_open(path, params, &seen->files, &reader);
    for (int a = 0; a < 3 && status == OK; a++) status = checkpoint_read(reader, a, 0, t->size, arrays[a]);
    checkpoint_close(reader);
    return status;
}

/* Loads one checkpoint (`path`), or the newest good one of a folder (`out`). */
static inline Loaded sample_load(const char *path, const char *out)
{
    ParamTable t = sample_table();
    Loaded got = {.step = -1};
    float *arrays[3];
    CheckpointSeen seen = {0};
    char *found = NULL;
    for (int a = 0; a < 3; a++) {
        arrays[a] = mem_array((size_t)t.size, sizeof(float));
        memset(arrays[a], 0xff, (size_t)t.size * sizeof(float));
    }
    got.status = path ? checkpoint_verify(path, &seen) : checkpoint_newest(out, 0, 0, &seen, &found);
    if (!path) path = found;
    if (got.status == OK && path) got.status = sample_read(path, &t, &seen, arrays);
    if (got.status == OK && path) got = sample_compare(&t, arrays, &seen.state);
    for (int a = 0; a < 3; a++) free(arrays[a]);
    checkpoint_seen_free(&seen);
    free(found);
    return got;
}

static inline void sample_assert_newest(const char *out, int64_t step)
{
    Loaded got = sample_load(NULL, out);
    assert_ok(got.status);
    assert_int_equal(got.step, step);
    if (step >= 0) assert_true(got.equal);
}
