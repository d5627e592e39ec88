/* Reads the messages of agents, and ends them. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/launch_internal.h"

#define TURN_S 0.25 /* at most from one look at the time to the next */

Host *fleet_host(const Fleet *f, const Remote *r) { return &f->state->hosts[r - f->remotes]; }

bool fleet_is_local(const Fleet *f)
{
    for (int i = 0; i < f->n_remotes; i++)
        if (!f->state->hosts[i].lost && !f->remotes[i].site->here) return false;
    return true;
}

const char *fleet_name_of(const Fleet *f, int rank) { return f->remotes[launch_host_of(f->state, rank)].site->name; }

/* An agent that entered by the door has one connection for both directions. */
static void close_orders(Remote *r)
{
    if (r->orders < 0) return;
    if (r->site->by_task) shutdown(r->orders, SHUT_WR);
    close(r->orders);
    r->orders = -1;
}

static void lose_agent(Remote *r, const char *why)
{
    if (!*r->complaint) snprintf(r->complaint, sizeof r->complaint, "%s", why);
    close_orders(r);
    if (r->site->here && r->pid > 0) kill(r->pid, SIGKILL); /* the kernel kills its ranks with it */
}

static void perform(Fleet *f, const LaunchAction *a)
{
    switch (a->kind) {
    case LAUNCH_DO_SIGNAL:
        fleet_send(f, NULL, "signal %d", a->number);
        break;
    case LAUNCH_DO_KILL:
        fleet_send(f, NULL, "kill");
        break;
    case LAUNCH_DO_WARN:
        log_warn("%d of %d ranks did not end in time, and are killed", f->state->running, f->state->n_ranks);
        break;
    case LAUNCH_DO_LOSE:
        lose_agent(&f->remotes[a->number], a->why);
        break;
    case LAUNCH_DO_BEAT:
        fleet_send(f, NULL, "beat");
        break;
    case LAUNCH_DO_PAUSE:
        kill(getpid(), SIGSTOP);
        break;
    case LAUNCH_DO_RELEASE:
        close_orders(&f->remotes[a->number]);
        break;
    }
}

void fleet_tell(Fleet *f, const LaunchEvent *e)
{
    LaunchState *s = f->state;
    launch_on(s, e, clock_monotonic());
    if (f->acting) return; /* an action has failed, and more may follow it */
    f->acting = true;
    for (int i = 0; i < s->n_actions; i++) {
        LaunchAction a = s->actions[i];
        perform(f, &a);
    }
    s->n_actions = 0;
    f->acting = false;
}

static void tell_gone(Fleet *f, const Remote *r, const char *why)
{
    fleet_tell(f, &(LaunchEvent){.kind = LAUNCH_GONE, .host = (int)(r - f->remotes), .why = why});
}

void fleet_send(Fleet *f, Remote *remote, const char *format, ...)
{
    Buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    for (int i = 0; i < f->n_remotes; i++) {
        Remote *r = &f->remotes[i];
        if ((remote && r != remote) || fleet_host(f, r)->lost || r->orders < 0) continue;
        if (wire_send(r->orders, text.data)) continue;
        if (errno != EPIPE) tell_gone(f, r, "it takes no more orders");
        close_orders(r); /* it has ended; its output may have the reason */
    }
    buf_free(&text);
}

static void take_message(Fleet *f, Remote *r, const char *line)
{
    LaunchEvent e = {.host = (int)(r - f->remotes)};
    int stream, at = 0;
    char version[32];
    if (strncmp(line, WIRE_GREETING, strlen(WIRE_GREETING)) != 0) { /* output of a login shell */
        if (!fleet_host(f, r)->met) log_info("%s: %s", r->site->name, line);
        return;
    }
    line += strlen(WIRE_GREETING);
    if (sscanf(line, "out %d %d%n", &e.rank, &stream, &at) == 2 && at) {
        if (f->output) output_line(f->output, e.rank, r->site->name, stream, line + at + (line[at] == ' '));
    } else if (sscanf(line, "end %d %d %d %zu", &e.rank, &e.code, &e.number, &e.memory_limit) == 4) {
        e.kind = LAUNCH_END;
        fleet_tell(f, &e);
    } else if (sscanf(line, "report %d %n", &e.rank, &at) == 1 && at &&
               report_parse(line + at, &e.report, &e.about, &e.silent)) {
        e.kind = LAUNCH_REPORT;
        fleet_tell(f, &e);
    } else if (sscanf(line, "hello %31s %d %d %63s %255s", version, &r->cores, &r->gpus, r->client, r->hostname) == 5) {
        e.kind = LAUNCH_HELLO;
        fleet_tell(f, &e);
        if (!r->site->here)
            fleet_send(f, r, "silence %.3f", f->state->times.silence); /* then it ends without this host */
        if (strcmp(version, CAIRN_VERSION) != 0 && !*f->failure)
            snprintf(f->failure, sizeof f->failure, "%s has Cairn %s, this is %s; install the same one on all hosts",
                     r->site->name, version, CAIRN_VERSION);
    } else if (sscanf(line, "reach %*s %d", &e.code) == 1) {
        r->reached = e.code;
    } else if (strncmp(line, "failed ", 7) == 0 && !*f->failure) {
        snprintf(f->failure, sizeof f->failure, "%s: %.900s", r->site->name, line + 7);
    }
    if (*f->failure && !f->state->failed) fleet_tell(f, &(LaunchEvent){.kind = LAUNCH_FAILED});
}

