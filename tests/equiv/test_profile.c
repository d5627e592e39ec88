/* `cairn glue --profile N` in the real program (CAIRN_BINARY): the trace, the table of ops and the samples of a device
   agree with each other, and the run has the bits of an unprofiled one. The CUDA backend is its host executor;
   NVIDIA's libraries are those of tests/fakes. */
#include "equiv/profile_files.h"

/* The same weights and moments. */
static void expect_same_run(const Fixture *f, const char *a, const char *b)
{
    char *dir_a = path_in(f, a), *dir_b = path_in(f, b);
    testing_same_file(dir_a, "model.safetensors", dir_b, "model.safetensors");
    testing_same_file(dir_a, "checkpoint-6/optimizer.safetensors", dir_b, "checkpoint-6/optimizer.safetensors");
    free(dir_a);
    free(dir_b);
}

/* ---- on a CPU ---- */

static void test_files_of_a_cpu(void **state)
{
    static const char *const backends[] = {"ref", "cpu"};
    Fixture *f = *state;
    Trace t;
    for (size_t i = 0; i < 2; i++) {
        if (!is_built(backends[i])) continue;
        seed_rates(f, backends[i]);
        char *plain = mem_printf("--backend %s --micro-batch-tokens 96 --max-steps 6 --output-dir '%s/plain-%s'",
                                 backends[i], f->dir, backends[i]);
        char *watched =
            mem_printf("--backend %s --micro-batch-tokens 96 --max-steps 6 --output-dir '%s/watched-%s' --profile 2",
                       backends[i], f->dir, backends[i]);
        char *a = mem_printf("plain-%s", backends[i]), *b = mem_printf("watched-%s", backends[i]);
        must_run(f, "", plain);
        assert_false(has_file(f, a, "trace-rank0.json"));
        must_run(f, "", watched);
        assert_said(f, "profile of 2 steps");
        read_trace(f, b, 4, &t); /* after three that warm up */
        assert_int_equal(t.steps, 2);
        assert_int_equal(t.updates, 2);
        assert_true(t.micros > 2 && t.instrs > 100);
        assert_true(!t.launches_named && t.launches == 0 && t.clocks == 0);
        assert_false(has_file(f, b, "../gpu.csv"));
        check_kernels(f, b, &t);
        expect_same_run(f, a, b);
        close_trace(&t);
        free(plain);
        free(watched);
        free(a);
        free(b);
    }
}

/* Fewer steps than are asked for, with saves and evaluations between them; an older profile's files are removed. */
static void test_short_runs(void **state)
{
    Fixture *f = *state;
    Trace t;
    char *run = mem_printf("--backend ref --max-steps 2 --profile 5 --save-steps 1 --do-eval --eval-splits dev_matched "
                           "--eval-every 1 --output-dir '%s/short'",
                           f->dir),
         *profile = path_in(f, "short/profile"), *old = path_in(f, "short/profile/kernels.csv");
    seed_rates(f, "ref");
    assert_ok(file_make_directories(profile));
    assert_ok(file_write_durable(old, "old\n", 4));
    must_run(f, "", run);
    read_trace(f, "short", 1, &t);
    assert_int_equal(t.steps, 2);
    assert_int_equal(t.saves, 1);
    assert_int_equal(t.evaluations, 1);
    check_kernels(f, "short", &t);
    close_trace(&t);
    free(run);
    free(profile);
    free(old);
}

/* A profile that cannot be written does not end the run. */
static void test_no_place_for_it(void **state)
{
    Fixture *f = *state;
    char *run = mem_printf("--backend ref --max-steps 2 --profile 1 --output-dir '%s/blocked'", f->dir),
         *folder = path_in(f, "blocked"), *file = path_in(f, "blocked/profile"),
         *model = path_in(f, "blocked/run.json");
    seed_rates(f, "ref");
    assert_ok(file_make_directories(folder));
    assert_ok(file_write_durable(file, "", 0));
    must_run(f, "", run);
    assert_said(f, "the profile is given up, training continues");
    assert_true(file_exists(model));
    free(run);
    free(folder);
    free(file);
    free(model);
}

/* ---- on a GPU's twin ---- */

#define TWIN "--backend cuda_host "

