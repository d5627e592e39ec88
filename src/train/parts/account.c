#include "train/parts/account.h"

#include "base/machine_memory.h"

/* Allocations after planning that are beside the plans: thread stacks, buffers of files, reports. tests/equiv/
   test_account.c checks this bound. */
#define PROCESS_RESERVE ((size_t)8 << 20)

/* The part of that reserve that pays for pages which planning leaves in the allocator, more or fewer by chance. If they
   were counted, a choice that just fitted its budget would exceed it. */
#define PLANNING_RESERVE ((size_t)1 << 20)

/* What one process may hold more than the next: pages of libraries and of the allocator. */
#define CHANCE ((size_t)2 << 20)

/* A part of a device's free memory, kept for later allocations of CUDA: granularity, graphs, kernels of products that
   are loaded when a plan is bound. An estimate, not measured on a GPU. */
#define DEVICE_MARGIN ((size_t)256 << 20)

#define ALL_REGIONS  ((1u << N_REGIONS) - 1)
#define HOST_REGIONS (1u << REGION_SAVE | 1u << REGION_HOST | 1u << REGION_COMM)

/* Free bytes less the margin, which is at most a 64th of a small device. */
static size_t device_room(size_t available, size_t total)
{
    size_t margin = total / 64 < DEVICE_MARGIN ? total / 64 : DEVICE_MARGIN;
    return available > margin ? available - margin : 0;
}

/* What this process holds, less what the allocator keeps of freed memory, which is chance. */
static size_t resident_now(void)
{
    process_trim();
    return process_resident();
}

static Account device_row(size_t asked, size_t free_bytes, size_t context)
{
    return (Account){.name = "device",
                     .limit = asked ? "the memory budget" : "the device's free memory",
                     .regions = ALL_REGIONS & ~HOST_REGIONS,
                     .automatic = !asked,
                     .budget = asked ? asked : free_bytes,
                     .held = context};
}

void accounts_measure(Accounts *a, const Backend *b, size_t asked, int local_ranks, size_t data_bytes,
                      size_t weights_bytes)
{
    size_t resident = resident_now(), total, available, context;
    Account machine = {.name = "machine",
                       .limit = "the machine's free memory",
                       .regions = ALL_REGIONS & ~(1u << REGION_HOST), /* nothing is offloaded from the host */
                       .automatic = true,
                       .budget = machine_free_bytes() / (size_t)local_ranks + resident,
                       .held =
                           resident + PROCESS_RESERVE + data_bytes + (asked && !b->device ? 0 : machine_group_bytes())};
    size_t addresses = process_free_addresses(), stacks = (size_t)b->threads * THREAD_ADDRESSES;
    if (addresses != SIZE_MAX) addresses = addresses > stacks ? addresses - stacks : 0;
    if (addresses != SIZE_MAX && addresses + resident < machine.budget) {
        machine.limit = "the address space left by the limits of this process (ulimit -v, -d)";
        machine.budget = addresses + resident;
    }
    if (b->device) {
        if (b->device->measure_memory) b->device->measure_memory(b->device);
        b->device->memory(b->device, &total, &available, &context);
        machine.regions = HOST_REGIONS;
        machine.held += weights_bytes;
        *a = (Accounts){2, {device_row(asked, device_room(available, total) + context, context), machine}, resident, 0};
        return;
    }
    if (asked) {
        machine.limit = "the memory budget";
        machine.automatic = false;
        machine.budget = asked;
    }
    *a = (Accounts){1, {machine}, resident, CHANCE};
}

void accounts_update(Accounts *a)
{
    size_t resident = resident_now();
    if (!a->resident || resident <= a->resident + PLANNING_RESERVE) return;
    a->row[a->n - 1].held += resident - a->resident;
    a->resident = resident;
}

void accounts_imagine(Accounts *a, size_t asked, size_t memory_bytes, size_t context_bytes, size_t weights_bytes)
{
    Account machine = {.name = "machine",
                       .limit = "the machine's memory",
                       .regions = HOST_REGIONS,
                       .budget = SIZE_MAX,
                       .held = weights_bytes};
    *a = (Accounts){2, {device_row(asked, memory_bytes, context_bytes), machine}, .resident = 0};
}

size_t account_sum(const Account *a, const size_t bytes[N_REGIONS])
{
    size_t sum = a->held + a->snapshots;
    for (int r = 0; r < N_REGIONS; r++)
        if (account_has(a, (Region)r)) sum += bytes[r];
    return sum;
}

size_t accounts_enough(const Accounts *a, size_t bytes) { return bytes + a->chance; }

Account *accounts_set_peaks(Accounts *a, const size_t bytes[N_REGIONS])
{
    Account *over = NULL;
    for (int i = a->n - 1; i >= 0; i--) {
        a->row[i].peak = account_sum(&a->row[i], bytes);
        if (a->row[i].peak > a->row[i].budget) over = &a->row[i];
    }
    return over;
}
