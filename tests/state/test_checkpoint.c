/* Checkpoints without faults: files written, kept and read; and the folder's lock. */
#include "checkpoint_sample.h"
#include "place.h"

#include <signal.h>
#include <sys/time.h>

#include "base/lock.h"
#include "formats/tensor_file.h"

static bool there(const char *name)
{
    char *path = file_join(place, name);
    bool result = file_exists(path);
    free(path);
    return result;
}

/* The visible names in a folder are `expected`, each followed by a space. */
static void assert_names(const char *folder, const char *expected)
{
    FileList list;
    Buf text = {0};
    buf_puts(&text, "");
    assert_ok(file_list(folder, &list));
    for (int i = 0; i < list.count; i++) {
        const char *name = file_basename(list.paths[i]);
        if (name[0] != '.') buf_printf(&text, "%s ", name);
    }
    assert_string_equal(text.data, expected);
    buf_free(&text);
    file_list_free(&list);
}

/* ---- Written files ---- */

static void test_round_trip(void **state)
{
    (void)state;
    sample_assert_newest(place, -1);
    assert_ok(sample_save(place, 7, 1));
    sample_assert_newest(place, 7);
    char *path = file_join(place, "checkpoint-7");
    assert_names(place, "checkpoint-7 ");
    assert_names(path, "config.json manifest.json model.safetensors optimizer.safetensors state.json ");

    /* With a slash at the end, and through a folder of another name. */
    char *slash = mem_printf("%s/", path), *elsewhere = file_join(place, "mine");
    Loaded got = sample_load(slash, NULL);
    assert_ok(got.status);
    assert_true(got.equal);
    assert_int_equal(rename(path, elsewhere), 0);
    got = sample_load(elsewhere, NULL);
    assert_ok(got.status);
    assert_true(got.equal);
    free(slash);
    free(elsewhere);
    free(path);
}

static void test_files_are_safetensors(void **state)
{
    (void)state;
    TensorFile *file;
    ParamTable t = sample_table();
    float values[70 * 8], *want = mem_array((size_t)t.size, sizeof *want);
    char *again = file_join(place, "again"), *first = file_join(place, "first");
    assert_ok(sample_save(first, 7, 1));
    assert_ok(sample_save(again, 7, 1));
    static const struct {
        const char *file, *prefix;
        int array, count;
    } parts[] = {{"model.safetensors", "", 0, 5},
                 {"optimizer.safetensors", "m.", 1, 10},
                 {"optimizer.safetensors", "v.", 2, 10}};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char *path = mem_printf("%s/checkpoint-7/%s", first, parts[k].file);
        char *twin = mem_printf("%s/checkpoint-7/%s", again, parts[k].file);
        Digest a, b;
        assert_ok(file_digest(path, &a, NULL));
        assert_ok(file_digest(twin, &b, NULL));
        assert_true(digest_equal(a, b)); /* no time, host or path in it */
        assert_ok(tensor_file_open(path, &file));
        assert_int_equal(tensor_file_count(file), parts[k].count);
        assert_true(testing_file_has(path, "\"__metadata__\":{\"format\":\"pt\"}"));
        sample_fill(&t, 7, parts[k].array, want);
        for (int i = 0; i < t.count; i++) {
            const Param *p = &t.params[i];
            char *name = mem_printf("%s%s", parts[k].prefix, p->name);
            int at = tensor_file_find(file, name);
            assert_true(at >= 0);
            const TensorInfo *info = tensor_file_info(file, at);
            assert_int_equal(info->n_dims, p->n_dims);
            assert_int_equal(info->dims[0], p->rows); /* without pad rows */
            assert_ok(tensor_file_read_f32(file, at, values, info->count));
            assert_memory_equal(values, want + p->offset, (size_t)info->count * sizeof(float));
            free(name);
        }
        tensor_file_close(file);
        free(path);
        free(twin);
    }
    free(want);
    free(again);
    free(first);
}

/* ---- The saver ---- */

