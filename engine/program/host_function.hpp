// A plugin's function as an opaque node: a body that reads tensor values, or an implementation of a call.
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
  // Computes the results and checks their types. Throws the plugin's errors, with the plugin's name.
  virtual std::vector<HTensor> run(const std::vector<HTensor>& inputs) const = 0;
  // Traces the gradients of the inputs; empty if the plugin has none (training then fails).
  virtual std::vector<HTensor> gradient(const std::vector<HTensor>& inputs, const std::vector<HTensor>& outputs,
                                        const std::vector<HTensor>& output_gradients) const = 0;
  // Provides a kernel, owned by the caller, and in `owner` the item that keeps its library loaded. Returns false if
  // there is none and run() must be used.
  virtual bool find_kernel(hx_kernel& out, ItemPtr& owner) const {
    (void)out, (void)owner;
    return false;
  }
  // Returns the selection by which it replaced a call, or null.
  virtual const Selected* selected() const { return nullptr; }
};

}  // namespace harmonics::engine
