/* The ops of a plan, one paragraph each: formula, operands with their shapes, outputs that may share memory, and
   source. Code in kernels/ref/ is the exact meaning.

   Letters: T tokens of a micro-batch, S sequences, M masked positions, N read rows, R any of them; H hidden, F
   feed-forward, A heads, V padded vocabulary, C classes, P elements of the flat parameter space. "c" is the compute
   type (F32, BF16 or F16). Parameters, their gradients and statistics are F32, indices I32; `ctl`, `stats`, `scaling`
   and `segments` are the structs of op.h. Every op writes all rows of the micro-batch's bucket; rows beyond the real
   ones are finite and their gradients exactly 0 (docs/contracts.md 2).

   <OP>_OPERANDS(IN, OUT, op) lists inputs, then outputs, as IN(op, name) or IN(op, name, marks). Marks, combined by
   "+": OPTIONAL, may be absent; ADDED, is accumulated into; BEGUN, is accumulated into, but counts as 0 before a call
   that says so (OpCall.begun), whatever its memory holds; SUMS_OF(op, y), OPTIONAL and BEGUN, to which the column sums
   of output y as it is stored are added; MAY_SHARE(op, x), may lie in the memory of input x; MUST_SHARE(op, x), must
   lie there where x is present, because the kernel adds in place; CTL, the step's `ctl`. */
#pragma once

/* X(op, printed name): the enum Op, in this order. */
#define OP_LIST(X)                                                                                                     \
    X(EMBED, "embed")                                                                                                  \
    X(EMBED_BWD, "embed_bwd")                                                                                          \
    X(LINEAR, "linear")                                                                                                \
    X(LINEAR_DGRAD, "linear_dgrad")                                                                                    \
    X(LINEAR_WGRAD, "linear_wgrad")                                                                                    \
    X(ATTENTION, "attention")                                                                                          \
    X(ATTENTION_BWD, "attention_bwd")                                                                                  \
    X(GELU, "gelu")                                                                                                    \
    X(GELU_BWD, "gelu_bwd")                                                                                            \
    X(ADDNORM, "addnorm")                                                                                              \
    X(ADDNORM_BWD, "addnorm_bwd")                                                                                      \
    X(AFFINE, "affine")                                                                                                \
    X(GATHER, "gather")                                                                                                \
    X(SCATTER, "scatter")                                                                                              \
    X(ACTIVATE, "activate")                                                                                            \
    X(ACTIVATE_BWD, "activate_bwd")                                                                                    \
    X(DROPOUT, "dropout")                                                                                              \
    X(XENT, "xent")                                                                                                    \
    X(MSE, "mse")                                                                                                      \
    X(MLM_XENT, "mlm_xent")                                                                                            \
    X(GRAD_NORM, "grad_norm")                                                                                          \
    X(ADAMW, "adamw")                                                                                                  \
    X(LAMB, "lamb")                                                                                                    \
    X(PACK, "pack")                                                                                                    \
    X(ZERO, "zero")                                                                                                    \
    X(OFFLOAD, "offload")                                                                                              \
    X(FETCH, "fetch")                                                                                                  \
    X(REDUCE, "reduce")                                                                                                \
    X(BLOCK_SUMS, "block_sums")                                                                                        \
    X(LAMB_STEP, "lamb_step")                                                                                          \
    X(LAMB_DESCEND, "lamb_descend")                                                                                    \
    X(SHARE, "share")                                                                                                  \
    X(DIGEST, "digest")                                                                                                \
    X(BCE, "bce")                                                                                                      \
    X(COMPARE, "compare")                                                                                              \
    X(SEND, "send")                                                                                                    \
    X(RECEIVE, "receive")                                                                                              \
    X(CURVATURE, "curvature")                                                                                          \
    X(INVERT, "invert")                                                                                                \
    X(ADOPT, "adopt")                                                                                                  \
    X(PRECONDITION, "precondition")                                                                                    \
    X(SPAN_XENT, "span_xent")                                                                                          \
    X(ADD, "add")                                                                                                      \
    X(POOL, "pool")                                                                                                    \
    X(POOL_BWD, "pool_bwd")

/* clang-format off */

/* ---- layers ---- */

/* EMBED: x = dropout(LN(word[ids] + position[pos] + type[types])), without the last term where a model has no token
   types. Nothing is kept: the backward gathers again.
   ids, types, pos, seq (T), seq the sequence's index in the global batch; word (V, H), position (positions, H),
   type (types, H), gamma, beta (H); x (T, H) c. Source: BERT (Devlin et al., 2019); LayerNorm (Ba et al., 2016). */
