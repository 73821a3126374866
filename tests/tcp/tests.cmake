# Two processes on loopback, and a network between them that cuts.
add_executable(test_tcp ${CMAKE_CURRENT_LIST_DIR}/test_tcp.cpp)
target_link_libraries(test_tcp PRIVATE harmonics_tcp_ends Threads::Threads Catch2::Catch2WithMain)
target_compile_options(test_tcp PRIVATE $<$<CONFIG:Release>:-O1>)
catch_discover_tests(test_tcp TEST_PREFIX "tcp: " DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT ${test_timeout} LABELS threads)
add_dependencies(thread_tests test_tcp)
