/* The backward pass over a plan: one rule per op, applied to the forward instrs from the last to the first. */

#include "plan/plan.h"

typedef struct {
    Plan *p;
    TensorId *grad;    /* (forward tensors): the newest tensor holding each one's gradient, or NONE */
    InstrId *producer; /* (forward tensors): the forward instr that writes it, or NONE */
    InstrId *delayed;  /* LINEAR instrs whose WGRAD waits for the GELU_BWD that makes their input again */
    int n_delayed;
    bool bias_sums;
} Backward;

/* "l3.qkv" → "l3.dqkv". */
static void grad_name(const char *name, char out[48])
{
    const char *dot = strrchr(name, '.');
    int stem = dot ? (int)(dot - name) + 1 : 0;
    snprintf(out, 48, "%.*sd%.40s", stem, name, name + stem);
}

/* A new activation that holds a gradient of `t`. */
static TensorId grad_tensor(Backward *pass, TensorId t)
{
    const Tensor of = pass->p->tensors[t];
    char name[48];
    grad_name(of.name, name);
    TensorId g = plan_tensor(pass->p, REGION_ACT, of.dtype, of.rows, of.cols, "%s", name);
    pass->p->tensors[g].layer = of.layer;
    return g;
}

static TensorId param_grad(const Backward *pass, TensorId param)
{
    if (param == NONE) return NONE;
    TensorId g = pass->p->tensors[param].grad;
    CHECK(g != NONE, "parameter '%s' has no gradient", pass->p->tensors[param].name);
    return g;
}

static bool wants_grad(const Backward *pass, TensorId t) { return t != NONE && pass->producer[t] != NONE; }

static void emit(Backward *pass, Op op, const Instr *f, InstrId origin, OpAttr attr, const TensorId *in,
                 const TensorId *out)
{
    InstrId b = plan_emit(pass->p, op, PHASE_BACKWARD, f->layer, attr, in, out);
    pass->p->instrs[b].origin = origin;
}

/* The output of the instr to which it can add the column sums of its output `dy`; NULL: it has none. */
static TensorId *bias_sums_of(Instr *i, TensorId dy)
{
    const OpInfo *info = op_info(i->op);
    for (int k = 0; k < info->n_out; k++)
        if (info->out[k].sums >= 0 && i->out[info->out[k].sums] == dy) return &i->out[k];
    return NULL;
}

static void emit_wgrad(Backward *pass, InstrId i)
{
    const Instr f = pass->p->instrs[i];
    TensorId dy = pass->grad[f.out[LINEAR_OUT_y]], db = param_grad(pass, f.in[LINEAR_IN_bias]);
    TensorId *sums = pass->bias_sums && db != NONE ? bias_sums_of(&pass->p->instrs[plan_maker(pass->p, dy)], dy) : NULL;
    if (sums) {
        *sums = db;
        db = NONE;
    }
    emit(pass, OP_LINEAR_WGRAD, &f, i, f.attr, IDS(f.in[LINEAR_IN_x], dy),
         IDS(param_grad(pass, f.in[LINEAR_IN_w]), db));
}

/* The weight gradient goes first, so that the input's memory is free. After a GELU it waits, because the GELU's
   backward may have to make that input again. */
static void backward_linear(Backward *pass, InstrId i)
{
    const Instr f = pass->p->instrs[i];
    TensorId x = f.in[LINEAR_IN_x], w = f.in[LINEAR_IN_w], dy = pass->grad[f.out[LINEAR_OUT_y]];
    bool after_gelu = wants_grad(pass, x) && pass->p->instrs[pass->producer[x]].op == OP_GELU;
    if (after_gelu)
        pass->delayed[pass->n_delayed++] = i;
    else
        emit_wgrad(pass, i);
    if (!wants_grad(pass, x)) return;
    TensorId twin = pass->p->tensors[w].twin, add = pass->grad[x];
    TensorId dx = grad_tensor(pass, x);
    emit(pass, OP_LINEAR_DGRAD, &f, i, f.attr, IDS(dy, twin != NONE ? twin : w, add, NONE), IDS(dx, NONE, NONE));
    pass->grad[x] = dx;
}

