// Overrides set by programs that embed the engine.
#include <catch2/catch.hpp>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <harmonics/graph.hpp>

using namespace harmonics;

namespace {

// Returns one sample with the requested number of distinct values.
class One : public Producer {
 public:
  HTensor next() override {
    if (std::exchange(given_, true)) return {};
    const float x[] = {-1, 0, 0.5f, 2};
    return HTensor(DType::F32, Shape{4}, x);
  }
  std::size_t size() const override { return 1; }
  bool rewind() override { return given_ = false, true; }

 private:
  bool given_ = false;
};

HarmonicGraph graph() {
  static const bool loaded = (load_plugin(HARMONICS_TEST_PLUGINS "/libkinds.so"), true);
  CHECK(loaded);
  HarmonicGraph g = parse_hmx_text("harmonic g { producer x; layer o {4}; cycle { x -(swish2)-> o; } }");
  g.bindProducer("x", std::make_shared<One>());
  return g;
}

// Returns "" on success.
std::string asked(HarmonicGraph& g) {
  const float x[] = {-1, 0, 0.5f, 2};
  try {
    const HTensor y = g.infer(HTensor(DType::F32, Shape{4}, x));
    for (int i = 0; i < 4; ++i) CHECK(y.data<float>()[i] == Approx(x[i] / (1 + std::exp(-x[i]))));
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

const std::string kRefused = "the override swish2=cpu cannot serve";

}  // namespace

TEST_CASE("scoped overrides: a graph's override applies only to it, and ends with its scope") {
  HarmonicGraph a = graph(), b = graph();
  CHECK(asked(a) == "");
  {
    const ScopedOverride cpu(a, "swish2", "cpu");
    CHECK(asked(a).find(kRefused) == 0);
    CHECK(asked(b) == "");
    const ScopedOverride body(a, "swish2", "portable");
    CHECK(asked(a) == "");
  }
  CHECK(asked(a) == "");
}

TEST_CASE("scoped overrides: one of the process applies on every thread, and a graph's precedes it") {
  std::string here, there, own;
  {
    const ScopedOverride cpu("swish2", "cpu");
    HarmonicGraph a = graph();
    here = asked(a);
    std::thread([&] {
      HarmonicGraph b = graph();
      there = asked(b);
    }).join();
    HarmonicGraph c = graph();
    const ScopedOverride body(c, "swish2", "portable");
    own = asked(c);
  }
  CHECK(here.find(kRefused) == 0);
  CHECK(there.find(kRefused) == 0);
  CHECK(own == "");
  HarmonicGraph d = graph();
  CHECK(asked(d) == "");
}

TEST_CASE("scoped overrides: an override of an unknown name is refused") {
  CHECK_THROWS_WITH(ScopedOverride("", "portable"), "an override names no functional");
  const ScopedOverride unknown("swish2", "fest");
  HarmonicGraph g = graph();
  CHECK(asked(g) == "there is no implementation 'fest' of 'swish2'");
}
