// A CUDA driver that takes every kernel for loaded and knows nothing else, so that cuDNN can be
// asked for plans where there is no GPU: it makes the kernels of a plan and hands them to the
// driver. What it looks up here is that of cuDNN 9.19 and NVRTC 13.0.

namespace {

constexpr int kSuccess = 0;
constexpr int kStubLibrary = 34;  // as the driver that comes with the toolkit says

}  // namespace

#define LOADS_KERNELS(name)         \
  extern "C" int name(void** made); \
  int name(void** made) {           \
    static int something = 0;       \
    *made = &something;             \
    return kSuccess;                \
  }
#define DOES_NOTHING(name) \
  extern "C" int name();   \
  int name() {             \
    return kSuccess;       \
  }
#define KNOWS_NOTHING(name) \
  extern "C" int name();    \
  int name() {              \
    return kStubLibrary;    \
  }

LOADS_KERNELS(cuLibraryLoadData)
LOADS_KERNELS(cuLibraryGetKernel)
LOADS_KERNELS(cuModuleLoadData)
LOADS_KERNELS(cuModuleGetFunction)
DOES_NOTHING(cuLibraryUnload)
DOES_NOTHING(cuModuleUnload)
DOES_NOTHING(cuKernelSetAttribute)
DOES_NOTHING(cuFuncSetAttribute)
KNOWS_NOTHING(cuInit)
KNOWS_NOTHING(cuDeviceGet)
KNOWS_NOTHING(cuDeviceGetCount)
KNOWS_NOTHING(cuDriverGetVersion)
KNOWS_NOTHING(cuGetErrorName)
KNOWS_NOTHING(cuGetErrorString)
KNOWS_NOTHING(cuCtxGetCurrent)
KNOWS_NOTHING(cuCtxGetLimit)
KNOWS_NOTHING(cuCtxPushCurrent)
KNOWS_NOTHING(cuCtxPopCurrent)
KNOWS_NOTHING(cuStreamGetCtx)
KNOWS_NOTHING(cuStreamSynchronize)
KNOWS_NOTHING(cuLinkCreate)
KNOWS_NOTHING(cuLinkCreate_v2)
KNOWS_NOTHING(cuLinkAddData)
KNOWS_NOTHING(cuLinkAddData_v2)
KNOWS_NOTHING(cuLinkAddFile_v2)
KNOWS_NOTHING(cuLinkComplete)
KNOWS_NOTHING(cuLinkDestroy)
KNOWS_NOTHING(cuLibraryLoadFromFile)
KNOWS_NOTHING(cuKernelGetAttribute)
KNOWS_NOTHING(cuFuncGetAttribute)
KNOWS_NOTHING(cuModuleLoadDataEx)
KNOWS_NOTHING(cuModuleLoadFatBinary)
KNOWS_NOTHING(cuModuleGetGlobal_v2)
KNOWS_NOTHING(cuMemcpyDtoH_v2)
KNOWS_NOTHING(cuTensorMapEncodeTiled)
KNOWS_NOTHING(cuOccupancyMaxActiveBlocksPerMultiprocessor)
KNOWS_NOTHING(cuOccupancyMaxPotentialClusterSize)
KNOWS_NOTHING(cuLaunchKernel)
KNOWS_NOTHING(cuLaunchKernelEx)
KNOWS_NOTHING(cuLaunchCooperativeKernel)