static void test_background(void **state)
{
    (void)state;
    Saver saver;
    Sample *samples[5];
    assert_ok(saver_init(&saver, place, 2));
    assert_ok(saver_wait(&saver));
    for (int i = 0; i < 5; i++) {
        Sample *s = samples[i] = sample_of(i + 1);
        char *text = mem_strdup(s->text);
        s->state.state = text;
        s->state.beside = true;
        assert_ok(saver_begin(&saver, &s->state)); /* waits for the previous save */
        memset(text, 'x', strlen(text));           /* it was copied */
        free(text);
        if (i == 2)
            while (saver_poll(&saver)) usleep(1000);
    }
    assert_ok(saver_wait(&saver));
    assert_false(saver_poll(&saver));
    assert_int_equal(saver.stats.saved, 5);
    assert_int_equal(saver.stats.failed, 0);
    assert_true(saver.stats.background_s > 0);
    saver_free(&saver);
    saver_free(&saver);
    assert_names(place, "checkpoint-4 checkpoint-5 ");
    sample_assert_newest(place, 5);
    for (int i = 0; i < 5; i++) sample_free(samples[i]);
}

/* A tensor of many blocks, none of them whole. */
static void test_a_large_state(void **state)
{
    (void)state;
    Saver saver;
    Param one = {.name = "w", .rows = 2500037, .cols = 1, .n_dims = 1, .padded = 2500037};
    ParamTable t = {.params = &one, .count = 1, .size = 2500096};
    size_t n = (size_t)t.size;
    float *memory = mem_array(n * 6, sizeof *memory), *got = memory + 3 * n;
    float *arrays[] = {memory, memory + n, memory + 2 * n};
    for (size_t i = 0; i < 3 * n; i++) memory[i] = i % n < 2500037 ? (float)i : 0;
    assert_ok(saver_init(&saver, place, 1));
    assert_ok(saver_begin(
        &saver, &(TrainingState){
                    .params = &t, .read = sample_arrays_read, .read_context = arrays, .state = "{}", .state_size = 2}));
    saver_free(&saver);
    char *path = file_join(place, "checkpoint-0");
    memset(got, 0xff, 3 * n * sizeof *got);
    CheckpointSeen seen = {0};
    assert_ok(checkpoint_verify(path, &seen));
    assert_ok(sample_read(path, &t, &seen, (float *const[]){got, got + n, got + 2 * n}));
    assert_memory_equal(memory, got, 3 * n * sizeof *memory);
    checkpoint_seen_free(&seen);
    free(path);
    free(memory);
}

static void test_keep(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= 4; step++) assert_ok(sample_save(place, step, 3));
    assert_names(place, "checkpoint-2 checkpoint-3 checkpoint-4 ");
    for (int64_t step = 5; step <= 6; step++) assert_ok(sample_save(place, step, 0));
    assert_names(place, "checkpoint-2 checkpoint-3 checkpoint-4 checkpoint-5 checkpoint-6 ");
    /* A run resumed from step 3, so later steps belong to another course. */
    assert_ok(sample_save(place, 4, 2));
    assert_names(place, "checkpoint-3 checkpoint-4 ");
    assert_ok(sample_save(place, 10, 1));
    assert_names(place, "checkpoint-10 ");
    sample_assert_newest(place, 10);
}

static void make_file(const char *name, const char *text)
{
    char *path = file_join(place, name), *above = file_directory(path);
    assert_ok(file_make_directories(above));
    assert_ok(file_write_durable(path, text, strlen(text)));
    free(above);
    free(path);
}

