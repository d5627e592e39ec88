/* A file (or set of files) of named tensors in one of these formats: safetensors (single, or sharded by an index),
   PyTorch's .bin/.pt (zip form and the old form; sharded by an index), TensorFlow 1 checkpoints. Readers never execute
   anything from a file, and never allocate by a header's claim alone: `count` elements never take more bytes than the
   file has.

   Life: open maps the files, reads the names and checks every range; reading verifies the checksums that the format has
   (TF1: CRC-32C of each tensor; PyTorch zip: CRC-32 of each storage, once) and copies. The caller closes. Several
   threads may read one open file. Names are UTF-8 without control characters, and unique.

   Every tensor of the file is listed, optimizer slots and global_step of a TF1 checkpoint too (strings are left out:
   they are not tensors of numbers); the importer chooses among them. For a PyTorch file these are the tensors of the
   dictionary under "model", "state_dict", "model_state_dict" or "module" (DeepSpeed), or else the top one. Bools are
   U8. */
#pragma once

#include "base/base.h"

#define TENSOR_MAX_DIMS 8

typedef struct {
    char *name;
    Dtype dtype;
    int n_dims;
    int64_t dims[TENSOR_MAX_DIMS];
    int64_t count; /* product of dims (1 without dims), checked against overflow and against the file */
    /* private to the readers */
    int shard;                        /* index of its file */
    int sum;                          /* index of the checksum to verify before reading, −1: none */
    uint64_t offset;                  /* of element 0, in bytes from the start of that file */
    uint64_t bytes;                   /* count × element size */
    int64_t strides[TENSOR_MAX_DIMS]; /* in elements, ≥ 0; PyTorch's may be permuted */
} TensorInfo;

#define TENSOR_SHAPE_BYTES 192 /* 8 dimensions of 19 digits */

/* "(768, 3072)". Returns `out`. */
const char *tensor_shape(char out[TENSOR_SHAPE_BYTES], const int64_t *dims, int n);

typedef struct TensorFile TensorFile;

typedef enum { TENSORS_SAFETENSORS, TENSORS_PYTORCH, TENSORS_TF1 } TensorFormat;

const char *tensor_format_name(TensorFormat format); /* "safetensors", "PyTorch", "TensorFlow 1" */

/* `path`: a .safetensors file, a .safetensors.index.json, a .bin/.pt/.pth file, a .bin.index.json, a TF1 prefix or its
   .index file, or a directory holding model.safetensors, model.safetensors.index.json, pytorch_model.bin[.index.json]
   or exactly one TF1 .index file (looked for in this order). A file with another suffix is identified by its content.
   Errors name the file, what was expected, and what was found. A TF1 data shard that is absent is an error only when it
   is read. */
Status tensor_file_open(const char *path, TensorFile **file);
void tensor_file_close(TensorFile *file); /* takes NULL */
TensorFormat tensor_file_format(const TensorFile *file);
const char *tensor_file_path(const TensorFile *file); /* the file found, if a directory was given */
int tensor_file_count(const TensorFile *file);
const TensorInfo *tensor_file_info(const TensorFile *file, int i);
int tensor_file_find(const TensorFile *file, const char *name); /* −1 if absent */
/* Element values in row-major order, converted to fp32. `out` has room for `count` (= info->count) elements. */
Status tensor_file_read_f32(const TensorFile *file, int i, float *out, int64_t count);
/* Raw little-endian bytes as in the file, row-major; `bytes` must be count × element size. */
Status tensor_file_read_raw(const TensorFile *file, int i, void *out, size_t bytes);

/* Writes a safetensors file durably, tensor by tensor. The caller gives all infos first (name, dtype, dims; other
   members are ignored), then the data in that order. The same calls give the same bytes. With mixed element sizes the
   larger must come first, so that every tensor is aligned. */
typedef struct SafetensorsWriter SafetensorsWriter;
Status safetensors_writer_open(SafetensorsWriter **w, const char *path, const TensorInfo *infos, int count,
                               const char *const *metadata, int n_metadata_pairs);     /* key, value, key, value … */
Status safetensors_writer_write(SafetensorsWriter *w, const void *data, size_t bytes); /* any chunking, in order */
/* Fails, and leaves no file, if bytes are missing. Always frees `w`. `digest` may be NULL. */
Status safetensors_writer_close(SafetensorsWriter *w, Digest *digest);
/* Closes a file of full size, with zeros for all data that is missing: others write it. Always frees `w`. */
Status safetensors_writer_leave(SafetensorsWriter *w);
void safetensors_writer_abandon(SafetensorsWriter *w); /* takes NULL */
