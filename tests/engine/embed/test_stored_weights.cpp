// Frozen weights of a stored type in a graph that is trained, saved and loaded.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <harmonics/harmonics.hpp>

using namespace harmonics;

namespace {

constexpr int64_t kIn = 32;

// y = x wᵀ with a weight of a block type.
struct Quantised : LayerFunction {
  explicit Quantised(double value) : value_(value) {}
  HTensor operator()(Scope& scope, const HTensor& x, const Arguments&) const override {
    const HTensor w = scope.parameter("weight", Shape{scope.width(), kIn}, constant_init(value_), DType::Q8_0);
    return call("linear", {x, w}).at(0);
  }
  double value_;
};

// Rows whose numbers depend on their position.
struct Waves : Producer {
  explicit Waves(int64_t width) : width_(width) {}
  HTensor next() override {
    if (at_ == 40) return {};
    std::vector<float> row(static_cast<size_t>(width_));
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>((at_ * 7 + i * 3) % 11) / 11;
    ++at_;
    return HTensor(DType::F32, Shape{width_}, row.data());
  }
  std::size_t size() const override { return 40; }
  bool rewind() override { return at_ = 0, true; }
  int64_t width_;
  std::size_t at_ = 0;
};

HarmonicGraph graph_with(double value) {
  HarmonicGraph g = parse_hmx_text(
      "harmonic h { producer x {32}; producer y {1}; layer h {8}; layer o {1}; "
      "cycle { x -(quantised(freeze=true))-> h -(affine(1))-> o; o <-(mse)- y; } }");
  g.registerLayer("quantised", std::make_shared<Quantised>(value));
  g.bindProducer("x", std::make_shared<Waves>(kIn));
  g.bindProducer("y", std::make_shared<Waves>(1));
  return g;
}

float inferred_row(HarmonicGraph& g) {
  std::vector<float> row(kIn, 0.25f);
  row[3] = 2;
  return g.infer(HTensor(DType::F32, Shape{kIn}, row.data())).data<float>()[0];
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("stored weights: a frozen weight of blocks is saved and loaded with the trained ones") {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("stored_" + std::to_string(::getpid()) + ".safetensors")).string();
  HarmonicGraph g = graph_with(0.5);
  FitOptions o;
  o.epochs = 2;
  o.batch = 8;
  o.threads = 1;
  o.optimizer = "sgd(lr=0.01)";
  g.fit(o);
  g.save(path);
  const std::string saved = file_text(path);
  CHECK(saved.find("harmonics.element_type:x.h.quantised.weight\":\"q8_0[8, 32]\"") != std::string::npos);

  HarmonicGraph other = graph_with(-3);
  other.load(path);
  CHECK(inferred_row(other) == inferred_row(g));
  other.save(path);
  CHECK(file_text(path) == saved);

  // a type that does not match the bytes
  std::string lie = saved;
  const size_t at = lie.find("q8_0[8, 32]");
  REQUIRE(at != std::string::npos);
  lie.replace(at, 11, "q4_0[8, 32]");
  std::ofstream(path, std::ios::binary) << lie;
  HarmonicGraph third = graph_with(1);
  std::string refusal;
  try {
    third.load(path);
  } catch (const Error& e) {
    refusal = e.what();
  }
  CHECK(refusal.find("metadata gives it the type 'q4_0[8, 32]'") != std::string::npos);
  std::filesystem::remove(path);
}
