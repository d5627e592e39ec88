#include "train/devices.h"

#include <stdio.h>
#include <string.h>

/* What is reached of a peak, each with its reason. None was measured by us.
   - MEMORY_SHARE: elementwise kernels at 4.0 of an H200's 4.8 TB/s; cuDNN's norms reach 3.7 to 3.8 there, good copies
     more.
   - F32_SHARE: products on the plain fp32 units; no tensor cores, no TF32.
   - INSTR_SECONDS: from one kernel to the next inside a captured graph 1 to 1.5 µs, and an instr is one to three
     kernels, of which the later ones start hot.
   - CONTEXT: CUDA's context, cuBLASLt and our kernels, as commonly seen on Hopper. */
#define MEMORY_SHARE  0.83
#define F32_SHARE     0.80
#define INSTR_SECONDS 2e-6
#define CONTEXT       ((size_t)600 << 20)

/* Peaks and memory from NVIDIA's data sheets (dense, SXM; fp32 without tensor cores; V100 has fp16 only, and is older
   than the backend takes). memory_bytes: what nvidia-smi shows, less what the driver keeps.
   product_share: 790 of 989 TFLOP/s is a large bf16 product on an H200; the others are taken to reach the same.
   Attention: mma.sync kernels of FlashAttention-2's kind on an H100, head size 64, 512 tokens: 282 TFLOP/s forward, 198
   backward, of which our backward, that makes 7 products where 5 are counted, gets 5/7; at 128 tokens 0.6 of that is
   assumed, hence 362 and 181 on long sequences with half of it at 146. Dropout's random numbers cost more, which is not
   in it. A100, V100: the same share of the peak; B200: the same as H100, for our kernels use none of its own
   instructions.
   link_bytes: PCIe 5.0 × 16 gives about 50 GB/s, 4.0 half of it, 3.0 a quarter. */
#define TERA 1e12
#define GIB  1073741824.0
static const DeviceSpec devices[] = {
    {"h200", 9, 989 * TERA, 67 * TERA, 0.80, 4.8 * TERA, 139 * GIB, {362 * TERA, 181 * TERA}, 146, 50e9},
    {"h100", 9, 989 * TERA, 67 * TERA, 0.80, 3.35 * TERA, 79 * GIB, {362 * TERA, 181 * TERA}, 146, 50e9},
    {"a100", 8, 312 * TERA, 19.5 * TERA, 0.80, 2.04 * TERA, 79 * GIB, {114 * TERA, 57 * TERA}, 146, 25e9},
    {"b200", 10, 2250 * TERA, 75 * TERA, 0.80, 8.0 * TERA, 178 * GIB, {362 * TERA, 181 * TERA}, 146, 50e9},
    {"v100", 7, 125 * TERA, 15.7 * TERA, 0.80, 0.9 * TERA, 31 * GIB, {46 * TERA, 23 * TERA}, 146, 12e9},
};

Status device_find(const char *name, const DeviceSpec **device)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (strcmp(name, devices[i].name) != 0) continue;
        *device = &devices[i];
        return OK;
    }
    return fail(E_USAGE, "--device '%s' is unknown; expected h200, h100, a100, b200 or v100", name);
}

double device_peak(const DeviceSpec *d, Dtype compute) { return compute == F32 ? d->f32_peak : d->bf16_peak; }

size_t device_context_bytes(void) { return CONTEXT; }

void device_rates(const DeviceSpec *d, Dtype compute, CostRates *rates)
{
    *rates = (CostRates){.product_flops = compute == F32 ? F32_SHARE * d->f32_peak : d->product_share * d->bf16_peak,
                         .bytes = MEMORY_SHARE * d->memory_peak,
                         .overhead = INSTR_SECONDS,
                         .half_length = d->attention_half,
                         .link_out = d->link_bytes,
                         .link_in = d->link_bytes};
    for (int i = 0; i < 2 && compute != F32; i++) rates->attention_flops[i] = d->attention_flops[i];
    snprintf(rates->source, sizeof rates->source, "predicted: the %s's data sheet, not measured", d->name);
}

bool device_table(const DeviceSpec *d, Backend *table)
{
    if (backend_table("cuda", table) != OK) return false;
    if (table->imagine) table->imagine(d->major);
    return true;
}
