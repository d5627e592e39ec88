#include "base/machine_memory.h"

#include <malloc.h>
#include <sys/resource.h>

#include "base/cgroup.h"

/* Pages of files on their way to the disk (file_writer.c leaves 4 MiB there), and the kernel's own memory for the
   processes (1 to 3 MiB were measured). */
#define GROUP_MARGIN ((size_t)6 << 20)

static size_t available_bytes(void)
{
    unsigned long long kib = 0;
    char line[256];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && kib == 0 && fgets(line, sizeof line, f)) sscanf(line, "MemAvailable: %llu kB", &kib);
    if (f) fclose(f);
    return kib ? (size_t)kib * 1024 : SIZE_MAX;
}

size_t machine_free_bytes(void)
{
    size_t available = available_bytes(), group = cgroup_free_bytes("");
    return available < group ? available : group;
}

size_t machine_group_bytes(void) { return cgroup_free_bytes("") < available_bytes() ? GROUP_MARGIN : 0; }

/* `name`: the line of /proc/self/status that the limit is about. */
static size_t left_of(int resource, const char *name)
{
    struct rlimit limit;
    char line[256], format[32];
    unsigned long kib = 0;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    snprintf(format, sizeof format, "%s: %%lu", name);
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, format, &kib) != 1) {}
    if (f) fclose(f);
    return limit.rlim_cur / 1024 > kib ? (size_t)limit.rlim_cur - (size_t)kib * 1024 : 0;
}

size_t process_free_addresses(void)
{
    size_t all = left_of(RLIMIT_AS, "VmSize"), data = left_of(RLIMIT_DATA, "VmData");
    return all < data ? all : data;
}

Status process_check_stack(void)
{
    enum { LEAST_KIB = 256 }; /* a launcher was killed by SIGSEGV with 80, and not with 96 */
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur / 1024 >= LEAST_KIB) return OK;
    return fail(E_MEMORY,
                "stacks are limited to %llu KiB (ulimit -s); expected %d KiB or more. Raise the limit, as by ulimit -s "
                "8192",
                (unsigned long long)limit.rlim_cur / 1024, (int)LEAST_KIB);
}

#ifdef __GLIBC__
void process_spare_addresses(void)
{
    if (process_free_addresses() != SIZE_MAX) mallopt(M_ARENA_MAX, 1);
}

void process_trim(void) { malloc_trim(0); }
#else
void process_spare_addresses(void) {}
void process_trim(void) {}
#endif

size_t process_resident(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    size_t kib = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long value;
        if (sscanf(line, "RssAnon: %lu", &value) == 1 || sscanf(line, "RssShmem: %lu", &value) == 1) kib += value;
    }
    fclose(f);
    return kib * 1024;
}