static void test_files_of_a_device(void **state)
{
    Fixture *f = *state;
    Trace t;
    char *cell[12];
    if (!is_built("cuda_host")) skip();
    seed_rates(f, "cuda_host");
    char *plain = mem_printf(TWIN "--max-steps 6 --output-dir '%s/plain'", f->dir);
    char *watched = mem_printf(TWIN "--max-steps 6 --profile 2 --output-dir '%s/watched'", f->dir);
    char *nvml = mem_printf("LD_LIBRARY_PATH='%s/nvml'", f->fakes);
    must_run(f, "", plain);
    must_run(f, nvml, watched);
    read_trace(f, "watched", 4, &t);
    assert_int_equal(t.steps, 2);
    assert_true(t.launches_named);
    assert_int_equal(t.launches, t.instrs);
    check_kernels(f, "watched", &t);
    expect_same_run(f, "plain", "watched"); /* one by one, and as graphs */

    char *text = read_text(f, "watched", "../gpu.csv"), *rest = text;
    int n = 0;
    long step = 0;
    double before = -1;
    assert_string_equal(strsep(&rest, "\n"), "time,rank,step,sm_mhz,memory_mhz,watts,celsius,memory_bytes,"
                                             "throttle,ecc_corrected,ecc_uncorrected");
    for (char *line; (line = strsep(&rest, "\n")) && *line; n++) {
        assert_int_equal(split(line, cell, 12), 11);
        double seconds = strtod(cell[0], NULL);
        assert_true(seconds >= before);
        before = seconds;
        assert_string_equal(cell[1], "0");
        assert_true(strtol(cell[2], NULL, 10) >= step && strtol(cell[2], NULL, 10) <= 5);
        step = strtol(cell[2], NULL, 10);
        assert_int_equal(strtol(cell[3], NULL, 10), 1000 + n);
        assert_string_equal(cell[4], "2619");
        assert_string_equal(cell[5], "650.125");
        assert_string_equal(cell[6], "");
        assert_string_equal(cell[7], "12345678901");
        assert_string_equal(cell[8], n % 3 == 2 ? "power-cap|heat" : "none"); /* asked after the clock */
        assert_string_equal(cell[9], "7");
        assert_string_equal(cell[10], "0");
    }
    assert_int_equal(step, 5); /* the profile ended there */
    assert_true(n >= 3);       /* the first, the last, and between */
    assert_int_equal(t.clocks, n);
    close_trace(&t);
    free(text);
    free(plain);
    free(watched);
    free(nvml);
}

/* Each time a message gives the reason for the missing gpu.csv, and the other files exist. */
static void test_without_nvml(void **state)
{
    static const struct {
        const char *folder, *variables, *why;
    } cases[] = {
        {"nvml_old", "", "libnvidia-ml.so.1 has no nvmlDeviceGetPowerUsage"},
        {"nvml", "CAIRN_TEST_NVML_INIT=9", "nvmlInit_v2: Driver Not Loaded (9)"},
        {"nothing", "", ""}, /* no library, or a driver's, which does not know the twin's GPU */
    };
    Fixture *f = *state;
    if (!is_built("cuda_host")) skip();
    seed_rates(f, "cuda_host");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *variables = mem_printf("LD_LIBRARY_PATH='%s/%s' %s", f->fakes, cases[i].folder, cases[i].variables);
        char *out = mem_printf("without-%zu", i);
        char *run = mem_printf(TWIN "--max-steps 1 --profile 1 --output-dir '%s/%s'%s", f->dir, out,
                               i ? " --gpu-metrics 50ms" : "");
        must_run(f, variables, run);
        assert_said(f, "no gpu.csv: ");
        assert_said(f, cases[i].why);
        assert_null(strstr(strstr(f->errors.data, "no gpu.csv: ") + 1, "no gpu.csv: ")); /* once */
        assert_false(has_file(f, out, "../gpu.csv"));
        assert_true(has_file(f, out, "kernels.csv"));
        assert_true(has_file(f, out, "trace-rank0.json"));
        free(variables);
        free(out);
        free(run);
    }
}

/* An external profiler gets the names of instrs, with --profile or CAIRN_NVTX=1. */
static void test_nvtx_names(void **state)
{
    Fixture *f = *state;
    if (!is_built("cuda_host")) skip();
    char *library = file_join(f->fakes, "nvtx.so"), *log = path_in(f, "ranges.txt");
    if (!file_exists(library)) {
        free(library);
        free(log);
        print_message("skipped: the CUDA toolkit has no nvtx3/nvToolsExt.h\n");
        skip();
    }
    seed_rates(f, "cuda_host");
    for (int way = 0; way < 3; way++) {
        Buf text = {0};
        int begun = 0, ended = 0, open = 0, products = 0;
        char *variables =
            mem_printf("NVTX_INJECTION64_PATH='%s' CAIRN_TEST_NVTX_LOG='%s' CAIRN_NVTX=%d", library, log, way == 1);
        char *run = mem_printf(TWIN "--max-steps 1 --output-dir '%s/names-%d' --profile %d", f->dir, way, way == 2);
        must_run(f, variables, run);
        if (file_exists(log)) assert_ok(file_read(log, 1 << 20, &text));
        for (char *rest = text.data, *line; rest && (line = strsep(&rest, "\n")) && *line;) {
            bool end = strcmp(line, "-") == 0;
            begun += !end;
            ended += end;
            open += end ? -1 : 1;
            assert_true(open == 0 || open == 1);
            products += strcmp(line, "linear l0.qkv") == 0;
        }
        assert_int_equal(begun, ended);
        assert_true(way == 0 ? begun == 0 : begun > 50);
        assert_int_equal(products, way > 0);
        buf_free(&text);
        free(variables);
        free(run);
    }
    free(library);
    free(log);
}

int main(void)
{
    if (!getenv("CAIRN_BINARY") || !getenv("CAIRN_BACKEND_DIR")) {
        print_message("skipped: CAIRN_BINARY and CAIRN_BACKEND_DIR are not set\n");
        return 0;
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_files_of_a_cpu),    TEST(test_short_runs),   TEST(test_no_place_for_it),
        TEST(test_files_of_a_device), TEST(test_without_nvml), TEST(test_nvtx_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
