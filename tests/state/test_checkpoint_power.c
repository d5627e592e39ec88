/* Power loss: the test records every call of a save and replays it in a model of a disk. The disk keeps all flushed
   data, and of the rest an arbitrary part: any length of a file's unflushed tail (or zeros), any subset of a folder's
   unflushed changes. After every call the power fails, several times; the disk's contents must then load as the
   previous or the new checkpoint. With a disk that ignores fsync the same test must find states that do not load, or it
   proves nothing. */
#include "calls.h"
#include "checkpoint_sample.h"
#include "place.h"

#include <dirent.h>

static char *out, *after; /* the output folder; the folder after a crash */

/* ---- The recorded calls ---- */

typedef struct {
    CallKind kind;
    char *path, *to;
    Buf data;
    bool directory;
} Record;

static struct {
    Record *items;
    int count, cap;
} trace;

static void record(CallKind kind, const char *path, const char *to, const void *data, size_t len, bool directory)
{
    if (strncmp(path, out, strlen(out)) != 0) return;
    MEM_GROW(trace.items, trace.count, trace.cap);
    Record *r = &trace.items[trace.count++];
    *r = (Record){.kind = kind, .path = mem_strdup(path), .to = to ? mem_strdup(to) : NULL, .directory = directory};
    if (len > 0) buf_append(&r->data, data, len);
}

static void forget(void)
{
    for (int i = 0; i < trace.count; i++) {
        free(trace.items[i].path);
        free(trace.items[i].to);
        buf_free(&trace.items[i].data);
    }
    free(trace.items);
    memset(&trace, 0, sizeof trace);
}

/* ---- The model of a disk ---- */

typedef struct Node Node;

typedef struct {
    char name[64];
    Node *node;
} Entry;

typedef struct {
    Entry items[32];
    int count;
} Entries;

/* One change of a folder: the names removed and added (either may be ""). */
typedef struct {
    char gone[64], added[64];
    Node *node;
} Change;

struct Node {
    bool directory;
    Buf data;       /* a file's */
    size_t flushed; /* bytes that survive */
    Entries safe, now;
    Change changes[64]; /* since the last flush */
    int n_changes;
};

static Node *nodes[512];
static int n_nodes;

static Node *node_new(bool directory)
{
    assert_true(n_nodes < 512);
    Node *n = nodes[n_nodes++] = mem_alloc(sizeof *n);
    n->directory = directory;
    return n;
}

static void nodes_free(void)
{
    for (int i = 0; i < n_nodes; i++) {
        buf_free(&nodes[i]->data);
        free(nodes[i]);
    }
    n_nodes = 0;
}

static Entry *entry_find(Entries *e, const char *name)
{
    for (int i = 0; i < e->count; i++)
        if (strcmp(e->items[i].name, name) == 0) return &e->items[i];
    return NULL;
}

static void entries_change(Entries *e, const Change *c)
{
    Entry *gone = c->gone[0] ? entry_find(e, c->gone) : NULL;
    if (gone) *gone = e->items[--e->count];
    if (!c->added[0]) return;
    Entry *slot = entry_find(e, c->added);
    if (!slot) {
        assert_true(e->count < 32);
        slot = &e->items[e->count++];
        strcpy(slot->name, c->added);
    }
    slot->node = c->node;
}

static void change(Node *folder, const char *gone, const char *added, Node *node)
{
    Change c = {.node = node};
    snprintf(c.gone, sizeof c.gone, "%s", gone);
    snprintf(c.added, sizeof c.added, "%s", added);
    entries_change(&folder->now, &c);
    assert_true(folder->n_changes < 64);
    folder->changes[folder->n_changes++] = c;
}

static void flush(Node *n)
{
    n->flushed = n->data.len;
    n->safe = n->now;
    n->n_changes = 0;
}

/* Makes the folder's current contents the model's, all flushed. */
static Node *take_in(const char *path)
{
    Node *n = node_new(file_is_directory(path));
    if (n->directory) {
        DIR *dir = opendir(path);
        assert_non_null(dir);
        for (const struct dirent *e; (e = readdir(dir));) {
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
            char *below = file_join(path, e->d_name);
            change(n, "", e->d_name, take_in(below));
            free(below);
        }
        closedir(dir);
    } else {
        assert_ok(file_read(path, 1 << 20, &n->data));
    }
    flush(n);
    return n;
}

