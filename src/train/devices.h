/* GPUs that `cairn plan --device` knows without having them: a table of what their makers state, and the rates that
   follow for the planner. Predictions, marked so wherever they are shown. */
#ifndef CAIRN_TRAIN_DEVICES_H
#define CAIRN_TRAIN_DEVICES_H

#include "base/base.h"
#include "kernels/backend.h"
#include "plan/plan.h"

typedef struct {
    const char *name;
    int major;                                 /* of its compute capability */
    double bf16_peak, f32_peak;                /* dense products, per second */
    double product_share;                      /* of bf16_peak that a large product reaches */
    double memory_peak, memory_bytes;          /* bytes per second; bytes */
    double attention_flops[2], attention_half; /* see CostRates */
    double link_bytes;                         /* host to device, per second */
} DeviceSpec;

/* E_USAGE lists the names. */
Status device_find(const char *name, const DeviceSpec **device);

void device_rates(const DeviceSpec *d, Dtype compute, CostRates *rates);
double device_peak(const DeviceSpec *d, Dtype compute);
/* Bytes of device memory that context and libraries take beside the plan. */
size_t device_context_bytes(void);

/* The cuda backend's table as for this device; false, with the reason in the status message, where this build has none:
   then scratch is estimated. */
bool device_table(const DeviceSpec *d, Backend *table);

#endif
