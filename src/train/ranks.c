#include "train/ranks.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "train/signals.h"

extern char **environ;

#define BEAT_S    1.0 /* between heartbeats, at most */
#define PIECE     ((size_t)64 << 20)
#define TEXT_SIZE 2048

/* The words that the ranks' threads sum. */
enum { READY, ENDING, WHO, HURRY, VOTES, N_WORDS = VOTES + N_VOTES };

struct Ranks {
    Comm *comm, *control;
    double beat; /* seconds */
    cpu_set_t cores;
    int sharing; /* ranks of this host that may use the same cores */
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of the following members */
    pthread_cond_t changed;
    int64_t came, met; /* meetings that this rank reached; that all ranks reached */
    double mine[N_VOTES];
    bool agreed[N_VOTES];
    atomic_bool hurry;
    bool ending;
    Status status; /* of the thread */
    char *message;
};

int ranks_rank(const Ranks *r) { return r ? r->comm->rank : 0; }
int ranks_size(const Ranks *r) { return r ? r->comm->size : 1; }
bool ranks_first(const Ranks *r) { return ranks_rank(r) == 0; }
int ranks_local(const Ranks *r) { return r ? r->comm->local_rank : 0; }
int ranks_local_size(const Ranks *r) { return r ? r->comm->local_size : 1; }
Comm *ranks_comm(const Ranks *r) { return r ? r->comm : NULL; }
Status ranks_connect(Ranks *r, Comm **comm)
{
    TRY(ranks_meet(r));
    return comm_dup(r->comm, comm);
}

/* ---- the heartbeat thread ---- */

static const int signal_of[] = {
    [VOTE_TERM] = SIGTERM, [VOTE_INT] = SIGINT, [VOTE_USR1] = SIGUSR1, [VOTE_USR2] = SIGUSR2};

static void fill_words(const Ranks *r, double words[N_WORDS])
{
    int signal = *signals_stop();
    memset(words, 0, N_WORDS * sizeof *words);
    words[READY] = r->came > r->met;
    words[ENDING] = r->ending;
    words[WHO] = r->ending ? r->comm->rank : 0;
    words[HURRY] = signal != 0;
    if (r->came == r->met) return;
    memcpy(words + VOTES, r->mine, sizeof r->mine);
    for (size_t v = 0; v < sizeof signal_of / sizeof *signal_of; v++) /* also one received during this wait */
        if (signal && signal_of[v] == signal) words[VOTES + v] = 1;
}

static void take_words(Ranks *r, const double words[N_WORDS])
{
    atomic_store(&r->hurry, words[HURRY] > 0);
    if (words[ENDING] > 0 && !r->ending) {
        if (words[ENDING] > 1)
            r->status = fail(E_PEER, "%.0f other ranks ended: see their messages", words[ENDING]);
        else
            r->status = fail(E_PEER, "%s ended: see its message", comm_peer_name(r->comm, (int)words[WHO]));
        return;
    }
    if ((int)words[READY] < r->comm->size) return;
    for (int v = 0; v < N_VOTES; v++) r->agreed[v] |= words[VOTES + v] > 0;
    memset(r->mine, 0, sizeof r->mine);
    r->met++;
}

static void wait_for_news(Ranks *r)
{
    double until = clock_monotonic() + r->beat;
    while (r->came == r->met && !r->ending)
        if (!thread_wait_until(&r->changed, &r->lock, until)) return;
}

