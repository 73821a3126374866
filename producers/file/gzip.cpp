#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include <harmonics/quantity.hpp>

#include "producers/file/bytes.hpp"
#include "producers/file/idx.hpp"

namespace harmonics {
namespace {

// Deflate cannot compress further than this (zlib's technical details): a larger declared size is false.
constexpr size_t most_per_byte = 1032;

constexpr const char* kBreaksOff = "breaks off";

class Inflater {
 public:
  explicit Inflater(const FileBytes& packed) : packed_(packed) {
    if (inflateInit2(&z_, 15 + 16) != Z_OK) refuse_file(packed.name(), "cannot be decompressed: zlib has no memory");
  }
  ~Inflater() { inflateEnd(&z_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Reads up to n bytes; fewer at the end of the last member, or if the stream is truncated or damaged, which sound()
  // tells.
  size_t read(uint8_t* to, size_t n) {
    size_t got = 0;
    while (got < n && !ended_ && !broken_) {
      feed();
      const size_t room = std::min<size_t>(n - got, 1u << 30);
      z_.next_out = to + got;
      z_.avail_out = static_cast<uInt>(room);
      const int status = inflate(&z_, Z_NO_FLUSH);
      got += room - z_.avail_out;
      if (status == Z_STREAM_END)
        end_member();
      else if (status == Z_BUF_ERROR && consumed() == packed_.size())
        broken_ = kBreaksOff;
      else if (status != Z_OK && status != Z_BUF_ERROR)
        broken_ = "is damaged (" + std::string(z_.msg ? z_.msg : "no reason given") + ")";
    }
    produced_ += got;
    return got;
  }

  bool sound() const { return !broken_; }
  // Names the defect of the stream: "truncated", or "damaged".
  std::string verdict() const { return broken_ == kBreaksOff ? "truncated" : "damaged"; }
  size_t produced() const { return produced_; }
  // Returns "the gzip stream breaks off at byte 2119680 after 5497112 decompressed bytes".
  std::string fault() const {
    return "the gzip stream " + *broken_ + " at byte " + std::to_string(consumed()) + " after " +
           std::to_string(produced_) + " decompressed bytes";
  }

 private:
  size_t consumed() const { return fed_ - z_.avail_in; }
  void feed() {
    if (z_.avail_in) return;
    const size_t n = std::min<size_t>(packed_.size() - fed_, 1u << 30);
    z_.next_in = const_cast<Bytef*>(packed_.data() + fed_);
    z_.avail_in = static_cast<uInt>(n);
    fed_ += n;
  }
  // Another member or zero padding may follow.
  void end_member() {
    size_t at = consumed();
    const uint8_t* p = packed_.data();
    while (at < packed_.size() && p[at] == 0) ++at;
    ended_ = at == packed_.size();
    if (ended_) return;
    if (packed_.size() - at >= 2 && p[at] == 0x1F && p[at + 1] == 0x8B && at == consumed())
      inflateReset(&z_);
    else
      broken_ = "is followed by something else";
  }

  const FileBytes& packed_;
  z_stream z_{};
  size_t fed_ = 0, produced_ = 0;
  bool ended_ = false;
  std::optional<std::string> broken_;
};

[[noreturn]] void refuse_idx(const FileBytes& packed, const Inflater& in, const IdxHeader& header) {
  const size_t record = (header.promised - header.offset) / header.records();
  const size_t whole = in.produced() > header.offset ? (in.produced() - header.offset) / record : 0;
  refuse_file(packed.name(),
              "is " + (in.sound() ? "truncated" : in.verdict()) + ": " +
                  (in.sound() ? "the gzip stream holds " + quantity(in.produced(), "byte") : in.fault()) +
                  ", its IDX header promises " + std::to_string(header.promised) + " (" + header.text() +
                  "), enough for " + quantity(whole, "record"),
              "get the file again");
}

// Unpacks the rest of an IDX file whose beginning is known, to exactly the size in its header.
FileBytesPtr unpack_idx(const FileBytes& packed, Inflater& in, const uint8_t* begin, size_t got) {
  const IdxHeader header = read_idx_header(packed.name(), begin, got);
  if (header.promised / most_per_byte > packed.size())
    refuse_file(packed.name(),
                "is damaged: its IDX header promises " + quantity(header.promised, "byte") + " (" + header.text() +
                    "), more than " + quantity(packed.size(), "byte") + " of gzip can hold",
                "get the file again");
  const auto bytes = FileBytes::reserve(packed.name(), header.promised, packed.budget());
  bytes->charge(header.promised, "its decompressed content");
  got = std::min(got, header.promised);
  std::memcpy(bytes->writable(), begin, got);
  in.read(bytes->writable() + got, header.promised - got);
  if (in.produced() < header.promised) refuse_idx(packed, in, header);
  uint8_t more = 0;
  if (in.read(&more, 1) || in.produced() > header.promised)
    refuse_file(packed.name(),
                "is longer than declared: its IDX header promises " + quantity(header.promised, "byte") + " (" +
                    header.text() + "), more come out",
                "the header or the data is damaged");
  if (!in.sound()) refuse_file(packed.name(), "is " + in.verdict() + ": " + in.fault(), "get the file again");
  return bytes;
}

}  // namespace

bool is_gzip(const FileBytes& file) { return file.size() >= 2 && file.data()[0] == 0x1F && file.data()[1] == 0x8B; }

FileBytesPtr gunzip(const FileBytesPtr& packed, size_t limit) {
  Inflater in(*packed);
  uint8_t begin[4 + 4 * HX_MAX_RANK];
  const size_t got = in.read(begin, sizeof begin);
  if (looks_like_idx(begin, got)) return unpack_idx(*packed, in, begin, got);
  limit = std::min<uint64_t>(limit, packed->budget()->left());
  const size_t ceiling = packed->size() > limit / most_per_byte ? limit : packed->size() * most_per_byte + sizeof begin;
  if (got > ceiling) refuse_unpacked(*packed, ceiling, limit);
  const auto bytes = FileBytes::reserve(packed->name(), ceiling + 1, packed->budget());
  std::memcpy(bytes->writable(), begin, got);
  const size_t total = got + in.read(bytes->writable() + got, ceiling + 1 - got);
  if (!in.sound()) refuse_file(packed->name(), "is " + in.verdict() + ": " + in.fault(), "get the file again");
  if (total > ceiling) refuse_unpacked(*packed, ceiling, limit);
  if (total == 0) refuse_file(packed->name(), "is empty after decompression");
  bytes->shrink(total);
  bytes->charge(total, "its decompressed content");
  return bytes;
}

}  // namespace harmonics
