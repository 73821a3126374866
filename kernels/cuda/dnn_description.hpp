// Descriptors for cuDNN; they can be created without a GPU.
#pragma once

#include <utility>
#include <vector>

#include "attention.hpp"
#include "convolution.hpp"
#include "dnn.hpp"

namespace harmonics::cuda {

// A cuDNN backend descriptor. Stores the first error and skips later calls.
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
  Descriptor& numbers(int attribute, const std::vector<int64_t>& values) {
    return set(attribute, dnn::kInt64s, static_cast<int64_t>(values.size()), values.data());
  }
  Descriptor& number(int attribute, int64_t value) { return set(attribute, dnn::kInt64s, 1, &value); }
  Descriptor& choice(int attribute, int type, int32_t value) { return set(attribute, type, 1, &value); }
  Descriptor& factor(int attribute, float value) { return set(attribute, dnn::kFloats, 1, &value); }
  Descriptor& flag(int attribute, bool value) { return set(attribute, dnn::kFlags, 1, &value); }
  Descriptor& link(int attribute, const Descriptor& other) { return set(attribute, dnn::kDescriptions, 1, &other.it_); }
  Descriptor& handle(int attribute, dnn::Handle value) {
    return value ? set(attribute, dnn::kHandles, 1, &value) : *this;
  }
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

// Tensor ids.
namespace dnn_numbers {
enum : int64_t {
  kX = 1,
  kWeight = 2,
  kY = 3,
  kQ = 4,
  kK = 5,
  kV = 6,
  kOut = 7,
  kLse = 8,
  kScale = 9,
  kReach = 10,
  kFill = 11,
  kScores = 12,
  kMasked = 13
};
}

// Returns the finalized descriptors of an operation, the operation last. For a convolution: x, weight, y, window,
// operation.
std::vector<Descriptor> describe(const DnnFunctions& functions, const Convolution& convolution);
// `handle`: for the inner graph of the causal mask; null: no device.
std::vector<Descriptor> describe(const DnnFunctions& functions, const Attention& attention, dnn::Handle handle);

// Target device of a plan: the device of the handle, or an absent device with these properties.
struct DnnTarget {
  dnn::Handle handle = nullptr;
  const Descriptor* properties = nullptr;
};
// Numerics allowed to engines.
struct DnnNumbers {
  bool tensor_cores = false;  // f32 products may use TF32
  bool transforms = false;    // Fourier and Winograd transforms, which are less accurate
};
struct DnnPlan {
  std::vector<Descriptor> parts;  // the plan is last
  uint64_t workspace = 0;
};
// Returns the plan of the first engine in cuDNN's heuristics with allowed numerics and workspace. It depends only on
// the shape, so that results are reproducible. Returns no parts, with the reason in `why`, if there is none.
DnnPlan plan_operation(const DnnFunctions& functions, const DnnTarget& target, std::vector<Descriptor> parts,
                       const DnnNumbers& numbers, std::string& why);

}  // namespace harmonics::cuda
