# The device is loaded at run time: this is the only build dependency on it.
add_dependencies(test_parity harmonics_cpu)
