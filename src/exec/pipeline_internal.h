/* Between the files of a pipeline's place: its works (pipeline.c), their boundaries (pipeline_links.c), and how these
   travel: through the hosts' memory (pipeline_host.c) or from GPU to GPU (pipeline_device.c). */
#pragma once

#include "exec/exec_internal.h"
#include "exec/pipeline.h"

enum { BACKWARD, FORWARD }; /* ways */

/* Boundaries of one chunk that come, or go, forward or backward, in ascending order of micro-batches. */
typedef struct {
    int chunk, way;
    bool in;
    int peer;  /* place; −1: there is no such boundary; this place: handed over in memory */
    int stage; /* that receives */
    int buffers;
    char *memory;         /* (buffers, boundary); of a handover in the host's memory */
    int posted, taken;    /* micro-batches of this pass: receives that were posted, and what was copied in or out */
    CommTicket **tickets; /* (buffers); through the hosts' memory */
    int wire;             /* between GPUs, and the members below */
    int32_t event;        /* of the first buffer: what was posted last has ended */
    bool *pending;        /* (buffers): that event was not seen yet */
} Channel;

/* What comes from another place, forward or backward, in the order of the works that take it. */
typedef struct {
    int peer, way;
    int next; /* of the pass's works: the first whose boundary may not be posted yet */
} Inbox;

/* A boundary's buffer is that of its micro-batch's number. */
typedef struct {
    Status (*open)(ExecPipeline *p, Channel *c);
    void (*close)(ExecPipeline *p, Channel *c);
    /* Begins to send what the buffer holds, or to receive into it. */
    Status (*post)(ExecPipeline *p, Channel *c, int micro, size_t bytes);
    /* Until what was posted for the buffer has ended; at once where nothing was. `what` names it. */
    Status (*wait)(ExecPipeline *p, Channel *c, int micro, const char *what);
    /* Between the buffer and a tensor, in the order of the compute lane. */
    Status (*fill)(ExecPipeline *p, void *buffer, const void *tensor, size_t bytes);
    Status (*empty)(ExecPipeline *p, void *tensor, const void *buffer, size_t bytes);
    Status (*worked)(ExecPipeline *p); /* until the compute lane has ended a work */
    Status (*ended)(ExecPipeline *p);  /* behind the last work of a pass; NULL: nothing is to do */
    void (*broken)(ExecPipeline *p);   /* a pass failed; NULL */
} Carrier;

extern const Carrier pipeline_by_hosts, pipeline_by_devices;

struct ExecPipeline {
    ExecPipelineOptions o;
    const Carrier *carrier;
    char *memory[2]; /* buffers of the channels: the host's, and where boundaries go between GPUs the device's */
    Channel *in[2], *out[2]; /* (ways), (chunks) */
    Inbox *inboxes;          // (n_inboxes)
    int n_inboxes, cap_inboxes;
    int32_t n_events; /* slots of the device in use; by GPUs */
    const ExecPass *pass;
    const Work *order; // (n_order) of the pass
    int n_order;
    int chunk, micro; /* of the work that runs */
    double all, idle; /* seconds */
    bool notes;
    ExecWork *works; /* (n_works) noted */
    int n_works, cap_works;
};

static inline Backend *pipeline_backend(const ExecPipeline *p) { return p->o.chunks[0]->memory->backend; }
bool pipeline_wanted(const ExecPipeline *p, const Work *w); /* the pass runs it */

/* ---- pipeline_links.c ---- */
Status pipeline_open_links(ExecPipeline *p);
void pipeline_close_links(ExecPipeline *p);
Status pipeline_begin_links(ExecPipeline *p); /* of a pass */
/* ExecLinks.pass */
Status pipeline_pass(void *self, bool sends, bool forward, void *data, size_t bytes);
/* The channels of a place: `k` from 0 to 4 · chunks − 1. */
Channel *pipeline_channel(const ExecPipeline *p, int k);
