/* A reader of Python pickles, limited to the elements of a state_dict. It builds plain values from an allow-list of
   opcodes and of globals; nothing is imported, called or executed. Any other class or function makes values that are
   opaque: only their name is kept, for the message if the weights need one. Source: Lib/pickletools.py of CPython
   (opcodes), torch/serialization.py (persistent ids). Private to formats/.

   Values are in one array and refer to each other by index, so cycles are harmless and nothing recurses. Texts point
   into the pickle's bytes, which must outlive the Pickle. */
#pragma once

#include "formats/reader_internal.h"

typedef enum {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_LONG, /* an integer beyond 64 bits: its bytes, little-endian two's complement */
    PICKLE_STRING,
    PICKLE_OTHER,  /* a float, bytes, a set: parsed and ignored */
    PICKLE_OPAQUE, /* a class or function that is not on the list, and whatever is made with it: ignored */
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT, /* an OrderedDict too */
    PICKLE_GLOBAL,
    PICKLE_STORAGE,
    PICKLE_TENSOR
} PickleKind;

typedef uint32_t PickleId; /* index of a value */

#define PICKLE_ABSENT UINT32_MAX

typedef struct {
    PickleKind kind;
    Dtype dtype; /* STORAGE, and a GLOBAL that names a storage type */
    union {
        int64_t integer; /* BOOL, INT */
        int global;      /* GLOBAL: row of the allow-list */
        struct {
            const char *data;
            size_t len;
        } text; /* STRING, LONG */
        struct {
            const char *module, *name;
            uint32_t module_len, name_len;
            bool tensor; /* it stands for a tensor or a storage of a kind that is not read */
        } opaque;
        struct {
            PickleId *items;
            uint32_t count, capacity;
        } list; /* TUPLE, LIST; DICT: key, value, key, value … */
        struct {
            PickleId key;
            int64_t count;                   /* elements of the whole storage */
            int64_t view_offset, view_count; /* the selected part (old form), else 0 and count */
        } storage;
        struct {
            PickleId storage, dims, strides; /* dims, strides: tuples of INT */
            int64_t offset;                  /* in elements */
        } tensor;
    };
} PickleValue;

typedef struct {
    PickleValue *values;
    uint32_t count, capacity;
    uint32_t items; /* in all lists together */
} Pickle;

/* Reads the pickle at data[*at] and moves `at` past it; `root` is its value. The caller may call it again for the next
   pickle of a file: values are kept, memos are not. Messages begin with `path` and name the byte of `data`. */
Status pickle_read(Pickle *p, const char *path, const uint8_t *data, size_t size, size_t *at, PickleId *root);
void pickle_free(Pickle *p); /* takes a zeroed one */
/* The value under a string key of a dict; PICKLE_ABSENT if missing or not a dict. */
PickleId pickle_get(const Pickle *p, PickleId dict, const char *key);
bool pickle_is_text(const Pickle *p, PickleId id, const char *text);

/* Location of a storage's bytes in the file: `offset` of its first element, `sum` as in TensorInfo. */
typedef Status (*StorageFind)(void *context, const Pickle *p, const PickleValue *storage, uint64_t *offset, int *sum);

/* Adds the tensors of a state_dict: the dict of `root` under a key of state_dict.c ("model" …), else root. */
Status state_dict_read(TensorFile *f, int shard, const Pickle *p, PickleId root, StorageFind find, void *context);
