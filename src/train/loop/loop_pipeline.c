/* The gradients of a step in a pipeline: the micro-batches of this rank's replicas, which all places of a pipeline have
   alike, and the works over them. */
#include <stdlib.h>

#include "train/loop/loop_internal.h"
#include "train/parts/place.h"

/* Of a replica; its arrays are (batch_size). */
typedef struct {
    int64_t *places, *order;
    MicroRange *ranges;
    RowCounts *rows;
    int64_t micros;
} Share;

struct LoopPipeline {
    Loop *loop;
    const PipelinePlace *place;
    Share shares[2]; /* (directions) */
};

struct LoopPipeline *loop_pipeline_open(Loop *l)
{
    const PipelinePlace *place = l->run->session.plan.input.place;
    size_t batch = (size_t)l->run->c->batch_size;
    if (!place_has_works(place)) return NULL;
    struct LoopPipeline *p = mem_alloc(sizeof *p);
    p->loop = l;
    p->place = place;
    for (int d = 0; d < place->grid.directions; d++) {
        Share *s = &p->shares[d];
        s->places = mem_array(batch, sizeof *s->places);
        s->order = mem_array(batch, sizeof *s->order);
        s->ranges = mem_array(batch, sizeof *s->ranges);
        s->rows = mem_array(batch, sizeof *s->rows);
    }
    return p;
}

void loop_pipeline_close(struct LoopPipeline *p)
{
    for (int d = 0; p && d < 2; d++) {
        MEM_FREE(p->shares[d].places, p->shares[d].order, p->shares[d].ranges, p->shares[d].rows);
    }
    free(p);
}

/* The rows of a micro-batch that micro_fill makes. */
static RowCounts micro_rows(const Loop *l, const int64_t *places, int64_t n)
{
    const Run *run = l->run;
    int64_t tokens = 0, masked = 0, padded = run_padded_length(run);
    for (int64_t i = 0; i < n; i++) {
        int64_t example = l->index[places[i]];
        tokens += padded ? padded : example_length(l->examples, example);
        masked += run->session.plan.micro.masked ? example_masked(l->examples, example) : 0;
    }
    return session_rows(&run->session, tokens, n, masked);
}

static void take_share(struct LoopPipeline *p, int direction)
{
    const Loop *l = p->loop;
    const Run *run = l->run;
    int64_t padded = run_padded_length(run);
    Share *s = &p->shares[direction];
    int64_t n = rank_share(l->examples, l->index, l->n_seqs, padded, place_replica(p->place, direction),
                           grid_holders(&p->place->grid), s->places);
    s->micros = loop_split(l, s->places, n, s->order, s->ranges);
    for (int64_t m = 0; m < s->micros; m++)
        s->rows[m] = micro_rows(l, s->order + s->ranges[m].first, s->ranges[m].count);
}

static Status fill(void *self, int direction, int64_t m, const MicroBatch **b)
{
    struct LoopPipeline *p = self;
    Loop *l = p->loop;
    const Share *s = &p->shares[direction];
    micro_fill(&l->micro, l->examples, l->index, s->order + s->ranges[m].first, s->ranges[m].count,
               run_padded_length(l->run), l->run->model.config.pad_token_id);
    *b = &l->micro;
    return OK;
}

static SessionStep take_step(struct LoopPipeline *p)
{
    SessionStep step = {.fill = fill, .self = p};
    for (int d = 0; d < p->place->grid.directions; d++) {
        take_share(p, d);
        step.micros[d] = p->shares[d].micros;
        step.rows[d] = p->shares[d].rows;
    }
    return step;
}

/* The meeting comes before the first boundary, because waits for boundaries have a deadline. */
Status loop_pipeline_compute(Loop *l)
{
    SessionStep step = take_step(l->pipeline);
    TRY(loop_begin(l));
    loop_vote(l);
    TRY(ranks_meet(l->ranks));
    return session_run_pipeline(&l->run->session, &step);
}

Status loop_pipeline_find_bad(Loop *l)
{
    SessionStep step = take_step(l->pipeline);
    TRY(loop_begin(l));
    TRY(ranks_meet(l->ranks));
    return session_find_bad_pipeline(&l->run->session, &step);
}
