#include "state/models/export.h"

#include "formats/tensor_file.h"

enum { BLOCK = 1 << 18 }; /* elements */

static int compare_params(const void *a, const void *b, void *table)
{
    char *left = param_file_name(table, *(const Param *const *)a);
    char *right = param_file_name(table, *(const Param *const *)b);
    int order = strcmp(left, right);
    MEM_FREE(left, right);
    return order;
}

/* Opens the file; `order` (params->count) receives the order of an array's tensors. */
static Status open_tensors(const char *path, const ExportTensors *t, const Param **order, SafetensorsWriter **w)
{
    static const char *const metadata[] = {"format", "pt"}; /* required by Hugging Face's reader */
    const ParamTable *params = t->params;
    int count = 0;
    TensorInfo *infos = mem_array((size_t)t->n * (size_t)params->count, sizeof *infos);
    for (int i = 0; i < params->count; i++) order[i] = &params->params[i];
    if (t->by_name) qsort_r(order, (size_t)params->count, sizeof *order, compare_params, (void *)(uintptr_t)params);
    for (int a = 0; a < t->n; a++)
        for (int i = 0; i < params->count; i++) {
            char *name = param_file_name(params, order[i]);
            infos[count++] =
                (TensorInfo){.name = mem_printf("%s%s", t->prefixes[a], t->bare ? strchr(name, '.') + 1 : name),
                             .dtype = F32,
                             .n_dims = order[i]->n_dims,
                             .dims = {order[i]->rows, order[i]->cols}};
            free(name);
        }
    Status status = safetensors_writer_open(w, path, infos, count, metadata, 1);
    for (int i = 0; i < count; i++) free(infos[i].name);
    free(infos);
    return status;
}

/* Pad rows come last in memory, and are not written. */
static Status write_tensor(SafetensorsWriter *w, const ExportTensors *t, int array, const Param *p, float *block)
{
    int64_t end = p->offset + param_exported(p);
    for (int64_t at = p->offset; at < end; at += BLOCK) {
        int64_t n = end - at < BLOCK ? end - at : BLOCK;
        TRY(t->read(t->context, array, at, at + n, block));
        TRY(safetensors_writer_write(w, block, (size_t)n * sizeof *block));
    }
    return OK;
}

Status export_tensors(const char *path, const ExportTensors *t, Digest *digest)
{
    Status status = OK;
    SafetensorsWriter *w = NULL;
    int count = t->params->count;
    const Param **order = mem_array((size_t)count, sizeof *order);
    float *block = mem_array(BLOCK, sizeof *block);
    TRY_DONE(open_tensors(path, t, order, &w));
    for (int a = 0; a < t->n; a++)
        for (int i = 0; i < count; i++) TRY_DONE(write_tensor(w, t, t->first + a, order[i], block));
    status = safetensors_writer_close(w, digest);
    w = NULL;
done:
    safetensors_writer_abandon(w);
    MEM_FREE(order, block);
    return status;
}

Status export_reserve(const char *path, const ExportTensors *t)
{
    SafetensorsWriter *w = NULL;
    const Param **order = mem_array((size_t)t->params->count, sizeof *order);
    Status status = open_tensors(path, t, order, &w);
    free(order);
    return status == OK ? safetensors_writer_leave(w) : status;
}

Status export_read_values(void *values, int array, int64_t begin, int64_t end, float *to)
{
    (void)array;
    memcpy(to, (const float *)values + begin, (size_t)(end - begin) * sizeof *to);
    return OK;
}
