/* Opening backends, the entries of their tables, and the memory of a region. */
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>

#include "ops/harness.h"

static void test_tables_are_whole(void **state)
{
    (void)state;
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        Backend *b = backend;
        char why[200] = "";
        for (int op = 0; op < N_OPS; op++)
            if (!b->op[op].run && !op_is_exchange((Op)op) && !op_is_link((Op)op))
                fail_msg("%s has no %s", b->name, op_info((Op)op)->name);
        assert_true(b->threads >= 1);
        assert_true(b->describe[0] != '\0');
        assert_true(b->supports(b, b->best_compute(b), why, sizeof why));
        assert_true(b->supports(b, F32, why, sizeof why));
        assert_false(b->supports(b, I8, why, sizeof why));
        assert_true(why[0] != '\0');
    }
}

/* Every count gets the smallest bucket that holds it; the capacity is one; none is above it. */
static void test_buckets(void **state)
{
    (void)state;
    static const int64_t capacities[] = {1, 50, 64, 65, 200, 4096};
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend))
        for (size_t c = 0; c < sizeof capacities / sizeof *capacities; c++) {
            int64_t before = 1;
            for (int64_t rows = 1; rows <= capacities[c]; rows++) {
                int64_t bucket = backend->bucket(rows, capacities[c]);
                assert_true(bucket >= rows && bucket <= capacities[c] && bucket >= before);
                assert_int_equal(backend->bucket(bucket, capacities[c]), bucket);
                before = bucket;
            }
            assert_int_equal(before, capacities[c]);
        }
    assert_int_equal(ops_ref()->bucket(1, 1000), 64);
    assert_int_equal(ops_ref()->bucket(64, 1000), 64);
    assert_int_equal(ops_ref()->bucket(65, 1000), 128);
    assert_int_equal(ops_ref()->bucket(961, 1000), 1000);
}

static void test_regions(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 64, 4096, 4097, 3u << 20};
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend))
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *region;
            unsigned char in[64], out[64];
            assert_ok(backend_alloc(backend, sizes[i], &region));
            assert_int_equal((uintptr_t)region % 4096, 0);
            unsigned char *host = mem_alloc(sizes[i]);
            memset(host, 1, sizes[i]);
            backend_download(backend, host, region, sizes[i]);
            for (size_t j = 0; j < sizes[i]; j++) assert_int_equal(host[j], 0);
            free(host);
            for (size_t j = 0; j < sizeof in; j++) in[j] = (unsigned char)(3 * j + 1);
            if (sizes[i] >= sizeof in) {
                unsigned char *end = (unsigned char *)region + sizes[i] - sizeof in;
                backend_upload(backend, end, in, sizeof in);
                backend_download(backend, out, end, sizeof out);
                assert_memory_equal(in, out, sizeof in);
            }
            backend_release(backend, region, sizes[i]);
        }
}

typedef struct {
    ptrdiff_t at;
} Touch;

static int touch(void *arg)
{
    const Touch *t = arg;
    void *region;
    signal(SIGSEGV, SIG_DFL); /* not the sanitizer's */
    if (backend_alloc(ops_ref(), 8192, &region) != OK) return 1;
    ((volatile char *)region)[t->at] = 1;
    return 0;
}

/* The pages before and behind a region may not be touched; its own first and last byte may. */
static void test_guard_pages(void **state)
{
    (void)state;
    static const struct {
        ptrdiff_t at;
        bool allowed;
    } cases[] = {{0, true}, {8191, true}, {-1, false}, {-4096, false}, {8192, false}, {8192 + 4095, false}};
    void *region;
    unsigned char resident;
    assert_ok(backend_alloc(ops_ref(), 8192, &region));
    assert_int_equal(mincore((char *)region - 4096, 4096, &resident), 0); /* they are pages of ours, not chance holes */
    assert_int_equal(mincore((char *)region + 8192, 4096, &resident), 0);
    backend_release(ops_ref(), region, 8192);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf errors = {0};
        Touch t = {cases[i].at};
        int status = testing_child(touch, &t, &errors);
        if (cases[i].allowed)
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        else
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        buf_free(&errors);
    }
}

static void test_regions_too_large(void **state)
{
    (void)state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 5000, (size_t)1 << 60};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *region = NULL;
        assert_status(backend_alloc(ops_ref(), sizes[i], &region), E_MEMORY);
        assert_message("bytes");
    }
}

static void *library; /* of C++, which a backend loaded */

/* operator new with std::nothrow (any object of that empty type), of more than there is. */
static int ask_nothrow(void *arg)
{
    void *found = dlsym(library, "_ZnwmRKSt9nothrow_t");
    void *(*new_nothrow)(size_t, const void *);
    memcpy(&new_nothrow, &found, sizeof found);
    return new_nothrow(SIZE_MAX / 4, arg) == NULL ? 0 : 1;
}

static int ask(void *arg)
{
    void *found = dlsym(library, "_Znwm");
    void *(*new_throwing)(size_t);
    (void)arg;
    memcpy(&new_throwing, &found, sizeof found);
    return new_throwing(SIZE_MAX / 4) == NULL;
}

