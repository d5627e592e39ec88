#include "base/module.h"

#include <dlfcn.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/host.h"
#include "base/library.h"

/* Path of the module, or NULL. `looked` gets the folders that were searched, in their order. */
static char *find_module(const char *name, Buf *looked)
{
    const char *set = getenv("CAIRN_BACKEND_DIR");
    char *program = host_program(), *here = *program == '/' ? file_directory(program) : NULL;
    char *installed = here ? file_join(here, "../lib/cairn") : NULL;
    char *module = mem_printf("cairn_%s.so", name), *found = NULL;
    const struct {
        const char *what, *path;
    } places[] = {{"$CAIRN_BACKEND_DIR", set && *set ? set : NULL},
                  {"the program's folder", here},
                  {"the installation's lib", installed}};
    for (size_t i = 0; i < sizeof places / sizeof *places && !found; i++) {
        if (!places[i].path) continue;
        buf_printf(looked, "%s%s (%s)", looked->len ? ", " : "", places[i].path, places[i].what);
        found = file_join(places[i].path, module);
        if (file_exists(found)) continue;
        free(found);
        found = NULL;
    }
    if (!here) buf_printf(looked, "%sthe program's folder, which is unknown without /proc", looked->len ? ", " : "");
    MEM_FREE(module, installed, here, program);
    return found;
}

/* ---- what nothing catches in a library in C++ ----
   Names and layouts are the Itanium ABI's, which every C++ library here has. */

typedef void (*Terminate)(void);

typedef struct {
    const void *functions;
    const char *name;
} TypeInfo; /* std::type_info */

static const TypeInfo *(*exception_type)(void);
static Terminate terminate_before;

/* std::bad_alloc and what is derived from it. */
static void terminate(void)
{
    const TypeInfo *type = exception_type();
    if (type && (strcmp(type->name, "St9bad_alloc") == 0 || strcmp(type->name, "St20bad_array_new_length") == 0))
        mem_exhausted(0);
    terminate_before();
}

/* Libraries in C++ that find no memory then end the process as our own allocations do, unless they recover: oneDNN
   catches no std::bad_alloc, which would abort. */
static void handle_terminate(void *handle)
{
    void *setter = dlsym(handle, "_ZSt13set_terminatePFvvE"), *type = dlsym(handle, "__cxa_current_exception_type");
    Terminate (*set)(Terminate);
    memcpy(&set, &setter, sizeof set);
    memcpy(&exception_type, &type, sizeof exception_type);
    if (!set || !exception_type) return;
    Terminate before = set(terminate);
    if (before != terminate) terminate_before = before;
}

/* The loader's calls of the allocator leave errno, its mappings a text. Of a file system from which nothing may be
   executed it says the first one, too. */
static bool lacked_memory(const char *path, const char *why)
{
    static const char *const says[] = {"failed to map segment", "cannot map zero-fill", "annot allocate"};
    struct statvfs system;
    bool lacked = errno == ENOMEM;
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) lacked = lacked || strstr(why, says[i]);
    return lacked && !(statvfs(path, &system) == 0 && system.f_flag & ST_NOEXEC);
}

Status module_load(const char *kind, const char *name, uint64_t abi, const char *advice, void **handle)
{
    Status status = OK;
    Buf looked = {0};
    char *path = find_module(name, &looked);
    if (!path)
        TRY_DONE(fail(E_USAGE, "%s '%s': cairn_%s.so is in none of: %s. %s", kind, name, name, looked.data, advice));
    library_enter(path);
    void *runtime = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL); /* first: constructors of libraries allocate */
    if (runtime) handle_terminate(runtime);
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    library_leave();
    if (!*handle) {
        const char *why = dlerror();
        if (lacked_memory(path, why))
            TRY_DONE(fail(E_MEMORY, "%s '%s': no memory to load %s: %s; " LIBRARY_ADVICE, kind, name, path, why));
        TRY_DONE(fail(E_USAGE, "%s '%s': cannot load %s: %s", kind, name, path, why));
    }
    const uint64_t *found = dlsym(*handle, "cairn_module_abi");
    if (!found || *found != abi)
        TRY_DONE(fail(E_USAGE, "%s '%s': %s belongs to another build of cairn; build it again", kind, name, path));
    handle_terminate(*handle);
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
