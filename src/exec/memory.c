/* One allocation per region, shared by the plans of a run; and what lies in it. */

#include "base/pages.h"
#include "exec/exec_internal.h"

typedef struct {
    Status (*alloc)(Device *d, size_t bytes, void **p);
    void (*release)(Device *d, void *p, size_t bytes);
} Allocator;

static Status host_alloc(Device *d, size_t bytes, void **p)
{
    (void)d;
    return pages_map(bytes, p);
}

static void host_release(Device *d, void *p, size_t bytes)
{
    (void)d;
    pages_unmap(p, bytes);
}

/* On a device, the save buffer, offloaded tensors and exchanged gradients lie in the host's memory, the latter two
   pinned. */
static Allocator allocator(const Device *d, Region r)
{
    if (d && (r == REGION_HOST || r == REGION_COMM) && d->pin) return (Allocator){d->pin, d->unpin};
    if (d && r != REGION_SAVE && r != REGION_HOST && r != REGION_COMM) return (Allocator){d->alloc, d->release};
    return (Allocator){host_alloc, host_release};
}

static Status too_large(const Memory *m, Region r)
{
    Buf table = {0};
    char *why = mem_strdup(status_message());
    for (int i = 0; i < N_REGIONS; i++)
        if (m->bytes[i])
            buf_printf(&table, "\n  %-12s %9.1f MiB", region_name((Region)i), (double)m->bytes[i] / (1 << 20));
    Status status = fail(
        E_MEMORY,
        "no memory for the region '%s' (%.1f MiB of %.1f MiB in all): %s. Use a smaller batch, --recompute auto with "
        "--memory-budget, or a smaller --micro-batch-tokens. The plan:%s",
        region_name(r), (double)m->bytes[r] / (1 << 20), (double)memory_total(m) / (1 << 20), why, table.data);
    buf_free(&table);
    free(why);
    return status;
}

static Status resize(Memory *m, Region r, size_t bytes)
{
    Device *d = m->backend->device;
    Allocator a = allocator(d, r);
    if (m->base[r]) a.release(d, m->base[r], m->bytes[r]);
    m->base[r] = NULL;
    m->bytes[r] = bytes;
    return bytes ? a.alloc(d, bytes, &m->base[r]) : OK;
}

static size_t largest(const Plan *const *plans, int n_plans, int r)
{
    size_t bytes = 0;
    for (int i = 0; i < n_plans; i++)
        if (plans[i] && plans[i]->region_bytes[r] > bytes) bytes = plans[i]->region_bytes[r];
    return bytes;
}

bool memory_own_region(Region r)
{
    return r == REGION_INPUT || r == REGION_OUTPUT || r == REGION_CONST || r == REGION_COPY || r == REGION_HOST;
}

static bool owns(const Memory *m, int r) { return !m->first || memory_own_region((Region)r); }

/* Takes the regions of the first chunk, which may have moved. */
static void follow(Memory *m)
{
    for (int r = 0; m->first && r < N_REGIONS; r++) {
        if (owns(m, r)) continue;
        m->base[r] = m->first->base[r];
        m->bytes[r] = m->first->bytes[r];
    }
}

Status memory_init(Memory *m, Backend *backend, Memory *first, const Plan *const *plans, int n_plans)
{
    *m = (Memory){.backend = backend, .first = first};
    follow(m);
    for (int r = 0; r < N_REGIONS; r++)
        if (owns(m, r)) m->bytes[r] = largest(plans, n_plans, r);
    for (int r = 0; r < N_REGIONS; r++) {
        if (!owns(m, r) || resize(m, (Region)r, m->bytes[r]) == OK) continue;
        Status status = too_large(m, (Region)r);
        memory_free(m);
        return status;
    }
    return OK;
}

Status memory_grow(Memory *m, const Plan *const *plans, int n_plans)
{
    follow(m);
    for (int r = 0; r < N_REGIONS; r++) {
        size_t bytes = largest(plans, n_plans, r);
        if (bytes <= m->bytes[r]) continue;
        CHECK(r == REGION_ACT || r == REGION_SCRATCH, "region %s grew when planned again", region_name((Region)r));
        TRY(resize(m, (Region)r, bytes));
    }
    return OK;
}

void memory_free(Memory *m)
{
    for (int r = 0; r < N_REGIONS; r++)
        if (m->base[r] && owns(m, r)) (void)resize(m, (Region)r, 0);
    *m = (Memory){0};
}

size_t memory_total(const Memory *m)
{
    size_t total = 0;
    for (int r = 0; r < N_REGIONS; r++) total += m->bytes[r];
    return total;
}

/* ---- tensors ---- */

void *exec_data(const Exec *e, TensorId t)
{
    const Tensor *x = &e->plan->tensors[t];
    return (char *)e->memory->base[x->region] + x->offset;
}

/* For `bytes` of a tensor. */
static void *part_of(const Exec *e, TensorId t, size_t bytes)
{
    const Tensor *x = &e->plan->tensors[t];
    CHECK(bytes <= x->bytes, "%zu bytes of '%s', which has %zu", bytes, x->name, x->bytes);
    return exec_data(e, t);
}

Status exec_upload(Exec *e, TensorId t, const void *data, size_t bytes)
{
    return backend_upload(e->memory->backend, part_of(e, t, bytes), data, bytes);
}

Status exec_download(Exec *e, TensorId t, void *data, size_t bytes)
{
    return backend_download(e->memory->backend, data, part_of(e, t, bytes), bytes);
}
