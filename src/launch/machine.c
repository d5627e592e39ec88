#include "launch/machine.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

enum { MOST_CORES = 1 << 16 }; /* of one host */

typedef struct {
    int id, package, core;
} Core;

static int read_topology(int core, const char *what)
{
    char path[96];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", core, what);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%d", &value) != 1) value = 0;
    fclose(file);
    return value;
}

static int by_topology(const void *a, const void *b)
{
    const Core *x = a, *y = b;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

void cores_find(Cores *cores)
{
    size_t bytes = CPU_ALLOC_SIZE(MOST_CORES);
    cpu_set_t *set = mem_alloc(bytes);
    int n = 0, count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    Core *found = mem_array((size_t)count + 1, sizeof *found);
    for (int id = 0; n < count; id++)
        if (CPU_ISSET_S((size_t)id, bytes, set))
            found[n++] = (Core){id, read_topology(id, "physical_package_id"), read_topology(id, "core_id")};
    qsort(found, (size_t)n, sizeof *found, by_topology);
    *cores = (Cores){.ids = mem_array((size_t)n + 1, sizeof(int)), .n = n, .bytes = bytes};
    for (int i = 0; i < n; i++) cores->ids[i] = found[i].id;
    MEM_FREE(found, set);
}

void cores_free(Cores *cores)
{
    free(cores->ids);
    *cores = (Cores){0};
}

void cores_bind(const Cores *cores, int local_rank, int local_size, cpu_set_t *set)
{
    if (local_size < 2 || cores->n < local_size) return;
    int begin = (int)((int64_t)cores->n * local_rank / local_size);
    int end = (int)((int64_t)cores->n * (local_rank + 1) / local_size);
    CPU_ZERO_S(cores->bytes, set);
    for (int i = begin; i < end; i++) CPU_SET_S((size_t)cores->ids[i], cores->bytes, set);
    sched_setaffinity(0, cores->bytes, set);
}

/* A control group may keep a device from this job. */
static bool is_allowed(int folder, const char *device)
{
    int fd = openat(folder, device, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    bool refused = fd < 0 && errno == EPERM;
    if (fd >= 0) close(fd);
    return !refused;
}

int gpus_count(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    if (visible) {
        if (!*visible || *visible == '-' || strcmp(visible, "NoDevFiles") == 0) return 0;
        for (n = 1; *visible; visible++) n += *visible == ',';
        return n;
    }
    DIR *devices = opendir("/dev");
    if (!devices) return 0;
    for (struct dirent *d; (d = readdir(devices));) {
        if (strncmp(d->d_name, "nvidia", 6) != 0 || !d->d_name[6]) continue;
        if (strspn(d->d_name + 6, "0123456789") == strlen(d->d_name + 6)) n += is_allowed(dirfd(devices), d->d_name);
    }
    closedir(devices);
    return n;
}

bool variable_begins(const char *entry, const char *prefixes)
{
    for (size_t n; (n = strcspn(prefixes, " ")) > 0; prefixes += n + strspn(prefixes + n, " "))
        if (strncmp(entry, prefixes, n) == 0) return true;
    return false;
}
