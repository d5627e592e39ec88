#include "train/measure/profile_files.h"

void trace_process(const Trace *t, Buf *out, const char *name, double error_s)
{
    buf_printf(out,
               "{\"ph\": \"M\", \"pid\": %d, \"tid\": 0, \"name\": \"process_name\", \"args\": {\"name\": ", t->rank);
    buf_json(out, name);
    buf_printf(out, ", \"clock_error_us\": %.3f}}", 1e6 * error_s);
    buf_printf(out,
               ",\n{\"ph\": \"M\", \"pid\": %d, \"tid\": 0, \"name\": \"process_sort_index\", \"args\": "
               "{\"sort_index\": %d}}",
               t->rank, t->rank);
}

void trace_track(const Trace *t, Buf *out, int track, const char *name)
{
    buf_printf(out,
               ",\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"%s\"}}"
               ",\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_sort_index\", \"args\": "
               "{\"sort_index\": %d}}",
               t->rank, track, name, t->rank, track, track);
}

void trace_span(const Trace *t, Buf *out, int track, const char *category, const char *name, double begin, double end)
{
    buf_printf(out,
               ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"cat\": \"%s\", \"name\": ",
               t->rank, track, 1e6 * (begin - t->zero), 1e6 * (end - begin), category);
    buf_json(out, name);
}

void trace_counter(const Trace *t, Buf *out, double when, const char *name, const char *unit, double value)
{
    if (!isfinite(value)) return;
    buf_printf(out, ",\n{\"ph\": \"C\", \"pid\": %d, \"ts\": %.3f, \"name\": \"%s\", \"args\": {\"%s\": ", t->rank,
               1e6 * (when - t->zero), name, unit);
    buf_double(out, value);
    buf_puts(out, "}}");
}
