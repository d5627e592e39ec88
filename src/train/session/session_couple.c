/* A step whose loss couples all its sequences (contracts.md 13). Forward alone of all micro-batches gives their
   embeddings, from which every rank computes the loss and the gradients of all embeddings; then each micro-batch runs
   as in any step, from its own gradients. The first one comes last in the first pass, so that its activations are there
   when backward begins. */
#include "train/session/session_pipeline.h"

enum { SUMMED = 1 << 20 }; /* elements that ranks exchange at once */

/* Row k·apart + i of the first `texts`·apart rows is text k of row i of the step's data. */
typedef struct {
    Session *session;
    const SessionStep *step;
    const PlanCouple *of;
    float *e, *de; // (texts·apart, cols) embeddings and their gradients, of a host backend where the plan has them
    float *rows;   // (sequences, cols) of a micro-batch; NULL: a host backend
    float scale;   /* of anchors in a cross-entropy: 1 / temperature; else 1 */
    int64_t all;   /* texts·apart */
    Stats loss;    /* of all ranks */
} Couple;

static Exec *exec_of(const Couple *c) { return c->session->train[0]; }
static const Coupling *coupling_of(const Couple *c) { return c->session->plan.input.coupling; }
static bool on_device(const Couple *c) { return c->session->options.backend->device != NULL; }
static float anchor_scale(const Couple *c, int64_t row) { return row < c->of->apart ? c->scale : 1; }

/* Two tensors of the plan, one behind the other. */
static float *host_matrix(const Couple *c, TensorId anchors, TensorId others)
{
    float *first = exec_data(exec_of(c), anchors);
    CHECK((float *)exec_data(exec_of(c), others) == first + c->of->apart * c->of->cols, "embeddings with a gap");
    return first;
}

static void open_couple(Session *s, const SessionStep *step, Couple *c)
{
    const ModelTensors *t = &s->plan.chunk->train_tensors;
    const Coupling *loss = s->plan.input.coupling;
    *c = (Couple){.session = s, .step = step, .of = &t->couple, .scale = 1};
    c->all = c->of->texts * c->of->apart;
    size_t n = (size_t)(c->all * c->of->cols);
    if (loss->loss == COUPLE_INFONCE) c->scale = 1 / loss->temperature;
    if (on_device(c))
        c->rows = mem_array((size_t)(s->plan.chunk->train.capacity.count[ROWS_SEQS] * c->of->cols), sizeof *c->rows);
    c->e = on_device(c) ? mem_array(n, sizeof *c->e) : host_matrix(c, c->of->anchors, c->of->others);
    c->de = on_device(c) ? mem_array(n, sizeof *c->de) : host_matrix(c, c->of->danchors, c->of->dothers);
    if (!on_device(c)) memset(c->e, 0, n * sizeof *c->e);
}

static void close_couple(Couple *c)
{
    if (on_device(c)) MEM_FREE(c->rows, c->e, c->de);
}

/* A micro-batch's rows of a tensor as the host reads and writes them: where they lie, or a device's in `rows`. */
static float *host_rows(const Couple *c, TensorId t) { return c->rows ? c->rows : exec_data(exec_of(c), t); }

/* The place of a sequence of the step among the embeddings. */
static int64_t place_of(const Couple *c, int32_t sequence)
{
    const int64_t n = c->step->data_rows;
    return sequence / n * c->of->apart + sequence % n;
}

/* ---- the first pass ---- */

static Status send(const Couple *c, int share, int64_t m, const MicroBatch **b, RowCounts *rows)
{
    *b = c->step->fill(c->step->self, share, m);
    return session_send_micro(c->session, exec_of(c), &c->session->plan.chunk->train_tensors, *b, NULL, rows);
}

/* Zeros are not negative, as in sums over ranks. */
static Status run_forward(const Couple *c, int share, int64_t m)
{
    const MicroBatch *b;
    RowCounts rows;
    const int64_t cols = c->of->cols;
    const ModelTensors *t = &c->session->plan.chunk->train_tensors;
    TRY(send(c, share, m, &b, &rows));
    TRY(exec_run(exec_of(c), c->session->plan.chunk->train.forward, &rows));
    const float *y = host_rows(c, t->logits);
    if (c->rows) TRY(exec_download(exec_of(c), t->logits, c->rows, (size_t)(b->n_seqs * cols) * sizeof *y));
    for (int64_t i = 0; i < b->n_seqs; i++) {
        const int64_t row = place_of(c, b->seq_index[i]);
        for (int64_t j = 0; j < cols; j++) c->e[row * cols + j] = y[i * cols + j] * anchor_scale(c, row) + 0.0f;
    }
    return OK;
}

