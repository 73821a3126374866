// scan: a loop whose step is a program of its own, Node::body.
//
// Operands: the initial carries, the constants, then xs [length, ...]. The body maps (carries..., constants..., slices
// of xs...), inputs named "0", "1" ..., to (carries..., ys...), outputs named likewise; it has no parameters and
// states. Results: the final carries, then ys [length, ...]. Attributes: {carries, constants, length, reverse}; a
// reverse scan begins at the last slice, and its ys lie where their slices do.
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

// The body's results from its operands: carries..., constants..., slices of xs...
using ScanBody = std::function<Values(const Values& operands)>;

// Traces the body and applies the scan: recorded if an operand is traced, else computed. `length` is that of xs; it
// must be given if there are none. Values of an enclosing trace that the body uses become further constants.
Values scan(const ScanBody& body, const Values& carries, const Values& constants, const Values& xs,
            bool reverse = false, int64_t length = -1);

// Types of the results. Throws ErrorKind::Shape or Type if operands and body do not fit.
std::vector<TensorType> infer_scan(const Node& node, const std::vector<TensorType>& inputs);
Values evaluate_scan(const Node& node, const std::vector<TensorType>& types, const Values& inputs);

// Makes the carries before every step further results of the node, which its gradient reads.
void save_carries(Program& program, Node& node);
// Gradients of the operands that are `wanted`: a scan in the other direction over the gradient of the body, which
// repeats each step from its saved carries. Traced.
std::vector<HTensor> gradient_scan(const Node& node, const std::vector<HTensor>& inputs,
                                   const std::vector<HTensor>& outputs, const std::vector<HTensor>& output_gradients,
                                   const std::vector<bool>& wanted, Chooser* chooser);

}  // namespace harmonics::engine
