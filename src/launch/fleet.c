/* Reads the messages of agents, and ends them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/meet/report.h"
#include "launch/launch_internal.h"

bool fleet_is_local(const Fleet *f)
{
    for (int i = 0; i < f->n_remotes; i++)
        if (!f->remotes[i].lost && !f->remotes[i].site->here) return false;
    return true;
}

const Remote *fleet_host_of(const Fleet *f, int rank)
{
    for (int i = 0; i < f->n_remotes; i++) {
        const Remote *r = &f->remotes[i];
        if (rank >= r->first_rank && rank < r->first_rank + r->n_ranks) return r;
    }
    return NULL;
}

/* An agent that entered by the door has one connection for both directions. */
static void close_orders(Remote *r)
{
    if (r->orders < 0) return;
    if (r->site->by_task) shutdown(r->orders, SHUT_WR);
    close(r->orders);
    r->orders = -1;
}

static void lose_agent(Fleet *f, Remote *r, const char *why)
{
    if (r->lost) return;
    r->lost = true;
    if (!*r->complaint) snprintf(r->complaint, sizeof r->complaint, "%s", why);
    for (int k = r->first_rank; k < r->first_rank + r->n_ranks && k < f->n_ranks; k++)
        if (!f->ranks[k].ended) f->running--;
    close_orders(r);
    if (r->site->here && r->pid > 0) kill(r->pid, SIGKILL); /* the kernel kills its ranks with it */
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
        if ((remote && r != remote) || r->lost || r->orders < 0) continue;
        if (wire_send(r->orders, text.data)) continue;
        if (errno != EPIPE) lose_agent(f, r, "it takes no more orders");
        close_orders(r); /* it has ended; its output may have the reason */
    }
    buf_free(&text);
}

bool rank_is_frozen(const Rank *r) { return r->aware ? r->led : r->silent_at > 0; }

/* A rank's report. */
static void take_report(Fleet *f, int rank, const char *text)
{
    Report what;
    int about;
    bool silent;
    if (!report_parse(text, &what, &about, &silent) || rank < 0 || rank >= f->n_ranks) return;
    Rank *other = about >= 0 && about < f->n_ranks ? &f->ranks[about] : NULL;
    f->met = f->met || what == REPORT_MET;
    f->saved = f->saved || what == REPORT_SAVED;
    if (what == REPORT_LOST) f->ranks[rank].aware = true;
    if (!other) return;
    if (what == REPORT_FROZEN) other->led = true;
    if (what == REPORT_FROZEN || (what == REPORT_LOST && !silent)) return;
    if (other->silent_at == 0) other->silent_at = clock_monotonic();
    f->silent[(fleet_host_of(f, rank) - f->remotes) * f->n_ranks + about] = true;
}

static void take_message(Fleet *f, Remote *r, const char *line)
{
    int rank, stream, code, number, at = 0;
    size_t limit;
    char version[32];
    if (strncmp(line, WIRE_GREETING, strlen(WIRE_GREETING)) != 0) { /* output of a login shell */
        if (!r->met) log_info("%s: %s", r->site->name, line);
        return;
    }
    line += strlen(WIRE_GREETING);
    if (sscanf(line, "out %d %d%n", &rank, &stream, &at) == 2 && at) {
        if (f->output) output_line(f->output, rank, r->site->name, stream, line + at + (line[at] == ' '));
    } else if (sscanf(line, "end %d %d %d %zu", &rank, &code, &number, &limit) == 4) {
        if (rank < 0 || rank >= f->n_ranks || f->ranks[rank].ended) return;
        Rank *k = &f->ranks[rank];
        k->ended = true;
        k->code = code;
        k->signal = number;
        k->memory_limit = limit;
        k->when = clock_monotonic();
        f->running--;
    } else if (sscanf(line, "report %d %n", &rank, &at) == 1 && at) {
        take_report(f, rank, line + at);
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

static void read_errors(Remote *r)
{
    wire_fill(&r->errors);
    for (char *line; (line = wire_line(&r->errors, false));) {
        line[strcspn(line, "\r")] = '\0';
        if (!*line) continue;
        if (!r->met) snprintf(r->complaint, sizeof r->complaint, "%.500s", line);
        log_info("%s: %s", r->site->name, line);
    }
}

/* PBS starts the agent of a host that ssh does not reach, now and in later starts. */
static bool start_as_task(Fleet *f, Remote *r)
{
    if (!f->tasks || r->met || r->site->here || r->site->by_task) return false;
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
        int second = r && r->site->by_task && !r->entered && !r->lost ? fcntl(connection, F_DUPFD_CLOEXEC, 0) : -1;
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
        expected = expected || (r->site->by_task && !r->entered && !r->lost);
    }
    if (!expected && f->door.path) door_close(&f->door);
}

static void read_agent(Fleet *f, Remote *r, double silence_s)
{
    read_errors(r);
    bool open = wire_fill(&r->messages);
    for (char *line; (line = wire_line(&r->messages, true));) take_message(f, r, line);
    if (!open) { /* ssh's last message may come a little after its end */
        struct pollfd wait = {.fd = r->errors.fd, .events = POLLIN};
        for (int k = 0; k < 5 && r->errors.fd >= 0; k++) {
            poll(&wait, 1, 100);
            read_errors(r);
        }
        if (start_as_task(f, r)) return;
        lose_agent(f, r, "its connection ended");
    }
    double silent = clock_monotonic() - r->messages.heard;
    if (r->met && silence_s > 0 && silent > silence_s) lose_agent(f, r, "it fell silent");
}

void fleet_turn(Fleet *f, int watch, double seconds, double silence_s)
{
    events_begin(&f->events);
    events_until(&f->events, clock_monotonic() + seconds);
    events_add(&f->events, watch, POLLIN, NULL, NULL);
    events_add(&f->events, f->door.path ? f->door.listener : -1, POLLIN, NULL, NULL);
    for (int i = 0; i < f->n_remotes; i++) {
        if (f->remotes[i].lost) continue;
        events_add(&f->events, f->remotes[i].messages.fd, POLLIN, NULL, NULL);
        events_add(&f->events, f->remotes[i].errors.fd, POLLIN, NULL, NULL);
    }
    events_wait(&f->events);
    admit_agents(f);
    double now = clock_monotonic();
    for (int i = 0; i < f->n_remotes && now - f->turned > silence_s / 2; i++) /* this process was suspended */
        f->remotes[i].messages.heard = now;
    f->turned = now;
    static double beat;
    if (clock_monotonic() - beat > WIRE_BEAT_S) {
        beat = clock_monotonic();
        fleet_send(f, NULL, "beat");
    }
    for (int i = 0; i < f->n_remotes; i++)
        if (!f->remotes[i].lost) read_agent(f, &f->remotes[i], silence_s);
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
            read_errors(r);
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
        wire_reader_close(&f->remotes[i].messages);
        wire_reader_close(&f->remotes[i].errors);
    }
    MEM_FREE(f->remotes, f->ranks, f->silent);
    output_close(f->output);
    events_free(&f->events);
    *f = (Fleet){0};
}
