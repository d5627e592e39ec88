#include "train/keep/recover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/planner/snapshot_room.h"

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
    Status status = ranks_meet(ranks);
    if (status == OK) status = comm_allgather(ranks_comm(ranks), &here, sizeof here, all);
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

/* The last step in metrics.jsonl; 0: none. */
static int64_t last_step(const char *output_dir)
{
    char *path = file_join(output_dir, "metrics.jsonl");
    Buf text = {0};
    long long step = 0;
    if (file_exists(path) && file_read(path, (size_t)4 << 30, &text) == OK && text.len) {
        const char *line = strrchr(text.data, '{'); /* every line is one flat object */
        if (line) (void)sscanf(line, "{\"step\": %lld", &step);
    }
    buf_free(&text);
    free(path);
    return step;
}

static void log_found(const Config *config, const char *output_dir, const RunSnapshots *m, int64_t disk)
{
    int64_t made = last_step(output_dir), lost = made > m->set.step ? made - m->set.step : 0;
    char newest[64] = "there is no checkpoint";
    int copies = 0;
    if (disk >= 0) snprintf(newest, sizeof newest, "the newest checkpoint is of step %lld", (long long)disk);
    for (int i = 0; i < m->set.world; i++) copies += m->set.pieces[i].copy;
    log_info("memory (%s) holds step %lld of this run, from %d rank%s%s, and %s: %lld step%s lost",
             config->snapshot_dir, (long long)m->set.step, m->set.world, m->set.world == 1 ? "" : "s",
             copies ? ", partly from copies on other hosts" : "", newest, (long long)lost, lost == 1 ? " is" : "s are");
}

/* Leaves suspect pieces out, and returns their number. */
static int drop_suspects(SnapshotPiece *pieces, int *count, const Suspects * not )
{
    int all = *count, kept = 0;
    for (int i = 0; i < all; i++)
        if (!suspects_have(not, pieces[i].step)) pieces[kept++] = pieces[i];
    *count = kept;
    return all - kept;
}

Status recover_find(const Config *config, const char *output_dir, Ranks *ranks, const Suspects * not, int64_t disk,
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
    dropped = drop_suspects(pieces, &count, not );
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

enum { BLOCK = 1 << 16 }; /* elements that are sent together */

/* Where rank 0 puts a slice. */
typedef struct {
    Session *session;
    float *arrays[SNAPSHOT_ARRAYS]; /* NULL: K-FAC's sets */
    float *block;                   // (BLOCK)
} Target;

static Status send_slice(Ranks *ranks, const SnapshotFile *f, int slot)
{
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++) {
        const Intervals *part = &f->fixed.part[snapshot_space(a)];
        const float *values = snapshot_values(f, slot, a);
        int64_t count = part->count;
        TRY(ranks_pass(ranks, 0, &count, sizeof count, true));
        for (int i = 0; i < part->count; i++) {
            Interval *x = &part->intervals[i];
            TRY(ranks_pass(ranks, 0, x, sizeof *x, true));
            for (int64_t at = x->begin, n; at < x->end; at += n, values += n) {
                n = x->end - at < BLOCK ? x->end - at : BLOCK;
                TRY(ranks_pass(ranks, 0, (void *)(uintptr_t)values, (size_t)n * sizeof *values, true));
            }
        }
    }
    return OK;
}

static Status receive_interval(Ranks *ranks, int from, const Target *t, int array)
{
    Interval x;
    TRY(ranks_pass(ranks, from, &x, sizeof x, false));
    for (int64_t at = x.begin, n; at < x.end; at += n) {
        float *to = t->arrays[array] ? t->arrays[array] + at : t->block;
        n = x.end - at < BLOCK ? x.end - at : BLOCK;
        TRY(ranks_pass(ranks, from, to, (size_t)n * sizeof *to, false));
        if (!t->arrays[array]) session_fill_kfac(t->session, at, at + n, to);
    }
    return OK;
}

static Status receive_slice(Ranks *ranks, int from, const Target *t)
{
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++) {
        int64_t count;
        TRY(ranks_pass(ranks, from, &count, sizeof count, false));
        for (int64_t i = 0; i < count; i++) TRY(receive_interval(ranks, from, t, a));
    }
    return OK;
}

static Status take_slice(const RunSnapshots *m, const SnapshotPiece *p, const Target *t)
{
    const SnapshotFile *f = &m->list.files[p->file];
    const Intervals *part = &f->fixed.part[snapshot_space(SNAPSHOT_KFAC)];
    const float *values = snapshot_values(f, p->slot, SNAPSHOT_KFAC);
    for (int i = 0; i < part->count; i++) {
        const Interval *x = &part->intervals[i];
        session_fill_kfac(t->session, x->begin, x->end, values);
        values += x->end - x->begin;
    }
    return snapshot_assemble_piece(&m->list, p, t->arrays);
}

static Status gather_slices(const RunSnapshots *m, Ranks *ranks, const Target *t)
{
    int rank = ranks_rank(ranks);
    for (int i = 0; i < m->set.world; i++) {
        const SnapshotPiece *p = &m->set.pieces[i];
        if (p->rank == rank && rank == 0)
            TRY(take_slice(m, p, t));
        else if (p->rank == rank)
            TRY(send_slice(ranks, &m->list.files[p->file], p->slot));
        else if (rank == 0)
            TRY(receive_slice(ranks, p->rank, t));
    }
    return OK;
}

Status recover_load(const RunSnapshots *m, Session *s)
{
    Target t = {.session = s};
    SnapshotSlices slices;
    snapshot_slices_of(&slices, &s->plan.input);
    bool same = digest_equal(snapshot_tables_digest(slices.params), m->set.pieces[0].params);
    snapshot_slices_free(&slices);
    if (!same)
        return fail(E_FORMAT,
                    "the snapshot of step %lld belongs to a model with other tensors, or to other options of K-FAC. "
                    "Use another --output-dir, or --resume never",
                    (long long)m->set.step);
    for (StateArray a = 0; ranks_first(s->options.ranks) && a < N_STATE_ARRAYS; a++) {
        t.arrays[a] = session_fill(s, a);
        memset(t.arrays[a], 0, (size_t)s->whole->params.size * sizeof(float));
    }
    TRY(ranks_meet(s->options.ranks));
    t.block = mem_array(BLOCK, sizeof *t.block);
    Status status = ranks_all(s->options.ranks, gather_slices(m, s->options.ranks, &t));
    free(t.block);
    return status;
}
