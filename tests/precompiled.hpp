// What most tests begin with, compiled once (HARMONICS_PCH). Every source includes what it uses: presets without it
// compile them too.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <fmt/core.h>
#include <harmonics/plugin.hpp>

#include "engine/bound/bound_graph.hpp"
