# Every transport by the same tests, on loopback; and what is a transport's own.
add_library(transport_ends STATIC ${CMAKE_CURRENT_LIST_DIR}/ends.cpp)
target_include_directories(transport_ends PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(transport_ends PUBLIC harmonics_sockets_ends fmt::fmt Threads::Threads)
if(TARGET harmonics_zmq_ends AND NOT HARMONICS_SANITIZE MATCHES "thread")  # libzmq is not instrumented: what it synchronises cannot be seen
  target_link_libraries(transport_ends PUBLIC harmonics_zmq_ends ${ZMQ_LIBRARY})
  target_compile_definitions(transport_ends PUBLIC HARMONICS_WITH_ZMQ)
endif()
target_compile_options(transport_ends PUBLIC $<$<CONFIG:Release>:-O1>)

add_executable(transport_peer ${CMAKE_CURRENT_LIST_DIR}/peer.cpp)
target_link_libraries(transport_peer PRIVATE transport_ends)

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.cpp)
add_executable(test_transports ${sources})
target_link_libraries(test_transports PRIVATE transport_ends Catch2::Catch2WithMain)
target_compile_definitions(test_transports PRIVATE HARMONICS_PEER="$<TARGET_FILE:transport_peer>")
add_dependencies(test_transports transport_peer)
catch_discover_tests(test_transports TEST_PREFIX "transports: " DISCOVERY_MODE PRE_TEST
                     PROPERTIES TIMEOUT ${test_timeout} LABELS threads FAIL_REGULAR_EXPRESSION "No.test.cases.matched")
add_dependencies(thread_tests test_transports)
