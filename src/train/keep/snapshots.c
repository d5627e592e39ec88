#include "train/keep/snapshots.h"

#include "state/snapshot/snapshot_copies.h"
#include "train/keep/saving.h"

#define COST_MOST 0.01 /* of the time, with --snapshot-steps auto */

struct Snapshots {
    const Run *run;
    SnapshotWish wish;
    Ranks *ranks;
    const Holding *holding;
    Snapshot *file;
    SnapshotCopies copies;    /* on other hosts; count 0: none */
    Digest key;               /* of the run, in snapshot files */
    char *output;             /* canonical, from rank 0 */
    int64_t generation, keep; /* the newest begun; the newest committed */
    int64_t begun;            /* the step of the newest begun; −1: none */
    bool pending;             /* begun, neither committed nor dropped: the same on all ranks */
    SnapshotOutcome outcome;  /* of the pending one, on this rank */
    char *failure;            /* of the last one, its message; NULL: it did not fail */
    bool alone;               /* files of other world sizes are removed */
    double stall_s;           /* wait of training for the one in progress */
    SnapshotStats stats;
};

/* ---- opening ---- */

static SnapshotPlace place_of(const Snapshots *s, int slice)
{
    return (SnapshotPlace){.dir = s->run->c->snapshot_dir,
                           .output = s->output,
                           .run = s->key,
                           .world = ranks_size(s->ranks),
                           .slice = slice,
                           .holder = ranks_rank(s->ranks),
                           .own = holding_part(s->holding, slice),
                           .files = s->run->files,
                           .n_files = s->run->n_files};
}

/* This rank's demand, and the memory free for it. */
static Status find_claim(Snapshots *s, SnapshotClaim *mine)
{
    const Run *run = s->run;
    const Comm *c = ranks_comm(s->ranks);
    const char *dir = run->c->snapshot_dir;
    int rank = ranks_rank(s->ranks);
    uint64_t small = 0;
    bool memory;
    if (run->session.plan.snapshots_given_up) return fail(E_MEMORY, "the plan has no room for them");
    for (int i = 0; i < run->n_files; i++) small += run->files[i].size;
    TRY(snapshot_memory_backed(dir, &memory));
    if (!memory) log_warn("--snapshot-dir %s is not a tmpfs: snapshots will be written to disk, at its speed", dir);
    TRY(snapshot_claim(dir, c ? c->node : 0, mine));
    for (int i = -1; i < s->copies.count; i++) { /* -1: the rank's own slice */
        if (i >= 0 && s->copies.items[i].holder != rank) continue;
        SnapshotPlace place = place_of(s, i < 0 ? rank : s->copies.items[i].slice);
        mine->need += snapshot_bytes(&place.own, small);
        mine->held += snapshot_held(&place);
    }
    s->stats.bytes = mine->need;
    return OK;
}

static const char *host_of(void *context, int rank)
{
    const Comm *c = ranks_comm(((const Snapshots *)context)->ranks);
    const char *name = c ? strstr(comm_peer_name(c, rank), " on ") : NULL;
    return name ? name + strlen(" on ") : "this host";
}

/* Collective: same result on all ranks, before any rank allocates. */
static Status check_room(Snapshots *s, const SnapshotClaim *mine)
{
    SnapshotClaim *all = mem_array((size_t)ranks_size(s->ranks), sizeof *all);
    Status status = ranks_allgather(s->ranks, mine, sizeof *mine, all);
    if (status == OK) status = snapshot_room(all, ranks_size(s->ranks), s->run->c->snapshot_dir, host_of, s);
    free(all);
    return status;
}

static Status open_file(Snapshots *s, int slice, Snapshot **file)
{
    SnapshotPlace place = place_of(s, slice);
    TRY(snapshot_open(&place, file));
    if (snapshot_newest(*file) > s->generation) s->generation = snapshot_newest(*file);
    return OK;
}

static Status open_files(Snapshots *s)
{
    int rank = ranks_rank(s->ranks);
    TRY(open_file(s, rank, &s->file));
    for (int i = 0; i < s->copies.count; i++)
        if (s->copies.items[i].holder == rank) TRY(open_file(s, s->copies.items[i].slice, &s->copies.items[i].file));
    return OK;
}

