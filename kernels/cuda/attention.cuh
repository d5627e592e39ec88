/* Shared by attention's kernels: which rows a block has, dropout, calls. attention_tiles.cuh has tiles and products.

   A block has one head of 64 neighbouring rows of one sequence, 16 rows a warp: its own rows (queries, or keys). The
   other side's rows of the sequence stream past in steps, two stages deep. Warps work on 16×16 tiles counted from the
   sequence's start, so that a sequence's results do not depend on where its rows lie; a warp without rows only copies.
   A tile of scores has the layout of two mma accumulators side by side: lane 4·g + c holds x[n][r], row g + 8·⌊r/2⌋,
   column 8·n + 2·c + r mod 2. */
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernel.cuh"

#define ATTENTION_ROWS     64 /* of a block */
#define ATTENTION_THREADS  128
#define ATTENTION_HEAD_DIM 128 /* largest */
#define LOG2_E             1.4426950408889634f

/* Blocks of a multiprocessor that registers are kept for. */
template <typename T, int D> static constexpr int attention_blocks = D > 64 ? 2 : sizeof(T) == 4 ? 3 : 4;

template <typename T> struct Attention {
    const T *qkv;             // (T, 3H)
    const T *o;               // (T, H); backward
    const T *dout;            // (T, H); backward
    T *to;                    // o (T, H), or dqkv (T, 3H)
    float *lse;               // (T, A)
    float *dot;               // (A, T): do·o; backward
    float *sums;              // (S, 3H): column sums of each sequence's dqkv; NULL: not wanted
    const int32_t (*span)[2]; // (S, 2), sequences in the order of their rows
    const int32_t *index;     // (S)
    const Ctl *ctl;
    int32_t rows, capacity; /* T and S of the bucket */
    int32_t heads, head_dim;
    float scale, keep_scale; /* keep_scale: 1/(1−p) */
    uint32_t threshold, site;
    bool aligned; /* rows of a head start at multiples of 16 bytes and are such multiples long */
};

/* The number of the warp, which the compiler then knows to be the same in all lanes: what follows from it are branches
   of whole warps. */
__device__ static inline int attention_warp()
{
    return __shfl_sync(CUDA_FULL, static_cast<int>(threadIdx.x) / CUDA_WARP, 0);
}

/* ---- which rows ---- */

struct AttentionPlace {
    int32_t start, length;      /* of the sequence */
    int32_t first;              /* the block's first row in it; length or more: the block has none */
    int32_t sequence;           /* in spans; −1: the rows before the first */
    int32_t gap_start, gap_end; /* rows of no sequence that this block clears */
};

/* Sequence s has the slots (blocks of a head of `own` rows) from ⌊start/own⌋ + s + 1 to where s + 1's begin, start of
   the one after the last being `rows`: at least as many as its rows and the gap behind it fill, in a grid of known
   size, without counting. Slots before the first sequence's clear the gap before it. Lanes try 32 sequences at a time.
 */
template <int own = ATTENTION_ROWS> static inline unsigned attention_slots(int64_t rows, int64_t capacity)
{
    return static_cast<unsigned>(rows / own + capacity + 1);
}

template <int own = ATTENTION_ROWS, typename T>
__device__ static inline bool attention_place(const Attention<T> &a, AttentionPlace *p)
{
    int slot = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % CUDA_WARP;
    int n_seqs = min(a.ctl->n_seqs, a.capacity), low = -1, high = n_seqs; /* low's slots begin at or before ours */
    if (slot >= a.rows / own + n_seqs + 1) return false;
    while (high - low > 1) {
        int step = (high - low - 1 + CUDA_WARP - 1) / CUDA_WARP, s = low + (lane + 1) * step;
        bool before = s < high && a.span[s][0] / own + s + 1 <= slot;
        low += __popc(__ballot_sync(CUDA_FULL, before)) * step;
        high = min(high, low + step);
    }
    int32_t end = low < 0 ? 0 : a.span[low][1], next = low + 1 < n_seqs ? a.span[low + 1][0] : a.rows;
    p->sequence = low;
    p->start = low < 0 ? 0 : a.span[low][0];
    p->length = end - p->start;
    p->first = (slot - (low < 0 ? 0 : p->start / own + low + 1)) * own;
    p->gap_start = min(end + p->first, next);
    p->gap_end = min(p->gap_start + own, next);
    return true;
}

