#include "train/keep/resume.h"

/* ---- the snapshots of all ranks ---- */

/* Whether this rank searches: the first of a host's ranks with the same folder does. */
static Status is_searcher(Ranks *ranks, const char *dir, bool *mine)
{
    typedef struct {
        int64_t node;
        Digest dir;
    } SearchedFolder;
    const Comm *c = ranks_comm(ranks);
    *mine = true;
    if (!c) return OK;
    SearchedFolder here = {c->node, digest_of(dir, strlen(dir))}, *all = mem_array((size_t)c->size, sizeof *all);
    Status status = ranks_allgather(ranks, &here, sizeof here, all);
    for (int i = 0; i < c->rank && status == OK; i++)
        if (all[i].node == here.node && digest_equal(all[i].dir, here.dir)) *mine = false;
    free(all);
    return status;
}

/* The last step of any piece, also of an incomplete generation; -1: none. */
static int64_t newest_step(const SnapshotPiece *pieces, int count)
{
    int64_t step = -1;
    for (int i = 0; i < count; i++)
        if (pieces[i].step > step) step = pieces[i].step;
    return step;
}

static void log_found(const Config *config, const char *output_dir, const RunSnapshots *m, int64_t disk)
{
    int64_t made = (int64_t)js_last(output_dir, "metrics.jsonl", "step"),
            lost = made > m->set.step ? made - m->set.step : 0;
    char newest[64] = "there is no checkpoint";
    int copies = 0;
    if (disk >= 0) snprintf(newest, sizeof newest, "the newest checkpoint is of step %lld", (long long)disk);
    for (int i = 0; i < m->set.world; i++) copies += m->set.pieces[i].copy;
    log_info("memory (%s) holds step %lld of this run, from %d rank%s%s, and %s: %lld step%s lost",
             config->snapshot_dir, (long long)m->set.step, m->set.world, m->set.world == 1 ? "" : "s",
             copies ? ", partly from copies on other hosts" : "", newest, (long long)lost, lost == 1 ? " is" : "s are");
}

/* Leaves suspect pieces out, and returns their number. */
static int drop_suspects(SnapshotPiece *pieces, int *count, const Suspects *suspects)
{
    int all = *count, kept = 0;
    for (int i = 0; i < all; i++)
        if (!suspects_have(suspects, pieces[i].step)) pieces[kept++] = pieces[i];
    *count = kept;
    return all - kept;
}

Status recover_find(const Config *config, const char *output_dir, Ranks *ranks, const Suspects *suspects, int64_t disk,
                    RunSnapshots *m)
{
    Status status = OK;
    const char *dir = config->snapshot_dir;
    Digest run = {0};
    char *output = NULL; /* canonical, from rank 0 */
    SnapshotPiece *pieces = NULL;
    int count = 0, dropped;
    size_t bytes;
    bool mine;
    *m = (RunSnapshots){0};
    if (ranks_first(ranks)) output = snapshot_canonical(output_dir);
    TRY_DONE(ranks_all(ranks, ranks_first(ranks) ? snapshot_run(output_dir, false, false, &run) : OK));
    TRY_DONE(ranks_broadcast(ranks, &run, sizeof run));
    TRY_DONE(ranks_broadcast(ranks, &disk, sizeof disk));
    TRY_DONE(ranks_broadcast_path(ranks, &output));
    if (!snapshot_run_known(run)) goto done;
    TRY_DONE(is_searcher(ranks, dir, &mine));
    if (mine && snapshot_find(dir, output, &m->list) != OK) log_warn("%s: ignoring snapshots there", status_message());
    snapshot_list_warn(&m->list, run);
    pieces = snapshot_pieces(&m->list, run, ranks_rank(ranks), &count);
    bytes = (size_t)count * sizeof *pieces;
    TRY_DONE(ranks_gather(ranks, (void **)&pieces, &bytes));
    count = (int)(bytes / sizeof *pieces);
    dropped = drop_suspects(pieces, &count, suspects);
    snapshot_choose(pieces, count, &m->set, &m->missing);
    if (m->missing.len && ranks_first(ranks)) log_warn("snapshots in %s: %s", dir, m->missing.data);
    if (m->set.generation && m->set.step > disk) {
        if (ranks_first(ranks)) log_found(config, output_dir, m, disk);
        goto done;
    }
    /* The disk has this step or a later one. Ranks killed while they removed their slices left the rest. */
    if (mine && !dropped && (m->set.generation || newest_step(pieces, count) <= disk) &&
        snapshot_remove(dir, output, 0, NULL, NULL) != OK)
        log_warn("%s", status_message());
    run_snapshots_free(m);
done:
    if (status != OK) run_snapshots_free(m);
    MEM_FREE(pieces, output);
    return status;
}

