// After warm-up, a step and a cycle allocate only within libraries.
#include <catch2/catch.hpp>

#include <stdexcept>

#include "engine/cycle/run_control.hpp"
#include "engine/cycle/snapshot.hpp"
#include "tests/engine/execution/interposed_malloc.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

namespace harmonics::engine::testing {

namespace {

constexpr const char* kDropoutNet = R"(harmonic g {
  producer x {32}; producer y {8}; layer h {16}; layer o;
  cycle { x -(relu, dropout(0.1))-> h -> o; o <-(cross_entropy)- y; }
})";

// Returns rows in blocks, like files, without a tensor per sample.
template <typename T>
class Blocks : public Rows<T> {
 public:
  Blocks(Shape sample, std::vector<T> values)
      : Rows<T>(sample, values), bytes_(values), sample_(static_cast<size_t>(sample.count())) {}
  bool rewind() override { return at_ = 0, true; }
  int64_t read(uint64_t n, void* to) override {
    const size_t got = std::min<size_t>(n, bytes_.size() / sample_ - at_);
    std::memcpy(to, bytes_.data() + at_ * sample_, got * sample_ * sizeof(T));
    at_ += got;
    return static_cast<int64_t>(got);
  }

 private:
  std::vector<T> bytes_;
  size_t sample_, at_ = 0;
};

uint64_t onednn_parts(const Executable& e) {
  uint64_t n = 0;
  for (const PlanStep& s : e.steps()) n += s.kernel.rfind("oneDNN", 0) == 0 ? s.phases * s.parts : 0;
  return n;
}

constexpr uint64_t kPerExecute = 8;  // within oneDNN

}  // namespace

TEST_CASE("allocations: a compiled training step makes none outside oneDNN") {
  if (!kCountsAllocations) return;
  auto g = graph_of(kDropoutNet);
  bind_rows(*g, "x", {32}, numbers(32 * 16));
  bind_rows<int64_t>(*g, "y", {}, std::vector<int64_t>(16, 3));
  LoweringOptions o;
  o.batch = 16;
  o.optimizer = parse_optimizer("adamw");
  CompileOptions c;
  c.registry = &g->registry();
  for (const int threads : {1, 2}) {
    CompiledStep step(g->lower(o), g->store(), g->executor(threads), c);
    const std::vector<float> x = numbers(32 * 16);
    const std::vector<int64_t> y(16, 3);
    const void* streams[] = {x.data(), y.data()};
    const auto run = [&](int64_t i) {
      step.check_indices(streams);
      step.set(streams, 1e-3f, i, 0);
      if (!step.run_if_finite()) throw std::runtime_error("the loss is not finite");
    };
    for (int64_t i = 1; i <= 50; ++i) run(i);
    start_counting();
    for (int64_t i = 51; i <= 150; ++i) run(i);
    const uint64_t counted = stop_counting();
    INFO(counted << " allocations in 100 steps with " << onednn_parts(step.executable()) << " oneDNN parts each");
    CHECK(counted <= 100 * onednn_parts(step.executable()) * kPerExecute);
    start_counting();
    step.check_indices(streams);
    step.set(streams, 1e-3f, 200, 0);
    CHECK(stop_counting() == 0);
  }
}

TEST_CASE("allocations: a perceptron step on 64 samples makes none, with or without zeros") {
  if (!kCountsAllocations) return;
  auto g = graph_of(R"(harmonic g {
  producer x {784}; producer y {10} 1/1 x; layer input; layer wide {392}; layer narrow {196}; layer output {10};
  cycle { x -> input -(relu)-> wide -(relu)-> narrow -> output; output <-(cross_entropy)- y; }
})");
  const std::vector<float> dense = numbers(784 * 64);
  std::vector<float> sparse = dense;
  for (size_t i = 0; i < sparse.size(); ++i)
    if (i % 5) sparse[i] = 0;
  const std::vector<int64_t> y(64, 3);
  bind_rows(*g, "x", {784}, dense);
  bind_rows<int64_t>(*g, "y", {}, y);
  LoweringOptions o;
  o.batch = 64;
  o.optimizer = parse_optimizer("sgd");
  CompileOptions c;
  c.registry = &g->registry();
  for (const int threads : {1, 2}) {
    CompiledStep step(g->lower(o), g->store(), g->executor(threads), c);
    for (const std::vector<float>* x : {&dense, &std::as_const(sparse)}) {
      const void* streams[] = {x->data(), y.data()};
      const auto run = [&](int64_t i) {
        step.set(streams, 1e-5f, i, 0);
        if (!step.run_if_finite()) throw std::runtime_error("the loss is not finite");
      };
      for (int64_t i = 1; i <= 20; ++i) run(i);
      start_counting();
      for (int64_t i = 21; i <= 40; ++i) run(i);
      CHECK(stop_counting() == 0);
    }
  }
}

