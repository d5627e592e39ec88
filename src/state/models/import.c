/* Strict import of a tensor file into the parameter space: match every name, check every shape, then read. */
#include "state/models/import.h"

/* A head must be complete or absent. */
static const char *const groups[] = {"bert.pooler.", "cls.predictions.", "cls.seq_relationship.", "classifier.",
                                     "qa_outputs."};
enum { GROUP_CLASSIFIER = 3 }; /* from here on: heads that classes of other models have too */

static const char no_such_parameter[] = "the model has no such parameter";

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* The file's tensors for one parameter; −1: none. */
typedef struct {
    int tensor, copy; /* copy: a tied duplicate */
    bool transpose;
    bool fresh; /* must be initialised */
} Match;

typedef struct {
    TensorFile *file;
    const Model *model;
    Match *matches; // (params.count)
    ImportReport *report;
} Import;

/* Takes ownership of `detail`; NULL for a line that is not an error. */
static void add_line(ImportReport *r, ImportKind kind, const char *name, char *detail)
{
    MEM_PUSH(r->lines, r->count, r->cap, (ImportLine){kind, mem_strdup(name), detail});
    r->n[kind]++;
}

static void add_param_line(const Import *im, ImportKind kind, const Param *p, char *detail)
{
    char *name = param_file_name(&im->model->params, p);
    add_line(im->report, kind, name, detail);
    free(name);
}

static const char *param_shape(char out[TENSOR_SHAPE_BYTES], const Param *p)
{
    return tensor_shape(out, (int64_t[]){p->rows, p->cols}, p->n_dims);
}

/* ---- matching names ---- */

static int group_of(const char *name)
{
    for (size_t i = 0; i < COUNT(groups); i++)
        if (str_starts_with(name, groups[i])) return (int)i;
    return -1;
}

static void match_tensor(Import *im, int i)
{
    const char *theirs = tensor_file_info(im->file, i)->name;
    const ParamTable *t = &im->model->params;
    SourceName s;
    import_tensor(im->file, i, &s);
    if (s.kind == SOURCE_IGNORED) {
        add_line(im->report, IMPORT_IGNORED, theirs, NULL);
        return;
    }
    if (im->report->foreign && group_of(s.name) >= GROUP_CLASSIFIER) {
        add_line(im->report, IMPORT_UNUSED, theirs, NULL);
        return;
    }
    int p = s.kind == SOURCE_UNKNOWN ? -1 : params_find(t, s.name);
    bool mlm = params_find(t, "cls.predictions.bias") >= 0;
    if (p < 0 || (s.kind == SOURCE_TIED && !mlm)) {
        if (s.head)
            add_line(im->report, IMPORT_UNUSED, theirs, NULL);
        else
            add_line(im->report, IMPORT_UNEXPECTED, theirs, mem_strdup(no_such_parameter));
        return;
    }
    int *place = s.kind == SOURCE_TIED ? &im->matches[p].copy : &im->matches[p].tensor;
    if (*place >= 0) {
        add_line(im->report, IMPORT_TWICE, s.name,
                 mem_printf("as '%s' and '%s'", tensor_file_info(im->file, *place)->name, theirs));
        return;
    }
    *place = i;
    if (s.kind == SOURCE_WEIGHT) im->matches[p].transpose = s.transpose;
}

/* One model's tensors share a prefix: the encoder's all, a head's is equal or an outer part of it. Others may belong to
   another model in the file. */
static void check_prefixes(Import *im)
{
    const ParamTable *t = &im->model->params;
    int first = im->matches[params_find(t, "bert.embeddings.word_embeddings.weight")].tensor;
    SourceName encoder, s;
    if (first < 0) return;
    import_tensor(im->file, first, &encoder);
    for (int i = 0; i < t->count; i++) {
        if (im->matches[i].tensor < 0) continue;
        import_tensor(im->file, im->matches[i].tensor, &s);
        bool head = !str_starts_with(s.name, "bert.");
        if (head ? str_starts_with(encoder.prefix, s.prefix) : strcmp(encoder.prefix, s.prefix) == 0) continue;
        add_line(im->report, IMPORT_UNEXPECTED, tensor_file_info(im->file, im->matches[i].tensor)->name,
                 mem_printf("is not beside the encoder's tensors, as '%s'", tensor_file_info(im->file, first)->name));
    }
}

/* ---- checking shapes ---- */

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static bool rows_fit(const Param *p, int64_t rows)
{
    if (rows == p->rows) return true;
    return p->padded > p->rows && rows <= p->padded && (rows == round_up(p->rows, 8) || rows == round_up(p->rows, 64));
}

static bool shape_fits(const Param *p, const TensorInfo *info, bool transpose)
{
    if (info->n_dims != p->n_dims) return false;
    if (p->n_dims == 1) return rows_fit(p, info->dims[0]);
    return rows_fit(p, info->dims[transpose]) && info->dims[!transpose] == p->cols;
}

static bool is_real(Dtype dtype) { return dtype == F32 || dtype == BF16 || dtype == F16 || dtype == F64; }

