// scan: a loop whose step is a separate program, Node::body.
//
// Operands: the initial carries, the constants, then xs [length, ...]. The body maps inputs "0", "1" ... (carries...,
// constants..., slices of xs...) to outputs "0", "1" ... (carries..., ys...); it has no parameters and no states.
// Results: the final carries, then ys [length, ...]. Attributes: {carries, constants, length, reverse}. A reverse scan
// begins at the last slice; each y is stored at the index of its slice.
#pragma once

#include <functional>
#include <vector>

#include "engine/program/functional.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

// Numbers of operands and results of a scan node.
struct ScanLayout {
  size_t carries, constants, xs, ys;
  int64_t length;
  bool reverse;

  explicit ScanLayout(const Node& node);
  size_t steady() const { return carries + constants; }  // operands before xs
  int64_t place(int64_t step) const { return reverse ? length - 1 - step : step; }
};

// Computes the body's results from its operands: carries..., constants..., slices of xs...
using ScanBody = std::function<Values(const Values& operands)>;

// Traces the body and applies the scan: recorded if an operand is traced, otherwise computed. `length` must be given if
// there are no xs, whose length it otherwise is. Values of an enclosing trace that the body uses become constants.
Values scan(const ScanBody& body, const Values& carries, const Values& constants, const Values& xs,
            bool reverse = false, int64_t length = -1);

// Returns the result types. Throws ErrorKind::Shape or Type if operands and body do not match.
std::vector<TensorType> infer_scan(const Node& node, const std::vector<TensorType>& inputs);
Values evaluate_scan(const Node& node, const std::vector<TensorType>& types, const Values& inputs);

// Adds the carries before every step to the results of the node, because its gradient reads them.
void save_carries(Program& program, Node& node);
// Traces the gradients of the operands that are `wanted`: a scan in the opposite direction over the gradient of the
// body, which recomputes each step from its saved carries.
std::vector<HTensor> gradient_scan(const Node& node, const std::vector<HTensor>& inputs,
                                   const std::vector<HTensor>& outputs, const std::vector<HTensor>& output_gradients,
                                   const std::vector<bool>& wanted, Chooser* chooser);

}  // namespace harmonics::engine
