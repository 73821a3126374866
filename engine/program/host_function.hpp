// An opaque body: a plugin's function that reads numbers. It runs on the host inside a compiled plan.
#pragma once

#include <string>
#include <vector>

#include "engine/tensor/value.hpp"

namespace harmonics {

class HostFunction {
 public:
  virtual ~HostFunction() = default;
  virtual std::string name() const = 0;  // for messages: "activation 'my_act' (plugin /path/libmine.so)"
  // Numbers in, numbers out. Throws what the plugin threw, naming it; checks the result's type against the announced one.
  virtual std::vector<HTensor> run(const std::vector<HTensor>& inputs) const = 0;
  // Gradients of the inputs as traced values, or an empty list when the plugin supplies none (then training refuses).
  virtual std::vector<HTensor> gradient(const std::vector<HTensor>& inputs, const std::vector<HTensor>& outputs,
                                        const std::vector<HTensor>& output_gradients) const = 0;
};

}  // namespace harmonics
