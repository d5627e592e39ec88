#include "launch/pbs.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTACH_S 20.0 /* limit of the wait for a busy execution daemon */

/* NAME in FOLDER/bin or FOLDER, or NULL. */
static char *program_in(const char *folder, size_t length, const char *part, const char *name)
{
    char *path = mem_printf("%.*s%s/%s", (int)length, folder, part, name);
    if (length > 0 && access(path, X_OK) == 0) return path;
    free(path);
    return NULL;
}

/* PBS_EXEC of PBS's configuration file. Caller frees. */
static char *configured_folder(void)
{
    const char *given = getenv("PBS_CONF_FILE");
    char *folder = NULL, line[4096];
    int fd = file_open(given && *given ? given : "/etc/pbs.conf", O_RDONLY);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    while (f && !folder && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (strncmp(line, "PBS_EXEC=", 9) == 0) folder = mem_strdup(line + 9);
    }
    if (f) fclose(f);
    return folder;
}

/* The path of one of PBS's programs: on PATH, in PBS_EXEC of the environment or of pbs.conf, in /opt/pbs. NULL where it
   is not found. Caller frees. */
static char *find_program(const char *name)
{
    const char *search = getenv("PATH"), *given = getenv("PBS_EXEC");
    char *found = NULL, *folder = NULL;
    for (const char *p = search; p && *p && !found; p += *p == ':') {
        size_t length = strcspn(p, ":");
        found = program_in(p, length, "", name);
        p += length;
    }
    if (!found && given) found = program_in(given, strlen(given), "/bin", name);
    if (!found && (folder = configured_folder())) found = program_in(folder, strlen(folder), "/bin", name);
    if (!found) found = program_in("/opt/pbs", strlen("/opt/pbs"), "/bin", name);
    free(folder);
    return found;
}

void pbs_attach(const char *job)
{
    char *program = find_program("pbs_attach"), number[16];
    if (!program) return;
    snprintf(number, sizeof number, "%d", (int)getpid());
    pid_t child = fork();
    if (child == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(STDERR_FILENO, STDOUT_FILENO); /* standard output is the launcher's */
        execl(program, program, "-j", job, "-p", number, (char *)NULL);
        _exit(127);
    }
    double until = clock_monotonic() + ATTACH_S;
    for (bool there = child > 0; there;) {
        if (clock_monotonic() > until) kill(child, SIGKILL);
        there = waitpid(child, NULL, WNOHANG) == 0;
        if (there) poll(NULL, 0, 10);
    }
    free(program);
}

bool pbs_task_words(const char *host, char *words[5])
{
    int n = 0;
    words[n] = find_program("pbs_tmrsh");
    bool direct = words[n] != NULL;
    if (!direct) {
        words[n] = find_program("pbsdsh");
        if (!words[n]) return false;
        words[++n] = mem_strdup("-h");
    }
    words[++n] = mem_strdup(host);
    if (!direct) words[++n] = mem_strdup("--"); /* else getopt would take the program's own */
    words[++n] = NULL;
    return true;
}
