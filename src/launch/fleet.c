/* Starts agents on hosts, reads their messages, and ends them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/agent.h"
#include "launch/launch_internal.h"
#include "launch/pbs.h"

enum { MOST_WORDS = 64, MOST_OWN = 6 };
#define SSH_S 20.0 /* for ssh to connect, if PBS can start agents too */

/* ---- starting ---- */

/* The words that run a shell command on a host: CAIRN_SSH, or the scheduler's own; NULL: ssh. */
static const char *way_to(const Sites *sites)
{
    const char *given = getenv("CAIRN_SSH");
    if (given && *given) return given;
    if (sites->from == SITES_OF_SLURM)
        return "srun --overlap --quiet --nodes=1 --ntasks=1 --cpu-bind=none --nodelist=%h sh -c";
    if (sites->from == SITES_OF_GRID_ENGINE) return "qrsh -inherit %h";
    return NULL;
}

/* One word of CAIRN_SSH, with the host in place of %h. */
static char *word_for(const char *word, size_t length, const char *host, bool *named)
{
    Buf out = {0};
    for (size_t i = 0; i < length; i++)
        if (word[i] == '%' && i + 1 < length && word[i + 1] == 'h') {
            buf_puts(&out, host);
            *named = true;
            i++;
        } else
            buf_append(&out, word + i, 1);
    return out.data;
}

static char *own_path(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return mem_strdup(n > 0 ? path : "cairn");
}

/* Appends the words of an agent. Under PBS they name the job, to which the agent attaches itself. */
static int own_words(const Fleet *f, const Remote *r, char **words)
{
    int n = 0;
    const char *job = f->sites->from == SITES_OF_PBS ? getenv("PBS_JOBID") : NULL;
    words[n++] = own_path();
    words[n++] = mem_strdup("launch");
    words[n++] = mem_strdup("--");
    words[n++] = mem_strdup("@agent");
    if (r->site->by_task)
        words[n++] = mem_printf("door:%d:%s", (int)(r - f->remotes), f->door.path);
    else if (job && *job)
        words[n++] = mem_printf("pbs:%s", job);
    return n;
}

/* The same as a shell command. */
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
    char **words = mem_array(MOST_WORDS + 16 + MOST_OWN, sizeof *words);
    const Site *site = r->site;
    int n = 0;
    if (site->here || site->by_task) {
        if (site->by_task && pbs_task_words(site->name, words))
            while (words[n]) n++;
        own_words(f, r, words + n);
        return words;
    }
    const char *way = way_to(f->sites);
    bool named = false;
    if (way)
        for (way += strspn(way, " "); *way && n < MOST_WORDS; way += strspn(way, " ")) {
            size_t length = strcspn(way, " ");
            words[n++] = word_for(way, length, site->name, &named);
            way += length;
        }
    else {
        static const char *const options[] = {
            "ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4", "-o"};
        double connect_s = f->tasks && f->connect_s > SSH_S ? SSH_S : f->connect_s;
        for (size_t i = 0; i < sizeof options / sizeof *options; i++) words[n++] = mem_strdup(options[i]);
        words[n++] = mem_printf("ConnectTimeout=%.0f", connect_s < 1 ? 1 : connect_s);
        words[n++] = mem_strdup("--");
    }
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
    gethostname(own, sizeof own - 1);
    return own;
}

