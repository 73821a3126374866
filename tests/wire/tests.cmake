# The frame and its session, without engine and sockets.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.cpp)
add_executable(test_wire ${sources})
hm_unity(test_wire 8)
target_compile_definitions(test_wire PRIVATE HARMONICS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(test_wire PRIVATE harmonics_plain harmonics_wire fmt::fmt Threads::Threads Catch2::Catch2WithMain
                      Boost::json ZLIB::ZLIB)  # of formats, whose objects may be linked for inline functions alone
target_compile_options(test_wire PRIVATE $<$<CONFIG:Release>:-O1>)
catch_discover_tests(test_wire TEST_PREFIX "wire: " DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT ${test_timeout})
