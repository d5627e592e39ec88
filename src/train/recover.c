#include "train/recover.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)64 << 20) /* bytes of a message between ranks */

/* ---- the run, from rank 0 ---- */

typedef struct {
    Digest run;
    int64_t disk; /* the newest checkpoint's step */
    char output[1024];
} Wanted;

static Status find_run(const char *output_dir, int64_t disk, Wanted *w)
{
    char *path = snapshot_canonical(output_dir);
    w->disk = disk;
    memcpy(w->output, path, strnlen(path, sizeof w->output - 1));
    free(path);
    return snapshot_run(output_dir, false, false, &w->run);
}

/* ---- the snapshots of all ranks ---- */

/* Whether this rank searches: the first of a host's ranks with the same folder does. */
static Status looks(Ranks *ranks, const char *dir, bool *mine)
{
    typedef struct {
        int64_t node;
        Digest dir;
    } Place;
    const Comm *c = ranks_comm(ranks);
    *mine = true;
    if (!c) return OK;
    Place here = {c->node, digest_of(dir, strlen(dir))}, *all = mem_array((size_t)c->size, sizeof *all);
    Status status = ranks_meet(ranks);
    if (status == OK) status = comm_allgather(ranks_comm(ranks), &here, sizeof here, all);
    for (int i = 0; i < c->rank && status == OK; i++)
        if (all[i].node == here.node && digest_equal(all[i].dir, here.dir)) *mine = false;
    free(all);
    return status;
}

/* Collects every rank's pieces on all ranks. */
static Status exchange_pieces(Ranks *ranks, SnapshotPiece **pieces, int *count)
{
    size_t bytes = (size_t)*count * sizeof **pieces;
    TRY(ranks_gather(ranks, (void **)pieces, &bytes));
    *count = (int)(bytes / sizeof **pieces);
    return OK;
}

/* The last step in metrics.jsonl; 0: none. */
static int64_t last_step(const char *output_dir)
{
    char *path = file_join(output_dir, "metrics.jsonl"), tail[4096];
    long long step = 0;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0) {
        off_t from = st.st_size > (off_t)sizeof tail - 1 ? st.st_size - (off_t)sizeof tail + 1 : 0;
        ssize_t n = pread(fd, tail, sizeof tail - 1, from);
        tail[n > 0 ? n : 0] = '\0';
        for (char *line = tail; line; line = strchr(line, '\n')) {
            line += *line == '\n';
            (void)sscanf(line, "{\"step\": %lld", &step);
        }
    }
    if (fd >= 0) close(fd);
    free(path);
    return step;
}

static void say(const Config *config, const char *output_dir, const struct TrainMemory *m, int64_t disk)
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

Status recover_find(const Config *config, const char *output_dir, Ranks *ranks, int64_t disk,
                    struct TrainMemory **memory)
{
    Status status = OK;
    Wanted w;
    SnapshotPiece *pieces = NULL;
    int count = 0, cap = 0;
    bool mine;
    Buf missing = {0};
    struct TrainMemory *m = mem_alloc(sizeof *m);
    memset(&w, 0, sizeof w);
    *memory = NULL;
    TRY_DONE(ranks_follow(ranks, ranks_first(ranks) ? find_run(output_dir, disk, &w) : OK));
    TRY_DONE(ranks_broadcast(ranks, &w, sizeof w));
    if (!snapshot_run_known(w.run)) goto done;
    TRY_DONE(looks(ranks, config->snapshot_dir, &mine));
    if (mine && snapshot_find(config->snapshot_dir, w.output, &m->list) != OK)
        log_warn("%s: ignoring snapshots there", status_message());
    snapshot_list_warn(&m->list, w.run);
    snapshot_pieces(&m->list, w.run, ranks_rank(ranks), &pieces, &count, &cap);
    TRY_DONE(exchange_pieces(ranks, &pieces, &count));
    snapshot_choose(pieces, count, NULL, &m->set, &missing);
    if (missing.len && ranks_first(ranks)) log_warn("snapshots in %s: %s", config->snapshot_dir, missing.data);
    if (m->set.generation && m->set.step > w.disk) {
        if (ranks_first(ranks)) say(config, output_dir, m, w.disk);
        *memory = m;
        m = NULL;
    } else if (m->set.generation && mine) { /* the disk has this step or a later one */
        if (snapshot_remove(config->snapshot_dir, w.output, 0, NULL, NULL) != OK) log_warn("%s", status_message());
    }
done:
    recover_free(m);
    free(pieces);
    buf_free(&missing);
    return status;
}

