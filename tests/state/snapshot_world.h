/* The snapshots of a made-up world of ranks, for the tests of snapshots. */
#pragma once

#include "checkpoint_sample.h"

#include "slices_of.h"
#include "state/snapshot/snapshot_internal.h"

enum { MOST_RANKS = 8 };

static const Digest run_number = {.hi = 7, .lo = 9};

typedef struct {
    char *dir, *output; /* the snapshots' folder; the output folder */
    ParamTable table, sets;
    Intervals parts[MOST_RANKS], set_parts[MOST_RANKS];
    int world;
    Snapshot *ranks[MOST_RANKS];
} World;

static inline SnapshotPlace place_of(const World *w, int rank)
{
    static const ModelFile files[] = {{"config.json", "{\"hidden_size\": 8}\n", 19}};
    return (SnapshotPlace){.dir = w->dir,
                           .output = w->output,
                           .run = run_number,
                           .world = w->world,
                           .slice = rank,
                           .holder = rank,
                           .own = {{&w->table, &w->sets}, {&w->parts[rank], &w->set_parts[rank]}},
                           .files = files,
                           .n_files = 1};
}

/* K-FAC's inverses: of two linears. */
static inline ParamTable sample_sets(void)
{
    static Param sets[] = {{.name = "l0.A_inv", .rows = 3000, .cols = 1, .n_dims = 1, .padded = 3000},
                           {.name = "l0.B_inv", .rows = 528, .cols = 1, .n_dims = 1, .padded = 528, .offset = 3008}};
    return (ParamTable){.params = sets, .count = 2, .size = 3584};
}

static inline float sample_inverse(int64_t step, int64_t i) { return (float)(step * 10000 + i); }

static inline Status fetch_inverses(void *context, int array, int64_t begin, int64_t end, float *to)
{
    assert_int_equal(array, SNAPSHOT_KFAC);
    for (int64_t i = begin; i < end; i++) to[i - begin] = sample_inverse(*(const int64_t *)context, i);
    return OK;
}

static inline World *world_open(const char *dir, int world)
{
    World *w = mem_alloc(sizeof *w);
    *w = (World){.dir = mem_strdup(dir),
                 .output = mem_printf("%s/out", dir),
                 .table = sample_table(),
                 .sets = sample_sets(),
                 .world = world};
    assert_ok(file_make_directories(w->output));
    slices_of(&w->table, NULL, 0, world, w->parts);
    slices_of(&w->sets, NULL, 0, world, w->set_parts);
    for (int r = 0; r < world; r++) {
        SnapshotPlace place = place_of(w, r);
        assert_ok(snapshot_open(&place, &w->ranks[r]));
    }
    return w;
}

static inline void world_close(World *w)
{
    for (int r = 0; r < w->world; r++) {
        snapshot_close(w->ranks[r]);
        intervals_free(&w->parts[r]);
        intervals_free(&w->set_parts[r]);
    }
    free(w->dir);
    free(w->output);
    free(w);
}

static inline SnapshotOutcome write_rank(World *w, int rank, const Sample *s, int64_t generation, int64_t keep)
{
    SnapshotSource source = {.arrays = {s->arrays[0], s->arrays[1], s->arrays[2]},
                             .fetch = fetch_inverses,
                             .context = &(int64_t){s->state.step},
                             .generation = generation,
                             .step = s->state.step,
                             .state = s->text,
                             .state_size = s->state.state_size};
    assert_ok(snapshot_begin(w->ranks[rank], &source, keep));
    snapshot_wait_copied(w->ranks[rank]);
    return snapshot_poll(w->ranks[rank], true);
}

static inline void write_all(World *w, int64_t step, int64_t generation)
{
    Sample *s = sample_of(step);
    for (int r = 0; r < w->world; r++)
        assert_int_equal(write_rank(w, r, s, generation, generation - 1), SNAPSHOT_COMPLETE);
    sample_free(s);
}

/* Every slice of the set into the flat space. */
static inline Status assemble(const SnapshotList *list, const SnapshotSet *set, float *const arrays[SNAPSHOT_ARRAYS])
{
    for (int s = 0; s < set->world; s++)
        for (int a = 0; a < SNAPSHOT_ARRAYS; a++) {
            const SnapshotFile *f = &list->files[set->pieces[s].file];
            const Intervals *part = &f->fixed.part[snapshot_space(a)];
            for (int i = 0; arrays[a] && i < part->count; i++) {
                Interval v = part->intervals[i];
                TRY(snapshot_read_range(f, set->pieces[s].slot, a, v.begin, v.end, arrays[a] + v.begin));
            }
        }
    return OK;
}

/* The step of the newest whole generation, whose bits must equal the saved ones; 0: none. */
static inline int64_t read_step(const char *dir, const char *output, Buf *missing)
{
    SnapshotList list;
    SnapshotSet set;
    ParamTable t = sample_table();
    assert_ok(snapshot_find(dir, output, &list));
    snapshot_choose_in(&list, run_number, &set, missing);
    int64_t step = set.generation ? set.step : 0;
    if (set.generation) {
        float *arrays[SNAPSHOT_ARRAYS];
        ParamTable sets = sample_sets();
        Buf text = {0};
        size_t size;
        for (int a = 0; a < SNAPSHOT_KFAC; a++) arrays[a] = mem_array((size_t)t.size, sizeof(float));
        arrays[SNAPSHOT_KFAC] = mem_array((size_t)sets.size, sizeof(float));
        assert_ok(assemble(&list, &set, arrays));
        const char *state = snapshot_state(&list.files[set.pieces[0].file], set.pieces[0].slot, &size);
        buf_append(&text, state, size);
        Loaded got = sample_compare(&t, arrays, &text);
        assert_true(got.equal);
        assert_int_equal(got.step, step);
        for (int64_t i = 0; i < sets.size; i++)
            assert_true(arrays[SNAPSHOT_KFAC][i] == sample_inverse(step, i)); /* exact */
        for (int a = 0; a < SNAPSHOT_ARRAYS; a++) free(arrays[a]);
        buf_free(&text);
    }
    snapshot_set_free(&set);
    snapshot_list_free(&list);
    return step;
}

static inline int64_t step_of(const World *w) { return read_step(w->dir, w->output, NULL); }
