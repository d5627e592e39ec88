/* One checkpoint that several processes write: its bytes are those of a plain save, a part that is not as it was
   written is found, and a save that the others fail is made alone. */
#include "checkpoint_sample.h"
#include "place.h"

#include <sys/wait.h>
#include <unistd.h>

enum { PARTS = 3 };

/* The others: processes that write the parts, in any order; process `damaged` (-1: none) writes another batch. */
typedef struct {
    const char *out;
    Sample *sample, *other;
    int damaged;
    bool fails;
    int64_t cut; /* elements of a part before the next begins */
} Others;

/* Part `i`: every PARTS-th run of `cut` elements. */
static Intervals part_of(const ParamTable *t, int i, int64_t cut)
{
    Intervals part = {0};
    for (int64_t at = i * cut; at < t->size; at += PARTS * cut)
        intervals_add(&part, at, at + cut < t->size ? at + cut : t->size);
    return part;
}

static Status fill(void *context, const TrainingState *t, CheckpointFilled *filled)
{
    Others *o = context;
    if (o->fails) return status_fail(E_PEER, "the others are gone");
    for (int i = PARTS - 1; i >= 0; i--) {
        pid_t child = fork();
        if (child == 0) {
            Intervals part = part_of(t->params, i, o->cut);
            HeldPart its = {{t->params}, {&part}};
            Sample *from = i == o->damaged ? o->other : o->sample;
            Digest digest;
            bool done = checkpoint_write_part(o->out, t->step, &its, sample_arrays_read, from->arrays, &digest) == OK;
            intervals_free(&part);
            _exit(done ? 0 : 1);
        }
        int code = -1;
        assert_int_equal(waitpid(child, &code, 0), child);
        assert_int_equal(code, 0);
    }
    Intervals parts[PARTS];
    const Intervals *const spaces[N_SPACES] = {parts, NULL};
    Digest digests[PARTS];
    bool wrong[PARTS];
    for (int i = 0; i < PARTS; i++) {
        parts[i] = part_of(t->params, i, o->cut);
        HeldPart its = {{t->params}, {&parts[i]}};
        assert_ok(checkpoint_part_digest(&its, sample_arrays_read, o->sample->arrays, &digests[i]));
    }
    Status status = checkpoint_check_parts(o->out, t, spaces, digests, PARTS, wrong, filled);
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(wrong[i], i == o->damaged);
        intervals_free(&parts[i]);
    }
    return status;
}

/* Saves step 4 of `s` into `out`, by `o` where that is given; `whole`: this process has the arrays. */
static Status save(const char *out, const Sample *s, Others *o, bool whole)
{
    Saver saver;
    TrainingState t = s->state;
    if (o) {
        o->out = out;
        t.fill = fill;
        t.fill_context = o;
    }
    if (!whole) t.read = NULL;
    assert_ok(saver_init(&saver, out, 1));
    Status status = saver_begin(&saver, &t);
    saver_free(&saver);
    return status;
}

static void read_all(const char *out, const char *name, Buf *bytes)
{
    char *path = mem_printf("%s/checkpoint-4/%s", out, name);
    assert_ok(file_read(path, 1 << 20, bytes));
    free(path);
}

static void same_files(const char *a, const char *b)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Buf x = {0}, y = {0};
        read_all(a, names[i], &x);
        read_all(b, names[i], &y);
        assert_int_equal(x.len, y.len);
        assert_memory_equal(x.data, y.data, x.len);
        buf_free(&x);
        buf_free(&y);
    }
}

static void test_same_bytes(void **state)
{
    (void)state;
    static const int64_t cuts[] = {1, 7, 64, 100000};
    Others o = {.sample = sample_of(4), .other = sample_of(5), .damaged = -1};
    char *plain = file_join(place, "plain");
    assert_ok(save(plain, o.sample, NULL, true));
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char *together = mem_printf("%s/%d", place, (int)i);
        o.cut = cuts[i];
        assert_ok(save(together, o.sample, &o, i % 2 == 0));
        char *path = mem_printf("%s/checkpoint-4", together);
        assert_ok(checkpoint_verify(path, NULL));
        free(path);
        same_files(plain, together);
        free(together);
    }
    free(plain);
    sample_free(o.sample);
    sample_free(o.other);
}

/* Another's wrong part is found. With the whole state at hand the save is made alone; else it fails, and leaves
 * nothing. */
