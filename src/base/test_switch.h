/* Switches that only tests set: variables CAIRN_TEST_<name> of the environment. Product code reads them here alone. */
#pragma once

#include <stdint.h>

const char *test_switch(const char *name); /* its text, or NULL */
/* Its duration, or `seconds`. A path instead of a duration gives the clock to the test: INFINITY until that file
   exists, then the duration in it, 0 where it is empty. */
double test_seconds(const char *name, double seconds);
/* A place in the product where CAIRN_TEST_AT kills, freezes or signals a rank: "plan-0=kill wrote-2=stop step5-1=term".
   Where no ranks are, a part of the work is counted in their place: "part-3=kill". */
void test_at(const char *place, int rank);
void test_at_number(const char *place, int64_t number, int rank); /* "step" and 5: step5 */
