#include "train/ranks/ranks.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "comm/meet/world.h"
#include "config/table.h"
#include "train/ranks/signals.h"

extern char **environ;

#define BEAT_S 1.0 /* between heartbeats, at most */

/* The words that the ranks' threads exchange. Their sums count, but for a rank's own seconds. */
enum { READY, ENDING, WHO, HURRY, OWN_S, VOTES, N_WORDS = VOTES + N_VOTES };

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
    double own_s;
    double *all_own_s; // (size)
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
    [VOTE_TERM] = SIGTERM, [VOTE_INT] = SIGINT, [VOTE_USR1] = SIGUSR1, [VOTE_USR2] = SIGUSR2, [VOTE_HUP] = SIGHUP};

static void fill_words(const Ranks *r, double words[N_WORDS])
{
    int signal = *signals_stop();
    memset(words, 0, N_WORDS * sizeof *words);
    words[READY] = r->came > r->met;
    words[ENDING] = r->ending;
    words[WHO] = r->ending ? r->comm->rank : 0;
    words[HURRY] = signal != 0;
    words[OWN_S] = r->own_s;
    if (r->came == r->met) return;
    memcpy(words + VOTES, r->mine, sizeof r->mine);
    for (size_t v = 0; v < sizeof signal_of / sizeof *signal_of; v++) /* also one received during this wait */
        if (signal && signal_of[v] == signal) words[VOTES + v] = 1;
}

/* `all`: (size, N_WORDS). */
static void take_words(Ranks *r, const double *all)
{
    double words[N_WORDS] = {0};
    for (int i = 0; i < r->comm->size; i++)
        for (int k = 0; k < N_WORDS; k++) words[k] += all[i * N_WORDS + k];
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
    for (int i = 0; i < r->comm->size; i++) r->all_own_s[i] = all[i * N_WORDS + OWN_S];
    r->met++;
}

static void wait_for_news(Ranks *r)
{
    double until = clock_monotonic() + r->beat;
    while (r->came == r->met && !r->ending)
        if (!thread_wait_until(&r->changed, &r->lock, until)) return;
}

static void *heartbeat(void *arg)
{
    Ranks *r = arg;
    bool last = false;
    double *all = mem_array((size_t)r->comm->size, N_WORDS * sizeof *all);
    pthread_mutex_lock(&r->lock);
    while (r->status == OK && !last) {
        double words[N_WORDS];
        wait_for_news(r);
        fill_words(r, words);
        last = r->ending;
        pthread_mutex_unlock(&r->lock);
        Status status = comm_allgather(r->control, words, sizeof words, all);
        pthread_mutex_lock(&r->lock);
        if (status == OK)
            take_words(r, all);
        else
            r->status = status;
        if (r->status != OK) r->message = mem_strdup(status_message());
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    free(all);
    return NULL;
}

static Status start_thread(Ranks *r)
{
    r->all_own_s = mem_array((size_t)r->comm->size, sizeof *r->all_own_s);
    thread_lock_init(&r->lock, &r->changed);
    Status status = thread_start(&r->thread, heartbeat, r);
    r->running = status == OK;
    return status_context(status, "the thread that exchanges heartbeats with the other ranks");
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
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->mine[v] = 1;
    pthread_mutex_unlock(&r->lock);
}

bool ranks_agreed(const Ranks *r, Vote v) { return r && r->agreed[v]; }

void ranks_clear(Ranks *r, Vote v)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->agreed[v] = false;
    pthread_mutex_unlock(&r->lock);
}

int ranks_signal(const Ranks *r)
{
    for (int v = VOTE_TERM; v <= VOTE_HUP; v++)
        if (r->agreed[v]) return signal_of[v];
    return 0;
}

void ranks_tell_own_s(Ranks *r, double seconds)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->own_s = seconds;
    pthread_mutex_unlock(&r->lock);
}

void ranks_all_own_s(Ranks *r, double *seconds)
{
    pthread_mutex_lock(&r->lock);
    memcpy(seconds, r->all_own_s, (size_t)r->comm->size * sizeof *seconds);
    pthread_mutex_unlock(&r->lock);
}

