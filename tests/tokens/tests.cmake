# The leaf folder alone; without PCRE2 it is not built.
if(TARGET harmonics_tokens)
  hm_tests(tokens tokens LINKS harmonics_tokens)
endif()
