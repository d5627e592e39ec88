/* TensorBoard's event files, read by this test's own decoder: TFRecord frames, their checksums bit by bit,
   protobuf's wire format. */
#include <dirent.h>
#include <math.h>

#include "base/sort.h"
#include "report/report.h"
#include "testing.h"

/* ---- the decoder ---- */

typedef struct {
    double wall;
    int64_t step;
    char version[32], tag[300]; /* "": none */
    float value;
    int session_status; /* 0: none */
} Event;

typedef struct {
    Event *events;
    int n, cap;
} Events;

typedef struct {
    const uint8_t *at, *end;
} Bytes;

/* Castagnoli's polynomial, reflected, a bit at a time. */
static uint32_t crc_of(const uint8_t *data, size_t len)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < len; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

static uint64_t little_endian(Bytes *b, int len)
{
    uint64_t v = 0;
    if (b->end - b->at < len) fail_msg("%d bytes expected, %td are there", len, b->end - b->at);
    for (int i = 0; i < len; i++) v |= (uint64_t)*b->at++ << 8 * i;
    return v;
}

static uint64_t varint(Bytes *b)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint64_t byte = little_endian(b, 1);
        v |= (byte & 0x7f) << shift;
        if (byte < 0x80) return v;
    }
    fail_msg("a varint of more than ten bytes");
    return 0;
}

static Bytes take(Bytes *b, uint64_t len)
{
    if ((uint64_t)(b->end - b->at) < len) fail_msg("%td bytes are there, %ju expected", b->end - b->at, (uintmax_t)len);
    Bytes part = {b->at, b->at + len};
    b->at += len;
    return part;
}

static void copy_text(Bytes part, char *out, size_t size)
{
    size_t len = (size_t)(part.end - part.at);
    assert_true(len < size);
    memcpy(out, part.at, len);
    out[len] = 0;
}

/* Every field of these messages is known; any other fails the test. */
static void read_value(Bytes b, Event *e)
{
    while (b.at < b.end) {
        uint64_t key = varint(&b);
        if (key == (1 << 3 | 2)) {
            copy_text(take(&b, varint(&b)), e->tag, sizeof e->tag);
        } else if (key == (2 << 3 | 5)) {
            uint32_t bits = (uint32_t)little_endian(&b, 4);
            memcpy(&e->value, &bits, sizeof bits);
        } else {
            fail_msg("key %ju in Summary.Value", (uintmax_t)key);
        }
    }
}

static Event read_event(Bytes b)
{
    Event e = {0};
    while (b.at < b.end) {
        uint64_t key = varint(&b), bits;
        switch (key) {
        case 1 << 3 | 1:
            bits = little_endian(&b, 8);
            memcpy(&e.wall, &bits, sizeof bits);
            break;
        case 2 << 3:
            e.step = (int64_t)varint(&b);
            break;
        case 3 << 3 | 2:
            copy_text(take(&b, varint(&b)), e.version, sizeof e.version);
            break;
        case 5 << 3 | 2: {
            Bytes summary = take(&b, varint(&b));
            assert_int_equal(varint(&summary), 1 << 3 | 2);
            read_value(take(&summary, varint(&summary)), &e);
            assert_ptr_equal(summary.at, summary.end);
            break;
        }
        case 7 << 3 | 2: {
            Bytes session = take(&b, varint(&b));
            assert_int_equal(varint(&session), 1 << 3);
            e.session_status = (int)varint(&session);
            assert_ptr_equal(session.at, session.end);
            break;
        }
        default:
            fail_msg("key %ju in Event", (uintmax_t)key);
        }
    }
    return e;
}

static void read_events(const char *path, Events *all)
{
    Buf text = {0};
    assert_ok(file_read(path, 1 << 20, &text));
    Bytes b = {(const uint8_t *)text.data, (const uint8_t *)text.data + text.len};
    while (b.at < b.end) {
        const uint8_t *head = b.at;
        uint64_t len = little_endian(&b, 8);
        assert_int_equal(little_endian(&b, 4), masked(crc_of(head, 8)));
        Bytes data = take(&b, len);
        assert_int_equal(little_endian(&b, 4), masked(crc_of(data.at, (size_t)len)));
        MEM_GROW(all->events, all->n, all->cap);
        all->events[all->n++] = read_event(data);
    }
    buf_free(&text);
}

