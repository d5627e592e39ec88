#include "base/test_switch.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

const char *test_switch(const char *name)
{
    char variable[64];
    snprintf(variable, sizeof variable, "CAIRN_TEST_%s", name);
    return getenv(variable);
}

double test_seconds(const char *name, double seconds)
{
    const char *text = test_switch(name);
    double given;
    return text && clock_parse_duration(text, &given) == OK ? given : seconds;
}
