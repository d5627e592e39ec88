#include "base/host.h"

#include <sys/auxv.h>
#include <unistd.h>

#include "base/mem.h"

void host_name(char *name, size_t size)
{
    if (gethostname(name, size) != 0 || !*name) snprintf(name, size, "localhost");
    name[size - 1] = '\0';
}

/* Without /proc the kernel's word is left, which is a path from the folder of the start. */
char *host_program(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    if (n > 0) return mem_strndup(path, (size_t)n);
    const char *started = (const char *)getauxval(AT_EXECFN);
    char *whole = started ? realpath(started, NULL) : NULL;
    return whole ? whole : mem_strdup("cairn");
}
