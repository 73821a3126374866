// The C++ side of hx_scope, which layer bodies call. Implemented by the lowering of graphs.
#pragma once

#include "engine/tensor/value.hpp"

struct hx_scope {
  virtual ~hx_scope() = default;
  virtual harmonics::HTensor parameter(const std::string& name, const harmonics::engine::TensorType& type,
                                       const hx_init& init) = 0;
  virtual harmonics::HTensor state(const std::string& name, const harmonics::engine::TensorType& type,
                                   const hx_init& init) = 0;
  virtual void update(const std::string& name, const harmonics::HTensor& value) = 0;
  virtual harmonics::HTensor random(const harmonics::Shape& shape) = 0;
  virtual bool training() const = 0;
  virtual uint32_t leading() const = 0;
  virtual void set_leading(uint32_t axes) = 0;
  virtual int64_t width() = 0;    // throws detail::NeedsWidth
  virtual int64_t classes() = 0;  // 0: unknown
};
