# The Python module, by unittest. The test is skipped, with the reason, without the module or NumPy.
if(TARGET harmonics_python)
  set(module_folder ${CMAKE_BINARY_DIR}/python)
else()
  set(module_folder "")
endif()
add_test(NAME "python: module"
         COMMAND ${CMAKE_CURRENT_LIST_DIR}/module_tests.sh $<TARGET_FILE:harmonics_cli> ${PROJECT_SOURCE_DIR}
                 "${module_folder}" "${Python3_EXECUTABLE}")
set_tests_properties("python: module" PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${test_timeout})
