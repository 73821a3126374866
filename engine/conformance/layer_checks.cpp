// Checks of layers, which are traced and have parameters.
#include <cmath>
#include <optional>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/conformance/gradient_check.hpp"
#include "engine/conformance/item_checks.hpp"
#include "engine/contract/plugin_functions.hpp"
#include "engine/plugin/scope.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/print.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

// The scope of the layer under test, without a graph.
class StandIn final : public hx_scope {
 public:
  StandIn(Tracer& tracer, bool training, uint32_t leading) : tracer_(tracer), training_(training), leading_(leading) {}
  HTensor parameter(const std::string& name, const TensorType& type, const hx_init&) override {
    return parameters[name] = tracer_.parameter(name, type);
  }
  HTensor state(const std::string& name, const TensorType& type, const hx_init&) override {
    return tracer_.state(name, type);
  }
  void update(const std::string& name, const HTensor& value) override { tracer_.update(name, value); }
  HTensor random(const Shape& shape) override { return tracer_.input("random", {DType::F32, shape}); }
  bool training() const override { return training_; }
  uint32_t leading() const override { return leading_; }
  void set_leading(uint32_t axes) override { leading_ = axes; }
  int64_t width() override { return 4; }
  int64_t classes() override { return 5; }

  std::map<std::string, HTensor> parameters;

 private:
  Tracer& tracer_;
  bool training_;
  uint32_t leading_;
};

struct Sample {
  TensorType type;
  uint32_t leading;
};
// Features, positions with features, images.
const std::vector<Sample> kSamples = {
    {{DType::F32, {3, 6}}, 1}, {{DType::F32, {3, 5, 4}}, 2}, {{DType::F32, {3, 2, 8, 8}}, 1}};
// Symbols in the type of a stream, for layers that take classes.
const std::vector<Sample> kSymbols = {{{DType::I64, {3, 5}}, 2}, {{DType::I32, {3, 5}}, 2}, {{DType::U8, {3, 5}}, 2}};

Program trace(const ItemPtr& item, const Sample& sample, bool training, bool differentiate) {
  const AttributeMap arguments = arguments_to_try(*item);
  Tracer tracer("check");
  StandIn scope(tracer, training, sample.leading);
  const HTensor x = tracer.input("x", sample.type);
  std::vector<std::pair<std::string, HTensor>> layers;
  for (const ArgumentSpec& a : item->arguments)
    if (a.type == HX_ARG_LAYER && a.required) layers.emplace_back(a.name, x);
  const HTensor y = call_layer(item, arguments, layers, scope, x);
  tracer.output("y", y);
  if (differentiate) {
    std::vector<HTensor> wrt;
    for (const auto& [name, p] : scope.parameters) wrt.push_back(p);
    if (is_float(sample.type.dtype)) wrt.push_back(x);
    std::vector<int64_t> axes;
    for (uint32_t i = 0; i < y.rank(); ++i) axes.push_back(i);
    const std::vector<HTensor> gradients = gradient(tracer, reduce_sum(y, axes), wrt);
    for (size_t i = 0; i < gradients.size(); ++i) tracer.output("d" + std::to_string(i), gradients[i]);
  }
  return tracer.take();
}

HTensor drawn(const TensorType& type, uint64_t seed) {
  return is_float(type.dtype) ? random_tensor(type.shape, seed, 0.1, 0.9, type.dtype)
                              : cast(random_indices(type.shape, seed, 4), type.dtype);
}

HTensor run(const Program& program, const HTensor& x, uint64_t seed) {
  std::map<std::string, HTensor> leaves;
  for (const Node& node : program.nodes)
    if (node.op == Op::parameter || node.op == Op::state || node.op == Op::input) {
      const std::string& name = node.callee;
      leaves[name] = name == "x" ? x : drawn(program.type(node.outputs.at(0)), seed + name.size());
    }
  return interpret(program, leaves).at(0);
}