static void test_leftovers_and_strangers(void **state)
{
    (void)state;
    make_file("checkpoint-3.tmp/model.safetensors", "half");
    make_file("checkpoint-9.tmp/manifest.json", "{}");
    make_file("checkpoint-5/trainer_state.json", "{}"); /* another program's folder */
    make_file("checkpoint-x/file", "");
    make_file("checkpoint-07/file", "");
    make_file("checkpoint-8", "a file");
    CheckpointList list;
    assert_ok(checkpoint_find(place, &list));
    assert_int_equal(list.count, 1); /* checkpoint-5 */
    assert_int_equal(list.items[0].step, 5);
    checkpoint_list_free(&list);
    Loaded got = sample_load(NULL, place);
    assert_status(got.status, E_CORRUPT);
    assert_message("checkpoint-5");
    assert_ok(sample_save(place, 3, 1));
    assert_ok(sample_save(place, 6, 1));
    assert_names(place, "checkpoint-07 checkpoint-5 checkpoint-6 checkpoint-8 checkpoint-x ");
    sample_assert_newest(place, 6);

    /* A save renames it to .old. */
    assert_ok(sample_save(place, 5, 1));
    sample_assert_newest(place, 5);
    assert_true(there("checkpoint-5.old/trainer_state.json"));
    char *missing = file_join(place, "nothing/here");
    assert_ok(checkpoint_remove_leftovers(missing));
    assert_ok(checkpoint_find(missing, &list));
    assert_int_equal(list.count, 0);
    free(missing);
}

/* The same step again: with an equal state, with another state, damaged. */
static void test_same_step(void **state)
{
    (void)state;
    struct stat before, after;
    char *path = file_join(place, "checkpoint-4"), *aside = file_join(place, "checkpoint-4.old");
    char *model = file_join(path, "model.safetensors");
    assert_ok(sample_save(place, 4, 1));
    assert_int_equal(stat(model, &before), 0);
    assert_ok(sample_save(place, 4, 1));
    assert_int_equal(stat(model, &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);

    Saver saver;
    Sample *s = sample_of(4);
    char *other = mem_strdup(s->text);
    strstr(other, "0.125")[2] = '9';
    s->state.state = other;
    assert_ok(saver_init(&saver, place, 1));
    assert_ok(saver_begin(&saver, &s->state));
    CheckpointSeen seen = {0};
    assert_ok(checkpoint_verify(path, &seen));
    assert_string_equal(seen.state.data, other);
    assert_int_equal(seen.step, 4);
    assert_names(place, "checkpoint-4 ");

    assert_int_equal(truncate(model, 100), 0);
    assert_status(checkpoint_verify(path, &seen), E_CORRUPT);
    assert_message("model.safetensors: has 100 bytes, the manifest says");
    s->state.state = s->text;
    assert_ok(saver_begin(&saver, &s->state));
    saver_free(&saver);
    sample_assert_newest(place, 4);
    assert_names(place, "checkpoint-4 ");

    /* After an interrupted replacement readers take the .old one. */
    assert_int_equal(rename(path, aside), 0);
    sample_assert_newest(place, 4);
    assert_ok(sample_save(place, 5, 1));
    assert_names(place, "checkpoint-5 ");
    checkpoint_seen_free(&seen);
    free(other);
    sample_free(s);
    free(model);
    free(aside);
    free(path);
}

/* ---- Refusals ---- */

static void test_another_model(void **state)
{
    (void)state;
    ParamTable t = sample_table();
    Param other[5];
    float *memory = mem_array((size_t)t.size * 3 + 3000, sizeof *memory);
    assert_ok(sample_save(place, 7, 1));
    char *path = file_join(place, "checkpoint-7");
    memcpy(other, sample_params, sizeof other);
    ParamTable changed = t;
    changed.params = other;
    other[0].rows = 2;
    strcpy(other[3].name, "bert.embeddings.LayerNorm.gamma");
    CheckpointSeen seen = {0};
    assert_ok(checkpoint_verify(path, &seen));
    assert_status(sample_read(path, &changed, &seen, (float *const[]){memory, memory, memory}), E_FORMAT);
    assert_message("model.safetensors: was saved from another model; 3 tensors differ");
    assert_message("different:  classifier.weight: expected f32 (2, 8), found f32 (3, 8)");
    assert_message("missing:    bert.embeddings.LayerNorm.gamma (8)");
    assert_message("unexpected: bert.embeddings.LayerNorm.weight");
    checkpoint_seen_free(&seen);
    free(path);
    free(memory);
}

static void test_space(void **state)
{
    (void)state;
    ParamTable t = sample_table();
    uint64_t total = 0, size, available;
    assert_ok(sample_save(place, 7, 1));
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "manifest.json", "state.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = mem_printf("%s/checkpoint-7/%s", place, files[i]);
        assert_ok(file_size(path, &size));
        total += size;
        free(path);
    }
    assert_true(checkpoint_bytes(&t, NULL) >= total);
    assert_ok(checkpoint_check_space(place, checkpoint_bytes(&t, NULL)));
    char *later = file_join(place, "not/yet/there");
    assert_ok(checkpoint_check_space(later, 1));
    assert_ok(file_free_bytes(place, &available));
    assert_status(checkpoint_check_space(place, UINT64_MAX / 2), E_IO);
    assert_message(place);
    assert_message("a checkpoint needs 9223372036854775807 bytes");
    free(later);
}

