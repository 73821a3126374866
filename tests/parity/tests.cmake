# The device is found at run time, so nothing else makes it built before these tests.
add_dependencies(test_parity harmonics_cpu)