static void check_shape(Import *im, const Param *p, int tensor, bool transpose)
{
    const TensorInfo *info = tensor_file_info(im->file, tensor);
    char found[TENSOR_SHAPE_BYTES], expected[TENSOR_SHAPE_BYTES];
    tensor_shape(found, info->dims, info->n_dims);
    tensor_shape(expected, (int64_t[]){transpose ? p->cols : p->rows, transpose ? p->rows : p->cols}, p->n_dims);
    if (!is_real(info->dtype))
        add_line(im->report, IMPORT_SHAPE, info->name,
                 mem_printf("%s %s, expected f32, f16, bf16 or f64", dtype_name(info->dtype), found));
    else if (shape_fits(p, info, transpose))
        return;
    else if (p->padded > p->rows && info->n_dims == p->n_dims && info->dims[0] != p->rows)
        add_line(im->report, IMPORT_SHAPE, info->name,
                 mem_printf("%s: %" PRId64 " rows of vocabulary, expected the model's %" PRId64 " (or %" PRId64
                            ", %" PRId64 ", padded)",
                            found, info->dims[0], p->rows, round_up(p->rows, 8), round_up(p->rows, 64)));
    else
        add_line(im->report, IMPORT_SHAPE, info->name, mem_printf("%s, expected %s", found, expected));
}

/* A classifier for another number of labels belongs to another task, so this one is initialised. */
static bool has_other_labels(Import *im)
{
    const ParamTable *t = &im->model->params;
    int w = params_find(t, "classifier.weight"), b = params_find(t, "classifier.bias");
    if (w < 0 || im->matches[w].tensor < 0 || im->matches[b].tensor < 0) return false;
    const TensorInfo *weight = tensor_file_info(im->file, im->matches[w].tensor);
    const TensorInfo *bias = tensor_file_info(im->file, im->matches[b].tensor);
    bool other = weight->n_dims == 2 && bias->n_dims == 1 && weight->dims[0] == bias->dims[0] &&
                 weight->dims[1] == t->params[w].cols && weight->dims[0] != t->params[w].rows && weight->dims[0] > 0;
    if (other) im->report->labels = weight->dims[0];
    return other;
}

/* A head whose parameters were found has no other tensors: an adapter or a mask would change its results. */
static void check_rest(ImportReport *r, const bool *group_found)
{
    for (int i = 0; i < r->count; i++) {
        ImportLine *line = &r->lines[i];
        SourceName s;
        if (line->kind != IMPORT_UNUSED) continue;
        import_name(line->name, &s);
        if (group_of(s.name) < 0 || !group_found[group_of(s.name)]) continue;
        line->kind = IMPORT_UNEXPECTED;
        line->detail = mem_strdup(no_such_parameter);
        r->n[IMPORT_UNUSED]--;
        r->n[IMPORT_UNEXPECTED]++;
    }
}

/* Reports every parameter, or its error. */
static void check_params(Import *im)
{
    const ParamTable *t = &im->model->params;
    bool group_found[COUNT(groups)] = {false}, relabelled = has_other_labels(im);
    char expected[TENSOR_SHAPE_BYTES];
    for (int i = 0; i < t->count; i++) {
        Match *m = &im->matches[i];
        if (m->tensor < 0 && m->copy >= 0) { /* only the duplicate was saved */
            m->tensor = m->copy;
            m->copy = -1;
        }
        int g = group_of(t->params[i].name);
        if (m->tensor >= 0 && g >= 0) group_found[g] = true;
    }
    for (int i = 0; i < t->count; i++) {
        const Param *p = &t->params[i];
        Match *m = &im->matches[i];
        int g = group_of(p->name);
        if (m->tensor < 0) {
            m->fresh = p->head && g >= 0 && !group_found[g];
            add_param_line(im, m->fresh ? IMPORT_NEW : IMPORT_MISSING, p,
                           m->fresh ? NULL : mem_printf("expected %s", param_shape(expected, p)));
        } else if (g == GROUP_CLASSIFIER && relabelled) {
            m->fresh = true;
            add_param_line(im, IMPORT_NEW, p, NULL);
        } else {
            check_shape(im, p, m->tensor, m->transpose);
        }
        if (m->copy >= 0) check_shape(im, p, m->copy, false);
    }
    if (relabelled) group_found[GROUP_CLASSIFIER] = false;
    check_rest(im->report, group_found);
}

/* ---- reading ---- */

/* `x` is in the order and with the columns of the file; checks its first `n` elements. */
static Status check_finite(const Import *im, const TensorInfo *info, const float *x, int64_t n)
{
    char place[64];
    int64_t i = 0;
    while (i < n && isfinite(x[i])) i++;
    if (i == n) return OK;
    if (info->n_dims == 2)
        snprintf(place, sizeof place, "[%" PRId64 ", %" PRId64 "]", i / info->dims[1], i % info->dims[1]);
    else
        snprintf(place, sizeof place, "[%" PRId64 "]", i);
    return fail(E_NUMERIC,
                "%s: tensor '%s' holds %s at %s; expected finite numbers: these weights come from a run that diverged",
                im->report->path, info->name, isnan(x[i]) ? "NaN" : "an infinity", place);
}