/* ---- copies on other hosts ---- */

static Status find_copies(Snapshots *s)
{
    Comm *c = ranks_comm(s->ranks);
    int replicas;
    if (!c) return OK;
    TRY(snapshots_replicas(s->run->c, c->nodes, &replicas));
    TRY(ranks_meet(s->ranks));
    snapshots_place(c, replicas, &s->copies);
    return replicas ? ranks_connect(s->ranks, &s->copies.comm) : OK;
}

/* The run's number and folder, from rank 0. --resume never and --resume FOLDER give the folder a new number, so
   existing snapshots belong to another run. */
static Status find_run(Snapshots *s, bool wanted)
{
    const Config *config = s->run->c;
    bool fresh = strcmp(config->resume, "auto") != 0;
    Status status = OK;
    if (ranks_first(s->ranks)) {
        s->output = snapshot_canonical(config->output_dir);
        status = snapshot_run(config->output_dir, wanted, false, &s->key);
        if (status == OK && fresh && snapshot_run_known(s->key))
            status = snapshot_run(config->output_dir, true, true, &s->key);
    }
    TRY(ranks_all(s->ranks, status));
    TRY(ranks_broadcast(s->ranks, &s->key, sizeof s->key));
    return ranks_broadcast_path(s->ranks, &s->output);
}

static bool goes_without(const Snapshots *s, Status status)
{
    return s->wish.automatic && status != OK && status != E_FAIL && status != E_PEER;
}

/* All ranks agree on the first failure, or on continuing without snapshots if one of them has no room in auto mode. */
static Status agree_on_room(Snapshots *s, Status mine, bool *room)
{
    bool drop = goes_without(s, mine);
    int64_t good = !drop;
    if (drop) log_warn("no snapshots are taken: %s", status_message());
    TRY(ranks_all(s->ranks, drop ? OK : mine));
    TRY(ranks_least(s->ranks, &good));
    *room = good;
    return OK;
}

static Status open_everywhere(Snapshots *s, bool *room)
{
    SnapshotClaim mine = {0};
    TRY(agree_on_room(s, find_claim(s, &mine), room));
    if (!*room) return OK;
    Status status = check_room(s, &mine);
    *room = !goes_without(s, status);
    if (!*room && ranks_first(s->ranks)) log_warn("no snapshots are taken: %s", status_message());
    if (!*room) return OK;
    TRY(status);
    TRY(agree_on_room(s, open_files(s), room));
    if (!*room) return OK;
    int64_t newest = -s->generation;
    TRY(ranks_least(s->ranks, &newest));
    s->generation = -newest;
    return OK;
}

/* A file without a generation would only occupy memory. */
static void close_file(Snapshot *file, bool discard)
{
    bool empty = file && snapshot_newest(file) == 0;
    (discard || empty ? snapshot_discard : snapshot_close)(file);
}

static void close_all(Snapshots *s, bool discard)
{
    if (!s) return;
    close_file(s->file, discard); /* first, because its thread uses the others */
    for (int i = 0; i < s->copies.count; i++) close_file(s->copies.items[i].file, discard);
    comm_close(s->copies.comm);
    copies_free(&s->copies);
    MEM_FREE(s->output, s->failure, s);
}

Status snapshots_open(Snapshots **out, Run *run)
{
    Snapshots *s = mem_alloc(sizeof *s);
    TrainProgress *progress = &run->progress;
    *out = NULL;
    *s = (Snapshots){.run = run,
                     .ranks = run->ranks,
                     .generation = progress->snapshot_newest,
                     .keep = progress->snapshot_kept,
                     .begun = -1};
    Status status = OK;
    bool room = false;
    TRY_DONE(snapshots_wish(run->c, ranks_size(s->ranks), &s->wish));
    TRY_DONE(find_run(s, s->wish.wanted || s->ranks));
    progress->run = s->key;
    if (!s->wish.wanted) goto done;
    s->stats.every = s->wish.every;
    s->holding = &run->session.plan.input.place->holding;
    TRY_DONE(find_copies(s));
    TRY_DONE(open_everywhere(s, &room));
    if (room && s->copies.count) snapshot_set_after(s->file, copies_exchange, &s->copies);
    if (room) *out = s;
done:
    if (!*out) close_all(s, false);
    return status;
}

