# Compiler flags, an output tree laid out like the installed one, and one object library per folder.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")  # kernels set -O3 themselves
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                    -fno-math-errno -fno-trapping-math -ffp-contract=off)
if(HARMONICS_WERROR)
  add_compile_options(-Werror)
endif()
foreach(sanitizer IN LISTS HARMONICS_SANITIZE)
  add_compile_options(-fsanitize=${sanitizer} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitizer})
endforeach()

# Warnings for all targets but tests and kernels. clang's -Wconversion also warns about signs.
set(HARMONICS_WARNINGS $<$<CXX_COMPILER_ID:GNU>:-Wconversion>)

# hm_objects(name folder [ALONE] [LINKS targets...]): every .cpp below the folder; ALONE disables grouping.
function(hm_objects name folder)
  cmake_parse_arguments(ARG "ALONE" "" "LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  if(NOT sources)
    set(sources ${CMAKE_CURRENT_SOURCE_DIR}/cmake/empty.cpp)
  endif()
  add_library(${name} OBJECT ${sources})
  if(NOT ARG_ALONE)
    hm_unity(${name} 12)
  endif()
  target_compile_options(${name} PRIVATE ${HARMONICS_WARNINGS})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC harmonics_headers PRIVATE fmt::fmt Threads::Threads ${ARG_LINKS})
  set_property(GLOBAL APPEND PROPERTY HARMONICS_LINKS ${ARG_LINKS})
endfunction()

# hm_archive(name object_library...): one static archive, with their link dependencies.
function(hm_archive name)
  set(objects)
  foreach(library IN LISTS ARGN)
    list(APPEND objects $<TARGET_OBJECTS:${library}>)
  endforeach()
  add_library(${name} STATIC ${objects})
  get_property(links GLOBAL PROPERTY HARMONICS_LINKS)
  list(REMOVE_DUPLICATES links)
  target_include_directories(${name} INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC harmonics_headers fmt::fmt Threads::Threads ${links})
  # The embedding headers refer to harmonics_api weakly, and a weak reference does not extract an archive member;
  # nothing refers to engine/library.
  target_link_options(${name} INTERFACE -Wl,-u,harmonics_api -Wl,-u,harmonics_library)
endfunction()

# hm_plugin(name ...): an in-tree plugin, built like any other into the folder that the built program searches.
function(hm_plugin name)
  harmonics_add_plugin(${name} ${ARGN} OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/harmonics/plugins)
  set_property(GLOBAL APPEND PROPERTY HARMONICS_INTREE_PLUGINS ${name})
endfunction()
