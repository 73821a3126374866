// A plugin's function as an opaque node: a body that reads numbers, or an implementation of a call.
#pragma once

#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

struct Selected;  // see chooser.hpp

class HostFunction {
 public:
  virtual ~HostFunction() = default;
  virtual std::string name() const = 0;  // for messages: "activation 'my_act' (plugin /path/libmine.so)"
  // Computes results. Throws the plugin's errors, naming the plugin; checks the result types.
  virtual std::vector<HTensor> run(const std::vector<HTensor>& inputs) const = 0;
  // Traces the gradients of the inputs; empty if the plugin has none (training then fails).
  virtual std::vector<HTensor> gradient(const std::vector<HTensor>& inputs, const std::vector<HTensor>& outputs,
                                        const std::vector<HTensor>& output_gradients) const = 0;
  // Returns a kernel, owned by the caller, and in `owner` the item that keeps its library loaded. False: run() computes
  // it.
  virtual bool find_kernel(hx_kernel& out, ItemPtr& owner) const {
    (void)out, (void)owner;
    return false;
  }
  // The selection that put it in place of a call; null if it was not selected.
  virtual const Selected* selected() const { return nullptr; }
};

}  // namespace harmonics::engine
