// Programs over a window that continue from caches give the window's values, symbol by symbol and in chunks.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>

#include <harmonics/ops.hpp>

#include "engine/execution/executable.hpp"
#include "engine/passes/continue_sequence.hpp"
#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

constexpr int64_t kWindow = 40, kSymbols = 13, kWidth = 16;

HTensor one(const char* name, const AttributeMap& a, const std::vector<HTensor>& in) { return apply(name, a, in)[0]; }

// A flow of two blocks, traced as by layers.
class SmallFlow {
 public:
  explicit SmallFlow(Tracer& tracer) : tracer_(tracer) {}
  AttributeMap attention = AttributeMap().set("causal", true).set("positions_first", true);
  std::function<HTensor(const HTensor&)> extra = [](const HTensor& x) { return x; };

  void trace() {
    const HTensor text = tracer_.input("text", {DType::I32, Shape{1, kWindow}});
    HTensor x = one("embedding", {}, {weight("table", {kSymbols, kWidth}), text});
    for (const char* block : {"a", "b"}) {
      const TraceScope scope(block);
      const std::string name = block;
      x = x + attended(normed(x, name + ".first"), name);
      const HTensor wide = one("gelu", {}, {affine(normed(x, name + ".second"), name + ".up", 24)});
      x = x + affine(wide, name + ".down", kWidth) * 0.5;
    }
    x = extra(x);
    tracer_.output("scores", one("log_softmax", {}, {affine(x, "head", kSymbols)}));
  }

 private:
  HTensor weight(const std::string& name, const Shape& shape) { return tracer_.parameter(name, {DType::F32, shape}); }
  HTensor affine(const HTensor& x, const std::string& name, int64_t width) {
    return one("linear", {}, {x, weight(name, {width, x.shape().back()}), weight(name + ".bias", {width})});
  }
  HTensor normed(const HTensor& x, const std::string& name) {
    return one("layer_norm", AttributeMap().set("epsilon", 1e-5).set("norm_axes", int64_t{1}),
               {x, weight(name + ".gain", {kWidth}), weight(name + ".bias", {kWidth})});
  }
  HTensor attended(const HTensor& x, const std::string& name) {
    const auto heads = [&](const char* part, int64_t n) {
      return reshape(affine(x, name + part, n * 4), Shape{1, kWindow, n, 4});
    };
    const AttributeMap rows = AttributeMap().set("positions_first", true);
    const HTensor q = one("rope", rows, {heads(".q", 4)}), k = one("rope", rows, {heads(".k", 2)});
    const HTensor mixed = one("attention", attention, {q, k, heads(".v", 2)});
    return affine(reshape(mixed, Shape{1, kWindow, kWidth}), name + ".out", kWidth);
  }

  Tracer& tracer_;
};

Program traced(const std::function<void(SmallFlow&)>& change = {}) {
  Tracer tracer("flow");
  SmallFlow flow(tracer);
  if (change) change(flow);
  flow.trace();
  return tracer.take();
}

// Parameters that depend on their names, and caches that initially contain NaN.
class Memory : public TensorBinding {
 public:
  void* parameter(const std::string& name, const TensorType& type) override {
    std::vector<float>& values = all_[name];
    if (!values.empty()) return values.data();
    std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(name)));
    for (int64_t i = 0; i < type.shape.count(); ++i)
      values.push_back(name.starts_with("cache.") ? std::nanf("")
                                                  : static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
    return values.data();
  }

 private:
  std::map<std::string, std::vector<float>> all_;
};

std::vector<int32_t> some_text() {
  std::vector<int32_t> text;
  for (int32_t i = 0; i < kWindow; ++i) text.push_back((i * i + 3 * i) % static_cast<int32_t>(kSymbols));
  return text;
}

// Returns the scores after every symbol, in runs of these lengths.
std::vector<float> continued(const Program& window, const std::vector<int64_t>& runs, const char* device) {
  Memory memory;
  const auto executor = make_sequential_executor();
  CompileOptions options;
  options.device = device;
  std::vector<float> all;
  const std::vector<int32_t> text = some_text();
  std::map<int64_t, std::unique_ptr<Executable>> plans;
  int32_t start = 0;
  for (const int64_t count : runs) {
    std::unique_ptr<Executable>& plan = plans[count];
    if (!plan) {
      const ContinuedProgram program = continue_sequence(window, "text", {kWindow, count});
      REQUIRE(program.refused.empty());
      plan = compile(program.program, &memory, *executor, options);
    }
    std::vector<const void*> inputs;
    for (const std::string& name : plan->input_names())
      inputs.push_back(name == "start" ? static_cast<const void*>(&start) : text.data() + start);
    plan->run(inputs.data());
    const HTensor& scores = plan->output("scores");
    REQUIRE(scores.shape() == Shape{1, count, kSymbols});
    all.insert(all.end(), scores.data<float>(), scores.data<float>() + scores.size());
    start += static_cast<int32_t>(count);
  }
  return all;
}
std::vector<float> whole(const Program& window, const char* device) {
  Memory memory;
  const auto executor = make_sequential_executor();
  CompileOptions options;
  options.device = device;
  const auto plan = compile(window, &memory, *executor, options);
  const std::vector<int32_t> text = some_text();
  const void* input = text.data();
  plan->run(&input);
  const HTensor& scores = plan->output("scores");
  return {scores.data<float>(), scores.data<float>() + scores.size()};
}
std::string refusal(const std::function<void(SmallFlow&)>& change) {
  return continue_sequence(traced(change), "text", {kWindow, 1}).refused;
}

}  // namespace

