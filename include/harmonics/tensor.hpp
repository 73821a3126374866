// HTensor: a handle to a concrete tensor or to a value of the program being traced.
#pragma once

#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <harmonics/abi.h>
#include <harmonics/error.hpp>
#include <harmonics/quantity.hpp>

// Hidden visibility of functions and data. Otherwise plugins built by g++ would share statics of inline functions
// across libraries (STB_GNU_UNIQUE). Classes are not hidden.
#define HARMONICS_FACE __attribute__((visibility("hidden")))

// Embedders link the library that defines it. In a plugin it is null, and registration provides the table.
extern "C" __attribute__((weak)) const hx_api* harmonics_api(void);

namespace harmonics {

enum class DType : uint32_t {
  Bool = HX_BOOL,
  U8 = HX_U8,
  I8 = HX_I8,
  I16 = HX_I16,
  U16 = HX_U16,
  I32 = HX_I32,
  U32 = HX_U32,
  I64 = HX_I64,
  U64 = HX_U64,
  F16 = HX_F16,
  BF16 = HX_BF16,
  F32 = HX_F32,
  F64 = HX_F64,
  F8_E4M3 = HX_F8_E4M3,
  F8_E5M2 = HX_F8_E5M2,
  NF4 = HX_NF4,
  I4 = HX_I4,
  Q8_0 = HX_Q8_0,
  Q4_0 = HX_Q4_0,
  Q4_K = HX_Q4_K,
  Q6_K = HX_Q6_K,
  Q4_1 = HX_Q4_1,
  Q5_0 = HX_Q5_0,
  Q5_1 = HX_Q5_1,
  Q2_K = HX_Q2_K,
  Q3_K = HX_Q3_K,
  Q5_K = HX_Q5_K,
  IQ4_NL = HX_IQ4_NL,
  MXFP4 = HX_MXFP4,
  IQ4_XS = HX_IQ4_XS,
  NF4_64 = HX_NF4_64,
  FP4_64 = HX_FP4_64,
  E4M3_64 = HX_E4M3_64,
};

namespace detail {

template <typename T>
struct dtype_of;
template <>
struct dtype_of<bool> {
  static constexpr DType value = DType::Bool;
};
template <>
struct dtype_of<uint8_t> {
  static constexpr DType value = DType::U8;
};
template <>
struct dtype_of<int8_t> {
  static constexpr DType value = DType::I8;
};
template <>
struct dtype_of<int16_t> {
  static constexpr DType value = DType::I16;
};
template <>
struct dtype_of<uint16_t> {
  static constexpr DType value = DType::U16;
};
template <>
struct dtype_of<int32_t> {
  static constexpr DType value = DType::I32;
};
template <>
struct dtype_of<uint32_t> {
  static constexpr DType value = DType::U32;
};
template <>
struct dtype_of<int64_t> {
  static constexpr DType value = DType::I64;
};
template <>
struct dtype_of<uint64_t> {
  static constexpr DType value = DType::U64;
};
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::F32;
};
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::F64;
};

// Thrown if values of a traced tensor are requested; caught by guarded() in the same library.
struct NeedsValues {};
// Thrown if a layer requests a width that is not known yet; caught likewise.
struct NeedsWidth {};

HARMONICS_FACE inline const hx_api*& api_slot() {
  static const hx_api* slot = nullptr;
  return slot;
}

HARMONICS_FACE inline const hx_api* api() {
  if (const hx_api* a = api_slot()) return a;
  if (harmonics_api) return api_slot() = harmonics_api();
  throw Error(ErrorKind::Plugin, "no Harmonics host: tensors can be used only after harmonics_register was called");
}

// Returns the error for a text that crossed the boundary: the first line is the message, the other lines are notes.
HARMONICS_FACE inline Error error_of(ErrorKind kind, const std::string& text) {
  size_t end = text.find('\n');
  Error error(kind, text.substr(0, end));
  while (end != std::string::npos) {
    const size_t start = end + 1;
    end = text.find('\n', start);
    error.note(text.substr(start, end == std::string::npos ? end : end - start));
  }
  return error;
}

HARMONICS_FACE inline void check(hx_status status) {
  if (status == HX_OK) return;
  if (status == HX_NEEDS_VALUES) throw NeedsValues{};
  if (status == HX_NEEDS_WIDTH) throw NeedsWidth{};
  uint32_t kind = 0;
  const char* text = status == HX_ERROR ? api()->last_error(&kind) : "the operation was declined";
  throw error_of(static_cast<ErrorKind>(kind), text ? text : "unknown error");
}

