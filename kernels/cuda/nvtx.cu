/* Names of instrs for NVIDIA's profilers (Nsight Systems and the like). The toolkit's header does it all: the calls do
   nothing unless such a profiler started the program. */
#include "kernels/cuda/device.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#    include <nvtx3/nvToolsExt.h>

void device_range_begin(Device *, const char *name) { (void)nvtxRangePushA(name); }
void device_range_end(Device *) { (void)nvtxRangePop(); }
#else /* a toolkit without it: no names */
void device_range_begin(Device *, const char *) {}
void device_range_end(Device *) {}
#endif