TEST_CASE("continue_sequence: scores are those of the whole window, symbol by symbol and in chunks") {
  const auto windows = [](SmallFlow& f) { f.attention.set("window", int64_t{7}).set("softcap", 3.0); };
  const auto moved = [](SmallFlow& f) {  // layouts, reductions and tables that do not mix positions
    f.extra = [](const HTensor& x) {
      const HTensor turned = transpose(reshape(x, Shape{kWindow, kWidth}), {1, 0});
      const HTensor mean = broadcast(reduce_mean(turned, {0}, true), turned.shape());
      const HTensor back = reshape(transpose(turned - mean, {1, 0}), Shape{1, kWindow, kWidth});
      return concat({slice_axis(back, 2, 8, kWidth), slice_axis(x, 2, 0, 8)}, 2) +
             broadcast(iota(DType::F32, {kWidth}, 0), x.shape());
    };
  };
  for (const std::function<void(SmallFlow&)>& change :
       {std::function<void(SmallFlow&)>(), std::function<void(SmallFlow&)>(windows),
        std::function<void(SmallFlow&)>(moved)}) {
    const Program window = traced(change);
    for (const char* device : {"cpu", "reference"}) {
      const std::vector<float> expected = whole(window, device);
      std::vector<int64_t> single(kWindow, 1);
      for (const std::vector<int64_t>& runs :
           {single, std::vector<int64_t>{32, 8}, std::vector<int64_t>{8, 1, 1, 20, 1, 9}, {kWindow}}) {
        const std::vector<float> found = continued(window, runs, device);
        REQUIRE(found.size() == expected.size());
        float most = 0;
        for (size_t i = 0; i < found.size(); ++i) {
          REQUIRE(std::isfinite(found[i]));
          most = std::max(most, std::abs(found[i] - expected[i]));
        }
        CHECK(most < 2e-4f);
      }
    }
  }
}

TEST_CASE("continue_sequence: caches are written in place") {
  const ContinuedProgram one = continue_sequence(traced(), "text", {kWindow, 1});
  REQUIRE(one.refused.empty());
  CHECK(one.program.updates.size() == 4);
  Memory memory;
  const auto executor = make_sequential_executor();
  const auto plan = compile(one.program, &memory, *executor);
  size_t appended = 0;
  for (const PlanStep& step : plan->steps()) {
    if (step.what != "cache_append") continue;
    ++appended;
    CHECK(step.in_place);
  }
  CHECK(appended == 4);
}

TEST_CASE("continue_sequence: what mixes positions is refused with its place") {
  CHECK(refusal([](SmallFlow& f) { f.attention.set("causal", false); }) == "attention at 'a' is not causal");
  CHECK(refusal([](SmallFlow& f) { f.extra = [](const HTensor& x) { return x - reduce_mean(x, {1}, true); }; }) ==
        "reduce_sum reduces over positions");
  CHECK(refusal([](SmallFlow& f) {
          f.extra = [](const HTensor& x) { return x + broadcast(iota(DType::F32, {kWindow, 1}, 0), x.shape()); };
        }) == "add uses a table of the window's positions");
  CHECK(refusal([](SmallFlow& f) { f.extra = [](const HTensor& x) { return reverse(x, {1}); }; }) ==
        "reverse moves positions");
  CHECK(refusal([](SmallFlow& f) { f.extra = [](const HTensor& x) { return cumsum(x, 1); }; }) ==
        "cumsum is not computed position by position");
  CHECK(refusal([](SmallFlow& f) {
          f.extra = [](const HTensor& x) {
            return one("softmax", {}, {x + matmul(matmul(x, transpose(x, {0, 2, 1})), x)});
          };
        }) == "dot multiplies positions by each other");
  CHECK(continue_sequence(traced(), "words", {kWindow, 1}).refused == "it does not read 'words'");
  CHECK(continue_sequence(traced(), "text", {kWindow + 1, 1}).refused ==
        "'text' is [1, 40], not a window of one sequence");
}