// Runs a body of this library for the host. Catches all C++ exceptions.
template <typename Body>
HARMONICS_FACE hx_status guarded(Body&& body) {
  try {
    return body();
  } catch (const NeedsValues&) {
    return HX_NEEDS_VALUES;
  } catch (const NeedsWidth&) {
    return HX_NEEDS_WIDTH;
  } catch (const Error& e) {
    std::string text = e.what();
    for (const std::string& n : e.notes()) text += "\n" + n;
    api()->set_error(static_cast<uint32_t>(e.kind()), text.c_str());
  } catch (const std::bad_alloc& e) {
    api()->set_error(HX_ERROR_MEMORY, text_of_memory(e));
  } catch (const std::exception& e) {
    api()->set_error(HX_ERROR_PLUGIN, e.what());
  } catch (...) {
    api()->set_error(HX_ERROR_PLUGIN, "threw something that is not a std::exception");
  }
  return HX_ERROR;
}

}  // namespace detail

// Up to eight dimensions, row-major; a value type.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(dims.begin(), dims.end()) {}
  explicit Shape(const std::vector<int64_t>& dims) : Shape(dims.data(), dims.data() + dims.size()) {}
  Shape(const int64_t* first, const int64_t* last) {
    if (last - first > HX_MAX_RANK)
      throw Error(ErrorKind::Shape, "a tensor has at most 8 dimensions, not " + std::to_string(last - first));
    for (; first != last; ++first) dims_[rank_++] = *first;
  }

  uint32_t rank() const { return rank_; }
  int64_t operator[](uint32_t axis) const { return dims_[axis]; }
  int64_t& operator[](uint32_t axis) { return dims_[axis]; }
  int64_t back() const { return dims_[rank_ - 1]; }
  const int64_t* begin() const { return dims_; }
  const int64_t* end() const { return dims_ + rank_; }
  // Returns the number of elements; 1 for a scalar. Throws on int64_t overflow.
  int64_t count() const {
    int64_t n = 1;
    bool overflows = false;
    for (uint32_t i = 0; i < rank_; ++i) overflows |= __builtin_mul_overflow(n, dims_[i], &n);
    if (overflows) refuse_count();
    return n;
  }
  void push_back(int64_t dim) {
    if (rank_ == HX_MAX_RANK) throw Error(ErrorKind::Shape, "a tensor has at most 8 dimensions");
    dims_[rank_++] = dim;
  }
  // The axes [first, last).
  Shape slice(uint32_t first, uint32_t last) const { return Shape(dims_ + first, dims_ + last); }
  Shape from(uint32_t first) const { return slice(first, rank_); }
  std::vector<int64_t> vector() const { return std::vector<int64_t>(begin(), end()); }
  // "[64, 784]"
  std::string str() const {
    std::string s = "[";
    for (uint32_t i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string(dims_[i]);
    return s + "]";
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (uint32_t i = 0; i < a.rank_; ++i)
      if (a.dims_[i] != b.dims_[i]) return false;
    return true;
  }
  friend bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] void refuse_count() const {
    throw Error(ErrorKind::Shape, "a tensor of shape " + str() + " has more elements than 2^63 - 1");
  }

  uint32_t rank_ = 0;
  int64_t dims_[HX_MAX_RANK] = {};
};

inline hx_type make_type(DType dtype, const Shape& shape) {
  hx_type t{};
  t.dtype = static_cast<uint32_t>(dtype);
  t.rank = shape.rank();
  for (uint32_t i = 0; i < shape.rank(); ++i) t.dims[i] = shape[i];
  return t;
}

// A counted reference to a value, shared by copies. Const functions are thread-safe.
class HTensor {
 public:
  HTensor() = default;  // empty: no value; a producer returns it at the end of a pass
  // Zeros.
  HTensor(DType dtype, const Shape& shape) : HTensor(dtype, shape, nullptr) {}
  // Copies shape.count() elements of dtype from data (NULL: zeros).
  HTensor(DType dtype, const Shape& shape, const void* data) {
    const hx_type t = make_type(dtype, shape);
    api_ = detail::api();
    detail::check(api_->create(&t, data, &v_));
  }
  template <typename T>
  static HTensor from(const Shape& shape, const std::vector<T>& values) {
    if (static_cast<int64_t>(values.size()) != shape.count())
      throw Error(ErrorKind::Shape, quantity(values.size(), "value") + " cannot fill a tensor of shape " + shape.str());
    return HTensor(detail::dtype_of<T>::value, shape, values.data());
  }
  static HTensor scalar(float value) { return HTensor(DType::F32, {}, &value); }

