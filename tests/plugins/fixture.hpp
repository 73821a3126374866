// Libraries that tests load, by their names.
#pragma once

#include <string>

// "crashing": of tests/plugins/fixtures/crashing.cpp.
inline std::string fixture(const std::string& name) { return HARMONICS_TEST_PLUGINS "/lib" + name + ".so"; }
