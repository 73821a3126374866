// Lists the primitives that the CPU device leaves to the reference, and checks that device tests cover all primitives.
#include <catch2/catch.hpp>

#include "tests/conformance/coverage.hpp"

using namespace harmonics;
using namespace harmonics::engine;

TEST_CASE("the CPU device has kernels for all primitives on f32") {
  KernelSource cpu("cpu", Registry::global());
  CHECK(testing::left_to_the_reference(cpu) == std::set<std::string>{});
}

TEST_CASE("the calls that devices are checked with hold every primitive") {
  std::set<std::string> held;
  for (const DeviceCall& c : device_calls(1)) held.insert(c.site.op);
  std::set<std::string> missing;
  for (const OpRow& row : op_rows())
    if (find_op(row.name) && !held.count(std::string(row.name))) missing.insert(std::string(row.name));
  CHECK(missing == std::set<std::string>{});
}
