/* Preloaded: when the process ends by exit, the file CAIRN_TEST_PEAK gets a line with the MiB of memory that it held at
   most, less the pages of files. What a program says of itself it reads between its steps. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("CAIRN_TEST_PEAK");
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    long most = 0, files = 0;
    while (f && fgets(line, sizeof line, f)) {
        (void)sscanf(line, "VmHWM: %ld", &most);
        (void)sscanf(line, "RssFile: %ld", &files);
    }
    if (f) fclose(f);
    int out = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (out < 0) return;
    snprintf(line, sizeof line, "%.1f\n", (double)(most - files) / 1024);
    if (write(out, line, strlen(line)) < 0) _exit(99);
    (void)close(out);
}
