#include "base/host.h"

#include <sys/auxv.h>
#include <unistd.h>

#include "base/mem.h"

void host_name(char *name, size_t size)
{
    if (gethostname(name, size) != 0 || !*name) snprintf(name, size, "localhost");
    name[size - 1] = '\0';
}

void host_value(const char *path, const char *key, char *out, size_t size)
{
    char line[4096];
    FILE *f = fopen(path, "re");
    *out = '\0';
    while (f && !*out && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        char *text = line + strlen(key);
        text += strspn(text, " \t:=\"");
        size_t len = strlen(text);
        while (len && strchr(" \t\n\"", text[len - 1])) len--;
        snprintf(out, size, "%.*s", (int)len, text);
    }
    if (f) fclose(f);
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
