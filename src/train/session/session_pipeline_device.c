/* Sums of a pipeline from GPU to GPU, on the comm lane. */

#include "train/session/session_pipeline.h"

enum { GIVEN, SUMMED }; /* events */

static Status is_summed(void *device, bool *done) { return ((Device *)device)->event_done(device, SUMMED, done); }

/* With virtual ranks: in their tree, by even parts. */
static Status queue_piece(const Session *s, CommDevice *between, float *x, Interval piece, void *stream)
{
    int holders = comm_device_size(between);
    const DeviceTree tree = {s->options.backend, between, s->plan.input.virtual_ranks,
                             exec_data(s->train, plan_find(&s->plan.train, PLAN_RECEIVED))};
    int64_t each = place_even_part(piece.end - piece.begin, holders), from = piece.begin;
    Interval *cut = mem_array((size_t)holders, sizeof *cut);
    for (int q = 0; q < holders; q++) {
        cut[q] = (Interval){from, piece.end - from < each ? piece.end : from + each};
        from = cut[q].end;
    }
    Intervals *parts = pipeline_parts(cut, holders);
    Status status = exec_sum_on_devices(&tree, &(SumSpace){.x = x}, parts);
    if (status == OK) status = comm_device_gather_parts(between, x, parts, stream);
    MEM_FREE(cut, parts);
    return status;
}

/* A stage's pieces that follow each other are one interval. */
static Status queue_tree(const Session *s, CommDevice *between, float *x, Interval v, void *stream)
{
    int64_t most = s->plan.input.place->bucket;
    for (int64_t at = v.begin; at < v.end; at += most)
        TRY(queue_piece(s, between, x, (Interval){at, v.end - at < most ? v.end : at + most}, stream));
    return OK;
}

static Status queue_sums(const Session *s, CommDevice *between, float *x, const Intervals *list, bool tree)
{
    Device *d = s->options.backend->device;
    TRY(d->choose_lane(d, LANE_COMPUTE));
    TRY(d->event_record(d, GIVEN));
    TRY(d->choose_lane(d, LANE_COMM));
    TRY(d->event_wait(d, GIVEN));
    for (int i = 0; i < list->count; i++) {
        Interval v = list->intervals[i];
        TRY(tree ? queue_tree(s, between, x, v, d->stream(d))
                 : comm_device_sum(between, x + v.begin, (size_t)(v.end - v.begin), F32, d->stream(d)));
    }
    TRY(d->event_record(d, SUMMED));
    return d->choose_lane(d, LANE_COMPUTE);
}

Status pipeline_sum_on_devices(const Session *s, CommDevice *between, float *x, const Intervals *list, bool tree)
{
    Status status = queue_sums(s, between, x, list, tree);
    if (status == OK) status = comm_device_wait(between, is_summed, s->options.backend->device);
    if (status != OK) comm_device_abort(between);
    return status;
}
