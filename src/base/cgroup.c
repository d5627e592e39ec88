#include "base/cgroup.h"

#include "base/std.h"

/* mem.c asks about memory in its message of exhaustion, so nothing here calls mem.c. */
enum { LINE_BYTES = 5000, PATH_BYTES = LINE_BYTES + 1000 };

typedef struct {
    const char *mount, *limit, *used, *inactive, *events;
} Version;

static const Version v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                           "total_inactive_file %llu", "memory.oom_control"};
static const Version v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file %llu", "memory.events"};

static bool read_number(const char *folder, const char *name, const char *format, unsigned long long *value)
{
    char path[PATH_BYTES + 64], line[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) found = sscanf(line, format, value) == 1;
    if (f) fclose(f);
    return found;
}

/* One figure of a group; SIZE_MAX: unknown. */
typedef size_t (*Figure)(const Version *v, const char *folder);

static size_t group_limit(const Version *v, const char *folder)
{
    unsigned long long limit;
    bool is_limited = read_number(folder, v->limit, "%llu", &limit) && limit < 1ull << 60; /* v2 writes "max" */
    return is_limited ? (size_t)limit : SIZE_MAX;
}

static size_t group_free(const Version *v, const char *folder)
{
    unsigned long long used, inactive = 0;
    size_t limit = group_limit(v, folder);
    if (limit == SIZE_MAX || !read_number(folder, v->used, "%llu", &used)) return SIZE_MAX;
    read_number(folder, "memory.stat", v->inactive, &inactive);
    used = used > inactive ? used - inactive : 0;
    return used < limit ? limit - (size_t)used : 0;
}

static size_t group_kills(const Version *v, const char *folder)
{
    unsigned long long n;
    if (read_number(folder, v->events, "oom_kill %llu", &n)) return (size_t)n;
    return read_number(folder, "memory.failcnt", "%llu", &n) ? (size_t)n : SIZE_MAX;
}

/* The minimum over the groups from `group` to the root. In a container only the groups below the container's own are
   mounted, so a missing folder has no limit. */
static size_t least_above(const char *root, const Version *v, char *group, Figure figure)
{
    size_t least = SIZE_MAX;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        char folder[PATH_BYTES];
        snprintf(folder, sizeof folder, "%s%s%s", root, v->mount, group);
        size_t here = figure(v, folder);
        if (here < least) least = here;
        if (figure == group_kills && here != SIZE_MAX) return here; /* the process's own group */
    }
    return least;
}

/* The minimum over all groups. A line is "NUMBER:CONTROLLERS:GROUP"; v2's has number 0 and no controllers. */
static size_t least_of_groups(const char *root, Figure figure)
{
    size_t least = SIZE_MAX;
    char path[PATH_BYTES], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL, *rest;
        if (!group) continue;
        *group++ = '\0';
        const Version *v = strncmp(line, "0:", 2) == 0 ? &v2 : NULL;
        for (char *word = strtok_r(controllers + 1, ",", &rest); word && !v; word = strtok_r(NULL, ",", &rest))
            if (strcmp(word, "memory") == 0) v = &v1;
        size_t here = v ? least_above(root, v, group, figure) : SIZE_MAX;
        if (here < least) least = here;
    }
    if (f) fclose(f);
    return least;
}

size_t cgroup_free_bytes(const char *root) { return least_of_groups(root, group_free); }
size_t cgroup_limit_bytes(const char *root) { return least_of_groups(root, group_limit); }

uint64_t cgroup_memory_kills(const char *root)
{
    size_t n = least_of_groups(root, group_kills);
    return n == SIZE_MAX ? 0 : n;
}
