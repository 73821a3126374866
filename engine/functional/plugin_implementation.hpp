// Implementations that plugins register: asked whether they serve a call, and standing in its place where they do.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/program/chooser.hpp"
#include "engine/program/host_function.hpp"

namespace harmonics {

// One call of a functional or primitive, as implementations see it.
struct CallSiteInfo {
  std::string op;
  AttributeMap attributes;
  std::vector<TensorType> inputs, outputs;
  std::string device;
  uint32_t flags = 0;  // HX_SITE_...

  // "attention{causal = true}(f32[2, 8], ...) -> f32[2, 8]"
  std::string str() const;
};

// "flash", of 'attention.flash'.
std::string implementation_name(const Item& item);
// "flash of org.example.fast"
std::string implementation_title(const Item& item);

// Why it does not serve the call; empty: it does. ErrorKind::Plugin with its name when it fails instead of answering.
std::optional<std::string> declines(const Item& item, const CallSiteInfo& site);

// The implementation in the place of the call. Results and gradients of another type than the call's are errors that name it.
std::shared_ptr<const HostFunction> make_implementation_call(const ItemPtr& item, const CallSiteInfo& site, Selected selected);

}  // namespace harmonics