  HTensor(const HTensor& o) : api_(o.api_), v_(o.v_) {
    if (v_) api_->retain(v_);
  }
  HTensor(HTensor&& o) noexcept : api_(o.api_), v_(o.v_) { o.v_ = nullptr; }
  HTensor& operator=(HTensor o) noexcept {
    std::swap(api_, o.api_);
    std::swap(v_, o.v_);
    return *this;
  }
  ~HTensor() {
    if (v_) api_->release(v_);
  }

  bool empty() const { return v_ == nullptr; }
  explicit operator bool() const { return v_ != nullptr; }

  hx_type type() const {
    hx_type t{};
    detail::check(need()->type_of(v_, &t));
    return t;
  }
  DType dtype() const { return static_cast<DType>(type().dtype); }
  Shape shape() const {
    const hx_type t = type();
    return Shape(t.dims, t.dims + t.rank);
  }
  uint32_t rank() const { return type().rank; }
  int64_t size() const { return shape().count(); }

  // Returns the elements, row-major. For a traced value, the host then treats the caller's body as opaque.
  const void* bytes() const {
    const void* p = nullptr;
    detail::check(need()->data(v_, &p));
    return p;
  }
  template <typename T>
  const T* data() const {
    expect(detail::dtype_of<T>::value);
    return static_cast<const T*>(bytes());
  }
  // Returns writable elements. A shared tensor is copied first (copy on write).
  void* mutable_bytes() {
    void* p = nullptr;
    detail::check(need()->mutable_data(&v_, &p));
    return p;
  }
  template <typename T>
  T* mutable_data() {
    expect(detail::dtype_of<T>::value);
    return static_cast<T*>(mutable_bytes());
  }
  // Returns the element of a tensor with one element.
  template <typename T>
  T item() const {
    if (size() != 1) throw Error(ErrorKind::Shape, "item() needs one element, the shape is " + shape().str());
    return *data<T>();
  }

  // The functions of <harmonics/ops.hpp> as methods, defined there: x.sub(mean).mul(2).relu(). They return new tensors;
  // shapes and errors are those of the functions.
  HTensor add(const HTensor& b) const;
  HTensor add(double b) const;
  HTensor sub(const HTensor& b) const;
  HTensor sub(double b) const;
  HTensor mul(const HTensor& b) const;
  HTensor mul(double b) const;
  HTensor div(const HTensor& b) const;
  HTensor div(double b) const;
  HTensor pow(const HTensor& b) const;
  HTensor pow(double b) const;
  HTensor maximum(const HTensor& b) const;
  HTensor maximum(double b) const;
  HTensor minimum(const HTensor& b) const;
  HTensor minimum(double b) const;
  HTensor matmul(const HTensor& b) const;
  HTensor neg() const;
  HTensor abs() const;
  HTensor exp() const;
  HTensor log() const;
  HTensor sqrt() const;
  HTensor tanh() const;
  HTensor relu() const;
  HTensor sigmoid() const;
  HTensor silu() const;
  HTensor gelu() const;
  HTensor softmax() const;
  HTensor log_softmax() const;
  // A missing bound is std::nullopt or an empty tensor.
  HTensor clamp(std::optional<double> low, std::optional<double> high) const;
  HTensor clamp(const HTensor& low, const HTensor& high) const;
  HTensor reshape(const Shape& shape) const;
  HTensor transpose(const std::vector<int64_t>& permutation) const;
  HTensor broadcast(const Shape& shape) const;
  HTensor cast(DType dtype) const;
  HTensor reduce_sum(const std::vector<int64_t>& axes, bool keep = false) const;
  HTensor reduce_max(const std::vector<int64_t>& axes, bool keep = false) const;
  HTensor reduce_min(const std::vector<int64_t>& axes, bool keep = false) const;
  HTensor reduce_mean(const std::vector<int64_t>& axes, bool keep = false) const;

  // raw() returns the borrowed handle; release() transfers the reference to the caller.
  hx_value* raw() const { return v_; }
  hx_value* release() {
    hx_value* v = v_;
    v_ = nullptr;
    return v;
  }
  static HTensor adopt(hx_value* v) {
    HTensor t;
    t.api_ = detail::api();
    t.v_ = v;
    return t;
  }
  static HTensor borrow(hx_value* v) {
    HTensor t = adopt(v);
    if (v) t.api_->retain(v);
    return t;
  }

 private:
  const hx_api* need() const {
    if (!v_) throw Error(ErrorKind::Internal, "an empty HTensor has no value");
    return api_;
  }
  void expect(DType want) const {
    const DType have = dtype();
    if (have != want)
      throw Error(ErrorKind::Type, "the tensor's element type is not the requested one (dtype " +
                                       std::to_string(static_cast<uint32_t>(have)) + ", asked " +
                                       std::to_string(static_cast<uint32_t>(want)) + ")");
  }