/* The first share with a micro-batch; n_shares: none has. */
static int first_share(const SessionStep *step)
{
    int k = 0;
    while (k < step->n_shares && step->shares[k].micros == 0) k++;
    return k;
}

static Status run_first_pass(const Couple *c)
{
    const int kept = first_share(c->step);
    for (int k = kept; k < c->step->n_shares; k++)
        for (int64_t m = k == kept; m < c->step->shares[k].micros; m++) TRY(run_forward(c, k, m));
    return kept < c->step->n_shares ? run_forward(c, kept, 0) : OK;
}

/* Collective. Each embedding is one rank's; with the zeros of the others it stays as it is. */
static Status add_ranks(const Couple *c)
{
    Ranks *ranks = c->session->options.ranks;
    Status status = OK;
    if (!ranks) return OK;
    Comm *comm = ranks_comm(ranks);
    Intervals *parts = mem_array((size_t)comm->size, sizeof *parts);
    void *scratch = NULL;
    const int64_t n = c->all * c->of->cols;
    for (int64_t at = 0; at < n && status == OK; at += SUMMED) {
        const int64_t count = n - at < SUMMED ? n - at : SUMMED;
        for (int r = 0; r < comm->size; r++) {
            parts[r].count = 0;
            parts[r].size = 0;
            intervals_add(&parts[r], count * r / comm->size, count * (r + 1) / comm->size);
        }
        if (!scratch) scratch = mem_alloc(comm_reduce_bytes(parts, comm->size, F32, 0));
        status = comm_allreduce(comm, c->e + at, parts, F32, scratch);
    }
    for (int r = 0; r < comm->size; r++) free(parts[r].intervals);
    MEM_FREE(parts, scratch);
    return status;
}

/* ---- the loss ---- */

/* Texts 1 are the right ones of their anchors. A last batch may have fewer rows than the plan has room for. */
static Status send_labels(const Couple *c)
{
    const int64_t others = c->all - c->of->apart, n = c->step->data_rows;
    float *bias = mem_array((size_t)others, sizeof *bias);
    int32_t *labels = mem_array((size_t)others, sizeof *labels);
    for (int64_t r = 0; r < others; r++) {
        bias[r] = r % c->of->apart < n ? 0 : -1e30f;
        labels[r] = r < n ? (int32_t)r : -1;
    }
    Status status = exec_upload(exec_of(c), c->of->bias, bias, (size_t)others * sizeof *bias);
    if (status == OK) status = exec_upload(exec_of(c), c->of->labels, labels, (size_t)others * sizeof *labels);
    MEM_FREE(bias, labels);
    return status;
}

/* Elements of a device's tensor, of type F32 or BF16, from the host's floats and back. */
static Status to_device(const Couple *c, TensorId t, const float *from, int64_t n)
{
    if (c->of->type == F32) return exec_upload(exec_of(c), t, from, (size_t)n * sizeof *from);
    uint16_t *rounded = mem_array((size_t)n, sizeof *rounded);
    for (int64_t i = 0; i < n; i++) rounded[i] = bf16_from_f32(from[i]);
    Status status = exec_upload(exec_of(c), t, rounded, (size_t)n * sizeof *rounded);
    free(rounded);
    return status;
}

/* `add`: to what `to` holds. A host backend's elements are read where they lie. */
static Status take_elements(const Couple *c, TensorId t, float *to, int64_t n, bool add)
{
    const Dtype type = c->session->plan.chunk->train.tensors[t].dtype;
    const size_t bytes = (size_t)n * dtype_size(type);
    void *room = on_device(c) ? mem_alloc(bytes) : NULL, *there = room ? room : exec_data(exec_of(c), t);
    Status status = room ? exec_download(exec_of(c), t, room, bytes) : OK;
    for (int64_t i = 0; i < n && status == OK; i++) {
        const float x = type == F32 ? ((const float *)there)[i] : bf16_to_f32(((const uint16_t *)there)[i]);
        to[i] = add ? to[i] + x : x;
    }
    free(room);
    return status;
}

static Status send_matrix(const Couple *c)
{
    const int64_t n = c->of->apart * c->of->cols;
    if (!on_device(c)) return OK;
    TRY(to_device(c, c->of->anchors, c->e, n));
    return to_device(c, c->of->others, c->e + n, c->all * c->of->cols - n);
}

static Status take_gradients(const Couple *c)
{
    const int64_t n = c->of->apart * c->of->cols, others = c->all * c->of->cols - n;
    if (on_device(c)) {
        TRY(take_elements(c, c->of->danchors, c->de, n, false));
        TRY(take_elements(c, c->of->dothers, c->de + n, others, false));
    }
    if (!c->of->symmetric) return OK;
    TRY(take_elements(c, c->of->turned_danchors, c->de, n, true));
    return take_elements(c, c->of->turned_dothers, c->de + n, others, true);
}

