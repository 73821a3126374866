// Calls a kernel of the CPU device like the host, and computes references.
#pragma once

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include <harmonics/device.hpp>

namespace harmonics::engine::kernel_tests {

using Dims = std::vector<int64_t>;

template <typename T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
  static constexpr uint32_t value = HX_F32;
};
template <>
struct DtypeOf<double> {
  static constexpr uint32_t value = HX_F64;
};
template <>
struct DtypeOf<int32_t> {
  static constexpr uint32_t value = HX_I32;
};
template <>
struct DtypeOf<int64_t> {
  static constexpr uint32_t value = HX_I64;
};
template <>
struct DtypeOf<int8_t> {
  static constexpr uint32_t value = HX_I8;
};
template <>
struct DtypeOf<int16_t> {
  static constexpr uint32_t value = HX_I16;
};
template <>
struct DtypeOf<uint32_t> {
  static constexpr uint32_t value = HX_U32;
};
template <>
struct DtypeOf<uint64_t> {
  static constexpr uint32_t value = HX_U64;
};
template <>
struct DtypeOf<uint8_t> {
  static constexpr uint32_t value = HX_U8;
};
template <>
struct DtypeOf<uint16_t> {
  static constexpr uint32_t value = HX_BF16;
};

inline int64_t elements(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}
size_t bytes_of(uint32_t dtype, const Dims& dims);

struct Tensor {
  uint32_t dtype = HX_F32;
  Dims dims;
  std::vector<char> bytes;

  Tensor() = default;
  template <typename T>
  Tensor(Dims dims, const std::vector<T>& values) : Tensor(zeros(std::move(dims), DtypeOf<T>::value)) {
    REQUIRE(bytes.size() == values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  static Tensor zeros(Dims dims, uint32_t dtype = HX_F32) {
    Tensor t;
    t.dtype = dtype;
    t.bytes.resize(bytes_of(dtype, dims));
    t.dims = std::move(dims);
    return t;
  }
  int64_t size() const { return elements(dims); }
  hx_type type() const;
  template <typename T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  template <typename T>
  std::vector<T> values() const {
    return {data<T>(), data<T>() + bytes.size() / sizeof(T)};
  }
  float operator[](int64_t i) const { return data<float>()[i]; }
};

Tensor as_half(const Tensor& x);          // f32 rounded to f16
Tensor as_bfloat(const Tensor& x);        // f32 rounded to bf16
Tensor from_bfloat(const Tensor& x);      // and back
Tensor as_eight_bits(const Tensor& x);    // f32 to q8_0
Tensor from_eight_bits(const Tensor& x);  // and back
inline Tensor scalar(float value) { return {{}, std::vector<float>{value}}; }
inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// Random numbers in [low, high), the same in every run.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  Tensor floats(Dims dims, float low = -1, float high = 1);
  template <typename T>
  Tensor integers(Dims dims, int64_t low, int64_t high) {
    std::vector<T> v(static_cast<size_t>(elements(dims)));
    for (T& x : v) x = static_cast<T>(std::uniform_int_distribution<int64_t>(low, high - 1)(engine_));
    return {std::move(dims), v};
  }
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(engine_); }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

// Returns whether kernels are compiled for vectors of less than 8 floats: by HARMONICS_ISA, or without AVX2.
bool is_baseline();

class KernelCall {
 public:
  explicit KernelCall(std::string op) : op_(std::move(op)) {}
  KernelCall& set(const char* name, int64_t value);
  KernelCall& set(const char* name, int value) { return set(name, static_cast<int64_t>(value)); }
  KernelCall& set(const char* name, double value);
  KernelCall& set(const char* name, const char* value);
  KernelCall& set(const char* name, Dims values);
  KernelCall& in(const Tensor& t) { return inputs_.push_back(t), *this; }
  KernelCall& out(Dims dims, uint32_t dtype = HX_F32) {
    return outputs_.push_back(Tensor::zeros(std::move(dims), dtype)), *this;
  }
  // Adds an operation to a fused chain; operands are registers, inputs first.
  KernelCall& step(const char* op, std::vector<uint32_t> operands, uint32_t dtype = HX_F32);
  KernelCall& stores(std::vector<uint32_t> registers) { return chain_outputs_ = std::move(registers), *this; }
  // Allows fp16 chunks in products.
  KernelCall& allow_half() { return flags_ = HX_SITE_FP16_CHUNKS, *this; }
  // Allows operands of products to be rounded to bf16.
  KernelCall& allow_bf16() { return flags_ = HX_SITE_BF16, *this; }
  // Declares that input `input` never changes, so the kernel may pack it.
  KernelCall& constant(uint32_t input) { return constants_ |= uint64_t{1} << input, *this; }
  // Declares that the program changes `bytes` of parameters and states.
  KernelCall& changing(uint64_t bytes) { return changed_bytes_ = bytes, *this; }
  // Output `output` shares the memory of input `input`.
  KernelCall& alias(uint32_t output, uint32_t input) { return aliases_.push_back({output, input}), *this; }

  bool served();
  uint64_t workspace();  // bytes
  // Runs with poisoned outputs and workspace: parts in order, reversed, shuffled, and on two threads: every other part,
  // and from both ends, so that parts which help others have work. All runs must be bitwise equal.
  std::vector<Tensor> run();
  Tensor run_one() { return run().at(0); }
  // Returns the number of parts of the last run.
  uint32_t parts() const { return parts_; }
  uint32_t in_place() const { return in_place_; }
  const std::string& kernel() const { return name_; }
  uint64_t packed_bytes() const { return packed_bytes_; }
  // Returns the sum over parts of the fastest of `repeats` runs, in seconds: the time on one thread of an idle
  // processor.
  double seconds(int repeats);

 private:
  enum class Order { forward, reversed, shuffled, two_threads, two_ends };
  bool find(hx_kernel& kernel);
  void once(const hx_kernel& kernel, Order order, std::vector<Tensor>& outputs);

  std::string op_;
  // What attributes point to. Copies share it, and only add.
  struct Kept {
    std::deque<Dims> int_lists;
    std::deque<std::string> texts;
  };
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
  std::vector<hx_attribute> attributes_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<hx_scalar_op> chain_;
  std::vector<uint32_t> chain_outputs_;
  std::vector<std::pair<uint32_t, uint32_t>> aliases_;
  uint32_t parts_ = 0, in_place_ = 0, flags_ = 0;
  uint64_t constants_ = 0, packed_bytes_ = 0, changed_bytes_ = 0;
  std::string name_;
};

// Computes the product a b in double, summed in order. `lies`: transposed layout, [k, m] and [n, k].
struct Side {
  const Tensor& matrix;
  bool lies = false;
};
std::vector<double> exact_product(const Side& a, const Side& b, int64_t m, int64_t n, int64_t k);

// Requires every element to be within `absolute` + `relative` * |expected|, and NaN and infinities to be equal.
void require_close(const Tensor& actual, const std::vector<double>& expected, double relative, double absolute);

// Returns the device's name with its instruction set, and the name it registered.
std::string device_text();
std::string device_name();

}  // namespace harmonics::engine::kernel_tests
