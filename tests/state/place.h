/* A directory per test. */
#ifndef CAIRN_TESTS_STATE_PLACE_H
#define CAIRN_TESTS_STATE_PLACE_H

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

#endif