static Status run_entropy(const Couple *c)
{
    Ctl ctl = c->session->ctl;
    const Plan *p = &c->session->plan.chunk->train;
    ctl.n_masked = (int32_t)c->of->apart;
    ctl.scale_masked = ctl.scale_seqs;
    exec_clear_grains(exec_of(c));
    TRY(exec_upload(exec_of(c), c->session->plan.chunk->train_tensors.step_ctl, &ctl, sizeof ctl));
    TRY(send_labels(c));
    TRY(send_matrix(c));
    TRY(exec_run(exec_of(c), p->couple, &p->capacity));
    return take_gradients(c);
}

static void run_rows(Couple *c)
{
    c->loss.loss[0] = coupling_rows(coupling_of(c), c->e, c->step->scores, c->step->data_rows, c->of->apart,
                                    c->of->cols, c->session->ctl.scale_seqs, c->de);
}

static TensorId stats_of(const Couple *c) { return c->session->plan.chunk->train_tensors.stats; }

static Status run_loss(Couple *c)
{
    if (!c->of->entropy) {
        run_rows(c);
        return OK;
    }
    TRY(run_entropy(c));
    return exec_download(exec_of(c), stats_of(c), &c->loss, sizeof c->loss);
}

/* ---- the second pass ---- */

static Status send_given(const Couple *c, const MicroBatch *b)
{
    const LossScaling *scaling = &c->session->scaling;
    const float of_loss = scaling->scale > 0 ? scaling->scale : 1;
    const int64_t cols = c->of->cols;
    const TensorId given = c->session->plan.chunk->train_tensors.given;
    float *g = host_rows(c, given);
    for (int64_t i = 0; i < b->n_seqs; i++) {
        const int64_t row = place_of(c, b->seq_index[i]);
        const float scale = anchor_scale(c, row) * of_loss;
        for (int64_t j = 0; j < cols; j++) g[i * cols + j] = c->de[row * cols + j] * scale;
    }
    return c->rows ? exec_upload(exec_of(c), given, g, (size_t)(b->n_seqs * cols) * sizeof *g) : OK;
}

/* `kept`: its activations are there. m −1: the sums over ranks alone. */
static Status run_backward(const Couple *c, int share, int64_t m, bool kept, bool sums)
{
    const Plan *p = &c->session->plan.chunk->train;
    const double begin = clock_monotonic();
    const MicroBatch *b;
    RowCounts rows;
    if (m >= 0) TRY(send(c, share, m, &b, &rows));
    if (m >= 0) TRY(send_given(c, b));
    const Range range = kept ? plan_behind_forward(p) : p->micro;
    TRY(sums ? exec_run_last(exec_of(c), range, m < 0 ? NULL : &rows) : exec_run(exec_of(c), range, &rows));
    if (c->step->ran) c->step->ran(c->step->self, m, begin);
    return OK;
}

static Status run_second_pass(const Couple *c)
{
    const SessionStep *step = c->step;
    const int kept = first_share(step);
    for (int k = 0; k < step->n_shares; k++) {
        const int64_t n = step->shares[k].micros;
        const bool sums = step->sums && k + 1 == step->n_shares;
        if (k > 0) TRY(session_next_share(c->session));
        for (int64_t m = sums && n == 0 ? -1 : 0; m < n; m++)
            TRY(run_backward(c, k, m, k == kept && m == 0, sums && m + 1 == n));
    }
    return step->sums ? OK : exec_virtual_end(exec_of(c), true);
}

/* Every rank has the whole loss, which no sum over ranks or virtual ranks may count twice. */
static Status run_passes(Couple *c)
{
    Session *s = c->session;
    Status first = run_first_pass(c);
    if (!c->step->sums) s->vectors = digest_of(c->e, (size_t)(c->all * c->of->cols) * sizeof *c->e).lo;
    const double begin = clock_monotonic();
    TRY(ranks_all(s->options.ranks, first));
    TRY(add_ranks(c));
    s->comm_waited += clock_monotonic() - begin;
    TRY(run_loss(c));
    TRY(run_second_pass(c));
    return exec_upload(exec_of(c), stats_of(c), &c->loss, sizeof c->loss);
}

Status session_run_coupled(Session *s, const SessionStep *step)
{
    Couple c;
    open_couple(s, step, &c);
    exec_virtual_begin(s->train[0], s->plan.input.virtual.ranks ? step->first : 0);
    if (step->vote) step->vote(step->self);
    Status status = run_passes(&c);
    close_couple(&c);
    return status;
}
