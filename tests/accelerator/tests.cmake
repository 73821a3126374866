# Any accelerator against the CPU: HARMONICS_TEST_DEVICE names it, by default 'opencl'. They pass without its driver.
if(TARGET harmonics_opencl)
  hm_tests(accelerator accelerator PLAIN UNOPTIMISED LABELS slow TIMEOUT 900)  # hundreds of programs may be built
  add_dependencies(test_accelerator harmonics_opencl)
endif()
