/* Finds the outcome of a start: the cause of its end as a message and an exit code. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults/excluded.h"
#include "launch/launch_internal.h"

bool outcome_is_failure(int code) { return code != 0 && code != 75 && code != 77 && code != 99 && code != 130; }

static const char *code_text(int code)
{
#define X(name, value, text)                                                                                           \
    if (code == (value)) return text;
    STATUS_LIST(X)
#undef X
    return code == 99 ? "stopped, to be put in the queue again" : code == 130 ? "interrupted" : "failed";
}

/* The first rank whose end is `wanted`; −1: none. */
static int first_rank(const Fleet *f, bool (*wanted)(const Rank *r))
{
    int best = -1;
    for (int i = 0; i < f->n_ranks; i++)
        if (f->ranks[i].ended && wanted(&f->ranks[i]) && (best < 0 || f->ranks[i].when < f->ranks[best].when)) best = i;
    return best;
}

static bool failed(const Rank *r) { return !r->signal && outcome_is_failure(r->code); }
static bool was_killed(const Rank *r) { return r->signal != 0; }
static bool lost_peer(const Rank *r) { return !r->signal && r->code == 77; }
static bool interrupted(const Rank *r) { return !r->signal && r->code == 130; }
static bool stopped_well(const Rank *r) { return !r->signal && (r->code == 75 || r->code == 99); }

/* By the launcher. */
static bool killed_late(const Launch *l, const Rank *r)
{
    return l->killed && r->when > l->killed_at && r->signal == SIGKILL;
}

static void describe_end(const Launch *l, int rank, Outcome *o)
{
    const Rank *r = &l->fleet.ranks[rank];
    const char *host = fleet_host_of(&l->fleet, rank)->site->name;
    char *text = o->what;
    size_t size = sizeof o->what;
    o->rank = rank;
    snprintf(o->host, sizeof o->host, "%s", host);
    o->code = r->memory_limit ? status_exit_code(E_MEMORY) : r->signal ? 77 : r->code;
    if (r->memory_limit) {
        char limit[64] = "the host's memory is exhausted";
        if (r->memory_limit > 1)
            snprintf(limit, sizeof limit, "the limit there is %.0f MiB", (double)r->memory_limit / (1 << 20));
        snprintf(
            text, size,
            "rank %d on %s was killed by the kernel for memory: %s. Ask the scheduler for more (mem= of PBS, --mem "
            "of Slurm; `cairn plan --pbs` or --slurm prints how much), or give --memory-budget",
            rank, host, limit);
    } else if (r->signal && rank_is_frozen(r)) {
        snprintf(text, size, "rank %d on %s was frozen (silent for %g s), and was killed", rank, host, l->peer_timeout);
    } else if (r->signal) {
        snprintf(text, size, "rank %d on %s was killed by %s%s", rank, host, signals_name(r->signal),
                 killed_late(l, r) ? ", having not ended in time" : "");
    } else
        snprintf(text, size, "rank %d on %s ended with %d (%s)", rank, host, r->code, code_text(r->code));
}

/* Whether a rank of host `a` reported one of host `b` as silent that reported a loss itself, and so is not frozen. */
static bool misses(const Fleet *f, int a, int b)
{
    const Remote *r = &f->remotes[b];
    for (int i = r->first_rank; i < r->first_rank + r->n_ranks; i++)
        if (f->silent[a * f->n_ranks + i] && f->ranks[i].aware) return true;
    return false;
}

/* Marks the hosts that are cut off: their ranks and those of the side of the launcher's host, else of rank 0's, report
   each other as silent. */
static void find_cut_off(const Fleet *f, bool *cut_off) // (n_remotes)
{
    int first = 0;
    while (f->remotes[first].n_ranks == 0) first++;
    for (int i = 0; i < f->n_remotes; i++)
        if (f->remotes[i].site->here && f->remotes[i].n_ranks > 0) first = i;
    for (int i = 0; i < f->n_remotes; i++)
        for (int k = 0; i != first && k < f->n_remotes; k++)
            if (k == first || (k < i && !cut_off[k])) cut_off[i] = cut_off[i] || (misses(f, i, k) && misses(f, k, i));
}

static void describe_lost_host(const Remote *r, const char *why, Outcome *o)
{
    char last[32] = "";
    o->code = 77;
    o->rank = -1;
    snprintf(o->host, sizeof o->host, "%s", r->site->name);
    if (r->n_ranks > 1) snprintf(last, sizeof last, "s %d to", r->first_rank);
    snprintf(o->what, sizeof o->what, "host %s with rank%s %d was lost: %.500s", r->site->name, last,
             r->first_rank + r->n_ranks - 1, why);
}

/* Marks the hosts that are cut off as lost. One of them is the outcome: of a killed rank its host alone. */
static void find_lost_hosts(Launch *l, int killed, Outcome *o)
{
    const Fleet *f = &l->fleet;
    bool *cut_off = mem_array((size_t)f->n_remotes, sizeof *cut_off), told = false;
    find_cut_off(f, cut_off);
    for (int i = 0; i < f->n_remotes; i++) {
        const Remote *r = &f->remotes[i];
        if (!cut_off[i]) continue;
        r->site->lost_in = l->restarts + 1;
        if (told || (killed >= 0 && fleet_host_of(f, killed) != r)) continue;
        describe_lost_host(r, "the ranks of other hosts did not reach it", o);
        told = true;
    }
    free(cut_off);
}

