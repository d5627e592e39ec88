/* Sums over all ranks, in a flat space of which each rank owns a part. Terms travel to the owner, which adds them in
   rank order or as a tree, so the result depends neither on the owners nor on the cuts between parts. */
#include <stdlib.h>
#include <string.h>

#include "comm/comm_internal.h"

static size_t wire_size(Dtype wire)
{
    CHECK(wire == F32 || wire == BF16, "%s on the wire", dtype_name(wire));
    return dtype_size(wire);
}

static void pack(float *restrict x, void *restrict out, int64_t n, Dtype wire)
{
    if (wire == F32) {
        memcpy(out, x, (size_t)n * sizeof *x);
        return;
    }
    uint16_t *restrict h = out;
    for (int64_t i = 0; i < n; i++) h[i] = bf16_from_f32(x[i]);
}

static void unpack(float *restrict x, void *restrict in, int64_t n, Dtype wire)
{
    if (wire == F32) {
        memcpy(x, in, (size_t)n * sizeof *x);
        return;
    }
    const uint16_t *restrict h = in;
    for (int64_t i = 0; i < n; i++) x[i] = bf16_to_f32(h[i]);
}

static void add_term(float *restrict x, void *restrict in, int64_t n, Dtype wire)
{
    if (wire == F32) {
        const float *restrict f = in;
        for (int64_t i = 0; i < n; i++) x[i] += f[i];
        return;
    }
    const uint16_t *restrict h = in;
    for (int64_t i = 0; i < n; i++) x[i] += bf16_to_f32(h[i]);
}

static void round_to(float *restrict x, void *restrict unused, int64_t n, Dtype wire)
{
    (void)unused;
    for (int64_t i = 0; i < n && wire != F32; i++) x[i] = bf16_to_f32(bf16_from_f32(x[i]));
}

/* Applies `each` to the intervals of a part; `packed` has its elements without gaps. */
static void apply_to_part(void (*each)(float *x, void *packed, int64_t n, Dtype wire), float *x, const Intervals *part,
                          void *packed, Dtype wire)
{
    char *at = packed;
    for (int i = 0; i < part->count; i++) {
        Interval v = part->intervals[i];
        each(x + v.begin, at, v.end - v.begin, wire);
        at += (size_t)(v.end - v.begin) * dtype_size(wire);
    }
}

size_t comm_reduce_bytes(const Intervals *parts, int size, Dtype wire)
{
    int64_t total = 0, largest = 0;
    for (int r = 0; r < size; r++) {
        total += parts[r].size;
        if (parts[r].size > largest) largest = parts[r].size;
    }
    return (size_t)(total + largest * size) * wire_size(wire);
}

/* `terms` holds n terms of so many bytes of fp32; the first becomes their sum. */
static void add_in_tree(char *terms, size_t bytes, int n)
{
    for (int step = 1; step < n; step *= 2)
        for (int r = 0; r + step < n; r += 2 * step)
            add_term((float *)(terms + (size_t)r * bytes), terms + (size_t)(r + step) * bytes,
                     (int64_t)(bytes / sizeof(float)), F32);
}

/* Scratch holds all parts of x, packed, then every rank's term of the own part. */
Status comm_reduce_scatter(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch)
{
    size_t w = wire_size(wire), n = (size_t)c->size, own = (size_t)parts[c->rank].size * w;
    size_t *send = mem_array(n, sizeof *send), *receive = mem_array(n, sizeof *receive);
    char *terms = scratch;
    CHECK(!c->in_tree || wire == F32, "%s on the wire of a tree", dtype_name(wire));
    for (int r = 0; r < c->size; r++) {
        apply_to_part(pack, x, &parts[r], terms, wire);
        send[r] = (size_t)parts[r].size * w;
        receive[r] = own;
        terms += send[r];
    }
    Status status = comm_alltoallv(c, scratch, send, terms, receive);
    if (status == OK && c->in_tree) {
        add_in_tree(terms, own, c->size);
        apply_to_part(unpack, x, &parts[c->rank], terms, wire);
    } else if (status == OK) {
        /* The first term is copied, not added to 0, so that -0 stays. */
        for (int r = 0; r < c->size; r++)
            apply_to_part(r ? add_term : unpack, x, &parts[c->rank], terms + (size_t)r * own, wire);
        apply_to_part(round_to, x, &parts[c->rank], terms, wire);
    }
    free(send);
    free(receive);
    return status;
}

/* Rounds the own elements too, for the same bits everywhere. */
Status comm_gather_parts(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch)
{
    size_t w = wire_size(wire);
    size_t *bytes = mem_array((size_t)c->size, sizeof *bytes);
    char *at = scratch;
    for (int r = 0; r < c->size; r++) {
        bytes[r] = (size_t)parts[r].size * w;
        if (r == c->rank) apply_to_part(pack, x, &parts[r], at, wire);
        at += bytes[r];
    }
    Status status = comm_allgatherv(c, scratch, bytes);
    at = scratch;
    for (int r = 0; r < c->size && status == OK; r++) {
        if (r != c->rank || wire != F32) apply_to_part(unpack, x, &parts[r], at, wire);
        at += bytes[r];
    }
    free(bytes);
    return status;
}

Status comm_allreduce(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch)
{
    TRY(comm_reduce_scatter(c, x, parts, wire, scratch));
    return comm_gather_parts(c, x, parts, wire, scratch);
}