static Status start_one(Fleet *f, Remote *r)
{
    int orders[2] = {-1, -1}, said[2] = {-1, -1}, muttered[2] = {-1, -1};
    Status status = OK;
    if (r->site->by_task && !f->door.path) TRY(door_open(door_name(f), &f->door));
    char **words = agent_words(f, r);
    pid_t launcher = getpid();
    if (pipe2(orders, O_CLOEXEC) != 0 || pipe2(said, O_CLOEXEC) != 0 || pipe2(muttered, O_CLOEXEC) != 0) {
        status = fail(E_IO, "no pipe for the agent on %s: %m", r->site->name);
        goto done;
    }
    r->pid = fork();
    if (r->pid < 0) {
        status = fail(E_IO, "the agent for %s cannot be started: %m", r->site->name);
        goto done;
    }
    if (r->pid == 0) {
        sigset_t none;
        setsid(); /* only the launcher gets the terminal's signals */
        if (!r->site->here) prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != launcher) _exit(1);
        int out = fcntl(STDOUT_FILENO, F_DUPFD, 16), err = fcntl(STDERR_FILENO, F_DUPFD, 16);
        int from[3] = {fcntl(orders[0], F_DUPFD, 16), fcntl(said[1], F_DUPFD, 16), fcntl(muttered[1], F_DUPFD, 16)};
        for (int k = 0; k < 3; k++) dup2(from[k], k), close(from[k]);
        if (r->site->here) dup2(out, AGENT_STDOUT), dup2(err, AGENT_STDERR);
        close(out), close(err);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execvp(words[0], words);
        dprintf(STDERR_FILENO, "%s cannot be run: %s\n", words[0], strerror(errno));
        _exit(127);
    }
    r->orders = orders[1];
    wire_reader(&r->said, said[0]);
    wire_reader(&r->muttered, muttered[0]);
    fcntl(r->orders, F_SETFL, O_NONBLOCK);
    orders[1] = said[0] = muttered[0] = -1;
done:
    for (int k = 0; k < 2; k++) {
        if (orders[k] >= 0) close(orders[k]);
        if (said[k] >= 0) close(said[k]);
        if (muttered[k] >= 0) close(muttered[k]);
    }
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

Status fleet_start(Fleet *f, Sites *sites, const bool *wanted, double connect_s)
{
    bool only;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    TRY(events_init(&f->events));
    f->remotes = mem_array((size_t)sites->n, sizeof *f->remotes);
    f->n_remotes = sites->n;
    f->sites = sites;
    f->connect_s = connect_s;
    f->door.listener = -1;
    f->tasks = has_tasks(sites, &only);
    for (int i = 0; i < sites->n && f->tasks && only; i++) sites->list[i].by_task = !sites->list[i].here;
    for (int i = 0; i < sites->n; i++)
        f->remotes[i] = (Remote){
            .site = &sites->list[i], .orders = -1, .said.fd = -1, .muttered.fd = -1, .lost = true, .reached = -1};
    for (int i = 0; i < sites->n; i++) {
        if (!wanted[i]) continue;
        f->remotes[i].lost = false;
        TRY(start_one(f, &f->remotes[i]));
        if (f->remotes[i].site->here) fleet_send(f, &f->remotes[i], "direct", "");
    }
    return OK;
}

/* ---- hearing ---- */

const Remote *fleet_host_of(const Fleet *f, int rank)
{
    for (int i = 0; i < f->n_remotes; i++) {
        const Remote *r = &f->remotes[i];
        if (rank >= r->first_rank && rank < r->first_rank + r->n_ranks) return r;
    }
    return NULL;
}

/* An agent of the door has one connection for both directions. */
static void close_orders(Remote *r)
{
    if (r->orders < 0) return;
    if (r->site->by_task) shutdown(r->orders, SHUT_WR);
    close(r->orders);
    r->orders = -1;
}

static void lose(Fleet *f, Remote *r, const char *why)
{
    if (r->lost) return;
    r->lost = true;
    if (!*r->complaint) snprintf(r->complaint, sizeof r->complaint, "%s", why);
    for (int k = r->first_rank; k < r->first_rank + r->n_ranks && k < f->n_ranks; k++)
        if (!f->ranks[k].ended) f->running--;
    close_orders(r);
    if (r->site->here && r->pid > 0) kill(r->pid, SIGKILL); /* the kernel kills its ranks with it */
}

