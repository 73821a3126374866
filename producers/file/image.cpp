#include "producers/file/image.hpp"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace harmonics {
namespace {

// Neither format packs tighter: deflate makes 1032 bytes of one, JPEG spends at least two bits on 64 pixels.
constexpr uint64_t most_pixels_per_byte = 1032 * 8, most_pixels = uint64_t{1} << 28;

void expect_believable(const FileBytes& file, uint64_t width, uint64_t height) {
  const uint64_t pixels = width * height;  // each below 2^32
  if (width == 0 || height == 0 || pixels > most_pixels || pixels / most_pixels_per_byte > file.size())
    refuse_file(file.name(), "is a picture of " + std::to_string(width) + " x " + std::to_string(height) +
                                 " pixels in " + std::to_string(file.size()) + " bytes, which cannot be",
                "the file is damaged");
}

struct PngImage {
  png_image image{};
  ~PngImage() { png_image_free(&image); }
};

// One output place: which inputs it is a weighted mean of.
struct Tap {
  int64_t first;
  std::vector<float> weights;
};

std::vector<Tap> taps(int64_t from, int64_t to) {
  std::vector<Tap> all;
  const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(center - reach + 0.5));
    const auto last = std::min(from, static_cast<int64_t>(center + reach + 0.5));
    Tap tap{first, {}};
    double sum = 0;
    for (int64_t k = first; k < last; ++k) {
      const double w = std::max(0.0, 1.0 - std::abs((static_cast<double>(k) - center + 0.5) / reach));
      tap.weights.push_back(static_cast<float>(w));
      sum += w;
    }
    for (float& w : tap.weights) w = static_cast<float>(w / sum);
    all.push_back(std::move(tap));
  }
  return all;
}

}  // namespace

bool looks_like_png(const uint8_t* data, size_t size) { return size >= 8 && std::memcmp(data, "\x89PNG\r\n\x1A\n", 8) == 0; }
bool looks_like_jpeg(const uint8_t* data, size_t size) { return size >= 3 && std::memcmp(data, "\xFF\xD8\xFF", 3) == 0; }

ImageDecoder::ImageDecoder() : jpeg_(tjInitDecompress()) {
  if (!jpeg_) throw Error(ErrorKind::Internal, "libjpeg-turbo cannot be started");
}
ImageDecoder::~ImageDecoder() { tjDestroy(jpeg_); }

void ImageDecoder::decode(const FileBytes& file, int64_t channels, Image& to) {
  if (looks_like_png(file.data(), file.size()))
    decode_png(file, channels, to);
  else if (looks_like_jpeg(file.data(), file.size()))
    decode_jpeg(file, channels, to);
  else
    refuse_file(file.name(), "is neither PNG nor JPEG, by its first bytes", "leave it out, or convert it");
}

void ImageDecoder::decode_png(const FileBytes& file, int64_t channels, Image& to) {
  PngImage png;
  png.image.version = PNG_IMAGE_VERSION;
  const auto refuse = [&] {
    refuse_file(file.name(), std::string("is a damaged PNG: ") + png.image.message, "get the file again");
  };
  if (!png_image_begin_read_from_memory(&png.image, file.data(), file.size())) refuse();
  expect_believable(file, png.image.width, png.image.height);
  to.channels = channels ? channels : png.image.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1;
  to.height = png.image.height;
  to.width = png.image.width;
  png.image.format = to.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  interleaved_.resize(PNG_IMAGE_SIZE(png.image));
  const png_color black{0, 0, 0};
  if (!png_image_finish_read(&png.image, &black, interleaved_.data(), 0, nullptr)) refuse();
  // A warning is what libpng makes of a picture that breaks off or whose checksum is wrong.
  if (PNG_IMAGE_FAILED(png.image) || png.image.warning_or_error) refuse();
  split(to);
}

void ImageDecoder::decode_jpeg(const FileBytes& file, int64_t channels, Image& to) {
  const auto refuse = [&] {
    refuse_file(file.name(), std::string("is a damaged JPEG: ") + tjGetErrorStr2(jpeg_), "get the file again");
  };
  int width = 0, height = 0, sampling = 0, space = 0;
  if (tjDecompressHeader3(jpeg_, file.data(), file.size(), &width, &height, &sampling, &space)) refuse();
  expect_believable(file, static_cast<uint64_t>(width), static_cast<uint64_t>(height));
  to.channels = channels ? channels : space == TJCS_GRAY ? 1 : 3;
  to.height = height;
  to.width = width;
  interleaved_.resize(static_cast<size_t>(to.height * to.width * to.channels));
  if (tjDecompress2(jpeg_, file.data(), file.size(), interleaved_.data(), width, 0, height,
                    to.channels == 3 ? TJPF_RGB : TJPF_GRAY, TJFLAG_STOPONWARNING))
    refuse();
  split(to);
}

void ImageDecoder::split(Image& to) const {
  to.pixels.resize(interleaved_.size());
  const auto channels = static_cast<size_t>(to.channels), plane = interleaved_.size() / channels;
  for (size_t c = 0; c < channels; ++c)
    for (size_t i = 0; i < plane; ++i) to.pixels[c * plane + i] = interleaved_[i * channels + c];
}

void resize(const Image& from, int64_t height, int64_t width, Image& to) {
  const std::vector<Tap> down = taps(from.height, height), across = taps(from.width, width);
  to.height = height;
  to.width = width;
  to.channels = from.channels;
  to.pixels.resize(static_cast<size_t>(from.channels * height * width));
  std::vector<float> rows(static_cast<size_t>(from.height * width));
  const auto byte = [](float x) { return static_cast<uint8_t>(std::min(255.0f, std::max(0.0f, x + 0.5f))); };
  for (int64_t c = 0; c < from.channels; ++c) {
    const uint8_t* plane = from.pixels.data() + c * from.height * from.width;
    for (int64_t y = 0; y < from.height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const Tap& tap = across[static_cast<size_t>(x)];
        float sum = 0;
        for (size_t k = 0; k < tap.weights.size(); ++k)
          sum += tap.weights[k] * static_cast<float>(plane[y * from.width + tap.first + static_cast<int64_t>(k)]);
        rows[static_cast<size_t>(y * width + x)] = sum;
      }
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const Tap& tap = down[static_cast<size_t>(y)];
        float sum = 0;
        for (size_t k = 0; k < tap.weights.size(); ++k)
          sum += tap.weights[k] * rows[static_cast<size_t>((tap.first + static_cast<int64_t>(k)) * width + x)];
        to.pixels[static_cast<size_t>((c * height + y) * width + x)] = byte(sum);
      }
  }
}

}  // namespace harmonics
