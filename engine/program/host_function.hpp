// An opaque body: a plugin's function that reads numbers, or its way to compute a call. It runs inside a compiled plan.
#pragma once

#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics {

struct Selected;  // see chooser.hpp

class HostFunction {
 public:
  virtual ~HostFunction() = default;
  virtual std::string name() const = 0;  // for messages: "activation 'my_act' (plugin /path/libmine.so)"
  // Numbers in, numbers out. Throws what the plugin threw, naming it; checks the result's type against the announced one.
  virtual std::vector<HTensor> run(const std::vector<HTensor>& inputs) const = 0;
  // Gradients of the inputs as traced values, or an empty list when the plugin supplies none (then training refuses).
  virtual std::vector<HTensor> gradient(const std::vector<HTensor>& inputs, const std::vector<HTensor>& outputs,
                                        const std::vector<HTensor>& output_gradients) const = 0;
  // A kernel for it, which whoever runs it gives back; false: run() does it. `owner` keeps its library.
  virtual bool find_kernel(hx_kernel& out, ItemPtr& owner) const {
    (void)out, (void)owner;
    return false;
  }
  // Why it stands in the place of a call; null: it was always there.
  virtual const Selected* selected() const { return nullptr; }
};

}  // namespace harmonics
