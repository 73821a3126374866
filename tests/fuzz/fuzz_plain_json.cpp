// Any bytes of a stream are samples as JSON lines hold them, or refusals, wherever they are cut.
#include "tests/fuzz/plain_decoding.hpp"

using namespace harmonics;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return testing::decode_both_ways(plain::Format::Jsonl, {}, data, size);
}
