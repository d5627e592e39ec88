/* An op on a backend whose memory the host cannot reach: operands go there, between zones, and come back. */
#include "ops/harness.h"

#define ZONE      ((size_t)4096)
#define ZONE_BYTE 0xa5
#define MOST      (OP_MAX_IN + OP_MAX_OUT + 1)

/* Host memory of one or more operands, and its copy on the device. */
typedef struct {
    void *host;
    unsigned char *device; /* zone, bytes, zone, and the rest for a larger bucket */
    size_t bytes, all;
    const char *name;
} Mirror;

typedef struct {
    Backend *backend;
    const char *op;
    Mirror mirror[MOST];
    int n;
} Mirrors;

static void *mirror(Mirrors *m, void *host, size_t bytes, size_t larger, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (m->mirror[i].host == host) return m->mirror[i].device + ZONE;
    Mirror *x = &m->mirror[m->n++];
    *x = (Mirror){.host = host, .bytes = bytes, .all = ZONE + (larger > bytes ? larger : bytes) + ZONE, .name = name};
    void *p;
    assert_ok(backend_alloc(m->backend, x->all, &p));
    x->device = p;
    return x->device + ZONE;
}

static size_t bytes_of(const Operand *o, const RowCounts *rows)
{
    return (size_t)(rows_in(o->rows, rows) * o->cols) * dtype_size(o->dtype);
}

static void mirror_operand(Mirrors *m, Operand *o, const RowCounts buckets[2], const char *name)
{
    if (o->data) o->data = mirror(m, o->data, bytes_of(o, &buckets[0]), bytes_of(o, &buckets[1]), name);
}

static void upload(const Mirrors *m)
{
    for (int i = 0; i < m->n; i++) {
        const Mirror *x = &m->mirror[i];
        unsigned char *block = mem_alloc(x->bytes + 2 * ZONE);
        memset(block, ZONE_BYTE, x->bytes + 2 * ZONE);
        memcpy(block + ZONE, x->host, x->bytes);
        assert_ok(backend_upload(m->backend, x->device, block, x->bytes + 2 * ZONE));
        free(block);
    }
}

static void download(const Mirrors *m)
{
    for (int i = 0; i < m->n; i++) {
        const Mirror *x = &m->mirror[i];
        unsigned char *block = mem_alloc(x->bytes + 2 * ZONE);
        assert_ok(backend_download(m->backend, block, x->device, x->bytes + 2 * ZONE));
        for (size_t j = 0; j < ZONE; j++) {
            if (block[ZONE - 1 - j] != ZONE_BYTE)
                fail_msg("%s %s: wrote before %s, %zu bytes from its start", m->backend->name, m->op, x->name, j + 1);
            if (block[ZONE + x->bytes + j] != ZONE_BYTE)
                fail_msg("%s %s: wrote behind %s, %zu bytes from its end", m->backend->name, m->op, x->name, j);
        }
        memcpy(x->host, block + ZONE, x->bytes);
        free(block);
    }
}

void ops_run_on_device(Backend *b, const OpCall *host_call, const RowCounts buckets[2])
{
    const OpImpl *impl = &b->op[host_call->op];
    const OpInfo *info = op_info(host_call->op);
    OpCall call = *host_call;
    Mirrors m = {.backend = b, .op = info->name};
    for (int i = 0; i < info->n_in; i++) mirror_operand(&m, &call.in[i], buckets, info->in[i].name);
    for (int i = 0; i < info->n_out; i++) mirror_operand(&m, &call.out[i], buckets, info->out[i].name);
    call.scratch = mirror(&m, call.scratch, call.scratch_bytes, 0, "scratch");
    assert_ok(impl->prepare(&call, buckets, 2)); /* which may write into all of them */
    upload(&m);
    assert_ok(impl->run(&call, &buckets[0]));
    assert_ok(backend_wait(b));
    download(&m);
    for (int i = 0; i < m.n; i++) backend_release(b, m.mirror[i].device, m.mirror[i].all);
}
