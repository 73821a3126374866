// Any bytes unpack to a text of bounded size, or are rejected.
#include <cstdlib>
#include <string_view>

#include <harmonics/error.hpp>

#include "engine/corpus/packed_text.hpp"

using namespace harmonics;
using namespace harmonics::engine;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!is_packed(bytes)) return 0;
  uint64_t unpacked = 0;
  try {
    unpack(bytes, "file", [&](std::string_view piece) { unpacked += piece.size(); });
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Stream) std::abort();
  }
  if (unpacked > (uint64_t{64} << 20) + 4096 * size) std::abort();
  return 0;
}
