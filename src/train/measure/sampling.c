#include "train/measure/sampling.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"

static const char head[] = "time,rank,step,sm_mhz,memory_mhz,watts,celsius,memory_bytes,throttle,ecc_corrected,"
                           "ecc_uncorrected\n";

/* A mean of what is known. */
typedef struct {
    double sum, n;
} Mean;

struct Sampling {
    Device *device;
    double every;
    char *path;
    int fd, rank; /* fd < 0: no file */
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t wake;
    bool stop, keep, until_taken, lost;
    int64_t step;
    SampleRecord *records; /* (n) */
    int n, cap;
    Mean sm_mhz, watts, celsius, slowed;
    uint64_t reasons;
    double first_ecc, ecc;
};

void csv_number(Buf *out, double x, int decimals)
{
    buf_puts(out, ",");
    if (isfinite(x)) buf_printf(out, "%.*f", decimals, x);
}

void put_throttle(Buf *out, uint64_t reasons)
{
    bool any = false;
    if (reasons == THROTTLE_UNKNOWN) return;
#define X(bit, name, slowed)                                                                                           \
    if (reasons & (bit)) {                                                                                             \
        buf_printf(out, "%s%s", any ? "|" : "", name);                                                                 \
        any = true;                                                                                                    \
    }
    THROTTLE_LIST(X)
#undef X
    if (!any) buf_puts(out, reasons ? "other" : "none");
}

/* The reasons that take speed. */
static uint64_t slowing(uint64_t reasons)
{
#define X(bit, name, slowed) | ((slowed) ? (uint64_t)(bit) : 0)
    return reasons == THROTTLE_UNKNOWN ? 0 : reasons & (0 THROTTLE_LIST(X));
#undef X
}

static void put_line(const Sampling *s, const SampleRecord *r, Buf *out)
{
    const DeviceSample *d = &r->device;
    buf_printf(out, "%.3f,%d,%lld", clock_wall() - (clock_monotonic() - r->when), s->rank, (long long)r->step);
    csv_number(out, d->sm_mhz, 0);
    csv_number(out, d->memory_mhz, 0);
    csv_number(out, d->watts, 3);
    csv_number(out, d->celsius, 0);
    csv_number(out, d->memory_bytes, 0);
    buf_puts(out, ",");
    put_throttle(out, d->throttle);
    csv_number(out, d->ecc_corrected, 0);
    csv_number(out, d->ecc_uncorrected, 0);
    buf_puts(out, "\n");
}

static void close_file(Sampling *s)
{
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

static void write_line(Sampling *s, const char *text, size_t len)
{
    if (s->fd < 0 || file_write_all(s->fd, s->path, text, len) == OK) return;
    log_warn("%s. Training continues without it", status_message());
    close_file(s);
}

static void open_file(Sampling *s, bool append)
{
    int flags = O_WRONLY | O_CREAT | O_APPEND | (append ? 0 : O_TRUNC);
    if (file_open_regular(s->path, flags, &s->fd) != OK)
        log_warn("%s. Training continues without it", status_message());
    if (s->fd >= 0 && lseek(s->fd, 0, SEEK_END) == 0) write_line(s, head, sizeof head - 1);
}

static void add(Mean *m, double x)
{
    if (!isfinite(x)) return;
    m->sum += x;
    m->n++;
}

static double mean(const Mean *m) { return m->n > 0 ? m->sum / m->n : NAN; }

static void add_to_summary(Sampling *s, const DeviceSample *d)
{
    double errors = d->ecc_corrected + d->ecc_uncorrected;
    if (isnan(s->first_ecc)) s->first_ecc = errors;
    s->ecc = errors;
    if (s->step == 0) return;
    add(&s->sm_mhz, d->sm_mhz);
    add(&s->watts, d->watts);
    add(&s->celsius, d->celsius);
    if (d->throttle != THROTTLE_UNKNOWN) add(&s->slowed, slowing(d->throttle) != 0);
    s->reasons |= slowing(d->throttle);
}

static void record(Sampling *s, SampleRecord r)
{
    Buf line = {0};
    pthread_mutex_lock(&s->lock);
    r.step = s->step;
    add_to_summary(s, &r.device);
    if (s->keep) {
        MEM_PUSH(s->records, s->n, s->cap, r);
    }
    pthread_mutex_unlock(&s->lock);
    put_line(s, &r, &line);
    write_line(s, line.data, line.len);
    buf_free(&line);
}

static Status add_sample(Sampling *s)
{
    SampleRecord r = {.when = clock_monotonic()};
    TRY(s->device->sample(s->device, &r.device));
    record(s, r);
    return OK;
}

/* Waits until `when` (clock_monotonic), or until the sampling stops: then true. */
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
    double next = clock_monotonic() + s->every;
    while (!pause_until(s, next)) {
        if (add_sample(s) != OK) {
            log_warn("sampling of the device ends: %s", status_message());
            s->lost = true;
            break;
        }
        double now = clock_monotonic();
        while (next <= now) next += s->every;
    }
    return NULL;
}

Status sampling_open(Device *d, const SamplingOptions *options, Sampling **sampling)
{
    SampleRecord first = {.when = clock_monotonic()};
    *sampling = NULL;
    if (!d || !d->sample) return fail(E_FAIL, "this backend has no GPU");
    TRY(d->sample(d, &first.device)); /* shows before the first step, and before a file, whether there are any */
    Sampling *s = mem_alloc(sizeof *s);
    *s = (Sampling){.device = d,
                    .every = options->every,
                    .path = mem_strdup(options->path ? options->path : ""),
                    .fd = -1,
                    .rank = options->rank,
                    .keep = options->keep,
                    .until_taken = options->until_taken,
                    .first_ecc = NAN,
                    .ecc = NAN};
    thread_lock_init(&s->lock, &s->wake);
    if (*s->path) open_file(s, options->append);
    record(s, first);
    s->running = thread_start(&s->thread, sample_loop, s) == OK;
    if (!s->running) log_warn("the device is not sampled: no thread can be started");
    *sampling = s;
    return OK;
}

void sampling_step(Sampling *s, int64_t step)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->step = step;
    pthread_mutex_unlock(&s->lock);
}

/* One more sample at the end, even after a short time. */
static void stop_thread(Sampling *s)
{
    if (!s->running) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->running = false;
    if (!s->lost) (void)add_sample(s);
}

int sampling_take(Sampling *s, const SampleRecord **records)
{
    *records = NULL;
    if (!s) return 0;
    if (s->until_taken) stop_thread(s);
    pthread_mutex_lock(&s->lock);
    s->keep = false;
    pthread_mutex_unlock(&s->lock);
    *records = s->records;
    return s->n;
}

SamplingSummary sampling_summary(Sampling *s)
{
    SamplingSummary r = {NAN, NAN, NAN, NAN, 0, NAN};
    if (!s) return r;
    pthread_mutex_lock(&s->lock);
    r = (SamplingSummary){mean(&s->sm_mhz), mean(&s->watts), mean(&s->celsius),
                          mean(&s->slowed), s->reasons,      s->ecc - s->first_ecc};
    pthread_mutex_unlock(&s->lock);
    return r;
}

void sampling_close(Sampling *s)
{
    if (!s) return;
    stop_thread(s);
    close_file(s);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    MEM_FREE(s->records, s->path, s);
}