/* The folder of a path below `out`, and the last part of its name. `root` is `out`. */
static Node *walk(Node *root, const char *path, const char **name)
{
    const char *part = path + strlen(out);
    Node *n = root;
    *name = "";
    while (*part == '/') {
        char piece[64] = "";
        size_t len = strcspn(++part, "/");
        if (part[len] == '\0') {
            *name = part;
            return n;
        }
        memcpy(piece, part, len);
        Entry *e = entry_find(&n->now, piece);
        assert_non_null(e);
        n = e->node;
        part += len;
    }
    return n;
}

static Node *node_at(Node *root, const char *path)
{
    const char *name;
    Node *folder = walk(root, path, &name);
    if (!*name) return folder;
    Entry *e = entry_find(&folder->now, name);
    assert_non_null(e);
    return e->node;
}

static void play(Node *root, const Record *r, bool ignore_fsync)
{
    const char *name, *to;
    Node *folder = walk(root, r->path, &name);
    switch (r->kind) {
    case CALL_OPEN:
    case CALL_MKDIR:
        change(folder, "", name, node_new(r->directory));
        break;
    case CALL_WRITE: {
        Node *file = node_at(root, r->path);
        buf_append(&file->data, r->data.data, r->data.len);
        break;
    }
    case CALL_FSYNC:
        if (!ignore_fsync) flush(node_at(root, r->path));
        break;
    case CALL_RENAME:
        assert_ptr_equal(walk(root, r->to, &to), folder);
        change(folder, name, to, node_at(root, r->path));
        break;
    case CALL_UNLINK:
        change(folder, name, "", NULL);
        break;
    case CALL_READ:
        break;
    }
}

/* ---- Each test's folders ---- */

static int set_up(void **state)
{
    (void)state;
    char *made = testing_directory();
    place = realpath(made, NULL); /* as /proc/self/fd names its files */
    free(made);
    assert_non_null(place);
    out = file_join(place, "out");
    after = file_join(place, "after");
    return 0;
}

static int tear_down(void **state)
{
    calls_stop();
    forget();
    nodes_free();
    free(out);
    free(after);
    return remove_place(state);
}

/* ---- The crash ---- */