static void *keep_up(void *arg)
{
    Ranks *r = arg;
    bool last = false;
    pthread_mutex_lock(&r->lock);
    while (r->status == OK && !last) {
        double words[N_WORDS];
        wait_for_news(r);
        fill_words(r, words);
        last = r->ending;
        pthread_mutex_unlock(&r->lock);
        Status status = comm_sum(r->control, words, N_WORDS);
        pthread_mutex_lock(&r->lock);
        if (status == OK)
            take_words(r, words);
        else
            r->status = status;
        if (r->status != OK) r->message = mem_strdup(status_message());
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static Status start_thread(Ranks *r)
{
    thread_lock_init(&r->lock, &r->changed);
    r->running = thread_start(&r->thread, keep_up, r) == 0;
    return r->running ? OK : fail(E_MEMORY, "cannot start the thread that exchanges heartbeats with the other ranks");
}

Status ranks_meet(Ranks *r)
{
    if (!r) return OK;
    pthread_mutex_lock(&r->lock);
    int64_t number = ++r->came;
    pthread_cond_broadcast(&r->changed);
    while (r->met < number && r->status == OK) pthread_cond_wait(&r->changed, &r->lock);
    Status status = r->met < number ? fail(r->status, "%s", r->message) : OK;
    pthread_mutex_unlock(&r->lock);
    return status;
}

void ranks_vote(Ranks *r, Vote v)
{
    pthread_mutex_lock(&r->lock);
    r->mine[v] = 1;
    pthread_mutex_unlock(&r->lock);
}

bool ranks_agreed(const Ranks *r, Vote v) { return r->agreed[v]; }

void ranks_settled(Ranks *r, Vote v)
{
    pthread_mutex_lock(&r->lock);
    r->agreed[v] = false;
    pthread_mutex_unlock(&r->lock);
}

int ranks_signal(const Ranks *r)
{
    for (int v = VOTE_TERM; v <= VOTE_USR2; v++)
        if (r->agreed[v]) return signal_of[v];
    return 0;
}

bool ranks_hurry(const Ranks *r) { return r && atomic_load(&r->hurry); }

/* ---- opening ---- */

static Status count_sharing(Ranks *r)
{
    Comm *c = r->comm;
    size_t size = sizeof(int32_t) + sizeof r->cores;
    char *mine = mem_alloc(size), *all = mem_array((size_t)c->size, size);
    int32_t node = c->node;
    if (sched_getaffinity(0, sizeof r->cores, &r->cores) != 0) CPU_ZERO(&r->cores);
    memcpy(mine, &node, sizeof node);
    memcpy(mine + sizeof node, &r->cores, sizeof r->cores);
    Status status = comm_allgather(c, mine, size, all);
    for (int i = 0; i < c->size && status == OK; i++) r->sharing += memcmp(all + (size_t)i * size, mine, size) == 0;
    free(mine);
    free(all);
    return status;
}

int ranks_threads(const Ranks *r, int asked)
{
    if (asked || !r || r->sharing < 2) return asked;
    int share = CPU_COUNT(&r->cores) / r->sharing;
    return share > 0 ? share : 1;
}

/* ---- comparison of options ---- */

static bool is_one_of(const char *flag, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(flag, list[i]) == 0) return true;
    return false;
}

/* Options that may differ between ranks: paths, properties of the machine, output. */
static bool own_option(const char *flag)
{
    static const char *const own[] = {"output-dir",   "model-config", "vocab",       "threads",       "backend",
                                      "precision",    "rendezvous",   "iface",       "memory-budget", "log-every",
                                      "log-format",   "verbose",      "poison",      "keep",          "connect-timeout",
                                      "peer-timeout", "snapshot-dir", "persist-file"};
    return is_one_of(flag, own, sizeof own / sizeof *own);
}

/* Paths too, but all ranks must agree on whether each is given. */
static const char *const places[] = {"data-dir", "model", "eval-dir", "input", "submission"};
enum { N_PLACES = sizeof places / sizeof *places };

static char *value_text(const Json *v)
{
    switch (js_kind(v)) {
    case JSON_KIND_STRING:
        return mem_strdup(js_string(v, ""));
    case JSON_KIND_BOOL:
        return mem_strdup(js_bool(v, false) ? "true" : "false");
    default:
        return mem_printf("%.17g", js_real(v, 0));
    }
}

/* Finds the paths that only some ranks were given. */
static Status compare_places(Comm *comm, const Json *doc, bool differ[N_PLACES])
{
    uint8_t mine[N_PLACES], *all = mem_array((size_t)comm->size, sizeof mine);
    for (int i = 0; i < N_PLACES; i++) mine[i] = *js_string(js_get(doc, places[i]), "") != 0;
    Status status = comm_allgather(comm, mine, sizeof mine, all);
    for (int r = 0; r < comm->size; r++)
        for (int i = 0; i < N_PLACES; i++) differ[i] |= all[(size_t)r * sizeof mine + (size_t)i] != all[i];
    free(all);
    return status;
}

/* Runs before anything that depends on the options. */
static Status agree_on_options(Comm *comm, const Config *c)
{
    Buf text = {0};
    Json *doc = NULL;
    int n = 0;
    Status status = OK;
    bool differ[N_PLACES] = {false};
    CommFact facts[N_OPTIONS];
    char *flags[N_OPTIONS], *values[N_OPTIONS];
    config_json(c, &text);
    TRY_DONE(js_parse("the configuration", text.data, text.len, &doc));
    /* Compare versions first: another version has other options. */
    TRY_DONE(comm_agree(comm, &(CommFact){"version", CAIRN_VERSION}, 1));
    TRY_DONE(compare_places(comm, doc, differ));
    for (void *it = js_first(doc); it && n < N_OPTIONS; it = js_next(doc, it)) {
        bool skip = own_option(js_key(it));
        for (int i = 0; i < N_PLACES; i++) skip = skip || (!differ[i] && strcmp(js_key(it), places[i]) == 0);
        if (skip) continue;
        flags[n] = mem_printf("--%s", js_key(it));
        values[n] = value_text(js_value(it));
        facts[n] = (CommFact){flags[n], values[n]};
        n++;
    }
    TRY_DONE(comm_agree(comm, facts, n));
done:
    for (int i = 0; i < n; i++) {
        free(flags[i]);
        free(values[i]);
    }
    js_free(doc);
    buf_free(&text);
    return status;
}

Status ranks_open(const Config *c, Status use, Ranks **ranks)
{
    World world;
    Status status = OK;
    *ranks = NULL;
    char *wrong = mem_strdup(status_message()); /* of `use` */
    Status found = world_find(environ, &world);
    if (found != OK || world.size == 1) {
        if (use != OK) (void)fail(use, "%s", wrong);
        free(wrong);
        return use != OK ? use : found;
    }
    if (use != OK) log_warn("%s; notifying the other ranks", wrong);
    Ranks *r = mem_alloc(sizeof *r);
    CommOptions options = {.transport = c->comm,
                           .rendezvous = c->rendezvous,
                           .interfaces = c->iface,
                           .connect_s = c->connect_timeout,
                           .peer_timeout_s = c->peer_timeout,
                           .stop = signals_stop()};
    TRY_DONE(comm_open(&world, &options, &r->comm));
    r->beat = c->peer_timeout / 4 < BEAT_S ? c->peer_timeout / 4 : BEAT_S;
    log_set_name(world.rank > 0 ? comm_peer_name(r->comm, world.rank) : NULL);
    if (world.rank > 0 && !c->verbose) log_set_level(LOG_WARN);
    TRY_DONE(agree_on_options(r->comm, c));
    TRY_DONE(comm_dup(r->comm, &r->control));
    TRY_DONE(count_sharing(r));
    TRY_DONE(start_thread(r));
    if (use != OK) (void)fail(use, "%s", wrong);
    TRY_DONE(ranks_all(r, use));
    log_info("%d ranks on %d host%s (%s)", r->comm->size, r->comm->nodes, r->comm->nodes == 1 ? "" : "s", world.source);
    *ranks = r;
done:
    free(wrong);
    if (status != OK) {
        ranks_end(r, status);
        ranks_close(r);
    }
    return status;
}

void ranks_end(Ranks *r, Status how)
{
    if (!r || !r->running) return;
    char *message = mem_strdup(status_message());
    if (how == OK || how == E_STOPPED) (void)ranks_meet(r); /* slower ranks may take long */
    pthread_mutex_lock(&r->lock);
    r->ending = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    r->running = false;
    if (how != OK) (void)fail(how, "%s", message);
    free(message);
}

void ranks_close(Ranks *r)
{
    if (!r) return;
    CHECK(!r->running, "ranks_close without ranks_end");
    comm_close(r->control);
    comm_close(r->comm);
    free(r->message);
    free(r);
}

/* ---- exchanges other than gradients ---- */

typedef struct {
    int32_t status;
    char text[TEXT_SIZE];
} Said;

/* Shares rank `who`'s status and message with all. */
static Status say(Ranks *r, Status mine, int who)
{
    Said said = {.status = (int32_t)mine};
    snprintf(said.text, sizeof said.text, "%s", mine == OK ? "" : status_message());
    TRY(comm_broadcast(r->comm, &said, sizeof said, who));
    if (said.status == OK || r->comm->rank == who) return mine;
    return who == 0 ? fail((Status)said.status, "%s", said.text)
                    : fail((Status)said.status, "%s: %s", comm_peer_name(r->comm, who), said.text);
}

Status ranks_follow(Ranks *r, Status of_first)
{
    if (!r) return of_first;
    char *text = mem_strdup(status_message());
    Status status = ranks_meet(r);
    if (status == OK && r->comm->rank == 0 && of_first != OK) (void)fail(of_first, "%s", text);
    free(text);
    return status == OK ? say(r, of_first, 0) : status;
}

Status ranks_all(Ranks *r, Status mine)
{
    if (!r) return mine;
    char *text = mem_strdup(status_message());
    int32_t code = (int32_t)mine, *all = mem_array((size_t)r->comm->size, sizeof *all);
    int who = 0;
    Status status = OK;
    TRY_DONE(ranks_meet(r));
    TRY_DONE(comm_allgather(r->comm, &code, sizeof code, all));
    while (who < r->comm->size && all[who] == OK) who++;
    if (mine != OK) (void)fail(mine, "%s", text);
    if (who < r->comm->size) {
        status = say(r, mine, who);
        if (status == OK) status = (Status)all[who];
    }
done:
    free(text);
    free(all);
    return status;
}

Status ranks_broadcast(Ranks *r, void *data, size_t bytes)
{
    if (!r) return OK;
    TRY(ranks_meet(r));
    for (size_t at = 0; at < bytes; at += PIECE)
        TRY(comm_broadcast(r->comm, (char *)data + at, bytes - at < PIECE ? bytes - at : PIECE, 0));
    return OK;
}

Status ranks_broadcast_text(Ranks *r, Buf *text)
{
    if (!r) return OK;
    uint64_t size = text->len;
    TRY(ranks_broadcast(r, &size, sizeof size));
    char *bytes = mem_alloc((size_t)size + 1);
    if (r->comm->rank == 0 && size > 0) memcpy(bytes, text->data, (size_t)size);
    Status status = ranks_broadcast(r, bytes, (size_t)size);
    if (status == OK && r->comm->rank > 0) {
        buf_free(text);
        buf_append(text, bytes, (size_t)size);
    }
    free(bytes);
    return status;
}

Status ranks_gather(Ranks *r, void **data, size_t *bytes)
{
    Status status = OK;
    size_t before = 0, total = 0, *sizes;
    char *all = NULL;
    if (!r) return OK;
    Comm *c = r->comm;
    sizes = mem_array((size_t)c->size, sizeof *sizes);
    TRY_DONE(ranks_meet(r));
    TRY_DONE(comm_allgather(c, bytes, sizeof *bytes, sizes));
    for (int i = 0; i < c->size; i++) {
        before += i < c->rank ? sizes[i] : 0;
        total += sizes[i];
    }
    all = mem_alloc(total);
    if (*bytes > 0) memcpy(all + before, *data, *bytes);
    if (total > 0) TRY_DONE(comm_allgatherv(c, all, sizes));
    free(*data);
    *data = all;
    *bytes = total;
    all = NULL;
done:
    free(all);
    free(sizes);
    return status;
}

Status ranks_least(Ranks *r, int64_t *n)
{
    if (!r) return OK;
    int64_t *all = mem_array((size_t)r->comm->size, sizeof *all);
    Status status = ranks_meet(r);
    if (status == OK) status = comm_allgather(r->comm, n, sizeof *n, all);
    for (int i = 0; i < r->comm->size && status == OK; i++)
        if (all[i] < *n) *n = all[i];
    free(all);
    return status;
}

/* ---- comparison of values ---- */

Status ranks_same(Ranks *r, const char *name, const char *value)
{
    if (!r) return OK;
    TRY(ranks_meet(r));
    Status status = comm_agree(r->comm, &(CommFact){name, value}, 1);
    return status == E_USAGE ? fail(E_FAIL, "ranks that must agree differ: %s", status_message()) : status;
}

/* The backend without its thread count, which may differ between ranks. */
static void computing(const Backend *b, char out[192])
{
    snprintf(out, 192, "%s: %s", b->name, b->device ? "" : b->describe);
    char *threads = strrchr(out, ',');
    if (threads) *threads = '\0';
}

Status ranks_agree(Ranks *r, const Backend *b, Dtype compute, Digest data)
{
    if (!r) return OK;
    char hex[33], backend[192];
    digest_format(data, hex);
    computing(b, backend);
    const CommFact facts[] = {
        {"backend", backend}, {"precision", backend_precision(b, compute)}, {"data and model (by digest)", hex}};
    TRY(ranks_meet(r));
    return comm_agree(r->comm, facts, sizeof facts / sizeof *facts);
}
