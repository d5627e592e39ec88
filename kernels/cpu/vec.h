/* Interface of the vector code: functions of one thread over a range of rows, compiled once per instruction set.
   cpu.vec is the table of the set chosen when the backend is opened. `bf16`: activations are BF16, else F32. */
#pragma once

#include "kernels/dropout.h"
#include "kernels/host.h"

/* Rows of ADDNORM and ADDNORM_BWD; unused pointers are NULL. */
typedef struct {
    const void *d, *x;         // (T, H)
    const void *kept, *dy;     // (T, H)
    const float *gamma, *beta; // (H)
    const int32_t *pos, *seq;  // (T)
    void *y, *xhat, *dd, *dx;  // (T, H)
    float *rstd;               // (T): written forward, read backward
    float *dgamma, *dbeta;     // (H): these rows' sums, added to
    int64_t cols;
    float eps;
    bool bf16, form_xhat;
    Dropout dropout;
} NormRows;

typedef struct {
    const int32_t *ids, *types, *pos, *seq; // (T)
    const float *word, *position, *type;    // (V, H), (P, H), (types, H) or NULL
    const float *gamma, *beta;              // (H)
    void *x;                                // (T, H)
    const void *dx;                         // (T, H)
    const int32_t *order;                   // rows in the order to take them; NULL: from the first
    float *dtable;                          // word's or position's gradient
    const int32_t *index;                   // the row of dtable for each token: ids or pos
    float *dtype, *dgamma, *dbeta;          // these rows' sums, added to; NULL: not wanted
    int64_t cols;
    float eps;
    bool bf16;
    Dropout dropout;
} EmbedRows;

/* One sequence's head. Strides in elements. */
typedef struct {
    const void *qkv, *o_in, *dout;       // (T, 3H), (T, H), (T, H)
    void *o, *dqkv;                      // (T, H), (T, 3H)
    float *lse;                          // (T, A)
    int64_t heads, head_dim, max_length; /* max_length: the sequence length that scratch was counted for */
    float scale;
    bool bf16;
    Dropout dropout;
} Attention;

typedef struct {
    int64_t first, length, head;
    uint32_t sequence;
} AttentionPart;

/* A product of rows: y (rows, n) = x (rows, k)·B (+ bias, or + y), B packed by pack_weight. */
typedef struct {
    const void *x, *b, *bias;
    void *y;
    int64_t k, n;
    bool x_bf16, y_bf16, add;
} RowProduct;

/* dw (n, k) += dyᵀ·x over `rows` rows; dw is F32. */
typedef struct {
    const void *x, *dy;
    float *dw;
    int64_t rows, k, n;
    bool bf16;
} GradProduct;

/* X(result, name, arguments) */
#define VEC_LIST(X)                                                                                                    \
    X(void, gelu, (void *g, const void *pre, int64_t n, bool bf16, GeluKind kind))                                     \
    X(void, gelu_bwd, (void *dpre, void *g, const void *pre, const void *dg, int64_t n, bool bf16, GeluKind kind))     \
    X(size_t, norm_scratch, (int64_t cols))                                                                            \
    X(void, norm_fwd, (const NormRows *a, int64_t first, int64_t end, void *scratch))                                  \
    X(void, norm_bwd, (const NormRows *a, int64_t first, int64_t end, void *scratch))                                  \
    X(void, affine,                                                                                                    \
      (void *y, const void *xhat, const float *gamma, const float *beta, int64_t rows, int64_t cols, bool bf16))       \
    X(void, embed_fwd, (const EmbedRows *a, int64_t first, int64_t end, void *scratch))                                \
    X(void, embed_bwd, (const EmbedRows *a, int64_t first, int64_t end, void *scratch))                                \
    X(void, column_sums, (float *sums, const void *x, int64_t first, int64_t end, int64_t cols, bool bf16))            \
    X(void, add_blocks, (float *to, const float *blocks, int64_t n, int64_t stride, int64_t first, int64_t end))       \
    X(void, add_row, (void *to, const void *from, int64_t n, bool bf16))                                               \
    X(uint64_t, digest_row, (const void *row, int64_t bytes, uint64_t place))                                          \
    X(double, sum_squares, (const float *x, int64_t n))                                                                \
    X(void, adam, (float *p, float *m, float *v, const float *g, float *u, int64_t n, const Adam *a))                  \
    X(void, descend, (float *p, const float *u, float rate, int64_t n))                                                \
    X(float, softmax_row,                                                                                              \
      (void *gradient, float *logits, int64_t classes, int64_t cols, int32_t label, float scale, bool bf16,            \
       bool *correct))                                                                                                 \
    X(size_t, attention_fwd_scratch, (const Attention *a))                                                             \
    X(size_t, attention_bwd_scratch, (const Attention *a))                                                             \
    X(void, attention_fwd, (const Attention *a, const AttentionPart *part, void *scratch))                             \
    X(void, attention_bwd, (const Attention *a, const AttentionPart *part, void *scratch))                             \
    X(int64_t, weight_panels, (int64_t cols))                                                                          \
    X(size_t, weight_bytes, (int64_t depth, int64_t cols, bool bf16))                                                  \
    X(void, pack_weight,                                                                                               \
      (void *to, const float *w, int64_t n, int64_t k, bool transposed, bool bf16, int64_t first, int64_t end))        \
    X(size_t, rows_scratch, (int64_t k, bool bf16))                                                                    \
    X(void, rows_product,                                                                                              \
      (const RowProduct *a, int64_t first, int64_t end, int64_t panel, int64_t panel_end, void *scratch))              \
    X(size_t, grad_scratch, (void))                                                                                    \
    X(void, grad_product,                                                                                              \
      (const GradProduct *a, int64_t n_first, int64_t n_end, int64_t k_first, int64_t k_end, void *scratch))

typedef struct {
    const char *name;
#define X(result, name, arguments) result(*name) arguments;
    VEC_LIST(X)
#undef X
} Vec;

extern const Vec cpu_vec_generic, cpu_vec_avx2, cpu_vec_avx512, cpu_vec_avx512_bf16;

/* Inside vec/: V(name) is `name` of the instruction set being compiled. */
#ifdef CAIRN_VEC
#    define V_JOIN_(name, isa)         name##_##isa
#    define V_JOIN(name, isa)          V_JOIN_(name, isa)
#    define V(name)                    V_JOIN(name, CAIRN_VEC)
#    define X(result, name, arguments) result V(name) arguments;
VEC_LIST(X)
#    undef X
#endif
