/* The folder of the run, and the spare ones beside it (src/train/keep/spare.h): their locks, and their checkpoints. A
   checkpoint's content is the digest of all updates up to its step. */
#include "rank.h"

typedef struct {
    int64_t step;
    uint64_t all, parts; /* that it has; that are written */
    uint64_t content;
    Proc *by;
} Checkpoint;

typedef struct {
    Proc *holder; /* of its lock */
    bool there;
    Checkpoint *items; // (n_items) whole ones
    int n_items, cap_items;
    Checkpoint writing; /* the temporary one; `by` NULL: none */
} Folder;

static struct {
    Folder folders[1 + DISK_SPARES]; /* by place + 1 */
    int used;                        /* folders from 0 on that are there */
    uint64_t *contents;              // (n_contents) of each step, as it was written first; 0: not yet
    int64_t n_contents;
} disk;

static Folder *at(int place)
{
    if (place + 2 > disk.used) disk.used = place + 2;
    disk.folders[place + 1].there = true;
    return &disk.folders[place + 1];
}

void disk_reset(void)
{
    memset(disk.folders, 0, (size_t)disk.used * sizeof *disk.folders);
    disk.used = 0;
    disk.contents = NULL;
    disk.n_contents = 0;
}

/* ---- locks ---- */

bool disk_lock(Proc *p, int place)
{
    Folder *f = at(place);
    if (f->holder && f->holder != p) return false;
    if (!f->holder) trace(p, "locks folder %d", place);
    f->holder = p;
    return true;
}

void disk_release(Proc *p, int place)
{
    Folder *f = at(place);
    must(f->holder == p, "rank %d releases folder %d, whose lock it has not", p->rank, place);
    must(f->writing.by != p, "rank %d releases folder %d while it writes step %" PRId64, p->rank, place,
         f->writing.step);
    trace(p, "releases folder %d", place);
    f->holder = NULL;
}

void disk_forget(Proc *p)
{
    for (Folder *f = disk.folders; f < disk.folders + disk.used; f++) {
        if (f->holder != p) continue;
        f->holder = NULL;
        f->writing.by = NULL;
    }
}

bool disk_held_by(const Proc *p, int place) { return at(place)->holder == p; }

/* ---- whole checkpoints ---- */

static const Checkpoint *find(const Folder *f, int64_t step)
{
    for (int i = 0; i < f->n_items; i++)
        if (f->items[i].step == step) return &f->items[i];
    return NULL;
}

static const Checkpoint *newest(int64_t least)
{
    const Checkpoint *best = NULL;
    for (const Folder *f = disk.folders; f < disk.folders + disk.used; f++)
        for (int i = 0; i < f->n_items; i++)
            if (f->items[i].step >= least && (!best || f->items[i].step > best->step)) best = &f->items[i];
    return best;
}

int64_t disk_newest(int64_t least)
{
    const Checkpoint *c = newest(least);
    return c ? c->step : -1;
}

bool disk_has(int place, int64_t step) { return find(at(place), step) != NULL; }

int64_t disk_resume(Proc *p, uint64_t *content)
{
    const Folder *f = at(DISK_MAIN);
    const Checkpoint *best = NULL;
    must(f->holder == p, "rank %d reads the run's folder without its lock", p->rank);
    for (int i = 0; i < f->n_items; i++)
        if (!best || f->items[i].step > best->step) best = &f->items[i];
    int64_t step = best ? best->step : -1;
    must(step == disk_newest(0), "start %d resumes from step %" PRId64 ", and there is one of step %" PRId64, p->start,
         step, disk_newest(0));
    *content = best ? best->content : 0;
    return step;
}

/* ---- writing ---- */

static void add(Folder *f, const Checkpoint *c)
{
    if (f->n_items == f->cap_items) {
        int cap = f->cap_items ? 2 * f->cap_items : 4;
        Checkpoint *items = sim_alloc((size_t)cap * sizeof *items);
        if (f->n_items) memcpy(items, f->items, (size_t)f->n_items * sizeof *items);
        f->items = items;
        f->cap_items = cap;
    }
    f->items[f->n_items++] = *c;
}

bool disk_join(Proc *p)
{
    Folder *out = at(DISK_MAIN);
    must(out->holder == p, "rank %d joins spare folders without the lock", p->rank);
    for (int place = 0; place < disk.used - 1; place++) {
        Folder *f = at(place);
        if (f->holder) return false;
        for (int i = 0; i < f->n_items; i++)
            if (!find(out, f->items[i].step)) add(out, &f->items[i]);
        if (f->n_items) trace(p, "takes what folder %d has", place);
        f->n_items = 0;
        f->writing.by = NULL;
    }
    return true;
}

