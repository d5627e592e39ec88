/* How long --recompute auto and its certificate take, and how far plans are from it: a line of JSON for budgets evenly
   between the smallest plan and none's peak. No backend is opened; the rates are an assumed CPU's, or GPU's with
   `link`. bench_search CONFIG.json BATCH LENGTH BUDGETS [pretraining] [link] */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "train/planner/search.h"

typedef struct {
    SearchProblem search;
    Accounts accounts;
    double search_s, bound_s, longest_s, *above; // (budgets) of the certificate
    int layouts, n;
} Bench;

/* One budget. Returns the plan's peak. */
static Status measure(Bench *b, size_t budget, size_t *peak)
{
    SearchResult r;
    Plan p;
    ModelTensors t;
    PlanCertificate bound;
    PlanRequest request = b->search.training;
    Account *first = &b->accounts.row[0];
    first->budget = budget;
    double start = clock_monotonic();
    TRY(search_layers(&b->search, &r));
    const double took = clock_monotonic() - start;
    *peak = r.peak;
    request.emit.layers = &r.layers;
    Status status = plan_make(&request, &p, &t, NULL);
    if (status == OK) {
        start = clock_monotonic();
        status = search_bound(&b->search, &p, r.peak - p.region_bytes[REGION_ACT], &bound);
        const double certified = clock_monotonic() - start;
        plan_free(&p);
        if (r.fits) {
            b->search_s += took;
            b->bound_s += certified;
            b->longest_s = took > b->longest_s ? took : b->longest_s;
            b->layouts += r.layouts;
            b->above[b->n++] = r.step_s / bound.step_s - 1;
        }
    }
    layer_choice_free(&r.layers);
    return status;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static Status run(const char *config, int64_t batch, int64_t length, int budgets, bool pretraining, bool link)
{
    static const LayerChoice forms_y;
    const MicroCapacity micro = {batch * length, batch, pretraining ? batch * length * 15 / 100 : 0};
    const RowCounts rows = plan_capacity(micro);
    size_t least, most, peak;
    ModelConfig c;
    Model m;
    Bench b = {.accounts = {.n = link ? 2 : 1,
                            .row = {{.name = "first", .limit = "the budget", .regions = ~(1u << REGION_HOST)},
                                    {.name = "machine", .regions = 1u << REGION_HOST, .budget = SIZE_MAX}}},
               .above = mem_array((size_t)budgets + 2, sizeof(double))};
    TRY(model_config_read(config, &c));
    TRY(model_init(&m, c, pretraining ? (Head){HEAD_PRETRAINING, 2} : (Head){HEAD_CLASSIFIER, 3}));
    b.search = (SearchProblem){.training = {.model = &m,
                                            .compute = BF16,
                                            .one_copy = link,
                                            .emit = {.training = true, .layers = &forms_y},
                                            .capacity = rows},
                               .accounts = &b.accounts,
                               .rates = {.product_flops = 1e12, .bytes = 2e10, .stream = 1e10, .overhead = 1e-6},
                               .rows = rows,
                               .seq_len = (double)length,
                               .micros = 1,
                               .offload = link};
    if (link)
        b.search.rates =
            (CostRates){.product_flops = 4e14, .bytes = 2.5e12, .overhead = 4e-6, .link_out = 5e10, .link_in = 5e10};
    TRY(measure(&b, 1, &least));
    TRY(measure(&b, SIZE_MAX / 4, &most));
    b.n = b.layouts = 0;
    b.search_s = b.bound_s = b.longest_s = 0;
    for (int i = 0; i < budgets; i++)
        TRY(measure(&b, least + (most - least) * (size_t)i / (size_t)(budgets > 1 ? budgets - 1 : 1), &peak));
    qsort(b.above, (size_t)b.n, sizeof *b.above, by_size);
    printf("{\"layers\": %d, \"hidden\": %d, \"batch\": %lld, \"length\": %lld, \"link\": %s, \"budgets\": %d, "
           "\"least_mib\": %.1f, \"most_mib\": %.1f, \"search_ms\": %.2f, \"longest_ms\": %.2f, \"bound_ms\": %.2f, "
           "\"layouts\": %.2f, \"above_median\": %.4f, \"above_95th\": %.4f, \"above_worst\": %.4f}\n",
           c.layers, c.hidden, (long long)batch, (long long)length, link ? "true" : "false", b.n,
           (double)least / (1 << 20), (double)most / (1 << 20), 1e3 * b.search_s / b.n, 1e3 * b.longest_s,
           1e3 * b.bound_s / b.n, (double)b.layouts / b.n, b.above[b.n / 2], b.above[b.n * 95 / 100], b.above[b.n - 1]);
    model_free(&m);
    free(b.above);
    return OK;
}

int main(int argc, char **argv)
{
    bool pretraining = false, link = false;
    for (int i = 5; i < argc; i++) {
        pretraining |= strcmp(argv[i], "pretraining") == 0;
        link |= strcmp(argv[i], "link") == 0;
    }
    if (argc < 5 || atoi(argv[4]) < 1 || argc > 5 + pretraining + link) {
        fprintf(stderr, "bench_search CONFIG.json BATCH LENGTH BUDGETS [pretraining] [link]\n");
        return 2;
    }
    if (run(argv[1], atoll(argv[2]), atoll(argv[3]), atoi(argv[4]), pretraining, link) == OK) return 0;
    fprintf(stderr, "error: %s\n", status_message());
    return 1;
}
