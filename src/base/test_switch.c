#include "base/test_switch.h"

#include <signal.h>

#include "base/clock.h"
#include "base/mem.h"

const char *test_switch(const char *name) { return getenv(SHORT_TEXT("CAIRN_TEST_%s", name)); }

static double seconds_in(const char *path)
{
    char text[32] = "";
    double given = INFINITY;
    FILE *file = fopen(path, "re");
    if (!file) return given;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[strcspn(text, "\n")] = '\0';
    return n == 0 ? 0 : clock_parse_duration(text, &given) == OK ? given : INFINITY;
}

double test_seconds(const char *name, double seconds)
{
    const char *text = test_switch(name);
    double given;
    if (text && *text == '/') return seconds_in(text);
    return text && clock_parse_duration(text, &given) == OK ? given : seconds;
}

void test_at(const char *place, int rank)
{
    const char *all = test_switch("AT"), *key = SHORT_TEXT("%s-%d=", place, rank);
    const char *found = all ? strstr(all, key) : NULL;
    if (!found) return;
    found += strlen(key);
    raise(strncmp(found, "kill", 4) == 0 ? SIGKILL : strncmp(found, "term", 4) == 0 ? SIGTERM : SIGSTOP);
}

void test_at_number(const char *place, int64_t number, int rank)
{
    test_at(SHORT_TEXT("%s%lld", place, (long long)number), rank);
}
