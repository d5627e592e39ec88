#include "comm/meet/peers.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/host.h"
#include "base/test_switch.h"
#include "comm/meet/interfaces.h"
#include "comm/meet/report.h"

#define CONNECT_S   22.0 /* to connect all pairs of ranks */
#define PREFLIGHT_S 28.0 /* to connect them, and to exchange the errors */

/* Equal for processes that share kernel, host name and network namespace, and for no others. */
static Hash128 host_identity(const char *name)
{
    Buf b = {0};
    struct stat st;
    if (file_read("/proc/sys/kernel/random/boot_id", 4096, &b) != OK) buf_free(&b);
    buf_printf(&b, "|%s|", name);
    if (stat("/proc/self/ns/net", &st) == 0) buf_printf(&b, "%llu", (unsigned long long)st.st_ino);
    Hash128 h = siphash(siphash_key("host"), b.data, b.len);
    buf_free(&b);
    return h;
}

/* ---- the interface ---- */

enum { MOST_ADDRESSES = 32 };

typedef struct {
    Hash128 host;
    int32_t failed, count;
    Interface addresses[MOST_ADDRESSES]; /* those that --iface allows */
} Offer;

static bool other_host(const Offer *a, const Offer *b) { return !hash128_equal(a->host, b->host); }

/* Number of ranks on other hosts with an address that is the `same` as x, or of the same network. */
static int count_ranks(const Offer *offers, int size, const Offer *mine, const Interface *x,
                       bool (*same)(const Interface *a, const Interface *b))
{
    int n = 0;
    for (int r = 0; r < size; r++) {
        bool found = false;
        for (int i = 0; i < offers[r].count && other_host(&offers[r], mine); i++)
            found = found || same(&offers[r].addresses[i], x);
        n += found;
    }
    return n;
}

/* An address that two hosts have reaches neither: container bridges are the same on every host. */
static bool is_on_two_hosts(const Offer *offers, int size, const Offer *mine, const Interface *x)
{
    return count_ranks(offers, size, mine, x, interface_same_address) > 0;
}

/* Index of the interface whose network has most of the other hosts' ranks; on a tie the interface of the route to
   `master`. Without a shared network: the interface of the system's route to another host. */
static int interface_to_others(const World *w, const Offer *offers, const Offer *mine)
{
    int best = -1, most = 0;
    int master = w->master[0] ? interface_towards(w->master, mine->addresses, mine->count) : -1;
    char text[48];
    for (int i = 0; i < mine->count; i++) {
        const Interface *x = &mine->addresses[i];
        if (x->way == WAY_LOOPBACK || is_on_two_hosts(offers, w->size, mine, x)) continue;
        int n = count_ranks(offers, w->size, mine, x, interface_same_network);
        if (n > most || (n == most && n > 0 && i == master)) {
            most = n;
            best = i;
        }
    }
    for (int r = 0; r < w->size && best < 0; r++)
        for (int i = 0; i < offers[r].count && best < 0 && other_host(&offers[r], mine); i++) {
            const Interface *x = &offers[r].addresses[i];
            if (x->way != WAY_LOOPBACK && !is_on_two_hosts(offers, w->size, &offers[r], x))
                best = interface_towards(interface_text(x, text), mine->addresses, mine->count);
            if (best >= 0 && mine->addresses[best].way == WAY_LOOPBACK) best = -1;
        }
    return best;
}

static bool all_good(const Offer *offers, int size)
{
    for (int r = 0; r < size; r++)
        if (offers[r].failed) return false;
    return true;
}

/* Lists this rank's addresses, the likeliest first. One address of loopback serves if all ranks are on one host.
   Interfaces without a carrier count only if there are no others. */
static Status make_offer(const char *interfaces, Offer *offer)
{
    Interface *list;
    int n;
    TRY(interfaces_list(&list, &n));
    Status status = OK;
    if (*interfaces) status = interfaces_filter(interfaces, list, &n);
    int loopbacks = 0, ways = 0;
    for (int i = 0; i < n; i++) ways += list[i].way < WAY_LOOPBACK;
    for (int i = 0; i < n && status == OK && offer->count < MOST_ADDRESSES; i++) {
        const Interface *x = &list[i];
        bool full = x->way < WAY_LOOPBACK && offer->count == MOST_ADDRESSES - 1; /* the last is loopback's */
        if (full || (x->way == WAY_NO_CARRIER && ways) || (x->way == WAY_LOOPBACK && loopbacks++)) continue;
        offer->addresses[offer->count++] = *x;
    }
    free(list);
    return status;
}

static Status fail_no_interface(const World *w, const char *interfaces, const Offer *mine)
{
    Buf b = {0};
    char text[48];
    for (int i = 0; i < mine->count; i++)
        buf_printf(&b, "%s%s (%s)%s", i ? ", " : "", mine->addresses[i].name, interface_text(&mine->addresses[i], text),
                   mine->addresses[i].way == WAY_LOOPBACK ? ", loopback" : "");
    Status status =
        fail(E_USAGE,
             "rank %d: the ranks are on several hosts, and no network interface%s of this host leads to the "
             "others; it has %s",
             w->rank, *interfaces ? " that --iface allows" : "", b.len ? b.data : "none");
    buf_free(&b);
    return status;
}

