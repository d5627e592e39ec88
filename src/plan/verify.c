/* The verifier trusts no pass. It walks the instrs with a symbolic memory of its own and checks that every read finds
   the value written for it, however fast each lane runs. */

#include "plan/plan.h"

/* Progress of each lane: the number of its last ended instr, counted from 1 as they run. */
typedef struct {
    int32_t ended[N_LANES];
} Clock;

/* The last instr of each lane that used a tensor; NONE. */
typedef struct {
    InstrId by[N_LANES];
} LastUses;

typedef struct {
    const Plan *p;
    bool *valid;    /* (tensors): holds its value now */
    bool *written;  /* (tensors): was written by an instr of this pass over the plan */
    TensorId *live; /* the valid tensors that the plan places */
    int n_live;
    Range range;     /* the current one */
    int32_t n_ran;   /* instrs, of all ranges */
    int32_t *number; /* (instrs): 0 before it ran */
    InstrId last[N_LANES];
    Clock lane[N_LANES]; /* instrs that have surely ended when a lane's next begins */
    Clock *after;        /* (instrs): instrs that have ended when it ends */
    InstrId *writer;     /* (tensors): its last writer; NONE */
    LastUses *last_uses; /* (tensors) */
    TensorId *shared;    /* (n_shared): tensors that lanes beside compute used */
    int n_shared;
} PlanVerifier;

