// Sources compared with a plain read of the same bytes: files of about 64 MB, read in batches of 256 as in training.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <harmonics/philox.hpp>
#include <png.h>

#include "engine/plugin/registry.hpp"
#include "engine/streams/streams.hpp"
#include "tests/bench/measure.hpp"

namespace harmonics::engine::bench {

namespace {

// A page-aligned batch: the speed of a copy depends on the page offsets of source and target.
struct Page {
  alignas(4096) std::byte bytes[4096];
};
class Pages {
 public:
  explicit Pages(size_t bytes) : pages_((bytes + sizeof(Page) - 1) / sizeof(Page)), bytes_(bytes) {}
  std::byte* data() { return pages_.data()->bytes; }
  size_t size() const { return bytes_; }

 private:
  std::vector<Page> pages_;
  size_t bytes_;
};

namespace fs = std::filesystem;

constexpr size_t kBatch = 256, kPixels = 784, kImages = 80000, kColumns = 32, kRows = 200000;

// Files of every format in a temporary folder, created on demand.
class Files {
 public:
  Files() {
    std::string name = (fs::temp_directory_path() / "harmonics-bench-XXXXXX").string();
    if (!mkdtemp(name.data())) throw Error(ErrorKind::Output, fmt::format("'{}' cannot be made", name));
    folder_ = name;
  }
  ~Files() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string get(const std::string& name, const std::function<std::string()>& make) const {
    const std::string path = (folder_ / name).string();
    if (!fs::exists(path)) std::ofstream(path, std::ios::binary) << make();
    return path;
  }
  std::string folder(const std::string& name, const std::function<void(const fs::path&)>& fill) const {
    const fs::path path = folder_ / name;
    if (fs::create_directory(path)) fill(path);
    return path.string();
  }

 private:
  fs::path folder_;
};
const Files& files() {
  static const Files it;
  return it;
}

std::string random_bytes(size_t n) {
  std::string bytes(n, '\0');
  PhiloxStream random(philox_key(1, 1), 0);
  for (size_t i = 0; i + 4 <= n; i += 4) {
    const uint32_t word = random.next();
    std::memcpy(bytes.data() + i, &word, 4);
  }
  return bytes;
}

std::string idx() {
  std::string head("\0\0\x08\x03", 4);
  for (const uint32_t d : {uint32_t{kImages}, 28u, 28u})
    for (int shift : {24, 16, 8, 0}) head += static_cast<char>(d >> shift);
  return head + random_bytes(kImages * kPixels);
}

std::string npy() {
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 784), }}", kImages / 4);
  text.resize(117, ' ');
  text += '\n';
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(text.size()) + '\0' + text +
         random_bytes(kImages * kPixels);
}

// Writes numbers as in tables: measurements with four decimals.
template <typename Put>
std::string numbers(Put put) {
  PhiloxStream random(philox_key(2, 2), 0);
  std::string text;
  for (size_t row = 0; row < kRows; ++row)
    put(text, [&] { return fmt::format("{:.4f}", random.uniform(-100.0f, 100.0f)); });
  return text;
}
std::string csv() {
  return numbers([](std::string& text, const auto& number) {
    for (size_t c = 0; c < kColumns; ++c) text += (c ? "," : "") + number();
    text += '\n';
  });
}
std::string json_arrays() {
  return numbers([](std::string& text, const auto& number) {
    text += "{\"id\": 7, \"values\": [";
    for (size_t c = 0; c < kColumns; ++c) text += (c ? ", " : "") + number();
    text += "]}\n";
  });
}
std::string json_fields() {
  return numbers([](std::string& text, const auto& number) {
    text += "{\"name\": \"a record\"";
    for (size_t c = 0; c < 8; ++c) text += fmt::format(", \"field_{}\": ", c) + number();
    text += "}\n";
  });
}
// Writes numbers like images of digits: integers up to 255, four fifths of them 0.
std::string csv_of_digits() {
  PhiloxStream random(philox_key(3, 3), 0);
  std::string text;
  for (size_t row = 0; row < 40000; ++row)
    for (size_t c = 0; c < kPixels; ++c)
      text += std::to_string(random.below(5) ? 0 : random.below(256)) + (c + 1 < kPixels ? ',' : '\n');
  return text;
}
void fill_with_pictures(const fs::path& folder) {
  for (size_t i = 0; i < 2000; ++i) {
    std::string pixels = random_bytes(kPixels);
    for (char& p : pixels) p = static_cast<uint8_t>(p) < 200 ? '\0' : p;
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = image.height = 28;
    image.format = PNG_FORMAT_GRAY;
    png_image_write_to_file(&image, (folder / fmt::format("{:05}.png", i)).c_str(), 0, pixels.data(), 0, nullptr);
  }
}