Sample of_batch(const Sample& sample, int64_t batch) {
  std::vector<int64_t> dims = sample.type.shape.vector();
  dims[0] = batch;
  return {{sample.type.dtype, Shape(dims)}, sample.leading};
}

}  // namespace

void check_layer(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  std::vector<Sample> taken;
  attempt(log, "takes samples and keeps the batch axis", [&]() -> Finding {
    std::string accepted, refused, symbol;
    size_t symbols = 0;
    const auto offer = [&](const Sample& sample) {
      try {
        trace(item, sample, false, false);
        taken.push_back(sample);
        accepted += (accepted.empty() ? "" : ", ") + sample.type.str();
        return true;
      } catch (const Error& e) {
        if (refused.empty()) refused = e.what();
        symbol = fmt::format("{}: {}", sample.type.str(), e.what());
        return false;
      }
    };
    for (const Sample& sample : kSamples) offer(sample);
    if (item->flags & HX_TAKES_CLASSES)
      for (const Sample& sample : kSymbols) symbols += offer(sample);
    if (symbols > 0 && symbols < kSymbols.size())
      throw Error(ErrorKind::Plugin, fmt::format("takes {}, but not {}", accepted, symbol))
          .note("flows hand symbols over in the stream's own type, bytes among them: cast(x, DType::I64)");
    if (taken.empty())
      throw Error(ErrorKind::Plugin, refused).note("it should accept one of features, sequences, pictures and symbols");
    return {Outcome::Passed, accepted, ""};
  });
  if (taken.empty()) return;
  const Sample& sample = taken.front();
  attempt(log, "is the same program each time", [&]() -> Finding {
    const std::string once = print(trace(item, sample, true, false)), twice = print(trace(item, sample, true, false));
    if (once == twice) return {};
    return {Outcome::Failed, "two traces differ",
            "a body is run once while compiling: let it depend only on shapes and arguments"};
  });
  attempt(log, "treats samples independently when it does not train", [&]() -> Finding {
    const HTensor x = drawn(sample.type, settings.seed);
    const HTensor all = run(trace(item, sample, false, false), x, settings.seed);
    const Program one = trace(item, of_batch(sample, 1), false, false);
    const int64_t batch = sample.type.shape[0];
    for (int64_t i = 0; i < batch; ++i) {
      const size_t in = type_of(x).bytes() / static_cast<size_t>(batch);
      const HTensor y = run(one,
                            HTensor(x.dtype(), of_batch(sample, 1).type.shape,
                                    static_cast<const std::byte*>(x.bytes()) + static_cast<size_t>(i) * in),
                            settings.seed);
      for (int64_t k = 0; k < y.size(); ++k) {
        const double a = y.data<float>()[k], b = all.data<float>()[i * y.size() + k];
        if (!(std::abs(a - b) <= 1e-5 + 1e-5 * std::abs(b)))
          return {Outcome::Failed, fmt::format("sample {} alone gives {:.6g} where the batch gives {:.6g}", i, a, b),
                  "statistics over a batch are for training: scope.training()"};
      }
    }
    return {};
  });
  attempt(log, "can be differentiated", [&]() -> Finding {
    const Program p = trace(item, sample, true, true);
    return {Outcome::Passed,
            fmt::format("{} of {}", quantity(p.outputs.size(), "output"), quantity(p.nodes.size(), "node")), ""};
  });
  attempt(log, "threads", [&]() -> Finding {
    const std::string expected = print(trace(item, sample, true, false));
    const std::string error = on_four_threads(20, [&] {
      if (print(trace(item, sample, true, false)) != expected)
        throw Error(ErrorKind::Plugin, "another program than on one thread");
    });
    if (error.empty()) return {};
    return {Outcome::Failed, error, "bodies are called from any thread: share no mutable state"};
  });
  CheckSettings fewer = settings;
  fewer.calls = settings.calls / 100;
  attempt(log, "many calls", [&] { return many_calls(fewer, [&] { trace(item, sample, true, false); }); });
}

}  // namespace harmonics::engine
