// Any list of best checkpoints is rejected, or read as one that round-trips.
#include <cstdlib>
#include <string_view>

#include "engine/checkpoint/best_checkpoints.hpp"

using namespace harmonics::engine;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto list = parse_best({reinterpret_cast<const char*>(data), size});
  if (list && parse_best(best_text(*list)) != list) std::abort();
  return 0;
}
