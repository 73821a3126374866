#include "producers/file/image.hpp"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace harmonics {
namespace {

// Limits of compression: deflate expands one byte to at most 1032, JPEG uses at least two bits for 64 pixels.
constexpr uint64_t most_pixels_per_byte = 1032 * 8, most_pixels = uint64_t{1} << 28;
constexpr uint64_t bytes_of_a_tap = 2 * sizeof(float) + 48;  // per row or column when resizing

void expect_believable(const FileBytes& file, uint64_t width, uint64_t height, uint64_t bytes_of_a_pixel) {
  const uint64_t pixels = width * height;  // no overflow: each is below 2^32
  if (width == 0 || height == 0 || pixels > most_pixels || pixels / most_pixels_per_byte > file.size())
    refuse_file(file.name(),
                "is a picture of " + std::to_string(width) + " x " + std::to_string(height) + " pixels in " +
                    std::to_string(file.size()) + " bytes, which cannot be",
                "the file is damaged");
  // No product overflows: there are at most 2^28 pixels. Released at once, because the decoder reuses its memory.
  const uint64_t bytes = pixels * bytes_of_a_pixel + (width + height) * bytes_of_a_tap;
  file.budget()->take(bytes, "'" + file.name() + "'",
                      std::to_string(width) + " x " + std::to_string(height) + " pixels");
  file.budget()->give_back(bytes);
}

struct PngImage {
  png_image image{};
  ~PngImage() { png_image_free(&image); }
};

// An output element: a weighted mean of consecutive inputs.
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

bool looks_like_png(const uint8_t* data, size_t size) {
  return size >= 8 && std::memcmp(data, "\x89PNG\r\n\x1A\n", 8) == 0;
}
bool looks_like_jpeg(const uint8_t* data, size_t size) {
  return size >= 3 && std::memcmp(data, "\xFF\xD8\xFF", 3) == 0;
}

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
  png.image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // else libpng takes 16 bits for linear light and brightens them
  to.channels = channels ? channels : png.image.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1;
  expect_believable(file, png.image.width, png.image.height, static_cast<uint64_t>(to.channels));
  to.height = png.image.height;
  to.width = png.image.width;
  png.image.format = to.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  to.pixels.resize(PNG_IMAGE_SIZE(png.image));
  const png_color black{0, 0, 0};
  if (!png_image_finish_read(&png.image, &black, to.pixels.data(), 0, nullptr)) refuse();
  // libpng reports truncated images and wrong checksums as warnings.
  if (PNG_IMAGE_FAILED(png.image) || png.image.warning_or_error) refuse();
}

void ImageDecoder::decode_jpeg(const FileBytes& file, int64_t channels, Image& to) {
  const auto refuse = [&] {
    refuse_file(file.name(), std::string("is a damaged JPEG: ") + tjGetErrorStr2(jpeg_), "get the file again");
  };
  int width = 0, height = 0, sampling = 0, space = 0;
  if (tjDecompressHeader3(jpeg_, file.data(), file.size(), &width, &height, &sampling, &space)) refuse();
  if (space == TJCS_CMYK || space == TJCS_YCCK)
    refuse_file(file.name(), "is a JPEG with the four colours of printing (CMYK)", "convert it to RGB");
  to.channels = channels ? channels : space == TJCS_GRAY ? 1 : 3;
  // A progressive image also needs coefficients of two bytes, besides its pixels.
  expect_believable(file, static_cast<uint64_t>(width), static_cast<uint64_t>(height),
                    3 * static_cast<uint64_t>(to.channels));
  to.height = height;
  to.width = width;
  to.pixels.resize(static_cast<size_t>(to.height * to.width * to.channels));
  if (tjDecompress2(jpeg_, file.data(), file.size(), to.pixels.data(), width, 0, height,
                    to.channels == 3 ? TJPF_RGB : TJPF_GRAY, TJFLAG_STOPONWARNING))
    refuse();
}

void write_planes(const Image& image, uint8_t* to) {
  const auto channels = static_cast<size_t>(image.channels), plane = image.pixels.size() / channels;
  for (size_t c = 0; c < channels; ++c)
    for (size_t i = 0; i < plane; ++i) to[c * plane + i] = image.pixels[i * channels + c];
}

namespace {

// Resizes one row of one channel to the output width.
void resize_row(const uint8_t* from, int64_t channels, const std::vector<Tap>& across, float* to) {
  for (const Tap& tap : across) {
    float sum = 0;
    const uint8_t* at = from + tap.first * channels;
    for (const float weight : tap.weights) {
      sum += weight * static_cast<float>(*at);
      at += channels;
    }
    *to++ = sum;
  }
}

}  // namespace

// Reads the image's rows once, from the top, and adds each to the output rows it contributes to. Memory thus depends on
// the output, not on the declared height of the image.
void resize(const Image& from, int64_t height, int64_t width, Image& to) {
  const std::vector<Tap> down = taps(from.height, height), across = taps(from.width, width);
  const auto columns = static_cast<size_t>(width), rows = static_cast<size_t>(height);
  to.height = height;
  to.width = width;
  to.channels = from.channels;
  to.pixels.resize(static_cast<size_t>(from.channels) * rows * columns);
  std::vector<float> row(columns), sums(rows * columns);
  const auto byte = [](float x) { return static_cast<uint8_t>(std::min(255.0f, std::max(0.0f, x + 0.5f))); };
  for (int64_t c = 0; c < from.channels; ++c) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    size_t begin = 0;  // the first incomplete output row
    for (int64_t y = 0; y < from.height; ++y) {
      const auto end_of = [&](size_t r) { return down[r].first + static_cast<int64_t>(down[r].weights.size()); };
      while (begin < rows && end_of(begin) <= y) ++begin;
      if (begin == rows || down[begin].first > y) continue;
      resize_row(from.pixels.data() + y * from.width * from.channels + c, from.channels, across, row.data());
      for (size_t r = begin; r < rows && down[r].first <= y; ++r) {
        if (end_of(r) <= y) continue;
        const float weight = down[r].weights[static_cast<size_t>(y - down[r].first)];
        float* sum = sums.data() + r * columns;
        for (size_t x = 0; x < columns; ++x) sum[x] += weight * row[x];
      }
    }
    uint8_t* pixel = to.pixels.data() + c;
    for (size_t i = 0; i < sums.size(); ++i, pixel += from.channels) *pixel = byte(sums[i]);
  }
}

}  // namespace harmonics
