/* A libnvidia-ml.so.1 with a GPU on any bus that the host executor of CUDA kernels reports. Its SM clock is 1000 MHz
   and rises by one at each call; its temperature is not supported; every third time its power is at its cap.
   CAIRN_TEST_NVML_INIT: the result of nvmlInit_v2. The prototypes are those of NVIDIA's NVML API reference. */
#include <stdlib.h>
#include <string.h>

#define BUS "00000000:0" /* and a digit */

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

static int gpu; /* its address is the handle */
static int initialised;
static unsigned sm_asked;

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int error);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory); /* total, free, used */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *errors);

static int wrong(const void *device) { return !initialised || device != &gpu; }

int nvmlInit_v2(void)
{
    const char *error = getenv("CAIRN_TEST_NVML_INIT");
    if (error) return atoi(error);
    initialised++;
    return SUCCESS;
}

int nvmlShutdown(void) { return initialised-- > 0 ? SUCCESS : INVALID; }

const char *nvmlErrorString(int error) { return error == NOT_FOUND ? "Not Found" : "Driver Not Loaded"; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    if (strncmp(bus, BUS, sizeof BUS - 1) != 0) return NOT_FOUND;
    *device = &gpu;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    if (wrong(device) || (which != 1 && which != 2)) return INVALID;
    *mhz = which == 1 ? 1000 + sm_asked++ : 2619;
    return SUCCESS;
}

#ifndef WITHOUT_POWER
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    if (wrong(device)) return INVALID;
    *milliwatts = 650125;
    return SUCCESS;
}
#endif

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    if (wrong(device) || sensor != 0) return INVALID;
    *celsius = 12345; /* meaningless with this error */
    return NOT_SUPPORTED;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    if (wrong(device)) return INVALID;
    *reasons = sm_asked % 3 == 0 ? 0x4 | 0x20 : 0;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *errors)
{
    if (wrong(device) || counter != 0 || kind < 0 || kind > 1) return INVALID;
    *errors = kind == 0 ? 7 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    if (wrong(device)) return INVALID;
    memory[0] = 150000000000;
    memory[1] = 137654321099;
    memory[2] = 12345678901;
    return SUCCESS;
}
