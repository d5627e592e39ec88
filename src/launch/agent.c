/* The agent: starts the ranks of a host, and ends them. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/host.h"
#include "base/socket.h"
#include "base/test_switch.h"
#include "launch/agent_internal.h"
#include "launch/door.h"
#include "launch/pbs.h"

enum { MOST_PENDING = 1 << 20 /* bytes that wait for the launcher, before ranks wait */ };

/* ---- messages ---- */

static void flush_outgoing(Agent *a)
{
    while (a->outgoing.len > 0 && !a->deaf) {
        ssize_t n = write(STDOUT_FILENO, a->outgoing.data, a->outgoing.len);
        if (n > 0) {
            memmove(a->outgoing.data, a->outgoing.data + n, a->outgoing.len - (size_t)n);
            a->outgoing.len -= (size_t)n;
        } else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            a->deaf = true;
    }
    if (a->deaf) a->outgoing.len = 0;
}

static void report(Agent *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void report(Agent *a, const char *format, ...)
{
    Buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    buf_puts(&a->outgoing, WIRE_GREETING);
    wire_escape(&a->outgoing, text.data);
    buf_free(&text);
    flush_outgoing(a);
}

static void report_hello(Agent *a)
{
    char name[256], client[64] = "-";
    const char *connection = getenv("SSH_CONNECTION"); /* "client-address client-port server-address server-port" */
    host_name(name, sizeof name);
    if (connection) snprintf(client, sizeof client, "%.*s", (int)strcspn(connection, " "), connection);
    cores_find(&a->cores);
    report(a, "hello %s %d %d %s %s", CAIRN_VERSION, a->cores.n, gpus_count(), *client ? client : "-", name);
}

/* True: this host can connect to the address. */
static bool can_connect(const char *address, const char *port, double seconds)
{
    SocketAddress at;
    int error, s = socket_address(address, atoi(port), &at) ? socket_connect(&at, &error) : -1;
    bool good = s >= 0 && (error == 0 || (error == EINPROGRESS &&
                                          socket_connected(s, (SocketLimit){.end = clock_monotonic() + seconds}) == 0));
    if (s >= 0) close(s);
    return good;
}

/* ---- ranks ---- */

/* Forwards what a rank has written to its pipes. After its end (`ended`) they are closed: a process that it started may
   keep them open. */
static void forward_pipes(Agent *a, Child *c, bool ended)
{
    for (int k = 0; k < N_CHILD_PIPES; k++) {
        wire_fill(&c->pipes[k]);
        if (ended && c->pipes[k].fd >= 0) close(c->pipes[k].fd);
        if (ended) c->pipes[k].fd = -1;
        for (char *line; (line = wire_line(&c->pipes[k], false));)
            if (k == CHILD_REPORTS)
                report(a, "report %d %s", c->rank, line);
            else
                report(a, "out %d %d %s", c->rank, k + 1, line);
    }
}

static void signal_ranks(const Agent *a, int number, bool group)
{
    for (int i = 0; i < a->n_children; i++)
        if (a->children[i].alive) kill(group ? -a->children[i].pid : a->children[i].pid, number);
}

static void perform(Agent *a, const AgentAction *action)
{
    const Child *c = NULL;
    switch (action->kind) {
    case AGENT_DO_SIGNAL:
        signal_ranks(a, action->number, false);
        break;
    case AGENT_DO_KILL:
        signal_ranks(a, SIGKILL, true);
        break;
    case AGENT_DO_BEAT:
        report(a, "beat");
        break;
    case AGENT_DO_TELL:
        c = &a->children[action->number];
        report(a, "end %d %d %d %zu", c->rank, c->code, c->signal, action->limit);
        break;
    }
}

void agent_tell(Agent *a, const AgentEvent *e)
{
    AgentState *s = &a->state;
    agent_on(s, e, clock_monotonic());
    for (int i = 0; i < s->n_actions; i++) perform(a, &s->actions[i]);
    s->n_actions = 0;
}

static void lose_launcher(Agent *a)
{
    a->deaf = true;
    agent_tell(a, &(AgentEvent){.kind = AGENT_GONE});
}

/* The memory limit, after a rank was killed. 1: not known. */
static size_t memory_limit(void)
{
    size_t limit = cgroup_limit_bytes("");
    return limit == SIZE_MAX ? 1 : limit;
}

/* Reaps children. Kills a rank's process group first, while its number cannot be reused. */
static void reap_ranks(Agent *a)
{
    siginfo_t info;
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        Child *c = NULL;
        for (int i = 0; i < a->n_children && !c; i++)
            if (a->children[i].alive && a->children[i].pid == info.si_pid) c = &a->children[i];
        if (c) kill(-c->pid, SIGKILL);
        waitpid(info.si_pid, NULL, 0);
        if (!c) continue;
        c->alive = false;
        forward_pipes(a, c, true);
        bool killed = info.si_code != CLD_EXITED;
        c->code = killed ? 0 : info.si_status;
        c->signal = killed ? info.si_status : 0;
        AgentEvent e = {.kind = AGENT_ENDED, .child = (int)(c - a->children), .killed = c->signal == SIGKILL};
        if (e.killed) e.kills = cgroup_memory_kills("");
        if (e.killed) e.limit = memory_limit();
        agent_tell(a, &e);
    }
}

