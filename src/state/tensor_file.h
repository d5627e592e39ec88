/* A file (or set of files) of named tensors, whatever its format: safetensors (single, or sharded by an index), PyTorch's .bin/.pt (zip
   form and the old form), TensorFlow 1 checkpoints. Nothing in a file is ever executed, and no reader allocates what a
   header merely claims. */
#ifndef CAIRN_STATE_TENSOR_FILE_H
#define CAIRN_STATE_TENSOR_FILE_H

#include "base/base.h"

#define TENSOR_MAX_DIMS 8

typedef struct {
    char *name;
    Dtype dtype;
    int n_dims;
    int64_t dims[TENSOR_MAX_DIMS];
    int64_t count;       /* product of dims, checked against overflow and against the file */
    /* private to the reader */
    int shard;
    uint64_t offset, bytes;
    int64_t strides[TENSOR_MAX_DIMS]; /* in elements; PyTorch's may be permuted */
} TensorInfo;

typedef struct TensorFile TensorFile;

typedef enum { TENSORS_SAFETENSORS, TENSORS_PYTORCH, TENSORS_TF1 } TensorFormat;

/* `path`: a .safetensors file, a .safetensors.index.json, a .bin/.pt/.pth file, a TF1 prefix or its .index file, or a
   directory holding model.safetensors, model.safetensors.index.json, pytorch_model.bin[.index.json] or exactly one TF1
   .index file (looked for in this order). Errors name the file, what was expected, and what was found. */
Status tensor_file_open(const char *path, TensorFile **file);
void tensor_file_close(TensorFile *file);
TensorFormat tensor_file_format(const TensorFile *file);
const char *tensor_file_path(const TensorFile *file);
int tensor_file_count(const TensorFile *file);
const TensorInfo *tensor_file_info(const TensorFile *file, int i);
int tensor_file_find(const TensorFile *file, const char *name); /* −1 if absent */
/* Element values in row-major order, converted to fp32. `out` has room for `count` (= info->count) elements. */
Status tensor_file_read_f32(const TensorFile *file, int i, float *out, int64_t count);
/* Raw little-endian bytes as they stand in the file, row-major; `bytes` must be count × element size. */
Status tensor_file_read_raw(const TensorFile *file, int i, void *out, size_t bytes);
/* The string under a key of safetensors' __metadata__, or NULL. */
const char *tensor_file_metadata(const TensorFile *file, const char *key);

/* Writes a safetensors file durably, tensor by tensor. All infos first (name, dtype, dims), then the data in that order. */
typedef struct SafetensorsWriter SafetensorsWriter;
Status safetensors_writer_open(SafetensorsWriter **w, const char *path, const TensorInfo *infos, int count,
                               const char *const *metadata, int n_metadata_pairs); /* key, value, key, value … */
Status safetensors_writer_write(SafetensorsWriter *w, const void *data, size_t bytes); /* any chunking, in order */
Status safetensors_writer_close(SafetensorsWriter *w, Digest *digest); /* fails if bytes are missing */
void safetensors_writer_abandon(SafetensorsWriter *w);

#endif
