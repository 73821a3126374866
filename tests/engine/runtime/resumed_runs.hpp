// Runs that are stopped and resumed: flows with random numbers, running statistics, branches, several taps and wide
// layers.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <fmt/core.h>
#include <harmonics/async.hpp>
#include "engine/checkpoint/checkpointer.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

namespace harmonics::engine::testing::resuming {

inline constexpr const char* kFlows[] = {
    R"(harmonic drops { producer x {6}; producer y {3}; layer h {8}; layer o;
       cycle { x -(relu, dropout(0.3))-> h -> o; o <-(cross_entropy)- y; } })",
    R"(harmonic norms { producer x {6}; producer y {3}; layer h {5}; layer o;
       cycle { x -(affine, norm(kind="batch"), tanh)-> h -> o; o <-(cross_entropy)- y; } })",
    R"(harmonic branches { producer x {6}; producer y {3}; layer h {7}; layer g {4}; layer o;
       cycle { x -(relu)-> h; if loss < 1.09 { h -(tanh, dropout(0.2))-> g; } else { h -(affine(4, name="first"),
         relu)-> g; } g -> o; o <-(cross_entropy)- y; } })",
    R"(harmonic taps { producer x {6}; producer y {3}; layer h {7}; layer o; layer side {6};
       cycle { x -(relu)-> h; h -> o; if loss < 1.5 { h -> side; side <-(mse)- x; }
         o <-(cross_entropy)- y; } })",
    R"(harmonic watched { producer x {6}; producer y {3}; layer h {7}; layer g {4}; layer o;
       cycle { x -(relu)-> h; if val.loss < 1.09 { h -(tanh)-> g; } else { h -(affine(4, name="first"),
         relu)-> g; } g -> o; o <-(cross_entropy)- y; } })",
    R"(harmonic counted { producer x {6}; producer y {3}; layer h {7}; layer o; layer side {6};
       cycle { x -(relu)-> h; h -> o; if loss < 1.4 { h -> side; side <-(mse)- x;
         } o <-(cross_entropy(ignore_index=2))- y; } })",
    R"(harmonic wide { producer x {6}; producer y {3}; layer h {40}; layer g {33}; layer o;
       cycle { x -(relu)-> h -(relu)-> g -> o; o <-(cross_entropy)- y; } })",
};

struct Setup {
  const char* flow = kFlows[0];
  size_t samples = 30;
  std::string address;  // options of the joint group
  bool wrapped = false, sized = true, validated = false;
  RunSettings run;
};

inline std::vector<uint8_t> labels(const std::vector<float>& x) {
  std::vector<uint8_t> y;
  for (size_t i = 0; i < x.size(); i += 6) y.push_back(static_cast<uint8_t>(x[i] > 0.3f ? 2 : x[i + 1] > 0 ? 1 : 0));
  return y;
}

inline void bind_validation(BoundGraph& g) {
  const std::vector<float> x = numbers(6 * 14, 9);
  const auto bind = [&](const char* name, std::shared_ptr<Producer> p) {
    g.validation_streams().bind(g.graph(), g.graph().find(name), Source(name, std::move(p)));
  };
  bind("x", std::make_shared<Rows<float>>(Shape{6}, x));
  bind("y", std::make_shared<Rows<uint8_t>>(Shape{}, labels(x), 3));
}

// `ahead`: prefetch depth of producers; 0: none.
inline std::unique_ptr<BoundGraph> resumed_graph(const Setup& setup, size_t ahead) {
  auto g = graph_of(setup.flow);
  const std::vector<float> x = numbers(6 * setup.samples, 3);
  const auto producer = [&](std::shared_ptr<Producer> p, const char* name) {
    if (setup.wrapped)
      p = std::make_shared<RepeatProducer>(
          std::make_shared<ShuffleProducer>(std::make_shared<SkipProducer>(p, 2), 7, 5), 2);
    if (ahead) p = std::make_shared<AsyncProducer>(p, ahead);
    bind_producer(*g, name, p);
  };
  const auto rows = [&](auto r) {
    r->hides_size = !setup.sized;
    return r;
  };
  producer(rows(std::make_shared<Rows<float>>(Shape{6}, x)), "x");
  producer(rows(std::make_shared<Rows<uint8_t>>(Shape{}, labels(x), 3)), "y");
  if (setup.validated) bind_validation(*g);
  return g;
}

struct End {
  std::map<std::string, std::string> tensors;  // weights, statistics and moments, byte for byte
  CycleReport report;
};

inline End end_of(BoundGraph& g, CycleReport report) {
  End end{{}, std::move(report)};
  TensorFile all;
  g.snapshot(all);
  for (const auto& [name, tensor] : all.tensors)
    end.tensors[name] = std::string(static_cast<const char*>(tensor.bytes()), type_of(tensor).bytes());
  return end;
}

