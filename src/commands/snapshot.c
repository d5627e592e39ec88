/* `cairn snapshot list | persist | discard`: snapshots of runs in host memory. */

#include "state/snapshot/snapshot.h"
#include "base/lock.h"
#include "commands/commands.h"
#include "state/snapshot/persist.h"

/* One run's files in the list, which are neighbours because their names begin alike. */
typedef struct {
    const SnapshotFile *first; /* a good one */
    int files, alive, damaged;
    int64_t pid; /* of one that is alive */
    uint64_t bytes;
    SnapshotSet set;
    Buf missing;
} HeldRun;

typedef struct {
    SnapshotList list;
    HeldRun *runs;
    int count, cap;
} Runs;

static void runs_free(Runs *r)
{
    for (int i = 0; i < r->count; i++) {
        snapshot_set_free(&r->runs[i].set);
        buf_free(&r->runs[i].missing);
    }
    free(r->runs);
    snapshot_list_free(&r->list);
}

static HeldRun *run_of(Runs *r, const SnapshotFile *f)
{
    for (int i = 0; i < r->count; i++)
        if (digest_equal(r->runs[i].first->run, f->run) && strcmp(r->runs[i].first->output, f->output) == 0)
            return &r->runs[i];
    MEM_PUSH(r->runs, r->count, r->cap, (HeldRun){.first = f});
    return &r->runs[r->count - 1];
}

/* `output` NULL: all. */
static Status runs_find(const char *dir, const char *output, Runs *r)
{
    *r = (Runs){0};
    TRY(snapshot_find(dir, output, &r->list));
    for (int i = 0; i < r->list.count; i++) {
        const SnapshotFile *f = &r->list.files[i];
        if (f->why) {
            log_warn("%s: ignored: %s", f->path, f->why);
            continue;
        }
        HeldRun *run = run_of(r, f);
        run->files++;
        run->bytes += f->bytes;
        if (f->alive) {
            run->alive++;
            run->pid = f->pid;
        }
        for (int s = 0; s < SNAPSHOT_SLOTS; s++) run->damaged += f->slots[s].generation != 0 && !f->slots[s].whole;
    }
    for (int i = 0; i < r->count; i++)
        snapshot_choose_in(&r->list, r->runs[i].first->run, &r->runs[i].set, &r->runs[i].missing);
    return OK;
}

/* ---- list ---- */

static void put_run(const Runs *r, const HeldRun *run, Buf *out)
{
    buf_printf(out, "%s\n  ", run->first->output);
    if (run->set.generation) {
        const SnapshotPiece *p = &run->set.pieces[0];
        buf_printf(out, "step %" PRId64 " (generation %" PRId64 "), %s ago, ", run->set.step, run->set.generation,
                   CLOCK_DURATION(clock_wall() - r->list.files[p->file].slots[p->slot].stamp));
    } else {
        buf_puts(out, "no generation is whole, ");
    }
    buf_printf(out, "%d rank%s, %d file%s, %.1f MiB, ", run->first->world, run->first->world == 1 ? "" : "s",
               run->files, run->files == 1 ? "" : "s", (double)run->bytes / (1 << 20));
    if (run->alive)
        buf_printf(out, "alive: %d of them, process %" PRId64 " on host %s among them", run->alive, run->pid,
                   run->first->host);
    else
        buf_puts(out, "dead");
    buf_puts(out, "\n");
    if (run->damaged) buf_printf(out, "  %d slots are torn or damaged\n", run->damaged);
    if (run->missing.len) buf_printf(out, "  %s\n", run->missing.data);
}

static Status list_runs(const Config *c, const char *output)
{
    Runs r;
    Buf out = {0};
    if (!file_is_directory(c->snapshot_dir))
        return fail(E_USAGE, "--snapshot-dir %s: there is no such folder", c->snapshot_dir);
    TRY(runs_find(c->snapshot_dir, output, &r));
    for (int i = 0; i < r.count; i++) put_run(&r, &r.runs[i], &out);
    if (r.count == 0) buf_printf(&out, "no snapshots in %s\n", c->snapshot_dir);
    runs_free(&r);
    buf_print(&out);
    return OK;
}

