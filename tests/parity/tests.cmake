# The device is loaded at run time, so the build needs an explicit dependency.
add_dependencies(test_parity harmonics_cpu)
