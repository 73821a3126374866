#include "producers/file/array.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace harmonics {
namespace {

template <size_t Width>
void swap_elements(uint8_t* p, size_t n) {
  for (size_t i = 0; i < n; ++i) std::reverse(p + i * Width, p + (i + 1) * Width);
}

void swap_bytes(uint8_t* p, size_t n, size_t width) {
  if (width == 2) swap_elements<2>(p, n);
  if (width == 4) swap_elements<4>(p, n);
  if (width == 8) swap_elements<8>(p, n);
}

// Returns one more than the largest of n integers; 0 when one is negative or too large for a class.
template <typename T>
int64_t classes_of(const uint8_t* p, size_t n) {
  int64_t most = -1;
  for (size_t i = 0; i < n; ++i) {
    T v;
    std::memcpy(&v, p + i * sizeof v, sizeof v);
    if (v < T{0} || static_cast<uint64_t>(v) >= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return 0;
    most = std::max(most, static_cast<int64_t>(v));
  }
  return most + 1;
}

int64_t classes_of(DType dtype, const uint8_t* p, size_t n) {
  switch (dtype) {
    case DType::U8:
      return classes_of<uint8_t>(p, n);
    case DType::I8:
      return classes_of<int8_t>(p, n);
    case DType::I16:
      return classes_of<int16_t>(p, n);
    case DType::U16:
      return classes_of<uint16_t>(p, n);
    case DType::I32:
      return classes_of<int32_t>(p, n);
    case DType::U32:
      return classes_of<uint32_t>(p, n);
    case DType::I64:
      return classes_of<int64_t>(p, n);
    case DType::U64:
      return classes_of<uint64_t>(p, n);
    default:
      return 0;
  }
}

bool is_integer(DType dtype) { return dtype >= DType::U8 && dtype <= DType::U64; }

}  // namespace

size_t array_bytes(const std::string& name, DType dtype, const std::vector<uint64_t>& dims) {
  size_t bytes = element_bytes(dtype);
  for (const uint64_t d : dims)
    if (__builtin_mul_overflow(bytes, d, &bytes) || bytes > (size_t{1} << 60)) {
      std::string shape;
      for (const uint64_t x : dims) shape += (shape.empty() ? "" : ", ") + std::to_string(x);
      refuse_file(name, "promises an array of shape [" + shape + "], more than any memory holds",
                  "the file is damaged");
    }
  return bytes;
}

void set_axes(ArrayLayout& layout, const std::vector<uint64_t>& dims, const std::string& what) {
  const std::string& name = layout.bytes->name();
  if (dims.empty())
    refuse_file(name, "holds one number without axes (" + what + "); the first axis counts the samples",
                "save it with the shape [1]");
  if (dims.size() > HX_MAX_RANK + 1)
    refuse_file(name, "has " + std::to_string(dims.size()) + " axes (" + what +
                          "); a sample has at most 8 beside the axis that counts samples");
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] == 0) refuse_file(name, "holds no elements: axis " + std::to_string(i) + " of " + what + " has size 0");
  layout.count = dims[0];
  for (size_t i = 1; i < dims.size(); ++i) layout.sample.push_back(static_cast<int64_t>(dims[i]));
}

ArrayProducer::ArrayProducer(ArrayLayout layout, uint64_t first, uint64_t last)
    : layout_(std::move(layout)),
      element_(element_bytes(layout_.dtype)),
      bytes_(tensor_bytes(layout_.dtype, layout_.sample)),
      first_(first),
      last_(last ? last : layout_.count),
      at_(first) {
  info_.dtype = layout_.dtype;
  info_.sample = layout_.sample;
  info_.size = last_ - first_;
  info_.symbols = layout_.symbols;
  info_.notes = layout_.notes;
  if (!info_.symbols.empty())
    info_.classes = static_cast<int64_t>(info_.symbols.size());
  else if (layout_.sample.rank() == 0 && is_integer(layout_.dtype))
    info_.classes = count_classes();
}

int64_t ArrayProducer::count_classes() const {
  std::vector<uint8_t> chunk(std::min<uint64_t>(layout_.count, 4096) * element_);
  int64_t most = 0;
  for (uint64_t at = 0; at < layout_.count;) {
    const uint64_t n = std::min<uint64_t>(layout_.count - at, 4096);
    copy(at, n, chunk.data());
    const int64_t classes = classes_of(layout_.dtype, chunk.data(), n);
    if (classes == 0) return 0;
    most = std::max(most, classes);
    at += n;
  }
  return most;
}

void ArrayProducer::copy(uint64_t sample, uint64_t n, uint8_t* to) const {
  if (layout_.column_major && layout_.sample.rank()) {
    for (uint64_t i = 0; i < n; ++i) gather(sample + i, to + i * bytes_);
  } else {
    std::memcpy(to, layout_.bytes->data() + layout_.offset + sample * bytes_, n * bytes_);
  }
  if (layout_.swapped) swap_bytes(to, n * bytes_ / element_, element_);
  if (layout_.dtype == DType::Bool)
    for (size_t i = 0; i < n * bytes_; ++i) to[i] = to[i] != 0;
}

// Copies one sample of a column-major array, in which the sample number varies fastest, then the sample's axes from the
// first on.
void ArrayProducer::gather(uint64_t sample, uint8_t* to) const {
  const Shape& shape = layout_.sample;
  size_t stride[HX_MAX_RANK] = {}, step = layout_.count;
  for (uint32_t a = 0; a < shape.rank(); ++a) {
    stride[a] = step;
    step *= static_cast<size_t>(shape[a]);
  }
  const uint8_t* from = layout_.bytes->data() + layout_.offset;
  int64_t index[HX_MAX_RANK] = {};
  size_t at = sample;
  for (size_t k = 0; k < bytes_; k += element_) {
    std::memcpy(to + k, from + at * element_, element_);
    for (uint32_t a = shape.rank(); a-- > 0;) {
      at += stride[a];
      if (++index[a] < shape[a]) break;
      at -= stride[a] * static_cast<size_t>(shape[a]);
      index[a] = 0;
    }
  }
}

HTensor ArrayProducer::next() {
  if (at_ == last_) return {};
  layout_.bytes->check();
  HTensor sample(layout_.dtype, layout_.sample);
  copy(at_++, 1, static_cast<uint8_t*>(sample.mutable_bytes()));
  layout_.bytes->expect_whole();
  return sample;
}

// Checks at intervals that the file has not become shorter. Each check is a system call.
void ArrayProducer::check(uint64_t n) {
  constexpr size_t kBytes = 1 << 20;
  constexpr int kReads = 64;
  if (unchecked_reads_ == 0 || n * bytes_ > unchecked_bytes_) {
    layout_.bytes->check();
    unchecked_reads_ = kReads;
    unchecked_bytes_ = kBytes;
  }
  --unchecked_reads_;
  unchecked_bytes_ -= std::min(n * bytes_, unchecked_bytes_);
}

bool ArrayProducer::read_at(const uint64_t* numbers, uint64_t n, void* to) {
  check(n);
  for (uint64_t i = 0; i < n; ++i) copy(first_ + numbers[i], 1, static_cast<uint8_t*>(to) + i * bytes_);
  layout_.bytes->expect_whole();
  return true;
}

int64_t ArrayProducer::read(uint64_t n, void* to) {
  n = std::min(n, last_ - at_);
  if (n == 0) return 0;
  check(n);
  copy(at_, n, static_cast<uint8_t*>(to));
  layout_.bytes->expect_whole();
  at_ += n;
  return static_cast<int64_t>(n);
}

}  // namespace harmonics
