/* The backend of the training tests: cuda_host, or the one that CAIRN_TEST_BACKEND names (cuda: a real GPU).
   CAIRN_TEST_ONLY is a pattern of the tests to run. */
#pragma once

#include "equiv/training.h"

static inline const char *which_backend(void)
{
    const char *set = getenv("CAIRN_TEST_BACKEND");
    return set && *set ? set : "cuda_host";
}
#define BACKEND which_backend()

static inline bool on_a_gpu(void) { return strcmp(BACKEND, "cuda_host") != 0; }

/* Ends the program with 77 (skipped) where the backend does not open and testing_may_skip. */
static inline void which_begin(void)
{
    const char *only = getenv("CAIRN_TEST_ONLY");
    Backend *b = NULL;
    setenv("CAIRN_TEST_CUDA_HOST_DEVICE", "64", 1); /* a device with 64 MiB of its own: the host reads it by copies */
    if (only && *only) cmocka_set_test_filter(only);
    if (backend_open(BACKEND, NULL, &b) == OK) {
        backend_close(b);
        return;
    }
    bool skipped = testing_may_skip();
    print_message("%s: %s\n", skipped ? "skipped" : "failed", status_message());
    exit(skipped ? 77 : 1);
}
