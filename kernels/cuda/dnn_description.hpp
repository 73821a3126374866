// Descriptors for cuDNN; they can be created without a GPU.
#pragma once

#include <utility>
#include <vector>

#include "attention.hpp"
#include "convolution.hpp"
#include "dnn.hpp"

namespace harmonics::cuda {

// A cuDNN backend descriptor. Keeps the first error and skips later calls.
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

// Descriptors of an operation, the operation last, all finalized. For a convolution: x, weight, y, the window.
std::vector<Descriptor> describe(const DnnFunctions& functions, const Convolution& convolution);
// `handle`: for the inner graph, the causal mask. Null: no device.
std::vector<Descriptor> describe(const DnnFunctions& functions, const Attention& attention, dnn::Handle handle);

// Target device of a plan: the handle's, or an absent one by its properties.
struct DnnTarget {
  dnn::Handle handle = nullptr;
  const Descriptor* properties = nullptr;
};
// Rounding allowed to engines.
struct DnnNumbers {
  bool tensor_cores = false;  // f32 may be multiplied as TF32
  bool transforms = false;    // Fourier, Winograd: less accurate
};
struct DnnPlan {
  std::vector<Descriptor> parts;  // the plan is last
  uint64_t workspace = 0;
};
// The first engine of cuDNN's heuristics with acceptable numerics and workspace; depends on the shape only, so that
// results are reproducible. No parts: none found, with the reason in `why`.
DnnPlan plan_operation(const DnnFunctions& functions, const DnnTarget& target, std::vector<Descriptor> parts,
                       const DnnNumbers& numbers, std::string& why);

}  // namespace harmonics::cuda
