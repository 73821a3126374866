// Decodes images to bytes: PNG by libpng, JPEG by libjpeg-turbo.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "producers/file/bytes.hpp"

namespace harmonics {

struct Image {
  int64_t height = 0, width = 0, channels = 0;  // 1 grey, 3 red, green, blue
  std::vector<uint8_t> pixels;                  // [height, width, channels]
};

// Writes the pixels in the layout of a sample, [channels, height, width].
void write_planes(const Image& image, uint8_t* to);

bool looks_like_png(const uint8_t* data, size_t size);
bool looks_like_jpeg(const uint8_t* data, size_t size);

// Decodes images one at a time, reusing memory. `channels`: 1 or 3; 0: as in the file. Blends alpha over black.
class ImageDecoder {
 public:
  ImageDecoder();
  ~ImageDecoder();
  ImageDecoder(const ImageDecoder&) = delete;
  ImageDecoder& operator=(const ImageDecoder&) = delete;
  void decode(const FileBytes& file, int64_t channels, Image& to);

 private:
  void decode_png(const FileBytes& file, int64_t channels, Image& to);
  void decode_jpeg(const FileBytes& file, int64_t channels, Image& to);

  void* jpeg_;  // a tjhandle
};

// Resizes with a triangle filter as wide as the reduction requires. Besides the result, it allocates the same number of
// floats, and one row and one column.
void resize(const Image& from, int64_t height, int64_t width, Image& to);

}  // namespace harmonics
