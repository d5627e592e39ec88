#include "comm/peers.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/interfaces.h"
#include "comm/watch.h"

#define CONNECT_S   22.0 /* to connect all pairs of ranks */
#define PREFLIGHT_S 28.0 /* to connect them, and to exchange the errors */

static void append_file(Buf *b, const char *path)
{
    Buf text = {0};
    if (file_read(path, 4096, &text) == OK && text.len) buf_append(b, text.data, text.len);
    buf_free(&text);
}

/* Equal for exactly those processes that share kernel, host name and network namespace. */
static Hash128 host_identity(const char *name)
{
    Buf b = {0};
    struct stat st;
    append_file(&b, "/proc/sys/kernel/random/boot_id");
    buf_printf(&b, "|%s|", name);
    if (stat("/proc/self/ns/net", &st) == 0) buf_printf(&b, "%llu", (unsigned long long)st.st_ino);
    Hash128 h = siphash(siphash_key("host"), b.data, b.len);
    buf_free(&b);
    return h;
}

/* ---- an allgather through the store ---- */

/* As store_get, but a loss that `watch` (may be NULL) knows of ends the wait. */
static Status get_watched(Store *s, const char *name, double timeout_s, Watch *watch, void **data, size_t *size)
{
    double end = clock_monotonic() + timeout_s;
    Loss loss;
    if (!watch) return store_get(s, name, timeout_s, data, size);
    for (;;) {
        bool lost = watch_verdict(watch, 0, &loss); /* before the last store_get */
        Status status = store_get(s, name, 0.2, data, size);
        if (status == OK || status == E_STOPPED || lost || clock_monotonic() > end) return status;
    }
}

/* Rank 0 collects the bytes of each rank; `missing` lists ranks that did not come. */
static void collect(const World *w, Store *s, Watch *watch, const char *what, size_t size, char *all, double timeout_s,
                    Buf *missing)
{
    double end = clock_monotonic() + timeout_s;
    for (int r = 1; r < w->size; r++) {
        double left = end - clock_monotonic();
        char name[64];
        void *data = NULL;
        size_t got = 0;
        snprintf(name, sizeof name, "%s/%d", what, r);
        if (get_watched(s, name, left > 0 ? left : 0, watch, &data, &got) == OK && got == size)
            memcpy(all + (size_t)r * size, data, size);
        else
            buf_printf(missing, "%s%d", missing->len ? ", " : "", r);
        free(data);
    }
}

/* Waits for rank 0's answer, also after the loss of another rank: rank 0 answers while it is alive. */
static Status get_answer(Store *s, const char *name, double timeout_s, Watch *watch, void **data, size_t *size)
{
    double end = clock_monotonic() + timeout_s;
    Loss loss;
    for (;;) {
        Status status = get_watched(s, name, end - clock_monotonic(), watch, data, size);
        bool lost = watch && watch_verdict(watch, 0, &loss);
        if (status == OK || status == E_STOPPED || clock_monotonic() >= end) return status;
        if (lost && loss.rank == 0) return fail(E_PEER, "rank 0 is lost: it %s", loss_text(loss.reason));
        if (!lost) return status;
    }
}

/* Goes through rank 0, so that the store gets 2N requests and not N². The first byte of the answer is 1 for success. */
static Status exchange(const World *w, Store *s, Watch *watch, const char *what, const void *mine, size_t size,
                       void *all, double timeout_s)
{
    double begin = clock_monotonic();
    Status status = OK;
    Buf missing = {0}, answer = {0};
    void *data = NULL;
    size_t got, total = size * (size_t)w->size;
    char name[64], given[64];
    snprintf(given, sizeof given, "%s/all", what);
    if (w->rank != 0) {
        snprintf(name, sizeof name, "%s/%d", what, w->rank);
        TRY(store_set(s, name, mine, size));
        /* A little longer than rank 0, which names the missing ranks. */
        TRY(get_answer(s, given, timeout_s + 2, watch, &data, &got));
        if (got == total + 1 && *(char *)data)
            memcpy(all, (char *)data + 1, total);
        else
            status = fail(E_PEER, "%.*s", (int)got - 1, (const char *)data + 1);
        free(data);
        return status;
    }
    memcpy(all, mine, size);
    collect(w, s, watch, what, size, all, timeout_s, &missing);
    Loss loss;
    bool lost = missing.len && watch && watch_verdict(watch, 0, &loss);
    buf_append(&answer, missing.len ? "\0" : "\1", 1);
    if (lost)
        buf_printf(&answer, "lost rank %d while the ranks met: it %s", loss.rank, loss_text(loss.reason));
    else if (missing.len)
        buf_printf(&answer, "rank 0 waited %.0f s; of %d ranks these did not come: %s", clock_monotonic() - begin,
                   w->size, missing.data);
    else
        buf_append(&answer, all, total);
    status = store_set(s, given, answer.data, answer.len);
    if (missing.len) status = fail(E_PEER, "%s", answer.data + 1);
    buf_free(&missing);
    buf_free(&answer);
    return status;
}

