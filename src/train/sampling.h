/* State of a device, read every tenth of a second by a thread. */
#ifndef CAIRN_TRAIN_SAMPLING_H
#define CAIRN_TRAIN_SAMPLING_H

#include "kernels/device.h"

#define SAMPLING_EVERY 0.1 /* seconds */

typedef struct {
    double when; /* clock_monotonic */
    DeviceSample device;
} SampleRecord;

typedef struct Sampling Sampling;

/* NULL without a device (NULL) or where its state cannot be read; a message gives the reason. */
Sampling *sampling_start(Device *d);
/* Stops the thread; the records are valid until sampling_free. Both take NULL. */
int sampling_stop(Sampling *s, const SampleRecord **records); // (returned)
void sampling_free(Sampling *s);

/* A comma and the number; nothing behind the comma for NaN and infinities. */
void csv_number(Buf *out, double x, int decimals);
/* gpu.csv (docs/files.md), seconds counted from `zero`. */
void sampling_csv(const SampleRecord *records, int n, double zero, Buf *out); // (n)

#endif
