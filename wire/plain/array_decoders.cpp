// Decodes NumPy arrays saved back to back, and raw numbers.
#include <cstring>

#include "formats/npy.hpp"
#include "wire/plain/held_bytes.hpp"
#include "wire/plain/record_decoder.hpp"

namespace harmonics::plain {
namespace {

// Fills the record with one array of this type.
void take_typed(DType dtype, const Shape& shape, std::string_view bytes, Record& record) {
  record.clear();
  record.numbered = false;
  Field& field = record.add("");
  field.kind = Field::Kind::Typed;
  field.dtype = dtype;
  field.shape = shape;
  field.at = 0;
  field.count = bytes.size();
  const auto* const first = reinterpret_cast<const std::byte*>(bytes.data());
  record.bytes.assign(first, first + bytes.size());
}

class NpyDecoder final : public RecordDecoder {
 public:
  explicit NpyDecoder(const DecoderOptions& options) : rows_(options.rows) {}

  void arrived(std::span<const std::byte> bytes) override { held_.add(bytes); }
  void flush() override { flushed_ = true; }
  size_t held() const override { return held_.size(); }
  // The raw bytes of a row are an array with this single row.
  std::string_view raw() override {
    return raw_ = (with_head_ ? rows_ ? head_of_row() : head_ : "") + std::string(data_);
  }

  Next next(Record& record, std::string& reason) override {
    if (!failure_.empty()) return reason = failure_, Next::Broken;
    try {
      while (true) {
        if (left_ == 0 && !read_head()) break;
        if (left_ == 0) continue;  // an empty array
        if (held_.size() < bytes_) break;
        record.place =
            "array " + std::to_string(number_ - 1) + (rows_ ? ", row " + std::to_string(count_ - left_) : "");
        data_ = held_.rest().substr(0, bytes_);
        with_head_ = true;
        take_typed(dtype_, sample_, data_, record);
        held_.pass(bytes_);
        --left_;
        return Next::Record;
      }
    } catch (const Error& e) {
      data_ = held_.rest().substr(0, kMostRecord);
      with_head_ = false;
      return failure_ = reason = e.what(), Next::Broken;
    }
    if (!std::exchange(flushed_, false) || (held_.size() == 0 && left_ == 0)) return Next::None;
    reason = "array " + std::to_string(left_ > 0 ? number_ - 1 : number_) + " is truncated: it ends after " +
             std::to_string(held_.size()) + " of its bytes";
    data_ = held_.rest();
    with_head_ = left_ > 0 && !rows_;
    held_.pass(held_.size());
    left_ = 0;
    return Next::Refused;
  }

 private:
  bool read_head() {
    const std::string_view in = held_.rest();
    const Origin name{"array " + std::to_string(number_), ErrorKind::Stream};
    constexpr std::string_view kMagic("\x93NUMPY", 6);
    const size_t seen = std::min(kMagic.size(), in.size());
    if (in.substr(0, seen) != kMagic.substr(0, seen)) refuse(name, "is not NPY", "write each with numpy.save");
    const auto preamble = read_npy_preamble({reinterpret_cast<const uint8_t*>(in.data()), in.size()}, name);
    if (!preamble) return false;
    if (preamble->size > kMostHead)
      refuse(name,
             "has a head of " + std::to_string(preamble->size) + " bytes; the maximum is " + std::to_string(kMostHead));
    const size_t head = preamble->text + preamble->size;
    if (in.size() < head) return false;
    const NpyHeader header = read_npy_header(in.substr(preamble->text, preamble->size), preamble->text, name);
    dtype_ = header.dtype;
    if (header.swapped) refuse(name, "has big-endian numbers", "send array.astype('<f4')");
    const std::vector<uint64_t>& dims = header.shape;
    if (header.column_major && dims.size() > 1)
      refuse(name, "is in Fortran order", "send numpy.ascontiguousarray(array)");
    if (rows_ && dims.empty()) refuse(name, "is one number, and has no axis that counts samples");
    if (dims.size() > HX_MAX_RANK) refuse(name, "has more than 8 axes");
    sample_ = Shape();
    bytes_ = element_bytes(dtype_);
    for (size_t i = rows_ ? 1 : 0; i < dims.size(); ++i) {
      if (dims[i] == 0 || dims[i] > kMostRecord / bytes_)
        refuse(name, "has samples of no bytes, or more than " + std::to_string(kMostRecord));
      sample_.push_back(static_cast<int64_t>(dims[i]));
      bytes_ *= dims[i];
    }
    count_ = left_ = rows_ ? dims[0] : 1;
    head_ = in.substr(0, head);
    held_.pass(head);
    ++number_;
    return true;
  }
  std::string head_of_row() const {
    std::vector<uint64_t> shape{1};
    for (const int64_t dim : sample_) shape.push_back(static_cast<uint64_t>(dim));
    return write_npy_header(dtype_, shape);
  }

  static constexpr size_t kMostHead = 64u << 10;
  bool rows_, flushed_ = false;
  HeldBytes held_;
  std::string failure_, head_, raw_;
  std::string_view data_;   // of the last sample
  bool with_head_ = false;  // whether the array's head has been consumed before it
  DType dtype_ = DType::F32;
  Shape sample_;
  size_t bytes_ = 0;               // of a sample
  uint64_t count_ = 0, left_ = 0;  // samples of the array; those still expected
  size_t number_ = 0;
};

class RawDecoder final : public RecordDecoder {
 public:
  explicit RawDecoder(const DecoderOptions& options)
      : dtype_(options.dtype), sample_(options.sample), bytes_(tensor_bytes(options.dtype, options.sample)) {
    if (bytes_ > kMostRecord)
      throw Error(ErrorKind::Usage, options.where + ": samples of " + std::to_string(bytes_) +
                                        " bytes; the maximum is " + std::to_string(kMostRecord));
  }

  void arrived(std::span<const std::byte> bytes) override { held_.add(bytes); }
  void flush() override { flushed_ = true; }
  size_t held() const override { return held_.size(); }
  std::string_view raw() override { return raw_; }

  Next next(Record& record, std::string& reason) override {
    if (held_.size() >= bytes_) {
      record.place = "sample " + std::to_string(number_++);
      raw_ = held_.rest().substr(0, bytes_);
      take_typed(dtype_, sample_, raw_, record);
      held_.pass(bytes_);
      return Next::Record;
    }
    if (!std::exchange(flushed_, false) || held_.size() == 0) return Next::None;
    reason = "sample " + std::to_string(number_++) + " is truncated: it has " + std::to_string(held_.size()) + " of " +
             std::to_string(bytes_) + " bytes";
    raw_ = held_.rest();
    held_.pass(held_.size());
    return Next::Refused;
  }

 private:
  DType dtype_;
  Shape sample_;
  size_t bytes_;
  bool flushed_ = false;
  HeldBytes held_;
  std::string_view raw_;
  size_t number_ = 0;
};

}  // namespace

std::unique_ptr<RecordDecoder> make_npy_decoder(const DecoderOptions& options) {
  return std::make_unique<NpyDecoder>(options);
}
std::unique_ptr<RecordDecoder> make_raw_decoder(const DecoderOptions& options) {
  return std::make_unique<RawDecoder>(options);
}

}  // namespace harmonics::plain
