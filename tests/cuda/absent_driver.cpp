// A stub of the driver library for machines without one: functions that cuDNN looks up report no device and loaded
// modules. With it, cuDNN plans for absent devices (test_cudnn.cpp) but cannot run.
namespace {
constexpr int kNoDevice = 100;
int something;
}  // namespace

#define HM_ABSENT(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return kNoDevice; }
#define HM_NOTHING_TO_DO(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return 0; }
#define HM_SOMETHING(name)                                                 \
  extern "C" __attribute__((visibility("default"))) int name(void** out) { \
    *out = &something;                                                     \
    return 0;                                                              \
  }
HM_ABSENT(cuCtxGetCurrent)
HM_ABSENT(cuCtxGetLimit)
HM_ABSENT(cuCtxPopCurrent)
HM_ABSENT(cuCtxPushCurrent)
HM_ABSENT(cuDeviceGet)
HM_ABSENT(cuDeviceGetCount)
HM_ABSENT(cuGetErrorName)
HM_ABSENT(cuGetErrorString)
HM_NOTHING_TO_DO(cuKernelGetAttribute)
HM_SOMETHING(cuKernelGetFunction)
HM_NOTHING_TO_DO(cuKernelSetAttribute)
HM_ABSENT(cuLaunchCooperativeKernel)
HM_ABSENT(cuLaunchKernel)
HM_ABSENT(cuLaunchKernelEx)
HM_SOMETHING(cuLibraryGetKernel)
HM_SOMETHING(cuLibraryLoadData)
HM_SOMETHING(cuLibraryLoadFromFile)
HM_NOTHING_TO_DO(cuLibraryUnload)
HM_ABSENT(cuLinkAddData)
HM_ABSENT(cuLinkComplete)
HM_ABSENT(cuLinkCreate)
HM_ABSENT(cuLinkDestroy)
HM_ABSENT(cuModuleGetFunction)
HM_ABSENT(cuModuleLoadData)
HM_ABSENT(cuModuleUnload)
HM_ABSENT(cuOccupancyMaxPotentialClusterSize)
HM_ABSENT(cuStreamGetCtx)
HM_ABSENT(cuTensorMapEncodeIm2col)
HM_ABSENT(cuTensorMapEncodeTiled)
extern "C" __attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
