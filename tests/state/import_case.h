/* A model, weights for it, and a file of tensors made by hand, which a test bends before it imports them. */
#pragma once

#include "testing.h"

#include <inttypes.h>
#include <math.h>

#include "state/models/import.h"

static const char config_text[] =
    "{\"vocab_size\": 101, \"hidden_size\": 12, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"intermediate_size\": 20, \"max_position_embeddings\": 16, \"type_vocab_size\": 2}";

static const Head classifier3 = {HEAD_CLASSIFIER, 3}, pretraining = {HEAD_PRETRAINING, 2};

static inline void make_model(Model *m, Head head)
{
    ModelConfig c;
    assert_ok(model_config_parse("test", config_text, strlen(config_text), &c));
    assert_ok(model_init(m, c, head));
}

static inline void read_model(Model *m, const char *directory, Head head)
{
    ModelConfig c;
    assert_ok(model_config_read(directory, &c));
    assert_ok(model_init(m, c, head));
}

static inline float *new_weights(const Model *m)
{
    float *w = mem_array((size_t)m->params.size, sizeof *w);
    memset(w, 0xff, (size_t)m->params.size * sizeof *w); /* NaN, so that an unwritten element shows */
    return w;
}

/* Values that differ everywhere, biases and gammas too; gaps and pad rows 0. */
static inline float *some_weights(const Model *m)
{
    float *w = mem_array((size_t)m->params.size, sizeof *w);
    for (int i = 0; i < m->params.count; i++) {
        const Param *p = &m->params.params[i];
        uint64_t state = digest_of(p->name, strlen(p->name)).lo | 1;
        for (int64_t k = 0; k < param_exported(p); k++)
            w[p->offset + k] = (float)((double)(testing_random(&state) >> 40) / (1 << 24) - 0.5);
    }
    return w;
}

static inline void assert_same(const Model *m, const float *a, const float *b)
{
    for (int i = 0; i < m->params.count; i++) {
        const Param *p = &m->params.params[i];
        for (int64_t k = 0; k < param_held(p); k++)
            if (f32_bits(a[p->offset + k]) != f32_bits(b[p->offset + k]))
                fail_msg("%s differs at %" PRId64 ": %g, %g", p->name, k, (double)a[p->offset + k],
                         (double)b[p->offset + k]);
    }
    assert_memory_equal(a, b, (size_t)m->params.size * sizeof *a);
}

/* ---- files made by hand ---- */

typedef struct {
    TensorInfo infos[128];
    float *data[128];
    int count;
} Tensors;

static inline int add_tensor(Tensors *t, const char *name, const int64_t *dims, int n_dims, const float *data)
{
    int i = t->count++;
    int64_t n = 1;
    assert_true(i < 128);
    t->infos[i] = (TensorInfo){.name = mem_strdup(name), .dtype = F32, .n_dims = n_dims};
    for (int d = 0; d < n_dims; d++) n *= t->infos[i].dims[d] = dims[d];
    t->data[i] = mem_array((size_t)n, sizeof(float));
    if (data) memcpy(t->data[i], data, (size_t)n * sizeof *data);
    return i;
}

/* All parameters under Hugging Face's names. */
static inline Tensors all_tensors(const Model *m, const float *w)
{
    Tensors t = {0};
    for (int i = 0; i < m->params.count; i++) {
        const Param *p = &m->params.params[i];
        add_tensor(&t, p->name, (int64_t[]){p->rows, p->cols}, p->n_dims, w + p->offset);
    }
    return t;
}

static inline int find_tensor(const Tensors *t, const char *name)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->infos[i].name, name) == 0) return i;
    fail_msg("the test has no tensor '%s'", name);
    return -1;
}

static inline void remove_tensor(Tensors *t, const char *name)
{
    int i = find_tensor(t, name);
    free(t->infos[i].name);
    free(t->data[i]);
    t->count--;
    t->infos[i] = t->infos[t->count];
    t->data[i] = t->data[t->count];
}

static inline void rename_tensor(Tensors *t, int i, const char *name)
{
    free(t->infos[i].name);
    t->infos[i].name = mem_strdup(name);
}

/* Adds or removes rows; added ones are `fill`. */
static inline void resize_rows(Tensors *t, int i, int64_t rows, float fill)
{
    int64_t cols = t->infos[i].n_dims == 2 ? t->infos[i].dims[1] : 1, old = t->infos[i].dims[0];
    t->data[i] = mem_resize(t->data[i], (size_t)(rows * cols), sizeof(float));
    for (int64_t k = old * cols; k < rows * cols; k++) t->data[i][k] = fill;
    t->infos[i].dims[0] = rows;
}

static inline void write_tensors(const Tensors *t, const char *path)
{
    SafetensorsWriter *w;
    assert_ok(safetensors_writer_open(&w, path, t->infos, t->count, NULL, 0));
    for (int i = 0; i < t->count; i++) {
        int64_t n = 1;
        for (int d = 0; d < t->infos[i].n_dims; d++) n *= t->infos[i].dims[d];
        assert_ok(safetensors_writer_write(w, t->data[i], (size_t)n * sizeof(float)));
    }
    assert_ok(safetensors_writer_close(w, NULL));
}

static inline void free_tensors(Tensors *t)
{
    for (int i = 0; i < t->count; i++) {
        free(t->infos[i].name);
        free(t->data[i]);
    }
    *t = (Tensors){0};
}

/* A model, weights, their tensors, and a place for files. */
typedef struct {
    Model model;
    float *given, *got;
    Tensors tensors;
    char *directory, *path;
    ImportReport report;
} Case;

static inline void case_open(Case *c, Head head)
{
    *c = (Case){0};
    make_model(&c->model, head);
    c->given = some_weights(&c->model);
    c->got = new_weights(&c->model);
    c->tensors = all_tensors(&c->model, c->given);
    c->directory = testing_directory();
    c->path = file_join(c->directory, "model.safetensors");
}

static inline Status case_import(Case *c)
{
    write_tensors(&c->tensors, c->path);
    import_report_free(&c->report);
    return import_weights(c->path, &c->model, 7, c->got, &c->report);
}

static inline void case_close(Case *c)
{
    import_report_free(&c->report);
    free_tensors(&c->tensors);
    free(c->given);
    free(c->got);
    model_free(&c->model);
    assert_ok(file_remove_tree(c->directory));
    free(c->directory);
    free(c->path);
}

static inline int in_child(void *arg) { return status_exit_code(case_import(arg)); }

/* Imports in a child, which must exit with 1. Returns its stderr. */
static inline void assert_refused(Case *c, Buf *errors)
{
    int ended = testing_child(in_child, c, errors);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 1);
}

static inline void assert_contains(const Buf *text, const char *part)
{
    if (!text->data || !strstr(text->data, part)) fail_msg("\"%s\" is not in:\n%s", part, text->data ? text->data : "");
}

static inline void transpose_tensor(Tensors *t, int i)
{
    int64_t rows = t->infos[i].dims[0], cols = t->infos[i].dims[1];
    float *turned = mem_array((size_t)(rows * cols), sizeof *turned);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) turned[c * rows + r] = t->data[i][r * cols + c];
    free(t->data[i]);
    t->data[i] = turned;
    t->infos[i].dims[0] = cols;
    t->infos[i].dims[1] = rows;
}
