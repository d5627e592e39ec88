/* Shared by the two files of fake_cudnn: descriptors and how they are read. */
#pragma once

#include <cudnn.h>
#include <string.h>

#include <map>
#include <string>
#include <vector>

struct Attribute {
    cudnnBackendAttributeType_t type;
    int64_t n;
    std::string bytes;
};

struct Described {
    cudnnBackendDescriptorType_t type;
    bool finished;
    std::map<int, Attribute> attribute;
    bool any_order; /* an engine's */
};

[[noreturn]] __attribute__((format(printf, 1, 2))) void wrong(const char *format, ...);
#define MUST(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) wrong(__VA_ARGS__);                                                                          \
    } while (0)

template <typename T> static inline std::vector<T> all_of(const Described *d, int name)
{
    std::vector<T> values;
    auto found = d->attribute.find(name);
    if (found == d->attribute.end()) return values;
    values.resize(static_cast<size_t>(found->second.n));
    memcpy(values.data(), found->second.bytes.data(), values.size() * sizeof(T));
    return values;
}
template <typename T> static inline T one_of(const Described *d, int name, T otherwise = {})
{
    auto found = d->attribute.find(name);
    if (found != d->attribute.end()) memcpy(&otherwise, found->second.bytes.data(), sizeof otherwise);
    return otherwise;
}
static inline Described *part(const Described *d, int name) { return one_of<Described *>(d, name); }

static inline bool is_virtual(const Described *t) { return one_of<bool>(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL); }
static inline int64_t number_of(const Described *t) { return one_of<int64_t>(t, CUDNN_ATTR_TENSOR_UNIQUE_ID); }
static inline std::vector<int64_t> sizes(const Described *t)
{
    return all_of<int64_t>(t, CUDNN_ATTR_TENSOR_DIMENSIONS);
}
static inline std::vector<int64_t> strides(const Described *t) { return all_of<int64_t>(t, CUDNN_ATTR_TENSOR_STRIDES); }
static inline Described *offsets(const Described *t) { return part(t, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC); }
static inline cudnnDataType_t type_of(const Described *t)
{
    return one_of<cudnnDataType_t>(t, CUDNN_ATTR_TENSOR_DATA_TYPE);
}

/* Runs a finished graph; `address` by number. */
void run_graph(const Described *graph, const std::map<int64_t, char *> &address);