/* ---- the interface ---- */

enum { MOST_ADDRESSES = 32 };

/* An Interface as it is stored. */
typedef struct {
    char name[16];
    uint8_t bytes[16], v6, prefix, loopback, none;
} Address;

typedef struct {
    Hash128 host;
    int32_t bad, count;                /* bad: this rank failed */
    Address addresses[MOST_ADDRESSES]; /* those that --iface allows */
} Offer;

static Interface interface_of(const Address *a)
{
    Interface x = {.v6 = a->v6, .prefix = a->prefix, .loopback = a->loopback};
    memcpy(x.name, a->name, sizeof x.name);
    memcpy(x.bytes, a->bytes, sizeof x.bytes);
    inet_ntop(x.v6 ? AF_INET6 : AF_INET, x.bytes, x.text, sizeof x.text);
    return x;
}

/* Index of the interface of the route to an address. */
static int towards(const char *address, const Offer *mine)
{
    Interface list[MOST_ADDRESSES];
    for (int i = 0; i < mine->count; i++) list[i] = interface_of(&mine->addresses[i]);
    return interface_towards(address, list, mine->count);
}

static bool same_address(const Address *a, const Address *b)
{
    return a->v6 == b->v6 && memcmp(a->bytes, b->bytes, 16) == 0;
}

static bool same_network(const Address *a, const Address *b)
{
    Interface x = {.v6 = a->v6, .prefix = a->prefix}, y = {.v6 = b->v6, .prefix = b->prefix};
    memcpy(x.bytes, a->bytes, sizeof x.bytes);
    memcpy(y.bytes, b->bytes, sizeof y.bytes);
    return interface_same_network(&x, &y);
}

static bool other_host(const Offer *a, const Offer *b) { return !hash128_equal(a->host, b->host); }

/* An address that two hosts have reaches neither: container bridges are the same on every host. */
static bool is_double(const Offer *offers, int size, const Offer *mine, const Address *x)
{
    for (int r = 0; r < size; r++) {
        if (!other_host(&offers[r], mine)) continue;
        for (int i = 0; i < offers[r].count; i++)
            if (same_address(&offers[r].addresses[i], x)) return true;
    }
    return false;
}

/* Number of ranks on other hosts that share a network with this interface. */
static int neighbours(const Offer *offers, int size, const Offer *mine, const Address *x)
{
    int n = 0;
    for (int r = 0; r < size; r++) {
        bool near = false;
        for (int i = 0; i < offers[r].count && other_host(&offers[r], mine); i++)
            near = near || same_network(&offers[r].addresses[i], x);
        n += near;
    }
    return n;
}

/* Index of the interface towards the others: the one whose network has most of them, among equals the one of the route
   to rank 0's host (as the launcher named it). Without a shared network: the one of the system's route. */
static int towards_others(const World *w, const Offer *offers, const Offer *mine)
{
    int best = -1, most = 0;
    int master = w->master[0] ? towards(w->master, mine) : -1;
    for (int i = 0; i < mine->count; i++) {
        const Address *x = &mine->addresses[i];
        if (x->loopback || is_double(offers, w->size, mine, x)) continue;
        int n = neighbours(offers, w->size, mine, x);
        if (n > most || (n == most && n > 0 && i == master)) {
            most = n;
            best = i;
        }
    }
    for (int r = 0; r < w->size && best < 0; r++)
        for (int i = 0; i < offers[r].count && best < 0 && other_host(&offers[r], mine); i++) {
            const Address *x = &offers[r].addresses[i];
            if (!x->loopback && !is_double(offers, w->size, &offers[r], x)) best = towards(interface_of(x).text, mine);
            if (best >= 0 && mine->addresses[best].loopback) best = -1;
        }
    return best;
}

