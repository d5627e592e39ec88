/* Text of a trace in Chrome's Trace Event Format: one event a line, times in microseconds. A rank is a process, its
   tracks are threads. Every event begins with a comma, but that of a process, which is the first of a file. */
#pragma once

#include "base/base.h"

typedef struct {
    int rank;
    double zero; /* clock_monotonic of this rank at the trace's time 0 */
} Trace;

#define TRACE_BEGIN "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" /* of a file, up to its events */
#define TRACE_END   "\n]}\n"
/* `error_s`: by which the rank's times may be off those of rank 0. */
void trace_process(const Trace *t, Buf *out, const char *name, double error_s);
void trace_track(const Trace *t, Buf *out, int track, const char *name);
/* An event up to its arguments; `begin` and `end` by clock_monotonic. The caller closes it with "}". */
void trace_span(const Trace *t, Buf *out, int track, const char *category, const char *name, double begin, double end);
void trace_counter(const Trace *t, Buf *out, double when, const char *name, const char *unit, double value);
