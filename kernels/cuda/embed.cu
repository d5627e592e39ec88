/* EMBED: x = dropout(LN(word[id] + position[pos] + type[type])), a warp or block per token (rows.cuh); a token that
   names no row of a table is a row of NaN, which stops the update. Bytes per element in bf16: 6 (word 4, x 2), the
   position and type tables coming from caches. */
#include <math.h>

#include "kernels/cuda/embed.cuh"

#include "kernels/cuda/cuda.h"

template <typename T, typename S>
__global__ void __launch_bounds__(S::threads) embed_kernel(Embed e, const float *beta, T *x)
{
    CUDA_SHARED(float, sums, [S::warps]);
    int64_t n = e.cols, r = (int64_t)blockIdx.x * S::rows + S::row();
    if (r >= e.rows) return;
    if (r >= embed_tokens(e)) return S::fill(x + r * n, n, 0.0f);
    EmbedToken t = embed_token(e, r);
    if (!t.known) return S::fill(x + r * n, n, NAN);
    Dropout dropout = dropout_now(e.dropout, e.ctl);
    float s[S::groups][GROUP];
    embed_xhat<S>(e, t, s, sums);
    CUDA_UNROLL for (int i = 0; i < S::groups; i++)
    {
        float scale[GROUP] = {}, shift[GROUP] = {};
        S::load_constant(e.gamma, i, n, scale);
        S::load_constant(beta, i, n, shift);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) s[i][k] = scale[k] * s[i][k] + shift[k];
        if (S::column(i) < n) drop_group(s[i], dropout, S::column(i), t.at[POSITION], t.sequence);
        S::store(x + r * n, i, n, s[i]);
    }
}

Status cuda_embed(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = OUT(call, EMBED, x);
    TRY(rows_check(call, x->cols));
    Embed e = embed_of(call, rows);
    const float *beta = cuda_data<const float>(IN(call, EMBED, beta));
    bool whole = embed_whole(e) && on_16(beta, x->data);
    CUDA_BY_TYPE(x->dtype, T,
                 ROWS_BY_SHAPE(e.cols, whole, S,
                               return CUDA_LAUNCH((embed_kernel<T, S>), cuda_blocks(e.rows, S::rows), S::threads, 0, e,
                                                  beta, cuda_data<T>(x))));
}