static void check_content(const Proc *p, int64_t step, uint64_t content)
{
    if (step >= disk.n_contents) {
        int64_t n = 2 * step + 8;
        uint64_t *contents = sim_alloc((size_t)n * sizeof *contents);
        if (disk.n_contents) memcpy(contents, disk.contents, (size_t)disk.n_contents * sizeof *contents);
        disk.contents = contents;
        disk.n_contents = n;
    }
    uint64_t *known = &disk.contents[step];
    if (!*known) *known = content;
    must(*known == content, "rank %d writes step %" PRId64 " with other bits than before", p->rank, step);
}

void disk_begin(Proc *p, int place, int64_t step, uint64_t parts)
{
    Folder *f = at(place);
    const Proc *other = f->writing.by;
    must(f->holder == p, "rank %d begins a checkpoint in folder %d, whose lock it has not", p->rank, place);
    must(!other || other == p, "rank %d begins step %" PRId64 " in folder %d, where rank %d writes step %" PRId64,
         p->rank, step, place, other ? other->rank : -1, f->writing.step);
    must(!find(f, step), "rank %d writes step %" PRId64 " again", p->rank, step);
    trace(p, "begins checkpoint %" PRId64 " in folder %d", step, place);
    f->writing = (Checkpoint){.step = step, .all = parts, .by = p};
}

void disk_write(Proc *p, int place, int64_t step, uint64_t parts, uint64_t content)
{
    Checkpoint *c = &at(place)->writing;
    must(!disk_fails(p), "rank %d writes on a full disk", p->rank);
    check_content(p, step, content);
    /* A start removes what an earlier one has begun: who has the files open writes into removed ones. */
    if (!c->by || c->step != step || c->by->start != p->start) return;
    must(!(parts & ~c->all), "rank %d writes what the checkpoint has not", p->rank);
    trace(p, "has written parts %" PRIx64 " of checkpoint %" PRId64 " in folder %d", parts, step, place);
    c->parts |= parts;
    c->content = content;
}

void disk_give_up(Proc *p, int place)
{
    Checkpoint *c = &at(place)->writing;
    if (c->by == p) c->by = NULL;
}

void disk_name(Proc *p, int place, int64_t step)
{
    Folder *f = at(place);
    Checkpoint *c = &f->writing;
    must(f->holder == p && c->by == p && c->step == step, "rank %d names step %" PRId64 ", which it does not write",
         p->rank, step);
    must(c->parts == c->all, "checkpoint %" PRId64 " gets its name with parts %" PRIx64 " of %" PRIx64, step, c->parts,
         c->all);
    must(!find(f, step), "there are two checkpoints of step %" PRId64 " in folder %d", step, place);
    trace(p, "has checkpoint %" PRId64 " in folder %d", step, place);
    c->by = NULL;
    add(f, c);
}

void disk_prune(Proc *p, int place, int64_t step, int keep)
{
    Folder *f = at(place);
    int64_t before = disk_newest(0), last = INT64_MAX;
    int kept = 0;
    must(f->holder == p, "rank %d removes checkpoints of folder %d, whose lock it has not", p->rank, place);
    for (int n = 0; n < keep && last > 0; n++) { /* the oldest one that stays */
        int64_t next = -1;
        for (int i = 0; i < f->n_items; i++)
            if (f->items[i].step <= step && f->items[i].step < last && f->items[i].step > next) next = f->items[i].step;
        if (next < 0) break;
        last = next;
    }
    for (int i = 0; i < f->n_items; i++) {
        int64_t its = f->items[i].step;
        bool stays = its <= step && (keep <= 0 || its >= last);
        must(stays || its < step, "rank %d removes step %" PRId64 ", and has saved but step %" PRId64, p->rank, its,
             step);
        if (stays) f->items[kept++] = f->items[i];
    }
    f->n_items = kept;
    must(disk_newest(0) == before, "the newest checkpoint, of step %" PRId64 ", was removed", before);
}

/* ---- faults ---- */

bool disk_fails(const Proc *p) { return w.now < p->trainer->full; }

double disk_seconds(const Proc *p, double seconds)
{
    const Trainer *t = p->trainer;
    return w.now < t->slow ? seconds * fmax(1, t->slowness) : seconds;
}
