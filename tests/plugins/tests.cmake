# Plugins that tests load, most of them misbehaving, and the sample that is built out of tree from an installed prefix.
hm_tests(plugins plugins)
set(fixture_directory ${CMAKE_BINARY_DIR}/test_plugins)

get_property(intree GLOBAL PROPERTY HARMONICS_INTREE_PLUGINS)
foreach(test IN ITEMS test_plugin test_plugins)
  if(TARGET ${test})
    add_dependencies(${test} ${intree})
  endif()
endforeach()

file(GLOB fixtures CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/fixtures/*.cpp ${CMAKE_CURRENT_LIST_DIR}/fixtures/*.c)
foreach(source IN LISTS fixtures)
  get_filename_component(fixture ${source} NAME_WE)
  # As plainly as an outsider may build: no version script, everything visible.
  add_library(fixture_${fixture} MODULE ${source})
  target_link_libraries(fixture_${fixture} PRIVATE Harmonics::Plugin)
  set_target_properties(fixture_${fixture} PROPERTIES OUTPUT_NAME ${fixture} LIBRARY_OUTPUT_DIRECTORY ${fixture_directory}
                        CXX_VISIBILITY_PRESET default C_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
  add_dependencies(test_plugins fixture_${fixture})
endforeach()
target_compile_definitions(test_plugins PRIVATE HARMONICS_TEST_PLUGINS="${fixture_directory}")
