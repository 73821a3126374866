// Null objects are refused when they are registered.
#include <catch2/catch.hpp>

#include <harmonics/graph.hpp>
#include <harmonics/harmonics.hpp>

#include "tests/journeys/shell.hpp"
#include "tests/plugins/fixture.hpp"
#include "tests/plugins/traced.hpp"

using namespace harmonics;
using harmonics::engine::testing::error_of;
using journeys::has;
using journeys::Result;

TEST_CASE("registration: a null object is refused, with its name") {
  const Result r = journeys::harmonics("list activations --plugin " + fixture("null_object"));
  CHECK(r.code == 1);
  CHECK(has(r.err, "failed while registering: cannot register activation 'null_one': its object is null\n"));

  HarmonicGraph g = parse_hmx_text("harmonic g { producer x {2}; layer o {2}; cycle { x -> o; } }");
  const auto refused = [&](auto&& call) { return error_of(call); };
  CHECK(
      has(refused([&] { g.registerActivation("n", nullptr); }), "cannot register activation 'n': its object is null"));
  CHECK(has(refused([&] { g.registerLoss("n", nullptr); }), "loss 'n'"));
  CHECK(has(refused([&] { g.registerLayer("n", nullptr); }), "layer 'n'"));
  CHECK(has(refused([&] { g.registerProducer("n", ProducerFactory()); }), "producer 'n'"));
  CHECK(has(refused([&] { g.registerConsumer("n", ConsumerFactory()); }), "consumer 'n'"));
  CHECK(has(refused([&] { g.registerDevice("n", nullptr); }), "device 'n'"));
  CHECK(has(refused([&] { g.registerMemoryDevice("n", nullptr); }), "device 'n'"));
  CHECK(has(refused([&] { g.registerMetric("n", MetricFactory()); }), "metric 'n'"));
  CHECK(has(refused([&] { g.registerFunctional("n", nullptr); }), "functional 'n'"));
  CHECK(has(refused([&] { g.registerImplementation("silu", "n", nullptr); }), "implementation 'silu.n'"));
  CHECK(has(refused([&] { g.registerOptimizer("n", nullptr); }), "optimizer 'n'"));
  CHECK(has(refused([&] { g.registerSchedule("n", nullptr); }), "schedule 'n'"));
  CHECK(has(refused([&] { g.registerPredicate("n", nullptr); }), "predicate 'n'"));
  CHECK(has(refused([&] { g.registerAugmentation("n", nullptr); }), "augmentation 'n'"));
}