static bool tensors_overlap(const Tensor *a, const Tensor *b)
{
    return a->region == b->region && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static Status tensor_error(const Plan *p, InstrId i, TensorId t, const char *what)
{
    return fail(E_FAIL, "plan: instr %d (%s, layer %d), tensor '%s': %s", i, op_info(p->instrs[i].op)->name,
                p->instrs[i].layer, p->tensors[t].name, what);
}

/* Activations, on the device or offloaded: each is written once; its place is reused after its last read. */
static bool is_placed(const Tensor *t) { return t->region == REGION_ACT || t->region == REGION_HOST; }

static bool is_host_owned(const Tensor *t)
{
    return t->region == REGION_INPUT || t->region == REGION_CONST || t->region == REGION_WEIGHT ||
           t->region == REGION_COPY || t->region == REGION_MOMENT || t->region == REGION_KFAC;
}

/* ---- lanes: order ---- */

/* True if instr `other` has ended when instr i begins, whatever the lanes do. */
static bool ended_before(const PlanVerifier *m, InstrId other, InstrId i)
{
    return other == NONE || m->number[other] <= m->lane[m->p->instrs[i].lane].ended[m->p->instrs[other].lane];
}

static void clock_advance(Clock *a, const Clock *b)
{
    for (int l = 0; l < N_LANES; l++)
        if (b->ended[l] > a->ended[l]) a->ended[l] = b->ended[l];
}

static Status race_error(const PlanVerifier *m, InstrId i, TensorId t, InstrId other)
{
    const Plan *p = m->p;
    return fail(E_FAIL,
                "plan: instr %d (%s, %s lane), tensor '%s': instr %d (%s, %s lane) may still be using its memory: "
                "nothing waits for it",
                i, op_info(p->instrs[i].op)->name, lane_name(p->instrs[i].lane), p->tensors[t].name, other,
                op_info(p->instrs[other].op)->name, lane_name(p->instrs[other].lane));
}

static void note_use(PlanVerifier *m, InstrId i, TensorId t)
{
    Lane lane = m->p->instrs[i].lane;
    bool first = lane != LANE_COMPUTE;
    for (int l = LANE_COMPUTE + 1; l < N_LANES; l++) first &= m->last_uses[t].by[l] == NONE;
    if (first) m->shared[m->n_shared++] = t;
    m->last_uses[t].by[lane] = i;
}

static Status check_unused(const PlanVerifier *m, InstrId i, TensorId t, TensorId other)
{
    if (!tensors_overlap(&m->p->tensors[t], &m->p->tensors[other])) return OK;
    for (int l = 0; l < N_LANES; l++)
        if (!ended_before(m, m->last_uses[other].by[l], i)) return race_error(m, i, other, m->last_uses[other].by[l]);
    return OK;
}

/* No instr may still use the memory that is written. For the compute lane only other lanes can. */
static Status check_free(const PlanVerifier *m, InstrId i, TensorId t)
{
    if (m->p->instrs[i].lane == LANE_COMPUTE) {
        for (int s = 0; s < m->n_shared; s++) TRY(check_unused(m, i, t, m->shared[s]));
        return OK;
    }
    for (TensorId other = 0; other < m->p->n_tensors; other++) TRY(check_unused(m, i, t, other));
    return OK;
}

static Status begin_instr(PlanVerifier *m, InstrId i)
{
    const Plan *p = m->p;
    const Instr *instr = &p->instrs[i];
    for (int w = 0; w < 2; w++) {
        if (instr->wait[w] == NONE) continue;
        if (instr->wait[w] >= i || instr->wait[w] < m->range.first || p->instrs[instr->wait[w]].lane == instr->lane)
            return fail(E_FAIL,
                        "plan: instr %d (%s) waits for instr %d, which is later, in another range or in its own lane",
                        i, op_info(instr->op)->name, instr->wait[w]);
        clock_advance(&m->lane[instr->lane], &m->after[instr->wait[w]]);
    }
    if (instr->lane != LANE_COMPUTE && instr->scratch)
        return fail(E_FAIL, "plan: instr %d (%s) needs scratch, which the compute lane alone may use", i,
                    op_info(instr->op)->name);
    return OK;
}

static void end_instr(PlanVerifier *m, InstrId i)
{
    const Instr *instr = &m->p->instrs[i];
    m->lane[instr->lane].ended[instr->lane] = m->number[i] = ++m->n_ran;
    m->last[instr->lane] = i;
    m->after[i] = m->lane[instr->lane];
    for (int k = 0; k < OP_MAX_IN; k++)
        if (instr->in[k] != NONE) note_use(m, i, instr->in[k]);
    for (int k = 0; k < OP_MAX_OUT; k++)
        if (instr->out[k] != NONE) note_use(m, i, instr->out[k]);
}

/* When a range begins, the other lanes have waited for nothing yet. */
static void begin_range(PlanVerifier *m, Range range)
{
    m->range = range;
    for (int l = LANE_COMPUTE + 1; l < N_LANES; l++) m->lane[l] = (Clock){{0}};
}

/* When it ends, the compute lane must have waited for all others, because instrs of the next range do not. For the comm
   lane exec waits there. */
static Status end_range(PlanVerifier *m)
{
    clock_advance(&m->lane[LANE_COMPUTE], &m->lane[LANE_COMM]);
    for (int l = LANE_COMPUTE + 1; l < N_LANES; l++)
        if (m->lane[LANE_COMPUTE].ended[l] < m->lane[l].ended[l])
            return fail(E_FAIL, "plan: instr %d (%s, %s lane) may still run when its range ends: nothing waits for it",
                        m->last[l], op_info(m->p->instrs[m->last[l]].op)->name, lane_name((Lane)l));
    return OK;
}

/* ---- values ---- */

static Status check_read(const PlanVerifier *m, InstrId i, TensorId t)
{
    const Tensor *x = &m->p->tensors[t];
    if (!ended_before(m, m->writer[t], i)) return race_error(m, i, t, m->writer[t]);
    for (int s = 0; s < m->n_shared; s++) { /* another lane may write the same place as another tensor */
        InstrId writer = m->writer[m->shared[s]];
        if (tensors_overlap(x, &m->p->tensors[m->shared[s]]) && !ended_before(m, writer, i))
            return race_error(m, i, t, writer);
    }
    if (is_host_owned(x) || x->region == REGION_GRAD || x->region == REGION_OUTPUT) return OK;
    if (!m->written[t]) return tensor_error(m->p, i, t, "is read before anything wrote it");
    return m->valid[t] ? OK : tensor_error(m->p, i, t, "is read after its memory was given to another tensor");
}

static Status check_write(PlanVerifier *m, InstrId i, int k)
{
    const Plan *p = m->p;
    const Instr *instr = &p->instrs[i];
    const OperandInfo *info = &op_info(instr->op)->out[k];
    TensorId t = instr->out[k];
    const Tensor *x = &p->tensors[t];
    if (x->offset + x->bytes > p->region_bytes[x->region]) return tensor_error(p, i, t, "reaches beyond its region");
    if (x->region == REGION_INPUT || x->region == REGION_CONST)
        return tensor_error(p, i, t, "belongs to the host and is written");
    TRY(check_free(m, i, t));
    m->writer[t] = i;
    if (info->accumulated) return OK; /* gradients, moments, stats: begun by `begin` or by the host */
    if (m->written[t] && is_placed(x)) return tensor_error(p, i, t, "is written by a second instr");
    for (int j = 0; j < OP_MAX_IN; j++) {
        if (instr->in[j] == NONE || !tensors_overlap(x, &p->tensors[instr->in[j]])) continue;
        if (j != info->shares || x->shares != instr->in[j])
            return tensor_error(p, i, t, "overlaps an input its op may not overwrite");
    }
    for (int j = 0; j < OP_MAX_OUT; j++)
        if (j != k && instr->out[j] != NONE && tensors_overlap(x, &p->tensors[instr->out[j]]))
            return tensor_error(p, i, t, "overlaps another output of the same instr");
    if (info->shares_always && instr->in[info->shares] != NONE && x->shares != instr->in[info->shares])
        return tensor_error(p, i, t, "must lie in the memory of the input it adds to");
    m->written[t] = true;
    if (!is_placed(x)) return OK;
    int kept = 0;
    for (int l = 0; l < m->n_live; l++) {
        if (tensors_overlap(x, &p->tensors[m->live[l]]))
            m->valid[m->live[l]] = false;
        else
            m->live[kept++] = m->live[l];
    }
    m->live[kept] = t;
    m->n_live = kept + 1;
    m->valid[t] = true;
    return OK;
}

/* A fetched tensor must have the value of the one that was offloaded. */
static Status check_transfer(const Plan *p, InstrId i)
{
    const Instr *instr = &p->instrs[i];
    if (instr->op != OP_OFFLOAD && instr->op != OP_FETCH) return OK;
    bool out_to_host = instr->op == OP_OFFLOAD;
    TensorId from = out_to_host ? instr->in[OFFLOAD_IN_x] : instr->in[FETCH_IN_host];
    TensorId to = out_to_host ? instr->out[OFFLOAD_OUT_host] : instr->out[FETCH_OUT_x];
    const Tensor *in = &p->tensors[from], *out = &p->tensors[to];
    if ((out_to_host ? out : in)->region != REGION_HOST || (out_to_host ? in : out)->region != REGION_ACT)
        return tensor_error(p, i, to, "a transfer goes between an activation and the host's memory");
    if (out->original != (out_to_host ? from : in->original))
        return tensor_error(p, i, to, "has the value of another tensor than the one that is copied");
    return out->bytes == in->bytes ? OK : tensor_error(p, i, to, "has another size than the one that is copied");
}

/* The forward tensor whose value it holds. */
static TensorId forward_of(const Plan *p, TensorId t)
{
    while (t != NONE && is_placed(&p->tensors[t]) && p->tensors[t].original != NONE) t = p->tensors[t].original;
    return t;
}

/* The operands of the first time, in the order of the op that makes some of its results again: of ADDNORM AFFINE, of a
   product with GELU GELU alone. */
static Instr first_of(const Instr *first, Op again)
{
    Instr i = *first;
    if (again == OP_AFFINE && first->op == OP_ADDNORM) {
        i.in[AFFINE_IN_xhat] = first->out[ADDNORM_OUT_xhat];
        i.in[AFFINE_IN_gamma] = first->in[ADDNORM_IN_gamma];
        i.in[AFFINE_IN_beta] = first->in[ADDNORM_IN_beta];
        i.out[AFFINE_OUT_y] = first->out[ADDNORM_OUT_y];
    } else if (again == OP_GELU && first->op == OP_LINEAR) {
        i.in[GELU_IN_pre] = first->out[LINEAR_OUT_y];
        i.out[GELU_OUT_g] = first->out[LINEAR_OUT_g];
    }
    return i;
}

/* What is made again must read what was read the first time. */
static Status check_again(const Plan *p, InstrId i)
{
    const Instr *instr = &p->instrs[i];
    if (instr->phase != PHASE_RECOMPUTE || instr->op == OP_DIGEST || instr->op == OP_COMPARE) return OK;
    const Instr first = first_of(&p->instrs[instr->origin], instr->op);
    if (instr->op == first.op && memcmp(&instr->attr, &first.attr, sizeof first.attr) != 0)
        return fail(E_FAIL, "plan: instr %d (%s) is made again with other attributes than the first time", i,
                    op_info(instr->op)->name);
    for (int k = 0; k < op_info(instr->op)->n_in; k++)
        if (forward_of(p, instr->in[k]) != first.in[k])
            return tensor_error(p, i, instr->in[k], "is not what the first time read");
    for (int k = 0; k < op_info(instr->op)->n_out; k++) {
        bool left_out = instr->op == OP_LINEAR && k == LINEAR_OUT_g && instr->out[k] == NONE;
        if (!left_out && forward_of(p, instr->out[k]) != first.out[k])
            return tensor_error(p, i, instr->out[k], "has the value of another tensor than the one that is made again");
    }
    return OK;
}

static Status check_instr(PlanVerifier *m, InstrId i)
{
    const Instr *instr = &m->p->instrs[i];
    if (instr->scratch > m->p->region_bytes[REGION_SCRATCH])
        return fail(E_FAIL, "plan: instr %d (%s) needs %zu bytes of scratch, the region has %zu", i,
                    op_info(instr->op)->name, instr->scratch, m->p->region_bytes[REGION_SCRATCH]);
    TRY(begin_instr(m, i));
    TRY(check_transfer(m->p, i));
    TRY(check_again(m->p, i));
    for (int k = 0; k < OP_MAX_IN; k++)
        if (instr->in[k] != NONE) TRY(check_read(m, i, instr->in[k]));
    for (int k = 0; k < OP_MAX_OUT; k++)
        if (instr->out[k] != NONE) TRY(check_write(m, i, k));
    end_instr(m, i);
    return OK;
}

static bool clears(const Plan *p, Range range, const Tensor *x)
{
    for (InstrId i = range.first; i < range.first + range.count; i++) {
        const Tensor *z = &p->tensors[p->instrs[i].out[ZERO_OUT_x]];
        if (z->region == x->region && z->offset <= x->offset && x->offset + x->bytes <= z->offset + z->bytes)
            return true;
    }
    return false;
}

/* Gradients as instrs begin them one by one: of each element of the region, whether it holds a sum. */
typedef struct {
    const Plan *p;
    Interval *places; /* (n) bytes that do */
    int n;
} Begun;

/* The first byte from `at` on that holds no sum. */
static int64_t begun_until(const Begun *b, int64_t at)
{
    for (int i = 0; i < b->n; i++)
        if (b->places[i].begin <= at && at < b->places[i].end) {
            at = b->places[i].end;
            i = -1;
        }
    return at;
}

/* Every gradient that some instr accumulates into must be cleared by `begin` or begun, but not both, by it or an
   earlier instr. */
static Status check_gradient(Begun *b, InstrId i, int k)
{
    const Instr *instr = &b->p->instrs[i];
    const Tensor *x = &b->p->tensors[instr->out[k]];
    Interval own = tensor_bytes(x);
    if (!(instr->begins >> k & 1))
        return begun_until(b, own.begin) >= own.end
                   ? OK
                   : tensor_error(b->p, i, instr->out[k], "is accumulated into, but nothing clears or begins it");
    if (!op_info(instr->op)->out[k].begun) return tensor_error(b->p, i, instr->out[k], "is begun by an op that cannot");
    if (interval_meets(b->places, b->n, own))
        return tensor_error(b->p, i, instr->out[k], "is begun, though it holds a sum");
    if (!clears(b->p, b->p->clear, x)) return tensor_error(b->p, i, instr->out[k], "is begun, and `clear` lacks it");
    b->places[b->n++] = own;
    return OK;
}

/* The stats are begun, too, and K-FAC's statistics, which `gather` clears. */
static Status check_begun(const Plan *p)
{
    Status status = OK;
    size_t most = (size_t)(p->begin.count + p->micro.count * OP_MAX_OUT) + 1;
    Begun b = {.p = p, .places = mem_array(most, sizeof(Interval))};
    for (InstrId i = p->begin.first; i < p->begin.first + p->begin.count; i++) {
        const Tensor *z = &p->tensors[p->instrs[i].out[ZERO_OUT_x]];
        if (z->region == REGION_GRAD) b.places[b.n++] = tensor_bytes(z);
    }
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++) {
        for (int k = 0; k < OP_MAX_OUT; k++) {
            TensorId t = p->instrs[i].out[k];
            if (t == NONE || !op_info(p->instrs[i].op)->out[k].accumulated) continue;
            if (p->tensors[t].region == REGION_GRAD)
                TRY_DONE(check_gradient(&b, i, k));
            else if (!clears(p, p->tensors[t].region == REGION_KFAC ? p->gather : p->begin, &p->tensors[t]))
                TRY_DONE(tensor_error(p, i, t, "is accumulated into, but `begin` does not clear it"));
        }
    }
done:
    free(b.places);
    return status;
}

