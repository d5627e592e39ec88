#include "base/clock.h"

#include <time.h>

static double read_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_monotonic(void) { return read_clock(CLOCK_MONOTONIC); }

double clock_suspended(double due)
{
    double late = clock_monotonic() - due;
    return late > 2 ? late : 0; /* more than a busy machine takes */
}

double clock_wall(void) { return read_clock(CLOCK_REALTIME); }

double clock_thread(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

void clock_iso(char *out, size_t size)
{
    time_t t = time(NULL);
    struct tm tm;
    gmtime_r(&t, &tm);
    if (strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0 && size > 0) out[0] = '\0';
}

/* Reads one to nine digits and advances *p past them. */
static bool read_digits(const char **p, long *value)
{
    const char *start = *p;
    for (*value = 0; isdigit((unsigned char)**p) && *p - start < 9; ++*p) *value = 10 * *value + (**p - '0');
    return *p > start && !isdigit((unsigned char)**p);
}

/* Slurm's forms: M:S, H:M:S, D-H, D-H:M, D-H:M:S. Only the first field may exceed its usual range. */
static bool parse_clock_form(const char *text, double *seconds)
{
    long days = 0, field[3] = {0};
    const char *p = text, *dash = strchr(text, '-');
    if (dash && (!read_digits(&p, &days) || p++ != dash)) return false;
    int n = 0;
    do {
        if (n == 3 || !read_digits(&p, &field[n++])) return false;
    } while (*p == ':' && p++);
    if (*p != '\0' || (!dash && n < 2)) return false;
    if (!dash && n == 2) { /* minutes and seconds: there are no hours */
        field[2] = field[1];
        field[1] = field[0];
        field[0] = 0;
    }
    bool minutes_lead = !dash && n == 2;
    if ((dash && field[0] > 23) || (!minutes_lead && field[1] > 59) || field[2] > 59) return false;
    *seconds = 86400.0 * (double)days + 3600.0 * (double)field[0] + 60.0 * (double)field[1] + (double)field[2];
    return true;
}

/* A number, with or without a fraction, and a unit: s (or none), ms, m, h, d. */
static bool parse_unit_form(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    size_t number = strspn(text, "0123456789.");
    const char *point = memchr(text, '.', number);
    if (number == 0 || number > 20 || !isdigit((unsigned char)text[0]) || !isdigit((unsigned char)text[number - 1])) {
        return false;
    }
    if (point && memchr(point + 1, '.', (size_t)(text + number - point) - 1)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(units[i].name, text + number) == 0) {
            *seconds = strtod(text, NULL) * units[i].seconds;
            return true;
        }
    }
    return false;
}

Status clock_parse_duration(const char *text, double *seconds)
{
    double value = 0;
    bool good = strpbrk(text, ":-") ? parse_clock_form(text, &value) : parse_unit_form(text, &value);
    if (!good) {
        return fail(E_USAGE,
                    "'%s' is not a duration; expected something like 90, 90s, 100ms, 20m, 1.5h, 2d, 59:30, 02:03:04 "
                    "or 1-02:03:04",
                    text);
    }
    if (value > CLOCK_MAX_DURATION) {
        return fail(E_USAGE, "'%s' is longer than the longest duration, %.0f days", text, CLOCK_MAX_DURATION / 86400);
    }
    *seconds = value;
    return OK;
}

const char *clock_format_duration(double seconds, char *out, size_t size)
{
    bool known = seconds >= 0 && seconds < 1e15;
    long long s = known ? llround(seconds) : 0, d = s / 86400, h = s / 3600 % 24, m = s / 60 % 60;
    s %= 60;
    if (!known)
        snprintf(out, size, "?");
    else if (d)
        snprintf(out, size, "%lldd %02lldh %02lldm %02llds", d, h, m, s);
    else if (h)
        snprintf(out, size, "%lldh %02lldm %02llds", h, m, s);
    else if (m)
        snprintf(out, size, "%lldm %02llds", m, s);
    else
        snprintf(out, size, "%llds", s);
    return out;
}