/* Kills processes that left their rank's group: they became our children (PR_SET_CHILD_SUBREAPER). */
static void kill_strays(void)
{
    const char *path = SHORT_TEXT("/proc/self/task/%d/children", (int)getpid());
    for (int round = 0; round < 100; round++) {
        Buf text = {0};
        bool any = false;
        if (file_read(path, 1 << 20, &text) == OK && text.data)
            for (char *at = text.data, *end; *at; at = end) {
                long pid = strtol(at, &end, 10);
                if (end == at) break;
                any = kill((pid_t)pid, SIGKILL) == 0 && waitpid((pid_t)pid, NULL, 0) > 0;
            }
        buf_free(&text);
        if (!any) return;
    }
}

/* ---- orders ---- */

/* A later value of a variable replaces an earlier one. */
static void add_setting(Agent *a, const char *text)
{
    size_t name = strcspn(text, "=") + 1;
    for (int i = 0; i < a->n_settings; i++) {
        if (strncmp(a->settings[i], text, name) != 0) continue;
        free(a->settings[i]);
        a->settings[i] = mem_strdup(text);
        return;
    }
    MEM_PUSH(a->settings, a->n_settings, a->settings_capacity, mem_strdup(text));
}

static bool is_order(const char *line, const char *word, const char **rest)
{
    size_t n = strlen(word);
    if (strncmp(line, word, n) != 0 || (line[n] && line[n] != ' ')) return false;
    *rest = line + n + (line[n] == ' ');
    return true;
}

static Status handle_order(Agent *a, const char *line)
{
    const char *rest;
    int x, y;
    char address[128], port[16];
    if (is_order(line, "beat", &rest)) return OK;
    if (is_order(line, "reach", &rest) && sscanf(rest, "%127s %15s", address, port) == 2) {
        report(a, "reach %s %d", address, can_connect(address, port, 5));
    } else if (is_order(line, "silence", &rest)) {
        a->state.silence = atof(rest);
    } else if (is_order(line, "direct", &rest)) {
        a->direct = true;
    } else if (is_order(line, "dir", &rest)) {
        a->directory = mem_strdup(rest);
    } else if (is_order(line, "set", &rest)) {
        add_setting(a, rest);
    } else if (is_order(line, "arg", &rest)) {
        MEM_PUSH(a->arguments, a->n_arguments, a->arguments_capacity, mem_strdup(rest));
    } else if (is_order(line, "rank", &rest) && sscanf(rest, "%d %d", &x, &y) == 2) {
        const Child child = {.rank = x, .local_rank = y, .pipes = {{.fd = -1}, {.fd = -1}, {.fd = -1}}};
        MEM_PUSH(a->children, a->n_children, a->children_capacity, child);
    } else if (is_order(line, "go", &rest)) {
        return agent_start_ranks(a);
    } else if (is_order(line, "signal", &rest)) {
        agent_tell(a, &(AgentEvent){.kind = AGENT_SIGNAL, .number = atoi(rest)});
    } else if (is_order(line, "kill", &rest)) {
        agent_tell(a, &(AgentEvent){.kind = AGENT_KILL});
    } else
        return fail(E_FORMAT, "unknown order of the launcher: %.80s", line);
    return OK;
}