/* (in, out) to (out, in), in tiles that stay in the cache. */
static void transpose(float *out, const float *in, int64_t rows, int64_t cols)
{
    enum { TILE = 32 };
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)
        for (int64_t c0 = 0; c0 < cols; c0 += TILE)
            for (int64_t r = r0; r < rows && r < r0 + TILE; r++)
                for (int64_t c = c0; c < cols && c < c0 + TILE; c++) out[r * cols + c] = in[c * rows + r];
}

/* Zeros the file's pad rows, which may hold anything. */
static Status read_param(const Import *im, const Param *p, const Match *m, float *w)
{
    const TensorInfo *info = tensor_file_info(im->file, m->tensor);
    if (m->transpose) {
        float *temporary = mem_array((size_t)info->count, sizeof *temporary);
        Status status = tensor_file_read_f32(im->file, m->tensor, temporary, info->count);
        if (status == OK) status = check_finite(im, info, temporary, info->count);
        if (status == OK) transpose(w, temporary, p->rows, p->cols);
        free(temporary);
        return status;
    }
    TRY(tensor_file_read_f32(im->file, m->tensor, w, info->count));
    TRY(check_finite(im, info, w, param_exported(p)));
    if (info->count > param_exported(p))
        memset(w + param_exported(p), 0, (size_t)(info->count - param_exported(p)) * sizeof *w);
    return OK;
}

static Status compare_copy(const Import *im, const Param *p, int copy, const float *w)
{
    Status status = OK;
    const TensorInfo *info = tensor_file_info(im->file, copy);
    float *other = mem_array((size_t)info->count, sizeof *other);
    TRY_DONE(tensor_file_read_f32(im->file, copy, other, info->count));
    for (int64_t i = 0; i < param_exported(p); i++) {
        if (other[i] == w[i]) continue;
        status = fail(E_FORMAT,
                      "%s: tensor '%s' must equal '%s', but at [%" PRId64 ", %" PRId64 "] it is %.9g, not %.9g; "
                      "Cairn trains tied decoders only",
                      im->report->path, info->name, p->name, i / p->cols, i % p->cols, (double)other[i], (double)w[i]);
        goto done;
    }
    add_line(im->report, IMPORT_TIED, info->name, NULL);
done:
    free(other);
    return status;
}

static Status read_params(const Import *im, uint64_t seed, float *weights)
{
    const ParamTable *t = &im->model->params;
    params_zero(t, weights);
    for (int i = 0; i < t->count; i++) {
        const Param *p = &t->params[i];
        const Match *m = &im->matches[i];
        if (m->fresh) {
            params_init_one(t, i, seed, weights);
            continue;
        }
        TRY(read_param(im, p, m, weights + p->offset));
        add_line(im->report, IMPORT_LOADED, p->name, NULL);
        im->report->parameters += param_exported(p);
        if (m->copy >= 0) TRY(compare_copy(im, p, m->copy, weights + p->offset));
    }
    return OK;
}

/* Opens the file and finds each parameter in it, without reading elements. The caller calls import_close, also after an
   error. */
static Status import_open(Import *im, const char *path)
{
    const Model *m = im->model;
    *im->report = (ImportReport){.path = mem_strdup(path)};
    TRY(tensor_file_open(path, &im->file));
    free(im->report->path);
    im->report->path = mem_strdup(tensor_file_path(im->file));
    im->report->format = tensor_file_format(im->file);
    im->report->foreign = import_foreign_class(path);
    im->matches = mem_array((size_t)m->params.count, sizeof *im->matches);
    for (int i = 0; i < m->params.count; i++) im->matches[i] = (Match){.tensor = -1, .copy = -1};
    for (int i = 0; i < tensor_file_count(im->file); i++) match_tensor(im, i);
    check_prefixes(im);
    check_params(im);
    return import_report_errors(im->report);
}

static void import_close(Import *im)
{
    tensor_file_close(im->file);
    free(im->matches);
}

Status import_weights(const char *path, const Model *m, uint64_t seed, float *weights, ImportReport *report)
{
    ImportReport own = {0};
    Import im = {.model = m, .report = report ? report : &own};
    Status status = import_open(&im, path);
    if (status == OK) status = read_params(&im, seed, weights);
    import_close(&im);
    import_report_free(&own);
    return status;
}

Status import_check(const char *path, const Model *m, float **norms)
{
    Status status = OK;
    ImportReport report = {0};
    Import im = {.model = m, .report = &report};
    TRY_DONE(import_open(&im, path));
    if (!norms) goto done;
    *norms = mem_array((size_t)m->params.size, sizeof **norms);
    for (int i = 0; i < m->params.count; i++) {
        const Param *p = &m->params.params[i];
        if (!strstr(p->name, "LayerNorm.")) continue;
        if (im.matches[i].fresh)
            params_init_one(&m->params, i, 0, *norms);
        else
            TRY_DONE(read_param(&im, p, &im.matches[i], *norms + p->offset));
    }
done:
    import_close(&im);
    import_report_free(&report);
    return status;
}
