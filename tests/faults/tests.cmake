# Fault injection below the whole program, by a preloaded library. Sanitizers also preload their runtime, so their
# builds rely on the in-memory files of the engine's tests (files_in_memory.hpp).
if(NOT HARMONICS_SANITIZE)
  add_library(fault_layer MODULE ${CMAKE_CURRENT_LIST_DIR}/layer/injection.cpp
                                 ${CMAKE_CURRENT_LIST_DIR}/layer/calls.cpp)
  target_include_directories(fault_layer PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(fault_layer PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(fault_layer PROPERTIES CXX_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  hm_tests(faults faults PLAIN UNOPTIMISED TIMEOUT 900 LABELS slow)
  target_sources(test_faults PRIVATE ${CMAKE_CURRENT_LIST_DIR}/power_cut.cpp)
  add_dependencies(test_faults fault_layer)
  target_compile_definitions(test_faults PRIVATE HARMONICS_FAULT_LAYER="$<TARGET_FILE:fault_layer>")
endif()
