// Training steps of the samples on the emulated driver: each is one graph, and the loss is read without waiting for its
// end.
#include <fstream>

#include "tests/cuda/emulated_device.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using harmonics::cuda::testing::FreshSettings;
namespace emulated = harmonics::cuda::emulated;

namespace {

// Windows of one text.
class Letters final : public Rows<uint8_t> {
 public:
  Letters(int64_t windows, int64_t length) : Rows(Shape{length}, letters(windows * length), 20) {}
  std::optional<StreamInfo> describe() override {
    StreamInfo info = *Rows::describe();
    info.position_axes = 1;
    for (char c = 'a'; c < 'a' + 20; ++c) info.symbols.emplace_back(1, c);
    return info;
  }

 private:
  static std::vector<uint8_t> letters(int64_t n) {
    std::vector<uint8_t> text;
    for (int64_t i = 0; i < n; ++i) text.push_back(static_cast<uint8_t>(i * i % 20));
    return text;
  }
};

constexpr int kSteps = 3;

std::unique_ptr<BoundGraph> sample(const std::string& name) {
  std::ifstream file(std::string(HARMONICS_SOURCE_DIR) + "/samples/" + name);
  return graph_of({std::istreambuf_iterator<char>(file), {}});
}

void bind_digits(BoundGraph& g, const char* images, const char* labels, Shape image) {
  constexpr int64_t kSamples = 6;
  bind_rows(g, images, image, harmonics::engine::testing::numbers(static_cast<size_t>(kSamples * image.count()), 3));
  std::vector<uint8_t> classes;
  for (int64_t i = 0; i < kSamples; ++i) classes.push_back(static_cast<uint8_t>(i % 10));
  bind_rows(g, labels, {}, classes, 10);
}

// Returns the loss after this number of steps; all but the first are single graphs.
double trained_in_graphs(BoundGraph& g, const char* optimizer) {
  [[maybe_unused]] static const bool once =
      (harmonics::cuda::testing::EmulatedDevice::add_to(Registry::global()), true);
  emulated::settings() = {};
  RunSettings s = settings(2);
  s.device = "emulated";
  s.steps = kSteps;
  s.optimizer = optimizer;
  const CycleReport report = CycleRuntime(g, 0, s).run();
  CHECK(report.notes.empty());
  CHECK(emulated::settings().graphs == kSteps - 1);
  CHECK(emulated::settings().awaited == kSteps);
  return report.loss;
}

double trained_on_cpu(BoundGraph& g, const char* optimizer) {
  RunSettings s = settings(2);
  s.steps = kSteps;
  s.optimizer = optimizer;
  return CycleRuntime(g, 0, s).run().loss;
}

}  // namespace

TEST_CASE("cuda emulated: each sample's training step is one graph") {
  const FreshSettings fresh;
  const std::function<std::unique_ptr<BoundGraph>()> samples[] = {
      [] {
        auto g = sample("mnist.hmx");
        bind_digits(*g, "mnist_training_data", "mnist_label_data", {784});
        return g;
      },
      [] {
        auto g = sample("mnist_cnn.hmx");
        bind_digits(*g, "images", "labels", {1, 28, 28});
        return g;
      },
      [] {
        auto g = sample("char_gpt.hmx");
        bind_producer(*g, "text", std::make_shared<Letters>(8, 6));
        return g;
      }};
  for (const auto& make : samples) {
    const auto cpu = make(), there = make();
    INFO(cpu->graph().name);
    const double meant = trained_on_cpu(*cpu, "adamw(lr=1e-3)");
    CHECK(trained_in_graphs(*there, "adamw(lr=1e-3)") == Approx(meant).epsilon(1e-3));
  }
}

TEST_CASE("cuda emulated: all optimizers and running statistics are captured") {
  const FreshSettings fresh;
  const auto make = [] {
    auto g = graph_of(
        "harmonic normed { producer x {6}; producer y; layer h {8}; layer o; cycle { x -(affine, norm(kind=\"batch\"), "
        "relu)-> h -> o; o <-(cross_entropy)- y; } }");
    bind_rows(*g, "x", {6}, harmonics::engine::testing::numbers(6 * 16, 3));
    bind_rows(*g, "y", {}, std::vector<uint8_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0}, 3);
    return g;
  };
  for (const char* optimizer : {"sgd(lr=0.05)", "sgd(lr=0.05, momentum=0.9, nesterov=true)", "adam(lr=1e-3)",
                                "lamb(lr=1e-3)", "lion(lr=1e-4)", "rmsprop(lr=1e-3, momentum=0.9)"}) {
    INFO(optimizer);
    const auto cpu = make(), there = make();
    const double meant = trained_on_cpu(*cpu, optimizer);
    CHECK(trained_in_graphs(*there, optimizer) == Approx(meant).epsilon(1e-3));
    for (const auto& [name, t] : cpu->store().all()) {
      if (std::string(optimizer) != "sgd(lr=0.05)") continue;  // other optimizers amplify gradients close to 0
      INFO(name);
      const HTensor a = cpu->store().tensor(name), b = there->store().tensor(name);
      if (a.dtype() != DType::F32) continue;
      for (int64_t i = 0; i < a.size(); ++i) REQUIRE(b.data<float>()[i] == Approx(a.data<float>()[i]).margin(1e-4));
    }
  }
}
