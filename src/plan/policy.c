/* Recompute policies: their names, and what each has every layer keep. */

#include "plan/plan.h"

static const char *const part_names[LAYER_PARTS] = {
#define X(name, text) [PART_##name] = text,
    PART_LIST(X)
#undef X
};

static const struct {
    const char *name;
    LayerKeep keep;
} levels[N_LEVELS] = {
    [LEVEL_NONE] = {"none", {0, 0}},
    [LEVEL_LEAN] = {"lean", {PART_BIT(G), 0}},
    [LEVEL_FFN] = {"ffn", {PART_BIT(PRE) | PART_BIT(G), 0}},
    [LEVEL_SELECTIVE] = {"selective", {PART_BIT(QKV) | PART_BIT(PRE) | PART_BIT(G), 0}},
    [LEVEL_FULL] = {"full", {ALL_PARTS - PART_BIT(INPUT), 0}},
    [LEVEL_OFFLOAD] = {"offload", {ALL_PARTS - PART_BIT(INPUT), PART_BIT(INPUT)}},
    [LEVEL_INNER] = {"inner", {ALL_PARTS, 0}},
};

LayerKeep level_keep(Level level) { return levels[level].keep; }

/* ---- names of what a layer keeps ---- */

#define IN_HOST "/host"

static bool same_keep(LayerKeep a, LayerKeep b) { return a.recomputed == b.recomputed && a.offloaded == b.offloaded; }

static void put_keep(LayerKeep keep, Buf *out)
{
    const char *between = "";
    for (int level = 0; level < N_LEVELS; level++)
        if (same_keep(keep, levels[level].keep)) {
            buf_puts(out, levels[level].name);
            return;
        }
    for (int part = 0; part < LAYER_PARTS; part++) {
        if (keep.recomputed >> part & 1) continue;
        buf_printf(out, "%s%s%s", between, part_names[part], keep.offloaded >> part & 1 ? IN_HOST : "");
        between = "+";
    }
}

static bool is_name(const char *text, size_t n, const char *name)
{
    return strlen(name) == n && !memcmp(text, name, n);
}

/* "qkv", or "qkv/host" */
static bool parse_part(const char *text, size_t n, LayerKeep *keep)
{
    const size_t host = strlen(IN_HOST);
    const bool offloaded = n > host && memcmp(text + n - host, IN_HOST, host) == 0;
    for (int part = 0; part < LAYER_PARTS; part++) {
        uint8_t bit = (uint8_t)(1u << part);
        if (!is_name(text, offloaded ? n - host : n, part_names[part])) continue;
        if (!(keep->recomputed & bit)) return false;
        keep->recomputed &= (uint8_t)~bit;
        if (offloaded) keep->offloaded |= bit;
        return true;
    }
    return false;
}

/* A level's name, or parts with + between them. */
static bool parse_keep(const char *text, size_t n, LayerKeep *keep)
{
    for (int level = 0; level < N_LEVELS; level++) {
        if (!is_name(text, n, levels[level].name)) continue;
        *keep = levels[level].keep;
        return true;
    }
    *keep = (LayerKeep){.recomputed = ALL_PARTS};
    for (size_t at = 0, end; at <= n; at = end + 1) {
        for (end = at; end < n && text[end] != '+';) end++;
        if (!parse_part(text + at, end - at, keep)) return false;
    }
    return true;
}

void policy_describe(const LayerKeep *keeps, int n_layers, Buf *out)
{
    for (int l = 0, last; l < n_layers; l = last) {
        for (last = l; last < n_layers && same_keep(keeps[last], keeps[l]);) last++;
        if (l) buf_puts(out, " ");
        put_keep(keeps[l], out);
        buf_printf(out, "×%d", last - l);
    }
}

/* ---- policies ---- */

static const char half_attention[] = "half-attention";

Policy policy_of_level(Level level)
{
    return (Policy){.kind = POLICY_MIXED, .runs = {{level_keep(level), POLICY_ALL_LAYERS}}};
}

/* "full×2 x+o+y1×6", with * for × and commas for blanks where that is easier to type. One run without a number is all
   layers. `wrong`: the text from the first wrong run on. */
static bool parse_runs(const char *text, Policy *policy, const char **wrong)
{
    static const char times[] = "×";
    *policy = (Policy){.kind = POLICY_MIXED};
    *wrong = text;
    for (int run = 0; run < POLICY_RUNS; run++) {
        const size_t name = strcspn(text, "*, \xc3");
        PolicyRun *r = &policy->runs[run];
        if (!parse_keep(text, name, &r->keep)) return false;
        text += name;
        if (run == 0 && *text == '\0') {
            r->layers = POLICY_ALL_LAYERS;
            return true;
        }
        if (*text == '*')
            text++;
        else if (str_starts_with(text, times))
            text += strlen(times);
        else
            return false;
        char *end;
        long n = strtol(text, &end, 10);
        if (*text < '1' || *text > '9' || n > 10000) return false;
        r->layers = (int16_t)n;
        if (*end == '\0') return true;
        if (*end != ' ' && *end != ',') return false;
        *wrong = text = end + 1;
    }
    return false;
}

