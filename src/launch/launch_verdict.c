/* Whose fault the end of a start was, and whether, when and where the next one begins. */
#include <signal.h>

#include "base/mem.h"
#include "base/status.h"
#include "launch/launch_state.h"

#define FIRST_PAUSE_S   0.5
#define LONGEST_PAUSE_S 60.0

bool launch_is_failure(int code) { return code != 0 && code != 75 && code != 77 && code != 99 && code != 130; }

bool rank_killed_late(const LaunchState *s, const Rank *r) { return r->signal == SIGKILL && r->when > s->killed_at; }

static bool failed(const Rank *r) { return !r->signal && launch_is_failure(r->code); }
static bool was_killed(const Rank *r) { return r->signal != 0; }
static bool lost_peer(const Rank *r) { return !r->signal && r->code == 77; }
static bool went_on(const Rank *r) { return lost_peer(r) && r->silent_at < INFINITY; } /* it was silent to others */
static bool interrupted(const Rank *r) { return !r->signal && r->code == 130; }
static bool stopped_well(const Rank *r) { return !r->signal && (r->code == 75 || r->code == 99); }

/* The first rank whose end is `wanted`; -1: none. */
static int first_rank(const LaunchState *s, bool (*wanted)(const Rank *r))
{
    int best = -1;
    for (int i = 0; i < s->n_ranks; i++)
        if (s->ranks[i].ended && wanted(&s->ranks[i]) && (best < 0 || s->ranks[i].when < s->ranks[best].when)) best = i;
    return best;
}

/* ---- hosts that are cut off ---- */

static bool finds_silent(const LaunchState *s, int rank, int other)
{
    return s->silent[(size_t)rank * (size_t)s->n_ranks + (size_t)other];
}

/* A frozen rank reports nothing, and one that continues finds that it was reported itself, or that others have ended.
 */
static bool never_froze(const LaunchState *s, int rank) { return s->ranks[rank].aware && !finds_silent(s, rank, rank); }

/* A rank that reported another as silent, though neither was frozen: one is out of the other's reach. */
static bool is_far(const LaunchState *s, int rank)
{
    for (int i = 0; i < s->n_ranks && never_froze(s, rank); i++)
        if (i != rank && never_froze(s, i) && finds_silent(s, rank, i)) return true;
    return false;
}

/* Whether a rank of host `a` reported one of host `b` as silent that is not frozen. */
static bool misses(const LaunchState *s, int a, int b)
{
    const Host *of = &s->hosts[a], *in = &s->hosts[b];
    for (int i = of->first_rank; i < of->first_rank + of->n_ranks; i++)
        for (int k = in->first_rank; k < in->first_rank + in->n_ranks; k++)
            if (finds_silent(s, i, k) && is_far(s, k)) return true;
    return false;
}
static bool are_apart(const LaunchState *s, int a, int b) { return misses(s, a, b) || misses(s, b, a); }

/* A host of the side that goes on: the launcher's own, else one of the larger side, or rank 0's. */
static int reference_host(const LaunchState *s)
{
    int first = launch_host_of(s, 0), other = -1, apart = 0;
    for (int h = 0; h < s->n_hosts; h++)
        if (s->sites[h].here && s->hosts[h].n_ranks > 0) return h;
    for (int h = 0; h < s->n_hosts; h++) {
        if (h == first || !are_apart(s, h, first)) continue;
        apart += s->hosts[h].n_ranks;
        if (other < 0) other = h;
    }
    return 2 * apart > s->n_ranks ? other : first;
}

/* Marks the hosts that are cut off: those that are apart from the reference, or from another one that is not cut off.
 */
static void find_cut_off(const LaunchState *s, bool *cut_off) // (n_hosts)
{
    int first = reference_host(s);
    for (int h = 0; h < s->n_hosts; h++) cut_off[h] = h != first && are_apart(s, h, first);
    for (int h = 0; h < s->n_hosts; h++)
        for (int k = 0; k < h && h != first; k++)
            if (k != first && !cut_off[k]) cut_off[h] = cut_off[h] || are_apart(s, h, k);
}

/* Hosts that are cut off take no part in the next start. One of them is the cause: of a killed rank its host alone. */
static void blame_cut_off(LaunchState *s, int killed)
{
    bool *cut_off = mem_array((size_t)s->n_hosts, sizeof *cut_off);
    Verdict *v = &s->verdict;
    find_cut_off(s, cut_off);
    for (int h = 0; h < s->n_hosts; h++) {
        if (!cut_off[h]) continue;
        if (s->met || s->restarts > 0) s->sites[h].lost_in = s->restarts + 1; /* only a later start leaves hosts out */
        if (v->cause != CAUSE_CUT_OFF && (killed < 0 || launch_host_of(s, killed) == h))
            *v = (Verdict){CAUSE_CUT_OFF, status_exit_code(E_PEER), -1, h, false};
    }
    free(cut_off);
}

/* ---- the verdict ---- */

