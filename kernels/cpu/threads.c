/* The default number of threads. */
#include <sched.h>

#include "kernels/cpu/cpu.h"

/* Whether `n` is the first hardware thread of its core in the affinity mask. */
static bool first_of_core(int n, const cpu_set_t *may)
{
    FILE *f = fopen(SHORT_TEXT("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", n), "re");
    if (!f) return true;
    bool first = true;
    int low, high;
    while (first && fscanf(f, "%d", &low) == 1) { /* "0,8" or "0-1" */
        high = low;
        int c = fgetc(f);
        if (c == '-') {
            if (fscanf(f, "%d", &high) != 1) high = low;
            c = fgetc(f);
        }
        for (int i = low; i <= high && i < n; i++) first &= i >= CPU_SETSIZE || !CPU_ISSET(i, may);
        if (c != ',') break;
    }
    fclose(f);
    return first;
}

/* CPUs' worth of time that the cgroup allows, rounded up; 0: no limit known. */
static int quota(void)
{
    double limit = 0, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    bool known = f && fscanf(f, "%lf %lf", &limit, &period) == 2;
    if (f) fclose(f);
    return known && limit > 0 && period > 0 ? (int)((limit + period - 1) / period) : 0;
}

int cpu_threads_offered(void)
{
    cpu_set_t may;
    int n = 0, limit = quota();
    if (sched_getaffinity(0, sizeof may, &may) != 0) return 1;
    for (int i = 0; i < CPU_SETSIZE; i++) n += CPU_ISSET(i, &may) && first_of_core(i, &may);
    if (limit && limit < n) n = limit;
    return n < 1 ? 1 : n;
}