void fleet_send(Fleet *f, Remote *remote, const char *word, const char *text)
{
    for (int i = 0; i < f->n_remotes; i++) {
        Remote *r = &f->remotes[i];
        if ((remote && r != remote) || r->lost || r->orders < 0) continue;
        if (wire_send(r->orders, word, "%s", text)) continue;
        if (errno != EPIPE) lose(f, r, "it takes no orders any more");
        close_orders(r); /* it has ended; its output may have the reason */
    }
}

static void hear_line(Fleet *f, Remote *r, const char *line)
{
    int rank, stream, code, number, at = 0;
    size_t limit;
    char version[32];
    if (strncmp(line, WIRE_GREETING, strlen(WIRE_GREETING)) != 0) { /* output of a login shell */
        if (!r->met) f->on_remark(f->arg, r, line);
        return;
    }
    line += strlen(WIRE_GREETING);
    if (sscanf(line, "out %d %d%n", &rank, &stream, &at) == 2 && at) {
        f->on_line(f->arg, rank, stream, line + at + (line[at] == ' '));
    } else if (sscanf(line, "end %d %d %d %zu", &rank, &code, &number, &limit) == 4) {
        if (rank < 0 || rank >= f->n_ranks || f->ranks[rank].ended) return;
        Rank *k = &f->ranks[rank];
        *k = (Rank){.ended = true,
                    .code = code,
                    .signal = number,
                    .memory_limit = limit,
                    .when = clock_monotonic(),
                    .frozen = k->frozen};
        f->running--;
    } else if (sscanf(line, "hello %31s %d %d %63s %255s", version, &r->cores, &r->gpus, r->client, r->hostname) == 5) {
        r->met = true;
        if (strcmp(version, CAIRN_VERSION) != 0 && !*f->failure)
            snprintf(f->failure, sizeof f->failure, "%s has Cairn %s, this is %s; install the same one on all hosts",
                     r->site->name, version, CAIRN_VERSION);
    } else if (sscanf(line, "reach %*s %d", &code) == 1) {
        r->reached = code;
    } else if (strncmp(line, "failed ", 7) == 0 && !*f->failure) {
        snprintf(f->failure, sizeof f->failure, "%s: %.900s", r->site->name, line + 7);
    }
}

static void hear_muttering(Fleet *f, Remote *r)
{
    wire_fill(&r->muttered);
    for (char *line; (line = wire_line(&r->muttered, false));) {
        line[strcspn(line, "\r")] = '\0';
        if (!*line) continue;
        if (!r->met) snprintf(r->complaint, sizeof r->complaint, "%.500s", line);
        f->on_remark(f->arg, r, line);
    }
}

/* PBS starts the agent of a host that ssh does not reach, now and in later starts. */
static bool start_as_task(Fleet *f, Remote *r)
{
    if (!f->tasks || r->met || r->site->here || r->site->by_task) return false;
    log_info("%s: ssh does not reach it (%s); PBS starts the agent", r->site->name,
             *r->complaint ? r->complaint : "its connection ended");
    close_orders(r);
    wire_reader_close(&r->said);
    wire_reader_close(&r->muttered);
    kill(r->pid, SIGKILL);
    waitpid(r->pid, NULL, 0);
    r->pid = 0;
    *r->complaint = '\0';
    r->site->by_task = true;
    Status status = start_one(f, r);
    if (status != OK) snprintf(r->complaint, sizeof r->complaint, "%s", status_message());
    return status == OK;
}

/* Admits agents that PBS started. Closes the door when all of them have come. */
static void admit(Fleet *f)
{
    int number, connection;
    bool expected = false;
    while (f->door.path && (connection = door_admit(&f->door, &number)) >= 0) {
        Remote *r = number >= 0 && number < f->n_remotes ? &f->remotes[number] : NULL;
        int second = r && r->site->by_task && !r->entered && !r->lost ? fcntl(connection, F_DUPFD_CLOEXEC, 0) : -1;
        if (second < 0) {
            close(connection);
            continue;
        }
        r->entered = true;
        close(r->orders);
        r->orders = connection;
        wire_reader_close(&r->said);
        wire_reader(&r->said, second);
    }
    for (int i = 0; i < f->n_remotes; i++) {
        const Remote *r = &f->remotes[i];
        expected = expected || (r->site->by_task && !r->entered && !r->lost);
    }
    if (!expected && f->door.path) door_close(&f->door);
}

