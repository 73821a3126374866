// Pictures: PNG by libpng, JPEG by libjpeg-turbo, as bytes channel by channel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "producers/file/bytes.hpp"

namespace harmonics {

struct Image {
  int64_t height = 0, width = 0, channels = 0;  // 1 grey, 3 red, green, blue
  std::vector<uint8_t> pixels;                  // [channels, height, width]
};

bool looks_like_png(const uint8_t* data, size_t size);
bool looks_like_jpeg(const uint8_t* data, size_t size);

// Decodes one picture after the other, reusing memory. `channels` 1 or 3; 0: as the file has it. An alpha channel is laid
// over black.
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
  void split(Image& to) const;

  void* jpeg_;                         // a tjhandle
  std::vector<uint8_t> interleaved_;  // as the libraries give it: channels last
};

// Height and width changed by a triangle filter that is as wide as the shrinking asks for.
void resize(const Image& from, int64_t height, int64_t width, Image& to);

}  // namespace harmonics