static void test_wrong_part(void **state)
{
    (void)state;
    char *plain = file_join(place, "plain"), *alone = file_join(place, "alone"), *none = file_join(place, "none"),
         *gone = file_join(place, "gone");
    Others o = {.sample = sample_of(4), .other = sample_of(5), .damaged = 1, .cut = 64};
    FileList left;
    assert_ok(save(plain, o.sample, NULL, true));
    assert_ok(save(alone, o.sample, &o, true));
    same_files(plain, alone);
    assert_status(save(none, o.sample, &o, false), E_CORRUPT);
    assert_non_null(strstr(status_message(), "bytes differ from those that were written"));
    assert_ok(file_list(none, &left));
    assert_int_equal(left.count, 0);
    file_list_free(&left);
    o.fails = true;
    assert_ok(save(gone, o.sample, &o, true));
    same_files(plain, gone);
    assert_status(save(none, o.sample, &o, false), E_PEER);
    sample_free(o.sample);
    sample_free(o.other);
    free(plain);
    free(alone);
    free(none);
    free(gone);
}

/* A part that was opened for a save that failed is written while the next save of that step is filled. */
typedef struct {
    Others others;
    CheckpointPart *late;
    Interval all;
    Intervals part;
} Late;

static Status fill_late(void *context, const TrainingState *t, CheckpointFilled *filled)
{
    Late *l = context;
    Digest digest;
    l->all = (Interval){0, t->params->size};
    l->part = (Intervals){.intervals = &l->all, .count = 1, .size = t->params->size};
    if (!l->late) {
        assert_ok(checkpoint_part_open(l->others.out, t->step, &(HeldPart){{t->params}, {&l->part}}, &l->late));
        return status_fail(E_PEER, "the others are gone");
    }
    l->others.damaged = -1;
    Status status = fill(&l->others, t, filled);
    assert_ok(checkpoint_part_write(l->late, sample_arrays_read, l->others.other->arrays, &digest));
    return status;
}

static void test_late_part(void **state)
{
    (void)state;
    char *plain = file_join(place, "plain"), *out = file_join(place, "late");
    Late l = {.others = {.out = out, .sample = sample_of(4), .other = sample_of(5), .cut = 64}};
    assert_ok(save(plain, l.others.sample, NULL, true));
    for (int i = 0; i < 2; i++) {
        Saver saver;
        TrainingState t = l.others.sample->state;
        t.read = NULL;
        t.beside = true;
        t.fill = fill_late;
        t.fill_context = &l;
        assert_ok(saver_init(&saver, out, 1));
        assert_ok(saver_begin(&saver, &t));
        assert_true(saver.filling);
        assert_status(saver_wait(&saver), i == 0 ? E_PEER : OK);
        saver_free(&saver);
    }
    same_files(plain, out);
    sample_free(l.others.sample);
    sample_free(l.others.other);
    free(plain);
    free(out);
}

/* Each element that is in a file, missing in turn. Gaps, pad rows and overlaps do not matter. */
static void test_whole(void **state)
{
    (void)state;
    ParamTable t = sample_table();
    for (int i = 0; i < t.count; i++)
        for (int64_t k = -1; k < param_exported(&t.params[i]); k++) {
            int64_t missing = k < 0 ? t.size : t.params[i].offset + k;
            Intervals parts[3] = {{0}, {0}, {0}};
            intervals_add(&parts[2], 0, missing / 2);
            intervals_add(&parts[0], missing / 3, missing);
            intervals_add(&parts[2], missing + 1, t.size);
            intervals_add(&parts[1], 0, missing / 3);
            if (k < 0) {
                assert_ok(checkpoint_check_whole(&t, parts, 3));
            } else {
                assert_status(checkpoint_check_whole(&t, parts, 3), E_CORRUPT);
                char *says = mem_printf("no part of the state has element %d of %s", (int)k, t.params[i].name);
                assert_string_equal(status_message(), says);
                free(says);
            }
            for (int p = 0; p < 3; p++) intervals_free(&parts[p]);
        }
    assert_status(checkpoint_check_whole(&t, NULL, 0), E_CORRUPT);
    assert_ok(checkpoint_check_whole(&(ParamTable){0}, NULL, 0));
    Intervals files = {0}; /* what the files have, and no more */
    for (int i = 0; i < t.count; i++)
        intervals_add(&files, t.params[i].offset, t.params[i].offset + param_exported(&t.params[i]));
    assert_ok(checkpoint_check_whole(&t, &files, 1));
    intervals_free(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_bytes, make_place, remove_place),
        cmocka_unit_test_setup_teardown(test_wrong_part, make_place, remove_place),
        cmocka_unit_test_setup_teardown(test_late_part, make_place, remove_place),
        cmocka_unit_test(test_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