/* ---- persist ---- */

static Status choose_run(const Config *c, const char *output, const Runs *r, const HeldRun **run)
{
    Buf others = {0};
    for (int i = 0; i < r->count; i++) buf_printf(&others, "%s %s", i ? "," : "", r->runs[i].first->output);
    Status status = OK;
    *run = r->runs;
    if (r->count == 0)
        status = fail(E_FAIL, "%s holds no snapshot%s%s", c->snapshot_dir, output ? " of the run in " : "",
                      output ? output : "");
    else if (r->count > 1)
        status = fail(E_USAGE, "%s holds snapshots of several runs; choose one with --output-dir:%s", c->snapshot_dir,
                      others.data);
    buf_free(&others);
    return status;
}

static Status check_run(const Config *c, const HeldRun *run)
{
    if (run->alive)
        return fail(E_FAIL,
                    "%s: its process %" PRId64 " on host %s is alive: touch its --persist-file or send it SIGTERM, and "
                    "it saves by itself",
                    run->first->output, run->pid, run->first->host);
    if (run->set.generation == 0)
        return fail(E_CORRUPT,
                    "%s: no generation is whole in %s: %s. Copy the snapshots of other hosts into one folder and give "
                    "it as --snapshot-dir",
                    run->first->output, c->snapshot_dir, run->missing.len ? run->missing.data : "none was completed");
    return OK;
}

/* E_FAIL if the newest checkpoint is newer than the snapshot. */
static Status check_disk(const HeldRun *run)
{
    CheckpointList list;
    TRY(checkpoint_find(run->first->output, &list));
    int64_t newest = list.count ? list.items[0].step : -1;
    checkpoint_list_free(&list);
    if (newest > run->set.step)
        return fail(E_FAIL, "%s holds a checkpoint of step %" PRId64 ", newer than the snapshot of step %" PRId64,
                    run->first->output, newest, run->set.step);
    return OK;
}

static Status persist_run(const Config *c, const char *output)
{
    Status status = OK;
    Runs r;
    const HeldRun *run;
    FolderLock lock = {0};
    TRY(runs_find(c->snapshot_dir, output, &r));
    TRY_DONE(choose_run(c, output, &r, &run));
    TRY_DONE(check_run(c, run));
    if (!file_is_directory(run->first->output))
        TRY_DONE(fail(E_FAIL, "%s: the output folder of the run does not exist", run->first->output));
    TRY_DONE(lock_take(&lock, run->first->output));
    TRY_DONE(check_disk(run));
    TRY_DONE(persist_write(&r.list, &run->set, 0, run->first->output, 0, NULL, NULL));
    printf("%s/checkpoint-%" PRId64 "\n", run->first->output, run->set.step);
done:
    lock_release(&lock);
    runs_free(&r);
    return status;
}

/* ---- discard ---- */

static Status discard_runs(const Config *c, const char *output)
{
    int removed, kept;
    TRY(snapshot_remove(c->snapshot_dir, output, 0, &removed, &kept));
    printf("%d file%s removed\n", removed, removed == 1 ? "" : "s");
    if (kept && output)
        return fail(E_FAIL, "%s: a process that has the snapshot is alive; it is kept (%d files)", output, kept);
    if (kept) log_info("%d files of processes that are alive are kept", kept);
    return OK;
}

Status command_snapshot(const Config *c)
{
    static const struct {
        const char *name;
        Status (*run)(const Config *, const char *);
    } verbs[] = {{"list", list_runs}, {"persist", persist_run}, {"discard", discard_runs}};
    char *output = c->source[OPTION_output_dir] == FROM_DEFAULT ? NULL : snapshot_canonical(c->output_dir);
    for (size_t i = 0; c->n_positional == 1 && i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(c->positional[0], verbs[i].name) != 0) continue;
        Status status = verbs[i].run(c, output);
        free(output);
        return status;
    }
    free(output);
    return fail(E_USAGE, "snapshot: expected one of list, persist, discard%s%s", c->n_positional ? ", found " : "",
                c->n_positional ? c->positional[0] : "");
}
