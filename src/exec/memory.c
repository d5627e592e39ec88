/* One allocation per region, shared by the plans of a run. */
#include <stdlib.h>

#include "exec/exec.h"

/* Who gives the memory of a region: the state that is being saved, what is offloaded and what goes to other ranks lie
   on the host; what is offloaded where the copy lane reaches it. */
static Backend *giver(Backend *backend, Region r)
{
    static Backend host;
    if (r == REGION_HOST && backend_offloads(backend)) {
        host = (Backend){.alloc = backend->pin, .release = backend->unpin};
        return &host;
    }
    if (!backend->device || (r != REGION_SAVE && r != REGION_HOST && r != REGION_COMM)) return backend;
    backend_ref_table(&host);
    return &host;
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

Status memory_init(Memory *m, Backend *backend, const Plan *const *plans, int n_plans)
{
    *m = (Memory){.backend = backend};
    for (int i = 0; i < n_plans; i++)
        for (int r = 0; plans[i] && r < N_REGIONS; r++)
            if (plans[i]->region_bytes[r] > m->bytes[r]) m->bytes[r] = plans[i]->region_bytes[r];
    for (int r = 0; r < N_REGIONS; r++) {
        if (!m->bytes[r] || giver(backend, (Region)r)->alloc(m->bytes[r], &m->base[r]) == OK) continue;
        Status status = too_large(m, (Region)r);
        memory_free(m);
        return status;
    }
    return OK;
}

void memory_free(Memory *m)
{
    for (int r = 0; r < N_REGIONS; r++)
        if (m->base[r]) giver(m->backend, (Region)r)->release(m->base[r], m->bytes[r]);
    *m = (Memory){0};
}

size_t memory_total(const Memory *m)
{
    size_t total = 0;
    for (int r = 0; r < N_REGIONS; r++) total += m->bytes[r];
    return total;
}
