/* Between the files of the harness: harness.c builds and runs cases, harness_check.c compares results. */
#pragma once

#include "ops/harness.h"

Slot *slot_find(const OpCase *c, const char *name);
int64_t slot_count(const OpCase *c, const Slot *s);
size_t slot_row_bytes(const Slot *s);
bool is_float_type(Dtype d);
float slot_element(Dtype dtype, const void *data, int64_t i);
Dtype slot_initial_dtype(const Slot *s); /* a copy's initial values are its F32 weight */
