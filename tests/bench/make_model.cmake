# The program that writes models with random weights, for benchmarks and command-line tests.
if(NOT TARGET make_model)
  add_executable(make_model ${CMAKE_CURRENT_LIST_DIR}/make_model.cpp ${CMAKE_CURRENT_LIST_DIR}/random_model.cpp)
  target_include_directories(make_model PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(make_model PRIVATE harmonics_objects)
endif()
