// Any input is a frame file or an error, and a spool segment whose valid part is read. Each input is tried unchanged,
// and with correct checksums, which fuzzing would not find.
#include <cstring>

#include "engine/spool/segment.hpp"
#include "producers/file/frames.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "wire/crc32c.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

void as_file(const uint8_t* data, size_t size, const std::optional<std::string>& tensor) {
  const GuardedBytes bytes("input.hxs", data, size);
  refusing([&] {
    if (const auto producer = open_frames(bytes.file(), tensor, "")) read_everything(*producer);
  });
}

void as_segment(const uint8_t* data, size_t size) {
  FilesInMemory files;
  files.put("segment", std::string(reinterpret_cast<const char*>(data), size));
  const spool::Barriers barriers = spool::scan("segment", files);
  uint64_t index = 0, end = 0;
  for (const auto& at : barriers.all) {
    require(at.end > end && at.end <= size, "a barrier outside of its file, or in no order");
    require(at.mark.index >= index, "barriers that go back");
    index = at.mark.index;
    end = at.end;
  }
}

void try_all(const uint8_t* data, size_t size) {
  as_file(data, size, std::nullopt);
  as_file(data, size, "label");
  as_segment(data, size);
}

// Corrects the checksums frame by frame, as far as the lengths are valid.
std::vector<uint8_t> with_checksums(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  const std::span<std::byte> all = std::as_writable_bytes(std::span(bytes));
  for (size_t at = 0; size - at >= wire::kPrefixBytes;) {
    uint64_t length = 0;
    const int refused = refusing([&] { length = wire::read_prefix(all.subspan(at)).frame_bytes(); });
    (void)refused;
    if (length == 0 || length > size - at) break;
    const auto frame = all.subspan(at, length);
    const uint32_t crc = wire::crc32c(frame.subspan(wire::kPrefixBytes), wire::crc32c(frame.first(20)));
    std::memcpy(frame.data() + 20, &crc, sizeof crc);
    at += length;
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try_all(data, size);
  const std::vector<uint8_t> sealed = with_checksums(data, size);
  try_all(sealed.data(), sealed.size());
  return 0;
}