/* ---- the tests ---- */

/* The event files of a folder, in the order in which TensorBoard reads them. */
static int list_files(const char *dir, char **paths, int most)
{
    DIR *d = opendir(dir);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        if (!strstr(entry->d_name, "tfevents")) continue;
        assert_true(n < most);
        paths[n++] = file_join(dir, entry->d_name);
    }
    closedir(d);
    qsort(paths, (size_t)n, sizeof *paths, sort_by_text);
    return n;
}

/* All events of a folder, as TensorBoard keeps them: a start mark drops earlier events of its step and later ones. */
static Events read_folder(const char *dir)
{
    char *paths[8];
    int n = list_files(dir, paths, 8);
    Events all = {0}, kept = {0};
    for (int i = 0; i < n; i++) {
        read_events(paths[i], &all);
        free(paths[i]);
    }
    for (int i = 0; i < all.n; i++) {
        const Event *e = &all.events[i];
        if (e->session_status == 1) {
            int left = 0;
            for (int k = 0; k < kept.n; k++)
                if (kept.events[k].step < e->step) kept.events[left++] = kept.events[k];
            kept.n = left;
        } else if (*e->tag) {
            MEM_GROW(kept.events, kept.n, kept.cap);
            kept.events[kept.n++] = *e;
        }
    }
    free(all.events);
    return kept;
}

static void test_own_checksum(void **state)
{
    (void)state;
    assert_int_equal(crc_of((const uint8_t *)"123456789", 9), 0xe3069283u); /* RFC 3720's check value */
    assert_int_equal(crc_of((const uint8_t[32]){0}, 32), 0x8a9136aau);      /* its B.4: 32 zeros */
}

static void test_scalars(void **state)
{
    char *dir = *state, *path;
    static const struct {
        int64_t step;
        const char *tag;
        double value;
    } given[] = {{1, "train/loss", 1.0986122886681098},
                 {2, "train/loss", 1e-45},
                 {300, "train/lr", -2e-5},
                 {(int64_t)1 << 40, "eval/dev_matched/accuracy", 0.5},
                 {INT64_MAX, "a", INFINITY},
                 {3, "", 0},
                 {4, "nan", NAN}};
    enum { N = sizeof given / sizeof *given };
    TfEvents *t;
    Events all = {0};
    char *long_tag = mem_alloc(201);
    memset(long_tag, 'x', 200); /* its length takes two bytes */
    double before = clock_wall();
    assert_ok(tfevents_open(&t, dir, 0));
    for (int i = 0; i < N; i++) assert_ok(tfevents_scalar(t, given[i].step, given[i].tag, given[i].value));
    assert_ok(tfevents_scalar(t, 9, long_tag, 7));
    double after = clock_wall();
    assert_int_equal(list_files(dir, &path, 1), 1);
    read_events(path, &all); /* TensorBoard reads it before it is closed */
    tfevents_close(t);

    assert_int_equal(all.n, N + 3);
    assert_string_equal(all.events[0].version, "brain.Event:2");
    assert_int_equal(all.events[0].step, 0);
    assert_int_equal(all.events[1].session_status, 1);
    assert_int_equal(all.events[1].step, 1);
    for (int i = 0; i < N; i++) {
        const Event *e = &all.events[i + 2];
        float expected = (float)given[i].value;
        assert_int_equal(e->step, given[i].step);
        assert_string_equal(e->tag, given[i].tag);
        assert_string_equal(e->version, "");
        assert_int_equal(e->session_status, 0);
        if (isnan(expected))
            assert_true(isnan(e->value));
        else
            assert_memory_equal(&e->value, &expected, sizeof expected);
    }
    assert_string_equal(all.events[N + 2].tag, long_tag);
    double last = before;
    for (int i = 0; i < all.n; i++) {
        if (!(all.events[i].wall >= last)) fail_msg("event %d is before the one before it", i);
        last = all.events[i].wall;
    }
    assert_true(last <= after);
    free(all.events);
    free(long_tag);
    free(path);
}

