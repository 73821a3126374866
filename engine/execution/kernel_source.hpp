// KernelSource: queries a device for kernels and caches the answers. Equal call sites share one kernel.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/execution/executable.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

// A kernel created by a device. Keeps the device and its library loaded; destroyed with its last user.
class Kernel {
 public:
  Kernel(const hx_kernel& raw, ItemPtr device) : raw_(raw), device_(std::move(device)) {}
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() {
    if (raw_.destroy) raw_.destroy(raw_.context);
  }
  const hx_kernel& raw() const { return raw_; }
  bool is_queued() const {
    return raw_.enqueue || raw_.enqueue_native;
  }  // true: runs in device memory; false: in host memory

 private:
  hx_kernel raw_;
  ItemPtr device_;
};
using KernelPtr = std::shared_ptr<const Kernel>;

// Returns the size of the parameters and states that the program changes.
uint64_t changed_bytes(const Program& program);

class KernelSource {
 public:
  // "reference" has no kernels. Other names are looked up in the registry; throws ErrorKind::Name if unknown.
  KernelSource(const std::string& device, Registry& registry, Precision precision = Precision::fp32);
  bool is_reference() const { return device_ == nullptr; }
  const ItemPtr& device() const { return device_; }  // null for the reference
  uint32_t flags() const { return flags_; }          // call-site flags, HX_SITE_...
  bool has(Rounding rounding) const;                 // whether the device has kernels with this rounding
  std::string description() const;                   // one line by the device about itself
  // Returns a kernel, or null if the device has none. Throws ErrorKind::Device with the call site if the device fails.
  // Bit i of `constants`: input i never changes. `changed_bytes`: of parameters and states that the program changes.
  // The rounding is that of the node's scope; for calls without a scope `rounding`, or else the precision of this
  // source. The device is queried for a rounding only if it has it. Runs of one kernel must not overlap, so steps that
  // run at the same time need a different `instance` each.
  KernelPtr find(const Program& program, const Node& node, uint64_t constants = 0, uint32_t instance = 0);
  KernelPtr find(const std::string& callee, const AttributeMap& attributes, const std::vector<TensorType>& inputs,
                 const std::vector<TensorType>& outputs, uint64_t constants = 0, std::optional<Rounding> rounding = {},
                 uint64_t changed_bytes = 0);
  // Returns the reason that the device gave for having no kernel; "" if it has one or gave no reason.
  std::string why_not(const Program& program, const Node& node);
  std::string why_not(const std::string& callee, const AttributeMap& attributes, const std::vector<TensorType>& inputs,
                      const std::vector<TensorType>& outputs, std::optional<Rounding> rounding = {});

 private:
  struct Answer {
    KernelPtr kernel;
    std::string declined;
  };
  const Answer& answer(const std::string& op, const AttributeMap& attributes, const std::vector<TensorType>& inputs,
                       const std::vector<TensorType>& outputs, uint64_t constants, uint32_t flags,
                       uint64_t changed_bytes, uint32_t instance = 0);
  uint32_t flags_of(std::optional<Rounding> rounding) const;
  Answer ask(const hx_call_site& site, const std::string& what);

  std::string name_;
  ItemPtr device_;
  uint32_t flags_ = 0;                   // call-site flags, HX_SITE_...
  uint32_t had_ = 0;                     // the flags that the device supports
  std::map<std::string, Answer> known_;  // by call site
};

}  // namespace harmonics::engine
