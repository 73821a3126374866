// Any bytes are a picture or a refusal.
#include "producers/file/image.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static ImageDecoder decoder;
  static Image image, small;
  const GuardedBytes bytes("input.png", data, size);
  for (const int64_t channels : {0, 1, 3})
    refusing([&] {
      decoder.decode(*bytes.file(), channels, image);
      require(image.pixels.size() == static_cast<size_t>(image.channels * image.height * image.width), "pixels");
      if (image.pixels.size() > (size_t{1} << 20)) return;
      resize(image, 5, 3, small);
      require(small.pixels.size() == static_cast<size_t>(image.channels) * 15, "pixels of another size");
    });
  return 0;
}
