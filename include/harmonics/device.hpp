// Devices: provide kernels for call sites. Contract: hx_call_site and hx_kernel in abi.h.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <harmonics/tensor.hpp>

namespace harmonics {

// The device to which a wrapping device forwards calls.
class InnerDevice {
 public:
  InnerDevice(const hx_device_vt* table, void* self) : table_(table), self_(self) {}
  HARMONICS_FACE std::string describe() const {
    const char* line = table_->describe ? table_->describe(self_) : nullptr;
    return line ? line : "";
  }
  // As Device::find; the reason for declining is that of the inner device.
  HARMONICS_FACE bool find(const hx_call_site& site, hx_kernel& out) const {
    const hx_status status = table_->find(self_, &site, &out);
    if (status != HX_DECLINED) detail::check(status);
    return status == HX_OK;
  }
  HARMONICS_FACE uint32_t roundings() const {
    return table_->struct_size > offsetof(hx_device_vt, flags) && table_->flags ? table_->flags(self_) : 0;
  }

 private:
  const hx_device_vt* table_;
  void* self_;
};

class Device {
 public:
  // Returns one line for display: name, instruction set, libraries.
  virtual std::string describe() const = 0;
  // Fills `out` and returns true if the device has a kernel for the site; false: declined.
  virtual bool find(const hx_call_site& site, hx_kernel& out) = 0;
  // Whether it computes f32 products in fp16 chunks if HX_SITE_FP16_CHUNKS allows it.
  virtual bool has_fp16_chunks() const { return false; }
  // Supported roundings of products: HX_SITE_FP16_CHUNKS, HX_SITE_BF16, HX_SITE_FP8.
  virtual uint32_t roundings() const { return has_fp16_chunks() ? uint32_t{HX_SITE_FP16_CHUNKS} : 0; }
  // Returns a device that forwards calls to `inner`, for `--device NAME:OTHER`; null: unsupported. `inner` is valid as
  // long as the result.
  virtual std::shared_ptr<Device> wrap(const InnerDevice& inner) const {
    (void)inner;
    return nullptr;
  }
  virtual ~Device() = default;
};

// Returns false with a reason, for Device::find: `return declined("strides");`. `plugin check` and `explain --select`
// show the reason.
HARMONICS_FACE inline bool declined(const std::string& why) {
  detail::api()->set_error(HX_ERROR_DEVICE, why.c_str());
  return false;
}

// Reads attributes of a call site.
inline const hx_attribute* find_attribute(const hx_attributes* attributes, const char* name) {
  for (uint32_t i = 0; attributes && i < attributes->count; ++i)
    if (std::strcmp(attributes->items[i].name, name) == 0) return &attributes->items[i];
  return nullptr;
}
inline int64_t int_attribute(const hx_attributes* attributes, const char* name, int64_t otherwise) {
  const hx_attribute* a = find_attribute(attributes, name);
  return a && (a->kind == HX_ATTR_INT || a->kind == HX_ATTR_BOOL) ? a->as.i : otherwise;
}
inline double float_attribute(const hx_attributes* attributes, const char* name, double otherwise) {
  const hx_attribute* a = find_attribute(attributes, name);
  if (!a) return otherwise;
  return a->kind == HX_ATTR_FLOAT ? a->as.f : a->kind == HX_ATTR_INT ? static_cast<double>(a->as.i) : otherwise;
}
inline std::vector<int64_t> ints_attribute(const hx_attributes* attributes, const char* name) {
  const hx_attribute* a = find_attribute(attributes, name);
  return a && a->kind == HX_ATTR_INTS ? std::vector<int64_t>(a->as.ints, a->as.ints + a->count)
                                      : std::vector<int64_t>{};
}
inline std::string string_attribute(const hx_attributes* attributes, const char* name, const char* otherwise) {
  const hx_attribute* a = find_attribute(attributes, name);
  return a && a->kind == HX_ATTR_STRING ? a->as.s : otherwise;
}

}  // namespace harmonics