#define EMBED_OPERANDS(IN, OUT, op)                                                                                    \
    IN(op, ids) IN(op, types) IN(op, pos) IN(op, seq) IN(op, ctl, CTL) IN(op, word) IN(op, position)                   \
    IN(op, type, OPTIONAL) IN(op, gamma) IN(op, beta) OUT(op, x)

/* EMBED_BWD: the gradients of EMBED's tables, gamma and beta from dx (T, H) c; the other operands as in EMBED. */
#define EMBED_BWD_OPERANDS(IN, OUT, op)                                                                                \
    IN(op, dx) IN(op, ids) IN(op, types) IN(op, pos) IN(op, seq) IN(op, ctl, CTL) IN(op, word) IN(op, position)        \
    IN(op, type, OPTIONAL) IN(op, gamma) OUT(op, dword, ADDED) OUT(op, dposition, ADDED)                               \
    OUT(op, dtype, ADDED + OPTIONAL) OUT(op, dgamma, ADDED) OUT(op, dbeta, ADDED)

/* LINEAR: y = x·wᵀ + bias and, where wanted, g = gelu(y) of the stored y. x (R, k) c; w (n, k), a compute copy in the
   forward layout; bias (n), F32 or of y's type; y (R, n), c or F32; g as y. */
#define LINEAR_OPERANDS(IN, OUT, op) IN(op, x) IN(op, w) IN(op, bias, OPTIONAL) OUT(op, y) OUT(op, g, OPTIONAL)

/* LINEAR_DGRAD: dx = dy·w (+ add). dy (R, n) c; w (n, k), a compute copy in its transposed layout, or the forward copy
   where the backend has one layout; add, dx (R, k) c. dx must lie in the memory of add, which the product adds to.
   With pre the product, rounded, is GELU_BWD's dg, dx its dpre; pre, g and db are as there. */
#define LINEAR_DGRAD_OPERANDS(IN, OUT, op)                                                                             \
    IN(op, dy) IN(op, w) IN(op, add, OPTIONAL) IN(op, pre, OPTIONAL) OUT(op, dx, MUST_SHARE(op, add))                  \
    OUT(op, g, OPTIONAL + MAY_SHARE(op, pre)) OUT(op, db, SUMS_OF(op, dx))

/* LINEAR_WGRAD: dw += dyᵀ·x, db += column sums of dy. x (R, k) c, dy (R, n) c; dw (n, k), db (n). db is absent where
   the op that makes dy adds to it (SUMS_OF). */
#define LINEAR_WGRAD_OPERANDS(IN, OUT, op) IN(op, x) IN(op, dy) OUT(op, dw, BEGUN) OUT(op, db, BEGUN + OPTIONAL)

/* ATTENTION: per sequence and head, o = dropout(softmax(q·kᵀ·scale))·v; lse is the log-sum-exp of each query's scaled
   scores. qkv (T, 3H) c is q, k, v side by side, each head by head. spans (S, 2) holds each sequence's first row and
   the row after its last: packed rows have no gaps, a padded rectangle has. seq_index (S) in the global batch; o (T, H)
   c; lse (T, A). o and lse are 0 in rows of no sequence. Source: Vaswani et al., 2017. */
#define ATTENTION_OPERANDS(IN, OUT, op)                                                                                \
    IN(op, qkv) IN(op, spans) IN(op, seq_index) IN(op, ctl, CTL) OUT(op, o) OUT(op, lse)

/* ATTENTION_BWD: dqkv (T, 3H) c from do (T, H) c and ATTENTION's operands; the probabilities are made again from lse.
   dqkv is 0 in rows of no sequence. db (3H) += column sums of dqkv. Source: FlashAttention (Dao et al., 2022),
   algorithm 4. */
#define ATTENTION_BWD_OPERANDS(IN, OUT, op)                                                                            \
    IN(op, qkv) IN(op, o) IN(op, lse) IN(op, do) IN(op, spans) IN(op, seq_index) IN(op, ctl, CTL) OUT(op, dqkv)  \
    OUT(op, db, SUMS_OF(op, dqkv))

/* GELU: g = gelu(pre), by erf or tanh. pre, g (R, F) c; g may lie in pre's memory. Source: Hendrycks and Gimpel, 2016.
 */
#define GELU_OPERANDS(IN, OUT, op) IN(op, pre) OUT(op, g, MAY_SHARE(op, pre))

