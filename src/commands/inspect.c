/* `cairn inspect --model PATH [--ranks N]`: the contents of a file of weights or a checkpoint. `--verify`: the files of
   a folder against its manifest. */

#include "commands/commands.h"
#include "state/models/import.h"
#include "state/models/manifest.h"

enum { NAME_WIDTH = 56, MAX_RANKS = 1 << 16 };

static const char *human(char out[32], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    while (bytes >= 1024 && u < 4) {
        bytes /= 1024;
        u++;
    }
    snprintf(out, 32, u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
    return out;
}
#define HUMAN(bytes) human((char[32]){""}, bytes) /* lasts as SHORT_TEXT does (base/mem.h) */

/* ---- tensors ---- */

/* The role of a tensor in the importer. */
static const char *role(const TensorFile *f, int i, SourceName *s)
{
    const TensorInfo *t = tensor_file_info(f, i);
    if ((t->name[0] == 'm' || t->name[0] == 'v') && t->name[1] == '.') { /* as checkpoints name them */
        import_name(t->name + 2, s);
        if (s->kind == SOURCE_WEIGHT) {
            s->kind = SOURCE_IGNORED;
            return t->name[0] == 'm' ? "first moment" : "second moment";
        }
    }
    import_tensor(f, i, s);
    switch (s->kind) {
    case SOURCE_WEIGHT:
        return s->transpose ? "weight, transposed" : "weight";
    case SOURCE_TIED:
        return "copy of a tied weight";
    case SOURCE_IGNORED:
        return s->why;
    case SOURCE_UNKNOWN:
        break;
    }
    return "unknown";
}

typedef struct {
    int tensors;
    int64_t numbers;
    double bytes;
} Total;

static void count(Total *total, const TensorInfo *t)
{
    total->tensors++;
    total->numbers += t->count;
    total->bytes += (double)t->bytes;
}

static void put_total(Buf *b, const char *what, const Total *t)
{
    buf_printf(b, "%-10s %6d tensors  %14" PRId64 " numbers  %10s\n", what, t->tensors, t->numbers, HUMAN(t->bytes));
}

static void put_file(Buf *b, const TensorFile *f)
{
    Total all = {0}, weights = {0}, ignored = {0};
    char shape[TENSOR_SHAPE_BYTES];
    buf_printf(b, "%s (%s)\n", tensor_file_path(f), tensor_format_name(tensor_file_format(f)));
    buf_printf(b, "%-*s  %-5s  %-16s  %12s  %s\n", NAME_WIDTH, "tensor", "type", "shape", "bytes", "is");
    for (int i = 0; i < tensor_file_count(f); i++) {
        const TensorInfo *t = tensor_file_info(f, i);
        SourceName s;
        const char *is = role(f, i, &s);
        count(&all, t);
        count(s.kind == SOURCE_WEIGHT ? &weights : &ignored, t);
        buf_printf(b, "%-*s  %-5s", NAME_WIDTH, t->name, dtype_name(t->dtype));
        buf_printf(b, "  %-16s  %12" PRIu64 "  %s\n", tensor_shape(shape, t->dims, t->n_dims), t->bytes, is);
    }
    put_total(b, "parameters", &weights);
    if (ignored.tensors) put_total(b, "others", &ignored);
    put_total(b, "in all", &all);
}

/* ---- checkpoints ---- */

/* state.json, one line a key; lists and objects only by their size. */
static void put_state(Buf *b, const Json *state)
{
    for (void *it = js_first(state); it; it = js_next(state, it)) {
        const Json *v = js_value(it);
        buf_printf(b, "  %-24s ", js_key(it));
        if (!js_put_scalar(b, v)) buf_printf(b, "%zu entries", js_size(v));
        buf_puts(b, "\n");
    }
}

/* The moments and the state, where the directory is a checkpoint. */
static Status put_checkpoint(Buf *b, const char *directory)
{
    Status status = OK;
    Json *state = NULL;
    TensorFile *optimizer = NULL;
    char *path = file_join(directory, "state.json"), *moments = file_join(directory, "optimizer.safetensors");
    if (!file_exists(path) || !file_exists(moments)) goto done;
    TRY_DONE(js_read(path, &state));
    TRY_DONE(tensor_file_open(moments, &optimizer));
    buf_puts(b, "\n");
    put_file(b, optimizer);
    buf_printf(b, "\n%s\n", path);
    put_state(b, state);
done:
    js_free(state);
    tensor_file_close(optimizer);
    MEM_FREE(moments, path);
    return status;
}

/* ---- ranks ---- */

/* The parameter that element `at` lies in, or before it. */
static const char *name_at(const ParamTable *t, int64_t at)
{
    int i = 0;
    while (i + 1 < t->count && t->params[i + 1].offset <= at) i++;
    return t->params[i].name;
}

static Status sliced_model(const Config *c, const TensorFile *f, Model *m)
{
    ImportHeads heads;
    TRY(import_find_heads(f, &heads));
    TRY(commands_model_config(c, &m->config));
    return model_init(m, m->config, import_head(&heads));
}

static void put_slice(Buf *b, const ParamTable *t, int rank, Interval v)
{
    int64_t n = v.end - v.begin;
    buf_printf(b, "rank %-5d %14" PRId64 " numbers  %10s", rank, n, HUMAN(12.0 * (double)n));
    if (n > 0)
        buf_printf(b, "  [%" PRId64 ", %" PRId64 ") %s … %s", v.begin, v.end, name_at(t, v.begin),
                   name_at(t, v.end - 1));
    buf_puts(b, "\n");
}

static Status put_ranks(Buf *b, const Config *c, const TensorFile *f)
{
    Model m = {0};
    Status status = OK;
    int ranks = (int)c->ranks;
    if (c->ranks > MAX_RANKS) return fail(E_USAGE, "--ranks %lld: expected 1 to %d", (long long)c->ranks, MAX_RANKS);
    TRY_DONE(sliced_model(c, f, &m));
    buf_printf(b, "\nstate of %" PRId64 " numbers (with padding), %s of weights and two moments, over %d ranks\n",
               m.params.size, HUMAN(12.0 * (double)m.params.size), ranks);
    for (int64_t r = 0, begin = 0, end; r < ranks; r++, begin = end) {
        Interval slice = {begin, end = slice_cut(&m.params, 0, m.params.size, (int)r, ranks)};
        put_slice(b, &m.params, (int)r, slice);
    }
done:
    model_free(&m);
    return status;
}

/* ---- --verify ---- */

/* A line for each file that the folder's manifest lists. */
static Status verify_folder(const char *dir)
{
    Manifest m = {0};
    Buf out = {0};
    Status status = OK;
    const char *first = NULL;
    int wrong = 0;
    if (!file_is_directory(dir)) return fail(E_USAGE, "--verify: expected a folder as --model, found '%s'", dir);
    if (!file_exists_in(dir, MANIFEST_NAME))
        return fail(
            E_USAGE,
            "--verify: %s has no %s, so there is nothing to compare with; Cairn writes one into each checkpoint "
            "and published model, and `cairn convert` into a copy of this folder",
            dir, MANIFEST_NAME);
    TRY(manifest_read(dir, &m));
    for (int i = 0; i < m.count; i++) {
        status = manifest_verify_file(dir, &m.files[i], NULL, NULL);
        if (status != OK && status != E_CORRUPT) break;
        buf_printf(&out, "%-28s  %s\n", m.files[i].name, status == OK ? "as written" : status_message());
        if (status != OK && wrong++ == 0) first = m.files[i].name;
    }
    buf_print(&out);
    if (wrong > 0 && (status == OK || status == E_CORRUPT))
        status = fail(E_CORRUPT,
                      "%s: %d of %d files are not as Cairn wrote them, the first is %s: damaged, or edited since. "
                      "Restore them from a copy",
                      dir, wrong, m.count, first);
    manifest_free(&m);
    buf_free(&out);
    return status;
}

Status command_inspect(const Config *c)
{
    Status status = OK;
    TensorFile *file = NULL;
    Buf out = {0};
    if (!*c->model) return fail(E_USAGE, "inspect: give a file, a directory or a checkpoint with --model");
    if (c->verify) return verify_folder(c->model);
    TRY_DONE(import_check_folder(c->model));
    TRY_DONE(tensor_file_open(c->model, &file));
    put_file(&out, file);
    TRY_DONE(put_checkpoint(&out, c->model));
    if (c->ranks > 0) TRY_DONE(put_ranks(&out, c, file));
    buf_print(&out);
done:
    tensor_file_close(file);
    buf_free(&out);
    return status;
}
