add_dependencies(test_journeys make_model)  # writes models for the journeys of language models
