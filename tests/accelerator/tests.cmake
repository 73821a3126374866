# Compares an accelerator, named by HARMONICS_TEST_DEVICE (default: 'opencl'), with the CPU. Passes without its driver.
if(TARGET harmonics_opencl)
  hm_tests(accelerator accelerator PLAIN UNOPTIMISED LABELS slow TIMEOUT 900)  # hundreds of programs may be built
  add_dependencies(test_accelerator harmonics_opencl)
endif()
