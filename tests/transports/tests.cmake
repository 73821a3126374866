# Every transport by the same tests, on loopback; and what is a transport's own.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.cpp)
add_executable(test_transports ${sources} ${CMAKE_CURRENT_LIST_DIR}/ends.cpp)
target_link_libraries(test_transports PRIVATE harmonics_sockets_ends fmt::fmt Threads::Threads Catch2::Catch2WithMain)
if(TARGET harmonics_zmq_ends)
  target_link_libraries(test_transports PRIVATE harmonics_zmq_ends ${ZMQ_LIBRARY})
  target_compile_definitions(test_transports PRIVATE HARMONICS_WITH_ZMQ)
endif()
target_compile_options(test_transports PRIVATE $<$<CONFIG:Release>:-O1>)
catch_discover_tests(test_transports TEST_PREFIX "transports: " DISCOVERY_MODE PRE_TEST
                     PROPERTIES TIMEOUT ${test_timeout} LABELS threads FAIL_REGULAR_EXPRESSION "No.test.cases.matched")
add_dependencies(thread_tests test_transports)