static int rank_at(const Launch *l, const ExcludedPlace *place)
{
    for (int k = 0; k < l->fleet.n_remotes; k++) {
        const Remote *r = &l->fleet.remotes[k];
        if (strcmp(r->hostname, place->host) == 0 && place->local_rank >= 0 && place->local_rank < r->n_ranks)
            return r->first_rank + (int)place->local_rank;
    }
    return -1;
}

/* The rank at the place that --audit excluded last; −1: none is among the ranks. */
static int excluded_rank(const Launch *l)
{
    ExcludedPlace *places = NULL;
    int n = 0, found = -1;
    if (l->output_dir && excluded_read(l->output_dir, &places, &n) != OK) log_debug("%s", status_message());
    for (int i = n - 1; i >= 0 && found < 0; i--) found = rank_at(l, &places[i]);
    free(places);
    return found;
}

/* All ranks end alike where --audit found damaged memory of one, or weights apart of several. */
static void describe_damage(const Launch *l, Outcome *o)
{
    ExcludedPlace *places = NULL;
    int n = 0;
    if (excluded_damaged(l->output_dir, &places, &n) != OK) log_debug("%s", status_message());
    o->rank = n == 1 ? rank_at(l, &places[0]) : -1;
    free(places);
    const char *host = o->rank >= 0 ? fleet_host_of(&l->fleet, o->rank)->site->name : "";
    snprintf(o->host, sizeof o->host, "%s", host);
    if (o->rank >= 0)
        snprintf(o->what, sizeof o->what, "rank %d on %s: --audit found damaged memory, see %s/%s", o->rank, host,
                 l->output_dir, EXCLUDED_LINES);
    else
        snprintf(o->what, sizeof o->what, "--audit found damaged memory, but not of which rank: see %s/%s",
                 l->output_dir, EXCLUDED_LINES);
}

/* In order of precedence: a failed rank, a lost host or killed rank, lost peers, a stop. */
void outcome_find(Launch *l, Outcome *o)
{
    const Fleet *f = &l->fleet;
    static bool (*const kinds[])(const Rank *r) = {failed, was_killed, lost_peer, interrupted, stopped_well};
    bool damaged = false;
    *o = (Outcome){.rank = -1};
    for (int i = 0; i < f->n_ranks; i++) { /* stopped before it handled signals */
        Rank *r = &f->ranks[i];
        if (!l->stop_signal || r->signal != l->stop_signal) continue;
        r->signal = 0;
        r->code = status_exit_code(E_STOPPED);
    }
    for (int i = 0; i < f->n_remotes; i++) {
        const Remote *r = &f->remotes[i];
        if (!r->lost || r->n_ranks == 0) continue;
        r->site->lost_in = l->restarts + 1;
        if (!o->code) describe_lost_host(r, r->complaint, o);
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int rank = first_rank(f, kinds[k]);
        if (rank < 0 || (o->code && k > 0)) continue;
        int excluded = kinds[k] == lost_peer ? excluded_rank(l) : -1;
        if (excluded >= 0) rank = excluded;
        describe_end(l, rank, o);
        if (excluded >= 0)
            snprintf(o->what, sizeof o->what, "rank %d on %s is excluded by --audit: see %s/%s", rank, o->host,
                     l->output_dir, EXCLUDED_REPORT);
        damaged = o->code == status_exit_code(E_DIFFERS) && l->output_dir; /* not `cairn verify` */
        if (damaged) describe_damage(l, o);
        if (o->rank >= 0) rank = o->rank;
        if (k < 2) output_last(f->output, rank, fleet_host_of(f, rank)->site->name);
        if (kinds[k] == lost_peer || (kinds[k] == was_killed && killed_late(l, &f->ranks[rank])))
            find_lost_hosts(l, kinds[k] == lost_peer ? -1 : rank, o);
    }
    if (o->code == 77 && l->stop_signal && !l->killed) o->code = status_exit_code(E_STOPPED);
    if (l->interrupts > 1) o->code = 130;
    o->again = (o->code == 77 || damaged) && !l->stop_signal && !*f->failure;
}

/* Killed or frozen by itself, before it noticed another's loss. */
static bool lost_unaware(const Launch *l, int rank)
{
    const Rank *r = &l->fleet.ranks[rank];
    bool ended_by_us = killed_late(l, r) || (l->terminated && r->signal == SIGTERM);
    return r->ended && r->signal && (rank_is_frozen(r) || !ended_by_us) && !r->aware;
}

bool outcome_also(const Launch *l, const Outcome *o, int *rank, Outcome *also)
{
    const Fleet *f = &l->fleet;
    bool killed = o->code == 77 && o->rank >= 0 && f->ranks[o->rank].signal;
    *also = (Outcome){0};
    for (++*rank; killed && *rank < f->n_ranks; ++*rank) {
        if (*rank == o->rank || !lost_unaware(l, *rank)) continue;
        describe_end(l, *rank, also);
        return true;
    }
    return false;
}

void outcome_name_all(const Launch *l, Outcome *o)
{
    Outcome also;
    for (int rank = -1; outcome_also(l, o, &rank, &also);) {
        size_t used = strlen(o->what);
        snprintf(o->what + used, sizeof o->what - used, "; %s", also.what);
    }
}