static void materialise(const Node *n, const char *path, uint64_t *random)
{
    if (n->directory) {
        Entries left = n->safe;
        uint64_t often = testing_random(random) % 5; /* none … all of the changes */
        for (int i = 0; i < n->n_changes; i++)
            if (testing_random(random) % 4 < often) entries_change(&left, &n->changes[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        for (int i = 0; i < left.count; i++) {
            char *below = file_join(path, left.items[i].name);
            materialise(left.items[i].node, below, random);
            free(below);
        }
        return;
    }
    size_t loose = n->data.len - n->flushed, len = n->flushed;
    Buf content = {0};
    if (loose > 0) {
        uint64_t kind = testing_random(random) % 3;
        len += kind == 0 ? 0 : kind == 1 ? loose : testing_random(random) % (loose + 1);
    }
    if (len > 0) buf_append(&content, n->data.data, len);
    if (len > n->flushed && testing_random(random) % 2) memset(content.data + n->flushed, 0, len - n->flushed);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    if (len > 0) assert_int_equal(write(fd, content.data, len), (ssize_t)len);
    close(fd);
    buf_free(&content);
}

typedef struct {
    int before, after, bad; /* states found */
} Outcome;

/* Saves (step, batch) into `out`, whose newest batch is `old`, with a power failure after every call. */
static Outcome lose_power(int64_t old, int64_t step, int64_t batch, bool ignore_fsync)
{
    Outcome outcome = {0};
    const int variants = testing_rounds(8, 24);
    uint64_t random = 99;
    Node *root = take_in(out);
    calls_watch(CALLS_WRITING | 1u << CALL_OPEN, 0, 0);
    calls.done = record;
    Status status = sample_save_batch(out, step, batch, 1);
    calls_stop();
    assert_ok(status);
    assert_true(trace.count > 30);
    for (int i = 0; i <= trace.count; i++) {
        if (i > 0) play(root, &trace.items[i - 1], ignore_fsync);
        for (int k = 0; k < variants; k++) {
            materialise(root, after, &random);
            Loaded got = sample_load(NULL, after);
            bool whole = got.status == OK && got.equal;
            if (whole && got.batch == batch)
                outcome.after++;
            else if (whole && got.batch == old && i < trace.count) /* the saver reported it as durable */
                outcome.before++;
            else
                outcome.bad++;
            assert_ok(file_remove_tree(after));
        }
    }
    return outcome;
}

static void lose_power_and_load(int64_t step)
{
    assert_ok(sample_save(out, 7, 1));
    Outcome o = lose_power(7, step, step == 7 ? 12 : 8, false);
    print_message("power lost: %d times the state before, %d times the new one, %d times none\n", o.before, o.after,
                  o.bad);
    assert_int_equal(o.bad, 0);
    assert_true(o.before > 20 * testing_rounds(8, 24) && o.after > 2 * testing_rounds(8, 24));
}

static void test_another_step(void **state)
{
    (void)state;
    lose_power_and_load(8);
}

static void test_the_same_step(void **state)
{
    (void)state;
    lose_power_and_load(7);
}

static void test_that_fsync_matters(void **state)
{
    (void)state;
    assert_ok(sample_save(out, 7, 1));
    Outcome o = lose_power(7, 8, 8, true);
    print_message("a disk that ignores fsync: %d of %d states do not load\n", o.bad, o.before + o.after + o.bad);
    assert_true(o.bad > testing_rounds(8, 24));
}

/* The order of the calls. */
static void test_order(void **state)
{
    (void)state;
    int named = -1, flushed = -1, first_loss = -1, unsafe = 0;
    assert_ok(sample_save(out, 7, 1));
    calls_watch(CALLS_WRITING | 1u << CALL_OPEN, 0, 0);
    calls.done = record;
    Status status = sample_save(out, 8, 1);
    calls_stop();
    assert_ok(status);
    for (int i = 0; i < trace.count; i++) {
        const Record *r = &trace.items[i];
        const char *name = r->path + strlen(out);
        if (r->kind == CALL_WRITE || r->kind == CALL_MKDIR || r->kind == CALL_OPEN) unsafe++;
        if (r->kind == CALL_FSYNC) unsafe = 0; /* one file is written at a time */
        if (r->kind == CALL_RENAME && named < 0) assert_int_equal(unsafe, 0);
        if (r->kind == CALL_RENAME && strcmp(name, "/checkpoint-8.tmp") == 0) {
            const Record *last = &trace.items[i - 1], *manifest = &trace.items[i - 2];
            assert_true(last->kind == CALL_FSYNC && last->directory);
            assert_non_null(strstr(last->path, "/checkpoint-8.tmp"));
            assert_true(manifest->kind == CALL_RENAME);
            assert_non_null(strstr(manifest->to, "/checkpoint-8.tmp/manifest.json"));
            named = i;
        }
        if (named >= 0 && flushed < 0 && r->kind == CALL_FSYNC && strcmp(r->path, out) == 0) flushed = i;
        if (first_loss < 0 && strncmp(name, "/checkpoint-7", 13) == 0) first_loss = i;
    }
    assert_true(named > 0 && flushed > named && first_loss > flushed);
    /* The rename comes first, durably; then the manifest's removal. */
    assert_true(trace.items[first_loss].kind == CALL_RENAME);
    assert_string_equal(trace.items[first_loss].to + strlen(out), "/checkpoint-7.tmp");
    assert_true(trace.items[first_loss + 1].kind == CALL_FSYNC);
    assert_string_equal(trace.items[first_loss + 1].path, out);
    assert_string_equal(trace.items[first_loss + 2].path + strlen(out), "/checkpoint-7.tmp/manifest.json");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_order),
        TEST(test_another_step),
        TEST(test_the_same_step),
        TEST(test_that_fsync_matters),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
