#include "cuda_host/cuda_wgmma.cuh"

#include <vector>

#include "cuda_host/cuda_tiles.cuh"
#include "cuda_host/operands.h"
#include "cuda_host/shared.h"

namespace
{
constexpr int warp = 32, group = 128, most = 32; /* most: values of d in a thread */

struct Product {
    CudaHostWgmma kind;
    bool committed;
    uint64_t a, b; /* descriptors */
    float *d[group];
    uint32_t registers[group][4];
    float before[group][most];                /* d, unless a product under way gives it */
    int values() const { return kind.n / 2; } /* of d in a thread */
};

/* Products of four warps that some warp has not waited for. */
struct Warpgroup {
    uint64_t block; /* of these products; older ones are dropped */
    std::vector<Product> under_way;
    size_t waited[group / warp]; /* of a warp: how many of them it has waited for */
    bool fenced[group];          /* of a thread, since its last wait */
};

Warpgroup *warpgroup_of_thread()
{
    static Warpgroup all[1024 / group];
    Warpgroup *w = &all[cuda_host_thread() / group];
    if (w->block == shared_block()) return w;
    w->block = shared_block();
    w->under_way.clear();
    std::fill_n(w->waited, group / warp, 0);
    std::fill_n(w->fenced, group, false);
    return w;
}

constexpr uint32_t poison = 0xffffffffu; /* NaN */

bool is_poison(const float *d, int values)
{
    for (int i = 0; i < values; i++)
        if (__float_as_uint(d[i]) != poison) return false;
    return true;
}

constexpr uint64_t swizzle = uint64_t{1} << 62; /* of 128 bytes, in descriptors */

/* ---- products ---- */

struct Issue {
    CudaHostWgmma kind;
    float *d;
    uint64_t a, b;
};

void issue(void *const thread[group], CudaHostPlace at)
{
    Warpgroup *w = warpgroup_of_thread();
    const Issue *first = static_cast<const Issue *>(thread[0]);
    w->under_way.emplace_back();
    Product *p = &w->under_way.back();
    p->kind = first->kind;
    p->committed = false;
    p->a = first->a;
    p->b = first->b;
    for (int t = 0; t < group; t++) {
        const Issue *mine = static_cast<const Issue *>(thread[t]);
        if (mine->a != p->a || mine->b != p->b)
            cuda_host_fault(at, "wgmma: threads 0 and %d of a warpgroup have different descriptors", t);
        if (!w->fenced[t]) cuda_host_fault(at, "wgmma: thread %d has not called wgmma_fence", t);
        p->d[t] = mine->d;
        if (p->kind.registers) memcpy(p->registers[t], mine->kind.registers, sizeof p->registers[t]);
        std::copy_n(mine->d, p->values(), p->before[t]);
        for (int i = 0; i < p->values(); i++) mine->d[i] = __uint_as_float(poison);
    }
}

const CudaHostCollective wgmma_issue = {"wgmma", nullptr, issue};

/* Where a lane's value lies in its warp's 16 rows. */
int row_of(int lane, int i) { return lane / 4 + i / 2 % 2 * 8; }
int column_of(int lane, int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

/* Rows 16·w … of d, for warp w of the four. */
void compute(const Product *p, int w, CudaHostPlace at)
{
    const CudaHostWgmma &kind = p->kind;
    float a[16][16], b[16][64];
    OperandTile right = operand_tile("wgmma", p->b, swizzle, at), left = right;
    if (!kind.registers) left = operand_tile("wgmma", p->a, swizzle, at);
    for (unsigned k = 0; k < 16; k++) {
        for (unsigned j = 0; j < static_cast<unsigned>(kind.n); j++)
            b[k][j] = operand_value(kind.f16, operand_bits(right, kind.b_turned, j, k, at));
        for (unsigned row = 0; row < 16; row++) {
            unsigned holder = static_cast<unsigned>(w) * warp + row % 8 * 4 + k % 8 / 2;
            uint32_t held = p->registers[holder][row / 8 + k / 8 * 2] >> k % 2 * 16;
            unsigned i = static_cast<unsigned>(w) * 16 + row;
            a[row][k] = operand_value(kind.f16, kind.registers ? static_cast<uint16_t>(held)
                                                               : operand_bits(left, kind.a_turned, i, k, at));
        }
    }
    float sums[16][64];
    for (int lane = 0; lane < warp; lane++) {
        const float *d = p->d[w * warp + lane];
        if (!is_poison(d, p->values())) cuda_host_fault(at, "wgmma: lane %d changed its d before wgmma_wait", lane);
        for (int i = 0; i < p->values(); i++)
            sums[row_of(lane, i)][column_of(lane, i)] = kind.add ? p->before[w * warp + lane][i] : 0.0f;
    }
    for (int row = 0; row < 16; row++) operand_row_product(sums[row], a[row], b[0], 64, static_cast<unsigned>(kind.n));
    for (int lane = 0; lane < warp; lane++)
        for (int i = 0; i < p->values(); i++) p->d[w * warp + lane][i] = sums[row_of(lane, i)][column_of(lane, i)];
}

void wait(void *const[warp], unsigned, CudaHostPlace at)
{
    Warpgroup *w = warpgroup_of_thread();
    int mine = cuda_host_thread() % group / warp;
    for (size_t i = w->waited[mine]; i < w->under_way.size(); i++) {
        Product *p = &w->under_way[i];
        if (!p->committed) cuda_host_fault(at, "wgmma: wgmma_wait before wgmma_commit");
        compute(p, mine, at);
        for (size_t j = i + 1; j < w->under_way.size(); j++) /* a later one continues with this one's result */
            for (int lane = mine * warp; lane < (mine + 1) * warp; lane++) {
                Product *next = &w->under_way[j];
                if (next->d[lane] != p->d[lane]) continue;
                std::copy_n(p->d[lane], p->values(), next->before[lane]);
                for (int v = 0; v < p->values(); v++) p->d[lane][v] = __uint_as_float(poison);
            }
    }
    w->waited[mine] = w->under_way.size();
    std::fill_n(w->fenced + mine * warp, warp, false);
    if (std::all_of(w->waited, w->waited + group / warp, [&](size_t n) { return n == w->under_way.size(); })) {
        w->under_way.clear();
        std::fill_n(w->waited, group / warp, 0);
    }
}

const CudaHostCollective wgmma_waiting = {"wgmma_wait", wait};
} // namespace

uint32_t wgmma_shared_address(const void *p, CudaHostPlace at)
{
    size_t offset = shared_offset(p);
    if (offset > 0x3ffff) cuda_host_fault(at, "wgmma: %p has no shared address of 18 bits", p);
    return static_cast<uint32_t>(offset);
}

void cuda_host_wgmma(const CudaHostWgmma &kind, float *d, uint64_t a, uint64_t b, CudaHostPlace at)
{
    Issue mine = {kind, d, a, b};
    cuda_host_collect(&wgmma_issue, 0xffffffffu, &mine, at);
}

void wgmma_publish() { cuda_host_copies_publish(); }

void wgmma_fence() { warpgroup_of_thread()->fenced[cuda_host_thread() % group] = true; }

void wgmma_commit()
{
    for (Product &p : warpgroup_of_thread()->under_way) p.committed = true;
}

void cuda_host_wgmma_wait(CudaHostPlace at) { cuda_host_collect(&wgmma_waiting, 0xffffffffu, nullptr, at); }