static void test_bad_file_names(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "/b",
                                      "a/",
                                      "a/b/c",
                                      "../b",
                                      "a/.b",
                                      "..",
                                      ".hidden",
                                      "manifest.json",
                                      "state.json",
                                      "model.safetensors",
                                      "a b",
                                      "\xc3\xa4"};
    Saver saver;
    Sample *s = sample_of(7);
    assert_ok(saver_init(&saver, place, 1));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        s->files[0].name = bad[i];
        assert_status(saver_begin(&saver, &s->state), E_FAIL);
        assert_status(saver_wait(&saver), E_FAIL);
        assert_message("cannot be the name of a file");
    }
    assert_int_equal(saver.stats.failed, (int)(sizeof bad / sizeof *bad));
    assert_names(place, "");
    saver_free(&saver);
    sample_free(s);
}

/* A failure of the thread: training continues, a warning reports it, and saver_wait returns it. */
static int fail_in_background(void *arg)
{
    (void)arg;
    Saver saver;
    Sample *s = sample_of(8);
    s->files[0].name = "no name";
    s->state.beside = true;
    bool good = saver_init(&saver, place, 1) == OK && saver_begin(&saver, &s->state) == OK;
    good = good && saver_wait(&saver) == E_FAIL && strstr(status_message(), "'no name'") && saver.stats.failed == 1;
    s->files[0].name = "name";
    good = good && saver_begin(&saver, &s->state) == OK && saver_wait(&saver) == OK && saver.stats.saved == 1;
    saver_free(&saver);
    sample_free(s);
    return good ? 0 : 1;
}

static void test_background_failure(void **state)
{
    (void)state;
    Buf errors = {0};
    assert_ok(sample_save(place, 7, 1));
    assert_int_equal(testing_child(fail_in_background, NULL, &errors), 0);
    assert_non_null(
        strstr(errors.data, "warning: checkpoint-8 could not be saved, earlier checkpoints stay: 'no name'"));
    sample_assert_newest(place, 8);
    buf_free(&errors);
}

/* ---- The lock ---- */

static int take_lock(void *arg)
{
    FolderLock lock;
    Status status = lock_take_within(&lock, arg, 0);
    if (status != OK) fprintf(stderr, "%s", status_message());
    return status == OK ? 0 : 1; /* the end of the process releases it */
}

static void test_lock(void **state)
{
    (void)state;
    FolderLock lock, second;
    Buf errors = {0};
    char host[256] = "", *out = file_join(place, "a/b");
    gethostname(host, sizeof host - 1);
    char *holder = mem_printf("%s: this output folder is in use by process %ld on host %s;", out, (long)getpid(), host);
    assert_ok(lock_take(&lock, out));
    assert_true(lock.held);
    assert_int_not_equal(testing_child(take_lock, out, &errors), 0);
    assert_non_null(strstr(errors.data, holder));
    assert_status(lock_take_within(&second, out, 0), E_FAIL); /* also in the same process */
    lock_release(&second);
    assert_int_not_equal(testing_child(take_lock, out, &errors), 0);
    lock_release(&lock);
    lock_release(&lock);
    for (int i = 0; i < 3; i++) assert_int_equal(testing_child(take_lock, out, &errors), 0);
    assert_ok(lock_take(&lock, out));
    lock_release(&lock);
    buf_free(&errors);
    free(holder);
    free(out);
}