void snapshots_close(Snapshots *s, const Run *run, bool discard)
{
    if (s)
        log_debug(
            "snapshots: %" PRId64 " taken, the last ones %" PRId64
            " steps apart; training waited %.3g s for all, %.3g s at most; the thread worked %.3g s, %.3g s of it on "
            "a processor; %.1f MiB",
            s->stats.taken, s->stats.every, s->stats.stalled_s, s->stats.longest_stall_s, s->stats.seconds,
            s->stats.processor_s, (double)s->stats.bytes / (1 << 20));
    char *output = s ? mem_strdup(s->output) : snapshot_canonical(run->c->output_dir);
    close_all(s, discard);
    if (discard && snapshot_remove(run->c->snapshot_dir, output, 0, NULL, NULL) != OK) log_warn("%s", status_message());
    free(output);
}

/* ---- how often ---- */

/* The copy takes memory bandwidth and a core from computing, so its cost is the thread's processor time plus the wait
   of training. Chooses an interval that keeps the cost within COST_MOST. */
static void choose_interval(Snapshots *s, double step_s)
{
    double processor, seconds;
    snapshot_cost(s->file, &processor, &seconds);
    s->stats.processor_s += processor;
    s->stats.seconds += seconds;
    s->stats.stalled_s += s->stall_s;
    if (s->stall_s > s->stats.longest_stall_s) s->stats.longest_stall_s = s->stall_s;
    if (s->wish.every > 0) return;
    double cost = s->stall_s + (s->run->session.options.backend->device ? 0 : processor);
    double every = step_s > 0 ? ceil(cost / (COST_MOST * step_s)) : 1;
    if (s->stats.every > 0)
        every = fmax(every, floor(0.7 * (double)s->stats.every)); /* a single cheap snapshot proves little */
    s->stats.every = every < 1 ? 1 : every > 1e9 ? (int64_t)1e9 : (int64_t)every;
}

/* With a fixed interval by the step alone; with auto by rank 0's estimate. */
static bool is_due_at(const Snapshots *s, int64_t step)
{
    if (s->wish.every > 0) return step % s->wish.every == 0 && step != s->begun;
    return s->begun < 0 || step >= s->begun + s->stats.every;
}

/* ---- taking them ---- */

static Status fetch_range(void *snapshots, int array, int64_t begin, int64_t end, float *to)
{
    return session_read_range(&((const Snapshots *)snapshots)->run->session, array, begin, end, to);
}

static Status begin_snapshot(Snapshots *s)
{
    int64_t step = s->run->progress.step;
    Buf text = {0};
    Status status = OK;
    double start = clock_monotonic();
    SnapshotSource source = {.generation = ++s->generation, .step = step, .fetch = fetch_range, .context = s};
    TRY_DONE(session_settle_kfac(&s->run->session));
    saving_state(s->run, &text);
    source.state = text.data;
    source.state_size = text.len;
    const Session *session = &s->run->session;
    bool fetched = session->options.backend->device || !session_has_all(session, STATE_WEIGHTS);
    for (StateArray a = 0; !fetched && a < N_STATE_ARRAYS; a++)
        source.arrays[a] = session_part(session, a, &source.own[a]);
    s->begun = step;
    s->copies.generation = s->generation;
    s->copies.keep = s->keep;
    TRY_DONE(snapshot_begin(s->file, &source, s->keep));
    s->pending = true;
    s->outcome = SNAPSHOT_BUSY;
    s->stall_s = clock_monotonic() - start;
done:
    buf_free(&text);
    return status;
}

/* Polls the snapshot in progress on this rank. */
static void poll_own(Snapshots *s, bool wait)
{
    if (!s->pending || s->outcome == SNAPSHOT_COMPLETE || s->outcome == SNAPSHOT_FAILED) return;
    s->outcome = snapshot_poll(s->file, wait);
    if (s->outcome == SNAPSHOT_COMPLETE) free(s->failure), s->failure = NULL;
    if (s->outcome != SNAPSHOT_FAILED || (s->failure && strcmp(s->failure, status_message()) == 0)) return;
    free(s->failure);
    s->failure = mem_strdup(status_message());
    log_warn("the snapshot of step %" PRId64 " is discarded on all ranks; the previous one stays: %s", s->begun,
             s->failure);
}

