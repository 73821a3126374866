# Every fuzz target as an ordinary test: fuzz_NAME.cpp over corpus/NAME (and the further folders of
# HARMONICS_CORPUS_NAME), with any compiler.
set(HARMONICS_CORPUS_flow ${CMAKE_CURRENT_SOURCE_DIR}/dsl/good ${CMAKE_CURRENT_SOURCE_DIR}/dsl/bad)

include(${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzzed.cmake)
add_library(replay_main OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/replay_main.cpp)
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_*.cpp)
foreach(source IN LISTS fuzz_sources)
  get_filename_component(target ${source} NAME_WE)
  string(REPLACE fuzz_ "" name ${target})
  if(name IN_LIST HARMONICS_FUZZED_LACKING)
    continue()
  endif()
  add_executable(replay_${name} ${source} $<TARGET_OBJECTS:replay_main> ${HARMONICS_FUZZED_${name}})
  target_include_directories(replay_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(replay_${name} PRIVATE $<$<CONFIG:Release>:-O0>)
  target_link_libraries(replay_${name} PRIVATE harmonics_objects harmonics_wire ${HARMONICS_FUZZED_LINKS_${name}})
  add_test(NAME "fuzz: replay ${name}"
           COMMAND replay_${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name} ${HARMONICS_CORPUS_${name}})
  set_tests_properties("fuzz: replay ${name}" PROPERTIES TIMEOUT 300)
endforeach()
