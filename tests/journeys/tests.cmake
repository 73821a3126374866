include(${CMAKE_CURRENT_LIST_DIR}/../bench/make_model.cmake)
add_dependencies(test_journeys make_model)  # writes models for tests of language models
