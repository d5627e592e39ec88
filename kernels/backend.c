#include "kernels/backend.h"

#include "base/module.h"
#include "base/pages.h"

typedef Status (*FillTable)(Backend *b);

static Status check_name(const char *name)
{
    size_t n = 0;
    while (islower((unsigned char)name[n]) || isdigit((unsigned char)name[n]) || name[n] == '_') n++;
    if (n == 0 || name[n] != '\0')
        return fail(E_USAGE, "backend '%s': expected auto, ref, cpu, cuda or the name of a module (a-z, 0-9, _)", name);
    return OK;
}

/* OpenMP's threads spin while they wait for each other. Beside another busy process this costs far more than it saves
   (a small BERT trained 5 times slower), so they yield early unless the user set a policy. libgomp reads the variable
   when it is loaded. */
static void yield_when_waiting(void)
{
    if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "1000", 0);
}

/* Loads cairn_<name>.so and lets it fill the table. */
static Status load_module(Backend *b, const char *name)
{
    Status status = OK;
    void *module;
    FillTable fill;
    char *symbol = mem_printf("cairn_backend_%s", name);
    TRY_DONE(check_name(name));
    yield_when_waiting();
    TRY_DONE(module_load("backend", name, BACKEND_ABI,
                         "Build it, set CAIRN_BACKEND_DIR to its folder, or take another --backend (cpu, ref)",
                         &module));
    TRY_DONE(module_symbol(module, "backend", name, symbol, (void **)&fill));
    TRY_DONE(fill(b));
done:
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
    TRY_DONE(backend_table(name, b));
    TRY_DONE(b->open(b, options));
    *backend = b;
    b = NULL;
done:
    free(b);
    return status;
}

static Status open_named(const char *name, const BackendOptions *options, Backend **backend)
{
    if (strcmp(name, "auto") != 0) return open_one(name, options, backend);
    if (options->attention == ATTENTION_CUDNN) return open_one("cuda", options, backend); /* or its refusal */
    Status status = open_one("cuda", options, backend);
    if (status == OK || status == E_MEMORY) return status; /* without memory the run ends, and is not another one */
    log_debug("%s", status_message());
    status = open_one("cpu", options, backend);
    if (status == OK || status == E_MEMORY) return status;
    log_warn("%s; using ref, which is slow", status_message());
    return open_one("ref", options, backend);
}

/* Refuses options that the backend lacks. */
static Status check_backend_options(const Backend *b, const BackendOptions *options)
{
    if (options->tf32 && !b->tf32)
        return fail(E_USAGE,
                    "--precision tf32: the backend '%s' has no TF32 products. Use --backend cuda on a GPU, or "
                    "--precision fp32",
                    b->name);
    if (options->attention == ATTENTION_CUDNN && !b->cudnn)
        return fail(E_USAGE,
                    "--attention cudnn: the backend '%s' has no attention by cuDNN. Use --backend cuda on a GPU, or "
                    "--attention own (auto takes it too)",
                    b->name);
    return OK;
}

Status backend_open(const char *name, const BackendOptions *options, Backend **backend)
{
    const BackendOptions none = {0};
    if (!options) options = &none;
    *backend = NULL;
    TRY(open_named(name, options, backend));
    Status status = check_backend_options(*backend, options);
    if (status == OK) return OK;
    backend_close(*backend);
    *backend = NULL;
    return status;
}

void backend_close(Backend *b)
{
    if (!b) return;
    b->close(b);
    free(b);
}

/* ---- memory ---- */

Status backend_alloc(const Backend *b, size_t bytes, void **p)
{
    return b->device ? b->device->alloc(b->device, bytes, p) : pages_map(bytes, p);
}

void backend_release(const Backend *b, void *p, size_t bytes)
{
    if (b->device)
        b->device->release(b->device, p, bytes);
    else
        pages_unmap(p, bytes);
}

Status backend_upload(const Backend *b, void *to, const void *from, size_t bytes)
{
    if (b->device) return b->device->upload(b->device, to, from, bytes);
    memcpy(to, from, bytes);
    return OK;
}

Status backend_download(const Backend *b, void *to, const void *from, size_t bytes)
{
    if (b->device) return b->device->download(b->device, to, from, bytes);
    memcpy(to, from, bytes);
    return OK;
}

Status backend_add(const Backend *b, float *z, float *x, float *y, int64_t n)
{
    const Operand flat = {.dtype = F32, .rows = {ROWS_FIXED, n}, .cols = 1};
    OpCall call = {.op = OP_ADD, .in = {flat, flat}, .out = {flat}};
    const RowCounts none = {0};
    call.in[ADD_IN_x].data = x;
    call.in[ADD_IN_y].data = y;
    call.out[ADD_OUT_z].data = z;
    return b->op[OP_ADD].run(&call, &none);
}

Status backend_wait(const Backend *b) { return b->device ? b->device->wait(b->device) : OK; }
