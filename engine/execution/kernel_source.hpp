// Asks a device for kernels and keeps what it gave: equal call sites share one.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/execution/executable.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/program/program.hpp"

namespace harmonics {

// A kernel a device made, given back when nobody runs it any more; keeps the device and its library.
class Kernel {
 public:
  Kernel(const hx_kernel& raw, ItemPtr device) : raw_(raw), device_(std::move(device)) {}
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() {
    if (raw_.destroy) raw_.destroy(raw_.context);
  }
  const hx_kernel& raw() const { return raw_; }
  bool is_queued() const { return raw_.enqueue != nullptr; }  // of a device with memory of its own; else it runs in the host's

 private:
  hx_kernel raw_;
  ItemPtr device_;
};
using KernelPtr = std::shared_ptr<const Kernel>;

class KernelSource {
 public:
  // "reference" has no kernels; other names are devices of the registry (ErrorKind::Name when unknown).
  KernelSource(const std::string& device, Registry& registry, Precision precision = Precision::fp32);
  bool is_reference() const { return device_ == nullptr; }
  const ItemPtr& device() const { return device_; }  // null: the reference
  uint32_t flags() const { return flags_; }  // of every call site
  // Null: the device has none. A device that fails is ErrorKind::Device naming the call site.
  KernelPtr find(const Program& program, const Node& node);
  KernelPtr find(const std::string& callee, const AttributeMap& attributes, const std::vector<TensorType>& inputs,
                 const std::vector<TensorType>& outputs);
  // Why there is no kernel, where find() gave none and the device said it; else "".
  std::string why_not(const Program& program, const Node& node);
  std::string why_not(const std::string& callee, const AttributeMap& attributes, const std::vector<TensorType>& inputs,
                      const std::vector<TensorType>& outputs);

 private:
  struct Answer {
    KernelPtr kernel;
    std::string declined;
  };
  const Answer& answer(const std::string& op, const AttributeMap& attributes, const std::vector<TensorType>& inputs,
                       const std::vector<TensorType>& outputs);
  Answer ask(const hx_call_site& site, const std::string& what);

  std::string name_;
  ItemPtr device_;
  uint32_t flags_ = 0;  // of every call site: HX_SITE_...
  std::map<std::string, Answer> known_;  // by call site
};

}  // namespace harmonics