static void backward_gelu(Backward *pass, InstrId i)
{
    const Instr f = pass->p->instrs[i];
    TensorId pre = f.in[GELU_IN_pre], g = f.out[GELU_OUT_g], dpre = grad_tensor(pass, pre);
    emit(pass, OP_GELU_BWD, &f, i, f.attr, IDS(pre, pass->grad[g]), IDS(dpre, NONE, NONE));
    pass->grad[pre] = dpre;
    int kept = 0;
    for (int k = 0; k < pass->n_delayed; k++) {
        InstrId linear = pass->delayed[k];
        if (pass->p->instrs[linear].in[LINEAR_IN_x] == g)
            emit_wgrad(pass, linear);
        else
            pass->delayed[kept++] = linear;
    }
    pass->n_delayed = kept;
}

static void backward_addnorm(Backward *pass, InstrId i)
{
    const Instr f = pass->p->instrs[i];
    TensorId d = f.in[ADDNORM_IN_d], x = f.in[ADDNORM_IN_x], y = f.out[ADDNORM_OUT_y];
    TensorId gamma = f.in[ADDNORM_IN_gamma], beta = f.in[ADDNORM_IN_beta];
    TensorId kept = f.attr.norm.form == NORM_FORM_XHAT ? f.out[ADDNORM_OUT_xhat] : y;
    CHECK(x == NONE || pass->grad[x] == NONE, "'%s' already has a gradient; addnorm cannot add to it",
          pass->p->tensors[x == NONE ? 0 : x].name);
    TensorId dd = grad_tensor(pass, d), dx = x == NONE ? NONE : grad_tensor(pass, x);
    emit(pass, OP_ADDNORM_BWD, &f, i, f.attr,
         IDS(kept, f.out[ADDNORM_OUT_rstd], gamma, beta, pass->grad[y], f.in[ADDNORM_IN_pos], f.in[ADDNORM_IN_seq],
             f.in[ADDNORM_IN_ctl]),
         IDS(dd, dx, param_grad(pass, gamma), param_grad(pass, beta), NONE));
    pass->grad[d] = dd;
    if (x != NONE) pass->grad[x] = dx;
}

static void backward_attention(Backward *pass, InstrId i)
{
    const Instr f = pass->p->instrs[i];
    TensorId qkv = f.in[ATTENTION_IN_qkv], o = f.out[ATTENTION_OUT_o], dqkv = grad_tensor(pass, qkv);
    emit(pass, OP_ATTENTION_BWD, &f, i, f.attr,
         IDS(qkv, o, f.out[ATTENTION_OUT_lse], pass->grad[o], f.in[ATTENTION_IN_spans], f.in[ATTENTION_IN_seq_index],
             f.in[ATTENTION_IN_ctl]),
         IDS(dqkv, NONE));
    pass->grad[qkv] = dqkv;
}

static void backward_embed(Backward *pass, InstrId i)
{
    const Instr f = pass->p->instrs[i];
    TensorId word = f.in[EMBED_IN_word], position = f.in[EMBED_IN_position], type = f.in[EMBED_IN_type];
    TensorId gamma = f.in[EMBED_IN_gamma], beta = f.in[EMBED_IN_beta];
    emit(pass, OP_EMBED_BWD, &f, i, f.attr,
         IDS(pass->grad[f.out[EMBED_OUT_x]], f.in[EMBED_IN_ids], f.in[EMBED_IN_types], f.in[EMBED_IN_pos],
             f.in[EMBED_IN_seq], f.in[EMBED_IN_ctl], word, position, type, gamma),
         IDS(param_grad(pass, word), param_grad(pass, position), param_grad(pass, type), param_grad(pass, gamma),
             param_grad(pass, beta)));
}

/* The gradient of a boundary passes it the other way. */
static void backward_send(Backward *pass, InstrId i)
{
    const Instr f = pass->p->instrs[i];
    TensorId x = f.in[SEND_IN_x], dx = grad_tensor(pass, x);
    emit(pass, OP_RECEIVE, &f, i, f.attr, NO_IDS, IDS(dx));
    pass->grad[x] = dx;
}

