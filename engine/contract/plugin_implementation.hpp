// Implementations of plugins: asked whether they accept a call, and called in its place.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/program/chooser.hpp"
#include "engine/program/host_function.hpp"

namespace harmonics::engine {

// A call of a functional or primitive, as implementations see it.
struct CallSiteInfo {
  std::string op;
  AttributeMap attributes;
  std::vector<TensorType> inputs, outputs;
  std::string device;
  uint32_t flags = 0;  // HX_SITE_...
  hx_native native{};  // of the device

  // Text: "attention{causal = true}(f32[2, 8], ...) -> f32[2, 8]".
  std::string str() const;
};

// Short name: "flash" of 'attention.flash'.
std::string implementation_name(const Item& item);
// Name with plugin: "flash of org.example.fast".
std::string implementation_title(const Item& item);

// Why it declines the call; empty: it accepts. ErrorKind::Plugin with its name if it fails to answer.
std::optional<std::string> declines(const Item& item, const CallSiteInfo& site);

// A node that calls the implementation. Results and gradients of wrong types throw errors that name it.
std::shared_ptr<const HostFunction> make_implementation_call(const ItemPtr& item, const CallSiteInfo& site,
                                                             Selected selected);

}  // namespace harmonics::engine
