/* How the GPU is doing: clocks, power, temperature, memory, from NVML, the driver's management library. It is looked
   for at run time (libnvidia-ml.so.1): nothing of it is linked, and its few prototypes and constants stand in nvml.cu,
   as NVIDIA's NVML API reference gives them. One GPU per process. */
#ifndef CAIRN_KERNELS_CUDA_NVML_H
#define CAIRN_KERNELS_CUDA_NVML_H

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/device.h"

/* The GPU on this PCI bus ("00000000:0A:00.0"). E_FAIL says what is missing: the library, a function, the GPU. Fine
   where it is open. */
Status nvml_open(const char *bus);
/* What is not supported by the GPU is NaN. E_FAIL where the GPU is lost. */
Status nvml_sample(DeviceSample *s);
void nvml_close(void); /* fine where it is not open */
#ifdef __cplusplus
}
#endif

#endif