/* A process that takes the lock and lives until it is killed. Returns when it has the lock. */
static pid_t hold_lock(const char *out)
{
    int ends[2];
    char ready = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FolderLock lock;
        if (lock_take_within(&lock, out, 0) != OK || write(ends[1], "", 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ends[0], &ready, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return child;
}

/* A process that takes the lock, and what it says. The holder is killed when the process says that it waits. */
static void wait_for_lock(const char *out, pid_t holder, Buf *said)
{
    int ends[2], ended;
    char piece[512];
    bool held = true;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FolderLock lock;
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        _exit(lock_take(&lock, out) == OK ? 0 : 1);
    }
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;) {
        buf_append(said, piece, (size_t)n);
        if (!held || !strstr(said->data, "waiting up to")) continue;
        held = false;
        kill(holder, SIGKILL);
        assert_int_equal(waitpid(holder, NULL, 0), holder);
    }
    close(ends[0]);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(!held && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}

static void test_lock_is_waited_for(void **state)
{
    (void)state;
    static const struct {
        const char *job, *line;
    } cases[] = {{NULL, "; waiting up to 10 s for it to end"}, {"PBS_JOBID", "; waiting up to 60 s for it to end"}};
    char *out = file_join(place, "c");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf errors = {0};
        if (cases[i].job) setenv(cases[i].job, "1.host", 1);
        pid_t holder = hold_lock(out);
        wait_for_lock(out, holder, &errors);
        assert_non_null(strstr(errors.data, cases[i].line));
        if (cases[i].job) unsetenv(cases[i].job);
        buf_free(&errors);
    }
    free(out);
}

static void on_alarm(int signal) { (void)signal; }
static void raise_alarm(const char *line, size_t size)
{
    (void)line;
    (void)size;
    raise(SIGALRM);
}

/* A signal ends the wait with E_STOPPED, also one that comes while the wait is announced. A lock that is still held is
 * E_FAIL, in a batch job E_BUSY. */
static void test_lock_refused(void **state)
{
    (void)state;
    const struct itimerval often = {.it_value = {.tv_usec = 100000}, .it_interval = {.tv_usec = 100000}}, never = {0};
    FolderLock lock, second;
    char *out = file_join(place, "d");
    signal(SIGALRM, on_alarm);
    assert_ok(lock_take(&lock, out));
    setenv("CAIRN_TEST_LOCK_WAIT", "5s", 1);
    log_set_sink(raise_alarm);
    assert_status(lock_take(&second, out), E_STOPPED);
    log_set_sink(NULL);
    unsetenv("CAIRN_TEST_LOCK_WAIT");
    setitimer(ITIMER_REAL, &often, NULL);
    assert_status(lock_take(&second, out), E_STOPPED);
    assert_non_null(strstr(status_message(), "stopped while waiting for process"));
    assert_status(lock_take_within(&second, out, 0.2), E_FAIL);
    assert_message("this output folder is in use by process");
    setitimer(ITIMER_REAL, &never, NULL);
    setenv("CAIRN_TEST_LOCK_WAIT", "0.01s", 1);
    assert_status(lock_take(&second, out), E_FAIL);
    setenv("SLURM_JOB_ID", "7", 1);
    assert_status(lock_take(&second, out), E_BUSY);
    assert_message("this output folder is in use by process");
    unsetenv("SLURM_JOB_ID");
    unsetenv("CAIRN_TEST_LOCK_WAIT");
    signal(SIGALRM, SIG_DFL);
    lock_release(&lock);
    free(out);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_files_are_safetensors),
        TEST(test_background),
        TEST(test_a_large_state),
        TEST(test_keep),
        TEST(test_leftovers_and_strangers),
        TEST(test_same_step),
        TEST(test_another_model),
        TEST(test_space),
        TEST(test_bad_file_names),
        TEST(test_background_failure),
        TEST(test_lock),
        TEST(test_lock_is_waited_for),
        TEST(test_lock_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
