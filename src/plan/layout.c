/* Offsets of tensors. Activations are placed one by one into gaps that are free over their whole life, in several
   orders, until one meets the lower bound (tests check that BERT's plans meet it). Other regions have one tensor after
   the other. */

#include "plan/plan.h"

#define ALIGN 64

static size_t align_up(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* Memory of a tensor and all that share it, one after the other. */
typedef struct {
    TensorId root;
    InstrId first, last;
    size_t bytes, offset;
    int slot; /* SlotKind, or NONE */
} Block;

static TensorId root_of(const Plan *p, TensorId t)
{
    while (p->tensors[t].shares != NONE) t = p->tensors[t].shares;
    return t;
}

static int by_root(const Block *x, const Block *y) { return x->root < y->root ? -1 : x->root > y->root; }

static int larger_first(const void *a, const void *b)
{
    const Block *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return by_root(x, y);
}

static int longer_first(const void *a, const void *b)
{
    const Block *x = a, *y = b;
    InstrId life_x = x->last - x->first, life_y = y->last - y->first;
    if (life_x != life_y) return life_x > life_y ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return by_root(x, y);
}

static int earlier_first(const void *a, const void *b)
{
    const Block *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return by_root(x, y);
}

static int lower_first(const void *a, const void *b)
{
    const Block *x = *(Block *const *)a, *y = *(Block *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The start of the smallest (or lowest) gap between blocks alive at the same time. `near` is room for n pointers. */
static size_t find_gap(Block *placed, int n, const Block *b, bool smallest, Block **near)
{
    int n_near = 0;
    for (int i = 0; i < n; i++)
        if (placed[i].first <= b->last && b->first <= placed[i].last) near[n_near++] = &placed[i];
    qsort(near, (size_t)n_near, sizeof *near, lower_first);
    size_t end = 0, best = SIZE_MAX, best_size = SIZE_MAX;
    for (int i = 0; i < n_near; i++) {
        if (near[i]->offset >= end + b->bytes && near[i]->offset - end < best_size && (smallest || best == SIZE_MAX)) {
            best = end;
            best_size = near[i]->offset - end;
        }
        size_t stop = near[i]->offset + near[i]->bytes;
        if (stop > end) end = stop;
    }
    return best != SIZE_MAX ? best : end;
}

static size_t place_blocks(Block *blocks, int n, int (*compare)(const void *, const void *), bool smallest,
                           Block **near)
{
    size_t total = 0;
    qsort(blocks, (size_t)n, sizeof *blocks, compare);
    for (int i = 0; i < n; i++) {
        blocks[i].offset = find_gap(blocks, i, &blocks[i], smallest, near);
        if (blocks[i].offset + blocks[i].bytes > total) total = blocks[i].offset + blocks[i].bytes;
    }
    return total;
}

static const struct {
    int (*compare)(const void *, const void *);
    bool smallest;
} orders[] = {{larger_first, true},  {longer_first, true},  {earlier_first, true},
              {larger_first, false}, {longer_first, false}, {earlier_first, false}};

/* In a stage, blocks that live from one work to another lie behind the others, class by class, each class once for
   each of its slots. `end`: the region's bytes so far. Returns the region's bytes. */
static size_t place_slots(const Plan *p, Block *blocks, int n, size_t end, size_t stride[N_SLOTS])
{
    for (int kind = 0; kind < N_SLOTS; kind++) {
        size_t start = end;
        for (int i = 0; i < n; i++) {
            if (blocks[i].slot != kind) continue;
            blocks[i].offset = end;
            end += blocks[i].bytes;
        }
        stride[kind] = end - start;
        end = start + stride[kind] * (size_t)p->slots[kind];
    }
    return end;
}

/* Moves blocks that have slots behind the others and returns the number of the others. */
static int slots_last(Block *blocks, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (blocks[i].slot != NONE) continue;
        Block b = blocks[i];
        blocks[i] = blocks[kept];
        blocks[kept++] = b;
    }
    return kept;
}

/* The best of several orders. `slotted`: others have slots, so that all orders are tried: the bound counts these too.
 */
static size_t place_by_life(Plan *p, Block *blocks, int n, bool slotted)
{
    Block **near = mem_array((size_t)n, sizeof *near);
    int64_t *live = mem_array((size_t)p->micro.count + 1, sizeof *live);
    size_t bound = 0, best = n ? SIZE_MAX : 0;
    if (!slotted) plan_live_series(p, live);
    for (int i = 0; i < p->micro.count; i++)
        if ((size_t)live[i] > bound) bound = (size_t)live[i];
    for (size_t o = 0; o < sizeof orders / sizeof *orders && best > bound; o++) {
        size_t total = place_blocks(blocks, n, orders[o].compare, orders[o].smallest, near);
        if (total >= best) continue;
        best = total;
        for (int i = 0; i < n; i++) p->tensors[blocks[i].root].offset = blocks[i].offset;
    }
    MEM_FREE(near, live);
    return best;
}

/* One after the other: inputs, which the host writes before F, and offloaded activations. */
static size_t place_in_a_row(Plan *p, const Block *blocks, int n)
{
    size_t end = 0;
    for (int i = 0; i < n; end += blocks[i++].bytes) p->tensors[blocks[i].root].offset = end;
    return end;
}

/* Returns the region's bytes. */
static size_t place_region(Plan *p, Region region)
{
    Block *blocks = mem_array((size_t)p->n_tensors, sizeof *blocks);
    int32_t *block_of = mem_array((size_t)p->n_tensors, sizeof *block_of);
    size_t stride[N_SLOTS] = {0};
    int n = 0;
    for (TensorId t = 0; t < p->n_tensors; t++) {
        const Tensor *x = &p->tensors[t];
        if (x->region != region || x->shares != NONE || (x->first == NONE && region == REGION_ACT)) continue;
        block_of[t] = n;
        blocks[n++] =
            (Block){t, region == REGION_INPUT ? p->micro.first : x->first, x->last, align_up(x->bytes), 0, NONE};
    }
    for (TensorId t = 0; t < p->n_tensors; t++) {
        const Tensor *x = &p->tensors[t];
        if (x->region != region || x->shares == NONE) continue;
        Block *b = &blocks[block_of[root_of(p, t)]];
        if (x->last > b->last) b->last = x->last;
    }
    for (int i = 0; i < n && p->slots[0]; i++)
        if (blocks[i].last != NONE) blocks[i].slot = plan_slot_kind(p, blocks[i].first, blocks[i].last);
    int kept = slots_last(blocks, n);
    size_t end = region == REGION_ACT ? place_by_life(p, blocks, kept, kept < n) : place_in_a_row(p, blocks, kept);
    end = place_slots(p, blocks + kept, n - kept, end, stride);
    for (int i = kept; i < n; i++) {
        Tensor *x = &p->tensors[blocks[i].root];
        x->offset = blocks[i].offset;
        x->slot = (int8_t)blocks[i].slot;
        x->stride = stride[blocks[i].slot];
    }
    for (TensorId t = 0; t < p->n_tensors; t++) {
        const Tensor *root = &p->tensors[root_of(p, t)];
        if (p->tensors[t].region != region) continue;
        p->tensors[t].offset = root->offset;
        p->tensors[t].slot = root->slot;
        p->tensors[t].stride = root->stride;
    }
    MEM_FREE(blocks, block_of);
    return end;
}

void plan_layout(Plan *p)
{
    memset(p->region_bytes, 0, sizeof p->region_bytes);
    for (TensorId t = 0; t < p->n_tensors; t++) {
        Tensor *x = &p->tensors[t];
        size_t *end = &p->region_bytes[x->region];
        bool placed = x->region == REGION_COPY && p->copies != NONE; /* by plan_place_copies */
        switch (x->region) {
        case REGION_OUTPUT:
        case REGION_CONST:
        case REGION_COPY:
            if (!placed) x->offset = *end;
            *end = placed ? p->tensors[p->copies].bytes : *end + align_up(x->bytes);
            break;
        case REGION_WEIGHT: /* offsets were given with the flat space */
        case REGION_GRAD:
        case REGION_MOMENT:
        case REGION_KFAC:
            if (x->offset + x->bytes > *end) *end = x->offset + x->bytes;
            break;
        default:
            break;
        }
    }
    p->region_bytes[REGION_INPUT] = place_region(p, REGION_INPUT);
    p->region_bytes[REGION_HOST] = place_region(p, REGION_HOST);
    p->region_bytes[REGION_ACT] = place_region(p, REGION_ACT);
    for (InstrId i = 0; i < p->n_instrs; i++)
        if (align_up(p->instrs[i].scratch) > p->region_bytes[REGION_SCRATCH])
            p->region_bytes[REGION_SCRATCH] = align_up(p->instrs[i].scratch);
}

size_t plan_transient_bytes(const Plan *p)
{
    size_t bytes = p->region_bytes[REGION_ACT];
    for (TensorId t = 0; t < p->n_tensors; t++) {
        const Tensor *x = &p->tensors[t];
        if (x->region == REGION_ACT && x->slot != NONE && x->offset < bytes) bytes = x->offset;
    }
    return bytes;
}

void plan_share_activations(Plan *const *plans, int n)
{
    size_t end = 0;
    for (int k = 0; k < n; k++) {
        size_t transient = plan_transient_bytes(plans[k]);
        if (transient > end) end = transient;
    }
    for (int k = 0; k < n; k++) {
        size_t start = plan_transient_bytes(plans[k]), by = end - start;
        end += plans[k]->region_bytes[REGION_ACT] - start;
        for (TensorId t = 0; t < plans[k]->n_tensors; t++) {
            Tensor *x = &plans[k]->tensors[t];
            if (x->region == REGION_ACT && x->slot != NONE) x->offset += by;
        }
    }
    for (int k = 0; k < n; k++) plans[k]->region_bytes[REGION_ACT] = end;
}

size_t plan_placed_bytes(const Tensor *t) { return align_up(t->bytes); }

void plan_live_series(const Plan *p, int64_t *bytes)
{
    memset(bytes, 0, ((size_t)p->micro.count + 1) * sizeof *bytes);
    for (TensorId t = 0; t < p->n_tensors; t++) {
        const Tensor *x = &p->tensors[t];
        if (x->region != REGION_ACT || x->first == NONE) continue;
        InstrId first = x->first - p->micro.first, last = x->last - p->micro.first;
        if (x->shares != NONE) /* counted once, where one becomes the other */
            first = p->tensors[x->shares].last - p->micro.first + 1;
        if (first > last) continue;
        bytes[first] += (int64_t)align_up(x->bytes);
        bytes[last + 1] -= (int64_t)align_up(x->bytes);
    }
    for (int i = 1; i <= p->micro.count; i++) bytes[i] += bytes[i - 1];
}

void plan_memory_series(const Plan *p, double **bytes, int *n)
{
    *n = p->micro.count;
    int64_t *live = mem_array((size_t)p->micro.count + 1, sizeof *live);
    *bytes = mem_array((size_t)p->micro.count, sizeof **bytes);
    plan_live_series(p, live);
    for (int i = 0; i < p->micro.count; i++)
        (*bytes)[i] = (double)live[i] + (double)p->instrs[p->micro.first + i].scratch;
    free(live);
}
