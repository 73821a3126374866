# Understands the flag of builds with a Vulkan device, which this version does not have.
option(HARMONICS_HAS_VULKAN "understood, without effect: there is no Vulkan device" OFF)
if(HARMONICS_HAS_VULKAN)
  message(STATUS "HARMONICS_HAS_VULKAN has no effect: this version has no Vulkan device; "
                 "use the devices 'opencl' (HARMONICS_OPENCL) and 'cuda' (HARMONICS_CUDA)")
endif()
