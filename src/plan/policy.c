/* Recompute policies: their names and the level each gives every layer; what is chosen for layers. */

#include "plan/plan.h"

static const char *const names[N_POLICIES] = {
    [POLICY_NONE] = "none",
    [POLICY_LEAN] = "lean",
    [POLICY_FFN] = "ffn",
    [POLICY_SELECTIVE] = "selective",
    [POLICY_HALF_ATTENTION] = "half-attention",
    [POLICY_FULL] = "full",
    [POLICY_OFFLOAD] = "offload",
    [POLICY_EVERY] = "every",
    [POLICY_AUTO] = "auto",
};

Status policy_parse(const char *text, Policy *policy)
{
    if (strncmp(text, "every:", 6) == 0) {
        char *end;
        long k = strtol(text + 6, &end, 10);
        if (text[6] == '\0' || *end != '\0' || k < 1 || k > 1000)
            return fail(E_USAGE, "--recompute every:K takes a number of layers from 1 to 1000, found '%s'", text + 6);
        *policy = (Policy){POLICY_EVERY, (int)k};
        return OK;
    }
    for (int k = 0; k < N_POLICIES; k++) {
        if (k == POLICY_EVERY || strcmp(text, names[k]) != 0) continue;
        *policy = (Policy){(PolicyKind)k, 0};
        return OK;
    }
    return fail(E_USAGE,
                "--recompute '%s' is unknown; expected none, lean, ffn, selective, half-attention, full, offload, "
                "every:K or auto",
                text);
}

void policy_format(Policy policy, char out[24])
{
    if (policy.kind == POLICY_EVERY)
        snprintf(out, 24, "every:%d", policy.every);
    else
        snprintf(out, 24, "%s", names[policy.kind]);
}

void policy_levels(Policy policy, int n_layers, uint8_t *levels)
{
    static const uint8_t uniform[N_POLICIES] = {
        [POLICY_NONE] = LEVEL_NONE,           [POLICY_LEAN] = LEVEL_LEAN, [POLICY_FFN] = LEVEL_FFN,
        [POLICY_SELECTIVE] = LEVEL_SELECTIVE, [POLICY_FULL] = LEVEL_FULL, [POLICY_OFFLOAD] = LEVEL_OFFLOAD,
    };
    CHECK(policy.kind != POLICY_AUTO, "auto has no levels of its own; the search sets them");
    for (int l = 0; l < n_layers; l++) {
        switch (policy.kind) {
        case POLICY_HALF_ATTENTION:
            levels[l] = l % 2 == 0 ? LEVEL_SELECTIVE : LEVEL_FFN;
            break;
        case POLICY_EVERY:
            levels[l] = l % policy.every == 0 ? LEVEL_FULL : LEVEL_INNER;
            break;
        default:
            levels[l] = uniform[policy.kind];
        }
    }
}

void layer_choice_init(LayerChoice *c, int n_layers, const uint8_t *norm_forms)
{
    size_t n = (size_t)n_layers, n_forms = 2 * n + 1;
    /* LEVEL_NONE and NORM_FORM_Y are 0 */
    *c = (LayerChoice){.levels = mem_alloc(n), .norm_forms = mem_alloc(n_forms), .policy = "none"};
    if (norm_forms) memcpy(c->norm_forms, norm_forms, n_forms);
}

void layer_choice_free(LayerChoice *c)
{
    MEM_FREE(c->levels, c->norm_forms);
    *c = (LayerChoice){0};
}
