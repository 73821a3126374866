// Checks of optimizers: traced steps of parameters of several shapes, and on a quadratic function.
#include <cmath>

#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "engine/conformance/gradient_check.hpp"
#include "engine/conformance/item_checks.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/print.hpp"
#include "engine/training/plugin_optimizer.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

constexpr int64_t kSteps = 300;  // on the quadratic function
const std::vector<SteppedParameter> kParameters = {{"bias", {DType::F32, {5}}, true},
                                                   {"weight", {DType::F32, {4, 3}}, true},
                                                   {"answer.weight", {DType::F32, {3, 7}}, false},
                                                   {"kernel", {DType::F32, {2, 3, 3, 5}}, true},
                                                   {"slope", {DType::F32, {1}}, true}};

Optimizer with(const ItemPtr& item, const AttributeMap& arguments) {
  Registry registry;
  registry.add(std::const_pointer_cast<Item>(item));
  Optimizer optimizer = parse_optimizer(item->name, registry);
  for (Setting& s : optimizer.settings.values) {
    const AttributeValue* value = arguments.find(s.spec->name);
    if (value)
      s.value = std::visit(
          [](const auto& v) -> double {
            if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>)
              return static_cast<double>(v);
            else
              return 0;
          },
          *value);
  }
  optimizer.lr = optimizer.settings.number("lr");
  return optimizer;
}

Program record(const Optimizer& optimizer, const SteppedParameter& p) {
  Tracer tracer("check");
  const HTensor value = tracer.input("value", p.type), gradient = tracer.input("gradient", p.type);
  const HTensor rate = tracer.input("rate", {DType::F32, {}}), step = tracer.input("step", {DType::I64, {}});
  std::vector<HTensor> moments;
  for (const UpdateRule::Moment& m : plugin_moments(optimizer, p)) moments.push_back(tracer.input(m.name, m.type));
  const std::vector<HTensor> next = plugin_step(optimizer, p, value, gradient, moments, rate, step);
  for (size_t i = 0; i < next.size(); ++i) tracer.output(std::to_string(i), next[i]);
  return tracer.take();
}

// A parameter and its moments over several steps.
class Walk {
 public:
  Walk(const Optimizer& optimizer, const SteppedParameter& p, HTensor from)
      : value(std::move(from)), lr_(optimizer.lr), kept_(plugin_moments(optimizer, p)), program_(record(optimizer, p)) {
    for (const UpdateRule::Moment& m : kept_) leaves_[m.name] = HTensor(m.type.dtype, m.type.shape);
  }
  void step(const HTensor& gradient) {
    leaves_["value"] = value;
    leaves_["gradient"] = gradient;
    leaves_["rate"] = HTensor::from<float>({}, {static_cast<float>(lr_)});
    leaves_["step"] = HTensor::from<int64_t>({}, {++steps_});
    const Values next = interpret(program_, leaves_);
    value = next[0];
    for (size_t i = 0; i < kept_.size(); ++i) leaves_[kept_[i].name] = next[i + 1];
  }
  // Describes the first infinite or NaN value: "moment 'v' is nan after step 1"; "" if there is none.
  std::string not_finite() const {
    for (size_t i = 0; i <= kept_.size(); ++i) {
      const HTensor& t = i == 0 ? value : leaves_.at(kept_[i - 1].name);
      if (!is_float(t.dtype())) continue;
      const HTensor wide = cast(t, DType::F64);
      for (int64_t k = 0; k < wide.size(); ++k)
        if (const double v = wide.data<double>()[k]; !std::isfinite(v))
          return fmt::format("{} is {} after step {}", i == 0 ? "the parameter" : "moment '" + kept_[i - 1].name + "'",
                             v, steps_);
    }
    return "";
  }
  HTensor value;

 private:
  double lr_;
  int64_t steps_ = 0;
  std::vector<UpdateRule::Moment> kept_;
  Program program_;
  std::map<std::string, HTensor> leaves_;
};

std::string text_of(const std::vector<UpdateRule::Moment>& moments) {
  std::string text;
  for (const UpdateRule::Moment& m : moments)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", m.name, m.type.str());
  return text.empty() ? "nothing" : text;
}

Finding keeps(const Optimizer& optimizer) {
  for (const SteppedParameter& p : kParameters) {
    const std::string once = text_of(plugin_moments(optimizer, p)), twice = text_of(plugin_moments(optimizer, p));
    if (once != twice)
      return {Outcome::Failed,
              fmt::format("for '{}', {}, it keeps {}, and at a second call {}", p.name, p.type.str(), once, twice),
              "moments() depends on the parameter and the settings alone: a checkpoint is read by it"};
  }
  return {Outcome::Passed,
          fmt::format("{} for {}", text_of(plugin_moments(optimizer, kParameters[1])), kParameters[1].type.str()), ""};
}

