// The engine uses the public random number generator.
#pragma once

#include <harmonics/philox.hpp>
