/* A folder per test with the path of a hostile file in it. Define HOSTILE_NAME before including this. */
#pragma once

#include "tensor_testing.h"

static char *place, *path; /* the folder, and the file in it */

static int setup(void **state)
{
    (void)state;
    place = testing_directory();
    path = file_join(place, HOSTILE_NAME);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    Status status = file_remove_tree(place);
    free(place);
    free(path);
    return status == OK ? 0 : -1;
}