/* GELU_BWD: dpre = gelu'(pre)·dg and, where wanted, g = gelu(pre) again in the same pass. All (R, F) c; dpre may lie in
   dg's memory, g in pre's. db (F) += column sums of dpre. */
#define GELU_BWD_OPERANDS(IN, OUT, op)                                                                                 \
    IN(op, pre) IN(op, dg) OUT(op, dpre, MAY_SHARE(op, dg)) OUT(op, g, OPTIONAL + MAY_SHARE(op, pre))                  \
    OUT(op, db, SUMS_OF(op, dpre))

/* ADDNORM: xhat = normalise(dropout(d) + x), y = γ·xhat + β. Form Y keeps y; form XHAT keeps xhat, and y is made from
   the rounded xhat. d, x, y, xhat (R, H) c; gamma, beta (H); pos, seq (R); rstd (R). y may lie in d's memory. */
#define ADDNORM_OPERANDS(IN, OUT, op)                                                                                  \
    IN(op, d) IN(op, x, OPTIONAL) IN(op, gamma) IN(op, beta) IN(op, pos) IN(op, seq) IN(op, ctl, CTL)                  \
    OUT(op, y, MAY_SHARE(op, d)) OUT(op, rstd) OUT(op, xhat, OPTIONAL)

/* ADDNORM_BWD: dd is the gradient of d (dropout applied), dx that of the residual x. kept (R, H) c is y or xhat, by the
   form; dy, dd, dx (R, H) c; dgamma, dbeta (H). dx may lie in dy's memory. db (H) += column sums of dd. */
#define ADDNORM_BWD_OPERANDS(IN, OUT, op)                                                                              \
    IN(op, kept) IN(op, rstd) IN(op, gamma) IN(op, beta) IN(op, dy) IN(op, pos) IN(op, seq) IN(op, ctl, CTL)           \
    OUT(op, dd) OUT(op, dx, OPTIONAL + MAY_SHARE(op, dy)) OUT(op, dgamma, BEGUN) OUT(op, dbeta, BEGUN)                 \
    OUT(op, db, SUMS_OF(op, dd))

/* AFFINE: y = γ·xhat + β, the same bits as ADDNORM's y in form XHAT. xhat, y (R, H) c; gamma, beta (H). */
#define AFFINE_OPERANDS(IN, OUT, op) IN(op, xhat) IN(op, gamma) IN(op, beta) OUT(op, y)

/* GATHER: y[i] = x[index[i]]; rows beyond the real count are 0. x (T or N, H) c, index (S, M or N), y (its rows, H) c. */
#define GATHER_OPERANDS(IN, OUT, op) IN(op, x) IN(op, index) IN(op, ctl, CTL) OUT(op, y)

/* SCATTER: dx[index[i]] += dy[i]; without `add` the other rows are 0. Shapes as in GATHER, add as dx. dx must lie in
   the memory of add. */
#define SCATTER_OPERANDS(IN, OUT, op)                                                                                  \
    IN(op, dy) IN(op, index) IN(op, ctl, CTL) IN(op, add, OPTIONAL) OUT(op, dx, MUST_SHARE(op, add))

/* ACTIVATE: y = tanh(x) or, by its kind, max(x, 0). x, y (R, H) c; y may lie in x's memory. */
#define ACTIVATE_OPERANDS(IN, OUT, op) IN(op, x) OUT(op, y, MAY_SHARE(op, x))

/* ACTIVATE_BWD: dx = (1 − y²)·dy or, of max(x, 0), dy where y > 0 and else 0. All (R, H) c; dx may lie in dy's memory.
 */
#define ACTIVATE_BWD_OPERANDS(IN, OUT, op) IN(op, y) IN(op, dy) OUT(op, dx, MAY_SHARE(op, dy))

/* DROPOUT: y = x·mask / (1 − p), the mask a function of seed, batch, site, sequence, position and column
   (docs/contracts.md 4); it is its own backward. x, y (R, H) c; seq_index, pos (R), position 0 without pos; y may lie in
   x's memory. Sources: Srivastava et al., 2014; Philox (Salmon et al., 2011). */
#define DROPOUT_OPERANDS(IN, OUT, op)                                                                                  \
    IN(op, x) IN(op, seq_index) IN(op, ctl, CTL) IN(op, pos, OPTIONAL) OUT(op, y, MAY_SHARE(op, x))