/* A library in C++ may recover from a lack of memory; where nothing catches its exception the program ends with 76. */
static void test_memory_of_libraries(void **state)
{
    (void)state;
    Buf errors = {0};
    for (Backend *b = ops_next(NULL); b; b = ops_next(b)) continue; /* opens all */
    library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (!library || TESTING_ASAN) skip(); /* the sanitizer's operator new ends the program itself */
    int status = testing_child(ask_nothrow, &errors, &errors);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    buf_free(&errors);
    status = testing_child(ask, NULL, &errors);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 76);
    assert_non_null(strstr(errors.data, "no memory left"));
    buf_free(&errors);
}

static void test_open(void **state)
{
    (void)state;
    Backend *b;
    assert_ok(backend_open("ref", NULL, &b));
    assert_string_equal(b->name, "ref");
    assert_int_equal(b->threads, 1);
    backend_close(b);
    assert_ok(backend_open("auto", NULL, &b));
    backend_close(b);
    backend_close(NULL);
}

/* Puts CAIRN_BACKEND_DIR back as it was. */
static void with_directory(const char *directory, void (*body)(void))
{
    const char *set = getenv("CAIRN_BACKEND_DIR");
    char *old = set ? mem_strdup(set) : NULL;
    setenv("CAIRN_BACKEND_DIR", directory, 1);
    body();
    if (old)
        setenv("CAIRN_BACKEND_DIR", old, 1);
    else
        unsetenv("CAIRN_BACKEND_DIR");
    free(old);
}

static void missing(void)
{
    Backend *b = (Backend *)(void *)&b;
    assert_status(backend_open("other", NULL, &b), E_USAGE);
    assert_null(b);
    assert_message("cairn_other.so");
    assert_message("/nowhere");
    assert_message("../lib/cairn");
}

static void not_a_module(void)
{
    Backend *b;
    assert_status(backend_open("other", NULL, &b), E_USAGE);
    assert_message("cannot load");
    assert_message(getenv("CAIRN_BACKEND_DIR"));
}

/* With a cuda module that cannot be used, another backend opens. */
static void auto_goes_on(void)
{
    Backend *b;
    assert_status(backend_open("cuda", NULL, &b), E_USAGE);
    assert_message("cannot load");
    assert_ok(backend_open("auto", NULL, &b));
    assert_string_not_equal(b->name, "cuda");
    backend_close(b);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const names[] = {"", "../x", "CPU", "a/b", "ref "};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Backend *b;
        assert_status(backend_open(names[i], NULL, &b), E_USAGE);
        assert_message("expected auto, ref, cpu");
    }
    with_directory("/nowhere", missing);
    char *directory = testing_directory(), *module = file_join(directory, "cairn_other.so");
    assert_ok(file_write_durable(module, "text", 4));
    with_directory(directory, not_a_module);
    free(module);
    module = file_join(directory, "cairn_cuda.so");
    assert_ok(file_write_durable(module, "text", 4));
    with_directory(directory, auto_goes_on);
    assert_ok(file_remove_tree(directory));
    free(module);
    free(directory);
}

/* OP_LIST's marks, as the passes read them. */
static void test_op_table(void **state)
{
    (void)state;
    const OpInfo *info = op_info(OP_GELU_BWD);
    assert_string_equal(info->name, "gelu_bwd");
    assert_int_equal(info->n_in, 2);
    assert_int_equal(info->n_out, 3);
    const OperandInfo *dpre = &info->out[GELU_BWD_OUT_dpre], *g = &info->out[GELU_BWD_OUT_g];
    assert_string_equal(g->name, "g");
    assert_true(g->optional && !g->accumulated && !g->shares_always);
    assert_int_equal(dpre->shares, GELU_BWD_IN_dg);
    assert_int_equal(g->shares, GELU_BWD_IN_pre);
    info = op_info(OP_LINEAR_DGRAD);
    assert_true(info->in[LINEAR_DGRAD_IN_add].optional && info->out[LINEAR_DGRAD_OUT_dx].shares_always);
    assert_int_equal(info->out[LINEAR_DGRAD_OUT_dx].shares, LINEAR_DGRAD_IN_add);
    const OperandInfo *db = &op_info(OP_LINEAR_WGRAD)->out[LINEAR_WGRAD_OUT_db];
    assert_true(db->accumulated && db->optional);
    assert_int_equal(op_info(OP_EMBED)->ctl, EMBED_IN_ctl);
    assert_int_equal(op_info(OP_LINEAR)->ctl, -1);
    for (int op = 0; op < N_OPS; op++)
        for (int i = 0; i < op_info((Op)op)->n_out; i++) {
            const OperandInfo *out = &op_info((Op)op)->out[i];
            assert_true(out->shares < op_info((Op)op)->n_in);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_are_whole),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_guard_pages),
        cmocka_unit_test(test_regions_too_large),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_op_table),
        cmocka_unit_test(test_memory_of_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
