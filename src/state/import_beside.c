/* The files beside the weights. */
#include <stdlib.h>
#include <string.h>

#include "state/import.h"

char *import_find_beside(const char *path, const char *name)
{
    char *directory = file_is_directory(path) ? mem_strdup(path) : file_directory(path);
    char *found = file_join(directory, name);
    free(directory);
    if (file_exists(found)) return found;
    free(found);
    return NULL;
}

char *import_find_config(const char *path)
{
    char *found = import_find_beside(path, "config.json");
    return found ? found : import_find_beside(path, "bert_config.json");
}
