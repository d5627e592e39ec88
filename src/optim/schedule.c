/* Learning rates. The continuous form decays from the end of warmup; NVIDIA's decays from step 0 and so jumps there. */

#include "optim/optim.h"

Status rate_schedule_parse(const char *text, RateSchedule *s)
{
    static const char suffix[] = "-nvidia";
    s->nvidia = str_ends_with(text, suffix);
    char *name = mem_strndup(text, strlen(text) - (s->nvidia ? strlen(suffix) : 0));
    Status status = OK;
    s->power = 1;
    if (strcmp(name, "linear") == 0) {
        s->kind = SCHEDULE_LINEAR;
    } else if (strcmp(name, "constant") == 0) {
        s->kind = SCHEDULE_CONSTANT;
    } else if (strcmp(name, "cosine") == 0) {
        s->kind = SCHEDULE_COSINE;
    } else if (strncmp(name, "poly:", 5) == 0) {
        char *end;
        s->kind = SCHEDULE_POLY;
        s->power = strtod(name + 5, &end);
        if (name[5] == '\0' || *end != '\0' || !(s->power > 0 && s->power <= 10))
            status = fail(E_USAGE, "--schedule poly:P takes a power above 0 and up to 10, found '%s'", name + 5);
    } else {
        status =
            fail(E_USAGE,
                 "--schedule '%s' is unknown; expected linear, poly:P, cosine or constant, each with -nvidia for the "
                 "discontinuous warmup",
                 text);
    }
    free(name);
    return status;
}

Status warmup_parse(const char *text, int64_t total_steps, bool cut, int64_t *warmup_steps)
{
    char *end;
    double x = strtod(text, &end);
    bool percent = *end == '%' && end[1] == '\0';
    if (end == text || (*end != '\0' && !percent) || !(x >= 0) || (percent && x > 100))
        return fail(E_USAGE,
                    "--warmup '%s': expected a fraction below 1 (0.1), a percentage (10%%, 100%%) or a count of steps "
                    "(1000)",
                    text);
    if (percent) { /* the double of 0.07, not of 7 divided by 100 */
        char *share = mem_printf("%.*se-2", (int)(end - text), text), *rest;
        double exact = strtod(share, &rest);
        x = *rest ? x / 100 : exact;
        free(share);
    }
    if (percent || x < 1) {
        double steps = x * (double)total_steps;
        *warmup_steps = (int64_t)(percent ? ceil(steps) : floor(steps));
        return OK;
    }
    if (x == 1 && strchr(text, '.'))
        return fail(E_USAGE, "--warmup '%s': 1 is one step, 100%% all steps; write one of the two", text);
    if (x != floor(x)) return fail(E_USAGE, "--warmup '%s': a count of steps must be whole", text);
    if (x > (double)total_steps && cut) x = (double)total_steps;
    if (x > (double)total_steps)
        return fail(E_USAGE,
                    "--warmup '%s' is more than the %lld steps of this run: the learning rate would never be reached",
                    text, (long long)total_steps);
    *warmup_steps = (int64_t)x;
    return OK;
}

double rate_schedule_at(const RateSchedule *s, int64_t step)
{
    int64_t warm = step - s->warmup_start;
    if (warm <= 0) return 0;
    if (warm <= s->warmup_steps) return s->learning_rate * (double)warm / (double)s->warmup_steps;
    if (s->kind == SCHEDULE_CONSTANT) return s->learning_rate;
    double left;
    if (s->nvidia) { /* progress counts from the start of training, and step + 1 as theirs does */
        left = 1 - (double)step / (double)s->total_steps;
    } else {
        left = (double)(s->total_steps - step + 1) / (double)(s->total_steps - s->warmup_steps - s->warmup_start);
        if (left > 1) left = 1;
    }
    if (left < 0) left = 0;
    if (s->kind == SCHEDULE_COSINE) return s->learning_rate * 0.5 * (1 - cos(left * acos(-1.0))); /* half a period */
    return s->learning_rate * (s->kind == SCHEDULE_LINEAR ? left : pow(left, s->power));
}
