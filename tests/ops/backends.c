/* The backends that an op is tested on. */
#include "ops/harness.h"

static Backend *opened[4];
static int n_opened;

static void close_all(void)
{
    while (n_opened > 0) backend_close(opened[--n_opened]);
}

int ops_backends(Backend *backends[4])
{
    int n = n_opened;
    const char *wanted = getenv("CAIRN_TEST_BACKENDS");
    if (n == 0) {
        char *names = mem_printf("ref,%s", wanted ? wanted : "cpu"), *rest = NULL;
        for (char *name = strtok_r(names, ",", &rest); name && n < 4; name = strtok_r(NULL, ",", &rest)) {
            const char *attention = n > 0 ? getenv("CAIRN_TEST_ATTENTION") : NULL;
            const BackendOptions options = {.threads = 2,
                                            .attention = attention && strcmp(attention, "cudnn") == 0 ? ATTENTION_CUDNN
                                                                                                      : ATTENTION_AUTO};
            if (backend_open(name, &options, &opened[n]) == OK) {
                n++;
                continue;
            }
            if (n > 0 && wanted && getenv("CAIRN_TEST_MAY_SKIP")) {
                print_message("skipped: %s\n", status_message());
                exit(77);
            }
            if (n == 0 || wanted) fail_msg("%s does not open: %s", name, status_message());
            print_message("skipped on %s: %s\n", name, status_message());
        }
        free(names);
        n_opened = n;
        atexit(close_all); /* before what the modules end by themselves */
    }
    memcpy(backends, opened, sizeof opened);
    return n;
}

Backend *ops_ref(void)
{
    Backend *backends[4];
    ops_backends(backends);
    return backends[0];
}
