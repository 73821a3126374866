# The OpenCL device, where it is built. Without a driver (pocl-opencl-icd is one for any processor) its tests say so and end.
if(TARGET harmonics_opencl)
  hm_tests(opencl opencl LABELS slow)
  target_sources(test_opencl PRIVATE ${PROJECT_SOURCE_DIR}/kernels/shared/program_files.cpp)
  target_compile_definitions(test_opencl PRIVATE HARMONICS_OPENCL_PLUGIN="$<TARGET_FILE:harmonics_opencl>")
  add_dependencies(test_opencl harmonics_opencl)
endif()
