// Descriptions for cuDNN: they can be made without an accelerator.
#pragma once

#include <utility>
#include <vector>

#include "attention.hpp"
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
  Descriptor& flag(int attribute, bool value) { return set(attribute, dnn::kFlags, 1, &value); }
  Descriptor& link(int attribute, const Descriptor& other) { return set(attribute, dnn::kDescriptions, 1, &other.it_); }
  Descriptor& handle(int attribute, dnn::Handle value) { return value ? set(attribute, dnn::kHandles, 1, &value) : *this; }
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
enum : int64_t { kX = 1, kWeight = 2, kY = 3, kQ = 4, kK = 5, kV = 6, kOut = 7, kLse = 8, kScale = 9, kReach = 10, kFill = 11, kScores = 12, kMasked = 13 };
}

// What an operation is made of, and last the operation itself, each finalized. Tensors of a convolution: x, weight and y, then the window.
std::vector<Descriptor> describe(const DnnFunctions& functions, const Convolution& convolution);
// The handle goes to the graph within: the mask of what is causal. Null: there is no device.
std::vector<Descriptor> describe(const DnnFunctions& functions, const Attention& attention, dnn::Handle handle);

// For which device something is planned: that of the handle, or one that is not here, by its properties.
struct DnnTarget {
  dnn::Handle handle = nullptr;
  const Descriptor* properties = nullptr;
};
// What engines may do to numbers.
struct DnnNumbers {
  bool tensor_cores = false;  // they take f32 as TF32
  bool transforms = false;    // Fourier, Winograd: digits are lost
};
struct DnnPlan {
  std::vector<Descriptor> parts;  // with the plan at their end
  uint64_t workspace = 0;
};
// The first engine that cuDNN's heuristics offer whose numbers are as they should be and whose workspace is not too large; the answer
// depends on the shape alone, so that results stay the same. No parts: there is none, and `why` says so.
DnnPlan plan_operation(const DnnFunctions& functions, const DnnTarget& target, std::vector<Descriptor> parts, const DnnNumbers& numbers, std::string& why);

}  // namespace harmonics::cuda