static void on_signals(Agent *a, int signals)
{
    for (int number; (number = signals_take(signals));) {
        /* a scheduler signals every process of the job */
        if (number == SIGTERM) agent_tell(a, &(AgentEvent){.kind = AGENT_SIGNAL, .number = SIGTERM});
        if (number == SIGHUP) lose_launcher(a);
    }
}

/* Waits once, and handles all events. */
static void agent_turn(Agent *a, int signals)
{
    bool listen = a->outgoing.len < MOST_PENDING;
    events_begin(&a->events);
    events_until(&a->events, fmin(a->state.wake, clock_monotonic() + 0.5));
    events_add(&a->events, signals, POLLIN, NULL, NULL);
    events_add(&a->events, a->orders.fd, POLLIN, NULL, NULL);
    events_add(&a->events, a->outgoing.len ? STDOUT_FILENO : -1, POLLOUT, NULL, NULL);
    for (int i = 0; i < a->n_children && listen; i++)
        for (int k = 0; k < N_CHILD_PIPES; k++) events_add(&a->events, a->children[i].pipes[k].fd, POLLIN, NULL, NULL);
    events_wait(&a->events);
    on_signals(a, signals);
    flush_outgoing(a);
    for (int i = 0; i < a->n_children && listen; i++) forward_pipes(a, &a->children[i], false);
    reap_ranks(a);
    double heard = a->orders.heard;
    bool open = wire_fill(&a->orders);
    if (a->orders.heard > heard) agent_tell(a, &(AgentEvent){.kind = AGENT_HEARD});
    if (a->deaf || (!open && a->orders.pending.len == a->orders.taken)) lose_launcher(a);
    a->state.grace = test_seconds("AGENT_GRACE", AGENT_GRACE_S);
    agent_tell(a, &(AgentEvent){.kind = AGENT_TIME});
}

static Status serve_orders(Agent *a, int signals)
{
    while (!agent_is_done(&a->state)) {
        agent_turn(a, signals);
        for (char *line; !a->state.lost && (line = wire_line(&a->orders, true));) TRY(handle_order(a, line));
    }
    return OK;
}

static void agent_free(Agent *a)
{
    mem_free_texts(a->arguments, a->n_arguments);
    mem_free_texts(a->settings, a->n_settings);
    for (int i = 0; i < a->n_children; i++)
        for (int k = 0; k < N_CHILD_PIPES; k++) wire_reader_close(&a->children[i].pipes[k]);
    MEM_FREE(a->children, a->directory, a->state.actions);
    wire_reader_close(&a->orders);
    buf_free(&a->outgoing);
    cores_free(&a->cores);
    events_free(&a->events);
}

/* "pbs:JOB": attaches this process to a PBS job. "door:NUMBER:FILE": it has no standard input, and connects. */
static Status join_launcher(const char *how)
{
    int number, at = 0, connection;
    if (strncmp(how, "pbs:", 4) == 0) {
        pbs_attach(how + 4);
        return OK;
    }
    if (sscanf(how, "door:%d:%n", &number, &at) != 1 || !at)
        return fail(E_USAGE, "unknown way to start an agent: %s", how);
    TRY(door_enter(how + at, number, &connection));
    dup2(connection, STDIN_FILENO);
    dup2(connection, STDOUT_FILENO);
    close(connection);
    return OK;
}

Status agent_run(const Config *c)
{
    Agent a = {.orders.fd = -1, .state.heard = clock_monotonic()};
    static const int watched[] = {SIGCHLD, SIGTERM, SIGHUP};
    static const int ignored[] = {SIGPIPE, SIGINT, SIGUSR1, SIGUSR2, SIGTTOU, SIGTTIN, SIGTSTP};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    TRY(events_init(&a.events));
    int signals = signals_open(watched, 3);
    if (signals < 0) return fail(E_IO, "cannot receive signals: %m");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (c->n_positional > 1) TRY(join_launcher(c->positional[1]));
    wire_reader(&a.orders, STDIN_FILENO);
    fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
    report_hello(&a);
    Status status = serve_orders(&a, signals);
    if (status != OK) {
        report(&a, "failed %s", status_message());
        agent_tell(&a, &(AgentEvent){.kind = AGENT_KILL});
        lose_launcher(&a);
        Status rest = serve_orders(&a, signals);
        (void)rest;
    }
    kill_strays();
    close(signals);
    agent_free(&a);
    return OK;
}
