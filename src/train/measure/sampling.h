/* State of a device, read at an interval by a thread: a line of a file for each sample, a summary, and for a profile
   the samples themselves. */
#pragma once

#include "kernels/device.h"

#define SAMPLING_EVERY 0.1 /* seconds, of a profile */

typedef struct {
    double when;  /* clock_monotonic */
    int64_t step; /* the step that ran; 0: before the first */
    DeviceSample device;
} SampleRecord;

typedef struct {
    double every;     /* seconds */
    const char *path; /* gpu.csv (docs/files.md); NULL: none. A file that cannot be written is a warning */
    bool append;      /* to what is there */
    int rank;         /* in each line */
    bool keep;        /* the samples, until sampling_take */
    bool until_taken; /* no samples after that */
} SamplingOptions;

/* Sums up the samples within steps. NaN: unknown. */
typedef struct {
    double sm_mhz, watts, celsius; /* means */
    double slowed;                 /* share of the samples with a reason of THROTTLE_LIST that takes speed */
    uint64_t reasons;              /* all of these reasons */
    double ecc;                    /* errors since the first sample, corrected and not */
} SamplingSummary;

typedef struct Sampling Sampling;

/* E_FAIL, with the reason: no device (NULL), or its state cannot be read; *s is NULL then. */
Status sampling_open(Device *d, const SamplingOptions *options, Sampling **s);
/* All functions below take NULL. */
void sampling_step(Sampling *s, int64_t step); /* this step begins */
/* The samples kept so far; they are valid until sampling_close. No more are kept. */
int sampling_take(Sampling *s, const SampleRecord **records); // (returned)
SamplingSummary sampling_summary(Sampling *s);
void sampling_close(Sampling *s);

/* A comma and the number; nothing behind the comma for NaN and infinities. */
void csv_number(Buf *out, double x, int decimals);
/* Names of THROTTLE_LIST with '|' between them; "none"; nothing for THROTTLE_UNKNOWN. */
void put_throttle(Buf *out, uint64_t reasons);
