// The listing of the architecture's first description, unchanged, with the functions that it assumes. Runs for a third
// of a second instead of an hour. Argument: the flow. Writes two small files of digits first.
#include <harmonics/harmonics.hpp>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

using namespace harmonics;

namespace {

constexpr int kSamples = 40;

// Returns one sample: 784 bytes, or a label.
HTensor loadNextRecord(std::ifstream& file) {
  uint32_t bytes = 0;
  if (!file.read(reinterpret_cast<char*>(&bytes), sizeof bytes)) return {};
  std::vector<char> record(bytes);
  file.read(record.data(), bytes);
  return HTensor(DType::U8, bytes == 1 ? Shape{} : Shape{static_cast<int64_t>(bytes)}, record.data());
}
std::size_t fileRecordCount(const std::ifstream&) { return kSamples; }

void writeRecords(const char* path, uint32_t bytes) {
  std::ofstream file(path, std::ios::binary);
  for (int i = 0; i < kSamples; ++i) {
    std::vector<char> record(bytes, static_cast<char>(i % 10));
    file.write(reinterpret_cast<const char*>(&bytes), sizeof bytes).write(record.data(), bytes);
  }
}
void writeBinary(const char* path, std::span<const std::byte> blob) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(blob.data()), static_cast<std::streamsize>(blob.size()));
}

struct MyFusedReluShader : ActivationFunction {
  HTensor operator()(const HTensor& x) const override { return maximum(x, 0.0); }
};

[[maybe_unused]] void listing() {
#include "design_listing.inc"
}

void listing_in_short() {
#define hours(n) milliseconds(300 * (n))
#include "design_listing.inc"
#undef hours
}

}  // namespace

int main(int, char** arguments) {
  std::filesystem::copy_file(arguments[1], "mnist_train_cycle.hmx", std::filesystem::copy_options::overwrite_existing);
  writeRecords("train-images.idx", 784);
  writeRecords("train-labels.idx", 1);
  listing_in_short();
  std::ifstream file("mnist_weights.bin", std::ios::binary);
  const std::string blob((std::istreambuf_iterator<char>(file)), {});
  HarmonicGraph again = parse_blob(blob.data(), blob.size());
  std::printf("%zu bytes, %zu weights\n", blob.size(), again.weights().size());
  return again.weights().size() == 4 ? 0 : 1;
}