static bool all_good(const Offer *offers, int size)
{
    for (int r = 0; r < size; r++)
        if (offers[r].bad) return false;
    return true;
}

/* Offers this rank's addresses, the likeliest first: one of loopback, in case all ranks are on one host; those without
   a carrier only if there are no others. */
static Status make_offer(const CommOptions *o, Offer *offer)
{
    Interface *list;
    int n;
    TRY(interfaces_list(&list, &n));
    Status status = OK;
    if (*o->interfaces) status = interfaces_filter(o->interfaces, list, &n);
    int loopbacks = 0, ways = 0;
    for (int i = 0; i < n; i++) ways += list[i].way < WAY_LOOPBACK;
    for (int i = 0; i < n && status == OK && offer->count < MOST_ADDRESSES; i++) {
        const Interface *x = &list[i];
        bool full = x->way < WAY_LOOPBACK && offer->count == MOST_ADDRESSES - 1; /* the last is loopback's */
        if (full || (x->way == WAY_NO_CARRIER && ways) || (x->loopback && loopbacks++)) continue;
        Address *a = &offer->addresses[offer->count++];
        *a = (Address){.v6 = (uint8_t)x->v6, .prefix = (uint8_t)x->prefix, .loopback = (uint8_t)x->loopback};
        memcpy(a->name, x->name, sizeof a->name);
        memcpy(a->bytes, x->bytes, sizeof a->bytes);
    }
    free(list);
    return status;
}

static Status no_way(const World *w, const CommOptions *o, const Offer *mine)
{
    Buf b = {0};
    for (int i = 0; i < mine->count; i++)
        buf_printf(&b, "%s%s (%s)%s", i ? ", " : "", mine->addresses[i].name, interface_of(&mine->addresses[i]).text,
                   mine->addresses[i].loopback ? ", loopback" : "");
    Status status =
        fail(E_USAGE,
             "rank %d: the ranks are on several hosts, and no network interface%s%s of this host leads to the "
             "others; it has %s",
             w->rank, *o->interfaces ? " that --iface allows" : "", "", b.len ? b.data : "none");
    buf_free(&b);
    return status;
}

static Status choose(const World *w, const CommOptions *o, const Offer *offers, PeerCard *card)
{
    const Offer *mine = &offers[w->rank];
    int best = -1;
    bool several = false;
    for (int r = 0; r < w->size; r++) {
        int same = 0;
        while (same < r && other_host(&offers[same], &offers[r])) same++;
        card->hosts += same == r;
        several = several || other_host(&offers[r], mine);
    }
    if (several) best = towards_others(w, offers, mine);
    for (int i = 0; i < mine->count && best < 0 && !several; i++)
        if (*o->interfaces || mine->addresses[i].loopback) best = i;
    if (best < 0 && !several && mine->count) best = 0; /* loopback is down */
    if (best < 0) return no_way(w, o, mine);
    snprintf(card->address, sizeof card->address, "%s", interface_of(&mine->addresses[best]).text);
    snprintf(card->interface, sizeof card->interface, "%s", mine->addresses[best].name);
    return OK;
}

/* ---- reachability ---- */

/* Reports failures, a line per pair of hosts, with the first pair of ranks of each. */
static Status check_reach(const World *w, const PeerCard *cards, const int32_t *errors) // (size, size)
{
    enum { MOST_LINES = 16 };
    Buf b = {0};
    int lines = 0, pairs = 0;
    for (int from = 0; from < w->size; from++)
        for (int to = 0; to < from; to++) {
            int32_t error = errors[(size_t)from * (size_t)w->size + (size_t)to];
            bool first = true;
            if (!error) continue;
            pairs++;
            for (int a = 0; a <= from && first; a++)
                for (int c = 0; c < a && (a < from || c < to) && first; c++)
                    first = !errors[(size_t)a * (size_t)w->size + (size_t)c] ||
                            !hash128_equal(cards[a].host, cards[from].host) ||
                            !hash128_equal(cards[c].host, cards[to].host);
            if (first && lines++ < MOST_LINES)
                buf_printf(&b, "\n  rank %d on %s (%s, %s) does not reach rank %d on %s (%s, %s): %s", from,
                           cards[from].name, cards[from].address, cards[from].interface, to, cards[to].name,
                           cards[to].address, cards[to].interface, strerror(error));
        }
    if (!pairs) return OK;
    if (lines > MOST_LINES) buf_printf(&b, "\n  and %d more pairs of hosts", lines - MOST_LINES);
    Status status =
        fail(E_PEER,
             "%d of %d pairs of ranks do not reach each other. Choose another network with --iface, or open "
             "the firewall between these hosts to TCP:%s",
             pairs, w->size * (w->size - 1) / 2, b.data);
    buf_free(&b);
    return status;
}

