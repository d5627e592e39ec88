/* Sums over all ranks, in a flat space of which each rank owns a part. Terms travel to the owner, which adds them in
   rank order or as a tree, so the result depends neither on the owners nor on the cuts between parts. */

#include "base/sum_tree.h"
#include "comm/mesh/comm_internal.h"

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

int comm_branches(int64_t terms, int size, int rank) { return terms ? sum_tree_own(terms, size, rank) : 1; }

size_t comm_reduce_bytes(const Intervals *parts, int size, Dtype wire, int64_t terms)
{
    int64_t total = 0, largest = 0, most = 0, branches = 0;
    for (int r = 0; r < size; r++) {
        int own = comm_branches(terms, size, r);
        total += parts[r].size;
        branches += own;
        if (own > most) most = own;
        if (parts[r].size > largest) largest = parts[r].size;
    }
    return (size_t)(total * most + largest * branches) * wire_size(wire);
}

int64_t comm_received(const Intervals *parts, int size, int64_t terms)
{
    int64_t branches = 0, most = 0;
    for (int r = 0; r < size; r++) branches += comm_branches(terms, size, r);
    for (int r = 0; r < size; r++) {
        int64_t n = parts[r].size * (branches - comm_branches(terms, size, r));
        if (n > most) most = n;
    }
    return most;
}

/* ---- the tree ---- */

CommAddition *comm_tree_additions(int64_t tree, int size, int *n)
{
    int64_t terms = tree ? tree : size, each = terms / size;
    int held[64], n_held = 0, branches = 0, cap = 0;
    CommAddition *all = NULL;
    *n = 0;
    for (int64_t at = 0, end; at < terms; at = end) {
        end = sum_tree_branch(terms, at, (at / each + 1) * each);
        int added = tree ? sum_tree_added(terms, 0, at, end) : at > 0;
        held[n_held++] = branches++;
        for (; added > 0; added--, n_held--) {
            MEM_PUSH(all, *n, cap, (CommAddition){held[n_held - 2], held[n_held - 1]});
        }
    }
    return all;
}

/* `terms` holds the branches, of so many bytes of fp32; the first becomes the sum. */
static void add_in_tree(const Comm *c, char *terms, size_t bytes)
{
    int n;
    CommAddition *additions = comm_tree_additions(c->tree.terms, c->size, &n);
    for (int i = 0; i < n; i++)
        add_term((float *)(terms + (size_t)additions[i].to * bytes), terms + (size_t)additions[i].from * bytes,
                 (int64_t)(bytes / sizeof(float)), F32);
    free(additions);
}

/* ---- sums ---- */

/* Scratch holds all parts of this rank's terms, packed, then every rank's terms of the own part. */
Status comm_reduce_scatter(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch)
{
    size_t w = wire_size(wire), n = (size_t)c->size, own = (size_t)parts[c->rank].size * w;
    size_t *send = mem_array(n, sizeof *send), *receive = mem_array(n, sizeof *receive);
    int branches = comm_branches(c->tree.terms, c->size, c->rank);
    char *terms = scratch;
    CHECK(!c->tree.terms || wire == F32, "%s on the wire of a tree", dtype_name(wire));
    for (int r = 0; r < c->size; r++) {
        size_t bytes = (size_t)parts[r].size * w;
        for (int k = 0; k < branches; k++, terms += bytes)
            apply_to_part(pack, k + 1 < branches ? x + c->tree.behind + k * c->tree.stride : x, &parts[r], terms, wire);
        send[r] = bytes * (size_t)branches;
        receive[r] = own * (size_t)comm_branches(c->tree.terms, c->size, r);
    }
    Status status = comm_alltoallv(c, scratch, send, terms, receive);
    if (status == OK && c->tree.terms) {
        add_in_tree(c, terms, own);
        apply_to_part(unpack, x, &parts[c->rank], terms, wire);
    } else if (status == OK) {
        /* The first term is copied, not added to 0, so that -0 stays. */
        for (int r = 0; r < c->size; r++)
            apply_to_part(r ? add_term : unpack, x, &parts[c->rank], terms + (size_t)r * own, wire);
        apply_to_part(round_to, x, &parts[c->rank], terms, wire);
    }
    MEM_FREE(send, receive);
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
