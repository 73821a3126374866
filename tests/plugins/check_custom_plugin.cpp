// Loads, traces and differentiates the sample's activation from the library that HARMONICS_CUSTOM_PLUGIN names.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>

#include "engine/plugin/discovery.hpp"
#include "tests/plugins/traced.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {
const std::string library = [] {
  const char* named = std::getenv("HARMONICS_CUSTOM_PLUGIN");
  return std::string(named ? named : "");
}();

float value(float x) { return x / (1 + std::exp(-1.702f * x)); }
float slope(float x) {
  const float s = 1 / (1 + std::exp(-1.702f * x));
  return s + 1.702f * x * s * (1 - s);
}
}  // namespace

TEST_CASE("sample plugin: its activation is traced and has its gradient") {
  Registry registry;
  load_plugin(library, registry);
  const ItemPtr item = registry.need(HX_ACTIVATION, "my_act");
  CHECK(item->identity() == "my_plugin/my_act");
  const Floats xs{-3, -1, -0.25, 0, 0.5, 4};
  const Ran ran = run(
      floats({2, 3}, xs), [&](const HTensor& x) { return call_activation(item, {}, x); }, true);
  CHECK(ran.count(Op::host_call) == 0);
  for (size_t i = 0; i < xs.size(); ++i) {
    CHECK(numbers(ran.y)[i] == Approx(value(xs[i])).margin(1e-6));
    CHECK(numbers(ran.dx)[i] == Approx(slope(xs[i])).margin(1e-5));
  }
}

TEST_CASE("sample plugin: its manifest is found, and its library opened when a name is needed") {
  Registry registry;
  announce(discover_plugins({library.substr(0, library.rfind('/'))}), registry);
  CHECK(registry.need(HX_ACTIVATION, "my_act")->plugin == "my_plugin");
}
