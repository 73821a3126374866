// Selection of implementations for calls during compilation.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// The selection for one call site, for reports and checkpoints.
struct Selected {
  std::string op;    // functional or primitive
  std::string site;  // "attention{causal = true}(f32[...], ...) -> f32[...]"
  std::string scope;
  std::string winner;                                         // "flash of org.example.fast", "cpu", "portable"
  std::string because;                                        // "override", "plugin", "device", "body"
  std::vector<std::pair<std::string, std::string>> declined;  // other candidates and why they were not selected
};

class Chooser {
 public:
  virtual ~Chooser() = default;
  // Returns an implementation that replaces the call, with a gradient if the program trains, or null to keep the call.
  // Throws if an override cannot be satisfied.
  virtual std::shared_ptr<const HostFunction> choose(const Program& program, const Node& node) = 0;
  // Called when a call is replaced by its body in order to differentiate it.
  virtual void opened(const Program& program, const Node& call) = 0;
};

// Replaces the call or primitive by the chosen implementation, if any.
void choose_in_place(Program& program, Node& node, Chooser& chooser);

}  // namespace harmonics::engine
