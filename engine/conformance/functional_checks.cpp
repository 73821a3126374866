// Checks of functionals, whose bodies are traced for each combination of input types.
#include <algorithm>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/conformance/call_examples.hpp"
#include "engine/conformance/gradient_finding.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/print.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

constexpr const char* kPure = "a body depends on its inputs and arguments alone: keep no state between calls";

Values eager(const CallExample& call) { return apply(call.op, call.attributes, call.inputs); }

bool same_values(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const HTensor& x, const HTensor& y) { return same_bits(x, y); });
}

std::string types_text(const Values& values) {
  std::string text;
  for (const HTensor& v : values) text += (text.empty() ? "" : ", ") + type_of(v).str();
  return text;
}

// Returns "[3, 5]" for inputs of one shape, else "[3, 5]x[4, 5]".
std::string shapes_of(const CallExample& call) {
  std::string text;
  bool one = true;
  for (const HTensor& x : call.inputs) {
    text += (text.empty() ? "" : "x") + x.shape().str();
    one = one && x.shape() == call.inputs[0].shape();
  }
  return one ? call.inputs[0].shape().str() : text;
}

// Traces the body into a new program.
Program record(const CallExample& call) {
  const FunctionalPtr functional = FunctionalTable::global().find(call.op);
  Tracer tracer("check");
  Values inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    inputs.push_back(tracer.input(std::to_string(i), type_of(call.inputs[i])));
  const Values results = functional->body(call.attributes, inputs);
  for (size_t i = 0; i < results.size(); ++i) tracer.output(std::to_string(i), results[i]);
  return tracer.take();
}

Values in_a_program(const CallExample& call) {
  std::map<std::string, HTensor> leaves;
  for (size_t i = 0; i < call.inputs.size(); ++i) leaves[std::to_string(i)] = call.inputs[i];
  return interpret(record(call), leaves);
}

// Returns the call with new random inputs of the same types. Integers are kept, because they may be indices.
CallExample other_numbers(const CallExample& call, uint64_t seed) {
  CallExample other = call;
  for (HTensor& x : other.inputs)
    if (is_float(x.dtype())) x = random_tensor(x.shape(), ++seed, -2, 2, x.dtype());
  return other;
}

Finding pure(const std::vector<CallExample>& calls) {
  for (const CallExample& call : calls) {
    const Values once = eager(call), twice = eager(call);
    if (!same_values(once, twice))
      return {Outcome::Failed, fmt::format("two calls {} gave different results", call.str()), kPure};
  }
  return {};
}

Finding as_in_a_program(const std::vector<CallExample>& calls) {
  for (const CallExample& call : calls) {
    if (print(record(call)) != print(record(call)))
      return {Outcome::Failed, fmt::format("two recordings of {} are different programs", call.str()), kPure};
    const Values called = eager(call), recorded = in_a_program(call);
    if (types_text(called) != types_text(recorded))
      return {Outcome::Failed,
              fmt::format("{} gives {} when it is called and {} in a program", call.str(), types_text(called),
                          types_text(recorded)),
              "let the shapes of results follow from the shapes of inputs"};
    if (!same_values(called, recorded))
      return {Outcome::Failed,
              fmt::format("{} computes other values in a program than when it is called directly", call.str()), kPure};
  }
  return {};
}

Finding shapes_alone(const std::vector<CallExample>& calls, uint64_t seed) {
  std::string seen;
  for (const CallExample& call : calls) {
    const std::string once = types_text(eager(call));
    for (uint64_t other = 1; other <= 5; ++other)
      if (const std::string types = types_text(eager(other_numbers(call, seed + 10 * other))); types != once)
        return {Outcome::Failed, fmt::format("{} gives {} for some numbers and {} for others", call.str(), once, types),
                "results are recorded once for each kind of inputs: their shapes must not depend on numbers"};
    if (seen.empty()) seen = fmt::format("{} -> {}", call.str(), once);
  }
  return {Outcome::Passed, seen, ""};
}

// Returns whether all differing gradients are zero: blocking a gradient may be intended, a wrong one is a fault.
bool only_stops(const GradientComparison& c) {
  return std::all_of(c.mismatches.begin(), c.mismatches.end(),
                     [](const GradientMismatch& m) { return m.gradient == 0; });
}

Finding gradient_of(const Item& item, uint64_t seed) {
  GradientComparison last{};
  const Finding f = gradient_finding([&](DType type, GradientTolerance tolerance) {
    const CallExample call = calls_of_item(item, type, seed).front();
    const auto body = [&](const Values& in) { return apply(call.op, call.attributes, in); };
    return last = compare_gradient(body, call.inputs, tolerance, type);
  });
  if (f.outcome != Outcome::Failed || !only_stops(last) || last.mismatches.size() == static_cast<size_t>(last.compared))
    return f;
  return {Outcome::Noted,
          fmt::format("input {} has no gradient, though results depend on it", last.mismatches.front().input),
          "return a tensor for it from gradient(), unless this is intended"};
}

Finding on_threads(const CallExample& call) {
  const Values expected = eager(call);
  const std::string program = print(record(call));
  const std::string error = on_four_threads(50, [&] {
    if (!same_values(eager(call), expected)) throw Error(ErrorKind::Plugin, "other numbers than on one thread");
    if (print(record(call)) != program) throw Error(ErrorKind::Plugin, "another program than on one thread");
  });
  if (error.empty()) return {};
  return {Outcome::Failed, error, "bodies are called from any thread: share no mutable state"};
}

}  // namespace

void check_functional(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  std::vector<CallExample> calls;
  attempt(log, "takes inputs", [&]() -> Finding {
    try {
      calls = calls_of_item(*item, DType::F32, settings.seed);
    } catch (const Error& e) {
      return {Outcome::Noted, fmt::format("none of the tested inputs: {}", e.what()),
              "the check tries up to four inputs of one shape, or with the shapes of maps, norms and products; test "
              "other inputs yourself"};
    }
    std::string shapes;
    for (const CallExample& call : calls) shapes += (shapes.empty() ? "" : " ") + shapes_of(call);
    return {Outcome::Passed, fmt::format("{} of {}", quantity(calls[0].inputs.size(), "input"), shapes), ""};
  });
  if (calls.empty()) return;
  attempt(log, "depends on its inputs alone", [&] { return pure(calls); });
  attempt(log, "has shapes that follow from shapes", [&] { return shapes_alone(calls, settings.seed); });
  if (!attempt(log, "is recorded, and gives the same in a program", [&] { return as_in_a_program(calls); })) return;
  attempt(log, "gradient", [&] { return gradient_of(*item, settings.seed + 1); });
  attempt(log, "threads", [&] { return on_threads(calls.front()); });
  attempt(log, "many calls", [&] { return many_calls(settings, [&] { eager(calls.front()); }); });
}

}  // namespace harmonics::engine