/* ---- contents of the snapshot ---- */

Status recover_state(const RunSnapshots *m, Ranks *ranks, Buf *text)
{
    const SnapshotPiece *p = &m->set.pieces[0];
    char *state = NULL;
    size_t size = 0;
    if (p->rank == ranks_rank(ranks)) {
        const char *mine = snapshot_state(&m->list.files[p->file], p->slot, &size);
        state = mem_strndup(mine, size);
    }
    Status status = ranks_gather(ranks, (void **)&state, &size); /* the other ranks have nothing to add */
    if (status == OK) buf_append(text, state, size);
    free(state);
    return status;
}

/* Collective. Which rank has which elements of a space in chosen slices. (ranks); the caller frees. */
static Status find_slices(const HeldPieces *mine, Ranks *ranks, int space, Intervals *from)
{
    typedef struct {
        int64_t rank;
        Interval of;
    } SlicePart;
    Intervals own = held_pieces_part(mine, space);
    size_t bytes = (size_t)own.count * sizeof(SlicePart);
    SlicePart *all = mem_alloc(bytes);
    for (int i = 0; i < own.count; i++) all[i] = (SlicePart){mine->rank, own.intervals[i]};
    intervals_free(&own);
    Status status = ranks_gather(ranks, (void **)&all, &bytes); /* ascending for each rank */
    for (size_t i = 0; i < bytes / sizeof *all && status == OK; i++)
        intervals_add(&from[all[i].rank], all[i].of.begin, all[i].of.end);
    free(all);
    return status;
}

typedef struct {
    HeldPieces mine;
    int array;
} OwnSlices;

static Status read_slices(void *slices, int64_t begin, int64_t end, float *to)
{
    OwnSlices *s = slices;
    return held_pieces_read(&s->mine, s->array, begin, end, to);
}

/* Collective. */
static Status take_space(const RunSnapshots *m, Session *s, int space)
{
    Ranks *ranks = s->options.ranks;
    Intervals *from = mem_array((size_t)ranks_size(ranks), sizeof *from);
    OwnSlices slices = {{&m->list, m->set.pieces, m->set.world, ranks_rank(ranks)}, 0};
    Status status = find_slices(&slices.mine, ranks, space, from);
    if (status == OK)
        status =
            status_context(checkpoint_check_whole(s->plan.input.place->holding.params[space], from, ranks_size(ranks)),
                           "the snapshot of step %lld", (long long)m->set.step);
    for (int a = 0; a < SNAPSHOT_ARRAYS && status == OK; a++) {
        slices.array = a;
        if (snapshot_space(a) == space) status = session_take(s, a, from, read_slices, &slices);
    }
    intervals_free_all(from, ranks_size(ranks));
    return status;
}

Status recover_load(const RunSnapshots *m, Session *s)
{
    if (!digest_equal(snapshot_tables_digest(s->plan.input.place->holding.params), m->set.pieces[0].params))
        return fail(E_FORMAT,
                    "the snapshot of step %lld belongs to a model with other tensors, or to other options of K-FAC. "
                    "Use another --output-dir, or --resume never",
                    (long long)m->set.step);
    for (int space = 0; space < N_SPACES; space++) TRY(take_space(m, s, space));
    return session_ready(s);
}
