/* K-FAC's work by the run's own costs: medians of the first steps' works, of all ranks, in place of the predicted
   times. The assignment is made anew between two sets, so nothing that is pending moves; it is only time. */

#include "report/box.h"
#include "train/session/session_pipeline.h"

#define SAMPLES_MOST 16384

const PlaceFill *pipeline_fill(const SessionPipeline *p)
{
    return p->measure.done ? &p->measure.fill : &p->place->fill;
}

void pipeline_measure_free(SessionPipeline *p)
{
    free(p->measure.samples);
    place_fill_free(p->place, &p->measure.fill);
}

void pipeline_measure(SessionPipeline *p, int64_t step)
{
    if (!p->measure.first) p->measure.first = step;
    p->measure.on = !p->measure.done && step > p->measure.first;
}

static int cost_of(const SessionPipeline *p, const Work *w)
{
    const FillItem *x = w->kind < N_WORKS ? NULL : &p->kfac.items[w->item];
    if (x) return place_kfac_cost(p->place, x->kind, x->kind == FILL_INVERSE && pipeline_inverse_is_wide(p, x->factor));
    return place_work_cost(p->place, w->kind, pipeline_stage(&p->place->grid.shape, p->place->number, w->chunk));
}

void pipeline_note(void *self, const Work *w, double seconds)
{
    SessionPipeline *p = self;
    PipelineMeasure *m = &p->measure;
    if (!m->on || m->n == SAMPLES_MOST) return;
    MEM_PUSH(m->samples, m->n, m->cap, (CostSample){cost_of(p, w), seconds});
}

/* (place_n_costs) of this rank; 0: it had no such work. */
static void own_medians(const SessionPipeline *p, double *medians)
{
    const PipelineMeasure *m = &p->measure;
    double *values = mem_array((size_t)m->n + 1, sizeof *values);
    for (int cost = 0; cost < place_n_costs(p->place); cost++) {
        int n = 0;
        for (int i = 0; i < m->n; i++)
            if (m->samples[i].cost == cost) values[n++] = m->samples[i].seconds;
        medians[cost] = n ? quantiles_of(values, n).median : 0;
    }
    free(values);
}

/* `medians` becomes the mean over the ranks that have one. */
static Status all_medians(const SessionPipeline *p, double *medians)
{
    Ranks *ranks = p->session->options.ranks;
    int n = place_n_costs(p->place);
    if (!ranks) return OK;
    double *all = mem_array((size_t)p->ranks * (size_t)n, sizeof *all);
    Status status = comm_allgather(ranks_comm(ranks), medians, (size_t)n * sizeof *all, all);
    for (int cost = 0; cost < n && status == OK; cost++) {
        double sum = 0;
        int have = 0;
        for (int r = 0; r < p->ranks; r++) {
            sum += all[r * n + cost];
            have += all[r * n + cost] > 0;
        }
        medians[cost] = have ? sum / have : 0;
    }
    free(all);
    return status;
}

static void tell(const SessionPipeline *p, const Fill *made)
{
    const PlaceFill *f = &p->measure.fill;
    log_info("K-FAC's work is assigned by measured times from now on: %.3g and %.3g ms for a layer's statistics of a "
             "micro-batch, %.3g and %.3g for an inverse of the hidden and of the inner size; %.0f %% of the bubbles of "
             "%d step%s, %.3g ms "
             "exposed",
             1e3 * f->costs.statistics[0], 1e3 * f->costs.statistics[1], 1e3 * f->costs.inverse[0],
             1e3 * f->costs.inverse[KFAC_WIDE], 100 * made->filled, made->steps, made->steps == 1 ? "" : "s",
             1e3 * made->exposed);
}

Status pipeline_take_costs(SessionPipeline *p)
{
    PipelineMeasure *m = &p->measure;
    const RankPlace *at = p->place;
    Ranks *ranks = p->session->options.ranks;
    Fill made = {0};
    if (!m->on) return OK;
    double *medians = mem_array((size_t)place_n_costs(at), sizeof *medians);
    own_medians(p, medians);
    Status status = all_medians(p, medians);
    if (status != OK || !(medians[place_kfac_cost(at, FILL_INPUTS, false)] > 0) ||
        !(medians[place_kfac_cost(at, FILL_INVERSE, false)] > 0))
        goto done; /* the next set tells */
    TRY_DONE(ranks_all(ranks, place_refill(at, medians, &m->fill, &made)));
    TRY_DONE(ranks_broadcast(ranks, &m->fill.gathered, sizeof m->fill.gathered));
    m->on = false;
    m->done = true;
    if (ranks_first(ranks)) tell(p, &made);
done:
    fill_free(&made);
    free(medians);
    return status;
}
