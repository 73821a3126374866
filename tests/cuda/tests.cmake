# The CUDA device without an accelerator: its own sources and kernels over an emulated runtime. Needs no toolkit.
file(GLOB cuda_code CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/code/*.cu)
file(GLOB cuda_host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cpp)
list(REMOVE_ITEM cuda_host ${PROJECT_SOURCE_DIR}/kernels/cuda/runtime_driver.cpp)
file(GLOB cuda_emulation CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/emulated_*.cpp
     ${CMAKE_CURRENT_LIST_DIR}/fibers.cpp)
set_source_files_properties(${cuda_code} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++;-Wno-unknown-pragmas")

add_library(cuda_emulated OBJECT ${cuda_code} ${cuda_host} ${cuda_emulation}
                                 ${PROJECT_SOURCE_DIR}/kernels/shared/program_files.cpp
                                 ${PROJECT_SOURCE_DIR}/kernels/shared/scalar_texts.cpp)
target_include_directories(cuda_emulated PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(cuda_emulated PRIVATE Harmonics::Plugin)
target_compile_definitions(cuda_emulated PRIVATE HM_EMULATED="tests/cuda/emulated_language.hpp"
                           HM_CUDA_NAME="cuda_emulated" HARMONICS_HOST_COMPILER="${CMAKE_CXX_COMPILER}")

harmonics_add_plugin(harmonics_cuda_emulated SOURCES $<TARGET_OBJECTS:cuda_emulated> LINKS ${CMAKE_DL_LIBS}
                     OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
set_target_properties(harmonics_cuda_emulated PROPERTIES LINKER_LANGUAGE CXX)
add_test(NAME "cuda emulated: plugin check"
         COMMAND harmonics_cli plugin check --calls 50000 $<TARGET_FILE:harmonics_cuda_emulated>)
set_tests_properties("cuda emulated: plugin check" PROPERTIES TIMEOUT 900 LABELS slow
                     ENVIRONMENT XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/tests/cache)

# A fake driver library that reports no driver to cuDNN, for test_cudnn.cpp.
add_library(absent_driver SHARED ${CMAKE_CURRENT_LIST_DIR}/absent_driver.cpp)
set_target_properties(absent_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/absent_driver)

# A driver library for the sample of a custom shader, which emulates that shader on the CPU.
add_library(played_cuda SHARED ${CMAKE_CURRENT_LIST_DIR}/played_cuda.cpp)
set_target_properties(played_cuda PROPERTIES OUTPUT_NAME cuda SOVERSION 1
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/played_cuda)
harmonics_add_plugin(fused_relu_cuda SOURCES ${PROJECT_SOURCE_DIR}/samples/fused_relu_shader/fused_relu_cuda.cpp
                     LINKS ${CMAKE_DL_LIBS} OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/samples)

hm_tests(cuda cuda PLAIN LABELS slow)
if(TARGET test_cuda)
  target_compile_definitions(test_cuda PRIVATE HARMONICS_FUSED_RELU="$<TARGET_FILE:fused_relu_cuda>"
                             HARMONICS_PLAYED_CUDA="${CMAKE_BINARY_DIR}/tests/played_cuda")
  add_dependencies(test_cuda played_cuda fused_relu_cuda)
  target_sources(test_cuda PRIVATE $<TARGET_OBJECTS:cuda_emulated>)
  target_link_libraries(test_cuda PRIVATE ${CMAKE_DL_LIBS})
  target_compile_definitions(test_cuda PRIVATE HARMONICS_CUDA_EMULATED="$<TARGET_FILE:harmonics_cuda_emulated>"
                             $<$<TARGET_EXISTS:harmonics_cuda>:HARMONICS_CUDA_PLUGIN="$<TARGET_FILE:harmonics_cuda>">
                             $<$<TARGET_EXISTS:harmonics_cuda>:HARMONICS_NVCC="${CMAKE_CUDA_COMPILER}">)
  add_dependencies(test_cuda harmonics_cuda_emulated)
  if(TARGET harmonics_cuda)
    add_dependencies(test_cuda harmonics_cuda)
    # With the toolkit's headers, the tests compare our constants with theirs.
    target_include_directories(test_cuda SYSTEM PRIVATE $<TARGET_PROPERTY:harmonics_cuda,TOOLKIT_HEADERS>)
  endif()
endif()
