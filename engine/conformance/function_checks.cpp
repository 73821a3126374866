// Checks of activations and losses, which are pure functions.
#include <cmath>

#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "engine/conformance/gradient_finding.hpp"
#include "engine/conformance/item_checks.hpp"
#include "engine/contract/plugin_functions.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;
using FunctionCall = std::function<HTensor(const HTensor&)>;

const std::vector<Shape> kFunctionShapes = {{1, 1}, {7}, {3, 5}, {2, 3, 5}, {1, 2, 4, 3}};

std::string list_of_shapes() {
  std::string s;
  for (const Shape& shape : kFunctionShapes) s += (s.empty() ? "" : " ") + shape.str();
  return s;
}

// Evaluates the function in a traced program, as a step does.
HTensor through_a_program(const FunctionCall& f, const HTensor& x) {
  Tracer tracer("check");
  tracer.output("y", f(tracer.input("x", type_of(x))));
  return interpret(tracer.take(), {{"x", x}}).at(0);
}

Finding repeats(const FunctionCall& f, const HTensor& x) {
  const HTensor copy = HTensor(x.dtype(), x.shape(), x.bytes());
  const HTensor once = f(x), twice = f(x);
  if (!same_bits(once, twice))
    return {Outcome::Failed, "the same numbers gave two different results",
            "keep no state between calls and draw no random numbers"};
  if (!same_bits(x, copy))
    return {Outcome::Failed, "it wrote to its input", "copy before writing: mutable_data() of a tensor of your own"};
  if (!same_bits(once, through_a_program(f, x)))
    return {Outcome::Failed, "it computes other values in a program than when it is called directly",
            "let it depend only on its input"};
  return {};
}

Finding on_threads(const FunctionCall& f, const HTensor& x) {
  const HTensor expected = f(x);
  const std::string error = on_four_threads(100, [&] {
    if (!same_bits(f(x), expected)) throw Error(ErrorKind::Plugin, "other numbers than on one thread");
  });
  if (error.empty()) return {};
  return {Outcome::Failed, error, "bodies are called from any thread: share no mutable state"};
}

HTensor row(const HTensor& x, int64_t i) {
  std::vector<int64_t> dims = x.shape().vector();
  dims[0] = 1;
  const Shape one(dims);
  const size_t bytes = type_of(x).bytes() / static_cast<size_t>(x.shape()[0]);
  return HTensor(x.dtype(), one, static_cast<const std::byte*>(x.bytes()) + static_cast<size_t>(i) * bytes);
}

Finding by_rows(const FunctionCall& f, const HTensor& x) {
  const HTensor all = f(x);
  for (int64_t i = 0; i < x.shape()[0]; ++i)
    if (!same_bits(f(row(x, i)), row(all, i)))
      return {Outcome::Failed,
              fmt::format("sample {} alone gives other numbers than within a batch of {}", i, x.shape()[0]),
              "a sample's result must not depend on its neighbours"};
  return {};
}

Finding finite(const FunctionCall& f) {
  const std::vector<float> numbers = {0, -0.0f, 1, -1, 1e-6f, -1e-6f, 10, -10, 100, -100, 1000, -1000};
  const HTensor y = f(HTensor::from<float>({static_cast<int64_t>(numbers.size()), 1}, numbers));
  for (int64_t i = 0; i < y.size(); ++i)
    if (!std::isfinite(y.data<float>()[i]))
      return {Outcome::Noted, fmt::format("{} for {}", y.data<float>()[i], numbers[static_cast<size_t>(i)]),
              "training stops at the first number that is not finite"};
  return {};
}

// A prediction and a target as in a flow: classes are i32 if the loss takes classes; other targets are f32 and have the
// prediction's shape.
struct Pair {
  HTensor prediction, target;
  bool classes;
};

std::vector<Pair> pairs_of_flows(const Item& item, uint64_t seed) {
  const auto probabilities = [&](const Shape& shape, uint64_t more) {
    return random_tensor(shape, seed + more, 0.1, 0.9, DType::F32);
  };
  const auto classes = [&](const Shape& shape, int64_t count) {
    return cast(random_indices(shape, seed + 3, count), DType::I32);
  };
  std::vector<Pair> pairs;
  if (item.flags & HX_TAKES_CLASSES) {
    pairs.push_back({probabilities({4, 3}, 0), classes({4}, 3), true});
    pairs.push_back({probabilities({2, 4, 3}, 0), classes({2, 4}, 3), true});
  }
  if (item.flags & HX_TWO_CLASSES_IN_ONE) pairs.push_back({probabilities({4, 1}, 0), classes({4}, 2), true});
  pairs.push_back({probabilities({4, 3}, 0), probabilities({4, 3}, 2), false});
  return pairs;
}

