#include "base/pages.h"

#include <sys/mman.h>

#define PAGE ((size_t)4096)

static size_t whole_pages(size_t bytes) { return (bytes ? bytes + PAGE - 1 : PAGE) / PAGE * PAGE; }

Status pages_map(size_t bytes, void **p)
{
    if (bytes > SIZE_MAX / 2) return fail(E_MEMORY, "a region of %zu bytes is larger than the address space", bytes);
    size_t inner = whole_pages(bytes);
    char *outer = mmap(NULL, inner + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (outer == MAP_FAILED) return fail(E_MEMORY, "cannot map a region of %zu bytes: %s", bytes, strerror(errno));
    char *start = mmap(outer + PAGE, inner, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (start == MAP_FAILED) {
        int error = errno;
        munmap(outer, inner + 2 * PAGE);
        return fail(E_MEMORY, "cannot map a region of %zu bytes: %s", bytes, strerror(error));
    }
    madvise(start, inner, MADV_HUGEPAGE); /* a hint */
    for (size_t i = 0; i < inner; i += PAGE) ((volatile char *)start)[i] = 0;
    *p = start;
    return OK;
}

void pages_unmap(void *p, size_t bytes)
{
    if (p) munmap((char *)p - PAGE, whole_pages(bytes) + 2 * PAGE);
}
