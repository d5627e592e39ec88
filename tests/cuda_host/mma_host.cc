#include "cuda_host/cuda_tiles.cuh"

#include <vector>

#include "cuda_host/operands.h"
#include "cuda_host/shared.h"

namespace
{
constexpr int warp = 32;

/* ---- products ---- */

struct Tile {
    uint32_t a[4], b[2];
    float c[4], d[4];
};

float value(__nv_bfloat16 x) { return __bfloat162float(x); }
float value(__half x) { return __half2float(x); }

/* The low (0) or high (1) value of a register. */
template <typename T> float half_of(uint32_t bits, int which)
{
    T pair[2];
    memcpy(static_cast<void *>(pair), &bits, sizeof bits);
    return value(pair[which]);
}

template <typename T> void resolve_product(void *const lane[warp], unsigned, CudaHostPlace)
{
    float a[16][16], b[16][8], d[16][8];
    for (int i = 0; i < warp; i++) {
        const Tile *tile = static_cast<const Tile *>(lane[i]);
        int g = i / 4, t = i % 4;
        for (int r = 0; r < 4; r++)
            for (int h = 0; h < 2; h++) a[g + r % 2 * 8][2 * t + r / 2 * 8 + h] = half_of<T>(tile->a[r], h);
        for (int r = 0; r < 2; r++)
            for (int h = 0; h < 2; h++) b[2 * t + r * 8 + h][g] = half_of<T>(tile->b[r], h);
        for (int j = 0; j < 4; j++) d[g + j / 2 * 8][2 * t + j % 2] = tile->c[j];
    }
    for (int row = 0; row < 16; row++) operand_row_product(d[row], a[row], b[0], 8, 8);
    for (int i = 0; i < warp; i++)
        for (int j = 0; j < 4; j++) static_cast<Tile *>(lane[i])->d[j] = d[i / 4 + j / 2 * 8][i % 4 * 2 + j % 2];
}

void product(const CudaHostCollective *kind, float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4],
             CudaHostPlace at)
{
    Tile tile;
    memcpy(tile.a, a, sizeof tile.a);
    memcpy(tile.b, b, sizeof tile.b);
    memcpy(tile.c, c, sizeof tile.c);
    cuda_host_collect(kind, 0xffffffffu, &tile, at);
    memcpy(d, tile.d, sizeof tile.d);
}

const CudaHostCollective mma_bf16 = {"mma_bf16_16x8x16", resolve_product<__nv_bfloat16>},
                         mma_f16 = {"mma_f16_16x8x16", resolve_product<__half>};

/* ---- matrices from shared memory ---- */

struct Load {
    const void *row;
    uint32_t r[4];
};

void check_shared(const void *p, const char *what, CudaHostPlace at)
{
    if (!cuda_host_is_shared(p, 16))
        cuda_host_fault(at, "%s: 16 bytes at %p are not in one shared array of this block", what, p);
    if (reinterpret_cast<uintptr_t>(p) % 16)
        cuda_host_fault(at, "%s: the shared address %p is not a multiple of 16", what, p);
}

template <bool transposed> void resolve_load(void *const lane[warp], unsigned, CudaHostPlace at)
{
    uint16_t m[4][8][8];
    for (int i = 0; i < warp; i++) {
        const void *row = static_cast<const Load *>(lane[i])->row;
        check_shared(row, "ldmatrix", at);
        memcpy(m[i / 8][i % 8], row, 16);
    }
    for (int i = 0; i < warp; i++)
        for (int j = 0; j < 4; j++) {
            int g = i / 4, t = i % 4 * 2;
            uint32_t low = transposed ? m[j][t][g] : m[j][g][t], high = transposed ? m[j][t + 1][g] : m[j][g][t + 1];
            static_cast<Load *>(lane[i])->r[j] = low | high << 16;
        }
}

void load(const CudaHostCollective *kind, uint32_t r[4], const void *row, CudaHostPlace at)
{
    Load mine = {row, {0, 0, 0, 0}};
    cuda_host_collect(kind, 0xffffffffu, &mine, at);
    memcpy(r, mine.r, sizeof mine.r);
}

const CudaHostCollective load4 = {"mma_load4", resolve_load<false>},
                         load4_transposed = {"mma_load4_transposed", resolve_load<true>};

/* ---- asynchronous copies ---- */

struct Copy {
    void *to;
    const void *from; /* NULL: zeros */
    int group;
};

struct Copies {
    uint64_t block; /* of these copies; older ones are dropped */
    int groups;     /* committed */
    std::vector<Copy> under_way;
    std::vector<size_t> landed; /* where, since the thread's last cuda_host_copies_publish */
};

/* Of 16 bytes of shared memory: the block in which they were copied and not published. */
uint64_t unpublished[(1 << 19) / 16];

Copies *copies_of_thread()
{
    static Copies all[1024];
    Copies *c = &all[cuda_host_thread()];
    if (c->block == shared_block()) return c;
    c->block = shared_block();
    c->groups = 0;
    c->under_way.clear();
    c->landed.clear();
    return c;
}
} // namespace

void mma_bf16_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4], CudaHostPlace at)
{
    product(&mma_bf16, d, a, b, c, at);
}
void mma_f16_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4], CudaHostPlace at)
{
    product(&mma_f16, d, a, b, c, at);
}
void mma_f16_16x8x8(float d[4], const uint32_t a[2], uint32_t b, const float c[4], CudaHostPlace at)
{
    const uint32_t whole_a[4] = {a[0], a[1]}, whole_b[2] = {b};
    product(&mma_f16, d, whole_a, whole_b, c, at);
}

void mma_load4(uint32_t r[4], const void *row, CudaHostPlace at) { load(&load4, r, row, at); }
void mma_load4_transposed(uint32_t r[4], const void *row, CudaHostPlace at) { load(&load4_transposed, r, row, at); }

static void move(const Copy &copy)
{
    if (copy.from)
        memcpy(copy.to, copy.from, 16);
    else
        memset(copy.to, 0, 16);
}

/* Bytes move when the copier waits. By chance those of half of the copies move at once, too, because hardware may: a
   stage that others still read must not be overwritten yet. */
static uint32_t copies_begun;

void copy_async(void *shared, const void *global, bool there, CudaHostPlace at)
{
    check_shared(shared, "copy_async", at);
    if (there && reinterpret_cast<uintptr_t>(global) % 16)
        cuda_host_fault(at, "copy_async: the global address %p is not a multiple of 16", global);
    Copies *c = copies_of_thread();
    c->under_way.push_back({shared, there ? global : nullptr, c->groups});
    if (++copies_begun * 0x9E3779B9u >> 31) move(c->under_way.back());
}

void copy_async_commit() { copies_of_thread()->groups++; }

void cuda_host_copy_wait(int newest)
{
    Copies *c = copies_of_thread();
    size_t kept = 0;
    for (const Copy &copy : c->under_way) {
        if (copy.group >= c->groups - newest) {
            c->under_way[kept++] = copy;
            continue;
        }
        move(copy);
        c->landed.push_back(shared_offset(copy.to) / 16);
        unpublished[c->landed.back()] = shared_block();
    }
    c->under_way.resize(kept);
}

void cuda_host_copies_publish()
{
    Copies *c = copies_of_thread();
    for (size_t i : c->landed) unpublished[i] = 0;
    c->landed.clear();
    shared_publish(cuda_host_thread());
}

bool cuda_host_copy_is_private(const void *p) { return unpublished[shared_offset(p) / 16] == shared_block(); }