static Status choose_interface(const World *w, const char *interfaces, const Offer *offers, PeerCard *card)
{
    const Offer *mine = &offers[w->rank];
    int best = -1;
    bool several = false;
    for (int r = 0; r < w->size; r++) several = several || other_host(&offers[r], mine);
    if (several) best = interface_to_others(w, offers, mine);
    for (int i = 0; i < mine->count && best < 0 && !several; i++)
        if (*interfaces || mine->addresses[i].way == WAY_LOOPBACK) best = i;
    if (best < 0 && !several && mine->count) best = 0; /* loopback is down */
    if (best < 0) return fail_no_interface(w, interfaces, mine);
    interface_text(&mine->addresses[best], card->address);
    snprintf(card->interface, sizeof card->interface, "%s", mine->addresses[best].name);
    return OK;
}

/* ---- reachability ---- */

/* Reports the pairs that failed, one line per pair of hosts, with the first pair of ranks of each. */
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

/* Names those pairs of which this rank is one to the launcher, which can start again without one of their hosts. */
static void report_unreached(const World *w, const int32_t *errors)
{
    size_t n = (size_t)w->size, me = (size_t)w->rank;
    for (size_t r = 0; r < n; r++) /* one that the other alone has missed may have been stopped */
        if (errors[me * n + r]) report_to_agent(REPORT_SILENT, (int)r, false);
}

/* A rank's card, or the error that keeps it from joining. */
typedef struct {
    int32_t failed;
    char text[500];
    PeerCard card;
} PeersAnswer;

/* Keeps the message of the first failure. */
static void answer_keep(PeersAnswer *a, Status status)
{
    if (status == OK || a->failed) return;
    a->failed = true;
    snprintf(a->text, sizeof a->text, "%.499s", status_message());
}

static Status exchange_cards(const World *w, Rendezvous *rendezvous, const PeersAnswer *mine, PeerCard *cards,
                             double timeout_s)
{
    PeersAnswer *all = mem_array((size_t)w->size, sizeof *all);
    Status status = rendezvous_gather(rendezvous, mine, sizeof *mine, all, timeout_s, NULL);
    for (int r = 0; r < w->size && status == OK; r++) {
        cards[r] = all[r].card;
        if (!all[r].failed) continue;
        all[r].text[sizeof all[r].text - 1] = '\0';
        status = fail(E_USAGE, "rank %d on %s: %s", r, cards[r].name, all[r].text);
    }
    free(all);
    return status;
}

int peers_first_of_host(const PeerCard *cards, int rank)
{
    int first = 0;
    while (!hash128_equal(cards[first].host, cards[rank].host)) first++;
    return first;
}

static void log_choice(const World *w, const PeerCard *cards)
{
    const PeerCard *c = &cards[w->rank];
    int hosts = 0;
    for (int r = 0; r < w->size; r++) hosts += peers_first_of_host(cards, r) == r;
    if (w->rank != 0)
        log_debug("rank %d of %d on %s talks by %s (%s)", w->rank, w->size, c->name, c->interface, c->address);
    else if (hosts == 1)
        log_info("%d ranks on this host (by the variables of %s), which talk by %s (%s)", w->size, w->source,
                 c->interface, c->address);
    else
        log_info("%d ranks on %d hosts (by the variables of %s); rank 0 on %s talks by %s (%s)", w->size, hosts,
                 w->source, c->name, c->interface, c->address);
}

Status peers_meet(const World *w, const char *interfaces, double peer_timeout_s, Rendezvous *rendezvous,
                  double timeout_s, Status ready, PeerCard **cards, Watch **watch)
{
    Status status = OK;
    size_t n = (size_t)w->size;
    PeersAnswer mine = {0};
    PeerCard *card = &mine.card;
    Offer offer = {0}, *offers = mem_array(n, sizeof *offers);
    int32_t *errors = mem_array(n, sizeof *errors), *all_errors = mem_array(n * n, sizeof *all_errors);
    answer_keep(&mine, ready);
    *cards = mem_array(n, sizeof **cards);
    *watch = NULL;
    host_name(card->name, sizeof card->name);
    card->host = offer.host = host_identity(card->name);
    hash128_random(&card->nonce);
    if (!mine.failed) answer_keep(&mine, make_offer(interfaces, &offer));
    offer.failed = mine.failed;
    TRY_DONE(rendezvous_gather(rendezvous, &offer, sizeof offer, offers, timeout_s, NULL));
    if (all_good(offers, w->size)) {
        answer_keep(&mine, choose_interface(w, interfaces, offers, card));
        if (!mine.failed)
            answer_keep(&mine, watch_open(w->rank, w->size, card->address, peer_timeout_s, &card->port, watch));
    }
    TRY_DONE(exchange_cards(w, rendezvous, &mine, *cards, timeout_s));
    log_choice(w, *cards);
    double end = clock_monotonic() + PREFLIGHT_S, rest;
    double connect_s = test_seconds("CONNECT", CONNECT_S);
    TRY_DONE(watch_connect(*watch, *cards, connect_s < timeout_s ? connect_s : timeout_s, errors));
    rest = end - clock_monotonic();
    if (rest < PREFLIGHT_S - CONNECT_S) rest = PREFLIGHT_S - CONNECT_S; /* it was suspended */
    TRY_DONE(rendezvous_gather(rendezvous, errors, n * sizeof *errors, all_errors, rest, *watch));
    Loss loss; /* the first collective reports a rank that was lost since, by name */
    if (watch_verdict(*watch, 0, &loss)) goto done;
    status = check_reach(w, *cards, all_errors);
    if (status != OK) report_unreached(w, all_errors);
done:
    if (status != OK) {
        watch_close(*watch);
        free(*cards);
        *watch = NULL;
        *cards = NULL;
    }
    MEM_FREE(offers, errors, all_errors);
    return status;
}