Status policy_parse(const char *text, Policy *policy)
{
    if (strncmp(text, "every:", 6) == 0) {
        char *end;
        long k = strtol(text + 6, &end, 10);
        if (text[6] == '\0' || *end != '\0' || k < 1 || k > 1000)
            return fail(E_USAGE, "--recompute every:K takes a number of layers from 1 to 1000, found '%s'", text + 6);
        *policy = (Policy){.kind = POLICY_EVERY, .every = (int)k};
        return OK;
    }
    *policy = (Policy){.kind = strcmp(text, "auto") == 0 ? POLICY_AUTO : POLICY_HALF_ATTENTION};
    if (policy->kind == POLICY_AUTO || strcmp(text, half_attention) == 0) return OK;
    const char *wrong;
    if (parse_runs(text, policy, &wrong)) return OK;
    const bool later = wrong != text;
    return fail(
        E_USAGE,
        "--recompute '%s' is unknown%s%s%s; expected none, lean, ffn, selective, half-attention, full, offload, "
        "every:K, auto, or what layers keep, from the first one up, as 'full×2 x+o+y1×6 none×4': none, lean, "
        "ffn, selective, full, offload, inner, or parts (x, qkv, o, y1, pre, g; in the host's memory x/host, qkv/host "
        "…) with + between them, and the number of such layers; at most %d of these",
        text, later ? " from '" : "", later ? wrong : "", later ? "' on" : "", POLICY_RUNS);
}

void policy_format(const Policy *policy, char out[POLICY_TEXT])
{
    Buf text = {0};
    if (policy->kind == POLICY_EVERY)
        buf_printf(&text, "every:%d", policy->every);
    else if (policy->kind != POLICY_MIXED)
        buf_puts(&text, policy->kind == POLICY_AUTO ? "auto" : half_attention);
    for (int run = 0; policy->kind == POLICY_MIXED && run < POLICY_RUNS && policy->runs[run].layers; run++) {
        if (run) buf_puts(&text, " ");
        put_keep(policy->runs[run].keep, &text);
        if (policy->runs[run].layers != POLICY_ALL_LAYERS) buf_printf(&text, "×%d", policy->runs[run].layers);
    }
    snprintf(out, POLICY_TEXT, "%s", text.data);
    buf_free(&text);
}

Status policy_check(const Policy *policy, int n_layers)
{
    int layers = 0;
    char name[POLICY_TEXT];
    if (policy->kind != POLICY_MIXED || policy->runs[0].layers == POLICY_ALL_LAYERS) return OK;
    for (int run = 0; run < POLICY_RUNS; run++) layers += policy->runs[run].layers;
    if (layers == n_layers) return OK;
    policy_format(policy, name);
    return fail(E_USAGE, "--recompute '%s' is for %d layer%s; its numbers must add up to the model's %d", name, layers,
                layers == 1 ? "" : "s", n_layers);
}

bool policy_offloads(const Policy *policy)
{
    bool any = false;
    for (int run = 0; run < POLICY_RUNS; run++) any |= policy->runs[run].keep.offloaded != 0;
    return any;
}

static LayerKeep mixed_keep(const Policy *policy, int layer)
{
    int run = 0;
    while (policy->runs[run].layers != POLICY_ALL_LAYERS && layer >= policy->runs[run].layers)
        layer -= policy->runs[run++].layers;
    return policy->runs[run].keep;
}

void policy_keeps(const Policy *policy, int n_layers, LayerKeep *keeps)
{
    CHECK(policy->kind != POLICY_AUTO, "auto keeps nothing of its own; the search chooses");
    for (int l = 0; l < n_layers; l++) {
        if (policy->kind == POLICY_MIXED)
            keeps[l] = mixed_keep(policy, l);
        else if (policy->kind == POLICY_EVERY)
            keeps[l] = level_keep(l % policy->every == 0 ? LEVEL_FULL : LEVEL_INNER);
        else
            keeps[l] = level_keep(l % 2 == 0 ? LEVEL_SELECTIVE : LEVEL_FFN);
    }
}

void layer_choice_init(LayerChoice *c, int n_layers, const uint8_t *norm_forms)
{
    size_t n = (size_t)n_layers, n_forms = 2 * n + 1;
    /* all are kept, and NORM_FORM_Y is 0 */
    *c = (LayerChoice){.keeps = mem_array(n, sizeof *c->keeps), .norm_forms = mem_alloc(n_forms), .policy = "none"};
    if (norm_forms) memcpy(c->norm_forms, norm_forms, n_forms);
}

bool layer_choice_keeps_all(const LayerChoice *c, int n_layers)
{
    for (int l = 0; l < n_layers; l++)
        if (c->keeps[l].recomputed || c->keeps[l].offloaded) return false;
    return true;
}

void layer_choice_free(LayerChoice *c)
{
    MEM_FREE(c->keeps, c->norm_forms);
    *c = (LayerChoice){0};
}
