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

// The output that differentiate() gives a parameter's gradient in one part of the loss.
std::string gradient_output(const std::string& parameter, size_t part = 0);
bool is_gradient_output(const std::string& output);

// Returns the program with the outputs gradient_output(NAME) for every parameter in `wrt`, zeros where the loss does
// not depend on it. Throws ErrorKind::Name for an output or a parameter that the program lacks; else as gradient().
Program differentiate(Program entry, const std::string& loss, const std::vector<std::string>& wrt,
                      const DifferentiateSettings& settings = {});
// Each part is a list of objectives, whose gradients are added; a part has gradients of its own.
Program differentiate(Program entry, const std::vector<std::vector<Objective>>& parts,
                      const DifferentiateSettings& settings = {});

// Names of the parameters that have gradients: those of floating-point types, in the order of the program.
std::vector<std::string> differentiable_parameters(const Program& program);
// Names of the parameters that the program looks up by row.
std::set<std::string> looked_up_parameters(const Program& program);

}  // namespace harmonics::engine
