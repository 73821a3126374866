// Any input is a frame or an error with a remedy. A decoded frame encodes to one that decodes equally. Each input is
// tried unchanged, and with a correct checksum, which fuzzing would not find.
#include <memory>

#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/wire/raw_frame.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::wire;
using namespace harmonics::engine::testing;

namespace {

void inside(const Frame& frame, std::span<const std::byte> bytes) {
  for (const TensorPart& part : frame.tensors) {
    if (part.bytes.empty()) continue;
    require(part.bytes.data() >= bytes.data() && part.bytes.data() + part.bytes.size() <= bytes.data() + bytes.size(),
            "a tensor outside of its frame");
    require(part.bytes.size() == frame.count * tensor_bytes(part.dtype, part.sample), "a tensor of another size");
  }
}

int try_frame(std::span<const std::byte> bytes) {
  return refusing([&] {
    try {
      const Frame frame = decode(bytes);
      inside(frame, bytes);
      const std::vector<std::byte> again = encode(frame).bytes();
      require(read_prefix(again).frame_bytes() == again.size(), "a frame of another length than it says");
      require(wire::testing::same(decode(again), frame), "a frame that reads otherwise when it was written again");
      require(encode(decode(again)).bytes() == again, "a frame that is written in two ways");
    } catch (const Error& e) {
      require(!e.notes().empty(), "a refusal that does not say what to do");
      throw;
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Exactly this size, so that a sanitizer detects reads beyond it.
  const std::unique_ptr<std::byte[]> exact(new std::byte[size]);
  if (size > 0) std::memcpy(exact.get(), data, size);
  const std::span<std::byte> bytes(exact.get(), size);
  try_frame(bytes);
  if (size < kPrefixBytes) return 0;
  const uint32_t crc = crc32c(bytes.subspan(kPrefixBytes), crc32c(bytes.first(20)));
  std::memcpy(bytes.data() + 20, &crc, sizeof crc);
  return try_frame(bytes);
}