TEST_CASE("allocations: accumulation, clipping and updates make none outside oneDNN") {
  if (!kCountsAllocations) return;
  for (const NamedRow& row : optimizer_rows()) {
    auto g = graph_of(kDropoutNet);
    bind_rows(*g, "x", {32}, numbers(32 * 16));
    bind_rows<int64_t>(*g, "y", {}, std::vector<int64_t>(16, 3));
    LoweringOptions o;
    o.batch = 16;
    o.optimizer = parse_optimizer(row.name);
    o.clip = 1;
    o.accumulate = 1;
    CompileOptions c;
    c.registry = &g->registry();
    CompiledStep gather(g->lower(o), g->store(), g->executor(2), c);
    Lowered lowered;
    lowered.program = accumulated_update("g", g->store(), o, gather.lowered().trained);
    CompiledStep update(std::move(lowered), g->store(), g->executor(2), c);
    const std::vector<float> x = numbers(32 * 16);
    const std::vector<int64_t> y(16, 3);
    const void* streams[] = {x.data(), y.data()};
    const auto run = [&](int64_t step) {
      for (int64_t k = 0; k < 3; ++k) {
        gather.set(streams, 0, 3 * step + k, 0);
        gather.set_keep(k > 0);
        if (!gather.run_if_finite()) throw std::runtime_error("the loss is not finite");
      }
      update.set(nullptr, 1e-3f, step, 0);
      update.set_scale(1.0f / 3);
      update.run();
    };
    const uint64_t parts = onednn_parts(gather.executable()) + onednn_parts(update.executable());
    for (int64_t i = 1; i <= 20; ++i) run(i);
    start_counting();
    for (int64_t i = 21; i <= 70; ++i) run(i);
    const uint64_t counted = stop_counting();
    INFO(row.name << ": " << counted << " allocations in 50 steps with " << parts << " oneDNN parts");
    CHECK(counted <= 50 * 3 * parts * kPerExecute);
  }
}

TEST_CASE("allocations: a cycle without oneDNN makes none outside the flow graph") {
  if (!kCountsAllocations) return;
  const auto allocations_of = [](int64_t steps, int threads, bool watched, bool counted = false) {
    const std::string classes = counted ? " a_layer_with_a_long_name <-(cross_entropy(ignore_index=0))- z;" : "";
    auto g = graph_of(
        "harmonic g { producer x; producer y {16}; " + std::string(counted ? "producer z {16}; " : "") +
        "layer a_layer_with_a_long_name; cycle { x -(norm)-> a_layer_with_a_long_name; a_layer_with_a_long_name <- y;" +
        classes + " } }");
    bind_producer(*g, "x", std::make_shared<Blocks<float>>(Shape{16}, numbers(16 * 4096)));
    bind_producer(*g, "y", std::make_shared<Blocks<float>>(Shape{16}, numbers(16 * 4096)));
    if (counted) bind_producer(*g, "z", std::make_shared<Blocks<int32_t>>(Shape{}, std::vector<int32_t>(4096, 0)));
    RunSettings s = settings(8);
    if (counted) s.accumulate = 2, s.window = 100;
    s.threads = threads;
    s.steps = steps;
    CycleRuntime runtime(*g, 0, s);
    RunControl control("g");
    if (watched) runtime.set_control(&control), runtime.keep_snapshots([](const std::shared_ptr<Snapshots>&) {});
    start_counting();
    const CycleReport r = runtime.run();
    const uint64_t made = stop_counting();
    REQUIRE(r.steps == steps);
    return made;
  };
  for (const int threads : {1, 2})
    for (const bool watched : {false, true}) {
      allocations_of(100, threads, watched);  // one-time allocations of the process
      const uint64_t few = allocations_of(1024, threads, watched), many = allocations_of(5120, threads, watched);
      INFO(few << " allocations in 1024 steps, " << many << " in 5120");
      CHECK(many <= few + 4096 * 3 / 4);  // the flow graph re-registers a successor at every other step
    }
  allocations_of(100, 1, false, true);
  const uint64_t few = allocations_of(256, 1, false, true), many = allocations_of(2304, 1, false, true);
  INFO(few << " allocations in 256 steps of two batches, " << many << " in 2304");
  CHECK(many <= few + 4096 * 3 / 4);
}

}  // namespace harmonics::engine::testing
