/* The backends that an op is tested on. */
#include "ops/harness.h"

static Backend *opened[4];
static int n_opened;

static void close_all(void)
{
    while (n_opened > 0) backend_close(opened[--n_opened]);
}

static void open_all(void)
{
    const char *wanted = getenv("CAIRN_TEST_BACKENDS");
    char *names = mem_printf("ref,%s", wanted ? wanted : "cpu"), *rest = NULL;
    for (char *name = strtok_r(names, ",", &rest); name && n_opened < 4; name = strtok_r(NULL, ",", &rest)) {
        const char *attention = n_opened > 0 ? getenv("CAIRN_TEST_ATTENTION") : NULL;
        const BackendOptions options = {
            .threads = 2, .attention = attention && strcmp(attention, "cudnn") == 0 ? ATTENTION_CUDNN : ATTENTION_AUTO};
        if (backend_open(name, &options, &opened[n_opened]) == OK) {
            n_opened++;
            continue;
        }
        if (n_opened > 0 && wanted && testing_may_skip()) {
            print_message("skipped: %s\n", status_message());
            exit(77);
        }
        if (n_opened == 0 || wanted) fail_msg("%s does not open: %s", name, status_message());
        print_message("skipped on %s: %s\n", name, status_message());
    }
    free(names);
    atexit(close_all); /* registered last, so that it runs before the modules' own */
}

Backend *ops_next(const Backend *b)
{
    int i = 0;
    if (n_opened == 0) open_all();
    while (b && opened[i++] != b) {}
    return i < n_opened ? opened[i] : NULL;
}

Backend *ops_ref(void) { return ops_next(NULL); }
