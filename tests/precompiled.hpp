// Headers that most tests include, precompiled (HARMONICS_PCH). Every source still includes what it uses, because some
// presets compile without this.
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
