#include "train/sampling.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"

struct Sampling {
    Device *device;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;             /* under the lock */
    SampleRecord *records; /* (n) only the thread uses them while it runs */
    int n, cap;
};

static bool add_sample(Sampling *s)
{
    SampleRecord r = {.when = clock_monotonic()};
    if (s->device->sample(s->device, &r.device) != OK) return false;
    MEM_GROW(s->records, s->n, s->cap);
    s->records[s->n++] = r;
    return true;
}

/* Waits until `when` (clock_monotonic), or until sampling_stop: then true. */
static bool pause_until(Sampling *s, double when)
{
    pthread_mutex_lock(&s->lock);
    while (!s->stop && clock_monotonic() < when) thread_wait_until(&s->wake, &s->lock, when);
    bool stop = s->stop;
    pthread_mutex_unlock(&s->lock);
    return stop;
}

static void *sample_loop(void *argument)
{
    Sampling *s = argument;
    double next = clock_monotonic() + SAMPLING_EVERY;
    while (!pause_until(s, next)) {
        if (!add_sample(s)) {
            log_warn("sampling of the device ends: %s", status_message());
            break;
        }
        double now = clock_monotonic();
        while (next <= now) next += SAMPLING_EVERY;
    }
    return NULL;
}

Sampling *sampling_start(Device *d)
{
    if (!d || !d->sample) return NULL;
    Sampling *s = mem_alloc(sizeof *s);
    s->device = d;
    if (!add_sample(s)) { /* the first sample shows before the first step whether the device has any */
        log_info("profile: no gpu.csv: %s", status_message());
        free(s);
        return NULL;
    }
    thread_lock_init(&s->lock, &s->wake);
    s->running = thread_start(&s->thread, sample_loop, s) == 0;
    if (!s->running) log_warn("profile: the device is sampled once: no thread can be started");
    return s;
}

int sampling_stop(Sampling *s, const SampleRecord **records)
{
    *records = NULL;
    if (!s) return 0;
    if (s->running) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        s->running = false;
        add_sample(s); /* the end, even of a short profile */
    }
    *records = s->records;
    return s->n;
}

void sampling_free(Sampling *s)
{
    const SampleRecord *unused;
    if (!s) return;
    sampling_stop(s, &unused);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    free(s->records);
    free(s);
}

void csv_number(Buf *out, double x, int decimals)
{
    buf_puts(out, ",");
    if (isfinite(x)) buf_printf(out, "%.*f", decimals, x);
}

void sampling_csv(const SampleRecord *records, int n, double zero, Buf *out)
{
    buf_puts(out, "seconds,sm_mhz,memory_mhz,watts,celsius,memory_bytes\n");
    for (int i = 0; i < n; i++) {
        const DeviceSample *d = &records[i].device;
        buf_printf(out, "%.3f", records[i].when - zero);
        csv_number(out, d->sm_mhz, 0);
        csv_number(out, d->memory_mhz, 0);
        csv_number(out, d->watts, 3);
        csv_number(out, d->celsius, 0);
        csv_number(out, d->memory_bytes, 0);
        buf_puts(out, "\n");
    }
}
