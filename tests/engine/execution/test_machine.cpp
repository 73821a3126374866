#include <catch2/catch.hpp>

#include <string>
#include <string_view>

#include "engine/execution/machine.hpp"
#include "tests/variable.hpp"

namespace harmonics::engine {

TEST_CASE("machine: peaks are measured") {
  CHECK(read_bandwidth(size_t{1} << 16, 1) > 1e8);
  if (peak_instructions() != "none")
    CHECK(peak_flops(1) > 1e9);
  else
    CHECK(peak_flops(1) == 0);
}

TEST_CASE("machine: peaks are those of the instruction set that HARMONICS_ISA allows") {
  const auto under = [](const char* set) {
    const testing::Variable allowed("HARMONICS_ISA", set);
    return peak_instructions();
  };
  const std::string widest = peak_instructions(), narrow = under("avx2"), none = under("baseline");
  CHECK(none == "none");
  if (widest != "none") CHECK(narrow == "avx2");
}

TEST_CASE("machine: threads are kept busy at least once, also without time for it") {
  CHECK(spread_over_cores(1, 0) == 1);
  CHECK(spread_over_cores(2, 0) > 0);
}

TEST_CASE("roofline: maximum of arithmetic and traffic") {
  MachinePeaks y(1);
  const double traffic = 1e6 / y.bandwidth(1e6);
  CHECK(y.floor(0, 1e6) == traffic);
  CHECK(y.floor(0, 0) == 0);
  if (y.peak() > 0) {
    CHECK(y.floor(1e9, 0) == 1e9 / y.peak());
    CHECK(y.floor(1e12, 1e6) == 1e12 / y.peak());
    CHECK(y.floor(1, 1e6) == traffic);
  }
}

TEST_CASE("machine: repeated measurements keep the better, sizes share powers of two") {
  MachinePeaks y(1);
  const double before = y.bandwidth(100000), peak = y.peak();
  CHECK(y.bandwidth(131072) == before);
  y.again();
  CHECK(y.bandwidth(100000) >= before);
  CHECK(y.peak() >= peak);
}

}  // namespace harmonics::engine
