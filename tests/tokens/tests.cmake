# Tests of tokens/ without the engine; not built without PCRE2.
if(TARGET harmonics_tokens)
  hm_tests(tokens tokens LINKS harmonics_tokens)
endif()
