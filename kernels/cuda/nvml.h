/* State of the GPU (clocks, power, temperature, memory, errors) from NVML, the driver's management library, which is
   loaded at run time (libnvidia-ml.so.1). nvml.cu declares the few functions and constants it needs, from NVIDIA's NVML
   API reference. One GPU per process. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/device.h"

/* The GPU on this PCI bus ("00000000:0A:00.0"). E_FAIL names the missing library, function or GPU. Does
   nothing where it is open. */
Status nvml_open(const char *bus);
/* NaN for a value that the GPU does not support. E_FAIL where the GPU is lost. */
Status nvml_sample(DeviceSample *s);
void nvml_close(void); /* does nothing where it is not open */
#ifdef __cplusplus
}
#endif
