#include "train/measure/profile_files.h"

#include "report/box.h"
#include "train/measure/sampling.h"

void kernels_add(Kernels *k, const Kernel *call)
{
    int i = 0;
    while (i < k->n && (k->rows[i].op != call->op || k->rows[i].phase != call->phase || k->rows[i].k != call->k ||
                        k->rows[i].n != call->n))
        i++;
    if (i == k->n) {
        MEM_GROW(k->rows, k->n, k->cap);
        MEM_GROW(k->times, k->n, k->cap_times);
        k->times[i] = (KernelTimes){0};
        k->rows[k->n++] = (Kernel){.op = call->op, .phase = call->phase, .k = call->k, .n = call->n};
    }
    Kernel *at = &k->rows[i];
    KernelTimes *t = &k->times[i];
    MEM_PUSH(t->items, t->n, t->cap, call->seconds);
    at->calls++;
    at->seconds += call->seconds;
    at->flops += call->flops;
    at->bytes += call->bytes;
    at->of_set[machine_set(call->bytes)] += call->bytes;
}

static int longest_first(const void *a, const void *b)
{
    double x = ((const Kernel *)a)->seconds, y = ((const Kernel *)b)->seconds;
    return (x < y) - (x > y);
}

void kernels_close(Kernels *k, int rank)
{
    for (int i = 0; k->times && i < k->n; i++) {
        Quantiles q = quantiles_of(k->times[i].items, k->times[i].n);
        k->rows[i].median = q.median;
        k->rows[i].p95 = q.p95;
        k->rows[i].rank = rank;
        free(k->times[i].items);
    }
    free(k->times);
    k->times = NULL;
    if (k->n > 0) qsort(k->rows, (size_t)k->n, sizeof *k->rows, longest_first);
}

double kernels_seconds(const Kernel *rows, int n, int64_t rank)
{
    double total = 0;
    for (int i = 0; i < n; i++) total += rows[i].rank == rank ? rows[i].seconds : 0;
    return total;
}

static void put_kernel(const Kernel *k, double total, const MachineLimits *limits, Buf *out)
{
    double flops = limits ? limits->flops : NAN, moving = limits ? 0 : NAN, s = k->seconds;
    for (int i = 0; limits && i < N_MACHINE_SETS; i++) moving += k->of_set[i] / limits->bytes[i];
    buf_printf(out, "%s,%s,", op_info(k->op)->name, phase_name(k->phase));
    if (k->n) buf_printf(out, "%lldx%lld", (long long)k->n, (long long)k->k);
    buf_printf(out, ",%lld", (long long)k->calls);
    csv_number(out, s, 9);
    csv_number(out, total > 0 ? s / total : 0, 6);
    csv_number(out, 1e-12 * k->flops / s, 4);
    csv_number(out, 1e-12 * flops, 4);
    csv_number(out, 1e-9 * k->bytes / s, 3);
    csv_number(out, 1e-9 * k->bytes / moving, 3);
    csv_number(out, fmax(k->flops / flops, moving) / s, 4);
    csv_number(out, k->median, 9);
    csv_number(out, k->p95, 9);
    buf_printf(out, ",%lld\n", (long long)k->rank);
}

Status kernels_write(const char *dir, const char *name, const Kernel *rows, int n, const MachineLimits *limits)
{
    Buf text = {0};
    buf_puts(&text, "op,phase,shape,calls,seconds,share,tflop_s,limit_tflop_s,gbyte_s,limit_gbyte_s,of_limit,median_s,"
                    "p95_s,rank\n");
    for (int i = 0; i < n; i++) put_kernel(&rows[i], kernels_seconds(rows, n, rows[i].rank), limits, &text);
    return file_write_text(dir, name, &text);
}