/* For blocks that have a head of a whole sequence: block 0 has the gap before the first sequence, and no sequence.
   False: there is neither for this block. */
template <typename T> __device__ static inline bool attention_sequence(const Attention<T> &a, AttentionPlace *p)
{
    int slot = static_cast<int>(blockIdx.x), n_seqs = min(a.ctl->n_seqs, a.capacity);
    if (slot > n_seqs) return false;
    p->sequence = slot - 1;
    p->start = slot > 0 ? a.span[slot - 1][0] : 0;
    p->gap_start = slot > 0 ? a.span[slot - 1][1] : 0;
    p->gap_end = slot < n_seqs ? a.span[slot][0] : a.rows;
    p->length = p->gap_start - p->start;
    p->first = 0;
    return true;
}
template <typename T> static inline dim3 attention_sequences_grid(const Attention<T> &a)
{
    return dim3(static_cast<unsigned>(a.capacity) + 1, static_cast<unsigned>(a.heads));
}

/* ---- dropout ---- */

/* The draws of a tile's values in this lane, and which values they drop. A draw is half a word: shifted to the top, it
   is below the threshold there if the word is. */
template <typename T> struct AttentionDropout {
    Dropout site;
    uint32_t head, sequence, limit;

    __device__ inline AttentionDropout(const Attention<T> &a, const AttentionPlace &p)
        : site{a.ctl->dropout_key, dropout_c3(a.site, a.ctl->batch), a.threshold, a.keep_scale}, head(blockIdx.y),
          sequence(static_cast<uint32_t>(a.index[p.sequence])), limit(a.threshold << 16)
    {
    }

    /* The key by shuffles, so that the compiler knows it to be the same in all lanes, and keeps rounds' keys where it
       has registers for them. */
    __device__ inline void keep_key()
    {
        uint32_t low = __shfl_sync(CUDA_FULL, static_cast<uint32_t>(site.key), 0);
        uint32_t high = __shfl_sync(CUDA_FULL, static_cast<uint32_t>(site.key >> 32), 0);
        site.key = uint64_t{high} << 32 | low;
    }

    /* Rows of the tile are queries: one call has all draws of x, that of x[n][r] in half r mod 2 of a word. */
    __device__ inline Philox4 tile(int query_tile, int key_tile) const
    {
        uint32_t lane = threadIdx.x % CUDA_WARP;
        return dropout_tile_call(&site, head, sequence, static_cast<uint32_t>(query_tile), lane / 4,
                                 static_cast<uint32_t>(key_tile), lane % 4);
    }
    __device__ inline bool drops(const Philox4 &draws, int n, int r) const
    {
        uint32_t word = draws.v[n + r / 2 * 2];
        return (r % 2 ? word : word << 16) < limit;
    }

    /* Rows of the tile are keys: lane 4·g + c needs keys g, g + 8 of queries 2c, 2c + 1, 2c + 8, 2c + 9. These are one
       parity's halves of two calls, for queries 2c and 2c + 1, and lane ^ 4 needs the other halves: so each makes one
       call and they exchange. The draw of x[n][r] is then in half ⌊r/2⌋ of a word. */
    struct Turned {
        uint32_t word[2][2]; /* [query parity][n] */
    };
    __device__ inline Turned tile_turned(int query_tile, int key_tile) const
    {
        uint32_t lane = threadIdx.x % CUDA_WARP, g = lane / 4, c = lane % 4, odd = g & 1;
        Philox4 draws = dropout_tile_call(&site, head, sequence, static_cast<uint32_t>(query_tile), 2 * c + odd,
                                          static_cast<uint32_t>(key_tile), g / 2);
        Turned t;
        CUDA_UNROLL
        for (int n = 0; n < 2; n++) {
            uint32_t low = (draws.v[2 * n] & 0xffffu) | draws.v[2 * n + 1] << 16;
            uint32_t high = draws.v[2 * n] >> 16 | (draws.v[2 * n + 1] & 0xffff0000u);
            uint32_t other = __shfl_xor_sync(CUDA_FULL, odd ? low : high, 4);
            t.word[0][n] = odd ? other : low;
            t.word[1][n] = odd ? high : other;
        }
        return t;
    }
    __device__ inline bool drops(const Turned &draws, int n, int r) const
    {
        uint32_t word = draws.word[r % 2][n];
        return (r / 2 ? word : word << 16) < limit;
    }
};

