#include "kernels/cuda/nvml.h"

#include <dlfcn.h>
#include <math.h>

#define LIBRARY "libnvidia-ml.so.1"

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4 };
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2 };
enum { TEMPERATURE_GPU = 0 };
enum { ECC_CORRECTED = 0, ECC_UNCORRECTED = 1, ECC_SINCE_LOADED = 0 };

typedef void *NvmlDevice;

typedef struct {
    unsigned long long total, free, used; /* bytes */
} DeviceMemory;

/* X(field, name in the library, arguments); each gives an error number. The optional ones may be absent. */
#define FUNCTION_LIST(X)                                                                                               \
    X(init, "nvmlInit_v2", (void))                                                                                     \
    X(shutdown, "nvmlShutdown", (void))                                                                                \
    X(by_bus, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus, NvmlDevice *device))                               \
    X(clock, "nvmlDeviceGetClockInfo", (NvmlDevice device, int which, unsigned *mhz))                                  \
    X(power, "nvmlDeviceGetPowerUsage", (NvmlDevice device, unsigned *milliwatts))                                     \
    X(temperature, "nvmlDeviceGetTemperature", (NvmlDevice device, int sensor, unsigned *celsius))                     \
    X(memory, "nvmlDeviceGetMemoryInfo", (NvmlDevice device, DeviceMemory * memory))
#define OPTIONAL_LIST(X)                                                                                               \
    X(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", (NvmlDevice device, unsigned long long *reasons))         \
    X(ecc, "nvmlDeviceGetTotalEccErrors", (NvmlDevice device, int kind, int counter, unsigned long long *errors))

static struct {
    void *library; /* NULL: not open */
    NvmlDevice device;
    const char *(*error)(int number);
#define X(field, name, arguments) int(*field) arguments;
    FUNCTION_LIST(X)
    OPTIONAL_LIST(X)
#undef X
} nvml;

static const char *error_text(int number)
{
    const char *text = nvml.error ? nvml.error(number) : NULL;
    return text ? text : "unknown error";
}

static Status find_functions(void)
{
    const char *missing = NULL;
#define X(field, name, arguments)                                                                                      \
    *reinterpret_cast<void **>(&nvml.field) = dlsym(nvml.library, name);                                               \
    if (!nvml.field) missing = name;
    FUNCTION_LIST(X)
#undef X
#define X(field, name, arguments) *reinterpret_cast<void **>(&nvml.field) = dlsym(nvml.library, name);
    OPTIONAL_LIST(X)
#undef X
    *reinterpret_cast<void **>(&nvml.error) = dlsym(nvml.library, "nvmlErrorString");
    if (missing) return fail(E_FAIL, "%s has no %s: the driver is too old, or it is another library", LIBRARY, missing);
    return OK;
}

static Status open_library(const char *bus)
{
    TRY(find_functions());
    int error = nvml.init();
    if (error != SUCCESS) return fail(E_FAIL, "%s: nvmlInit_v2: %s (%d)", LIBRARY, error_text(error), error);
    error = nvml.by_bus(bus, &nvml.device);
    if (error == SUCCESS) return OK;
    Status status = fail(E_FAIL, "%s does not know the GPU on bus %s: %s (%d)", LIBRARY, bus, error_text(error), error);
    nvml.shutdown();
    return status;
}

Status nvml_open(const char *bus)
{
    if (nvml.library) return OK;
    nvml.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!nvml.library) return fail(E_FAIL, "the NVIDIA driver's library does not load: %s", dlerror());
    Status status = open_library(bus);
    if (status != OK) {
        dlclose(nvml.library);
        nvml = {};
    }
    return status;
}

void nvml_close(void)
{
    if (!nvml.library) return;
    nvml.shutdown();
    dlclose(nvml.library);
    nvml = {};
}

/* A value that was read, in units of `unit`; NaN where the GPU does not support it or the user lacks the permission. */
template <typename T> static Status store_value(int error, const char *what, const T &value, double unit, double *out)
{
    if (error != SUCCESS && error != NOT_SUPPORTED && error != NO_PERMISSION)
        return fail(E_FAIL, "%s: the GPU's %s: %s (%d)", LIBRARY, what, error_text(error), error);
    *out = error == SUCCESS ? unit * static_cast<double>(value) : static_cast<double>(NAN);
    return OK;
}

/* Errors of the GPU's memory, of one kind. */
static Status store_ecc(NvmlDevice gpu, int kind, double *out)
{
    unsigned long long errors = 0;
    int error = nvml.ecc ? nvml.ecc(gpu, kind, ECC_SINCE_LOADED, &errors) : NOT_SUPPORTED;
    return store_value(error, "ECC errors", errors, 1, out);
}

static Status store_throttle(NvmlDevice gpu, uint64_t *out)
{
    unsigned long long reasons = 0;
    double known = 0;
    int error = nvml.throttle ? nvml.throttle(gpu, &reasons) : NOT_SUPPORTED;
    TRY(store_value(error, "throttle reasons", 1, 1, &known));
    *out = known == 1 ? reasons : THROTTLE_UNKNOWN;
    return OK;
}

Status nvml_sample(DeviceSample *s)
{
    unsigned sm = 0, memory = 0, milliwatts = 0, celsius = 0;
    DeviceMemory bytes = {0, 0, 0};
    NvmlDevice gpu = nvml.device;
    TRY(store_value(nvml.clock(gpu, CLOCK_SM, &sm), "SM clock", sm, 1, &s->sm_mhz));
    TRY(store_value(nvml.clock(gpu, CLOCK_MEMORY, &memory), "memory clock", memory, 1, &s->memory_mhz));
    TRY(store_value(nvml.power(gpu, &milliwatts), "power", milliwatts, 1e-3, &s->watts));
    TRY(store_value(nvml.temperature(gpu, TEMPERATURE_GPU, &celsius), "temperature", celsius, 1, &s->celsius));
    TRY(store_throttle(gpu, &s->throttle));
    TRY(store_ecc(gpu, ECC_CORRECTED, &s->ecc_corrected));
    TRY(store_ecc(gpu, ECC_UNCORRECTED, &s->ecc_uncorrected));
    return store_value(nvml.memory(gpu, &bytes), "memory", bytes.used, 1, &s->memory_bytes);
}