static void hear(Fleet *f, Remote *r, double silence_s)
{
    hear_muttering(f, r);
    bool open = wire_fill(&r->said);
    for (char *line; (line = wire_line(&r->said, true));) hear_line(f, r, line);
    if (!open) { /* ssh's last message may come a little after its end */
        struct pollfd wait = {.fd = r->muttered.fd, .events = POLLIN};
        for (int k = 0; k < 5 && r->muttered.fd >= 0; k++) {
            poll(&wait, 1, 100);
            hear_muttering(f, r);
        }
        if (start_as_task(f, r)) return;
        lose(f, r, "its connection ended");
    }
    double silent = clock_monotonic() - r->said.heard;
    if (r->met && silence_s > 0 && silent > silence_s) lose(f, r, "it fell silent");
}

void fleet_turn(Fleet *f, int watch, double seconds, double silence_s)
{
    events_begin(&f->events);
    events_until(&f->events, clock_monotonic() + seconds);
    events_add(&f->events, watch, POLLIN, NULL, NULL);
    events_add(&f->events, f->door.path ? f->door.listener : -1, POLLIN, NULL, NULL);
    for (int i = 0; i < f->n_remotes; i++) {
        if (f->remotes[i].lost) continue;
        events_add(&f->events, f->remotes[i].said.fd, POLLIN, NULL, NULL);
        events_add(&f->events, f->remotes[i].muttered.fd, POLLIN, NULL, NULL);
    }
    events_wait(&f->events);
    admit(f);
    double now = clock_monotonic();
    for (int i = 0; i < f->n_remotes && now - f->turned > silence_s / 2; i++) /* this process slept, not they */
        f->remotes[i].said.heard = now;
    f->turned = now;
    static double beat;
    if (clock_monotonic() - beat > WIRE_BEAT_S) {
        beat = clock_monotonic();
        fleet_send(f, NULL, "beat", "");
    }
    for (int i = 0; i < f->n_remotes; i++)
        if (!f->remotes[i].lost) hear(f, &f->remotes[i], silence_s);
}

void fleet_end(Fleet *f, double patience_s)
{
    double until = clock_monotonic() + patience_s;
    for (int i = 0; i < f->n_remotes; i++) close_orders(&f->remotes[i]);
    door_close(&f->door);
    for (int left = 1; left > 0;) {
        left = 0;
        bool late = clock_monotonic() > until;
        for (int i = 0; i < f->n_remotes; i++) {
            Remote *r = &f->remotes[i];
            wire_fill(&r->said); /* so that no agent waits for its reader */
            r->said.taken = r->said.pending.len;
            hear_muttering(f, r);
            if (r->pid <= 0) continue;
            if (late || ((r->lost || !r->met) && r->n_ranks == 0)) kill(r->pid, r->site->here ? SIGKILL : SIGTERM);
            if (waitpid(r->pid, NULL, late && r->site->here ? 0 : WNOHANG) == r->pid)
                r->pid = 0;
            else
                left++;
        }
        if (clock_monotonic() > until + 5) /* an ssh that ignores SIGTERM */
            for (int i = 0; i < f->n_remotes; i++)
                if (f->remotes[i].pid > 0) kill(f->remotes[i].pid, SIGKILL);
        if (left > 0) poll(NULL, 0, 20);
    }
    for (int i = 0; i < f->n_remotes; i++) {
        wire_reader_close(&f->remotes[i].said);
        wire_reader_close(&f->remotes[i].muttered);
    }
    free(f->remotes);
    free(f->ranks);
    events_free(&f->events);
    *f = (Fleet){0};
}
