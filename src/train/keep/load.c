#include "train/keep/resume.h"

typedef struct {
    const char *dir;
    const Session *session;
    CheckpointReader *reader; /* NULL: this rank does not see the files */
    int array;
    bool failed; /* this rank's reading */
} Loader;

static Status read_elements(void *loader, int64_t begin, int64_t end, float *to)
{
    Loader *l = loader;
    Status status = checkpoint_read(l->reader, l->array, begin, end, to);
    if (status != OK) {
        l->failed = true;
        if (!ranks_first(l->session->options.ranks)) log_warn("%s; rank 0 reads this rank's part", status_message());
        return status;
    }
    if (l->array != STATE_WEIGHTS || session_check_range(l->session, begin, end, to) == OK) return OK;
    return fail(E_CORRUPT, "%s: cannot be trained: %s. --resume FOLDER takes another checkpoint", l->dir,
                status_message()); /* no run saves such weights */
}

static Status take_array(Loader *l, int array, const bool *sees)
{
    const Holding *h = &l->session->plan.input.place->holding;
    Intervals *parts = holding_shares(h, array == SESSION_SETS ? SPACE_SETS : SPACE_MODEL, sees);
    l->array = array;
    Status status = session_take(l->session, array, parts, read_elements, l);
    intervals_free_all(parts, holding_ranks(h));
    return status;
}

static int count_seeing(const Ranks *ranks, const bool *sees)
{
    int n = 0;
    for (int r = 0; r < ranks_size(ranks); r++) n += sees[r];
    return n;
}

/* Collective. (ranks); the caller frees. */
static Status find_who_sees(const Loader *l, bool **sees)
{
    Ranks *ranks = l->session->options.ranks;
    bool own = l->reader;
    *sees = mem_array((size_t)ranks_size(ranks), sizeof **sees);
    TRY(ranks_allgather(ranks, &own, sizeof own, *sees));
    int blind = ranks_size(ranks) - count_seeing(ranks, *sees);
    if (blind && ranks_first(ranks) && l->reader)
        log_info("%d of %d ranks do not see %s: rank 0 reads their parts", blind, ranks_size(ranks), l->dir);
    return OK;
}

/* Collective. A rank whose files are damaged, which may be a copy on its own disk, sees none from here on. */
static Status take_anyhow(Loader *l, int array, bool **sees)
{
    Ranks *ranks = l->session->options.ranks;
    int seen = count_seeing(ranks, *sees);
    Status status = take_array(l, array, *sees);
    if (status != E_CORRUPT && status != E_IO) return status;
    char *why = mem_strdup(status_message());
    if (l->failed) {
        checkpoint_close(l->reader);
        l->reader = NULL;
        l->failed = false;
    }
    free(*sees);
    Status found = find_who_sees(l, sees);
    bool again = found == OK && **sees && count_seeing(ranks, *sees) < seen;
    status = found != OK ? found : again ? take_array(l, array, *sees) : fail(status, "%s", why);
    free(why);
    return status;
}

Status load_checkpoint(const char *dir, CheckpointSeen *seen, Session *s, bool sets)
{
    Ranks *ranks = s->options.ranks;
    const ParamTable *const *params = s->plan.input.place->holding.params;
    Loader l = {.dir = dir, .session = s};
    bool first = ranks_first(ranks), *sees = NULL, found = true;
    TRY(ranks_all(ranks, first ? checkpoint_find_tensors(dir, params, &seen->files, &found) : OK));
    if (sets && !found)
        log_warn("%s has no state of K-FAC: gradients are preconditioned after the next step that gathers statistics",
                 dir);
    TRY(ranks_broadcast_text(ranks, &seen->files));
    Status status = checkpoint_open(dir, params, &seen->files, &l.reader);
    TRY_DONE(ranks_all(ranks, first ? status : OK));
    if (status != OK) log_debug("%s", status_message());
    TRY_DONE(find_who_sees(&l, &sees));
    for (int a = 0; a < N_STATE_ARRAYS + sets; a++) TRY_DONE(take_anyhow(&l, a, &sees));
    status = session_ready(s);
done:
    checkpoint_close(l.reader);
    free(sees);
    return status;
}
