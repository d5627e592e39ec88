/* nvtx.cu in a build whose toolkit has no nvtx3/: profilers see no names. */
#include "kernels/cuda/device.h"

void device_range_begin(Device *, const char *) {}
void device_range_end(Device *) {}