/* Sends an error of one rank to all, so that none waits for that rank. */
typedef struct {
    int32_t failed;
    char text[500];
    PeerCard card;
} Second;

static Status second_round(const World *w, Store *store, Status own, const char *said, const PeerCard *card,
                           PeerCard *cards, double timeout_s)
{
    Second mine = {.failed = own != OK, .card = *card}, *all = mem_array((size_t)w->size, sizeof *all);
    if (own != OK) snprintf(mine.text, sizeof mine.text, "%.499s", said);
    Status status = exchange(w, store, NULL, "card", &mine, sizeof mine, all, timeout_s);
    for (int r = 0; r < w->size && status == OK; r++) {
        cards[r] = all[r].card;
        if (!all[r].failed) continue;
        all[r].text[sizeof all[r].text - 1] = '\0';
        status = fail(E_USAGE, "rank %d on %s: %s", r, cards[r].name, all[r].text);
    }
    free(all);
    return status;
}

/* Later failures would overwrite the message. */
static void keep_message(char **said)
{
    free(*said);
    *said = mem_strdup(status_message());
}

static void say_choice(const World *w, const PeerCard *cards)
{
    const PeerCard *c = &cards[w->rank];
    if (w->rank != 0)
        log_debug("rank %d of %d on %s talks by %s (%s)", w->rank, w->size, c->name, c->interface, c->address);
    else if (c->hosts == 1)
        log_info("%d ranks on this host, which talk by %s (%s)", w->size, c->interface, c->address);
    else
        log_info("%d ranks on %d hosts; rank 0 on %s talks by %s (%s)", w->size, c->hosts, c->name, c->interface,
                 c->address);
}

Status peers_meet(const World *w, const CommOptions *o, Store *store, double timeout_s, Status ready, PeerCard **cards,
                  Watch **watch)
{
    Status status = OK, own = ready;
    char *said = mem_strdup(status_message()); /* of `ready` */
    size_t n = (size_t)w->size;
    PeerCard mine = {.process = getpid()};
    Offer offer, *offers = mem_array(n, sizeof *offers);
    int32_t *errors = mem_array(n, sizeof *errors), *all_errors = mem_array(n * n, sizeof *all_errors);
    *cards = mem_array(n, sizeof **cards);
    *watch = NULL;
    gethostname(mine.name, sizeof mine.name - 1);
    mine.host = host_identity(mine.name);
    hash128_random(&mine.nonce);
    offer = (Offer){.host = mine.host};
    if (own == OK) own = make_offer(o, &offer);
    if (own != ready) keep_message(&said);
    offer.bad = own != OK;
    TRY_DONE(exchange(w, store, NULL, "offer", &offer, sizeof offer, offers, timeout_s));
    if (all_good(offers, w->size)) {
        own = choose(w, o, offers, &mine);
        if (own == OK) own = watch_open(w, mine.address, o->peer_timeout_s, &mine.port, watch);
        if (own != OK) keep_message(&said);
    }
    TRY_DONE(second_round(w, store, own, said, &mine, *cards, timeout_s));
    say_choice(w, *cards);
    double end = clock_monotonic() + PREFLIGHT_S;
    watch_connect(*watch, *cards, CONNECT_S < timeout_s ? CONNECT_S : timeout_s, errors);
    TRY_DONE(exchange(w, store, *watch, "reach", errors, n * sizeof *errors, all_errors, end - clock_monotonic()));
    Loss loss; /* the first collective reports a rank that was lost since, by name */
    if (!watch_verdict(*watch, 0, &loss)) TRY_DONE(check_reach(w, *cards, all_errors));
done:
    if (status != OK) {
        watch_close(*watch);
        free(*cards);
        *watch = NULL;
        *cards = NULL;
    }
    free(said);
    free(offers);
    free(errors);
    free(all_errors);
    return status;
}
