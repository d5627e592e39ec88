/* The store: opens the place, and lets the ranks of one run meet there. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/host.h"
#include "comm/meet/store_internal.h"

#define REPORT_S 5.0 /* limit of the wait for the launcher's answer to a report */
#define REACH_S  1.0 /* limit of the first connection to it: the watch sends no signs of life meanwhile */

/* The launcher's store, where the ranks meet elsewhere. It is opened for the first report. */
typedef struct {
    World world;
    char *where, *token; /* `where` NULL: there is no launcher, or it was tried */
    Store *store;        /* NULL: none */
    pthread_mutex_t lock;
} Reports;

struct Store {
    const StoreKind *kind;
    void *self;
    char *where, *run;                 /* run: the prefix of every name */
    const volatile sig_atomic_t *stop; /* may be NULL */
    int rank, size;
    char nonce[40]; /* this process's, in the meeting */
    bool complete;  /* all have met */
    bool served;
    pthread_mutex_t lock;
    atomic_int setting; /* threads that wait for the lock to set a value */
    Reports reports;
};

bool store_stopped(const volatile sig_atomic_t *stop) { return stop && *stop; }
Status store_fail_stopped(void) { return fail(E_STOPPED, "stopped by a signal while the ranks met"); }
void store_ignore_stop(Store *s) { s->stop = NULL; }

