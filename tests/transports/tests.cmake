# One suite for all transports, on loopback, and tests of each transport.
add_library(transport_ends STATIC ${CMAKE_CURRENT_LIST_DIR}/ends.cpp)
target_include_directories(transport_ends PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(transport_ends PUBLIC harmonics_sockets_ends fmt::fmt Threads::Threads)
# libzmq is not instrumented: the thread sanitizer cannot see its synchronisation.
if(TARGET harmonics_zmq_ends AND NOT HARMONICS_SANITIZE MATCHES "thread")
  target_link_libraries(transport_ends PUBLIC harmonics_zmq_ends ${ZMQ_LIBRARY})
  target_compile_definitions(transport_ends PUBLIC HARMONICS_WITH_ZMQ)
endif()
target_compile_options(transport_ends PUBLIC $<$<CONFIG:Release>:-O1>)

add_library(transport_chaos_ends STATIC ${CMAKE_CURRENT_LIST_DIR}/chaos_proxy.cpp
                                        ${CMAKE_CURRENT_LIST_DIR}/chaos_world.cpp)
target_link_libraries(transport_chaos_ends PUBLIC transport_ends PRIVATE Boost::headers)
add_executable(transport_chaos ${CMAKE_CURRENT_LIST_DIR}/chaos.cpp)
target_link_libraries(transport_chaos PRIVATE transport_chaos_ends)

add_executable(transport_peer ${CMAKE_CURRENT_LIST_DIR}/peer.cpp)
target_link_libraries(transport_peer PRIVATE transport_ends)

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.cpp)
add_executable(test_transports ${sources})
hm_unity(test_transports 8)
target_link_libraries(test_transports PRIVATE transport_chaos_ends Catch2::Catch2WithMain)
target_compile_definitions(test_transports PRIVATE HARMONICS_PEER="$<TARGET_FILE:transport_peer>")
add_dependencies(test_transports transport_peer)
if(TARGET fault_layer)  # peers are also killed at system calls, not only between samples
  add_dependencies(test_transports fault_layer)
  target_compile_definitions(test_transports PRIVATE HARMONICS_FAULT_LAYER="$<TARGET_FILE:fault_layer>")
endif()
catch_discover_tests(test_transports TEST_PREFIX "transports: " DISCOVERY_MODE PRE_TEST
                     PROPERTIES TIMEOUT ${test_timeout} LABELS threads FAIL_REGULAR_EXPRESSION "No.test.cases.matched")
add_dependencies(thread_tests test_transports)
if(TARGET test_journeys)
  add_dependencies(test_journeys transport_chaos)
endif()
# Sleeps for a minute; started first (COST), it does not lengthen the suite.
if(NOT HARMONICS_SANITIZE)
  add_test(NAME "journeys: a learner that is too slow holds its sender back, in memory that does not grow"
           COMMAND ${PROJECT_SOURCE_DIR}/scripts/campaign.sh --slow --minutes 1 --program $<TARGET_FILE:harmonics_cli>)
  set_tests_properties("journeys: a learner that is too slow holds its sender back, in memory that does not grow"
                       PROPERTIES LABELS slow COST 1000 TIMEOUT 240 FAIL_REGULAR_EXPRESSION "not what was promised")
endif()
