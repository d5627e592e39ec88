#include "base/cgroup.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct {
    const char *mount, *limit, *used, *inactive;
} Version;

static const Version v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                           "total_inactive_file %llu"};
static const Version v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file %llu"};

static bool read_number(const char *folder, const char *name, const char *format, unsigned long long *value)
{
    char *path = mem_printf("%s/%s", folder, name), line[256];
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) found = sscanf(line, format, value) == 1;
    if (f) fclose(f);
    free(path);
    return found;
}

static size_t group_free(const Version *v, const char *folder)
{
    unsigned long long limit, used, inactive = 0;
    if (!read_number(folder, v->limit, "%llu", &limit) || limit >= 1ull << 60) return SIZE_MAX; /* none, or "max" */
    if (!read_number(folder, v->used, "%llu", &used)) return SIZE_MAX;
    read_number(folder, "memory.stat", v->inactive, &inactive);
    used = used > inactive ? used - inactive : 0;
    return used < limit ? (size_t)(limit - used) : 0;
}

/* From `group` to the top. In a container only the groups below the container's own are mounted: a folder that is not
   there has no limit. */
static size_t path_free(const char *root, const Version *v, char *group)
{
    size_t least = SIZE_MAX;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        char *folder = mem_printf("%s%s%s", root, v->mount, group);
        size_t here = group_free(v, folder);
        if (here < least) least = here;
        free(folder);
    }
    return least;
}

/* A line is "NUMBER:CONTROLLERS:GROUP"; v2's has number 0 and no controllers. */
size_t cgroup_free_bytes(const char *root)
{
    size_t least = SIZE_MAX;
    char *path = mem_printf("%s/proc/self/cgroup", root), line[5000];
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL, *rest;
        if (!group) continue;
        *group++ = '\0';
        const Version *v = strncmp(line, "0:", 2) == 0 ? &v2 : NULL;
        for (char *word = strtok_r(controllers + 1, ",", &rest); word && !v; word = strtok_r(NULL, ",", &rest))
            if (strcmp(word, "memory") == 0) v = &v1;
        size_t here = v ? path_free(root, v, group) : SIZE_MAX;
        if (here < least) least = here;
    }
    if (f) fclose(f);
    free(path);
    return least;
}
