// Implementations of plugins: whether they support a call, and the node that calls them instead.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/program/chooser.hpp"
#include "engine/program/host_function.hpp"

namespace harmonics::engine {

// A call of a functional or primitive as presented to implementations.
struct CallSiteInfo {
  std::string op;
  AttributeMap attributes;
  std::vector<TensorType> inputs, outputs;
  std::string device;
  uint32_t flags = 0;  // HX_SITE_...
  hx_native native{};  // of the device

  // Returns "attention{causal = true}(f32[2, 8], ...) -> f32[2, 8]".
  std::string str() const;
};

// Returns the name after the functional: "flash" for 'attention.flash'.
std::string implementation_name(const Item& item);
// Returns the name with the plugin: "flash of org.example.fast".
std::string implementation_title(const Item& item);

// Returns why the implementation declines the call; none if it supports it. Throws ErrorKind::Plugin with its name if
// it fails.
std::optional<std::string> declines(const Item& item, const CallSiteInfo& site);

// Returns a function that calls the implementation. It throws errors with its name for results and gradients of wrong
// types.
std::shared_ptr<const HostFunction> make_implementation_call(const ItemPtr& item, const CallSiteInfo& site,
                                                             Selected selected);

}  // namespace harmonics::engine
