#include "cuda_host/shared.h"

#include <bitset>
#include <cinttypes>
#include <cstdio>

#include "asan.h"
#include "cuda_host/cuda_host.h"

namespace
{
constexpr size_t guard = 64;
constexpr int max_arrays = 256, max_threads = 1024;
constexpr unsigned char unset = 0xff; /* NaN in every type */

struct Array {
    const char *name;
    size_t offset, bytes;
};

/* Memory for every array of a block with its guard and its alignment. */
alignas(1024) unsigned char memory[shared_limit + max_arrays * (guard + 256)];
unsigned char published[sizeof memory]; /* as products see it */
std::bitset<max_threads> publishers;    /* since the last barrier */
Array arrays[max_arrays];
int n_arrays;
size_t used, next; /* bytes of arrays; the first offset behind them and their guards */
uint64_t block;

/* An array right behind the last one's guard, aligned to `align` and no more. */
unsigned char *add(const char *name, size_t bytes, size_t align)
{
    if (align < 8) align = 8; /* AddressSanitizer guards in steps of 8 */
    size_t offset = (next + 2 * align - 1) / (2 * align) * (2 * align) + align;
    arrays[n_arrays++] = Array{name, offset, bytes};
    used += bytes;
    next = offset + bytes + guard;
    ASAN_UNPOISON_MEMORY_REGION(memory + offset, bytes);
    memset(memory + offset, unset, bytes);
    memset(published + offset, unset, bytes);
#if !TESTING_ASAN
    memset(memory + offset + bytes, unset, guard);
#endif
    return memory + offset;
}
size_t most = shared_limit; // of the device
} // namespace

size_t shared_most() { return most; }
void cuda_host_set_shared(size_t bytes) { most = bytes < shared_limit ? bytes : shared_limit; }

void shared_begin(size_t dynamic)
{
    if (block == 0) ASAN_POISON_MEMORY_REGION(memory, sizeof memory);
    ASAN_POISON_MEMORY_REGION(memory, next);
    block++;
    n_arrays = 0;
    used = next = 0;
    publishers.reset();
    add("of the launch", dynamic, 16);
}

uint64_t shared_block() { return block; }

void shared_publish(int thread) { publishers.set(static_cast<size_t>(thread)); }

void shared_barrier(int threads)
{
    bool all = publishers.count() == static_cast<size_t>(threads);
    for (int i = 0; all && i < n_arrays; i++)
        memcpy(published + arrays[i].offset, memory + arrays[i].offset, arrays[i].bytes);
    publishers.reset();
}

bool shared_is_published(const void *p, size_t bytes) { return memcmp(published + shared_offset(p), p, bytes) == 0; }

size_t shared_offset(const void *p) { return static_cast<size_t>(static_cast<const unsigned char *>(p) - memory); }
const void *shared_at(size_t offset) { return memory + offset; }

std::string shared_end()
{
#if !TESTING_ASAN /* AddressSanitizer stops a write to a guard at once */
    for (int i = 0; i < n_arrays; i++)
        for (size_t j = 0; j < guard; j++) {
            if (memory[arrays[i].offset + arrays[i].bytes + j] == unset) continue;
            char text[300];
            snprintf(text, sizeof text, "the shared array %s of %zu bytes was written beyond, %zu bytes from its end",
                     arrays[i].name, arrays[i].bytes, j);
            return text;
        }
#endif
    return "";
}

void *cuda_host_shared(CudaHostShared *site, size_t bytes, size_t align, const char *name, CudaHostPlace at)
{
    if (site->block == block) return site->array;
    if (used + bytes > shared_most())
        cuda_host_fault(at, "shared memory for %s: the block would have %zu bytes; it has at most %zu", name,
                        used + bytes, shared_most());
    if (n_arrays == max_arrays || align > 128)
        cuda_host_fault(at, "shared memory for %s: at most %d arrays, aligned to at most 128 bytes, not %zu", name,
                        max_arrays, align);
    site->block = block;
    site->array = add(name, bytes, align);
    return site->array;
}

void *cuda_host_shared_dynamic() { return memory + arrays[0].offset; }

bool cuda_host_is_shared(const void *p, size_t bytes)
{
    const unsigned char *first = static_cast<const unsigned char *>(p);
    for (int i = 0; i < n_arrays; i++)
        if (first >= memory + arrays[i].offset && first + bytes <= memory + arrays[i].offset + arrays[i].bytes)
            return true;
    return false;
}
