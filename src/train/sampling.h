/* State of a device, read every tenth of a second by a thread of its own. */
#ifndef CAIRN_TRAIN_SAMPLING_H
#define CAIRN_TRAIN_SAMPLING_H

#include "kernels/device.h"

#define SAMPLING_EVERY 0.1 /* seconds */

typedef struct {
    double when; /* clock_monotonic */
    DeviceSample device;
} SampleRecord;

typedef struct Sampling Sampling;

/* NULL without a device (NULL), or where it has no state to read; a line says why where it should have. */
Sampling *sampling_start(Device *d);
/* Ends it; the records are valid until sampling_free. Both take NULL. */
int sampling_stop(Sampling *s, const SampleRecord **records); // (returned)
void sampling_free(Sampling *s);

/* gpu.csv (docs/files.md), seconds counted from `zero`. */
void sampling_csv(const SampleRecord *records, int n, double zero, Buf *out); // (n)

#endif
