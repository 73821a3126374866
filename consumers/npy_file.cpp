#include "consumers/npy_file.hpp"

#include <vector>

#include "formats/npy.hpp"

namespace harmonics {
namespace {

// The header is written before the number of samples is known, so it reserves room for any number.
constexpr size_t header_size = 256;

}  // namespace

std::string NpyFileConsumer::header() const {
  std::vector<uint64_t> shape{count_};
  for (const int64_t d : sample_) shape.push_back(static_cast<uint64_t>(d));
  return write_npy_header(dtype_ == DType::BF16 ? DType::F32 : dtype_, shape, header_size);  // bf16 is widened
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
                                       "; an .npy file holds samples of one type, a .jsonl file any");
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
