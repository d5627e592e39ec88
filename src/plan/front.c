#include "plan/front.h"

void front_init(Front *f)
{
    *f = (Front){0};
    MEM_PUSH(f->points, f->n, f->cap, ((FrontPoint){0}));
}

void front_free(Front *f)
{
    free(f->points);
    *f = (Front){0};
}

bool front_as_good(const LayerCost *a, const LayerCost *b)
{
    return a->picoseconds <= b->picoseconds && a->kept <= b->kept && a->peak <= b->peak;
}

int front_useful(const LayerCost *costs, int n, int16_t *useful)
{
    int n_useful = 0;
    for (int k = 0; k < n; k++) {
        bool beaten = false;
        int left = 0;
        for (int u = 0; u < n_useful && !beaten; u++) beaten = front_as_good(&costs[useful[u]], &costs[k]);
        if (beaten) continue;
        for (int u = 0; u < n_useful; u++)
            if (!front_as_good(&costs[k], &costs[useful[u]])) useful[left++] = useful[u];
        useful[left] = (int16_t)k;
        n_useful = left + 1;
    }
    return n_useful;
}

/* A list of the merge: the points below, each with one choice on top. */
typedef struct {
    const LayerCost *cost;
    int at; /* of the points below */
    FrontPoint head;
} List;

/* Goes to the next point that keeps less than `kept`. */
static void advance(const Front *below, int64_t kept, List *list)
{
    while (list->at < below->n && below->points[list->at].kept + list->cost->kept >= kept) list->at++;
    if (list->at == below->n) return;
    list->head.picoseconds = below->points[list->at].picoseconds + list->cost->picoseconds;
    list->head.kept = below->points[list->at].kept + list->cost->kept;
    list->head.from = list->at;
}

/* Sorts by time, then by the bytes kept. Of equal points the one whose last layer keeps more comes first, because the
   last layers keep for the shortest time. */
static bool comes_first(const List *a, const List *b)
{
    if (a->head.picoseconds != b->head.picoseconds) return a->head.picoseconds < b->head.picoseconds;
    if (a->head.kept != b->head.kept) return a->head.kept < b->head.kept;
    return a->cost->kept > b->cost->kept;
}

void front_extend(const Front *below, const LayerCost *costs, int n, int64_t room, int64_t most, Front *front)
{
    List *lists = mem_array((size_t)n, sizeof *lists);
    int16_t *useful = mem_array((size_t)n, sizeof *useful);
    *front = (Front){0};
    n = front_useful(costs, n, useful);
    for (int k = 0; k < n; k++) {
        const LayerCost *cost = &costs[useful[k]];
        lists[k] = (List){.cost = cost, .head.cost = useful[k]};
        advance(below, room - cost->peak + cost->kept + 1, &lists[k]);
    }
    for (;;) {
        const List *first = NULL;
        for (int k = 0; k < n; k++)
            if (lists[k].at < below->n && (!first || comes_first(&lists[k], first))) first = &lists[k];
        if (!first || first->head.picoseconds > most) break;
        MEM_PUSH(front->points, front->n, front->cap, first->head);
        int64_t kept = first->head.kept;
        for (int k = 0; k < n; k++) advance(below, kept, &lists[k]);
    }
    MEM_FREE(lists, useful);
}

int64_t front_fastest(const Front *f, int64_t kept)
{
    int low = 0, high = f->n; /* the first point that keeps so little */
    while (low < high) {
        int middle = (low + high) / 2;
        *(f->points[middle].kept <= kept ? &high : &low) = f->points[middle].kept <= kept ? middle : middle + 1;
    }
    return low < f->n ? f->points[low].picoseconds : INT64_MAX;
}

int64_t front_least(const Front *f, int64_t picoseconds)
{
    int low = 0, high = f->n; /* the first point that takes longer */
    while (low < high) {
        int middle = (low + high) / 2;
        bool longer = f->points[middle].picoseconds > picoseconds;
        *(longer ? &high : &low) = longer ? middle : middle + 1;
    }
    return low > 0 ? f->points[low - 1].kept : INT64_MAX;
}
