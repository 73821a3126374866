#include "consumers/npy_file.hpp"

#include <vector>

namespace harmonics {
namespace {

// The header is written before the number of samples is known, so it reserves room for any.
constexpr size_t header_size = 256;

const char* descr_of(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return "|b1";
    case DType::U8:
      return "|u1";
    case DType::I8:
      return "|i1";
    case DType::I16:
      return "<i2";
    case DType::U16:
      return "<u2";
    case DType::I32:
      return "<i4";
    case DType::U32:
      return "<u4";
    case DType::I64:
      return "<i8";
    case DType::U64:
      return "<u8";
    case DType::F16:
      return "<f2";
    case DType::BF16:
      return "<f4";  // NumPy has no bfloat16: widened
    case DType::F32:
      return "<f4";
    case DType::F64:
      return "<f8";
  }
  return "";
}

}  // namespace

std::string NpyFileConsumer::header() const {
  std::string shape = std::to_string(count_) + ',';
  for (const int64_t d : sample_) shape.append(" ").append(std::to_string(d)) += ',';
  std::string text =
      std::string("{'descr': '") + descr_of(dtype_) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  text.resize(header_size - 10 - 1, ' ');
  const auto size = static_cast<uint16_t>(text.size() + 1);
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(size & 255) + static_cast<char>(size >> 8) + text +
         "\n";
}

void NpyFileConsumer::push(const HTensor& sample) {
  const DType dtype = sample.dtype();
  const Shape shape = sample.shape();
  if (count_ == 0) {
    dtype_ = dtype;
    sample_ = shape;
    file_.write(header());
  } else if (dtype != dtype_ || shape != sample_) {
    throw Error(ErrorKind::Output, "cannot write '" + path_ + "': sample " + std::to_string(count_) + " has shape " +
                                       shape.str() + ", those before it " + sample_.str() +
                                       "; an .npy file holds samples of one type, .jsonl any");
  }
  const auto* bytes = static_cast<const char*>(sample.bytes());
  const auto n = static_cast<size_t>(shape.count());
  if (dtype == DType::BF16) {
    std::vector<char> wide(n * 4);
    for (size_t i = 0; i < n; ++i) wide[4 * i + 2] = bytes[2 * i], wide[4 * i + 3] = bytes[2 * i + 1];
    file_.write({wide.data(), wide.size()});
  } else {
    file_.write({bytes, n * element_bytes(dtype)});
  }
  ++count_;
}

void NpyFileConsumer::finish() {
  file_.rewrite_start(header());
  file_.finish();
}

}  // namespace harmonics
