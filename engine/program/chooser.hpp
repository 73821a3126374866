// Selects the implementation of calls while a program is compiled.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// The selection for one call site, for output and checkpoints.
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
  // Returns a replacement for the call, with a gradient if the program trains; null: it stays a call. Throws if an
  // override cannot be satisfied.
  virtual std::shared_ptr<const HostFunction> choose(const Program& program, const Node& node) = 0;
  // Reports that the call is replaced by its body, to be differentiated.
  virtual void opened(const Program& program, const Node& call) = 0;
};

// Replaces the call or primitive by the chosen implementation, if any.
void choose_in_place(Program& program, Node& node, Chooser& chooser);

}  // namespace harmonics::engine
