/* The sizes that a plan follows from: of shares, micro-batches and grains. */

#include "train/planner/planner.h"

#define MICRO_TOKENS_MOST 16384 /* contracts.md 3 */
#define SHORTEST_SEQUENCE 3     /* [CLS] x [SEP]: how many sequences a micro-batch can hold at most */

static int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

static int64_t at_least(int64_t n, int64_t least) { return n > least ? n : least; }

Status planner_policy(const Config *c, const Backend *b, int layers, Policy *policy)
{
    TRY(policy_parse(c->recompute, policy));
    if (layers) TRY(policy_check(policy, layers));
    if (!policy_offloads(policy) || !b || backend_offloads(b)) return OK;
    return fail(E_USAGE,
                "--recompute %s needs a device that copies while it computes, which the backend '%s' lacks. Use "
                "--backend cuda, or here full, or auto with --memory-budget",
                c->recompute, b->name);
}

int64_t planner_share(const Config *c, int64_t ranks) { return (c->batch_size + ranks - 1) / ranks; }

bool planner_for_device(const PlanInput *in) { return in->imagined || (in->backend && in->backend->device); }

bool planner_one_grain(const PlanInput *in) { return in->virtual.ranks && planner_for_device(in); }

MicroCapacity planner_grain(const Config *c, const PlanInput *in)
{
    return in->virtual.ranks ? planner_capacity(in, in->virtual.grain_tokens, c->batch_size) : (MicroCapacity){0};
}

int64_t planner_least_tokens(const Config *c, int64_t sequences, int64_t max_length)
{
    if (c->virtual_ranks == 0) return max_length;
    return at_most(at_least(c->grain_tokens, max_length), sequences * max_length);
}

Status planner_micro_tokens(const Config *c, int64_t sequences, int64_t max_length, int64_t *tokens)
{
    int64_t share = sequences * max_length, least = planner_least_tokens(c, sequences, max_length);
    const char *text = c->micro_batch_tokens;
    if (strcmp(text, "auto") == 0)
        *tokens = 0;
    else if (strcmp(text, "step") == 0)
        *tokens = share;
    else if (strcmp(text, "default") == 0)
        *tokens = at_most(share, at_least(least, MICRO_TOKENS_MOST));
    else {
        char *end;
        *tokens = strtoll(text, &end, 10);
        if (*end != '\0' || *tokens < 1)
            return fail(E_USAGE, "--micro-batch-tokens '%s': expected a number of tokens, step or auto", text);
        if (*tokens < max_length)
            return fail(E_USAGE, "--micro-batch-tokens %lld is less than one sequence (%lld tokens)",
                        (long long)*tokens, (long long)max_length);
        if (*tokens < least)
            return fail(E_USAGE,
                        "--micro-batch-tokens %lld is less than a grain of %lld tokens: with --virtual-ranks a "
                        "micro-batch takes whole ones. --grain-tokens is their size",
                        (long long)*tokens, (long long)least);
        *tokens = at_most(*tokens, round_up(share, 64));
    }
    return OK;
}

/* Masked positions in the share that the longest sequences have; a sequence of more than its share finds room
   elsewhere. */
MicroCapacity planner_capacity(const PlanInput *in, int64_t tokens, int64_t batch)
{
    int64_t masked = (tokens * in->max_masked + in->max_length - 1) / in->max_length;
    return (MicroCapacity){.tokens = tokens,
                           .seqs = at_most(batch, tokens / SHORTEST_SEQUENCE + 1),
                           .masked = at_least(masked, in->max_masked)};
}

MicroCapacity planner_evaluation_capacity(const Config *c, const PlanInput *in, int64_t training)
{
    int64_t tokens = at_most(c->eval_batch_size * in->max_length, MICRO_TOKENS_MOST);
    if (training && in->max_masked == 0) tokens = at_most(tokens, training);
    return planner_capacity(in, at_least(tokens, in->max_length), c->eval_batch_size);
}
