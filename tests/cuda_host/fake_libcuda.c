/* A driver for cuDNN to plan with on a machine without one: it has no device, accepts any compiled kernel, and does
   nothing else. Compiled as libcuda.so.1, for cuda_host/cudnn_library alone. */
#include <cuda.h>
#undef cuLinkCreate
#undef cuLinkAddData
#undef cuLinkAddFile
#undef cuModuleGetGlobal
#undef cuMemcpyDtoH
#undef cuCtxGetDevice
#undef cuStreamGetCtx

#include <dlfcn.h>

#define EXPORT __attribute__((visibility("default")))

/* Functions that cuDNN must find, but does not call, or which may fail. */
#define ABSENT_LIST(X)                                                                                                 \
    X(LaunchKernel)                                                                                                    \
    X(LaunchKernelEx)                                                                                                  \
    X(LaunchCooperativeKernel)                                                                                         \
    X(LinkCreate)                                                                                                      \
    X(LinkCreate_v2)                                                                                                   \
    X(LinkAddData)                                                                                                     \
    X(LinkAddData_v2)                                                                                                  \
    X(LinkAddFile_v2)                                                                                                  \
    X(LinkComplete)                                                                                                    \
    X(LinkDestroy)                                                                                                     \
    X(GetErrorString)                                                                                                  \
    X(GetErrorName)                                                                                                    \
    X(GetExportTable)                                                                                                  \
    X(DeviceGet)                                                                                                       \
    X(DeviceGetAttribute)                                                                                              \
    X(DevicePrimaryCtxRetain)                                                                                          \
    X(DevicePrimaryCtxRelease)                                                                                         \
    X(DevicePrimaryCtxReset)                                                                                           \
    X(CtxPushCurrent)                                                                                                  \
    X(CtxPopCurrent)                                                                                                   \
    X(CtxGetCurrent)                                                                                                   \
    X(CtxGetDevice)                                                                                                    \
    X(CtxGetLimit)                                                                                                     \
    X(StreamGetCtx)                                                                                                    \
    X(StreamSynchronize)                                                                                               \
    X(TensorMapEncodeTiled)                                                                                            \
    X(OccupancyMaxActiveBlocksPerMultiprocessor)                                                                       \
    X(OccupancyMaxPotentialClusterSize)                                                                                \
    X(ModuleUnload)                                                                                                    \
    X(ModuleLoadFatBinary)                                                                                             \
    X(ModuleLoadDataEx)                                                                                                \
    X(ModuleGetGlobal_v2)                                                                                              \
    X(MemcpyDtoH_v2)                                                                                                   \
    X(FuncSetAttribute)                                                                                                \
    X(FuncGetAttribute)                                                                                                \
    X(LibraryUnload)                                                                                                   \
    X(LibraryLoadFromFile)                                                                                             \
    X(KernelSetAttribute)                                                                                              \
    X(KernelGetAttribute)

/* Their parameters are not read. */
#define X(name)                                                                                                        \
    EXPORT CUresult fake_cu##name(void) __asm__("cu" #name);                                                           \
    CUresult fake_cu##name(void) { return CUDA_ERROR_NO_DEVICE; }
ABSENT_LIST(X)
#undef X

static char something;
static CUresult give(void **handle)
{
    *handle = &something;
    return CUDA_SUCCESS;
}

/* Their first parameter is where the handle goes. */
#define X(name)                                                                                                        \
    EXPORT CUresult fake_cu##name(void **handle) __asm__("cu" #name);                                                  \
    CUresult fake_cu##name(void **handle) { return give(handle); }
X(LibraryLoadData)
X(LibraryGetKernel)
X(ModuleLoadData)
X(ModuleGetFunction)
X(KernelGetFunction)
#undef X

EXPORT CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    *count = 0;
    return CUDA_SUCCESS;
}

static CUresult absent(void) { return CUDA_ERROR_NO_DEVICE; }

/* The runtime inside cuDNN finds the other functions by this one. */
EXPORT CUresult fake_find(const char *name, void **function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *result) __asm__("cuGetProcAddress_v2");
CUresult fake_find(const char *name, void **function, int version, cuuint64_t flags,
                   CUdriverProcAddressQueryResult *result)
{
    CUresult (*otherwise)(void) = absent;
    (void)version;
    (void)flags;
    void *self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
    *function = self ? dlsym(self, name) : 0;
    if (!*function) __builtin_memcpy(function, &otherwise, sizeof otherwise);
    if (result) *result = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}
