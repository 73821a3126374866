// Profiles of a step on a device with its own memory: the clock for single steps, and the overhead that is subtracted.
#include <catch2/catch.hpp>

#include "engine/bound/profile.hpp"
#include "engine/execution/device_peaks.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kProfiledFlow =
    "harmonic plain { producer x {6}; producer y {3}; layer h {9}; layer o; cycle { x -(tanh)-> h -> o; o <-(mse)- y; "
    "} }";

struct Profiled {
  Profile profile;
  double waiting = 0;  // during the roofline measurements
};

Profiled profiled(const std::string& device) {
  const auto graph = graph_of(kProfiledFlow);
  RunSettings run;
  run.device = device;
  const PreparedSettings settings{{run}, 0, true, 8, 1, 1, graph->settings(0, run)};
  const harmonics::engine::Rows rows(*graph, 0, true, 8, 1);
  PreparedStep step(*graph, rows, settings);
  const auto peaks = make_peaks(settings, Registry::global(), 1);
  Profiled result{profile(step, *peaks, {.runs = 5, .traced = 2, .allocations = nullptr})};
  result.waiting = peaks->waiting();
  return result;
}

}  // namespace

TEST_CASE("profile: a device's own clock is used, and the time of an empty step is subtracted") {
  const auto device = add_fake_accelerator(Registry::global(), "fake_profiled", true);
  const Profiled by_device = profiled("fake_profiled");
  CHECK(by_device.profile.by_device);
  REQUIRE(by_device.profile.trace.size() == 2);
  CHECK(by_device.profile.trace.back().by_device);
  CHECK(by_device.profile.waiting == Approx(static_cast<double>(by_device.profile.trace.back().nothing) * 1e-9));
  CHECK(by_device.profile.kernels > 0);

  device->tells = 2e-3;  // between any two readings: an empty step takes as long as any other
  const Profiled slow = profiled("fake_profiled");
  CHECK(slow.profile.waiting == Approx(2e-3));
  CHECK(slow.profile.kernels == Approx(0).margin(1e-12));
  device->tells.reset();

  device->keeps_times = false;
  const Profiled by_host = profiled("fake_profiled");
  CHECK_FALSE(by_host.profile.by_device);
  CHECK(by_host.profile.waiting == by_host.waiting);
  CHECK(by_host.profile.waiting > 0);
}