/* POOL: a vector for each sequence: y[s] is the mean of the rows that spans names, or row first[s] of x; one of the two
   is present. With attr.pool.normalize it is divided by its length, at least 1e-12; inverse is 1 / that length, else 1.
   x (T or N, H) c, spans (S, 2), first (S), y (S, H) F32, inverse (S) F32. Source: Sentence-BERT (Reimers and Gurevych,
   2019). */
#define POOL_OPERANDS(IN, OUT, op)                                                                                     \
    IN(op, x) IN(op, spans, OPTIONAL) IN(op, first, OPTIONAL) IN(op, ctl, CTL) OUT(op, y) OUT(op, inverse)

/* POOL_BWD: dx from dy (S, H) F32, POOL's outputs and its other operands: (dy − y·(y·dy))·inverse, without normalize
   dy, divided by the number of a sequence's rows in each of them. dx (T or N, H) c is 0 in rows of no sequence, and with
   `first` in all but those. Rows of a sequence lie before those of the next one. */
#define POOL_BWD_OPERANDS(IN, OUT, op)                                                                                 \
    IN(op, dy) IN(op, y) IN(op, inverse) IN(op, spans, OPTIONAL) IN(op, first, OPTIONAL) IN(op, ctl, CTL) OUT(op, dx)

/* ---- losses: a row's loss; gradients of Σ loss · ctl's scale · scaling.scale (1 without `scaling`, which fp16 alone
   has); stats.loss[slot] += Σ loss. Rows beyond the real count have loss and gradient 0. ---- */

/* XENT: cross-entropy of softmax(logits). Labels are classes, (S) I32, where a negative one counts as none: loss and
   gradient 0, not correct; or targets t ≥ 0, (S, classes) F32: the loss is −Σ t·log softmax, and a row is correct where
   its largest logit has the largest target. logits (S, C) F32; dlogits (S, C) c, in training; loss (S). */
#define XENT_OPERANDS(IN, OUT, op)                                                                                     \
    IN(op, logits) IN(op, labels) IN(op, ctl, CTL) IN(op, scaling, OPTIONAL) OUT(op, dlogits, OPTIONAL) OUT(op, loss)  \
    OUT(op, stats, ADDED)

/* MSE: (logits[0] − label)². As XENT, with labels (S) F32. */
#define MSE_OPERANDS(IN, OUT, op) XENT_OPERANDS(IN, OUT, op)

/* BCE: the mean over the classes of −y·log σ(x) − (1 − y)·log(1 − σ(x)), for several labels at once. As XENT, with
   labels (S, classes) F32, each 0 or 1; a row is correct where x > 0 for exactly its labels. */
#define BCE_OPERANDS(IN, OUT, op) XENT_OPERANDS(IN, OUT, op)

/* SPAN_XENT: where an answer begins and ends. Per sequence the mean of two cross-entropies over its rows, column 0
   against the row of the start, column 1 against that of the end. As XENT, with logits (T, 2) F32; spans (S, 2);
   labels (S, 2), rows counted from the sequence's first, negative for no answer; dlogits (T, 2) c; loss (S). A sequence
   is correct where both largest logits are. Rows of no sequence have gradient 0: those behind a sequence, up to the next
   one or the end; without a sequence those from the row on that spans names first. So calls for consecutive sequences,
   in order, give what one call gives. Source: BERT (Devlin et al., 2019), section 4.2. */
#define SPAN_XENT_OPERANDS(IN, OUT, op)                                                                                \
    IN(op, spans) IN(op, labels) IN(op, logits) IN(op, ctl, CTL) IN(op, scaling, OPTIONAL) OUT(op, dlogits, OPTIONAL)  \
    OUT(op, loss) OUT(op, stats, ADDED)

/* MLM_XENT: logits = h·wᵀ + bias over the real vocabulary, of which one chunk of rows at a time is stored; their XENT
   and, in training, dh, dw and db at once. h, dh (M, H) c; w (V, H), a compute copy; wt its transposed copy, from which
   dh is made, where the backend has such copies; bias, db (V); labels (M); loss (M); dw (V, H). */
#define MLM_XENT_OPERANDS(IN, OUT, op)                                                                                 \
    IN(op, h) IN(op, w) IN(op, wt, OPTIONAL) IN(op, bias) IN(op, labels) IN(op, ctl, CTL) IN(op, scaling, OPTIONAL)    \
    OUT(op, dh, OPTIONAL) OUT(op, loss) OUT(op, stats, ADDED) OUT(op, dw, BEGUN + OPTIONAL)                            \
    OUT(op, db, BEGUN + OPTIONAL)

/* ---- the update ---- */

