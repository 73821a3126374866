// Libraries that tests load by name.
#pragma once

#include <string>

// Returns the library built from tests/plugins/fixtures/crashing.cpp for "crashing".
inline std::string fixture(const std::string& name) { return HARMONICS_TEST_PLUGINS "/lib" + name + ".so"; }
