// Descriptions for cuDNN, and those of a convolution: they can be made without an accelerator.
#pragma once

#include <utility>
#include <vector>

#include "convolution.hpp"
#include "dnn.hpp"

namespace harmonics::cuda {

// What cuDNN calls a backend descriptor. The first thing that fails is kept, and what follows is left out.
class Descriptor {
 public:
  Descriptor(const DnnFunctions& f, int kind) : f_(&f) { code_ = f.make(kind, &it_); }
  Descriptor(Descriptor&& other) noexcept : f_(other.f_), it_(std::exchange(other.it_, nullptr)), code_(other.code_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(f_, other.f_);
    std::swap(it_, other.it_);
    std::swap(code_, other.code_);
    return *this;
  }
  ~Descriptor() {
    if (it_) f_->destroy(it_);
  }

  Descriptor& set(int attribute, int type, int64_t n, const void* values) {
    if (code_ == 0) code_ = f_->set(it_, attribute, type, n, values);
    return *this;
  }
  Descriptor& numbers(int attribute, const std::vector<int64_t>& values) { return set(attribute, dnn::kInt64s, static_cast<int64_t>(values.size()), values.data()); }
  Descriptor& number(int attribute, int64_t value) { return set(attribute, dnn::kInt64s, 1, &value); }
  Descriptor& choice(int attribute, int type, int32_t value) { return set(attribute, type, 1, &value); }
  Descriptor& factor(int attribute, float value) { return set(attribute, dnn::kFloats, 1, &value); }
  Descriptor& link(int attribute, const Descriptor& other) { return set(attribute, dnn::kDescriptions, 1, &other.it_); }
  Descriptor& handle(int attribute, dnn::Handle value) { return set(attribute, dnn::kHandles, 1, &value); }
  Descriptor& finalize() {
    if (code_ == 0) code_ = f_->finalize(it_);
    return *this;
  }

  bool is_good() const { return code_ == 0; }
  int code() const { return code_; }
  dnn::Description get() const { return it_; }

 private:
  const DnnFunctions* f_;
  dnn::Description it_ = nullptr;
  int code_ = 0;
};

// What tensors are told by in a run.
namespace dnn_numbers {
enum : int64_t { kX = 1, kWeight = 2, kY = 3 };
}

// Tensors x, weight and y, the window, and last the operation, each finalized.
std::vector<Descriptor> describe(const DnnFunctions& functions, const Convolution& convolution);

}  // namespace harmonics::cuda
