#include "kernels/backend.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef Status (*FillTable)(Backend *b);

/* Folders that may hold cairn_<name>.so, in the order they are searched; NULL: there is none. */
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

/* Path of the module, or NULL with the places where it is not in `looked`. */
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

static Status check_name(const char *name)
{
    size_t n = 0;
    while (islower((unsigned char)name[n]) || isdigit((unsigned char)name[n]) || name[n] == '_') n++;
    if (n == 0 || name[n] != '\0')
        return fail(E_USAGE, "backend '%s': expected auto, ref, cpu, cuda or the name of a module (a-z, 0-9, _)", name);
    return OK;
}

/* OpenMP's threads spin while they wait for each other. Beside another busy process that costs far more than it saves
   (a small BERT trained 5 times slower), so they give way early, unless the user said how they should wait. libgomp
   reads this when it is loaded. */
static void yield_when_waiting(void)
{
    if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "1000", 0);
}

/* Loads cairn_<name>.so and lets it fill the table. A module stays loaded to the end: its threads may outlive us. */
static Status load_module(Backend *b, const char *name)
{
    Status status = OK;
    Buf looked = {0};
    char *path = NULL, *symbol = NULL;
    TRY_DONE(check_name(name));
    path = find_module(name, &looked);
    if (!path) {
        status =
            fail(E_USAGE, "backend '%s': cairn_%s.so is in none of: %s. Build it, set CAIRN_BACKEND_DIR, or use ref",
                 name, name, looked.data);
        goto done;
    }
    yield_when_waiting();
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        status = fail(E_USAGE, "backend '%s': cannot load %s: %s", name, path, dlerror());
        goto done;
    }
    const uint64_t *abi = dlsym(module, "cairn_module_abi");
    if (!abi || *abi != BACKEND_ABI) {
        status = fail(E_USAGE, "backend '%s': %s belongs to another build of cairn; build it again", name, path);
        goto done;
    }
    symbol = mem_printf("cairn_backend_%s", name);
    FillTable fill;
    *(void **)&fill = dlsym(module, symbol);
    if (!fill) {
        status = fail(E_USAGE, "backend '%s': %s has no function %s; it is of another version", name, path, symbol);
        goto done;
    }
    TRY_DONE(fill(b));
done:
    buf_free(&looked);
    free(path);
    free(symbol);
    return status;
}

Status backend_table(const char *name, Backend *table)
{
    backend_ref_table(table);
    return strcmp(name, "ref") == 0 ? OK : load_module(table, name);
}

static Status open_one(const char *name, const BackendOptions *options, Backend **backend)
{
    Status status = OK;
    Backend *b = mem_alloc(sizeof *b);
    backend_ref_table(b);
    if (strcmp(name, "ref") != 0) TRY_DONE(load_module(b, name));
    TRY_DONE(b->open(b, options));
    *backend = b;
    b = NULL;
done:
    free(b);
    return status;
}

Status backend_open(const char *name, const BackendOptions *options, Backend **backend)
{
    const BackendOptions none = {0};
    if (!options) options = &none;
    *backend = NULL;
    if (strcmp(name, "auto") != 0) return open_one(name, options, backend);
    if (open_one("cuda", options, backend) == OK) return OK;
    log_debug("%s", status_message());
    if (open_one("cpu", options, backend) == OK) return OK;
    log_warn("%s; using ref, which is slow", status_message());
    return open_one("ref", options, backend);
}

void backend_close(Backend *b)
{
    if (!b) return;
    b->close(b);
    free(b);
}
