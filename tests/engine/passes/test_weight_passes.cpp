// transpose_weights and fuse_updates: equal results from different layouts.
#include <catch2/catch.hpp>

#include <algorithm>

#include <harmonics/ops.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"

#include "engine/program/print.hpp"
#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

constexpr int64_t kIn = 5, kHidden = 40, kOut = 3;

struct GradientStep {
  Program program;
  std::map<std::string, HTensor> leaves;
};

HTensor weight_numbers(const Shape& shape, int seed) {
  std::vector<float> v;
  for (int64_t i = 0; i < shape.count(); ++i) v.push_back(static_cast<float>((i * 37 + seed * 11) % 29 - 14) / 16);
  return HTensor::from(shape, v);
}

// A training step of a net with one hidden layer.
class StepTracer {
 public:
  explicit StepTracer(int64_t batch) : batch_(batch) {}

  GradientStep run(const std::string& optimizer, bool clipped) {
    const HTensor x = leaf("x", {batch_, kIn}, false), target = leaf("t", {batch_, kOut}, false);
    const HTensor h = apply("relu", {}, {map(map(x, "a", kIn, kHidden, true), "b", kHidden, kHidden, true)}).at(0);
    const HTensor y = map(h, "c", kHidden, kOut, false);
    const HTensor loss = reduce_sum((y - target) * (y - target), {0, 1});
    tracer_.output("loss", loss);
    std::vector<HTensor> weights;
    for (const char* name : {"a", "b", "c"}) weights.push_back(parameters_.at(name));
    std::vector<HTensor> gradients = gradient(tracer_, loss, weights);
    TraceScope scope({"", Phase::optimizer});
    HTensor factor;
    if (clipped) {
      HTensor squares;
      for (const HTensor& g : gradients)
        squares = squares ? squares + reduce_sum(g * g, {0, 1}) : reduce_sum(g * g, {0, 1});
      factor = 1.0 / sqrt(squares);
    }
    const HTensor lr = leaf("@lr", {}, false), one = tracer_.input("@step", {DType::I64, {}});
    result_.leaves["@step"] = HTensor::from<int64_t>({}, {1});
    for (size_t i = 0; i < gradients.size(); ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      const HTensor g = clipped ? gradients[i] * factor : gradients[i];
      std::vector<HTensor> inputs{weights[i], g};
      if (optimizer == "adam")
        for (const char* m : {"m", "v"}) inputs.push_back(leaf(m + name, weights[i].shape(), true));
      inputs.push_back(lr);
      if (optimizer == "adam") inputs.push_back(one);
      const Values next = apply(optimizer, {}, inputs);
      tracer_.update(name, next[0]);
      if (optimizer == "adam") tracer_.update("m" + name, next[1]), tracer_.update("v" + name, next[2]);
    }
    result_.program = dce(cse(tracer_.take()));
    return std::move(result_);
  }

 private:
  HTensor leaf(const std::string& name, const Shape& shape, bool state) {
    const HTensor value = weight_numbers(shape, static_cast<int>(name.back()));
    result_.leaves[name] = state ? value * value : value;
    return state ? tracer_.state(name, {DType::F32, shape}) : tracer_.input(name, {DType::F32, shape});
  }
  HTensor map(const HTensor& x, const std::string& name, int64_t in, int64_t out, bool active) {
    result_.leaves[name] = weight_numbers({out, in}, static_cast<int>(out));
    parameters_[name] = tracer_.parameter(name, {DType::F32, {out, in}});
    const HTensor y = apply("linear", {}, {x, parameters_[name]}).at(0);
    return active ? apply("relu", {}, {y}).at(0) : y;
  }

  int64_t batch_;
  Tracer tracer_{"step"};
  GradientStep result_;
  std::map<std::string, HTensor> parameters_;
};

HTensor exchanged(const HTensor& x) { return transpose(x, {1, 0}); }
bool is_transposed(const Program& p, const std::string& name) {
  for (Op op : {Op::parameter, Op::state})
    if (const Node* leaf = p.leaf(op, name)) return leaf->attributes.flag("transposed");
  return false;
}

// Returns outputs and updates, the latter in the declared layout.
std::vector<std::vector<float>> weight_results(const Program& program, std::map<std::string, HTensor> leaves) {
  for (auto& [name, value] : leaves)
    if (is_transposed(program, name)) value = exchanged(value);
  const Values values = interpret(program, leaves);
  std::map<std::string, std::vector<float>> sorted;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool update = i >= program.outputs.size();
    const std::string name = update ? program.updates[i - program.outputs.size()].name : program.outputs[i].name;
    const HTensor natural = update && is_transposed(program, name) ? exchanged(values[i]) : values[i];
    sorted[name] = {natural.data<float>(), natural.data<float>() + natural.size()};
  }
  std::vector<std::vector<float>> all;
  for (auto& [name, numbers] : sorted) all.push_back(numbers);
  return all;
}

void check_close(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].size() == b[i].size());
    for (size_t j = 0; j < a[i].size(); ++j) CHECK(a[i][j] == Approx(b[i][j]).margin(2e-5).epsilon(2e-5));
  }
}

size_t weight_calls(const Program& p, const std::string& name) {
  return static_cast<size_t>(
      std::count_if(p.nodes.begin(), p.nodes.end(), [&](const Node& n) { return n.callee == name; }));
}
size_t ops(const Program& p, Op op) {
  return static_cast<size_t>(std::count_if(p.nodes.begin(), p.nodes.end(), [&](const Node& n) { return n.op == op; }));
}
bool preferred(const std::string&, const TensorType&, bool likes) { return likes; }
Program inlined(const Program& p) {
  return dce(cse(simplify(
      inline_calls(p, [](const Program&, const Node& n) { return n.callee == "sgd" || n.callee == "linear"; }))));
}

}  // namespace