/* GRAD_NORM: stats.grad_norm = ‖grads‖ / scale from sums over 1024-element blocks of each segment, in fixed order;
   stats.grad_scale = 1 / (scale · max(1, norm / max_norm)); stats.finite = 0 where the norm is not. Segments with
   `kfac` have a norm and a scale of their own, stats.kfac_norm and kfac_scale. With a growth interval the loss scale
   moves on (kernels/loss_scale.h). grads (P); sums are those of BLOCK_SUMS, added instead of reading grads. Sources: clipping (Pascanu et al., 2013); dynamic loss scale (Micikevicius et al., 2018). */
#define GRAD_NORM_OPERANDS(IN, OUT, op)                                                                                \
    IN(op, grads) IN(op, segments) IN(op, ctl, CTL) IN(op, sums, OPTIONAL) OUT(op, stats, ADDED)                       \
    OUT(op, scaling, ADDED + OPTIONAL)

/* ADAMW, with g = grads·grad_scale: m = β1·m + (1−β1)·g, v = β2·v + (1−β2)·g², u = m·bias1 / (√(v·bias2) + eps) +
   decay·p, p −= lr·u. Does nothing if stats.finite is 0. grads, weights, m, v (P); of a slice, m and v are as long as
   the slice. copies, c: p as PACK rounds it, of the tensors in so much of the space. Sources: Adam (Kingma and Ba, 2015); decoupled decay (Loshchilov and Hutter, 2019). */
#define ADAMW_OPERANDS(IN, OUT, op)                                                                                    \
    IN(op, grads) IN(op, segments) IN(op, ctl, CTL) IN(op, stats) OUT(op, weights, ADDED) OUT(op, m, ADDED)            \
    OUT(op, v, ADDED) OUT(op, copies, ADDED + OPTIONAL)

/* LAMB: ADAMW's u, kept in grads; then p −= lr·r·u, r = ‖p‖/‖u‖ where the segment's trust is set and both norms are not
   0, else 1. Does nothing if stats.finite is 0. copies as in ADAMW. Source: You et al., 2020. */
#define LAMB_OPERANDS(IN, OUT, op)                                                                                     \
    IN(op, segments) IN(op, ctl, CTL) IN(op, stats) OUT(op, weights, ADDED) OUT(op, m, ADDED) OUT(op, v, ADDED)        \
    OUT(op, grads, ADDED) OUT(op, copies, ADDED + OPTIONAL)

/* PACK: the compute copy of a parameter, in the backend's layout. weight, copy (n, k). */
#define PACK_OPERANDS(IN, OUT, op) IN(op, weight) OUT(op, copy)

/* ZERO: x = 0, any shape. */
#define ZERO_OPERANDS(IN, OUT, op) OUT(op, x)

/* ADD: z = x + y, or x where y is absent; F32, of one shape. z may be x or y. In no plan: exec/virtual.c calls it, on a
   host from several threads. */
#define ADD_OPERANDS(IN, OUT, op) IN(op, x) IN(op, y, OPTIONAL) OUT(op, z, MAY_SHARE(op, x))

/* ---- transfers and exchanges ---- */

/* OFFLOAD: the rows of the micro-batch's bucket to pinned memory of the host. x, host (T, H) c. Source: vDNN (Rhu et
   al., 2016). */
#define OFFLOAD_OPERANDS(IN, OUT, op) IN(op, x) OUT(op, host)

/* FETCH: the same rows back. */
#define FETCH_OPERANDS(IN, OUT, op) IN(op, host) OUT(op, x)

/* REDUCE: x = the sum over all ranks, of a bucket of gradients or of the stats. exec/ runs it; no backend has it. */
#define REDUCE_OPERANDS(IN, OUT, op) OUT(op, x, ADDED)

/* SHARE: every rank's part to all ranks, of a table of block sums, of the weights or of K-FAC's inverses; or K-FAC's
   statistics, summed over all ranks, to the rank that owns them. exec/ runs it; no backend has it. Source: ZeRO, stage 1
   (Rajbhandari et al., 2020). */
#define SHARE_OPERANDS(IN, OUT, op) OUT(op, x, ADDED)

/* SEND, RECEIVE: the boundary of a stage, or its gradient, to and from the neighbouring stage of a pipeline. x (T, H) c.
   exec/ runs them; no backend has them. Source: GPipe (Huang et al., 2019). */
#define SEND_OPERANDS(IN, OUT, op) IN(op, x)
#define RECEIVE_OPERANDS(IN, OUT, op) OUT(op, x)