using LossCall = std::function<HTensor(const HTensor& prediction, const HTensor& target)>;

// Sets p and target to the first accepted pair. A loss that takes classes must accept a pair with classes.
Finding takes_a_target(const Item& item, const std::vector<Pair>& pairs, const LossCall& loss, HTensor& p,
                       HTensor& target) {
  const bool takes_classes = item.flags & HX_TAKES_CLASSES;
  std::string taken, refused;
  for (const Pair& pair : pairs) {
    try {
      loss(pair.prediction, pair.target);
      if (!target && (pair.classes || !takes_classes)) p = pair.prediction, target = pair.target;
      taken += (taken.empty() ? "" : ", ") + type_of(pair.target).str();
    } catch (const Error& e) {
      if (refused.empty())
        refused = fmt::format("{} with {}: {}", type_of(pair.prediction).str(), type_of(pair.target).str(), e.what());
    }
  }
  if (target) return {Outcome::Passed, taken, ""};
  if (takes_classes)
    throw Error(ErrorKind::Plugin, "no classes: " + refused)
        .note("flows hand classes over as i32, one rank below the prediction");
  throw Error(ErrorKind::Plugin, "no numbers of the prediction's shape: " + refused)
      .note("flows hand numbers over as f32; classes, as i32, only to a loss that is registered with HX_TAKES_CLASSES");
}

}  // namespace

void check_activation(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  const AttributeMap arguments = arguments_to_try(*item);
  const FunctionCall f = [&](const HTensor& x) { return call_activation(item, arguments, x); };
  const HTensor x = random_tensor({3, 5}, settings.seed, -2, 2, DType::F32);
  attempt(log, "keeps shape and type", [&]() -> Finding {
    for (const Shape& shape : kFunctionShapes) f(random_tensor(shape, settings.seed, -2, 2, DType::F32));
    return {Outcome::Passed, list_of_shapes(), ""};
  });
  attempt(log, "depends on its input alone", [&] { return repeats(f, x); });
  attempt(log, "treats samples independently", [&] { return by_rows(f, x); });
  attempt(log, "stays finite", [&] { return finite(f); });
  attempt(log, "gradient", [&] {
    return gradient_finding([&](DType type, GradientTolerance tolerance) {
      return compare_gradient([&](const std::vector<HTensor>& in) { return std::vector<HTensor>{f(in[0])}; },
                              {random_tensor({3, 4}, settings.seed + 1, -2, 2, type)}, tolerance, type);
    });
  });
  attempt(log, "threads", [&] { return on_threads(f, x); });
  attempt(log, "many calls", [&] { return many_calls(settings, [&] { f(x); }); });
}

void check_loss(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  const AttributeMap arguments = arguments_to_try(*item);
  const std::vector<Pair> pairs = pairs_of_flows(*item, settings.seed);
  HTensor p, target;
  const auto loss = [&](const HTensor& prediction, const HTensor& t) {
    std::vector<std::pair<std::string, HTensor>> layers;
    for (const ArgumentSpec& a : item->arguments)
      if (a.type == HX_ARG_LAYER && a.required) layers.emplace_back(a.name, prediction);
    return call_loss(item, arguments, "", prediction, prediction, t, layers);
  };
  attempt(log, "takes a target", [&] { return takes_a_target(*item, pairs, loss, p, target); });
  if (!target) return;
  const FunctionCall f = [&](const HTensor& x) { return loss(x, target); };
  attempt(log, "depends on its input alone", [&] { return repeats(f, p); });
  attempt(log, "gives one number, or one for each sample", [&]() -> Finding {
    const HTensor y = f(p);
    for (int64_t i = 0; i < y.size(); ++i)
      if (!std::isfinite(y.data<float>()[i]))
        return {Outcome::Failed, fmt::format("{} for probabilities between 0.1 and 0.9", y.data<float>()[i]),
                "it must be finite there"};
    return {Outcome::Passed, type_of(y).str(), ""};
  });
  attempt(log, "gradient", [&] {
    return gradient_finding([&](DType type, GradientTolerance tolerance) {
      const HTensor t = is_float(target.dtype()) ? cast(target, type) : target;
      const auto body = [&](const std::vector<HTensor>& in) { return std::vector<HTensor>{loss(in[0], t)}; };
      return compare_gradient(body, {random_tensor(p.shape(), settings.seed + 1, 0.1, 0.9, type)}, tolerance, type);
    });
  });
  attempt(log, "threads", [&] { return on_threads(f, p); });
  attempt(log, "many calls", [&] { return many_calls(settings, [&] { f(p); }); });
}

}  // namespace harmonics::engine
