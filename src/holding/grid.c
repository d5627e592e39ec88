#include "holding/holding.h"

Grid grid_of_ranks(int ranks)
{
    return (Grid){
        .shape = {.kind = PIPELINE_GPIPE, .places = 1, .chunks = 1}, .stages = 1, .replicas = ranks, .directions = 1};
}

int grid_ranks(const Grid *g) { return g->shape.places * g->replicas; }

int grid_holders(const Grid *g) { return g->replicas * g->directions; }

int grid_holder(const Grid *g, int stage, int n)
{
    int place, chunk;
    pipeline_home(&g->shape, stage, n % g->directions, &place, &chunk);
    return place * g->replicas + n / g->directions;
}

int grid_holder_number(const Grid *g, int stage, int rank)
{
    int place, chunk;
    for (int direction = 0; direction < g->directions; direction++) {
        pipeline_home(&g->shape, stage, direction, &place, &chunk);
        if (place == rank / g->replicas) return rank % g->replicas * g->directions + direction;
    }
    return -1;
}

int grid_first_stage(const Grid *g, int rank)
{
    int stage = 0;
    while (grid_holder_number(g, stage, rank) < 0) stage++;
    return stage;
}
