#include "base/module.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

/* Folders that may hold cairn_<name>.so, in the order they are searched; NULL where one does not exist. */
typedef struct {
    const char *what;
    char *path;
} Place;
enum { N_PLACES = 3 };

static char *executable_directory(void)
{
    char path[4096];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    if (len <= 0) return NULL;
    path[len] = '\0';
    return file_directory(path);
}

static void places_init(Place places[N_PLACES])
{
    const char *set = getenv("CAIRN_BACKEND_DIR");
    char *here = executable_directory();
    places[0] = (Place){"$CAIRN_BACKEND_DIR", set && *set ? mem_strdup(set) : NULL};
    places[1] = (Place){"the program's folder", here};
    places[2] = (Place){"the installation's lib", here ? file_join(here, "../lib/cairn") : NULL};
}

static void places_free(Place places[N_PLACES])
{
    for (int i = 0; i < N_PLACES; i++) free(places[i].path);
}

/* Path of the module, or NULL with the searched places in `looked`. */
static char *find_module(const char *name, Buf *looked)
{
    Place places[N_PLACES];
    places_init(places);
    char *module = mem_printf("cairn_%s.so", name), *found = NULL;
    for (int i = 0; i < N_PLACES && !found; i++) {
        buf_printf(looked, "%s%s (%s)", i ? ", " : "", places[i].path ? places[i].path : "not set", places[i].what);
        if (!places[i].path) continue;
        found = file_join(places[i].path, module);
        if (!file_exists(found)) {
            free(found);
            found = NULL;
        }
    }
    free(module);
    places_free(places);
    return found;
}

Status module_load(const char *kind, const char *name, uint64_t abi, const char *advice, void **handle)
{
    Status status = OK;
    Buf looked = {0};
    char *path = find_module(name, &looked);
    if (!path) {
        status = fail(E_USAGE, "%s '%s': cairn_%s.so is in none of: %s. %s", kind, name, name, looked.data, advice);
        goto done;
    }
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*handle) {
        status = fail(E_USAGE, "%s '%s': cannot load %s: %s", kind, name, path, dlerror());
        goto done;
    }
    const uint64_t *found = dlsym(*handle, "cairn_module_abi");
    if (!found || *found != abi)
        status = fail(E_USAGE, "%s '%s': %s belongs to another build of cairn; build it again", kind, name, path);
done:
    buf_free(&looked);
    free(path);
    return status;
}

Status module_symbol(void *handle, const char *kind, const char *name, const char *symbol, void **address)
{
    *address = dlsym(handle, symbol);
    if (*address) return OK;
    return fail(E_USAGE, "%s '%s': cairn_%s.so has no %s; it is of another version", kind, name, name, symbol);
}
