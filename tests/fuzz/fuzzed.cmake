# Readers outside the library: sources or libraries that a fuzz target needs.
set(HARMONICS_FUZZED_settings ${PROJECT_SOURCE_DIR}/engine/cli/options/settings_file.cpp
                              ${PROJECT_SOURCE_DIR}/engine/cli/options/toml.cpp)
set(HARMONICS_FUZZED_LINKS_session harmonics_serving)
set(HARMONICS_FUZZED_LINKS_websocket harmonics_serving)
set(HARMONICS_FUZZED_LINKS_request harmonics_serving)
set(HARMONICS_FUZZED_llama2c_model ${PROJECT_SOURCE_DIR}/plugins/llama2c/checkpoint.cpp)
set(HARMONICS_FUZZED_llama2c_tokens ${PROJECT_SOURCE_DIR}/plugins/llama2c/vocabulary.cpp)
set(HARMONICS_FUZZED_LINKS_safetensors_model harmonics_safetensors_files)
if(TARGET harmonics_gguf_files)
  set(HARMONICS_FUZZED_LINKS_gguf harmonics_gguf_files)
  set(HARMONICS_FUZZED_LINKS_gguf_tokens harmonics_gguf_files)
else()  # without PCRE2
  set(HARMONICS_FUZZED_LACKING gguf gguf_tokens)
endif()
set(HARMONICS_FUZZED_LINKS_text_request harmonics_serving)
set(HARMONICS_FUZZED_LINKS_response harmonics_serving)
if(TARGET harmonics_huggingface_files)
  set(HARMONICS_FUZZED_LINKS_tokenizer_json harmonics_huggingface_files)
  set(HARMONICS_FUZZED_LINKS_model_config harmonics_huggingface_files)
else()  # without PCRE2
  list(APPEND HARMONICS_FUZZED_LACKING tokenizer_json model_config)
endif()
