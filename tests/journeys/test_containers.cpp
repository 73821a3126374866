// Equal digits in different containers give equal samples and bitwise equal training.
#include "producers/file/open.hpp"
#include "tests/journeys/shell.hpp"
#include "tests/streams/under_test.hpp"
#include "tests/streams/written_files.hpp"

using namespace journeys;

namespace {

using harmonics::open_file;
using harmonics::engine::testing::gzip_file;
using harmonics::engine::testing::little;
using harmonics::engine::testing::npy_file;
using harmonics::engine::testing::Options;
using harmonics::engine::testing::zip_file;
using harmonics::engine::testing::zstd_file;

constexpr uint64_t kDigitCount = 1500;
constexpr size_t kPixels = 28 * 28;

std::string first(const std::string& path, size_t bytes_each) {
  std::string bytes(kDigitCount * bytes_each, '\0');
  REQUIRE(open_file(path, Options{})->read(kDigitCount, bytes.data()) == static_cast<int64_t>(kDigitCount));
  return bytes;
}

std::string big(uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
}

std::string csv(const std::string& pixels, const std::string& labels) {
  std::string text = "label";
  for (size_t i = 0; i < kPixels; ++i) text += ",p" + std::to_string(i);
  for (size_t n = 0; n < kDigitCount; ++n) {
    text += "\n" + std::to_string(labels[n]);
    for (size_t i = 0; i < kPixels; ++i) text += "," + std::to_string(static_cast<uint8_t>(pixels[n * kPixels + i]));
  }
  return text + "\n";
}

std::string json_rows(const std::string& pixels, const std::string& labels) {
  std::string text;
  for (size_t n = 0; n < kDigitCount; ++n) {
    text += "{\"label\": " + std::to_string(labels[n]) + ", \"pixels\": [";
    for (size_t i = 0; i < kPixels; ++i)
      text += (i ? "," : "") + std::to_string(static_cast<uint8_t>(pixels[n * kPixels + i]));
    text += "]}\n";
  }
  return text;
}

std::string drained(const std::string& path, const Options& options) {
  const auto producer = open_file(path, options);
  std::string bytes(producer->size() * producer->describe()->sample_bytes(), '\0');
  REQUIRE(producer->read(producer->size(), bytes.data()) == static_cast<int64_t>(kDigitCount));
  return bytes;
}

}  // namespace

TEST_CASE("containers: equal digits in IDX, CSV, NPZ, NPY and JSON lines train to equal bits") {
  const std::string data = data_folder();
  if (data.empty()) return;
  const std::string pixels = first(data + "/mnist/train-images-idx3-ubyte.gz", kPixels);
  const std::string labels = first(data + "/mnist/train-labels-idx1-ubyte.gz", 1);
  const Folder f;
  f.write("x.idx", std::string("\0\0\x08\x03", 4) + big(kDigitCount) + big(28) + big(28) + pixels);
  f.write("y.idx", std::string("\0\0\x08\x01", 4) + big(kDigitCount) + labels);
  const std::string n = std::to_string(kDigitCount), x = npy_file("|u1", "(" + n + ", 28, 28)", pixels),
                    y = npy_file("|u1", "(" + n + ",)", labels);
  f.write("x.npy.zst", zstd_file(x));
  f.write("stored.npz", zip_file({{"x", "not an array"}, {"x.npy", x}, {"y.npy", y}}));
  f.write("deflated.npz", zip_file({{"x.npy", x}, {"y.npy", y}}, true, true));
  f.write("xy.csv", csv(pixels, labels));
  f.write("xy.jsonl.gz", gzip_file(json_rows(pixels, labels)));
  CHECK(drained(f / "xy.csv", {{"dtype", "u8"}, {"#", "1-784"}}) == pixels);
  CHECK(drained(f / "xy.csv", {{"dtype", "u8"}, {"#", "label"}}) == labels);
  CHECK(drained(f / "deflated.npz", {{"#", "x"}}) == pixels);
  CHECK(drained(f / "xy.jsonl.gz", {{"dtype", "u8"}, {"#", "pixels"}}) == pixels);

  const std::pair<const char*, const char*> pairs[] = {
      {"x.idx", "y.idx"},
      {"stored.npz#x", "stored.npz#y"},
      {"deflated.npz#x", "deflated.npz#y"},
      {"x.npy.zst", "y.idx"},
      {"xy.csv?dtype=u8&shape=28x28#1-784", "xy.csv?dtype=u8#label"},
      {"xy.jsonl.gz?dtype=u8&shape=28x28#pixels", "xy.jsonl.gz?dtype=u8#label"}};
  std::string weights;
  for (const auto& [images, classes] : pairs) {
    const Result r = journeys::harmonics("run " + kSamples + "mnist.hmx --producer 'file:" + (f / images) +
                                         "' --producer 'file:" + (f / classes) + "' --epochs 1 --quiet --json --save " +
                                         (f / "w.safetensors"));
    REQUIRE(r.code == 0);
    CHECK(number(r.out, "samples") == kDigitCount);
    const std::string saved = read(f / "w.safetensors");
    if (weights.empty()) weights = saved;
    INFO(images);
    CHECK(saved.size() > 1000);
    CHECK((saved == weights));
  }
}
