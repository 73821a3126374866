// Writes files like other programs, for tests of readers: NPY, zip, safetensors, PNG, JPEG, gzip, zstd.
#pragma once

#include <png.h>
#include <turbojpeg.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace harmonics::engine::testing {

inline std::string little(uint64_t value, int bytes) {
  std::string s;
  for (int i = 0; i < bytes; ++i) s += static_cast<char>(value >> 8 * i);
  return s;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline std::string npy_file(const std::string& descr, const std::string& shape, const std::string& elements) {
  const std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  return std::string("\x93NUMPY\x01\x00", 8) + little(text.size(), 2) + text + elements;
}

inline std::string deflated(const std::string& plain, int window_bits) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&z, plain.size()) + 32, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}
inline std::string gzip_file(const std::string& plain) { return deflated(plain, 15 + 16); }

inline std::string zstd_file(const std::string& plain) {
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), 3));
  return packed;
}

// Writes a zip file like numpy.savez. `wide`: sizes in zip64 fields.
inline std::string zip_file(const std::vector<std::pair<std::string, std::string>>& members, bool deflate = false,
                            bool wide = false) {
  std::string out, directory;
  for (const auto& [name, plain] : members) {
    const std::string packed = deflate ? deflated(plain, -15) : plain;
    const uint64_t offset = out.size(), crc = crc32_z(0, reinterpret_cast<const Bytef*>(plain.data()), plain.size());
    const std::string method = little(deflate ? 8 : 0, 2), sum = little(crc, 4);
    const std::string extra =
        wide ? little(1, 2) + little(16, 2) + little(plain.size(), 8) + little(packed.size(), 8) : "";
    const std::string sizes = wide ? std::string(8, '\xFF') : little(packed.size(), 4) + little(plain.size(), 4);
    out += "PK\x03\x04" + little(45, 2) + little(0, 2) + method + little(0, 4) + sum + sizes + little(name.size(), 2) +
           little(extra.size(), 2) + name + extra + packed;
    directory += "PK\x01\x02" + little(45, 2) + little(45, 2) + little(0, 2) + method + little(0, 4) + sum + sizes +
                 little(name.size(), 2) + little(extra.size(), 2) + little(0, 2) + little(0, 2) + little(0, 2) +
                 little(0, 4) + little(offset, 4) + name + extra;
  }
  const std::string count = little(members.size(), 2);
  return out + directory + "PK\x05\x06" + little(0, 4) + count + count + little(directory.size(), 4) +
         little(out.size(), 4) + little(0, 2);
}

inline std::string safetensors_file(const std::string& header, const std::string& data) {
  return little(header.size(), 8) + header + data;
}

// Writes grey images with one channel, colour images with three, channels last.
inline std::string png_file(unsigned height, unsigned width, const std::vector<uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = pixels.size() == size_t{height} * width ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  REQUIRE(png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr));
  std::string file(size, '\0');
  REQUIRE(png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr));
  file.resize(size);
  return file;
}

// A grey image of one row of 16 bits, without a chunk that describes its light.
inline std::string deep_png_file(const std::vector<uint16_t>& pixels) {
  const auto number = [](uint32_t n) {
    std::string four;
    for (int shift = 24; shift >= 0; shift -= 8) four += static_cast<char>(n >> shift);
    return four;
  };
  const auto chunk = [&](const std::string& name, const std::string& data) {
    const std::string all = name + data;
    const auto sum = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(all.data()), all.size()));
    return number(static_cast<uint32_t>(data.size())) + all + number(sum);
  };
  std::string row(1, '\0');
  for (const uint16_t pixel : pixels) row += {static_cast<char>(pixel >> 8), static_cast<char>(pixel)};
  std::string packed(compressBound(row.size()), '\0');
  uLongf size = packed.size();
  REQUIRE(compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(row.data()),
                   row.size()) == Z_OK);
  return "\x89PNG\r\n\x1A\n" +
         chunk("IHDR", number(static_cast<uint32_t>(pixels.size())) + number(1) + std::string("\x10\0\0\0\0", 5)) +
         chunk("IDAT", packed.substr(0, size)) + chunk("IEND", "");
}

// With four bytes a pixel, an image in the colours of printing.
inline std::string jpeg_file(int height, int width, const std::vector<uint8_t>& pixels) {
  const bool grey = pixels.size() == static_cast<size_t>(height * width);
  const int colour = pixels.size() == 4 * static_cast<size_t>(height * width) ? TJPF_CMYK : TJPF_RGB;
  tjhandle handle = tjInitCompress();
  unsigned char* data = nullptr;
  unsigned long size = 0;
  REQUIRE(tjCompress2(handle, pixels.data(), width, 0, height, grey ? TJPF_GRAY : colour, &data, &size,
                      grey ? TJSAMP_GRAY : TJSAMP_444, 95, 0) == 0);
  const std::string file(reinterpret_cast<char*>(data), size);
  tjFree(data);
  tjDestroy(handle);
  return file;
}

}  // namespace harmonics::engine::testing
