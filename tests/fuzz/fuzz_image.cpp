// Any input is an image or an error.
#include <zlib.h>

#include "producers/file/image.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/fuzz/structured.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

uint64_t big_endian_at(const uint8_t* p) {
  return uint64_t{p[0]} << 24 | uint64_t{p[1]} << 16 | uint64_t{p[2]} << 8 | p[3];
}
void put_big_endian(uint8_t* p, uint64_t v) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<uint8_t>(v >> (24 - 8 * i));
}

// Corrects the checksum of every chunk, so that its content is parsed.
void seal_chunks(uint8_t* png, size_t size) {
  for (size_t at = 8; at + 12 <= size;) {
    const uint64_t length = big_endian_at(png + at);
    if (length > size - at - 12) return;
    put_big_endian(png + at + 8 + length, crc32_z(0, png + at + 4, length + 4));
    at += 12 + length;
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  Choices choices(seed);
  const size_t header = 8 + 8 + 13;  // width, height, depth, colour type ... of a PNG begin at byte 16
  if (size >= header && choices.one_in(4))
    put_big_endian(data + 16 + 4 * choices.below(2), choices.length());
  else
    size = LLVMFuzzerMutate(data, size, max_size);
  if (looks_like_png(data, size) && !choices.one_in(8)) seal_chunks(data, size);
  return size;
}

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