static void backward_instr(Backward *pass, InstrId i)
{
    const Instr f = pass->p->instrs[i];
    TensorId x, y, g;
    switch (f.op) {
    case OP_XENT: /* a loss wrote its gradient already; these three have the same operands */
    case OP_MSE:
    case OP_BCE:
        pass->grad[f.in[XENT_IN_logits]] = f.out[XENT_OUT_dlogits];
        return;
    case OP_SPAN_XENT:
        pass->grad[f.in[SPAN_XENT_IN_logits]] = f.out[SPAN_XENT_OUT_dlogits];
        return;
    case OP_MLM_XENT:
        pass->grad[f.in[MLM_XENT_IN_h]] = f.out[MLM_XENT_OUT_dh];
        return;
    case OP_LINEAR:
        backward_linear(pass, i);
        return;
    case OP_GELU:
        backward_gelu(pass, i);
        return;
    case OP_ADDNORM:
        backward_addnorm(pass, i);
        return;
    case OP_ATTENTION:
        backward_attention(pass, i);
        return;
    case OP_EMBED:
        backward_embed(pass, i);
        return;
    case OP_SEND:
        backward_send(pass, i);
        return;
    case OP_RECEIVE:
        emit(pass, OP_SEND, &f, i, f.attr, IDS(pass->grad[f.out[RECEIVE_OUT_x]]), NO_IDS);
        return;
    case OP_GATHER:
        x = f.in[GATHER_IN_x], y = f.out[GATHER_OUT_y], g = grad_tensor(pass, x);
        emit(pass, OP_SCATTER, &f, i, f.attr,
             IDS(pass->grad[y], f.in[GATHER_IN_index], f.in[GATHER_IN_ctl], pass->grad[x]), IDS(g));
        break;
    case OP_ACTIVATE:
        x = f.in[ACTIVATE_IN_x], y = f.out[ACTIVATE_OUT_y], g = grad_tensor(pass, x);
        emit(pass, OP_ACTIVATE_BWD, &f, i, f.attr, IDS(y, pass->grad[y]), IDS(g));
        break;
    case OP_POOL: /* the host wrote its output's gradient */
        x = f.in[POOL_IN_x], y = f.out[POOL_OUT_y], g = grad_tensor(pass, x);
        emit(pass, OP_POOL_BWD, &f, i, f.attr,
             IDS(pass->p->tensors[y].grad, y, f.out[POOL_OUT_inverse], f.in[POOL_IN_spans], f.in[POOL_IN_first],
                 f.in[POOL_IN_ctl]),
             IDS(g));
        break;
    case OP_DROPOUT: /* its own backward */
        x = f.in[DROPOUT_IN_x], y = f.out[DROPOUT_OUT_y], g = grad_tensor(pass, x);
        emit(pass, OP_DROPOUT, &f, i, f.attr,
             IDS(pass->grad[y], f.in[DROPOUT_IN_seq_index], f.in[DROPOUT_IN_ctl], f.in[DROPOUT_IN_pos]), IDS(g));
        break;
    default:
        CHECK(0, "op %s has no backward rule", op_info(f.op)->name);
    }
    pass->grad[x] = g;
}

void plan_backward(Plan *p, bool bias_sums)
{
    int32_t n_tensors = p->n_tensors, n_instrs = p->n_instrs;
    Backward pass = {.p = p,
                     .grad = mem_array((size_t)n_tensors, sizeof(TensorId)),
                     .producer = mem_array((size_t)n_tensors, sizeof(InstrId)),
                     .delayed = mem_array((size_t)n_instrs, sizeof(InstrId)),
                     .bias_sums = bias_sums};
    for (TensorId t = 0; t < n_tensors; t++) pass.grad[t] = pass.producer[t] = NONE;
    for (InstrId i = 0; i < n_instrs; i++)
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (p->instrs[i].out[k] != NONE) pass.producer[p->instrs[i].out[k]] = i;
    for (InstrId i = n_instrs - 1; i >= 0; i--) backward_instr(&pass, i);
    CHECK(pass.n_delayed == 0, "%d weight gradients were never emitted", pass.n_delayed);
    MEM_FREE(pass.grad, pass.producer, pass.delayed);
}
