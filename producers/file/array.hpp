// Samples stored as one array in a file: IDX, NPY and parsed CSV.
#pragma once

#include <harmonics/stream.hpp>

#include "producers/file/bytes.hpp"

namespace harmonics {

struct ArrayLayout {
  FileBytesPtr bytes;
  size_t offset = 0;  // of the first element
  DType dtype = DType::F32;
  Shape sample;
  uint64_t count = 0;         // samples; at least 1
  bool swapped = false;       // byte order differs from this machine's
  bool column_major = false;  // Fortran order over all axes, samples first
  std::vector<std::string> symbols;
  std::string notes;
};

// Returns the bytes of `count` samples. Rejects the file if they exceed the address space.
size_t array_bytes(const std::string& name, DType dtype, const std::vector<uint64_t>& dims);

// Sets the axes of a whole array: the first counts samples, the others are a sample's. Rejects arrays without axes,
// with an empty axis or with too many; `what` appears in the error.
void set_axes(ArrayLayout& layout, const std::vector<uint64_t>& dims, const std::string& what);

// The samples [first, last) of an array; classes are counted over all samples.
class ArrayProducer final : public Producer {
 public:
  explicit ArrayProducer(ArrayLayout layout) : ArrayProducer(std::move(layout), 0, 0) {}
  ArrayProducer(ArrayLayout layout, uint64_t first, uint64_t last);  // last 0: to the end
  HTensor next() override;
  std::size_t size() const override { return last_ - first_; }
  bool rewind() override { return at_ = first_, true; }
  bool seek(uint64_t, uint64_t index) override { return index <= size() && (at_ = first_ + index, true); }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override;
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override;

 private:
  void check(uint64_t n);
  void copy(uint64_t sample, uint64_t n, uint8_t* to) const;
  void gather(uint64_t sample, uint8_t* to) const;
  int64_t count_classes() const;

  ArrayLayout layout_;
  StreamInfo info_;
  size_t element_, bytes_;
  uint64_t first_, last_, at_;
  size_t unchecked_bytes_ = 0;  // bytes that may be read before the next check of the file,
  int unchecked_reads_ = 0;     // in at most this many calls
};

}  // namespace harmonics
