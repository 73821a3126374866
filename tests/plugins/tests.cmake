# Plugins that tests load, most of them faulty, and samples built out of tree against an installed prefix.
hm_tests(plugins plugins PLAIN UNOPTIMISED)
set(fixture_directory ${CMAKE_BINARY_DIR}/test_plugins)

get_property(intree GLOBAL PROPERTY HARMONICS_INTREE_PLUGINS)
if(TARGET test_plugin)
  add_dependencies(test_plugin ${intree})
endif()
add_dependencies(test_plugins harmonics_activations harmonics_losses harmonics_layers)

file(GLOB fixtures CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/fixtures/*.cpp ${CMAKE_CURRENT_LIST_DIR}/fixtures/*.c)
foreach(source IN LISTS fixtures)
  get_filename_component(fixture ${source} NAME_WE)
  # Built without the project's flags, as third-party plugins may be: no version script, default visibility.
  add_library(fixture_${fixture} MODULE ${source})
  target_link_libraries(fixture_${fixture} PRIVATE Harmonics::Plugin)
  target_include_directories(fixture_${fixture} PRIVATE ${PROJECT_SOURCE_DIR})
  set_target_properties(fixture_${fixture} PROPERTIES
                        OUTPUT_NAME ${fixture} LIBRARY_OUTPUT_DIRECTORY ${fixture_directory}
                        CXX_VISIBILITY_PRESET default C_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
  target_compile_options(fixture_${fixture} PRIVATE $<$<CONFIG:Release>:-O0>)
  add_dependencies(test_plugins fixture_${fixture})
endforeach()
add_library(fixture_gone SHARED ${CMAKE_CURRENT_LIST_DIR}/gone/gone.c)
set_target_properties(fixture_gone PROPERTIES OUTPUT_NAME gone
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/gone_when_loaded)
target_link_libraries(fixture_missing_dependency PRIVATE fixture_gone)
set_target_properties(fixture_missing_dependency PROPERTIES SKIP_BUILD_RPATH ON)
add_dependencies(test_journeys fixture_exits fixture_slow_down)
target_compile_definitions(test_plugins PRIVATE HARMONICS_TEST_PLUGINS="${fixture_directory}")

# Out of tree, against an installed prefix, with several compilers and both string ABIs.
set(out_of_tree ${CMAKE_BINARY_DIR}/out_of_tree)
add_test(NAME "plugins: install" COMMAND ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --prefix ${out_of_tree}/prefix)
set_tests_properties("plugins: install" PROPERTIES FIXTURES_SETUP installed_prefix TIMEOUT 120)

add_executable(check_custom_plugin ${CMAKE_CURRENT_LIST_DIR}/check_custom_plugin.cpp)
target_include_directories(check_custom_plugin PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(check_custom_plugin PRIVATE harmonics_objects Catch2::Catch2WithMain)
target_compile_options(check_custom_plugin PRIVATE $<$<CONFIG:Release>:-O1>)

# hm_out_of_tree(name folder compiler flags): built by the test "plugins: build NAME" into ${out_of_tree}/NAME.
function(hm_out_of_tree name folder compiler flags)
  add_test(NAME "plugins: build ${name}"
           COMMAND ${CMAKE_COMMAND} -DSOURCE=${folder} -DBUILD=${out_of_tree}/${name} -DPREFIX=${out_of_tree}/prefix
                   -DGENERATOR=${CMAKE_GENERATOR} -DCOMPILER=${compiler} "-DFLAGS=${flags}"
                   -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/build_out_of_tree.cmake)
  set_tests_properties("plugins: build ${name}" PROPERTIES
                       FIXTURES_REQUIRED installed_prefix FIXTURES_SETUP built_${name} TIMEOUT 300)
endfunction()
function(hm_custom_plugin name compiler flags)
  hm_out_of_tree(${name} ${PROJECT_SOURCE_DIR}/samples/custom_plugin ${compiler}
                 "-Wall -Wextra -Wpedantic -Werror ${flags}")
  add_test(NAME "plugins: load ${name}" COMMAND check_custom_plugin)
  set_tests_properties("plugins: load ${name}" PROPERTIES FIXTURES_REQUIRED built_${name} TIMEOUT 60
                       ENVIRONMENT HARMONICS_CUSTOM_PLUGIN=${out_of_tree}/${name}/libmy_plugin.so)
endfunction()

hm_custom_plugin(same_compiler ${CMAKE_CXX_COMPILER} "")
hm_custom_plugin(old_strings ${CMAKE_CXX_COMPILER} "-D_GLIBCXX_USE_CXX11_ABI=0")
hm_custom_plugin(later_standard ${CMAKE_CXX_COMPILER} "-std=c++20 -O0")
find_program(GNU_COMPILER g++)
find_program(CLANG_COMPILER NAMES clang++ clang++-14)
if(GNU_COMPILER)
  hm_custom_plugin(gnu ${GNU_COMPILER} "-static-libstdc++")
endif()
if(CLANG_COMPILER)
  hm_custom_plugin(clang ${CLANG_COMPILER} "")
endif()

# The plugin of every kind and the sample's plugin, with every compiler, C++17 and C++20, both string ABIs.
set(matrix_compilers)
foreach(compiler IN ITEMS ${GNU_COMPILER} ${CLANG_COMPILER})
  list(APPEND matrix_compilers ${compiler})
endforeach()
list(LENGTH matrix_compilers matrix_size)
if(matrix_size LESS 2)
  message(WARNING "g++ or clang++ not found: the plugin matrix is tested with '${matrix_compilers}' only")
endif()
if(matrix_compilers)
  add_test(NAME "plugins: build matrix"
           COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/build_matrix.sh ${out_of_tree}/prefix ${CMAKE_CURRENT_LIST_DIR}
                   ${PROJECT_SOURCE_DIR}/samples ${out_of_tree}/matrix "${CMAKE_CXX_COMPILER_LAUNCHER}"
                   ${matrix_compilers})
  set_tests_properties("plugins: build matrix" PROPERTIES
                       FIXTURES_REQUIRED installed_prefix FIXTURES_SETUP matrix TIMEOUT 600)
  add_executable(check_builds ${CMAKE_CURRENT_LIST_DIR}/check_builds.cpp)
  target_include_directories(check_builds PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(check_builds PRIVATE HARMONICS_BINARY_DIR="${CMAKE_BINARY_DIR}"
                             HARMONICS_SOURCE_DIR="${PROJECT_SOURCE_DIR}" HARMONICS_MATRIX_COMPILERS=${matrix_size})
  target_link_libraries(check_builds PRIVATE harmonics_objects Catch2::Catch2WithMain)
  target_compile_options(check_builds PRIVATE $<$<CONFIG:Release>:-O1>)
  add_dependencies(check_builds harmonics_cli ${intree})
  add_test(NAME "plugins: matrix" COMMAND check_builds)
  set_tests_properties("plugins: matrix" PROPERTIES FIXTURES_REQUIRED matrix TIMEOUT ${test_timeout})
endif()

# A program that links a sanitized library must itself be sanitized.
set(as_the_library "-Wall -Wextra -Wpedantic -Werror")
foreach(sanitizer IN LISTS HARMONICS_SANITIZE)
  string(APPEND as_the_library " -fsanitize=${sanitizer}")
endforeach()
hm_out_of_tree(embedder ${CMAKE_CURRENT_LIST_DIR}/out_of_tree ${CMAKE_CXX_COMPILER} "${as_the_library}")
add_test(NAME "plugins: embedder" COMMAND ${out_of_tree}/embedder/embedder)
add_test(NAME "plugins: design listing" WORKING_DIRECTORY ${out_of_tree}/embedder
         COMMAND ${out_of_tree}/embedder/design_listing ${PROJECT_SOURCE_DIR}/samples/mnist.hmx)
set_tests_properties("plugins: embedder" "plugins: design listing" PROPERTIES
                     FIXTURES_REQUIRED built_embedder TIMEOUT 60)
if(CLANG_COMPILER)
  hm_out_of_tree(embedder_clang ${CMAKE_CURRENT_LIST_DIR}/out_of_tree ${CLANG_COMPILER}
                 "-Wall -Wextra -Wpedantic -Werror -std=c++20")
endif()

# hm_design_plugin(name compiler flags): built against the single header, and checked.
function(hm_design_plugin name compiler flags)
  hm_out_of_tree(${name} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/design_plugin ${compiler}
                 "-Wall -Wextra -Wpedantic -Werror ${flags}")
  add_test(NAME "plugins: check ${name}"
           COMMAND harmonics_cli plugin check --calls 50000 ${out_of_tree}/${name}/libmy_plugin.so)
  set_tests_properties("plugins: check ${name}" PROPERTIES FIXTURES_REQUIRED built_${name} TIMEOUT 60
                       PASS_REGULAR_EXPRESSION "7 passed, 0 failed")
endfunction()
hm_design_plugin(design_plugin ${CMAKE_CXX_COMPILER} "")
if(CLANG_COMPILER)
  hm_design_plugin(design_plugin_clang ${CLANG_COMPILER} "-std=c++20")
endif()

# The embedding sample, on files that it reads itself and on synthetic digits.
hm_out_of_tree(embed_mnist ${PROJECT_SOURCE_DIR}/samples/embed_mnist ${CMAKE_CXX_COMPILER} "${as_the_library}")
if(CLANG_COMPILER)
  hm_out_of_tree(embed_mnist_clang ${PROJECT_SOURCE_DIR}/samples/embed_mnist ${CLANG_COMPILER}
                 "-Wall -Wextra -Wpedantic -Werror -std=c++20")
endif()
add_test(NAME "plugins: embed_mnist on files" WORKING_DIRECTORY ${out_of_tree}/embed_mnist
         COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/embed_on_files.sh ${out_of_tree}/embed_mnist/embed_mnist
                 ${PROJECT_SOURCE_DIR}/samples/mnist.hmx)
add_test(NAME "plugins: embed_mnist on drawn digits" WORKING_DIRECTORY ${out_of_tree}/embed_mnist
         COMMAND ${out_of_tree}/embed_mnist/embed_mnist ${PROJECT_SOURCE_DIR}/samples/mnist.hmx)
set(embed_mnist_output "layer output \\[10\\].*precision auto: (fp|bf).*a blank page is: [01]\\.[0-9]+")
set_tests_properties("plugins: embed_mnist on files" "plugins: embed_mnist on drawn digits" PROPERTIES
                     FIXTURES_REQUIRED built_embed_mnist TIMEOUT 120 PASS_REGULAR_EXPRESSION "${embed_mnist_output}")

# Projects written by `plugin new` build, pass `plugin check` and run their sample flow, with either compiler.
function(hm_new_plugin kind compiler flags)
  add_test(NAME "plugins: new ${kind}"
           COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:harmonics_cli> -DKIND=${kind}
                   -DBUILD=${out_of_tree}/new_${kind} -DPREFIX=${out_of_tree}/prefix
                   -DGENERATOR=${CMAKE_GENERATOR} -DCOMPILER=${compiler} "-DFLAGS=${flags}"
                   -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/new_plugin.cmake)
  set_tests_properties("plugins: new ${kind}" PROPERTIES FIXTURES_REQUIRED installed_prefix TIMEOUT 300)
endfunction()
set(other_compiler ${CMAKE_CXX_COMPILER})
if(CLANG_COMPILER)
  set(other_compiler ${CLANG_COMPILER})
endif()
hm_new_plugin(activation ${CMAKE_CXX_COMPILER} "")
hm_new_plugin(loss ${other_compiler} "")
hm_new_plugin(layer ${CMAKE_CXX_COMPILER} "-std=c++20")
hm_new_plugin(producer ${other_compiler} "-std=c++20")
hm_new_plugin(consumer ${CMAKE_CXX_COMPILER} "-D_GLIBCXX_USE_CXX11_ABI=0")
hm_new_plugin(metric ${other_compiler} "")
hm_new_plugin(functional ${other_compiler} "-std=c++20")
hm_new_plugin(implementation ${CMAKE_CXX_COMPILER} "-D_GLIBCXX_USE_CXX11_ABI=0")
hm_new_plugin(device ${other_compiler} "-std=c++20 -D_GLIBCXX_USE_CXX11_ABI=0")
hm_new_plugin(optimizer ${other_compiler} "")
hm_new_plugin(schedule ${CMAKE_CXX_COMPILER} "-std=c++20")
hm_new_plugin(predicate ${other_compiler} "-D_GLIBCXX_USE_CXX11_ABI=0")
hm_new_plugin(augmentation ${CMAKE_CXX_COMPILER} "")
hm_new_plugin(importer ${other_compiler} "")
hm_new_plugin(tokenizer ${CMAKE_CXX_COMPILER} "-std=c++20")
hm_new_plugin(exporter ${other_compiler} "-D_GLIBCXX_USE_CXX11_ABI=0")

set(compilers)
foreach(compiler IN ITEMS ${GNU_COMPILER} ${CLANG_COMPILER} ${CMAKE_CXX_COMPILER})
  file(REAL_PATH ${compiler} compiler)
  list(APPEND compilers ${compiler})
endforeach()
list(REMOVE_DUPLICATES compilers)
foreach(compiler IN LISTS compilers)
  get_filename_component(compiler_name ${compiler} NAME)
  add_test(NAME "plugins: headers ${compiler_name}"
           COMMAND ${CMAKE_COMMAND} -DINCLUDE=${PROJECT_SOURCE_DIR}/include -DCOMPILER=${compiler}
                   -P ${CMAKE_CURRENT_LIST_DIR}/check_headers.cmake)
  set_tests_properties("plugins: headers ${compiler_name}" PROPERTIES TIMEOUT 300)
endforeach()

# The sample's flow, trained with the sample's plugin.
add_test(NAME "plugins: train" COMMAND harmonics_cli run ${PROJECT_SOURCE_DIR}/samples/custom_plugin/my_plugin.hmx
         --plugin ${out_of_tree}/same_compiler/libmy_plugin.so --producer images=synth:digits
         --producer labels=synth:digits\#label --steps 60 --json)
set_tests_properties("plugins: train" PROPERTIES FIXTURES_REQUIRED built_same_compiler TIMEOUT 120
                     PASS_REGULAR_EXPRESSION "\"steps\":60,.*\"accuracy\":0\\.[3-9]")

# The sample whose cycle generates text, with its plugin and weights.
hm_out_of_tree(generate ${PROJECT_SOURCE_DIR}/samples/generate ${CMAKE_CXX_COMPILER} "-Wall -Wextra -Wpedantic -Werror")
set(generate ${PROJECT_SOURCE_DIR}/samples/generate)
foreach(threads 1 2)
  set(tapped ${out_of_tree}/generate/activations_${threads}.npy)
  add_test(NAME "plugins: generate on ${threads} threads"
           COMMAND harmonics_cli run ${generate}/generate.hmx --infer --weights ${generate}/rhyme.safetensors
                   --plugin ${out_of_tree}/generate/libletters.so --threads ${threads}
                   --producer "text=letters:rhyme?prompt=the moon&count=90" --consumer written=letters:rhyme
                   --consumer activations=file:${tapped})
  set_tests_properties("plugins: generate on ${threads} threads" PROPERTIES FIXTURES_REQUIRED built_generate
                       FIXTURES_SETUP generated_${threads} TIMEOUT 60
                       PASS_REGULAR_EXPRESSION "the moon is in the mill, the mill is on the hill.\nwe row the boat")
  add_test(NAME "plugins: inspect what ${threads} threads generated"
           COMMAND harmonics_cli inspect file:${tapped})
  set_tests_properties("plugins: inspect what ${threads} threads generated" PROPERTIES TIMEOUT 60
                       FIXTURES_REQUIRED generated_${threads}
                       PASS_REGULAR_EXPRESSION "samples     90\n.*f32\\[24, 32\\]")
endforeach()
