// Who computes a call: chosen while programs are made.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics {

// The choice for one call site, for people and for checkpoints.
struct Selected {
  std::string op;       // functional or primitive
  std::string site;     // "attention{causal = true}(f32[...], ...) -> f32[...]"
  std::string scope;
  std::string winner;   // "flash of org.example.fast", "cpu", "portable"
  std::string because;  // "override", "plugin", "device", "body"
  std::vector<std::pair<std::string, std::string>> declined;  // the others and why not
};

class Chooser {
 public:
  virtual ~Chooser() = default;
  // What stands in the place of this call from now on, with a gradient where it belongs to training; null: it stays a call.
  // Throws where an override cannot be followed.
  virtual std::shared_ptr<const HostFunction> choose(const Program& program, const Node& node) = 0;
  // The call's body takes its place, to be differentiated.
  virtual void opened(const Program& program, const Node& call) = 0;
};

// Asks about every call and primitive of a program and puts what is chosen in their places.
void choose_in_place(Program& program, Node& node, Chooser& chooser);

}  // namespace harmonics
