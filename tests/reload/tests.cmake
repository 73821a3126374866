# Successive builds of one plugin loaded in one process.
hm_tests(reload reload LABELS threads LINKS harmonics_serving)
add_dependencies(test_reload fixture_build_one fixture_build_two fixture_build_three)
target_compile_definitions(test_reload PRIVATE HARMONICS_TEST_PLUGINS="${CMAKE_BINARY_DIR}/test_plugins")