Finding steps_alike(const Optimizer& optimizer) {
  std::string types;
  for (const SteppedParameter& p : kParameters) {
    if (print(record(optimizer, p)) != print(record(optimizer, p)))
      return {Outcome::Failed, fmt::format("two recordings of a step of {} are different programs", p.type.str()),
              "step() is recorded once: let it depend on the parameter and the settings alone; update.step counts"};
    types += (types.empty() ? "" : " ") + p.type.str();
  }
  return {Outcome::Passed, types, ""};
}

// Runs steps with random gradients. Describes the first value that is not finite; "" if there is none.
std::string walk(const Optimizer& optimizer, const SteppedParameter& p, uint64_t seed) {
  Walk w(optimizer, p, random_tensor(p.type.shape, seed, -1, 1, DType::F32));
  for (uint64_t i = 0; i < 5; ++i) {
    w.step(random_tensor(p.type.shape, seed + 1 + i, -1, 1, DType::F32));
    if (const std::string text = w.not_finite(); !text.empty()) return text;
  }
  return "";
}

Finding finite(const Optimizer& optimizer, uint64_t seed) {
  for (const SteppedParameter& p : kParameters) {
    if (const std::string text = walk(optimizer, p, seed); !text.empty())
      return {Outcome::Failed,
              fmt::format("of '{}', {}: {}, with gradients between -1 and 1", p.name, p.type.str(), text),
              "non-finite numbers persist: add a small number to divisors"};
    const HTensor none(DType::F32, p.type.shape), from = random_tensor(p.type.shape, seed, -1, 1, DType::F32);
    Walk w(optimizer, p, from);
    for (int i = 0; i < 2; ++i) w.step(none);
    if (const std::string text = w.not_finite(); !text.empty())
      return {Outcome::Failed, fmt::format("of '{}', {}: {}, with gradients of 0", p.name, p.type.str(), text),
              "parameters without influence have gradients of 0: add a small number to divisors"};
  }
  return {};
}

// Minimises the sum of c (w - t)^2 / 2 with c from 0.5 to 2.
Finding down_a_bowl(const Optimizer& optimizer, uint64_t seed) {
  std::string text;
  for (size_t i = 0; i < 2; ++i) {
    const SteppedParameter& p = kParameters[i];
    const HTensor target = random_tensor(p.type.shape, seed + 7, -1, 1, DType::F32),
                  c = random_tensor(p.type.shape, seed + 8, 0.5, 2, DType::F32);
    const auto height = [&](const HTensor& w) {
      double sum = 0;
      for (int64_t k = 0; k < w.size(); ++k)
        sum += c.data<float>()[k] * std::pow(w.data<float>()[k] - target.data<float>()[k], 2) / 2;
      return sum;
    };
    Walk w(optimizer, p, target + random_tensor(p.type.shape, seed + 9, 1, 2, DType::F32));
    const double above = height(w.value);
    for (int64_t k = 0; k < kSteps; ++k) w.step(c * (w.value - target));
    const double below = height(w.value);
    if (!(below < above))
      return {Outcome::Failed,
              fmt::format("{} steps with lr {:g} lead from {:.4g} up to {:.4g}", kSteps, optimizer.lr, above, below),
              "a step goes against the gradient; if it does, the default of lr is too large"};
    text = fmt::format("{:.3g} -> {:.3g} in {} steps with lr {:g}", above, below, kSteps, optimizer.lr);
  }
  return {Outcome::Passed, text, ""};
}

}  // namespace

void check_optimizer(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  const Optimizer optimizer = with(item, {});
  attempt(log, "keeps the same moments each time", [&] { return keeps(optimizer); });
  bool recorded = false;
  attempt(
      log, "is recorded, and keeps shape and type",
      [&] {
        const Finding f = steps_alike(optimizer);
        recorded = f.outcome == Outcome::Passed;
        return f;
      },
      "step() gives the parameter's next value and then those of the moments, each of its type");
  if (!recorded) return;
  attempt(log, "stays finite", [&] { return finite(optimizer, settings.seed); });
  attempt(log, "descends a quadratic bowl", [&] { return down_a_bowl(optimizer, settings.seed); });
  attempt(log, "accepts the values that its ranges allow", [&] {
    return at_the_ends(*item, [&](const AttributeMap& arguments) {
      return walk(with(item, arguments), kParameters[1], settings.seed);
    });
  });
  attempt(log, "threads", [&]() -> Finding {
    const std::string expected = print(record(optimizer, kParameters[1]));
    const std::string error = on_four_threads(20, [&] {
      if (print(record(optimizer, kParameters[1])) != expected)
        throw Error(ErrorKind::Plugin, "another program than on one thread");
    });
    if (error.empty()) return {};
    return {Outcome::Failed, error, "steps are recorded on any thread: share no mutable state"};
  });
  attempt(log, "many calls", [&] {
    CheckSettings fewer = settings;
    fewer.calls = settings.calls / 100;
    return many_calls(fewer, [&] { record(optimizer, kParameters[1]); });
  });
}

}  // namespace harmonics::engine