  const hx_api* api_ = nullptr;
  hx_value* v_ = nullptr;
};

// Attributes of an operation, built by name: Attributes().set("axes", {1, 2}).set("keep", true).
class Attributes {
 public:
  Attributes& set(const char* name, int64_t value) { return add(name, HX_ATTR_INT).i = value, *this; }
  Attributes& set(const char* name, int value) { return set(name, static_cast<int64_t>(value)); }
  Attributes& set(const char* name, uint32_t value) { return set(name, static_cast<int64_t>(value)); }
  Attributes& set(const char* name, bool value) { return add(name, HX_ATTR_BOOL).i = value, *this; }
  Attributes& set(const char* name, double value) { return add(name, HX_ATTR_FLOAT).f = value, *this; }
  Attributes& set(const char* name, const char* value) { return set(name, std::string(value)); }
  Attributes& set(const char* name, std::string value) { return add(name, HX_ATTR_STRING).s = std::move(value), *this; }
  Attributes& set(const char* name, std::vector<int64_t> v) {
    return add(name, HX_ATTR_INTS).ints = std::move(v), *this;
  }
  Attributes& set(const char* name, const Shape& shape) { return set(name, shape.vector()); }
  Attributes& set(const char* name, std::vector<double> v) {
    return add(name, HX_ATTR_FLOATS).floats = std::move(v), *this;
  }
  // The texts are not copied and must outlive this object.
  template <typename Text, typename = std::enable_if_t<std::is_same_v<Text, std::string_view>>>
  Attributes& set(const char* name, const std::vector<Text>& texts) {
    Entry& entry = add(name, HX_ATTR_TEXTS);
    for (const std::string_view text : texts) entry.texts.push_back({text.data(), text.size()});
    return *this;
  }

  // Returns a C view of this object, valid until it changes. `items`: storage of the view.
  hx_attributes view(std::vector<hx_attribute>& items) const {
    items.clear();
    for (const Entry& e : entries_) {
      hx_attribute a{};
      a.name = e.name.c_str();
      a.kind = e.kind;
      switch (e.kind) {
        case HX_ATTR_FLOAT:
          a.as.f = e.f;
          break;
        case HX_ATTR_STRING:
          a.as.s = e.s.c_str();
          break;
        case HX_ATTR_INTS:
          a.as.ints = e.ints.data();
          a.count = static_cast<uint32_t>(e.ints.size());
          break;
        case HX_ATTR_FLOATS:
          a.as.floats = e.floats.data();
          a.count = static_cast<uint32_t>(e.floats.size());
          break;
        case HX_ATTR_TEXTS:
          a.as.texts = e.texts.data();
          a.count = static_cast<uint32_t>(e.texts.size());
          break;
        default:
          a.as.i = e.i;
      }
      items.push_back(a);
    }
    return {items.data(), static_cast<uint32_t>(items.size())};
  }

 private:
  struct Entry {
    std::string name;
    uint32_t kind = 0;
    int64_t i = 0;
    double f = 0;
    std::string s;
    std::vector<int64_t> ints;
    std::vector<double> floats;
    std::vector<hx_text> texts;
  };
  Entry& add(const char* name, uint32_t kind) {
    entries_.emplace_back();
    entries_.back().name = name;
    entries_.back().kind = kind;
    return entries_.back();
  }
  std::vector<Entry> entries_;
};

// Calls an operation or functional by name; returns one tensor per result.
HARMONICS_FACE inline std::vector<HTensor> call(const char* op, const std::vector<HTensor>& inputs,
                                                const Attributes& attributes = {}) {
  const hx_api* api = detail::api();
  std::vector<hx_attribute> items;
  const hx_attributes view = attributes.view(items);
  std::vector<hx_value*> in;
  for (const HTensor& t : inputs) in.push_back(t.raw());
  hx_value* out[16] = {};
  uint32_t n = 0;
  detail::check(api->apply(op, &view, in.data(), static_cast<uint32_t>(in.size()), out, 16, &n));
  std::vector<HTensor> results;
  for (uint32_t i = 0; i < n; ++i) results.push_back(HTensor::adopt(out[i]));
  return results;
}
HARMONICS_FACE inline HTensor call1(const char* op, const std::vector<HTensor>& inputs,
                                    const Attributes& attributes = {}) {
  return call(op, inputs, attributes).at(0);
}

}  // namespace harmonics
