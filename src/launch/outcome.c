/* Describes the outcome of a start. */

#include "faults/excluded.h"
#include "launch/launch_internal.h"

static const char *code_text(int code)
{
#define X(name, value, text)                                                                                           \
    if (code == (value)) return text;
    STATUS_LIST(X)
#undef X
    return code == 99 ? "stopped, to be put in the queue again" : code == 130 ? "interrupted" : "failed";
}

static void describe_end(const Launch *l, int rank, Outcome *o)
{
    const Rank *r = &l->state.ranks[rank];
    const char *host = fleet_name_of(&l->fleet, rank);
    char *text = o->what;
    size_t size = sizeof o->what;
    o->rank = rank;
    o->code = r->memory_limit ? status_exit_code(E_MEMORY) : r->signal ? 77 : r->code;
    snprintf(o->host, sizeof o->host, "%s", host);
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
                 rank_killed_late(&l->state, r) ? ", having not ended in time" : "");
    } else if (r->code == 77 && r->silent_at < INFINITY) {
        snprintf(text, size, "rank %d on %s was silent for %g s, and went on: it was frozen, or out of reach", rank,
                 host, l->peer_timeout);
    } else
        snprintf(text, size, "rank %d on %s ended with %d (%s)", rank, host, r->code, code_text(r->code));
}

static void describe_lost_host(const Launch *l, int host, const char *why, Outcome *o)
{
    char last[32] = "";
    const Host *h = &l->state.hosts[host];
    if (h->n_ranks > 1) snprintf(last, sizeof last, "s %d to", h->first_rank);
    snprintf(o->what, sizeof o->what, "host %s with rank%s %d was lost: %.500s", o->host, last,
             h->first_rank + h->n_ranks - 1, why);
}

static int rank_at(const Launch *l, const ExcludedPlace *place)
{
    for (int k = 0; k < l->fleet.n_remotes; k++) {
        const Host *h = &l->state.hosts[k];
        if (strcmp(l->fleet.remotes[k].hostname, place->host) == 0 && place->local_rank >= 0 &&
            place->local_rank < h->n_ranks)
            return h->first_rank + (int)place->local_rank;
    }
    return -1;
}

/* The rank at the place that --audit excluded last, or found `damaged`; −1: none is among the ranks. All ranks end
   alike where it found damaged memory of one, or weights apart of several: then −1. */
static int audited_rank(const Launch *l, bool damaged)
{
    ExcludedPlace *places = NULL;
    int n = 0, found = -1;
    if (excluded_read(l->output_dir, damaged, &places, &n) != OK) log_debug("%s", status_message());
    for (int i = n - 1; i >= 0 && found < 0 && !(damaged && n > 1); i--) found = rank_at(l, &places[i]);
    free(places);
    return found;
}

static void describe(const Launch *l, const Verdict *v, Outcome *o)
{
    char *text = o->what;
    size_t size = sizeof o->what;
    switch (v->cause) {
    case CAUSE_NONE:
        break;
    case CAUSE_RANK:
        describe_end(l, v->rank, o);
        break;
    case CAUSE_EXCLUDED:
        snprintf(text, size, "rank %d on %s is excluded by --audit: see %s/%s", v->rank, o->host, l->output_dir,
                 EXCLUDED_REPORT);
        break;
    case CAUSE_DAMAGE:
        if (v->rank >= 0)
            snprintf(text, size, "rank %d on %s: --audit found damaged memory, see %s/%s", v->rank, o->host,
                     l->output_dir, EXCLUDED_LINES);
        else
            snprintf(text, size, "--audit found damaged memory, but not of which rank: see %s/%s", l->output_dir,
                     EXCLUDED_LINES);
        break;
    case CAUSE_HOST:
        describe_lost_host(l, v->host, l->fleet.remotes[v->host].complaint, o);
        break;
    case CAUSE_CUT_OFF:
        describe_lost_host(l, v->host, "the ranks of other hosts did not reach it", o);
        break;
    case CAUSE_NO_START:
        snprintf(text, size, "%s", status_message());
        break;
    }
}

void outcome_find(Launch *l, Outcome *o)
{
    const Verdict *v = &l->state.verdict;
    if (l->state.phase == PHASE_ENDED) {
        LaunchEvent e = {.kind = LAUNCH_AUDITED, .rank = -1, .about = -1, .folder = l->output_dir};
        if (e.folder) e.rank = audited_rank(l, false);
        if (e.folder) e.about = audited_rank(l, true);
        fleet_tell(&l->fleet, &e);
    }
    *o = (Outcome){0};
    snprintf(o->host, sizeof o->host, "%s", v->host >= 0 ? l->sites.list[v->host].name : "");
    describe(l, v, o);
    o->code = v->code;
    o->rank = v->rank;
    if (v->cause != CAUSE_RANK && v->cause != CAUSE_DAMAGE) return;
    int rank = v->rank;
    if (rank >= 0 && (l->state.ranks[rank].signal || launch_is_failure(l->state.ranks[rank].code)))
        output_last(l->fleet.output, rank, fleet_name_of(&l->fleet, rank));
}

bool outcome_also(const Launch *l, int *rank, Outcome *also)
{
    *also = (Outcome){0};
    *rank = launch_lost_beside(&l->state, *rank);
    if (*rank >= 0) describe_end(l, *rank, also);
    return *rank >= 0;
}

void outcome_name_all(const Launch *l, Outcome *o)
{
    Outcome also;
    for (int rank = -1; outcome_also(l, &rank, &also);) {
        size_t used = strlen(o->what);
        snprintf(o->what + used, sizeof o->what - used, "; %s", also.what);
    }
}