bool ranks_hurry(const Ranks *r) { return r && atomic_load(&r->hurry); }

/* ---- the options of all ranks, compared before anything depends on them ---- */

Status ranks_check_batch(const Config *c, int64_t ranks)
{
    const char *name = c->foreign[OPTION_batch_size]; /* it may count a rank's sequences */
    long long batch = (long long)c->batch_size, all = batch * (long long)ranks;
    if (ranks <= 1 || !name) return OK;
    return fail(E_USAGE,
                "--%s %lld with %lld ranks: give --batch-size, which counts the sequences of all ranks: %lld, or %lld "
                "if each rank has %lld",
                name, batch, (long long)ranks, batch, all, batch);
}

/* Collective. E_USAGE names the first option that differs between ranks and must not. */
static Status compare_options(Comm *comm, const Config *c)
{
    Status status = OK;
    int n = 0;
    CommFact facts[N_OPTIONS];
    char flags[N_OPTIONS][64];
    Buf values[N_OPTIONS] = {{0}};
    bool given[N_OPTIONS] = {false}, *all = mem_array((size_t)comm->size, sizeof given); // (size, N_OPTIONS)
    for (int i = 0; i < N_OPTIONS; i++) {
        buf_puts(&values[i], "");
        config_value_text(c, i, &values[i]);
        given[i] = values[i].len > 0;
    }
    /* Versions come first: another version has other options. */
    TRY_DONE(comm_agree(comm, &(CommFact){"version", CAIRN_VERSION}, 1));
    TRY_DONE(comm_allgather(comm, given, sizeof given, all));
    for (int i = 0; i < N_OPTIONS; i++) {
        const char *letters = config_table[i].commands;
        bool skip = strchr(letters, 'D') != NULL;
        for (int r = 1; r < comm->size; r++) skip = skip && all[r * N_OPTIONS + i] == all[i];
        if (skip || !config_option_of(i, c->command) || strchr(letters, 'R')) continue;
        snprintf(flags[n], sizeof flags[n], "--%s", config_flag(i));
        facts[n] = (CommFact){flags[n], values[i].data};
        n++;
    }
    TRY_DONE(comm_agree(comm, facts, n));
done:
    for (int i = 0; i < N_OPTIONS; i++) buf_free(&values[i]);
    free(all);
    return status;
}

/* ---- opening ---- */

static Status count_sharing(Ranks *r)
{
    typedef struct {
        cpu_set_t cores;
        int64_t node;
    } RankCores;
    Comm *c = r->comm;
    RankCores mine = {.node = c->node}, *all = mem_array((size_t)c->size, sizeof *all);
    if (sched_getaffinity(0, sizeof mine.cores, &mine.cores) != 0) CPU_ZERO(&mine.cores);
    r->cores = mine.cores;
    Status status = comm_allgather(c, &mine, sizeof mine, all);
    for (int i = 0; i < c->size && status == OK; i++) r->sharing += memcmp(&all[i], &mine, sizeof mine) == 0;
    free(all);
    return status;
}

int ranks_threads(const Ranks *r, int asked)
{
    if (asked || !r || r->sharing < 2) return asked;
    int share = CPU_COUNT(&r->cores) / r->sharing;
    return share > 0 ? share : 1;
}

Status ranks_open(const Config *c, Status use, Ranks **ranks)
{
    World world;
    Status status = OK;
    *ranks = NULL;
    char *wrong = use == OK ? NULL : mem_strdup(status_message());
    Status found = world_find(environ, &world);
    if (use == OK && found == OK && (use = ranks_check_batch(c, world.size)) != OK)
        wrong = mem_strdup(status_message());
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
    TRY_DONE(compare_options(r->comm, c));
    TRY_DONE(comm_dup(r->comm, &r->control));
    TRY_DONE(count_sharing(r));
    TRY_DONE(start_thread(r));
    if (use != OK) (void)fail(use, "%s", wrong);
    TRY_DONE(ranks_all(r, use));
    log_info("%d ranks on %d host%s (by the variables of %s)", r->comm->size, r->comm->nodes,
             r->comm->nodes == 1 ? "" : "s", world.source);
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
    MEM_FREE(r->message, r->all_own_s, r);
}
