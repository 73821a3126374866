// Programs of random flows: text round trip, before and after every pass, and in double.
#include <catch2/catch.hpp>

#include <regex>
#include <set>
#include <sstream>

#include "engine/program/interpret.hpp"
#include "engine/program/print.hpp"
#include "random_flow.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::parity;
using harmonics::engine::testing::graph_of;
using Leaves = std::map<std::string, HTensor>;

namespace {

constexpr double kPassError = 2e-5;      // passes may reorder additions in float32
constexpr double kGradientError = 1e-9;  // relative to double

// Keeps the store's tensors constant, and records which ones programs want transposed.
class Weights : public TensorBinding {
 public:
  explicit Weights(const ParameterStore& store) : store_(store) {
    for (const auto& [name, t] : store.all()) {
      const HTensor now = store.tensor(name);
      held_[name] = HTensor(now.dtype(), now.shape(), now.bytes());
    }
  }
  void* parameter(const std::string& name, const TensorType&) override { return held_.at(name).raw()->storage->data(); }
  Layout layout(const std::string& name, const TensorType&, Layout preferred) override {
    if (preferred == Layout::transposed) turned_.insert(name);
    return is_turned(name) ? Layout::transposed : Layout::natural;
  }
  bool is_turned(const std::string& name) const { return turned_.count(name) != 0; }
  HTensor leaf(const std::string& name) const {
    return is_turned(name) ? transpose(held_.at(name), {1, 0}) : held_.at(name);
  }
  const std::map<std::string, HTensor>& all() const { return held_; }

 private:
  const ParameterStore& store_;
  std::map<std::string, HTensor> held_;
  std::set<std::string> turned_;
};

struct Traced {
  std::unique_ptr<BoundGraph> graph;
  Program program;
  Leaves inputs;
  int64_t batch = 0;
};

HTensor first_rows(const HTensor& t, int64_t n) {
  Shape shape{n};
  for (int64_t d : t.shape().from(1)) shape.push_back(d);
  return HTensor(t.dtype(), shape, t.bytes());
}

// Traces a step of plain SGD with learning rate 1, or inference, on the first samples of a part.
Traced trace(const TensorFile& file, const RandomFlow& flow, Mode mode) {
  const std::string part = mode == Mode::infer ? "infer" : "train";
  Traced t{mode == Mode::infer ? inference_of(flow) : graph_of(flow.text), {}, {}};
  bind_part(*t.graph, t.graph->streams(), file, flow, part, mode != Mode::infer);
  const auto data = below(file, flow.name + "/" + part);
  t.batch = std::min(flow.batch, data.begin()->second.shape()[0]);
  LoweringOptions o;
  o.mode = mode;
  o.batch = t.batch;
  o.seed = static_cast<uint64_t>(flow.seed);
  o.optimizer = parse_optimizer("sgd");
  t.program = t.graph->lower(o).program;
  for (const Node* n : t.program.leaves(Op::input)) {
    const TensorType& type = t.program.type(n->outputs[0]);
    if (n->callee == "@lr")
      t.inputs["@lr"] = HTensor::scalar(1.0f);
    else if (n->callee == "@counter")
      t.inputs["@counter"] = HTensor::from<int64_t>({2}, {flow.seed, 1});
    else
      t.inputs[n->callee] = reshape(cast(first_rows(data.at(n->callee), t.batch), type.dtype), type.shape);
  }
  return t;
}

void check_read_back(const Program& program) {
  const std::string text = print(program);
  CHECK(print(parse_program(text, "printed")) == text);
}

// Returns outputs and updates by name; updates in the declared layout.
std::map<std::string, HTensor> results_of(const Program& program, const Leaves& inputs, const Weights& weights) {
  Leaves leaves = inputs;
  for (Op op : {Op::parameter, Op::state})
    for (const Node* n : program.leaves(op)) leaves[n->callee] = weights.leaf(n->callee);
  const Values values = interpret(program, leaves);
  std::map<std::string, HTensor> results;
  size_t i = 0;
  for (const NamedValue& v : program.outputs) results["output " + v.name] = values.at(i++);
  for (const NamedValue& v : program.updates) {
    const HTensor& value = values.at(i++);
    results["update " + v.name] = weights.is_turned(v.name) ? transpose(value, {1, 0}) : value;
  }
  return results;
}

void check_passes(const TensorFile& file, const RandomFlow& flow, Mode mode) {
  const Traced t = trace(file, flow, mode);
  Weights weights(t.graph->store());
  check_read_back(t.program);
  const auto expected = results_of(t.program, t.inputs, weights);
  CompileOptions options = t.graph->compile_options({}, mode == Mode::train);
  size_t passes = 0;
  std::string before = print(t.program);
  options.observe = [&](const std::string& pass, const Program& program) {
    INFO("after " << pass);
    ++passes;
    const std::string text = print(program);
    if (text == before) return;
    before = text;
    check_read_back(program);
    const auto found = results_of(program, t.inputs, weights);
    CHECK(found.size() == expected.size());
    for (const auto& [name, value] : expected) {
      INFO(name);
      REQUIRE(found.count(name));
      CHECK(relative_error(found.at(name), value) <= kPassError);
    }
  };
  const auto executor = make_sequential_executor();
  compile(t.program, &weights, *executor, options);
  CHECK(passes > 10);
}

// Returns the program with f64 in place of f32. Values with a fixed type are cast.
Program in_double(const Program& program) {
  static const std::regex typed(R"((%)(\d+)(: )f32(\[[^\]]*\])( = (?:random_uniform|one_hot)\(.*))"), single("f32");
  std::istringstream lines(print(program));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    if (std::regex_search(line, m, typed)) {
      const std::string id = m[2], shape = m[4];
      text += "%9000" + id + ": f32" + shape + m[5].str() + "\n";
      line = "%" + id + ": f64" + shape + " = cast(%9000" + id + ") {dtype = f64}";
    } else {
      line = std::regex_replace(line, single, "f64");
    }
    text += line + "\n";
  }
  return parse_program(text, "in double");
}
HTensor doubled(const HTensor& x) { return x.dtype() == DType::F32 ? cast(x, DType::F64) : x; }

