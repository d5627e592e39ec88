#include "cuda_host/cuda_tcgen.cuh"

#include <bitset>
#include <vector>

#include "cuda_host/cuda_tiles.cuh"
#include "cuda_host/operands.h"
#include "cuda_host/shared.h"
#include "cuda_host/tensor.h"

namespace
{
constexpr int warp = 32, max_threads = 1024;
constexpr unsigned lanes = 128, columns = 512, k_values = 16;
constexpr uint64_t swizzle = uint64_t{1} << 46 | uint64_t{2} << 61; /* of 128 bytes, in descriptors */

/* Columns [first, end). */
struct Range {
    unsigned first, end;
    bool meets(Range other) const { return first < other.end && other.first < end; }
};

struct Product {
    int thread;
    const void *barrier; /* NULL: not committed */
    bool f16, a_turned, b_turned, add, tensor;
    uint64_t a, b;
    unsigned n;
    Range d, left; /* left: a, if in tensor memory, else empty */
    bool touches(Range r) const { return d.meets(r) || left.meets(r); }
};

struct Barrier {
    const void *place;
    unsigned phase;   /* complete ones */
    bool committed;   /* the next one */
    uint64_t counted; /* Tensor.count at the last completion */
};

struct Allocation {
    Range range;
    int warp;
};

/* What happened to a column last: the count after the last product that wrote or read it, and which that was. */
struct Column {
    uint64_t written, read;
    int thread;
    unsigned d;
};

/* A thread's view. Its accesses: whether some came after its last tcgen_before_sync, and the count at that. */
struct View {
    bool accessed;
    uint64_t released, acquired; /* counts at tcgen_before_sync and tcgen_after_sync */
    uint64_t waited, seen;       /* completions: those waited for, and those that tcgen_after_sync came after */
};

struct Tensor {
    uint64_t block, count; /* of this state, which older blocks' is not; events */
    uint32_t cell[lanes][columns];
    Column column[columns];
    View view[max_threads];
    std::bitset<columns> stored[max_threads / warp]; /* of a warp, without tcgen_stored */
    std::vector<Allocation> allocations;
    bool was_allocated;
    std::vector<Product> under_way;
    std::vector<Barrier> barriers;
};

Tensor tensor;

Tensor *tensor_of_block()
{
    Tensor *t = &tensor;
    if (t->block == shared_block()) return t;
    t->block = shared_block();
    t->count = 0;
    memset(t->cell, 0xff, sizeof t->cell);
    std::fill_n(t->column, columns, Column{});
    std::fill_n(t->view, max_threads, View{});
    for (auto &s : t->stored) s.reset();
    t->allocations.clear();
    t->was_allocated = false;
    t->under_way.clear();
    t->barriers.clear();
    return t;
}

int threads_of_block() { return static_cast<int>(blockDim.x * blockDim.y * blockDim.z); }

Range range_at(uint32_t address, unsigned n) { return {address & 0xffff, (address & 0xffff) + n}; }

void check_allocated(const Tensor *t, Range r, CudaHostPlace at)
{
    for (const Allocation &a : t->allocations)
        if (r.first >= a.range.first && r.end <= a.range.end) return;
    cuda_host_fault(at, "tcgen: columns %u … %u of tensor memory are not allocated", r.first, r.end - 1);
}

/* All threads' accesses are complete and ordered before this thread. */
void check_order(const Tensor *t, int self, CudaHostPlace at)
{
    for (int i = 0; i < threads_of_block(); i++) {
        const View *v = &t->view[i];
        if (t->stored[i / warp].any())
            cuda_host_fault(at, "tcgen: thread %d has stored into tensor memory without tcgen_stored", i);
        if (v->accessed)
            cuda_host_fault(at, "tcgen: thread %d has accessed tensor memory without tcgen_before_sync since", i);
        if (v->released > t->view[self].acquired)
            cuda_host_fault(at, "tcgen: thread %d has not called tcgen_after_sync since thread %d's access", self, i);
    }
}

/* ---- collectives of a warp ---- */

struct Call {
    uint32_t *shared; /* tcgen_alloc's */
    uint32_t address;
    unsigned n;
    uint32_t *values; /* of a lane: loaded or stored */
};

const Call *call_of(void *const lane[warp], const char *name, CudaHostPlace at)
{
    const Call *first = static_cast<const Call *>(lane[0]);
    for (int i = 1; i < warp; i++) {
        const Call *mine = static_cast<const Call *>(lane[i]);
        if (mine->address != first->address || mine->shared != first->shared)
            cuda_host_fault(at, "%s: lanes 0 and %d of a warp have different addresses", name, i);
    }
    return first;
}

void alloc(void *const lane[warp], unsigned, CudaHostPlace at)
{
    Tensor *t = tensor_of_block();
    const Call *c = call_of(lane, "tcgen_alloc", at);
    if (!cuda_host_is_shared(c->shared, sizeof *c->shared))
        cuda_host_fault(at, "tcgen_alloc: the address goes to %p, which is in no shared array", (void *)c->shared);
    if (c->n < 32 || c->n > columns || (c->n & (c->n - 1)) != 0)
        cuda_host_fault(at, "tcgen_alloc: %u columns; they are a power of two of 32 … %u", c->n, columns);
    if (t->was_allocated) cuda_host_fault(at, "tcgen_alloc: a block allocates once");
    t->was_allocated = true;
    unsigned places = columns / c->n, first = static_cast<unsigned>(t->block % places) * c->n;
    t->allocations.push_back({{first, first + c->n}, cuda_host_thread() / warp});
    for (int i = 0; i < warp; i++) t->view[cuda_host_thread() / warp * warp + i].accessed = true;
    *c->shared = first;
}

void free_columns(void *const lane[warp], unsigned, CudaHostPlace at)
{
    Tensor *t = tensor_of_block();
    const Call *c = call_of(lane, "tcgen_free", at);
    Range r = range_at(c->address, c->n);
    check_order(t, cuda_host_thread(), at);
    for (const Product &p : t->under_way)
        if (p.touches(r)) cuda_host_fault(at, "tcgen_free: a product with these columns was not waited for");
    for (size_t i = 0; i < t->allocations.size(); i++) {
        const Allocation *a = &t->allocations[i];
        if (a->range.first != r.first || a->range.end != r.end) continue;
        if (a->warp != cuda_host_thread() / warp)
            cuda_host_fault(at, "tcgen_free: warp %d allocated these columns", a->warp);
        t->allocations.erase(t->allocations.begin() + static_cast<long>(i));
        return;
    }
    cuda_host_fault(at, "tcgen_free: columns %u … %u are no allocation", r.first, r.end - 1);
}

/* The first of the warp's lanes, where this access may go there. */
unsigned check_access(Tensor *t, const Call *c, bool write, const char *name, CudaHostPlace at)
{
    int first = cuda_host_thread() / warp * warp;
    Range r = range_at(c->address, c->n);
    unsigned own = static_cast<unsigned>(first) % lanes;
    check_allocated(t, r, at);
    if (c->address >> 16 != own)
        cuda_host_fault(at, "%s: the address has lane %u; this warp has the lanes from %u on", name, c->address >> 16,
                        own);
    for (const Product &p : t->under_way)
        if (p.d.meets(r) || (write && p.left.meets(r)))
            cuda_host_fault(at, "%s: a product with these columns is under way", name);
    for (int i = first; i < first + warp; i++) {
        t->view[i].accessed = true;
        for (unsigned j = r.first; j < r.end; j++)
            if (t->column[j].written > t->view[i].seen || (write && t->column[j].read > t->view[i].seen))
                cuda_host_fault(at,
                                "%s: thread %d has not waited for the product with column %u, or not called "
                                "tcgen_after_sync since",
                                name, i, j);
    }
    return own;
}

void load(void *const lane[warp], unsigned, CudaHostPlace at)
{
    Tensor *t = tensor_of_block();
    const Call *c = call_of(lane, "tcgen_load", at);
    unsigned own = check_access(t, c, false, "tcgen_load", at), first = c->address & 0xffff;
    for (unsigned j = first; j < first + c->n; j++)
        if (t->stored[cuda_host_thread() / warp][j])
            cuda_host_fault(at, "tcgen_load: column %u was stored without tcgen_stored", j);
    for (unsigned i = 0; i < warp; i++)
        memcpy(static_cast<Call *>(lane[i])->values, &t->cell[own + i][first], c->n * sizeof(uint32_t));
}

void store(void *const lane[warp], unsigned, CudaHostPlace at)
{
    Tensor *t = tensor_of_block();
    const Call *c = call_of(lane, "tcgen_store", at);
    unsigned own = check_access(t, c, true, "tcgen_store", at), first = c->address & 0xffff;
    for (unsigned j = first; j < first + c->n; j++) t->stored[cuda_host_thread() / warp].set(j);
    for (unsigned i = 0; i < warp; i++)
        memcpy(&t->cell[own + i][first], static_cast<const Call *>(lane[i])->values, c->n * sizeof(uint32_t));
}

void stored(void *const[warp], unsigned, CudaHostPlace)
{
    tensor_of_block()->stored[cuda_host_thread() / warp].reset();
}

const CudaHostCollective allocating = {"tcgen_alloc", alloc}, freeing = {"tcgen_free", free_columns},
                         loading = {"tcgen_load", load}, storing = {"tcgen_store", store},
                         waiting = {"tcgen_stored", stored}, electing = {"tcgen_elect", nullptr};

/* ---- products ---- */

/* The instruction descriptor of .kind::f16 (PTX ISA): reserved bits, sparsity and signs are 0, d is fp32. */
void read_instruction(Product *p, uint32_t instruction, CudaHostPlace at)
{
    unsigned type = instruction >> 7 & 7, m = (instruction >> 24 & 0x1f) << 4;
    p->f16 = type == 0;
    p->a_turned = instruction >> 15 & 1;
    p->b_turned = instruction >> 16 & 1;
    p->n = (instruction >> 17 & 0x3f) << 3;
    if ((instruction & ~(7u << 7 | 7u << 10 | 3u << 15 | 0x3fu << 17 | 0x1fu << 24)) != 1u << 4 || type > 1 ||
        (instruction >> 10 & 7) != type)
        cuda_host_fault(at, "tcgen: the instruction descriptor %08x is of no product of bf16 or fp16 into fp32",
                        instruction);
    if (p->tensor && p->a_turned) cuda_host_fault(at, "tcgen: a is turned, but in tensor memory");
    if (m != lanes || p->n % 16 != 0 || p->n < 16 || p->n > 256)
        cuda_host_fault(at, "tcgen: a product of %u rows and %u columns", m, p->n);
}

/* 128 rows of d. */
void compute(Tensor *t, const Product *p, CudaHostPlace at)
{
    OperandTile right = operand_tile("tcgen", p->b, swizzle, at), left = right;
    if (!p->tensor) left = operand_tile("tcgen", p->a, swizzle, at);
    float b[k_values][256];
    for (unsigned k = 0; k < k_values; k++)
        for (unsigned j = 0; j < p->n; j++) b[k][j] = operand_value(p->f16, operand_bits(right, p->b_turned, j, k, at));
    for (unsigned row = 0; row < lanes; row++) {
        float a[k_values];
        for (unsigned k = 0; k < k_values; k++) {
            uint16_t bits = p->tensor ? static_cast<uint16_t>(t->cell[row][p->left.first + k / 2] >> k % 2 * 16)
                                      : operand_bits(left, p->a_turned, row, k, at);
            a[k] = operand_value(p->f16, bits);
        }
        uint32_t *d = &t->cell[row][p->d.first];
        float sums[256];
        for (unsigned j = 0; j < p->n; j++) sums[j] = p->add ? __uint_as_float(d[j]) : 0;
        operand_row_product(sums, a, b[0], 256, p->n);
        for (unsigned j = 0; j < p->n; j++) d[j] = __float_as_uint(sums[j]);
    }
    for (unsigned j = p->left.first; j < p->left.end; j++) t->column[j].read = t->count;
    for (unsigned j = p->d.first; j < p->d.end; j++) {
        t->column[j].written = t->count;
        t->column[j].thread = p->thread;
        t->column[j].d = p->d.first;
    }
}

/* The products behind this phase run, and it is complete. */
void complete(Tensor *t, Barrier *b, CudaHostPlace at)
{
    t->count++;
    std::vector<Product> left;
    for (const Product &p : t->under_way) {
        if (p.barrier == b->place)
            compute(t, &p, at);
        else
            left.push_back(p);
    }
    t->under_way.swap(left);
    b->phase++;
    b->committed = false;
    b->counted = t->count;
}

Barrier *barrier_at(Tensor *t, const void *place, const char *name, CudaHostPlace at)
{
    for (Barrier &b : t->barriers)
        if (b.place == place) return &b;
    cuda_host_fault(at, "%s: the barrier was not initialised (tcgen_barrier_init)", name);
}
} // namespace