/* ---- calls ---- */

/* attention_cudnn.cu: both ops by cuDNN (sdpa.h), where the backend was opened with it and the op has no dropout. */
bool attention_by_cudnn(const OpCall *call);
size_t attention_cudnn_scratch(const OpCall *call, const RowCounts *rows);
Status attention_cudnn_prepare(const OpCall *call, const RowCounts *buckets, int n); /* E_USAGE: cuDNN cannot do it */
Status attention_cudnn(const OpCall *call, const RowCounts *rows);

/* attention_bwd_whole.cu: ATTENTION_BWD in one kernel, where types, shapes and the GPU's shared memory allow it. */
bool attention_bwd_is_whole(const OpCall *call);
Status attention_bwd_whole(const OpCall *call, const RowCounts *rows);

/* attention_bwd.cu: db's parts in scratch, behind what the kernels need. */
size_t attention_bwd_own_scratch(const OpCall *call, const RowCounts *rows);
bool attention_bwd_leaves_sums(const OpCall *call); /* the kernel leaves Attention.sums; else dqkv is read once more */

/* attention_wgmma.cu, attention_bwd_wgmma.cu: ATTENTION and ATTENTION_BWD by wgmma, where CAIRN_CUDA_NATIVE_ATTENTION
   asks for it and types and shapes allow it. */
bool attention_is_native(const OpCall *call);
bool attention_bwd_is_native(const OpCall *call);
Status attention_wgmma(const OpCall *call, const RowCounts *rows);
Status attention_bwd_wgmma(const OpCall *call, const RowCounts *rows);

template <typename T> static inline Attention<T> attention_of(const OpCall *call, const RowCounts *rows)
{
    CHECK(call->attr.attention.head_dim <= ATTENTION_HEAD_DIM, "cuda_attention_prepare refuses such heads");
    const Operand *qkv = IN_EITHER(call, ATTENTION, ATTENTION_BWD, qkv),
                  *span = IN_EITHER(call, ATTENTION, ATTENTION_BWD, spans);
    Attention<T> a = {};
    a.qkv = cuda_data<const T>(qkv);
    a.span = cuda_data<const int32_t[2]>(span);
    a.index = cuda_data<const int32_t>(IN_EITHER(call, ATTENTION, ATTENTION_BWD, seq_index));
    a.ctl = op_ctl(call);
    a.rows = static_cast<int32_t>(rows_in(qkv->rows, rows));
    a.capacity = static_cast<int32_t>(rows_in(span->rows, rows));
    a.heads = call->attr.attention.heads;
    a.head_dim = call->attr.attention.head_dim;
    a.scale = call->attr.attention.scale;
    a.threshold = dropout_threshold(call->attr.attention.dropout);
    a.keep_scale = dropout_scale(call->attr.attention.dropout);
    a.site = call->attr.attention.site;
    a.aligned = a.head_dim * sizeof(T) % 16 == 0;
    return a;
}
template <typename T> static inline Attention<T> attention_fwd_of(const OpCall *call, const RowCounts *rows)
{
    Attention<T> a = attention_of<T>(call, rows);
    a.to = cuda_data<T>(OUT(call, ATTENTION, o));
    a.lse = cuda_data<float>(OUT(call, ATTENTION, lse));
    return a;
}
template <typename T> static inline Attention<T> attention_bwd_of(const OpCall *call, const RowCounts *rows)
{
    Attention<T> a = attention_of<T>(call, rows);
    a.o = cuda_data<const T>(IN(call, ATTENTION_BWD, o));
    a.dout = cuda_data<const T>(IN(call, ATTENTION_BWD, do));
    a.lse = cuda_data<float>(IN(call, ATTENTION_BWD, lse));
    a.to = cuda_data<T>(OUT(call, ATTENTION_BWD, dqkv));
    char *scratch = static_cast<char *>(cuda_scratch(call, cuda_attention_bwd_scratch(call, rows)));
    a.dot = reinterpret_cast<float *>(scratch);
    if (attention_bwd_leaves_sums(call))
        a.sums = reinterpret_cast<float *>(scratch + attention_bwd_own_scratch(call, rows));
    return a;
}
template <int own = ATTENTION_ROWS, typename T> static inline dim3 attention_grid(const Attention<T> &a)
{
    return dim3(attention_slots<own>(a.rows, a.capacity), static_cast<unsigned>(a.heads));
}
