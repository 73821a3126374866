// The engine's random numbers are the public ones.
#pragma once

#include <harmonics/philox.hpp>