void tcgen_alloc(uint32_t *address, uint32_t n, CudaHostPlace at)
{
    Call mine = {address, 0, n, nullptr};
    cuda_host_collect(&allocating, 0xffffffffu, &mine, at);
}

void tcgen_free(uint32_t address, uint32_t n, CudaHostPlace at)
{
    Call mine = {nullptr, address, n, nullptr};
    cuda_host_collect(&freeing, 0xffffffffu, &mine, at);
}

void cuda_host_tcgen_load(void *to, unsigned n, uint32_t address, CudaHostPlace at)
{
    Call mine = {nullptr, address, n, static_cast<uint32_t *>(to)};
    cuda_host_collect(&loading, 0xffffffffu, &mine, at);
}

void cuda_host_tcgen_store(uint32_t address, unsigned n, const void *from, CudaHostPlace at)
{
    uint32_t values[columns];
    memcpy(values, from, n * sizeof *values);
    Call mine = {nullptr, address, n, values};
    cuda_host_collect(&storing, 0xffffffffu, &mine, at);
}

void tcgen_stored(CudaHostPlace at) { cuda_host_collect(&waiting, 0xffffffffu, nullptr, at); }

void cuda_host_tcgen_product(uint32_t d, bool in_tensor, uint64_t a, uint64_t b, uint32_t instruction, bool add,
                             CudaHostPlace at)
{
    Tensor *t = tensor_of_block();
    Product p = {};
    p.thread = cuda_host_thread();
    p.add = add;
    p.tensor = in_tensor;
    p.a = a;
    p.b = b;
    read_instruction(&p, instruction, at);
    p.d = range_at(d, p.n);
    if (in_tensor) p.left = range_at(static_cast<uint32_t>(a), k_values / 2);
    if (d >> 16 || (in_tensor && a >> 16)) cuda_host_fault(at, "tcgen: a product begins at lane 0");
    check_allocated(t, p.d, at);
    if (in_tensor) check_allocated(t, p.left, at);
    check_order(t, p.thread, at);
    for (const Product &before : t->under_way) {
        bool continues = before.thread == p.thread && before.d.first == p.d.first && before.n == p.n;
        if ((before.touches(p.d) && !(continues && !before.left.meets(p.d))) || before.d.meets(p.left))
            cuda_host_fault(at, "tcgen: another product with these columns is under way");
    }
    for (unsigned j = 0; j < columns; j++) {
        const Column *c = &t->column[j];
        bool into = p.d.meets({j, j + 1}), from = p.left.meets({j, j + 1});
        bool continues = c->thread == p.thread && c->d == p.d.first && c->read <= t->view[p.thread].seen;
        if ((into && !continues && std::max(c->written, c->read) > t->view[p.thread].seen) ||
            (from && c->written > t->view[p.thread].seen))
            cuda_host_fault(at, "tcgen: thread %d has not waited for the product with column %u", p.thread, j);
    }
    t->under_way.push_back(p);
}

