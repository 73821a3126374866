# harmonics_add_plugin(name SOURCES file... [PROVIDES kind:name...] [LINKS target...] [OUTPUT_DIRECTORY dir])
#
# Builds a plugin: a module lib<name>.so against Harmonics::Plugin that links no Harmonics library and exports only its
# entry point and descriptor. PROVIDES also writes lib<name>.manifest ("kind name" per line): given a manifest, the host
# loads the library only when one of these names is needed.
include_guard(GLOBAL)

set(HARMONICS_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/plugin.map)

function(harmonics_add_plugin name)
  cmake_parse_arguments(ARG "" "OUTPUT_DIRECTORY" "SOURCES;PROVIDES;LINKS" ${ARGN})
  add_library(${name} MODULE ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE Harmonics::Plugin ${ARG_LINKS})
  target_link_options(${name} PRIVATE -Wl,--version-script=${HARMONICS_PLUGIN_MAP})
  if(NOT CMAKE_CXX_FLAGS MATCHES "fsanitize" AND NOT HARMONICS_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,-z,defs -Wl,-z,now -Wl,-z,relro)
  endif()
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                        POSITION_INDEPENDENT_CODE ON PREFIX lib)
  if(ARG_OUTPUT_DIRECTORY)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${ARG_OUTPUT_DIRECTORY})
  endif()
  if(ARG_PROVIDES)
    set(text "")
    foreach(item IN LISTS ARG_PROVIDES)
      string(REPLACE ":" " " line ${item})
      string(APPEND text "${line}\n")
    endforeach()
    set(directory ${CMAKE_CURRENT_BINARY_DIR})
    if(ARG_OUTPUT_DIRECTORY)
      set(directory ${ARG_OUTPUT_DIRECTORY})
    endif()
    file(MAKE_DIRECTORY ${directory})
    file(GENERATE OUTPUT ${directory}/lib${name}.manifest CONTENT "${text}")
    set_target_properties(${name} PROPERTIES HARMONICS_MANIFEST ${directory}/lib${name}.manifest)
  endif()
endfunction()

# harmonics_add_plugin_test(name [ADDRESS address]): ctest runs `harmonics plugin check` on the plugin, which opens
# producers and consumers at the address.
function(harmonics_add_plugin_test name)
  cmake_parse_arguments(ARG "" "ADDRESS" "" ${ARGN})
  set(address)
  if(ARG_ADDRESS)
    set(address --address ${ARG_ADDRESS})
  endif()
  add_test(NAME "${name} check" COMMAND Harmonics::program plugin check $<TARGET_FILE:${name}> ${address})
  set_tests_properties("${name} check" PROPERTIES TIMEOUT 300)
endfunction()
