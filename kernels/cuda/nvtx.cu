/* Names of instrs for NVIDIA's profilers (Nsight Systems and the like). The toolkit's header does it all: the calls do
   nothing unless such a profiler started the program. */
#include "kernels/cuda/device.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#    include <nvtx3/nvToolsExt.h>

void cuda_range_begin(const char *name) { (void)nvtxRangePushA(name); }
void cuda_range_end(void) { (void)nvtxRangePop(); }
#else /* a toolkit without it: no names */
void cuda_range_begin(const char *) {}
void cuda_range_end(void) {}
#endif
