// Any stream is NumPy array samples or errors, wherever it is cut.
#include "tests/fuzz/plain_decoding.hpp"

using namespace harmonics;
using namespace harmonics::engine;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return testing::decode_both_ways(plain::Format::Npy, {}, data, size);
}