bool tcgen_elect(CudaHostPlace at)
{
    cuda_host_collect(&electing, 0xffffffffu, nullptr, at);
    return cuda_host_lane() == static_cast<int>(shared_block() % warp);
}

void tcgen_barrier_init(uint64_t *barrier, CudaHostPlace at)
{
    Tensor *t = tensor_of_block();
    if (!cuda_host_is_shared(barrier, sizeof *barrier) || reinterpret_cast<uintptr_t>(barrier) % sizeof *barrier != 0)
        cuda_host_fault(at, "tcgen_barrier_init: %p is no place of eight bytes in shared memory", (void *)barrier);
    t->barriers.push_back({barrier, 0, false, 0});
}

void tcgen_commit(uint64_t *barrier, CudaHostPlace at)
{
    Tensor *t = tensor_of_block();
    Barrier *b = barrier_at(t, barrier, "tcgen_commit", at);
    if (b->committed) cuda_host_fault(at, "tcgen_commit: nobody has waited for the barrier's phase %u", b->phase);
    b->committed = true;
    for (Product &p : t->under_way)
        if (!p.barrier && p.thread == cuda_host_thread()) p.barrier = barrier;
    cuda_host_wake(barrier);
}

void tcgen_wait(uint64_t *barrier, uint32_t parity, CudaHostPlace at)
{
    Tensor *t = tensor_of_block();
    while (barrier_at(t, barrier, "tcgen_wait", at)->phase % 2 == parity) {
        Barrier *b = barrier_at(t, barrier, "tcgen_wait", at);
        if (b->committed)
            complete(t, b, at);
        else
            cuda_host_sleep("tcgen_wait", barrier, at);
    }
    t->view[cuda_host_thread()].waited = barrier_at(t, barrier, "tcgen_wait", at)->counted;
}

void tcgen_before_sync()
{
    Tensor *t = tensor_of_block();
    View *v = &t->view[cuda_host_thread()];
    if (v->accessed) v->released = ++t->count;
    v->accessed = false;
}

void tcgen_after_sync()
{
    Tensor *t = tensor_of_block();
    View *v = &t->view[cuda_host_thread()];
    v->acquired = t->count;
    v->seen = v->waited;
}

void tcgen_publish() { cuda_host_copies_publish(); }

std::string tensor_end()
{
    const Tensor *t = &tensor;
    if (t->block != shared_block()) return "";
    if (!t->under_way.empty()) return "tcgen: nobody has waited for the last product";
    if (t->allocations.empty()) return "";
    Range r = t->allocations[0].range;
    return "tcgen: columns " + std::to_string(r.first) + " … " + std::to_string(r.end - 1) +
           " of tensor memory were not freed (tcgen_free)";
}
