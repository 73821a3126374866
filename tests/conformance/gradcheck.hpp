// Compares gradients with central finite differences, for primitives, functionals and whole compositions.
#pragma once

#include <catch2/catch.hpp>

#include <harmonics/ops.hpp>
#include <harmonics/philox.hpp>

#include "engine/conformance/gradient_check.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine::testing {

using harmonics::engine::Composition;
using harmonics::engine::GradientTolerance;
using harmonics::engine::random_indices;
using harmonics::engine::random_tensor;

// Checks every element of every f64 input, and that the traced value equals the immediate one.
inline void check_gradient(const Composition& f, const Values& inputs, GradientTolerance tolerance = {}) {
  const GradientComparison c = compare_gradient(f, inputs, tolerance);
  CHECK(c.traced == Approx(c.eager).epsilon(1e-12).margin(1e-12));
  for (const GradientMismatch& m : c.mismatches) {
    INFO("input " << m.input << ", element " << m.element << ": gradient " << m.gradient << ", finite difference "
                  << m.difference);
    CHECK(m.gradient == Approx(m.difference).epsilon(tolerance.relative).margin(tolerance.absolute));
  }
  CHECK(c.mismatches.empty());
}

// Like check_gradient(), for a function with one result.
inline void check_gradient_of(const std::function<HTensor(const Values&)>& f, const Values& inputs,
                              GradientTolerance tolerance = {}) {
  check_gradient([&](const Values& in) { return Values{f(in)}; }, inputs, tolerance);
}

}  // namespace harmonics::engine::testing