// Returns everything except times, exactly.
inline std::string text_of(const EpochReport& e) {
  std::string s = fmt::format("epoch {} steps {} samples {} step {} loss {} {} {} rate {}", e.epoch, e.steps, e.samples,
                              e.step, e.loss, e.accuracy_name, e.accuracy, e.learning_rate);
  for (const auto& [name, v] : e.figures) s += fmt::format("; {} {}", name, v);
  if (!e.validation) return s;
  s += fmt::format("\n  validation of {}: loss {} accuracy {}", e.validation->samples, e.validation->loss,
                   e.validation->accuracy);
  for (const LayerFigures& layer : e.validation->layers) {
    s += fmt::format("; {} {} {}", layer.layer, layer.classes, layer.rows);
    for (const Figure& f : layer.figures) s += fmt::format(", {} {}", f.name, f.value);
    for (const double n : layer.table.cells) s += fmt::format(" {}", n);
  }
  return s;
}

inline std::string text_of(const std::vector<EpochReport>& epochs) {
  std::string s;
  for (const EpochReport& e : epochs) s += text_of(e) + "\n";
  return s;
}

inline void expect_same(const End& a, const End& b) {
  CHECK((a.tensors == b.tensors));
  CHECK(a.report.steps == b.report.steps);
  CHECK(a.report.samples == b.report.samples);
  CHECK(a.report.epochs == b.report.epochs);
  CHECK(a.report.loss == b.report.loss);
  CHECK(a.report.accuracy == b.report.accuracy);
  CHECK(a.report.metrics == b.report.metrics);
  CHECK(a.report.learning_rate == b.report.learning_rate);
  CHECK(a.report.stopped_by == b.report.stopped_by);
  CHECK(text_of(a.report.by_epoch) == text_of(b.report.by_epoch));
  REQUIRE(a.report.curve.size() == b.report.curve.size());
  for (size_t i = 0; i < a.report.curve.size(); ++i) CHECK(a.report.curve[i].loss == b.report.curve[i].loss);
}

inline Setup random_setup(std::mt19937& random) {
  const auto below = [&](uint64_t n) { return random() % n; };
  Setup s;
  s.flow = kFlows[below(std::size(kFlows))];
  s.samples = 12 + below(40);
  s.wrapped = below(3) == 0;
  s.sized = below(4) != 0;
  s.run = settings(static_cast<int64_t>(1 + below(9)));
  if (s.flow == kFlows[1]) {  // batch statistics need more than one sample
    s.samples += s.samples % 2;
    s.run.batch = below(2) ? 2 : 4;
  }
  s.run.seed = static_cast<int64_t>(below(3));
  s.run.accumulate = static_cast<int64_t>(1 + below(3));
  static const char* const optimizers[] = {"sgd(lr=0.1, momentum=0.9)", "adamw(lr=0.01)", "lion(lr=0.001)",
                                           "rmsprop(lr=0.01)"};
  s.run.optimizer = optimizers[below(4)];
  static const char* const schedules[] = {"constant", "cosine(warmup=3)", "step(every=4)"};
  s.run.schedule = schedules[below(s.sized ? 3 : 1)];
  if (below(3) == 0) s.run.clip = 0.5;
  if (below(2))
    s.run.epochs = 2 + static_cast<int64_t>(below(3));
  else
    s.run.steps = 8 + static_cast<int64_t>(below(30));
  s.run.shuffle = below(3) != 0;
  s.validated = below(2) || s.flow == kFlows[4];
  s.run.confusion = below(2);
  for (const char* metric : {"auc", "f1(average=none)", "topk(2)", "perplexity", "recall(average=weighted)"})
    if (below(3) == 0) s.run.metrics.push_back(metric);
  if (below(2)) s.run.window = 1 + static_cast<int64_t>(below(40));
  return s;
}

inline std::string text_of(const Setup& s) {
  return fmt::format(
      "{:.20} {} samples{}{} batch {} seed {} accumulate {} {} {} epochs {} steps {} shuffle {} validated {} metrics "
      "{} window {}",
      s.flow, s.samples, s.wrapped ? " wrapped" : "", s.sized ? "" : " unsized", *s.run.batch, *s.run.seed,
      *s.run.accumulate, *s.run.optimizer, *s.run.schedule, s.run.epochs.value_or(-1), s.run.steps.value_or(-1),
      s.run.shuffle, s.validated, s.run.metrics.size(), s.run.window.value_or(0));
}

// Resumes from `from` with other numbers of threads and prefetched samples.
inline End resumed(const Setup& setup, const Checkpoint& from, int threads, size_t ahead,
                   FilesInMemory* files = nullptr) {
  Setup other = setup;
  other.run.threads = threads;
  auto g = resumed_graph(other, ahead);
  CycleRuntime runtime(*g, 0, other.run);
  std::optional<Checkpointer> writer;
  if (files) writer.emplace("again", CheckpointInterval{0, 1, 0}, 1000, *files);
  if (writer) runtime.set_checkpoints(&*writer);
  runtime.resume(from);
  CycleReport report = runtime.run();
  CHECK(report.resumed_at == from.state.step);
  std::erase_if(report.notes, [](const std::string& note) {
    return note.find("ends within the schedule's warmup") != std::string::npos;
  });  // by the setup, whether resumed or not
  CHECK(report.notes == std::vector<std::string>());
  return end_of(*g, std::move(report));
}

}  // namespace harmonics::engine::testing::resuming
