/* How a device is doing, asked every tenth of a second by a thread of its own. */
#ifndef CAIRN_TRAIN_SAMPLING_H
#define CAIRN_TRAIN_SAMPLING_H

#include "base/base.h"
#include "kernels/backend.h"

#define SAMPLING_EVERY 0.1 /* seconds */

typedef struct {
    double when; /* clock_monotonic */
    DeviceSample device;
} SampleRecord;

typedef struct Sampling Sampling;

/* NULL where the backend has nothing to tell; if it should have, a line says why not. */
Sampling *sampling_start(const Backend *b);
/* Ends it; the records are valid until sampling_free. Both take NULL. */
int sampling_stop(Sampling *s, const SampleRecord **records); // (returned)
void sampling_free(Sampling *s);

/* gpu.csv (docs/files.md), seconds counted from `zero`. */
void sampling_csv(const SampleRecord *records, int n, double zero, Buf *out); // (n)

#endif
