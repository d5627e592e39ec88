/* The input is a .safetensors file. If its length field is wrong, it is also tried with a corrected one.
 */
#include "fuzz_tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_path(0, "x.safetensors");
    fuzz_store(path, data, size);
    fuzz_read(path, size);
    const uint8_t *end = size > 8 ? memrchr(data + 8, '}', size - 8) : NULL;
    if (!end) return 0;
    uint8_t *copy = malloc(size);
    memcpy(copy, data, size);
    uint64_t length = (uint64_t)(end + 1 - data - 8);
    for (int i = 0; i < 8; i++) copy[i] = (uint8_t)(length >> (8 * i));
    fuzz_store(path, copy, size);
    fuzz_read(path, size);
    free(copy);
    return 0;
}