/* ---- a sharded optimizer: `segments` are the pieces of this rank's slice, `all` those of the whole space ---- */

/* BLOCK_SUMS: the sums of squares of the slice's norm blocks, each at its number among all blocks. x (P); sums (blocks)
   of double. */
#define BLOCK_SUMS_OPERANDS(IN, OUT, op) IN(op, x) IN(op, segments) OUT(op, sums, ADDED)

/* LAMB_STEP: the first half of LAMB: u into grads, and the moments. */
#define LAMB_STEP_OPERANDS(IN, OUT, op)                                                                                \
    IN(op, weights) IN(op, segments) IN(op, ctl, CTL) IN(op, stats) OUT(op, m, ADDED) OUT(op, v, ADDED)                \
    OUT(op, grads, ADDED)

/* LAMB_DESCEND: the second half of LAMB, with the norms of whole tensors from the tables p_sums and u_sums. */
#define LAMB_DESCEND_OPERANDS(IN, OUT, op)                                                                             \
    IN(op, u) IN(op, segments) IN(op, all) IN(op, p_sums) IN(op, u_sums) IN(op, ctl, CTL) IN(op, stats)                \
    OUT(op, weights, ADDED)

/* ---- K-FAC (Martens and Grosse, 2015; Osawa, Li and Hoefler, 2023), of a linear layer with weight (n, k): A (k, k) and
   B (n, n) are the second moments of its input rows and of its output gradients' rows. ---- */

/* CURVATURE: factor += Σ xᵀ·x over the real rows of the micro-batch, in a step that gathers statistics; nothing where
   ctl's kfac_tokens is 0. x (T, any) c, of which attr takes `n` columns from `first` on; factor (n, n) F32. */
#define CURVATURE_OPERANDS(IN, OUT, op) IN(op, x) IN(op, ctl, CTL) OUT(op, factor, ADDED)

/* INVERT: a linear's sums become damped inverses in two calls, of A and then of B. With T = ctl's kfac_tokens, A = a / T
   and B = b · T (a token's own gradient is T times its part of the mean loss's); π = √((tr A / k) / (tr B / n)); the
   first makes a = (A + max(√λ·π, 1e-7)·I)⁻¹ and leaves B's damping max(√λ/π, 1e-7) in ready, with which the second makes
   b = (B + ready·I)⁻¹ and ready = 1. A pivot that is not positive multiplies that damping by 10, five times at most.
   ready is 0, and a or b holds anything, where that did not help or a trace is 0 or not finite; then the second does
   nothing. `from`, where present, has the sums of A instead of `a`. Upper triangles are read. a, from (k, k), b (n, n),
   ready (1), all F32. */
#define INVERT_OPERANDS(IN, OUT, op)                                                                                   \
    IN(op, ctl, CTL) IN(op, from, OPTIONAL) OUT(op, a, ADDED) OUT(op, b, ADDED) OUT(op, ready, ADDED)

/* ADOPT: where ready is not 0, a_inv = a, b_inv = b and has = 1. Shapes as in INVERT. */
#define ADOPT_OPERANDS(IN, OUT, op)                                                                                    \
    IN(op, a) IN(op, b) IN(op, ready) OUT(op, a_inv, ADDED) OUT(op, b_inv, ADDED) OUT(op, has, ADDED)

/* PRECONDITION: where has is not 0, dw = b_inv·dw·a_inv and db = b_inv·db. dw (n, k), db (n), all F32. */
#define PRECONDITION_OPERANDS(IN, OUT, op)                                                                             \
    IN(op, a_inv) IN(op, b_inv) IN(op, has) OUT(op, dw, ADDED) OUT(op, db, ADDED + OPTIONAL)

/* ---- checks ---- */

/* DIGEST: sums[r] = the sum of word_mix over the 8-byte words of row r, modulo 2^64 (kernels/word_mix.h). Zeros fill up
   a row's last word. Words are numbered through the tensor, so the sum of all sums is a digest of the whole. Integers
   only: the same bits on every backend. x (R, any), of any type; sums (R) I64. */
#define DIGEST_OPERANDS(IN, OUT, op) IN(op, x) OUT(op, sums)

/* COMPARE: counts the rows in which the sums `first` and `again` differ, in audit.rows; the first COMPARE that finds one
   notes the tensor of its attribute and the row. first, again (R) I64. */
#define COMPARE_OPERANDS(IN, OUT, op) IN(op, first) IN(op, again) OUT(op, audit, ADDED)

/* clang-format on */
