# A sending program, built out of tree against the installed prefix.
hm_out_of_tree(sender ${CMAKE_CURRENT_LIST_DIR}/out_of_tree ${CMAKE_CXX_COMPILER} "-Wall -Wextra -Wpedantic -Werror")
if(CLANG_COMPILER)
  hm_out_of_tree(sender_clang ${CMAKE_CURRENT_LIST_DIR}/out_of_tree ${CLANG_COMPILER}
                 "-Wall -Wextra -Wpedantic -Werror")
endif()
if(NOT HARMONICS_SANITIZE)  # a program without sanitizer cannot load a sanitized library
  add_test(NAME "sender: out of tree"
           COMMAND ${CMAKE_CURRENT_LIST_DIR}/send_and_receive.sh $<TARGET_FILE:harmonics_cli>
                   ${out_of_tree}/sender/numbers_sender ${CMAKE_BINARY_DIR}/sender_test 45417)
  set_tests_properties("sender: out of tree" PROPERTIES FIXTURES_REQUIRED built_sender TIMEOUT 120)
endif()
add_test(NAME "sender: python"
         COMMAND ${CMAKE_CURRENT_LIST_DIR}/python_snippet.sh $<TARGET_FILE:harmonics_cli> ${PROJECT_SOURCE_DIR}
                 ${CMAKE_BINARY_DIR}/python_test 45418)
set_tests_properties("sender: python" PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 150)