static void read_errors(const Fleet *f, Remote *r)
{
    wire_fill(&r->errors);
    for (char *line; (line = wire_line(&r->errors, false));) {
        line[strcspn(line, "\r")] = '\0';
        if (!*line) continue;
        if (!fleet_host(f, r)->met) snprintf(r->complaint, sizeof r->complaint, "%.500s", line);
        log_info("%s: %s", r->site->name, line);
    }
}

/* PBS starts the agent of a host that ssh does not reach, now and in later starts. */
static bool start_as_task(Fleet *f, Remote *r)
{
    if (!f->tasks || fleet_host(f, r)->met || r->site->here || r->site->by_task) return false;
    log_info("%s: ssh does not reach it (%s); PBS starts the agent", r->site->name,
             *r->complaint ? r->complaint : "its connection ended");
    close_orders(r);
    wire_reader_close(&r->messages);
    wire_reader_close(&r->errors);
    kill(r->pid, SIGKILL);
    waitpid(r->pid, NULL, 0);
    r->pid = 0;
    *r->complaint = '\0';
    r->site->by_task = true;
    Status status = fleet_start_agent(f, r);
    if (status != OK) snprintf(r->complaint, sizeof r->complaint, "%s", status_message());
    return status == OK;
}

/* Admits agents that PBS started. Closes the door when all of them have come. */
static void admit_agents(Fleet *f)
{
    int number, connection;
    bool expected = false;
    while (f->door.path && (connection = door_admit(&f->door, &number)) >= 0) {
        Remote *r = number >= 0 && number < f->n_remotes ? &f->remotes[number] : NULL;
        int second = r && r->site->by_task && !r->entered && !fleet_host(f, r)->lost
                         ? fcntl(connection, F_DUPFD_CLOEXEC, 0)
                         : -1;
        if (second < 0) {
            close(connection);
            continue;
        }
        r->entered = true;
        close(r->orders);
        r->orders = connection;
        wire_reader_close(&r->messages);
        wire_reader(&r->messages, second);
    }
    for (int i = 0; i < f->n_remotes; i++) {
        const Remote *r = &f->remotes[i];
        expected = expected || (r->site->by_task && !r->entered && !fleet_host(f, r)->lost);
    }
    if (!expected && f->door.path) door_close(&f->door);
}

static void read_agent(Fleet *f, Remote *r)
{
    double heard = r->messages.heard;
    read_errors(f, r);
    bool open = wire_fill(&r->messages);
    if (r->messages.heard > heard) fleet_tell(f, &(LaunchEvent){.kind = LAUNCH_HEARD, .host = (int)(r - f->remotes)});
    for (char *line; (line = wire_line(&r->messages, true));) take_message(f, r, line);
    if (open) return;
    struct pollfd wait = {.fd = r->errors.fd, .events = POLLIN};
    for (int k = 0; k < 5 && r->errors.fd >= 0; k++) { /* ssh's last message may come a little after its end */
        poll(&wait, 1, 100);
        read_errors(f, r);
    }
    if (!start_as_task(f, r)) tell_gone(f, r, "its connection ended");
}

void fleet_turn(Fleet *f, int watch)
{
    events_begin(&f->events);
    events_until(&f->events, fmin(f->state->wake, clock_monotonic() + TURN_S));
    events_add(&f->events, watch, POLLIN, NULL, NULL);
    events_add(&f->events, f->door.path ? f->door.listener : -1, POLLIN, NULL, NULL);
    for (int i = 0; i < f->n_remotes; i++) {
        if (f->state->hosts[i].lost) continue;
        events_add(&f->events, f->remotes[i].messages.fd, POLLIN, NULL, NULL);
        events_add(&f->events, f->remotes[i].errors.fd, POLLIN, NULL, NULL);
    }
    events_wait(&f->events);
    admit_agents(f);
    for (int i = 0; i < f->n_remotes; i++)
        if (!f->state->hosts[i].lost) read_agent(f, &f->remotes[i]);
    fleet_tell(f, &(LaunchEvent){.kind = LAUNCH_TIME});
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
            wire_fill(&r->messages); /* so that no agent waits for its reader */
            r->messages.taken = r->messages.pending.len;
            read_errors(f, r);
            const Host *host = fleet_host(f, r);
            if (r->pid <= 0) continue;
            if (late || ((host->lost || !host->met) && host->n_ranks == 0))
                kill(r->pid, r->site->here ? SIGKILL : SIGTERM);
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
        wire_reader_close(&f->remotes[i].messages);
        wire_reader_close(&f->remotes[i].errors);
    }
    free(f->remotes);
    output_close(f->output);
    events_free(&f->events);
    *f = (Fleet){.state = f->state};
}
