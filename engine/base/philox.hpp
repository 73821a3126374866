// The engine uses the random number generator of the public API.
#pragma once

#include <harmonics/philox.hpp>
