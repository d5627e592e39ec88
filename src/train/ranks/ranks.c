#include "train/ranks/ranks.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/thread.h"
#include "comm/meet/world.h"
#include "config/table.h"
#include "train/ranks/signals.h"
#include "train/ranks/votes.h"

extern char **environ;

struct Ranks {
    Comm *comm;
    Watch *watch;
    cpu_set_t cores;
    int sharing;          /* ranks of this host that may use the same cores */
    bool open;            /* meetings are possible */
    atomic_bool hurry;    /* some rank has a signal */
    pthread_mutex_t lock; /* of the following members */
    pthread_cond_t changed;
    Votes votes;
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

/* ---- votes: the machine's driver ---- */

static const int signal_of[] = {
    [VOTE_TERM] = SIGTERM, [VOTE_INT] = SIGINT, [VOTE_USR1] = SIGUSR1, [VOTE_USR2] = SIGUSR2, [VOTE_HUP] = SIGHUP};

static uint32_t vote_of_signal(void)
{
    int signal = *signals_stop();
    for (size_t v = 0; v < sizeof signal_of / sizeof *signal_of; v++)
        if (signal && signal_of[v] == signal) return 1u << v;
    return 0;
}

static void send_to_others(const Ranks *r, MailKind kind, const void *data, size_t size)
{
    for (int to = 0; to < r->votes.size; to++)
        if (to != r->votes.rank) watch_send(r->watch, to, kind, data, size);
}

static void act(Ranks *r, VotesAction what)
{
    VotesMessage m = votes_message(&r->votes);
    Buf text = {0};
    switch (what) {
    case SEND_VOTE:
        watch_send(r->watch, 0, MAIL_VOTE, &m, sizeof m);
        break;
    case SEND_DECISION:
        buf_append(&text, &m, sizeof m);
        buf_append(&text, r->votes.all_own_s, (size_t)r->votes.size * sizeof(double));
        send_to_others(r, MAIL_DECISION, text.data, text.len);
        buf_free(&text);
        break;
    case REPORT_LEFT:
        (void)watch_report(r->watch, votes_missing(&r->votes), LOSS_LEFT, 0);
        break;
    }
}

/* The caller holds the lock. */
static void event(Ranks *r, VotesEvent e)
{
    votes_on(&r->votes, &e);
    for (int i = 0; i < r->votes.n_actions; i++) act(r, r->votes.actions[i]);
    r->votes.n_actions = 0;
}

static void take_mail(Ranks *r, MailKind kind, VotesEventKind what, size_t size)
{
    for (Mail mail; watch_receive(r->watch, kind, 0, &mail); free(mail.data)) {
        VotesEvent e = {.kind = what, .rank = mail.from, .message = (VotesMessage *)(void *)mail.data};
        e.all_own_s = (double *)(void *)(mail.data + sizeof(VotesMessage));
        if (mail.size == size) event(r, e);
    }
}

/* From the watching thread, after whatever happened. */
static void on_turn(void *arg)
{
    Ranks *r = arg;
    Loss loss;
    signals_heard();
    pthread_mutex_lock(&r->lock);
    take_mail(r, MAIL_VOTE, VOTES_VOTE, sizeof(VotesMessage));
    take_mail(r, MAIL_DECISION, VOTES_DECISION, sizeof(VotesMessage) + (size_t)r->votes.size * sizeof(double));
    take_mail(r, MAIL_END, VOTES_END, 0);
    event(r, (VotesEvent){.kind = VOTES_SIGNAL, .signal = vote_of_signal()});
    for (int left = -1; (left = watch_left(r->watch, left + 1)) >= 0;)
        event(r, (VotesEvent){.kind = VOTES_LEFT, .rank = left});
    if (watch_verdict(r->watch, 0, &loss)) event(r, (VotesEvent){.kind = VOTES_LOST});
    atomic_store(&r->hurry, r->votes.hurry);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void open_votes(Ranks *r)
{
    r->watch = comm_watch(r->comm);
    r->votes = votes_new(r->comm->rank, r->comm->size);
    thread_lock_init(&r->lock, &r->changed);
    r->open = true;
    watch_on_turn(r->watch, signals_wake(), on_turn, r);
}

/* Why there are no more meetings. */
static Status end_status(const Ranks *r)
{
    const Votes *v = &r->votes;
    if (v->end == VOTES_RANK_LOST) return comm_check(r->comm, "meeting");
    if (v->ended > 1) return fail(E_PEER, "%d other ranks ended: see their messages", v->ended);
    return fail(E_PEER, "%s ended: see its message", comm_peer_name(r->comm, v->first_ended));
}

Status ranks_meet(Ranks *r)
{
    if (!r) return OK;
    pthread_mutex_lock(&r->lock);
    event(r, (VotesEvent){.kind = VOTES_COME});
    while (r->votes.met < r->votes.came && r->votes.end == VOTES_GOING) pthread_cond_wait(&r->changed, &r->lock);
    Status status = r->votes.met < r->votes.came ? end_status(r) : OK;
    pthread_mutex_unlock(&r->lock);
    return status;
}

void ranks_vote(Ranks *r, Vote v)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->votes.mine |= 1u << v;
    pthread_mutex_unlock(&r->lock);
}

bool ranks_agreed(const Ranks *r, Vote v) { return r && r->votes.agreed >> v & 1; }

void ranks_clear(Ranks *r, Vote v)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->votes.agreed &= ~(1u << v);
    pthread_mutex_unlock(&r->lock);
}

int ranks_signal(const Ranks *r)
{
    if (!r) return *signals_stop();
    for (int v = VOTE_TERM; v <= VOTE_HUP; v++)
        if (ranks_agreed(r, (Vote)v)) return signal_of[v];
    return 0;
}

void ranks_tell_own_s(Ranks *r, double seconds)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->votes.own_s = seconds;
    pthread_mutex_unlock(&r->lock);
}

void ranks_all_own_s(Ranks *r, double *seconds)
{
    pthread_mutex_lock(&r->lock);
    memcpy(seconds, r->votes.all_own_s, (size_t)r->comm->size * sizeof *seconds);
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

int ranks_sharing(const Ranks *r) { return r ? r->sharing : 1; }

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
    log_set_name(world.rank > 0 ? comm_peer_name(r->comm, world.rank) : NULL);
    if (world.rank > 0 && !c->verbose) log_set_level(LOG_WARN);
    TRY_DONE(compare_options(r->comm, c));
    TRY_DONE(count_sharing(r));
    open_votes(r);
    if (use != OK) (void)fail(use, "%s", wrong);
    TRY_DONE(ranks_all(r, use));
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
    if (!r || !r->open) return;
    char *message = mem_strdup(status_message());
    if (how == OK || how == E_STOPPED)
        (void)ranks_meet(r); /* slower ranks may take long */
    else if (how != E_PEER)  /* the others know of a lost rank */
        send_to_others(r, MAIL_END, NULL, 0);
    r->open = false;
    if (how != OK) (void)fail(how, "%s", message);
    free(message);
}

void ranks_close(Ranks *r)
{
    if (!r) return;
    CHECK(!r->open, "ranks_close without ranks_end");
    bool voted = r->watch != NULL;
    comm_close(r->comm); /* with the thread that calls on_turn, for it is the last one of these ranks */
    if (voted) {
        votes_free(&r->votes);
        pthread_mutex_destroy(&r->lock);
        pthread_cond_destroy(&r->changed);
    }
    free(r);
}
