#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "producers/file/bytes.hpp"

namespace harmonics {
namespace {

struct FreeStream {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

constexpr size_t believed_ratio = 4096, always_believed = size_t{64} << 20;

}  // namespace

bool is_zstd(const FileBytes& file) { return file.size() >= 4 && std::memcmp(file.data(), "\x28\xB5\x2F\xFD", 4) == 0; }

FileBytesPtr unzstd(const FileBytesPtr& packed, size_t limit) {
  const std::unique_ptr<ZSTD_DStream, FreeStream> stream(ZSTD_createDStream());
  if (!stream) refuse_file(packed->name(), "cannot be decompressed: zstd has no memory");
  limit = std::min<uint64_t>(limit, packed->budget()->left());
  const size_t ceiling = std::min(limit, packed->size() > limit / believed_ratio
                                             ? limit
                                             : std::max(always_believed, packed->size() * believed_ratio));
  const auto bytes = FileBytes::reserve(packed->name(), ceiling + 1, packed->budget());
  ZSTD_inBuffer in{packed->data(), packed->size(), 0};
  ZSTD_outBuffer out{bytes->writable(), ceiling + 1, 0};
  size_t wanted = 1;  // 0: a frame has just ended
  while (in.pos < in.size || wanted) {
    const size_t in_before = in.pos, out_before = out.pos;
    wanted = ZSTD_decompressStream(stream.get(), &out, &in);
    const std::string place =
        " at byte " + std::to_string(in.pos) + " after " + std::to_string(out.pos) + " decompressed bytes";
    if (ZSTD_isError(wanted))
      refuse_file(packed->name(),
                  "is damaged: the zstd stream is not sound (" + std::string(ZSTD_getErrorName(wanted)) + ")" + place,
                  "get the file again");
    if (out.pos > ceiling) refuse_unpacked(*packed, ceiling, limit);
    if (wanted && in.pos == in_before && out.pos == out_before)
      refuse_file(packed->name(), "is truncated: the zstd stream breaks off" + place, "get the file again");
  }
  if (out.pos == 0) refuse_file(packed->name(), "is empty after decompression");
  bytes->shrink(out.pos);
  bytes->charge(out.pos, "its decompressed content");
  return bytes;
}

}  // namespace harmonics
