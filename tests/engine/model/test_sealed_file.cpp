// Weights files: a checksum covers every byte; other programs' files are read without one.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "engine/model/sealed_file.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
namespace fs = std::filesystem;

namespace {

TensorFile weights() {
  TensorFile file;
  file.metadata["harmonics.name"] = "g";
  file.tensors["x.o.affine.weight"] = HTensor::from(Shape{2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  file.tensors["x.o.affine.bias"] = HTensor::from(Shape{2}, std::vector<float>{7, 8});
  return file;
}

}  // namespace

TEST_CASE("sealed files: every flipped byte and every truncation is detected") {
  const std::string path = (fs::temp_directory_path() / ("harmonics-sealed-" + std::to_string(::getpid()))).string();
  save_sealed(weights(), path);
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  CHECK(read_weights(path).tensors.size() == 2);
  const auto accepted = [&](const std::string& bytes) {
    return message_of([&] { read_weights(bytes.data(), bytes.size(), "w"); }) == "no error";
  };
  REQUIRE(accepted(whole));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 4);
    INFO("byte " << i);
    CHECK_FALSE(accepted(bytes));
    CHECK_FALSE(accepted(whole.substr(0, i)));
  }
  fs::remove(path);
}

TEST_CASE("sealed files: plain safetensors, and files without a seal are read") {
  const std::string sealed = write_sealed(weights());
  const TensorFile file = read_safetensors(sealed.data(), sealed.size(), "w");
  CHECK(file.tensors.size() == 2);
  CHECK(file.metadata.at("harmonics.name") == "g");
  std::string plain = write_safetensors(weights());
  plain.back() = static_cast<char>(plain.back() ^ 4);
  CHECK(read_weights(plain.data(), plain.size(), "w").tensors.size() == 2);
  std::string damaged = sealed;
  damaged.back() = static_cast<char>(damaged.back() ^ 4);
  const std::string text = message_of([&] { read_weights(damaged.data(), damaged.size(), "w"); });
  CHECK(text.find("'w' is damaged: tensor 'x.o.affine.weight' has the checksum ") == 0);
  CHECK(text.find("must drop the metadata 'harmonics.checksum' and 'harmonics.checksums'") != std::string::npos);
}