static Status raw_set(Store *s, const char *name, const void *data, size_t size)
{
    atomic_fetch_add(&s->setting, 1);
    pthread_mutex_lock(&s->lock);
    atomic_fetch_sub(&s->setting, 1);
    Status status = s->kind->set(s->self, name, data, size);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static Status raw_get(Store *s, const char *name, double wait_s, void **data, size_t *size)
{
    pthread_mutex_lock(&s->lock);
    Status status = s->kind->get(s->self, name, wait_s, data, size);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static char *run_name(const Store *s, const char *name)
{
    return s->run ? mem_printf("%s/%s", s->run, name) : mem_strdup(name);
}

static Status check_sizes(const char *name, size_t size)
{
    if (strlen(name) == 0 || strlen(name) > STORE_MAX_NAME / 2)
        return fail(E_USAGE, "store: a name of %zu characters; 1 to %d are allowed", strlen(name), STORE_MAX_NAME / 2);
    if (size > STORE_MAX_VALUE)
        return fail(E_USAGE, "store: %s has %zu bytes; at most %zu are allowed", name, size, STORE_MAX_VALUE);
    return OK;
}

Status store_set(Store *s, const char *name, const void *data, size_t size)
{
    TRY(check_sizes(name, size));
    char *full = run_name(s, name);
    Status status = raw_set(s, full, data, size);
    free(full);
    return status_context(status, "store %s", s->where);
}

Status store_get(Store *s, const char *name, double timeout_s, void **data, size_t *size)
{
    Status status = OK;
    double end = clock_monotonic() + timeout_s;
    TRY(check_sizes(name, 0));
    char *full = run_name(s, name);
    *data = NULL;
    for (;;) {
        double left = end - clock_monotonic();
        /* In short pieces, because other threads wait for the lock, which this one would take again before they run. */
        while (atomic_load(&s->setting)) usleep(500);
        TRY_DONE(raw_get(s, full, left < 0 ? 0 : left < 0.1 ? left : 0.1, data, size));
        if (*data) break;
        if (store_stopped(s->stop)) {
            if (timeout_s > 0 && timeout_s < 0.5) usleep(50000); /* a caller that retries must not spin */
            status = store_fail_stopped();
            goto done;
        }
        if (left <= 0) TRY_DONE(fail(E_PEER, "'%s' did not come within %.1f s", name, timeout_s));
    }
done:
    free(full);
    return status_context(status, "store %s", s->where);
}

/* ---- the meeting in a folder, which may hold files of earlier runs ---- */

static Status set_text(Store *s, const char *name, const char *text) { return raw_set(s, name, text, strlen(text)); }

/* A short text; "" where there is none. */
static Status get_text(Store *s, const char *name, char *out, size_t size)
{
    void *data = NULL;
    size_t len = 0;
    out[0] = '\0';
    TRY(raw_get(s, name, 0, &data, &len));
    if (data && len < size) snprintf(out, size, "%.*s", (int)len, (const char *)data);
    free(data);
    return OK;
}

void store_hurry(Store *s, double answer_s)
{
    pthread_mutex_lock(&s->lock);
    if (s->kind->hurry) s->kind->hurry(s->self, answer_s);
    pthread_mutex_unlock(&s->lock);
}

static void sleep_longer(double *seconds)
{
    usleep((useconds_t)(*seconds * 1e6));
    if (*seconds < 0.1) *seconds *= 1.5;
}

/* A number of this process, with host and process for messages: "HEX host NAME process PID". */
static void draw_nonce(Store *s, char *out, size_t size)
{
    char hex[33], host[128];
    hash128_random_hex(hex);
    host_name(host, sizeof host);
    for (char *p = host; *p; p++)
        if (*p == ' ') *p = '_';
    snprintf(out, size, "%s host %s process %ld", hex, host, (long)getpid());
    memcpy(s->nonce, hex, sizeof hex);
}

static void begin_run(Store *s, const char *nonce)
{
    free(s->run);
    s->run = mem_printf("run-%.16s", nonce);
    if (s->kind->join) s->kind->join(s->self, s->run, s->rank);
}

static Status fail_missing(const World *w, const bool *joined, double timeout_s)
{
    Buf b = {0};
    for (int r = 1; r < w->size; r++)
        if (!joined[r]) buf_printf(&b, "%s%d", b.len ? ", " : "", r);
    Status status =
        fail(E_PEER, "rank 0 waited %.0f s; of %d ranks these did not come: %s", timeout_s, w->size, b.data);
    buf_free(&b);
    return status;
}

/* Answers each rank's hello with the run's nonce until all have joined the run. */
static Status meet_as_rank_0(Store *s, const World *w, double timeout_s)
{
    Status status = OK;
    char nonce[256], hello[256], name[64], text[600];
    double end = clock_monotonic() + timeout_s, pause = 0.002;
    bool *joined = mem_array((size_t)w->size, sizeof *joined);
    char(*answered)[40] = mem_array((size_t)w->size, sizeof *answered);
    int left = w->size - 1;
    draw_nonce(s, nonce, sizeof nonce);
    begin_run(s, nonce);
    TRY_DONE(set_text(s, "owner", nonce));
    while (left > 0) {
        TRY_DONE(get_text(s, "owner", text, sizeof text));
        if (*text && strcmp(text, nonce) != 0)
            TRY_DONE(fail(E_USAGE,
                          "another process came as rank 0 of the same job (%s). Give each run its own place or "
                          "job name",
                          text + 33));
        for (int r = 1; r < w->size; r++) {
            if (joined[r]) continue;
            snprintf(name, sizeof name, "hello-%d", r);
            TRY_DONE(get_text(s, name, hello, sizeof hello));
            if (*hello && strncmp(answered[r], hello, 32) != 0) {
                snprintf(answered[r], sizeof answered[r], "%.32s", hello);
                snprintf(name, sizeof name, "answer-%d", r);
                snprintf(text, sizeof text, "%s %.16s %d", answered[r], nonce, w->size);
                TRY_DONE(set_text(s, name, text));
            }
            snprintf(name, sizeof name, "%s/joined-%d", s->run, r);
            TRY_DONE(get_text(s, name, text, sizeof text));
            if (*text) joined[r] = true, left--, pause = 0.002;
        }
        if (left > 0 && store_stopped(s->stop)) TRY_DONE(store_fail_stopped());
        if (left > 0 && clock_monotonic() > end) TRY_DONE(fail_missing(w, joined, timeout_s));
        if (left > 0) sleep_longer(&pause);
    }
    TRY_DONE(store_set(s, "complete", "", 0));
done:
    MEM_FREE(joined, answered);
    return status;
}

/* Repeats its hello until an answer names exactly that hello; other answers belong to earlier runs. */
static Status meet_as_other(Store *s, const World *w, double timeout_s)
{
    char nonce[256], hello[64], answer[64], text[600], key[40], run[20];
    double end = clock_monotonic() + timeout_s, pause = 0.002, again = 0;
    int size = 0;
    draw_nonce(s, nonce, sizeof nonce);
    snprintf(hello, sizeof hello, "hello-%d", w->rank);
    snprintf(answer, sizeof answer, "answer-%d", w->rank);
    for (;;) {
        double now = clock_monotonic();
        if (now > again) {
            TRY(set_text(s, hello, nonce));
            again = now + 1;
        }
        TRY(get_text(s, answer, text, sizeof text));
        if (sscanf(text, "%32s %16s %d", key, run, &size) == 3 && strncmp(key, nonce, 32) == 0) break;
        if (store_stopped(s->stop)) return store_fail_stopped();
        if (now > end)
            return fail(E_PEER,
                        "rank %d waited %.0f s; rank 0 did not answer. Check that it runs, and meets at the same place",
                        w->rank, timeout_s);
        sleep_longer(&pause);
    }
    if (size != w->size)
        return fail(E_USAGE, "rank %d was started as one of %d ranks, rank 0 as one of %d", w->rank, w->size, size);
    begin_run(s, run);
    char *joined = mem_printf("%s/joined-%d", s->run, w->rank);
    Status status = get_text(s, joined, text, sizeof text);
    if (status == OK && *text && strcmp(text, nonce) != 0)
        status = fail(E_USAGE, "two processes are rank %d: the other is %s", w->rank, text + 33);
    if (status == OK) status = set_text(s, joined, nonce);
    free(joined);
    TRY(status);
    /* Rank 0 names the missing ranks; this rank waits a little longer than rank 0. */
    void *data;
    size_t len;
    status = store_get(s, "complete", end - clock_monotonic() + 2, &data, &len);
    if (status == E_STOPPED) return status;
    if (status != OK)
        return fail(E_PEER, "rank %d waited %.0f s; not all of %d ranks came", w->rank, timeout_s, w->size);
    free(data);
    return OK;
}

/* ---- where ---- */

static Status default_place(const World *w, char **where)
{
    const char *left = getenv("CAIRN_RENDEZVOUS");
    if (left && *left && strcmp(left, "auto") != 0) {
        *where = mem_strdup(left);
        return OK;
    }
    if (w->master[0]) {
        bool v6 = strchr(w->master, ':') != NULL;
        *where = mem_printf(v6 ? "tcp://[%s]:%d" : "tcp://%s:%d", w->master, w->master_port);
        return OK;
    }
    if (w->local_size > 0 && w->local_size < w->size)
        return fail(E_USAGE,
                    "rank %d of %d (%s): the ranks are on several hosts, and have no place to meet. Give "
                    "--rendezvous file:DIR (a folder that all hosts share) or tcp://HOST:PORT (rank 0's host)",
                    w->rank, w->size, w->source);
    char *directory = NULL;
    Status status = file_user_folder(&directory);
    if (status == OK) *where = mem_printf("file:%s", directory);
    free(directory);
    return status;
}

static bool skip_prefix(const char **text, const char *with)
{
    size_t n = strlen(with);
    if (strncmp(*text, with, n) != 0) return false;
    *text += n;
    return true;
}

static Status open_kind(Store *s, const World *w, Hash128 key, Hash128 job, double timeout_s)
{
    const char *at = s->where;
    if (skip_prefix(&at, "file:")) return store_file_open(at, job, s->rank == 0, &s->kind, &s->self);
    if (skip_prefix(&at, "tcp://"))
        return store_tcp_open(w, at, w->rank == 0, key, timeout_s, s->stop, &s->kind, &s->self);
    s->served = skip_prefix(&at, "served://");
    if (s->served) return store_tcp_open(w, at, false, key, timeout_s, s->stop, &s->kind, &s->self);
    return fail(E_USAGE, "rendezvous '%s': expected file:DIR, tcp://HOST[:PORT] or auto", at);
}

static void find_launcher(Store *s, const World *w, const char *token)
{
    const char *where = getenv("CAIRN_LAUNCHER");
    if (s->served || !where || !*where) return;
    s->reports.world = *w;
    s->reports.where = mem_strdup(where);
    s->reports.token = mem_strdup(token ? token : "");
}

Status store_open(const World *w, const char *where, const char *token, double timeout_s,
                  const volatile sig_atomic_t *stop, Store **store)
{
    Status status = OK;
    double begin = clock_monotonic();
    Store *s = mem_alloc(sizeof *s);
    s->stop = stop;
    s->rank = w->rank;
    s->size = w->size;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->reports.lock, NULL);
    *store = NULL;
    if (!where || !*where || strcmp(where, "auto") == 0)
        TRY_DONE(default_place(w, &s->where));
    else
        s->where = mem_strdup(where);
    Hash128 key = siphash_key(token ? token : ""), job = siphash(key, w->job, strlen(w->job));
    log_debug("rank %d of %d meets the others at %s", w->rank, w->size, s->where);
    TRY_DONE(open_kind(s, w, job, job, timeout_s));
    if (strcmp(s->kind->name, "tcp") != 0) {
        double left = begin + timeout_s - clock_monotonic();
        TRY_DONE(w->rank == 0 ? meet_as_rank_0(s, w, left) : meet_as_other(s, w, left));
        s->complete = true;
    }
    find_launcher(s, w, token);
    *store = s;
    s = NULL;
done:
    if (s && s->where) status = status_context(status, "meeting at %s", s->where);
    store_close(s);
    return status;
}

void store_forget(const World *w, const char *where, const char *token)
{
    if (skip_prefix(&where, "file:") && *where)
        store_file_forget(where, siphash(siphash_key(token), w->job, strlen(w->job)));
}

/* The store that the launcher serves; NULL: none. */
static Store *launcher_store(Store *s)
{
    Reports *r = &s->reports;
    if (s->served) return s;
    pthread_mutex_lock(&r->lock);
    if (r->where && store_open(&r->world, r->where, r->token, REACH_S, NULL, &r->store) != OK)
        log_debug("the launcher hears no reports: %s", status_message());
    free(r->where);
    r->where = NULL;
    pthread_mutex_unlock(&r->lock);
    return r->store;
}

/* True: the launcher was told, or there is none that listens. */
static bool report(Store *s, const char *name, const char *text)
{
    Store *to = launcher_store(s);
    if (!to) return true;
    store_hurry(to, REPORT_S); /* the launcher may be suspended */
    if (store_set(to, name, text, strlen(text)) == OK) return true;
    log_debug("%s", status_message());
    return false;
}

void store_tell_lost(Store *s, int lost, bool silent)
{
    char name[32], text[32];
    snprintf(name, sizeof name, STORE_LOST, s->rank);
    snprintf(text, sizeof text, "%d %d", lost, silent);
    (void)report(s, name, text);
}

bool store_tell_silent(Store *s, int rank)
{
    char name[32];
    snprintf(name, sizeof name, STORE_SILENT, rank);
    return report(s, name, "1");
}

void store_tell_saved(Store *s) { (void)report(s, STORE_SAVED, "1"); }

void store_tell_frozen(Store *s, int rank)
{
    char name[32];
    snprintf(name, sizeof name, STORE_FROZEN, rank);
    (void)report(s, name, "1");
}

void store_close(Store *s)
{
    if (!s) return;
    if (s->kind && s->kind->leave && *s->nonce)
        s->kind->leave(s->self, s->run, s->nonce, s->rank, s->size, s->complete);
    if (s->kind) s->kind->close(s->self);
    store_close(s->reports.store);
    MEM_FREE(s->reports.where, s->reports.token);
    pthread_mutex_destroy(&s->reports.lock);
    pthread_mutex_destroy(&s->lock);
    MEM_FREE(s->where, s->run, s);
}