TEST_CASE("transpose_weights: affine maps use [in, out] without transposes") {
  for (const char* optimizer : {"sgd", "adam"})
    for (bool clipped : {false, true}) {
      INFO(optimizer << (clipped ? " clipped" : ""));
      const GradientStep step = StepTracer(4).run(optimizer, clipped);
      const Program p = transpose_weights(step.program, preferred);
      CHECK(is_transposed(p, "a"));
      CHECK(is_transposed(p, "b"));
      CHECK_FALSE(is_transposed(p, "c"));  // three outputs are too few
      CHECK(is_transposed(p, "ma") == (optimizer == std::string("adam")));
      CHECK(ops(p, Op::transpose) == 0);
      check_close(weight_results(p, step.leaves), weight_results(step.program, step.leaves));
      const Program read = parse_program(print(p), "step");
      CHECK(print(read) == print(p));
    }
}

TEST_CASE("transpose_weights: programs that share weights agree on the layout") {
  const GradientStep step = StepTracer(4).run("adam", true);
  for (int pattern = 0; pattern < 32; ++pattern) {
    // Earlier programs may have decided either layout of each leaf.
    const Program p = transpose_weights(step.program, [&](const std::string& name, const TensorType&, bool) {
      return (pattern >> (name.size() == 2 ? 2 + (name[0] == 'v') : name[0] - 'a') & 1) != 0;
    });
    INFO("pattern " << pattern);
    REQUIRE_NOTHROW(verify(p));
    check_close(weight_results(p, step.leaves), weight_results(step.program, step.leaves));
  }
}

TEST_CASE("transpose_weights: a weight with other readers keeps its layout") {
  Tracer tracer("tied");
  const HTensor w = tracer.parameter("w", {DType::F32, {40, 40}}), x = tracer.input("x", {DType::F32, {2, 40}});
  tracer.output("y", apply("linear", {}, {x, w}).at(0));
  tracer.output("n", reduce_max(w, {1}));
  const Program p = tracer.take();
  CHECK_FALSE(is_transposed(transpose_weights(p, preferred), "w"));
  // If it is stored transposed anyway, it is transposed back for that reader.
  const Program turned = transpose_weights(p, [](const std::string&, const TensorType&, bool) { return true; });
  CHECK(ops(turned, Op::transpose) == 1);
  const std::map<std::string, HTensor> leaves{{"w", weight_numbers({40, 40}, 3)}, {"x", weight_numbers({2, 40}, 1)}};
  check_close(weight_results(turned, leaves), weight_results(p, leaves));
}

TEST_CASE("fuse_updates: gradient and descent become one step") {
  const GradientStep step = StepTracer(4).run("sgd", false);
  const Program p = inlined(transpose_weights(step.program, preferred));
  const Program fused = fuse_updates(p, [](const auto&...) { return true; });
  CHECK(weight_calls(fused, "sgd") == 0);
  CHECK(weight_calls(fused, "sgd_outer") == 3);
  CHECK(ops(fused, Op::dot) == 2);  // gradients of the two hidden layers
  check_close(weight_results(fused, step.leaves), weight_results(step.program, step.leaves));
  const Program refused = fuse_updates(p, [](const auto&...) { return false; });
  CHECK(weight_calls(refused, "sgd") == 3);
}

TEST_CASE("fuse_updates: a single sample adds the input's gradient") {
  const GradientStep step = StepTracer(1).run("sgd", false);
  const Program p = inlined(transpose_weights(step.program, preferred));
  const Program fused = fuse_updates(p, [](const auto&...) { return true; });
  CHECK(weight_calls(fused, "sgd_outer") == 3);
  size_t active = 0;
  for (const Node& n : fused.nodes)
    active += n.callee == "sgd_outer" && n.attributes.text("input_gradient", "") == "active";
  CHECK(active == 1);  // b; a's input is not computed by the net, c is not transposed
  check_close(weight_results(fused, step.leaves), weight_results(step.program, step.leaves));
}

TEST_CASE("fuse_updates: an optimizer with moments and the product become one step") {
  for (const int64_t batch : {1, 4}) {
    const GradientStep step = StepTracer(batch).run("adam", false);
    const Program p =
        dce(cse(simplify(inline_calls(transpose_weights(step.program, preferred), [](const Program&, const Node& n) {
          return n.callee == "adam" || n.callee == "linear";
        }))));
    const Program fused = fuse_updates(p, [](const auto&...) { return true; });
    INFO("batch " << batch);
    REQUIRE_NOTHROW(verify(fused));
    CHECK(weight_calls(fused, "adam") == 0);
    CHECK(weight_calls(fused, "update_outer") == 3);
    size_t active = 0;
    for (const Node& n : fused.nodes)
      active += n.callee == "update_outer" && n.attributes.text("input_gradient", "") == "active";
    CHECK(active == (batch == 1 ? 1 : 0));
    check_close(weight_results(fused, step.leaves), weight_results(step.program, step.leaves));
    const Program refused = fuse_updates(p, [](const auto&...) { return false; });
    CHECK(weight_calls(refused, "adam") == 3);
    const GradientStep clipped = StepTracer(batch).run("adam", true);
    CHECK(weight_calls(fuse_updates(clipped.program, [](const auto&...) { return true; }), "update_outer") == 0);
  }
}

TEST_CASE("fuse_updates: a clipped gradient is not fused") {
  const GradientStep clipped = StepTracer(4).run("sgd", true);
  CHECK(weight_calls(fuse_updates(inlined(clipped.program), [](const auto&...) { return true; }), "sgd_outer") == 0);
}