/* Each parameter that has a gradient gets it from some instr, but the word embedding where only the decoder is here:
   what that leaves apart is added to it behind the works. */
static Status check_gradients(const Plan *p)
{
    TensorId summed = plan_find(p, PLAN_APART) == NONE ? NONE : plan_find(p, PLAN_WORD);
    for (TensorId t = 0; t < p->n_tensors; t++) {
        const Tensor *x = &p->tensors[t];
        if (x->region == REGION_WEIGHT && x->grad != NONE && x->grad != summed && plan_maker(p, x->grad) == NONE)
            return fail(E_FAIL, "plan: no instr writes '%s', the gradient of '%s'", p->tensors[x->grad].name, x->name);
    }
    return OK;
}

Status plan_verify(const Plan *p)
{
    Status status = OK;
    TRY(plan_verify_slots(p));
    TRY(check_gradients(p));
    size_t n = (size_t)p->n_tensors;
    PlanVerifier m = {.p = p,
                      .valid = mem_array(n, sizeof(bool)),
                      .written = mem_array(n, sizeof(bool)),
                      .live = mem_array(n + 1, sizeof(TensorId)),
                      .number = mem_array((size_t)p->n_instrs, sizeof(int32_t)),
                      .after = mem_array((size_t)p->n_instrs, sizeof(Clock)),
                      .writer = mem_array(n, sizeof(InstrId)),
                      .last_uses = mem_array(n, sizeof(LastUses)),
                      .shared = mem_array(n, sizeof(TensorId))};
    for (TensorId t = 0; t < p->n_tensors; t++) {
        m.writer[t] = NONE;
        for (int k = 0; k < N_LANES; k++) m.last_uses[t].by[k] = NONE;
    }
    TRY_DONE(check_begun(p));
    Range order[] = {p->begin, p->clear,  p->gather, p->couple, p->micro, p->invert,
                     p->adopt, p->update, p->pack,   p->note,   p->check};
    for (size_t r = 0; r < sizeof order / sizeof *order; r++) {
        begin_range(&m, order[r]);
        for (InstrId i = order[r].first; i < order[r].first + order[r].count; i++) TRY_DONE(check_instr(&m, i));
        TRY_DONE(end_range(&m));
    }
done:
    MEM_FREE(m.valid, m.written, m.live, m.number, m.after, m.writer, m.last_uses, m.shared);
    return status;
}
