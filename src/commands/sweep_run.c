/* The processes of a sweep: a plan per group (--dry-run), then the runs, some at a time. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/host.h"
#include "base/machine_memory.h"
#include "base/parallel.h"
#include "commands/sweep.h"
#include "train/ranks/signals.h"

#define MIB        ((double)(1 << 20))
#define POLL_NS    20000000L
#define LEAST_LEFT 5.0 /* seconds of --max-time for which a run is begun */

/* ---- processes ---- */

/* Starts the words, which it frees, in a process group of its own, so that a terminal's signals reach it by us alone,
   once. Output goes to the end of `log`. A killed sweep leaves no run behind. */
static Status start(SweepWords *w, const char *log, pid_t *pid)
{
    pid_t parent = getpid();
    char *folder = file_directory(log);
    int out = -1, in = -1;
    sweep_add_word(w, NULL);
    Status status = file_make_directories(folder);
    if (status == OK) status = file_open_regular(log, O_WRONLY | O_CREAT | O_APPEND, &out);
    if (status == OK && (in = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        status = fail(E_IO, "/dev/null: cannot open: %m");
    *pid = status == OK ? fork() : -1;
    if (*pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(1);
        dup2(in, STDIN_FILENO);
        dup2(out, STDOUT_FILENO);
        dup2(out, STDERR_FILENO);
        execv("/proc/self/exe", w->words);
        execv(host_program(), w->words); /* without /proc */
        _exit(127);
    }
    if (status == OK && *pid < 0) status = fail(E_FAIL, "cannot start a process: %m");
    if (out >= 0) close(out);
    if (in >= 0) close(in);
    sweep_words_free(w);
    free(folder);
    return status;
}

/* Exit code of a process, as a shell has it; −1: it runs. */
static int look(pid_t pid)
{
    int state;
    pid_t got = waitpid(pid, &state, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR)) return -1;
    if (got < 0) return 1;
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static void nap(void) { nanosleep(&(struct timespec){0, POLL_NS}, NULL); }

/* ---- logs ---- */

/* The text behind `key` in a log's last line that begins with it; NULL: none. The caller frees. */
static char *last_line(const char *log, const char *key)
{
    Buf text = {0};
    char *found = NULL;
    if (file_read(log, (size_t)1 << 30, &text) != OK || !text.data) return NULL;
    for (char *at = text.data; (at = strstr(at, key)); at += strlen(key)) {
        if (at != text.data && at[-1] != '\n') continue;
        free(found);
        found = mem_strndup(at + strlen(key), strcspn(at + strlen(key), "\n"));
    }
    buf_free(&text);
    return found;
}

static char *last_error(const char *log, int code)
{
    char *message = last_line(log, "error: ");
    return message ? message : mem_printf("exit code %d; see %s", code, log);
}

/* ---- plans ---- */

/* Runs at the same time have even shares of cores and of free memory, unless their flags say otherwise. */
static void add_shares(const Sweep *s, const SweepRun *r, double left, SweepWords *w)
{
    int jobs = (int)s->c->jobs, cores = parallel_cores();
    if (jobs > 1 && r->c.threads == 0) sweep_add_word(w, mem_printf("--threads=%d", cores > jobs ? cores / jobs : 1));
    if (jobs > 1 && r->c.memory_budget == 0)
        sweep_add_word(w, mem_printf("--memory-budget=%zuB", machine_free_bytes() / (size_t)jobs));
    if (isfinite(left)) sweep_add_word(w, mem_printf("--max-time=%.0fs", left));
}

/* A peak that a dry run logs, "  peak         123.4 MiB"; a device's has the host's below it, without the word. */
static double planned_peak(const char *log, const char *key)
{
    char *text = last_line(log, key);
    double mib = text ? strtod(text, NULL) : NAN;
    free(text);
    return mib > 0 ? mib * MIB : NAN;
}

static Status plan_one(Sweep *s, SweepRun *r)
{
    int code = -1;
    pid_t pid;
    SweepWords words = sweep_command(s, r);
    char *log = mem_printf("%s.plan", r->log);
    add_shares(s, r, NAN, &words);
    sweep_add_word(&words, mem_strdup("--dry-run"));
    (void)unlink(log);
    Status status = start(&words, log, &pid);
    while (status == OK && (code = look(pid)) < 0) {
        if (*signals_stop()) kill(pid, SIGTERM);
        nap();
    }
    if (status == OK && *signals_stop()) status = fail(E_STOPPED, "stopped by %s", signals_name(*signals_stop()));
    char *message = status == OK && code ? last_error(log, code) : NULL;
    if (status == OK && code == 76) {
        r->state = SWEEP_TOO_BIG;
        r->message = mem_strdup(message);
    } else if (status == OK && code) {
        status = fail(code == 2 ? E_USAGE : E_FAIL, "the plan of %s failed: %s", r->name, message);
    } else if (status == OK) {
        r->planned = planned_peak(log, "  peak ");
        r->host = planned_peak(log, "               ");
    }
    MEM_FREE(message, log);
    return status;
}

Status sweep_plan(Sweep *s)
{
    for (int g = 0; g < s->n_groups; g++) {
        const SweepRun *first = NULL; /* of the group, that is planned */
        for (int i = 0; i < s->n_runs; i++) {
            SweepRun *r = &s->runs[i];
            if (r->group != g || r->state != SWEEP_NEW) continue;
            if (!first) {
                TRY(plan_one(s, r));
                first = r;
                log_info("plan of %s: %s", r->name, r->state == SWEEP_TOO_BIG ? r->message : "fits");
                continue;
            }
            r->state = first->state;
            r->planned = first->planned;
            r->host = first->host;
            if (first->message) r->message = mem_strdup(first->message);
        }
    }
    return OK;
}

/* ---- runs ---- */

typedef struct {
    SweepRun *run;
    pid_t pid;
    double began;
    bool told; /* of the stop */
} Job;

static void take_result(SweepRun *r, int code)
{
    r->state = SWEEP_FAILED;
    if (code == 0) {
        r->record = mem_alloc(sizeof *r->record);
        if (run_record_read(r->dir, r->record) == OK) {
            r->state = SWEEP_DONE;
            r->planned = (double)r->record->s.planned_peak_bytes;
            return;
        }
        free(r->record);
        r->record = NULL;
        r->message = mem_strdup(status_message());
    } else if (code == 75 || code == 99) {
        r->state = SWEEP_STOPPED;
    } else {
        r->state = code == 76 ? SWEEP_TOO_BIG : SWEEP_FAILED;
        r->code = code;
        r->message = last_error(r->log, code);
    }
}

static void log_result(const Sweep *s, const SweepRun *r, double seconds)
{
    Buf text = {0};
    int n = (int)(r - s->runs) + 1;
    buf_printf(&text, "run %d of %d, %s: ", n, s->n_runs, r->name);
    if (r->state == SWEEP_DONE) {
        const RunSummary *m = &r->record->s;
        for (int e = 0; e < m->n_evals; e++) buf_printf(&text, "%s %.4f, ", m->evals[e].name, m->evals[e].value);
        buf_printf(&text, "%.1f seq/s, %.0f s", m->seq_per_s, seconds);
    } else {
        buf_puts(&text, r->state == SWEEP_STOPPED ? "stopped, the same command resumes it" : r->message);
    }
    log_printf(r->state == SWEEP_FAILED ? LOG_ERROR : LOG_INFO, "%s", text.data);
    buf_free(&text);
}

typedef struct {
    Sweep *s;
    Job *jobs; // (n_jobs)
    int n_jobs, next, end;
    double deadline; /* clock; infinite: none */
    bool stopped;
} Queue;

static Status begin(Queue *q, Job *job, SweepRun *r)
{
    SweepWords words = sweep_command(q->s, r);
    add_shares(q->s, r, isfinite(q->deadline) ? q->deadline - clock_monotonic() : NAN, &words);
    TRY(start(&words, r->log, &job->pid));
    job->run = r;
    job->began = clock_monotonic();
    job->told = false;
    log_debug("run %d of %d, %s: process %ld", (int)(r - q->s->runs) + 1, q->s->n_runs, r->name, (long)job->pid);
    return OK;
}

/* One look at a place of the queue: hands on a stop, takes a result, begins the next run. */
static Status turn(Queue *q, Job *job, bool *busy)
{
    if (job->run) {
        int code = look(job->pid);
        if (*signals_stop() && !job->told && code < 0) {
            kill(job->pid, SIGTERM);
            job->told = true;
        }
        *busy = *busy || code < 0;
        if (code < 0) return OK;
        take_result(job->run, code);
        log_result(q->s, job->run, clock_monotonic() - job->began);
        q->stopped = q->stopped || job->run->state == SWEEP_STOPPED;
        job->run = NULL;
    }
    if (*signals_stop()) return OK;
    while (q->next < q->end && q->s->runs[q->next].state != SWEEP_NEW) q->next++;
    if (q->next == q->end) return OK;
    if (q->deadline - clock_monotonic() < LEAST_LEFT) {
        q->stopped = true;
        return OK;
    }
    *busy = true;
    return begin(q, job, &q->s->runs[q->next++]);
}

Status sweep_run_all(Sweep *s, int only)
{
    Queue q = {.s = s,
               .n_jobs = only < 0 ? (int)s->c->jobs : 1,
               .next = only < 0 ? 0 : only,
               .end = only < 0 ? s->n_runs : only + 1,
               .deadline = s->c->max_time > 0 ? clock_monotonic() + s->c->max_time : INFINITY};
    Status status = OK;
    q.jobs = mem_array((size_t)q.n_jobs, sizeof *q.jobs);
    for (bool busy = true; busy && status == OK;) {
        busy = false;
        for (int i = 0; i < q.n_jobs && status == OK; i++) status = turn(&q, &q.jobs[i], &busy);
        if (busy) nap();
    }
    for (int i = 0; i < q.n_jobs; i++) { /* after a failure to start one */
        if (!q.jobs[i].run) continue;
        kill(q.jobs[i].pid, SIGTERM);
        while (look(q.jobs[i].pid) < 0) nap();
    }
    free(q.jobs);
    TRY(status);
    if (*signals_stop())
        return fail(E_STOPPED, "stopped by %s; the same command resumes the sweep", signals_name(*signals_stop()));
    if (q.stopped) return fail(E_STOPPED, "runs are not finished; the same command resumes the sweep");
    return OK;
}