Source open(const std::string& path, const std::string& rest) {
  return open_source(Registry::global(), "x", parse_address("file:" + path + rest));
}

void count(benchmark::State& state, double bytes) {
  state.counters["MB/s"] = benchmark::Counter(bytes / 1e6, benchmark::Counter::kIsRate);
}

// Reads a source repeatedly. Reports the rate in bytes of the file.
void read_on(benchmark::State& state, const std::string& path, const std::string& rest) {
  Source source = open(path, rest);
  const double per_pass =
      static_cast<double>(fs::is_directory(path) ? source.info().size * source.sample_bytes() : fs::file_size(path));
  Pages batch(source.sample_bytes() * kBatch);
  uint64_t samples = 0, epoch = 0;
  for (auto _ : state) {
    uint64_t got = source.read(kBatch, batch.data());
    if (got == 0) {
      source.rewind(++epoch);
      got = source.read(kBatch, batch.data());
    }
    samples += got;
    benchmark::DoNotOptimize(batch.data());
  }
  count(state, per_pass * static_cast<double>(samples) / static_cast<double>(source.info().size));
}

// Measures from opening the address to the last sample of the first pass.
void open_and_read(benchmark::State& state, const std::string& path, const std::string& rest) {
  for (auto _ : state) {
    Source source = open(path, rest);
    std::vector<std::byte> batch(source.sample_bytes() * kBatch);
    while (source.read(kBatch, batch.data()) == kBatch) benchmark::DoNotOptimize(batch.data());
  }
  count(state, static_cast<double>(state.iterations()) * static_cast<double>(fs::file_size(path)));
}

// The baseline: maps and copies the same bytes, batch by batch.
void plain(benchmark::State& state, const std::string& path, size_t head, size_t sample) {
  const size_t size = fs::file_size(path);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  const auto* bytes = static_cast<const std::byte*>(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fileno(file), 0));
  std::fclose(file);
  Pages batch(sample * kBatch);
  size_t at = head, total = 0;
  for (auto _ : state) {
    if (at + batch.size() > size) at = head;
    std::memcpy(batch.data(), bytes + at, batch.size());
    at += batch.size();
    total += batch.size();
    benchmark::DoNotOptimize(batch.data());
  }
  munmap(const_cast<std::byte*>(bytes), size);
  count(state, static_cast<double>(total));
}

// The baseline for tables: reads each byte of the text once.
void count_lines(benchmark::State& state, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  size_t lines = 0;
  for (auto _ : state) {
    for (const char* p = text.data();
         (p = static_cast<const char*>(std::memchr(p, '\n', static_cast<size_t>(text.data() + text.size() - p)))); ++p)
      ++lines;
    benchmark::DoNotOptimize(lines);
  }
  count(state, static_cast<double>(state.iterations()) * static_cast<double>(text.size()));
}

// Measures CPU time, because a single thread works.
template <typename Run>
void add(const char* name, Run run) {
  benchmark::RegisterBenchmark(fmt::format("{}/threads:1", name).c_str(), run);
}

void add_all() {
  using State = benchmark::State&;
  add("idx/source", [](State s) { read_on(s, files().get("x.idx", idx), ""); });
  add("idx/plain", [](State s) { plain(s, files().get("x.idx", idx), 16, kPixels); });
  add("npy/source", [](State s) { read_on(s, files().get("x.npy", npy), ""); });
  add("npy/plain", [](State s) { plain(s, files().get("x.npy", npy), 128, kPixels * 4); });
  add("raw/source",
      [](State s) { read_on(s, files().get("x.npy", npy), "?format=raw&dtype=f32&shape=784&offset=128"); });
  add("tokens/source", [](State s) { read_on(s, files().get("x.npy", npy), "?format=tokens&vocab=65536&window=256"); });
  add("csv/open_and_read", [](State s) { open_and_read(s, files().get("x.csv", csv), ""); });
  add("csv/open_and_read_one_column", [](State s) { open_and_read(s, files().get("x.csv", csv), "#3"); });
  add("csv/open_and_read_digits",
      [](State s) { open_and_read(s, files().get("d.csv", csv_of_digits), "?dtype=u8&shape=28x28"); });
  add("csv/lines", [](State s) { count_lines(s, files().get("x.csv", csv)); });
  add("jsonl/open_and_read_arrays", [](State s) { open_and_read(s, files().get("a.jsonl", json_arrays), "#values"); });
  add("jsonl/open_and_read_fields",
      [](State s) { open_and_read(s, files().get("f.jsonl", json_fields), "#field_0,field_1,field_2,field_7"); });
  add("png/source", [](State s) { read_on(s, files().folder("pictures", fill_with_pictures), ""); });
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
