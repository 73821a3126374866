// Decodes NumPy arrays saved back to back, and raw numbers.
#include <cstring>

#include "wire/plain/held_bytes.hpp"
#include "wire/plain/npy_header.hpp"
#include "wire/plain/record_decoder.hpp"

namespace harmonics::plain {
namespace {

// Returns the record for one array of this type.
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
  // A row of an array is an array of one row.
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
    reason = "array " + std::to_string(left_ > 0 ? number_ - 1 : number_) + " is cut: it ends after " +
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
    const std::string name = "array " + std::to_string(number_);
    const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(in[i])); };
    const size_t seen = std::min<size_t>(6, in.size());
    if (in.substr(0, seen) != std::string_view("\x93NUMPY", 6).substr(0, seen))
      npy_refuse(name, "is not NPY", "write each with numpy.save");
    if (in.size() < 12) return false;
    if (byte(6) < 1 || byte(6) > 3)
      npy_refuse(name, "is NPY of version " + std::to_string(byte(6)) + "; versions 1 to 3 can be read");
    const size_t start = byte(6) == 1 ? 10 : 12;
    const size_t size = byte(8) | byte(9) << 8 | (start == 12 ? byte(10) << 16 | byte(11) << 24 : 0);
    if (size > kMostHead)
      npy_refuse(name, "has a head of " + std::to_string(size) + " bytes; the most is " + std::to_string(kMostHead));
    if (in.size() < start + size) return false;
    const NpyHeader header(name, in.data() + start, size, start);
    dtype_ = dtype_of_descr(name, header.descr());
    if (header.descr()[0] == '>' && element_bytes(dtype_) > 1)
      npy_refuse(name, "has big-endian numbers", "send array.astype('<f4')");
    const std::vector<uint64_t>& dims = header.shape();
    if (header.fortran() && dims.size() > 1)
      npy_refuse(name, "is in Fortran order", "send numpy.ascontiguousarray(array)");
    if (rows_ && dims.empty()) npy_refuse(name, "is one number, and has no axis that counts samples");
    if (dims.size() > HX_MAX_RANK) npy_refuse(name, "has more than 8 axes");
    sample_ = Shape();
    bytes_ = element_bytes(dtype_);
    for (size_t i = rows_ ? 1 : 0; i < dims.size(); ++i) {
      if (dims[i] == 0 || dims[i] > kMostRecord / bytes_)
        npy_refuse(name, "has samples of no bytes, or more than " + std::to_string(kMostRecord));
      sample_.push_back(static_cast<int64_t>(dims[i]));
      bytes_ *= dims[i];
    }
    count_ = left_ = rows_ ? dims[0] : 1;
    descr_ = header.descr();
    head_ = in.substr(0, start + size);
    held_.pass(start + size);
    ++number_;
    return true;
  }
  std::string head_of_row() const {
    std::string shape = "1,";
    for (const int64_t dim : sample_) shape += " " + std::to_string(dim) + ",";
    std::string text = "{'descr': '" + descr_ + "', 'fortran_order': False, 'shape': (" + shape + "), }";
    text.append(63 - (text.size() + 10) % 64, ' ');
    text += '\n';
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(text.size() & 0xff) +
           static_cast<char>(text.size() >> 8) + text;
  }

  static constexpr size_t kMostHead = 64u << 10;
  bool rows_, flushed_ = false;
  HeldBytes held_;
  std::string failure_, descr_, head_, raw_;
  std::string_view data_;   // of the last sample
  bool with_head_ = false;  // whether the array's head, which was passed before it, belongs to it
  DType dtype_ = DType::F32;
  Shape sample_;
  size_t bytes_ = 0;               // of a sample
  uint64_t count_ = 0, left_ = 0;  // samples of the array; those still missing
  size_t number_ = 0;
};

class RawDecoder final : public RecordDecoder {
 public:
  explicit RawDecoder(const DecoderOptions& options)
      : dtype_(options.dtype), sample_(options.sample), bytes_(tensor_bytes(options.dtype, options.sample)) {
    if (bytes_ > kMostRecord)
      throw Error(ErrorKind::Usage, options.where + ": samples of " + std::to_string(bytes_) + " bytes; the most is " +
                                        std::to_string(kMostRecord));
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
    reason = "sample " + std::to_string(number_++) + " is cut: it has " + std::to_string(held_.size()) + " of " +
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