/* TensorBoard sorts files by name and reads those with "tfevents" in it: seconds of ten digits, host, pid. */
static void test_file_name(void **state)
{
    char *dir = *state, *path, host[128] = "";
    long long seconds = 0;
    int used = 0;
    TfEvents *t;
    double before = clock_wall();
    assert_ok(tfevents_open(&t, dir, 0));
    double after = clock_wall();
    tfevents_close(t);
    assert_int_equal(list_files(dir, &path, 1), 1);
    const char *name = file_basename(path);
    if (sscanf(name, "events.out.tfevents.%10lld.%n", &seconds, &used) != 1 || !used) fail_msg("%s", name);
    assert_in_range(seconds, (long long)before, (long long)after);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    char *rest = mem_printf("%s.%d.0", host, (int)getpid());
    assert_string_equal(name + used, rest);
    free(rest);
    free(path);
}

/* ---- as a run writes them ---- */

static StepRecord record_of(int64_t step, double salt)
{
    double k = (double)step + salt;
    return (StepRecord){.step = step, .loss = 1 / k, .lr = 1e-5 * k, .grad_norm = 2 * k, .seq_per_s = 30 * k};
}

typedef struct {
    const char *dir;
    int64_t from, to, evaluated;
    double salt;
} Part;

/* A process of a run: resumes after `from`, where the last evaluation was at `evaluated`, and is killed after `to`. */
static int run_part(void *arg)
{
    const Part *p = arg;
    Metrics *m;
    if (metrics_open(&m, p->dir, p->from, p->evaluated) != OK) return 1;
    for (int64_t step = p->evaluated < p->from ? p->from : p->from + 1; step <= p->to; step++) {
        StepRecord r = record_of(step, p->salt);
        if (step > p->from && metrics_step(m, &r) != OK) return 2;
        if (step % 3 == 0 && metrics_eval(m, step, "dev", "accuracy", (double)step + p->salt) != OK) return 3;
    }
    return 0;
}

static void assert_scalar(const Event *e, int64_t step, const char *tag, double value)
{
    float expected = (float)value;
    assert_string_equal(e->tag, tag);
    assert_int_equal(e->step, step);
    assert_memory_equal(&e->value, &expected, sizeof expected);
}

/* Killed after step 8 and resumed from the save at step 6, before or after the evaluation there: TensorBoard shows each
   step and each evaluation once. */
static void check_no_step_twice(const char *dir, int64_t evaluated)
{
    const Part parts[] = {{dir, 0, 8, 0, 0}, {dir, 6, 10, evaluated, 0.25}};
    for (int i = 0; i < 2; i++) {
        Buf errors = {0};
        char *paths[2];
        assert_int_equal(testing_child(run_part, (void *)&parts[i], &errors), 0);
        buf_free(&errors);
        if (i == 1) continue;
        assert_int_equal(list_files(dir, paths, 2), 1); /* a name that sorts first at any time of the clock */
        char *older = mem_printf("%s/events.out.tfevents.0000000001.host.1.0", dir);
        assert_ok(file_rename(paths[0], older));
        free(paths[0]);
        free(older);
    }
    Events kept = read_folder(dir);
    const Event *e = kept.events;
    assert_int_equal(kept.n, 10 * 4 + 3);
    for (int64_t step = 1; step <= 10; step++) {
        StepRecord r = record_of(step, step > 6 ? 0.25 : 0);
        assert_scalar(e++, step, "train/loss", r.loss);
        assert_scalar(e++, step, "train/lr", r.lr);
        assert_scalar(e++, step, "train/grad_norm", r.grad_norm);
        assert_scalar(e++, step, "train/seq_per_s", r.seq_per_s);
        double salt = step > evaluated ? 0.25 : 0;
        if (step % 3 == 0) assert_scalar(e++, step, "eval/dev/accuracy", (double)step + salt);
    }
    free(kept.events);
}

static void test_no_step_twice(void **state)
{
    static const int64_t evaluated[] = {6, 3};
    for (int i = 0; i < 2; i++) {
        char *dir = mem_printf("%s/%d", (char *)*state, i);
        assert_ok(file_make_directories(dir));
        check_no_step_twice(dir, evaluated[i]);
        free(dir);
    }
}

static void test_no_such_folder(void **state)
{
    char *missing = file_join(*state, "missing");
    TfEvents *t = NULL;
    assert_status(tfevents_open(&t, missing, 0), E_IO);
    assert_message("missing/events.out.tfevents.");
    assert_null(t);
    tfevents_close(NULL);
    free(missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_checksum),
        cmocka_unit_test_setup_teardown(test_scalars, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_file_name, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_no_step_twice, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_no_such_folder, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
