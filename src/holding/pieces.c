#include "comm/mesh/comm.h"
#include "holding/holding.h"

Piece *pieces_add(Pieces *p, int stage, int64_t begin, int64_t end)
{
    Intervals *parts = mem_array((size_t)p->holders, sizeof *parts);
    MEM_PUSH(p->pieces, p->n, p->cap, (Piece){stage, begin, end, parts, NULL});
    return &p->pieces[p->n - 1];
}

void pieces_add_even(Pieces *p, int stage, int64_t begin, int64_t end, const ParamTable *params)
{
    if (begin == end) return;
    Piece *x = pieces_add(p, stage, begin, end);
    int64_t from = begin;
    x->cuts = mem_array((size_t)p->holders, sizeof *x->cuts);
    for (int q = 0; q < p->holders; q++) {
        int64_t to = slice_cut(params, begin, end, q, p->holders);
        x->cuts[q] = (Interval){from, to};
        x->parts[q] = (Intervals){.intervals = &x->cuts[q], .count = to > from, .size = to - from};
        from = to;
    }
}

static int by_stage(const void *a, const void *b)
{
    const Piece *x = a, *y = b;
    if (x->stage != y->stage) return x->stage - y->stage;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

void pieces_sort(Pieces *p)
{
    if (p->n > 0) qsort(p->pieces, (size_t)p->n, sizeof *p->pieces, by_stage);
}

void pieces_free(Pieces *p)
{
    for (int i = 0; i < p->n; i++) {
        for (int q = 0; q < p->holders && !p->pieces[i].cuts; q++) intervals_free(&p->pieces[i].parts[q]);
        MEM_FREE(p->pieces[i].parts, p->pieces[i].cuts);
    }
    free(p->pieces);
    *p = (Pieces){0};
}

void pieces_room_add(PiecesRoom *a, PiecesRoom b)
{
    b.scratch = (b.scratch + 63) / 64 * 64;
    if (b.scratch > a->scratch) a->scratch = b.scratch;
    if (b.largest > a->largest) a->largest = b.largest;
    if (b.received > a->received) a->received = b.received;
    if (b.branches > a->branches) a->branches = b.branches;
}

PiecesRoom pieces_room(const Pieces *p)
{
    PiecesRoom all = {0};
    for (int i = 0; i < p->n && p->holders > 1; i++) {
        const Piece *x = &p->pieces[i];
        pieces_room_add(&all, (PiecesRoom){.scratch = comm_reduce_bytes(x->parts, p->holders, p->wire, p->tree),
                                           .largest = x->end - x->begin,
                                           .received = comm_received(x->parts, p->holders, p->tree)});
    }
    for (int q = 0; q < p->holders && p->holders > 1; q++)
        pieces_room_add(&all, (PiecesRoom){.branches = comm_branches(p->tree, p->holders, q)});
    return all;
}
