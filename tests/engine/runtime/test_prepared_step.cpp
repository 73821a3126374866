// Steps over samples in memory: their selection and order, and the error if there are none.
#include <catch2/catch.hpp>

#include "engine/bound/profile.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

namespace harmonics::engine::testing {

namespace {

using Samples = harmonics::engine::Rows;

constexpr const char* kGroupedNet = R"(harmonic g {
  producer x {4}; producer y {3} 1/1 x; layer h; layer o;
  cycle { x -> h -> o; o <-(cross_entropy)- y; }
})";

float first_of(const Samples& rows, uint64_t i) { return *reinterpret_cast<const float*>(rows.row(0, i)); }

}  // namespace

TEST_CASE("prepared step: samples are read once, in order, and again from the beginning") {
  auto g = graph_of(kGroupedNet);
  bind_rows(*g, "x", {4}, numbers(4 * 5));
  bind_rows<int64_t>(*g, "y", {}, std::vector<int64_t>{0, 1, 2, 1, 0});
  const Samples rows(*g, 0, true, 2, 0);
  CHECK(rows.streamed());
  CHECK(rows.count() == 2048);
  CHECK(rows.producers().size() == 2);
  CHECK(rows.bytes(0) == 16);
  for (uint64_t i = 0; i < 20; ++i) CHECK(first_of(rows, i) == numbers(4 * 5)[4 * (i % 5)]);
}

TEST_CASE("prepared step: an unbound producer gives random numbers of its declared type") {
  auto g = graph_of(kGroupedNet);
  const Samples rows(*g, 0, true, 3000, 7);
  CHECK_FALSE(rows.streamed());
  CHECK(rows.count() == 24000);
  bool differ = false;
  for (uint64_t i = 0; i < rows.count(); ++i) {
    CHECK((first_of(rows, i) >= 0 && first_of(rows, i) < 1));
    differ = differ || first_of(rows, i) != first_of(rows, 0);
    const int32_t label = *reinterpret_cast<const int32_t*>(rows.row(1, i));
    CHECK((label >= 0 && label < 3));
  }
  CHECK(differ);
}

TEST_CASE("prepared step: a producer without a declared type must be bound") {
  auto g = graph_of("harmonic g { producer x; layer o {2}; cycle { x -> o; } }");
  try {
    const Samples rows(*g, 0, false, 1, 0);
    FAIL("it was not refused");
  } catch (const Error& e) {
    CHECK(std::string(e.what()) == "the sample type of producer 'x' is unknown");
    CHECK(e.notes().size() == 1);
  }
}

TEST_CASE("profile: describes every step of the plan") {
  auto g = graph_of(kGroupedNet);
  const Samples rows(*g, 0, true, 8, 0);
  PreparedSettings settings;
  settings.trains = true;
  settings.batch = 8;
  settings.threads = 1;
  settings.update.optimizer = parse_optimizer("sgd(lr=0.1)");
  PreparedStep step(*g, rows, settings);
  CHECK(step.prepared_bytes() == 256 * (8 * 16 + 64));
  const auto weight = [&] { return *static_cast<const float*>(g->store().all().begin()->second.storage->data()); };
  const float before = weight();
  MachinePeaks peaks(1);
  uint64_t asked = 0;
  const Profile p = profile(step, peaks, {.runs = 300, .traced = 2, .allocations = [&] { return asked += 3; }});
  CHECK(p.runs == 300);
  CHECK(p.allocations == 3);
  CHECK(p.trace.size() == 2);
  REQUIRE(p.steps.size() == step.executable().steps().size());
  double floor = 0;
  for (const ProfiledStep& s : p.steps) {
    CHECK(s.median >= 0);
    CHECK(s.what == step.executable().steps()[s.index].what);
    floor += s.floor;
  }
  CHECK(p.floor == Approx(floor));
  CHECK(p.floor == Approx(floor_of(step.executable(), peaks)));
  CHECK(weight() != before);  // the profiled runs trained
}

TEST_CASE("profile: the best time covers all batches, not the cheapest one") {
  Times t;
  for (double v : {3.0, 1.0, 2.0, 5.0, 4.0}) t.add(v, static_cast<size_t>(v) % 2 ? 0 : 2);
  CHECK(t.best() == (1 + 2) / 2.0);
  CHECK(t.at(0) == 1);
  CHECK(t.at(0.5) == 3);
  CHECK(t.at(1) == 5);
  CHECK(t.count() == 5);
}

}  // namespace harmonics::engine::testing
