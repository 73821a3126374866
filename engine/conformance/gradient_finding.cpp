#include "engine/conformance/gradient_finding.hpp"

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

std::string text_of(const GradientMismatch& m) {
  return fmt::format("input {}, element {}: gradient {:.6g}, finite difference {:.6g}", m.input, m.element, m.gradient,
                     m.difference);
}

Finding verdict(const GradientComparison& c, const char* precision) {
  if (c.mismatches.empty())
    return {Outcome::Passed, fmt::format("{} in {}", quantity(c.compared, "derivative"), precision), ""};
  return {
      Outcome::Failed,
      fmt::format("{} of {} derivatives are off; {}", c.mismatches.size(), c.compared, text_of(c.mismatches.front())),
      "fix gradient(), or remove it if the body is written with library operations"};
}

}  // namespace

Finding gradient_finding(const std::function<GradientComparison(DType, GradientTolerance)>& compare) {
  try {
    return verdict(compare(DType::F64, {}), "double precision");
  } catch (const Error&) {
    try {
      return verdict(compare(DType::F32, {1e-2, 2e-3, 2e-2}), "single precision");
    } catch (const Error& e) {
      return {Outcome::Noted, fmt::format("it has none, so flows with it infer but do not train: {}", e.what()),
              "write it with library operations, or give it a gradient()"};
    }
  }
}

}  // namespace harmonics::engine
