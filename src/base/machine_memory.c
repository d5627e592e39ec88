#include "base/machine_memory.h"

#include <stdint.h>
#include <stdio.h>

#include "base/cgroup.h"

size_t machine_free_bytes(void)
{
    unsigned long long kib = 0;
    size_t group = cgroup_free_bytes("");
    char line[256];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && kib == 0 && fgets(line, sizeof line, f)) sscanf(line, "MemAvailable: %llu kB", &kib);
    if (f) fclose(f);
    size_t available = kib ? (size_t)kib * 1024 : SIZE_MAX;
    return available < group ? available : group;
}

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
