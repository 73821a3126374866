// Peaks of a device with its own memory.
#include <catch2/catch.hpp>

#include "engine/execution/device_peaks.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("device peaks: measured by its own products and copies") {
  Registry registry{&Registry::global()};
  const auto device = add_fake_accelerator(registry);
  const auto peaks = make_peaks({"fake"}, registry, 1);
  CHECK(peaks->instructions() == "products of 1024 squared by its own kernel, copies within its memory");
  CHECK(peaks->peak() > 1e8);
  CHECK(device->kernels > 0);
  CHECK(peaks->bandwidth(1 << 20) > 1e7);
  CHECK(peaks->floor(1e9, 1e3) == Approx(1e9 / peaks->peak()));
  const size_t before = device->synchronized;
  CHECK(peaks->waiting() > 0);
  CHECK(device->synchronized > before);
}

TEST_CASE("device peaks: the processor uses its own peaks without waiting") {
  Registry registry{&Registry::global()};
  const auto cpu = make_peaks({"cpu"}, registry, 1);
  CHECK(cpu->waiting() == 0);
  CHECK(cpu->instructions() == peak_instructions());
  const auto reference = make_peaks({"reference"}, registry, 1);
  CHECK(reference->waiting() == 0);
}
