/* Names of instrs for NVIDIA's profilers (Nsight Systems and others). The header alone is enough: its calls do nothing
   unless such a profiler started the program. */
#include "kernels/cuda/device.h"

#include <nvtx3/nvToolsExt.h>

void device_range_begin(Device *, const char *name) { (void)nvtxRangePushA(name); }
void device_range_end(Device *) { (void)nvtxRangePop(); }
