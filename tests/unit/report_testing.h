/* A run.json, and pages and pictures read back. */
#pragma once

#include "markup.h"
#include "report/page.h"
#include "report/record.h"

static const double memory[] = {787968, 3179008, 50331648, 1e10, 12};
static const char config[] = "{\n  \"task\": \"MNLI\",\n  \"data-dir\": \"a<b> & \\\"c\\\"\"\n }";

static inline RunSummary summary_of(const char *recompute)
{
    RunSummary s = {.task = "MNLI",
                    .recompute = recompute,
                    .precision = "f32",
                    .backend = "oneDNN 2.6.3, \"avx2\" <2 threads> & more",
                    .version = "9.8.7",
                    .started = "2026-11-21T03:40:36Z",
                    .hosts = "node<1> (2 ranks)",
                    .waited_for = "rank 1 on node<1>: slow",
                    .folder = "/home/me/a&b",
                    .command = "cairn glue --data-dir 'a<b> & c'",
                    .again = "cairn glue --config out/run.json --output-dir OTHER",
                    .model = "BERT of 2 layers & more",
                    .device = "a <GPU>",
                    .micro_batches = 2,
                    .ranks = 2,
                    .threads = 2,
                    .steps = (int64_t)1 << 40,
                    .final_loss = 0.1 + 0.2,
                    .seq_per_s = 1.0 / 3,
                    .tokens_per_s = 1234.5,
                    .wall_s = 5e-324,
                    .save_stall_s = 0.25,
                    .planned_peak_bytes = (size_t)9 << 30,
                    .measured_peak_bytes = ((size_t)9 << 30) - 7,
                    .memory_series = memory,
                    .n_memory = 5,
                    .config_json = config};
    summary_add_region(&s, "weights", 3406080);
    summary_add_region(&s, "activations", (size_t)1 << 33);
    summary_add_region(&s, "const", 1792);
    summary_add_region(&s, SUMMARY_HOST "exchange", 2 << 20);
    summary_add_eval(&s, "dev_matched", "accuracy", 0.49333333333333335);
    summary_add_eval(&s, "dev \"x\"", "f<1>&", 2.0 / 3);
    return s;
}

typedef struct {
    Buf text;
    Markup m;
} Page;

static inline void page_free(Page *p)
{
    buf_free(&p->text);
    markup_free(&p->m);
}

static inline bool shows(const Page *p, const char *text) { return markup_find(&p->m, 0, "text", text) >= 0; }
