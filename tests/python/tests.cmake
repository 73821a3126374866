# The Python module, by unittest. The test is skipped, with the reason, without the module or NumPy.
set(module_folder "")
set(module_python python3)
if(TARGET harmonics_python)
  set(module_folder $<TARGET_FILE_DIR:harmonics_python>)
  get_target_property(module_python harmonics_python HARMONICS_INTERPRETER)
endif()
add_test(NAME "python: module"
         COMMAND ${CMAKE_CURRENT_LIST_DIR}/module_tests.sh $<TARGET_FILE:harmonics_cli> ${PROJECT_SOURCE_DIR}
                 "${module_folder}" "${module_python}")
set_tests_properties("python: module" PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${test_timeout})