void recover_free(struct TrainMemory *m)
{
    if (!m) return;
    snapshot_set_free(&m->set);
    snapshot_list_free(&m->list);
    free(m);
}

/* ---- contents of the snapshot ---- */

Status recover_state(const struct TrainMemory *m, Ranks *ranks, Buf *text)
{
    const SnapshotPiece *p = &m->set.pieces[0];
    Comm *c = ranks_comm(ranks);
    size_t size = 0;
    const char *state = NULL;
    if (p->rank == ranks_rank(ranks)) state = snapshot_state(&m->list.files[p->file], p->slot, &size);
    if (!c) {
        buf_append(text, state, size);
        return OK;
    }
    uint64_t bytes = size;
    TRY(ranks_meet(ranks));
    TRY(comm_broadcast(c, &bytes, sizeof bytes, p->rank));
    char *copy = mem_alloc((size_t)bytes);
    if (state) memcpy(copy, state, size);
    Status status = comm_broadcast(c, copy, (size_t)bytes, p->rank);
    if (status == OK) buf_append(text, copy, (size_t)bytes);
    free(copy);
    return status;
}

void recover_progress(const struct TrainMemory *m, TrainProgress *p)
{
    p->snapshot_newest = m->set.newest;
    p->snapshot_kept = m->set.generation;
}

static Status send_bytes(Comm *c, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE)
        TRY(comm_send(c, 0, (const char *)data + at, bytes - at < PIECE ? bytes - at : PIECE));
    return OK;
}

static Status receive_bytes(Comm *c, int from, void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE)
        TRY(comm_receive(c, from, (char *)data + at, bytes - at < PIECE ? bytes - at : PIECE));
    return OK;
}

static Status send_slice(Comm *c, const SnapshotFile *f, int slot)
{
    int n;
    const Interval *intervals = snapshot_intervals(f, &n);
    int64_t counts[2] = {n, 0};
    for (int i = 0; i < n; i++) counts[1] += intervals[i].end - intervals[i].begin;
    TRY(send_bytes(c, counts, sizeof counts));
    TRY(send_bytes(c, intervals, (size_t)n * sizeof *intervals));
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++)
        TRY(send_bytes(c, snapshot_values(f, slot, a), (size_t)counts[1] * sizeof(float)));
    return OK;
}

static Status receive_slice(Comm *c, int from, float *const arrays[SNAPSHOT_ARRAYS])
{
    Status status = OK;
    int64_t counts[2];
    TRY(receive_bytes(c, from, counts, sizeof counts));
    Interval *intervals = mem_array((size_t)counts[0], sizeof *intervals);
    float *values = mem_array((size_t)counts[1], sizeof *values);
    TRY_DONE(receive_bytes(c, from, intervals, (size_t)counts[0] * sizeof *intervals));
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++) {
        TRY_DONE(receive_bytes(c, from, values, (size_t)counts[1] * sizeof *values));
        snapshot_scatter(intervals, (int)counts[0], values, arrays[a]);
    }
done:
    free(intervals);
    free(values);
    return status;
}

static Status gather(const struct TrainMemory *m, Session *s, float *const arrays[SNAPSHOT_ARRAYS])
{
    int rank = ranks_rank(s->options.ranks);
    Comm *c = ranks_comm(s->options.ranks);
    for (int i = 0; i < m->set.world; i++) {
        const SnapshotPiece *p = &m->set.pieces[i];
        if (p->rank == rank && rank == 0)
            snapshot_assemble_piece(&m->list, p, arrays);
        else if (p->rank == rank)
            TRY(send_slice(c, &m->list.files[p->file], p->slot));
        else if (rank == 0)
            TRY(receive_slice(c, p->rank, arrays));
    }
    return OK;
}

Status recover_load(const struct TrainMemory *m, Session *s)
{
    float *arrays[SNAPSHOT_ARRAYS] = {0};
    const ParamTable *params = &s->model->params;
    if (!digest_equal(params_digest(params), m->set.pieces[0].params))
        return fail(E_FORMAT,
                    "the snapshot of step %lld belongs to a model with other tensors. Use another --output-dir, or "
                    "--resume never",
                    (long long)m->set.step);
    for (StateArray a = 0; ranks_first(s->options.ranks) && a < N_STATE_ARRAYS; a++) {
        arrays[a] = session_fill(s, a);
        memset(arrays[a], 0, (size_t)params->size * sizeof(float));
    }
    TRY(ranks_meet(s->options.ranks));
    return ranks_all(s->options.ranks, gather(m, s, arrays));
}
