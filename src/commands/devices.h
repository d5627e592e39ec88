/* GPUs for `cairn plan --device`, present or not: figures of their data sheets, and the planner's rates derived from
   them. Every output marks these as predictions. */
#ifndef CAIRN_COMMANDS_DEVICES_H
#define CAIRN_COMMANDS_DEVICES_H

#include "base/base.h"
#include "kernels/backend.h"
#include "plan/plan.h"

typedef struct {
    const char *name;
    int major, minor; /* compute capability */
    int multiprocessors;
    double bf16_peak, f32_peak;       /* dense products, per second */
    double memory_peak, memory_bytes; /* bytes per second; bytes */
    double attention_peak;            /* the peak that attention's shares refer to */
    double link_bytes;                /* host to device, per second */
} DeviceSpec;

/* E_USAGE lists the names. */
Status device_find(const char *name, const DeviceSpec **device);

void device_rates(const DeviceSpec *d, Dtype compute, CostRates *rates);
/* Assumptions of the predicted times, a line each: name, value, unit, reason. */
void device_assumptions(const DeviceSpec *d, Buf *out);
/* The type of --precision auto on that device. */
Dtype device_compute(const DeviceSpec *d);
double device_peak(const DeviceSpec *d, Dtype compute);
/* Bytes of device memory that context and libraries take beside the plan. */
size_t device_context_bytes(void);

/* The cuda backend's table as for this device; false, with the reason in the status message, where this build has none:
   then scratch is estimated. */
bool device_table(const DeviceSpec *d, Backend *table);

#endif
