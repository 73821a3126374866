# Tests of the OpenCL device, if it is built. They pass without a driver; pocl-opencl-icd is a driver for CPUs.
if(TARGET harmonics_opencl)
  hm_tests(opencl opencl PLAIN UNOPTIMISED LABELS slow TIMEOUT 900)  # with a cold cache, hundreds of programs are built
  find_package(OpenCL REQUIRED)  # for its headers
  add_library(failing_driver SHARED ${CMAKE_CURRENT_LIST_DIR}/failing_driver.cpp)
  target_link_libraries(failing_driver PRIVATE OpenCL::OpenCL ${CMAKE_DL_LIBS})
  target_sources(test_opencl PRIVATE ${PROJECT_SOURCE_DIR}/kernels/shared/program_files.cpp)
  target_compile_definitions(test_opencl PRIVATE HARMONICS_OPENCL_PLUGIN="$<TARGET_FILE:harmonics_opencl>"
                             HARMONICS_FAILING_DRIVER="$<TARGET_FILE:failing_driver>")
  harmonics_add_plugin(fused_relu_opencl SOURCES ${PROJECT_SOURCE_DIR}/samples/fused_relu_shader/fused_relu_opencl.cpp
                       LINKS OpenCL::OpenCL OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/samples)
  target_compile_definitions(test_opencl PRIVATE HARMONICS_FUSED_RELU="$<TARGET_FILE:fused_relu_opencl>")
  add_dependencies(test_opencl harmonics_opencl failing_driver fused_relu_opencl)
endif()
