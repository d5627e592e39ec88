/* A backend like a device: ref, but its memory lies at addresses that the host cannot touch. An access
   to a region other than by upload, download and the ops is a fault, as on a GPU. */
#pragma once

#include "near_device.h"
#include "testing.h"

#define FAR ((uintptr_t)1 << 62) /* no address of a process */

static struct {
    Backend ref;
    Device device;
    int uploads, downloads;
    int fail_after; /* copies until one fails; negative: never */
} far;

static inline void *far_away(void *p) { return (void *)((uintptr_t)p + FAR); }
static inline void *far_here(const void *p)
{
    if ((uintptr_t)p < FAR) fail_msg("%p lies outside the device's memory", p);
    return (void *)((uintptr_t)p - FAR);
}

static inline Status far_run(const OpCall *call, const RowCounts *rows)
{
    OpCall here = *call;
    for (int i = 0; i < OP_MAX_IN; i++)
        if (here.in[i].data) here.in[i].data = far_here(here.in[i].data);
    for (int i = 0; i < OP_MAX_OUT; i++)
        if (here.out[i].data) here.out[i].data = far_here(here.out[i].data);
    if (here.scratch) here.scratch = far_here(here.scratch);
    return far.ref.op[call->op].run(&here, rows);
}

static inline Status far_alloc(Device *d, size_t bytes, void **p)
{
    (void)d;
    TRY(pages_map(bytes, p));
    *p = far_away(*p);
    return OK;
}

static inline void far_release(Device *d, void *p, size_t bytes)
{
    (void)d;
    if (p) pages_unmap(far_here(p), bytes);
}

static inline Status far_copy_fails(void)
{
    return far.fail_after >= 0 && far.fail_after-- == 0 ? status_fail(E_FAIL, "the device fell off the bus") : OK;
}

static inline Status far_upload(Device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    TRY(far_copy_fails());
    far.uploads++;
    memcpy(far_here(to), from, bytes);
    return OK;
}

static inline Status far_download(Device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    TRY(far_copy_fails());
    far.downloads++;
    memcpy(to, far_here(from), bytes);
    return OK;
}

/* Makes one of an opened ref. */
static inline void far_make(Backend *b)
{
    memset(&far, 0, sizeof far);
    far.ref = *b;
    far.fail_after = -1;
    for (int op = 0; op < N_OPS; op++) b->op[op].run = far_run;
    far.device = near_device();
    far.device.alloc = far_alloc;
    far.device.release = far_release;
    far.device.upload = far_upload;
    far.device.download = far_download;
    b->device = &far.device;
}