void check_gradients(const TensorFile& file, const RandomFlow& flow) {
  const Traced t = trace(file, flow, Mode::train);
  const Program program = in_double(t.program);
  Leaves leaves;
  for (const auto& [name, value] : t.inputs) leaves[name] = doubled(value);
  for (Op op : {Op::parameter, Op::state})
    for (const Node* n : program.leaves(op)) leaves[n->callee] = doubled(t.graph->store().tensor(n->callee));
  const Values values = interpret(program, leaves);
  std::map<std::string, HTensor> gradients;
  for (size_t i = 0; i < program.updates.size(); ++i) {
    const std::string& name = program.updates[i].name;
    gradients[name] = leaves.at(name) - values.at(program.outputs.size() + i);
  }
  for (const auto& [path, expected] : below(file, flow.name + "/gradient")) {
    INFO(path);
    REQUIRE(gradients.count(path));
    CHECK(difference(gradients.at(path), expected, {kGradientError, kGradientError}) == "");
  }
}

}  // namespace

TEST_CASE("random flows: programs read back exactly, passes keep their results") {
  const TensorFile file = golden("random_flows.safetensors");
  for (const RandomFlow& flow : random_flows(file)) {
    DYNAMIC_SECTION(flow.name) {
      INFO(flow.text);
      check_passes(file, flow, Mode::train);
      check_passes(file, flow, Mode::infer);
    }
  }
}

TEST_CASE("random flows: gradients in double equal PyTorch's") {
  const TensorFile file = golden("random_flows.safetensors");
  for (const RandomFlow& flow : random_flows(file)) {
    DYNAMIC_SECTION(flow.name) {
      INFO(flow.text);
      check_gradients(file, flow);
    }
  }
}