static void blame_rank(LaunchState *s, int rank)
{
    const Rank *r = &s->ranks[rank];
    int code = r->memory_limit ? status_exit_code(E_MEMORY) : r->signal ? status_exit_code(E_PEER) : r->code;
    s->verdict = (Verdict){CAUSE_RANK, code, rank, launch_host_of(s, rank), false};
}

/* Hosts whose agents are lost. */
static void blame_hosts(LaunchState *s)
{
    for (int h = s->n_hosts - 1; h >= 0; h--) {
        if (!s->hosts[h].lost || s->hosts[h].n_ranks == 0) continue;
        s->sites[h].lost_in = s->restarts + 1;
        s->verdict = (Verdict){CAUSE_HOST, status_exit_code(E_PEER), -1, h, false};
    }
}

/* In order of precedence: a failed rank, a lost host or killed rank, a rank that was silent and went on, lost
   peers, a stop. Where a rank had stopped before any other was lost, that is the cause: a signal ended it while the
   ranks met, and the others lost it. */
void launch_judge(LaunchState *s, const LaunchEvent *audited)
{
    static bool (*const kinds[])(const Rank *r) = {failed, was_killed, went_on, lost_peer, interrupted, stopped_well};
    Verdict *v = &s->verdict;
    for (int i = 0; i < s->n_ranks; i++) { /* stopped before it handled signals */
        Rank *r = &s->ranks[i];
        if (!s->stop_signal || r->signal != s->stop_signal) continue;
        r->signal = 0;
        r->code = status_exit_code(E_STOPPED);
    }
    blame_hosts(s);
    int stopped = first_rank(s, stopped_well);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && (v->cause == CAUSE_NONE || k == 0); k++) {
        int rank = first_rank(s, kinds[k]);
        if (rank < 0 || (kinds[k] == lost_peer && stopped >= 0 && s->ranks[stopped].when < s->lost_at)) continue;
        blame_rank(s, rank);
        bool lost = lost_peer(&s->ranks[rank]);
        if (lost && audited->rank >= 0) {
            *v = (Verdict){CAUSE_EXCLUDED, v->code, audited->rank, launch_host_of(s, audited->rank), false};
        } else if (v->code == status_exit_code(E_DIFFERS) && audited->folder) { /* not `cairn verify` */
            int damaged = audited->about;
            *v = (Verdict){CAUSE_DAMAGE, v->code, damaged, damaged >= 0 ? launch_host_of(s, damaged) : -1, false};
        }
        if (lost) blame_cut_off(s, -1);
        if (kinds[k] == was_killed && rank_killed_late(s, &s->ranks[rank])) blame_cut_off(s, rank);
    }
    bool damage = v->cause == CAUSE_DAMAGE;
    if (v->code == 77 && s->stop_signal && s->killed_at == INFINITY) v->code = status_exit_code(E_STOPPED);
    if (s->interrupts > 1) v->code = 130;
    v->again = (v->code == 77 || damage) && !s->stop_signal && !s->failed;
    s->phase = PHASE_OVER;
}

int launch_lost_beside(const LaunchState *s, int rank)
{
    const Verdict *v = &s->verdict;
    bool killed = v->code == 77 && v->rank >= 0 && s->ranks[v->rank].signal;
    for (rank++; killed && rank < s->n_ranks; rank++) {
        const Rank *r = &s->ranks[rank];
        bool by_us = rank_killed_late(s, r) || (s->terminated && r->signal == SIGTERM);
        if (rank != v->rank && r->ended && r->signal && !r->aware && (rank_is_frozen(r) || !by_us)) return rank;
    }
    return -1;
}

/* ---- the next start ---- */

/* Opens the hosts that are not excluded; of these, those that were just lost only with `lost`. Returns whether they
   have enough slots for --ranks. */
static bool open_hosts(LaunchState *s, bool lost, int *n)
{
    int64_t room = 0;
    *n = 0;
    for (int h = 0; h < s->n_hosts; h++) {
        Site *site = &s->sites[h];
        site->open = !site->excluded && (lost || site->lost_in < s->restarts);
        *n += site->open;
        if (site->open) room += site->limit;
    }
    return *n > 0 && room >= s->wanted;
}

/* Whether there are hosts for the next start. It leaves a host that was just lost out once, unless the others have too
   few slots for --ranks. Without the excluded ones they always have enough, or there is none. */
static bool choose_hosts(LaunchState *s)
{
    int n;
    if (open_hosts(s, false, &n) || open_hosts(s, true, &n)) return true;
    for (int h = 0; h < s->n_hosts; h++)
        if (s->sites[h].excluded) return false;
    return n > 0;
}

void launch_next(LaunchState *s, double trained, double now)
{
    s->phase = PHASE_DONE;
    if (!s->verdict.again || s->restarts >= s->max_restarts) return;
    s->restarts++;
    s->fruitless = trained > s->trained ? 0 : s->fruitless + 1;
    s->trained = trained;
    if (!choose_hosts(s)) return;
    s->phase = s->stop_signal ? PHASE_DONE : PHASE_PAUSE;
    s->pause_until = s->wake = now + fmin(FIRST_PAUSE_S * exp2(s->fruitless), LONGEST_PAUSE_S);
}
