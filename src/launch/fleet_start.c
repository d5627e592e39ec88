/* Starts agents on hosts. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/host.h"
#include "launch/launch_internal.h"
#include "launch/pbs.h"

enum { MOST_WORDS = 64, MOST_OWN = 6 };
#define SSH_S 20.0 /* for ssh to connect, if PBS can start agents too */

/* The words that run a shell command on a host, with %h for the host: CAIRN_SSH, the scheduler's own, or ssh. */
static char *shell_command(const Fleet *f)
{
    const char *given = getenv("CAIRN_SSH");
    double connect_s = f->tasks && f->connect_s > SSH_S ? SSH_S : f->connect_s;
    if (given && *given) return mem_strdup(given);
    if (f->sites->from == SITES_OF_SLURM)
        return mem_strdup("srun --overlap --quiet --nodes=1 --ntasks=1 --cpu-bind=none --nodelist=%h sh -c");
    if (f->sites->from == SITES_OF_GRID_ENGINE) return mem_strdup("qrsh -inherit %h");
    return mem_printf("ssh -T -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=4 "
                      "-o ConnectTimeout=%.0f --",
                      connect_s < 1 ? 1 : connect_s);
}

/* A word with the host in place of %h. */
static char *expand_host(const char *word, const char *host, bool *named)
{
    Buf out = {0};
    for (const char *p = word; *p; p++)
        if (p[0] == '%' && p[1] == 'h') {
            buf_puts(&out, host);
            *named = true;
            p++;
        } else
            buf_append(&out, p, 1);
    return out.data;
}

/* Appends the words of an agent. Under PBS they name the job, to which the agent attaches itself. */
static int own_words(const Fleet *f, const Remote *r, char **words)
{
    int n = 0;
    const char *job = f->sites->from == SITES_OF_PBS ? getenv("PBS_JOBID") : NULL;
    words[n++] = host_program();
    words[n++] = mem_strdup("launch");
    words[n++] = mem_strdup("--");
    words[n++] = mem_strdup("@agent");
    if (r->site->by_task)
        words[n++] = mem_printf("door:%d:%s", (int)(r - f->remotes), f->door.path);
    else if (job && *job)
        words[n++] = mem_printf("pbs:%s", job);
    return n;
}

/* own_words as a shell command. */
static char *own_command(const Fleet *f, const Remote *r)
{
    Buf command = {0};
    char *words[MOST_OWN];
    int n = own_words(f, r, words);
    buf_puts(&command, "exec");
    for (int i = 0; i < n; i++) {
        buf_puts(&command, " '");
        for (const char *p = words[i]; *p; p++) *p == '\'' ? buf_puts(&command, "'\\''") : buf_append(&command, p, 1);
        buf_puts(&command, "'");
        free(words[i]);
    }
    return command.data;
}

/* The words that start an agent; NULL at the end. */
static char **agent_words(const Fleet *f, const Remote *r)
{
    char **words = mem_array(MOST_WORDS + 3 + MOST_OWN, sizeof *words);
    const Site *site = r->site;
    int n = 0;
    if (site->here || site->by_task) {
        if (site->by_task && pbs_task_words(site->name, words))
            while (words[n]) n++;
        own_words(f, r, words + n);
        return words;
    }
    char *command = shell_command(f), *rest = command;
    bool named = false;
    for (char *word; (word = strsep(&rest, " ")) && n < MOST_WORDS;)
        if (*word) words[n++] = expand_host(word, site->name, &named);
    free(command);
    if (!named) words[n++] = mem_strdup(site->name);
    words[n++] = own_command(f, r);
    return words;
}

/* PBS's name of this host. */
static const char *door_name(const Fleet *f)
{
    static char own[256];
    for (int i = 0; i < f->sites->n; i++)
        if (f->sites->list[i].here) return f->sites->list[i].name;
    host_name(own, sizeof own);
    return own;
}

Status fleet_start_agent(Fleet *f, Remote *r)
{
    enum { ORDERS, MESSAGES, ERRORS };
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    Status status = OK;
    if (r->site->by_task && !f->door.path) TRY(door_open(door_name(f), &f->door));
    char **words = agent_words(f, r);
    pid_t launcher = getpid();
    if (pipe2(pipes[ORDERS], O_CLOEXEC) || pipe2(pipes[MESSAGES], O_CLOEXEC) || pipe2(pipes[ERRORS], O_CLOEXEC))
        TRY_DONE(fail(E_IO, "no pipe for the agent on %s: %m", r->site->name));
    r->pid = fork();
    if (r->pid < 0) TRY_DONE(fail(E_IO, "the agent for %s cannot be started: %m", r->site->name));
    if (r->pid == 0) {
        sigset_t none;
        setsid(); /* only the launcher gets the terminal's signals */
        if (!r->site->here) prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != launcher) _exit(1);
        int out = fcntl(STDOUT_FILENO, F_DUPFD, 16), err = fcntl(STDERR_FILENO, F_DUPFD, 16);
        int from[3];
        for (int k = 0; k < 3; k++) from[k] = fcntl(pipes[k][k > 0], F_DUPFD, 16);
        for (int k = 0; k < 3; k++) dup2(from[k], k), close(from[k]);
        if (r->site->here) dup2(out, AGENT_STDOUT), dup2(err, AGENT_STDERR);
        close(out), close(err);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execvp(words[0], words);
        dprintf(STDERR_FILENO, "%s cannot be run: %s\n", words[0], strerror(errno));
        _exit(127);
    }
    r->orders = pipes[ORDERS][1];
    wire_reader(&r->messages, pipes[MESSAGES][0]);
    wire_reader(&r->errors, pipes[ERRORS][0]);
    fcntl(r->orders, F_SETFL, O_NONBLOCK);
    pipes[ORDERS][1] = pipes[MESSAGES][0] = pipes[ERRORS][0] = -1;
done:
    for (int k = 0; k < 6; k++)
        if (pipes[k / 2][k % 2] >= 0) close(pipes[k / 2][k % 2]);
    for (char **w = words; *w; w++) free(*w);
    free(words);
    return status;
}

/* True: PBS can start agents. *only: CAIRN_SSH asks for that. */
static bool has_tasks(const Sites *sites, bool *only)
{
    const char *given = getenv("CAIRN_SSH");
    char *words[5];
    *only = given && (strcmp(given, "pbs_tmrsh") == 0 || strcmp(given, "pbsdsh") == 0);
    if (sites->from != SITES_OF_PBS || (given && *given && !*only) || !pbs_task_words("", words)) return false;
    for (char **w = words; *w; w++) free(*w);
    return true;
}

Status fleet_start(Fleet *f, Sites *sites, double connect_s)
{
    bool only;
    TRY(events_init(&f->events));
    f->remotes = mem_array((size_t)sites->n, sizeof *f->remotes);
    f->n_remotes = sites->n;
    f->sites = sites;
    f->connect_s = connect_s;
    f->door.listener = -1;
    f->tasks = has_tasks(sites, &only);
    for (int i = 0; i < sites->n; i++) {
        Site *s = &sites->list[i];
        if (f->tasks && only) s->by_task = !s->here;
        f->remotes[i] = (Remote){.site = s, .orders = -1, .messages.fd = -1, .errors.fd = -1, .reached = -1};
    }
    fleet_tell(f, &(LaunchEvent){.kind = LAUNCH_START});
    for (Remote *r = f->remotes; r < f->remotes + f->n_remotes; r++) {
        if (!r->site->open) continue;
        TRY(fleet_start_agent(f, r));
        if (r->site->here) fleet_send(f, r, "direct");
    }
    return OK;
}
