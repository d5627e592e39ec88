#include "comm/meet/report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/std.h"

static const char *const words[] = {
#define X(name, word) word,
    REPORT_LIST(X)
#undef X
};

/* The agent's pipe, which processes that this one starts do not get. -1: there is none, or the variable is left from
   elsewhere and names another file. */
static int find_pipe(void)
{
    const char *number = getenv("CAIRN_REPORTS");
    struct stat info;
    if (!number || !*number) return -1;
    int fd = atoi(number);
    if (fd <= STDERR_FILENO || fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) return -1;
    if ((fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK)) != (O_WRONLY | O_NONBLOCK)) return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

void report_to_agent(Report what, int rank, bool silent)
{
    char line[64];
    int fd = find_pipe();
    if (fd < 0) return;
    int size = snprintf(line, sizeof line, "%s %d %d\n", words[what], rank, silent);
    if (write(fd, line, (size_t)size) < 0) log_debug("the agent was not told '%s %d': %m", words[what], rank);
}

bool report_parse(const char *line, Report *what, int *rank, bool *silent)
{
    char word[16];
    int how;
    if (sscanf(line, "%15s %d %d", word, rank, &how) != 3) return false;
    for (int i = 0; i < N_REPORTS; i++) {
        if (strcmp(word, words[i]) != 0) continue;
        *what = (Report)i;
        *silent = how != 0;
        return true;
    }
    return false;
}
