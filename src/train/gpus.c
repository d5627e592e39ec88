#include "train/gpus.h"

#include <stdio.h>
#include <string.h>

/* Options are the same everywhere by now; what `auto` has chosen may be another. */
static Status agree(Ranks *ranks, const Backend *b)
{
    TRY(ranks_meet(ranks));
    return comm_agree(ranks_comm(ranks), &(CommFact){"the backend", b->name}, 1);
}

/* The same answer on all ranks. */
static Status ready(const Config *c, Ranks *ranks, const Backend *b)
{
    if (!b->device || !b->device->stream)
        return fail(E_USAGE, "the backend '%s' has no GPU, and NCCL connects GPUs: use --comm gloo, or --backend cuda",
                    b->name);
    if (strcmp(c->wire, "fp32") != 0)
        return fail(
            E_USAGE,
            "--wire %s: NCCL would also add in %s, and lose more than the wire: use --wire fp32, or --comm gloo",
            c->wire, c->wire);
    return comm_device_ready(ranks_comm(ranks), b->device->unit);
}

static Status connect(Ranks *ranks, Backend *b, CommDevice **device)
{
    Status own = comm_device_open(ranks_comm(ranks), device);
    TRY(own == E_PEER ? own : ranks_all(ranks, own)); /* nothing can be said to the others then; they know who it is */
    if (b->device->settle) b->device->settle(b->device);
    size_t len = strlen(b->describe);
    snprintf(b->describe + len, sizeof b->describe - len, ", %s", comm_device_describe(*device));
    if (ranks_first(ranks)) log_info("gradients go from GPU to GPU: %s", comm_device_describe(*device));
    return OK;
}

Status gpus_connect(const Config *c, Ranks *ranks, Backend *backend, CommDevice **device)
{
    *device = NULL;
    if (!ranks) return OK;
    TRY(agree(ranks, backend));
    bool asked = strcmp(c->comm, "nccl") == 0;
    if (!asked && (strcmp(c->comm, "auto") != 0 || !backend->device)) return OK;
    Status status = ready(c, ranks, backend);
    if (status == OK) return connect(ranks, backend, device);
    if (asked) return status_context(status, "--comm nccl");
    if (status == E_USAGE && ranks_first(ranks))
        log_warn("gradients go through the host's memory and Gloo, not from GPU to GPU: %s", status_message());
    return status == E_USAGE ? OK : status;
}
