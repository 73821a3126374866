# The kernel tests load the built device. They also run for every lower instruction set.
if(TARGET test_kernels)
  target_sources(test_kernels PRIVATE ${CMAKE_CURRENT_LIST_DIR}/kernel_call.cpp
                                      ${CMAKE_CURRENT_LIST_DIR}/exact_product.cpp)
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/exact_product.cpp
                              PROPERTIES COMPILE_OPTIONS -O3 SKIP_PRECOMPILE_HEADERS ON)
  add_dependencies(test_kernels harmonics_cpu)
  target_compile_definitions(test_kernels PRIVATE HARMONICS_CPU_PLUGIN="$<TARGET_FILE:harmonics_cpu>")
  target_link_libraries(test_kernels PRIVATE ${CMAKE_DL_LIBS})
  set(flags "")
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
  endif()
  foreach(isa baseline avx2)
    if(isa STREQUAL "avx2" AND NOT flags MATCHES " avx2( |$)")
      continue()
    endif()
    add_test(NAME "kernels: all on ${isa}" COMMAND test_kernels)
    set_tests_properties("kernels: all on ${isa}" PROPERTIES ENVIRONMENT HARMONICS_ISA=${isa} TIMEOUT 300)
  endforeach()
  # products of bytes without the instructions for them
  foreach(isa avx2 avx512)
    if((isa STREQUAL "avx2" AND NOT flags MATCHES " avx2( |$)") OR
       (isa STREQUAL "avx512" AND NOT flags MATCHES " avx512_vnni( |$)"))
      continue()
    endif()
    add_test(NAME "kernels: integer products on ${isa} without VNNI" COMMAND test_kernels "integer products*")
    set_tests_properties("kernels: integer products on ${isa} without VNNI"
                         PROPERTIES ENVIRONMENT "HARMONICS_ISA=${isa};HARMONICS_VNNI=off" TIMEOUT 300)
  endforeach()
endif()