static void vote_outcome(Snapshots *s)
{
    if (!s->pending) return;
    if (s->outcome == SNAPSHOT_FAILED)
        ranks_vote(s->ranks, VOTE_SNAPSHOT_FAILED);
    else if (s->outcome != SNAPSHOT_COMPLETE)
        ranks_vote(s->ranks, VOTE_SNAPSHOT_BUSY);
}

void snapshots_vote(Snapshots *s, int64_t step)
{
    if (!s || !s->ranks) return;
    poll_own(s, false);
    vote_outcome(s);
    if (s->wish.every == 0 && ranks_first(s->ranks) && is_due_at(s, step)) ranks_vote(s->ranks, VOTE_SNAPSHOT);
}

/* The generation is whole: after a fault the run resumes from it. */
static void commit(Snapshots *s, double step_s)
{
    s->keep = s->generation;
    s->stats.taken++;
    choose_interval(s, step_s);
    if (s->alone) return;
    s->alone = true; /* files of another world size are no longer needed */
    if (snapshot_remove(s->run->c->snapshot_dir, s->output, ranks_size(s->ranks), NULL, NULL) != OK)
        log_warn("%s", status_message());
}

/* Applies the votes of the last meeting. */
static void finish_pending(Snapshots *s, double step_s)
{
    if (!s->pending) return;
    bool busy = s->ranks ? ranks_agreed(s->ranks, VOTE_SNAPSHOT_BUSY) : s->outcome == SNAPSHOT_BUSY;
    bool failed = s->ranks ? ranks_agreed(s->ranks, VOTE_SNAPSHOT_FAILED) : s->outcome == SNAPSHOT_FAILED;
    ranks_clear(s->ranks, VOTE_SNAPSHOT_BUSY);
    if (busy) return;
    ranks_clear(s->ranks, VOTE_SNAPSHOT_FAILED);
    s->pending = false;
    if (!failed) commit(s, step_s);
}

/* With auto a snapshot waits for K-FAC's pending set, whose work is to fill bubbles; rank 0 votes again. */
static bool take_due(Snapshots *s, int64_t step)
{
    if (s->wish.every > 0) return is_due_at(s, step);
    bool pending = session_kfac_pending(&s->run->session);
    if (!s->ranks) return is_due_at(s, step) && !pending;
    bool agreed = ranks_agreed(s->ranks, VOTE_SNAPSHOT);
    ranks_clear(s->ranks, VOTE_SNAPSHOT);
    return agreed && !pending;
}

Status snapshots_step(Snapshots *s, double step_s)
{
    if (!s) return OK;
    bool is_due = take_due(s, s->run->progress.step);
    if (!s->ranks) poll_own(s, false);
    finish_pending(s, step_s);
    if (!is_due) return OK;
    if (!s->pending) return begin_snapshot(s);
    double start = clock_monotonic(); /* its copy ended long ago; the rest is short, or a transfer to other hosts */
    poll_own(s, true);
    vote_outcome(s);
    TRY(ranks_meet(s->ranks));
    s->stall_s += clock_monotonic() - start;
    finish_pending(s, step_s);
    return begin_snapshot(s);
}

void snapshots_wait_copied(Snapshots *s)
{
    if (!s) return;
    double start = clock_monotonic();
    snapshot_wait_copied(s->file);
    s->stall_s += clock_monotonic() - start;
}

void snapshots_gather(Snapshots *s, RunSnapshots *held)
{
    *held = (RunSnapshots){0};
    if (!s) return;
    (void)snapshot_poll(s->file, true);
    if (run_snapshots_find(s->run->c->snapshot_dir, s->output, s->key, held) != OK) log_warn("%s", status_message());
}

SnapshotStats snapshots_stats(const Snapshots *s) { return s ? s->stats : (SnapshotStats){0}; }
