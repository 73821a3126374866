// Differentiation of a traced entry, whichever front end traced it: Program to Program.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <harmonics/budget.hpp>

#include "engine/model/entry_results.hpp"
#include "engine/program/chooser.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

struct DifferentiateSettings {
  Chooser* chooser = nullptr;  // see gradient()
  Budget* steps = nullptr;     // charged for every node; null: no budget
};

// Name of the output that holds a parameter's gradient for one part of the loss.
std::string gradient_output(const std::string& parameter, size_t part = 0);
bool is_gradient_output(const std::string& output);

// Adds the output gradient_output(NAME) for every parameter in `wrt`: zeros if the loss does not depend on it. Throws
// ErrorKind::Name for an output or a parameter that the program lacks; other errors are those of gradient().
Program differentiate(Program entry, const std::string& loss, const std::vector<std::string>& wrt,
                      const DifferentiateSettings& settings = {});
// Same for several parts of a loss. A part is a list of objectives, whose gradients are summed; each part has its own
// gradient outputs.
Program differentiate(Program entry, const std::vector<std::vector<Objective>>& parts,
                      const DifferentiateSettings& settings = {});

// Returns the names of floating-point parameters, in program order.
std::vector<std::string> differentiable_parameters(const Program& program);
// Returns the names of lookup tables: parameters that the program indexes by row.
std::set<std::string> looked_up_parameters(const Program& program);

}  // namespace harmonics::engine
