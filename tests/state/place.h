/* A directory per test. */
#pragma once

#include "testing.h"

static char *place; /* this test's directory */

static inline int make_place(void **state)
{
    (void)state;
    place = testing_directory();
    return 0;
}

static inline int remove_place(void **state)
{
    (void)state;
    Status status = file_remove_tree(place);
    free(place);
    return status == OK ? 0 : -1;
}
