#include "plan/bound.h"
#include "train/planner/search.h"

/* Bytes that cross the link there and back in a second; 0: nothing does. */
static double link_rate(const SearchProblem *s)
{
    const double out = s->rates.link_out > 0 ? s->rates.link_out : s->rates.bytes;
    const double in = s->rates.link_in > 0 ? s->rates.link_in : s->rates.bytes;
    return s->offload ? out * in / (out + in) : 0;
}

/* Picoseconds that a micro-batch of `all` takes more, at least. What is in the host's memory at a moment went there
   before and comes back after it, so that the room grows with the time. */
static double least_added(const PlanBound *b, int64_t room, double all, double link)
{
    double low = 0, high = (double)plan_bound_added(b, room);
    if (link <= 0 || high == 0) return high;
    if (high > 100 * all) high = 100 * all; /* no room at all without the link */
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        bool can = (double)plan_bound_added(b, room + (int64_t)(link * (all + middle) * 1e-12)) <= middle;
        *(can ? &high : &low) = middle;
    }
    return low;
}

Status search_bound(const SearchProblem *s, const Plan *chosen, size_t other, PlanCertificate *bound)
{
    Status status = OK;
    Plan p;
    ModelTensors tensors;
    PlanRequest r = s->training;
    LayerChoice all;
    layer_choice_init(&all, r.model->config.layers, r.emit.layers->norm_forms);
    r.emit.layers = &all;
    r.sketch = true;
    TRY_DONE(plan_make(&r, &p, &tensors, NULL));
    const double link = link_rate(s);
    const double micro = 1e12 * plan_cost(chosen, chosen->micro, &s->rows, s->seq_len, &s->rates, NULL);
    const double step = search_step_seconds(chosen, &s->rows, &s->rates, s->seq_len, s->micros);
    const int64_t room = (int64_t)s->accounts->row[0].budget - (int64_t)other, linked = (int64_t)(link * micro * 1e-12);
    const int64_t takes = (int64_t)chosen->region_bytes[REGION_ACT], most = room > takes ? room : takes;
    PlanBound *b = plan_bound_make(&p, &s->rows, s->seq_len, &s->rates, link > 0 ? INT64_MAX / 2 : most);
    const double least = (double)plan_bound_least(b), rounded = p.micro.count; /* picoseconds of each instr */
    const double shortest = least + least_added(b, room, least, link) - rounded;
    const int64_t added = (int64_t)(micro - least + rounded);
    const int64_t floor = plan_bound_room(b, INT64_MAX), as_fast = plan_bound_room(b, added > 0 ? added : 0) - linked;
    bound->step_s = step + s->micros * fmin(shortest - micro, 0) * 1e-12;
    bound->least = other + (size_t)floor;
    bound->peak = other + (size_t)(as_fast > floor ? as_fast : floor);
    plan_bound_free(b);
    plan_free(&p);
done:
    layer_choice_free(&all);
    return status;
}
