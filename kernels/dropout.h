/* Dropout masks by Philox counters (docs/contracts.md 4). Every backend calls these functions or must give the same
   bits. No mask is stored: forward, recompute and backward compute it again. */
#pragma once

#include "base/philox.h"
#include "kernels/op.h"

/* One dropout site in one micro-batch. threshold 0: the identity, without a Philox call. */
typedef struct {
    uint64_t key;
    uint32_t c3, threshold;
    float scale;
} Dropout;

CAIRN_DEVICE static inline Dropout dropout_of(const Ctl *ctl, float p, uint32_t site)
{
    return (Dropout){ctl->dropout_key, dropout_c3(site, ctl->batch), dropout_threshold(p), dropout_scale(p)};
}

/* Eight draws for columns 8·group … 8·group+7 of a row: draw i is column 8·group + i. `sequence` is the sequence's
   index in the global batch, `position` the row's place in it (0 where there is one row per sequence). */
CAIRN_DEVICE static inline Philox4 dropout_row_call(const Dropout *d, uint32_t group, uint32_t position,
                                                    uint32_t sequence)
{
    return philox4(d->key, group, position, sequence, d->c3);
}

/* Eight draws of a 16×16 tile of attention probabilities, tiles counted from the sequence's start: g and c are 0..7 and
   0..3; draw i is query 16·query_tile + dropout_tile_query(g, i), key 16·key_tile + dropout_tile_key(c, i). */
CAIRN_DEVICE static inline Philox4 dropout_tile_call(const Dropout *d, uint32_t head, uint32_t sequence,
                                                     uint32_t query_tile, uint32_t g, uint32_t key_tile, uint32_t c)
{
    return philox4(d->key, key_tile * 4 + c, (query_tile * 8 + g) | head << 16, sequence, d->c3);
}
CAIRN_DEVICE static inline int dropout_tile_query(int g, int i) { return g + 8 * (i >> 2); }
CAIRN_DEVICE static inline int dropout_tile_key(int c, int i) { return 2 * c + (i & 1) + 8 * ((i >> 1) & 1); }

CAIRN_DEVICE static inline float dropout_factor(const Dropout *d, const Philox4 *draws, int i)
{
    return philox_draw16(draws, i) < d->threshold ? 0.0f : d->scale;
}

/* Factors of `n` columns of a row: 0 or scale. */
CAIRN_DEVICE static inline void dropout_row(float *factor, const Dropout *d, uint32_t position, uint32_t sequence,
                                            int64_t n)
{
    for (int64_t first = 0; first < n; first += 8) {
        Philox4 draws = {{0}};
        if (d->threshold) draws = dropout_row_call(d, (uint32_t)(first / 8), position, sequence);
        for (int i = 0; i < 8 && first + i < n; i++) factor[first + i] = dropout_factor(d, &draws, i);
    }
}

/* Factors of one query's probabilities, over keys 0 … n−1 of its sequence. */
CAIRN_DEVICE static inline void dropout_query(float *factor, const Dropout *d, uint32_t head, uint32_t sequence,
                                              int64_t query, int64_t n)
{
    uint32_t tile = (uint32_t)(query / 16), g = (uint32_t)(query % 8);
    int first_draw = query % 16 < 8 ? 0 : 4;
    for (int64_t key_tile = 0; key_tile * 16 < n; key_tile++)
        for (uint32_t c = 0; c < 4; c++) {
            Philox4 draws = {{0}};
            if (d->threshold) draws = dropout_tile_call(d, head, sequence, tile, g, (uint32_t)key_tile, c);
            for (int i = first_draw; i < first_draw + 4; i++) {
                int64_t key = key_tile * 16 + dropout_tile_key((int)c, i);
                if (key < n) factor[key] = dropout_factor(d, &draws, i);
            }
        }
}
