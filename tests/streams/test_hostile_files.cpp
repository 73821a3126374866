// Hostile files: wrong lengths, or content far larger than the file justifies. They are rejected before allocation.
#include <fstream>

#include "engine/streams/streams.hpp"
#include "producers/file/csv.hpp"
#include "producers/file/image.hpp"
#include "producers/file/jsonl.hpp"
#include "producers/file/open.hpp"
#include "producers/file/text.hpp"
#include "tests/streams/allocated.hpp"
#include "tests/streams/under_test.hpp"
#include "tests/streams/written_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// Returns an array in which only the first element of each level is an array.
std::string nested(const std::vector<size_t>& sizes, size_t axis = 0) {
  std::string text = "[" + (axis + 1 < sizes.size() ? nested(sizes, axis + 1) : std::string("0"));
  for (size_t i = 1; i < sizes[axis]; ++i) text += ",0";
  return text + "]";
}

std::string refusal_of(const std::string& name, const std::string& bytes, const Options& options = {}) {
  const TemporaryFolder folder;
  const std::string path = folder.write(name, bytes);
  std::string what = refusal([&] { open_file(path, options); });
  for (size_t at; (at = what.find(path)) != std::string::npos;) what.replace(at, path.size(), "FILE");
  return what;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

uint64_t mappings() {
  std::ifstream maps("/proc/self/maps");
  uint64_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

}  // namespace

TEST_CASE("json lines: nested arrays get their real size, not the one their first elements imply") {
  for (const std::vector<size_t>& sizes : {std::vector<size_t>{256, 256, 256, 256, 256, 256, 256, 256},
                                           {2, 4, 79, 167, 6709, 10223, 12301, 14087},
                                           {81, 81, 81, 81}}) {
    const uint64_t before = bytes_allocated();
    CHECK(contains(refusal_of("x.jsonl", nested(sizes) + "\n"),
                   "line 1, the value: found a number, the first line has the shape ["));
    CHECK(bytes_allocated() - before < 16 << 20);
  }
  std::string many = "{";
  for (int i = 0; i < 30; ++i) many += (i ? ", \"" : "\"") + std::to_string(i) + "\": " + nested({81, 81, 81, 81});
  const uint64_t before = bytes_allocated();
  CHECK(contains(refusal_of("x.jsonl", many + "}\n"), "line 1, field '0': found a number"));
  CHECK(bytes_allocated() - before < 16 << 20);
}

TEST_CASE("json lines: many fields are found in one pass") {
  std::string line = "{";
  constexpr int fields = 100'000;
  for (int i = 0; i < fields; ++i) line += (i ? ",\"f" : "\"f") + std::to_string(i) + "\":" + std::to_string(i % 7);
  std::string backwards = "{";
  for (int i = fields; i-- > 0;)
    backwards += (i + 1 < fields ? ",\"f" : "\"f") + std::to_string(i) + "\":" + std::to_string(i % 5);
  const TemporaryFolder folder;
  const auto producer = open_file(folder.write("x.jsonl", line + "}\n" + backwards + "}\n"), Options{});
  CHECK(producer->describe()->sample == Shape{fields});
  const auto rows = drain<float>(*producer);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0][13] == 13 % 7);
  CHECK(rows[1][13] == 13 % 5);
  CHECK(rows[1][fields - 1] == (fields - 1) % 5);
}

TEST_CASE("json lines: the first of duplicate keys counts, at every depth") {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "x.jsonl", "{\"a\":{\"b\":1,\"b\":2,\"c\":3},\"a\":{\"b\":4},\"d\":5}\n{\"d\":9,\"a\":{\"c\":8,\"b\":7}}\n");
  CHECK(drain<float>(*open_file(path, Options{{"#", "a.b,d,a.c,d"}})) ==
        std::vector<std::vector<float>>{{1, 5, 3, 5}, {7, 9, 8, 9}});
}

TEST_CASE("arrays: shapes that overflow are refused in bounded memory") {
  for (const char* shape : {"(4294967296, 4294967296, 3)", "(1, 18446744073709551615)", "(9223372036854775807, 2)",
                            "(2, 3037000500, 3037000500)"}) {
    const uint64_t before = bytes_allocated();
    CHECK(contains(refusal_of("x.npy", npy_file("<f8", shape, std::string(64, '\0'))), "any memory holds"));
    CHECK(bytes_allocated() - before < 1 << 20);
  }
  CHECK(contains(refusal_of("x.raw", std::string(64, '\0'), {{"dtype", "f32"}, {"shape", "4294967296x4294967296x4"}}),
                 "is larger than any memory; write smaller sizes"));
  CHECK(contains(refusal_of("x.csv", "1,2\n3,4\n", {{"shape", "4294967296x4294967296x4"}}),
                 "is larger than any memory; write smaller sizes"));
}

TEST_CASE("budget: a refusal names the requester, the amount and the option that allows more") {
  Budget budget({100, "steps", "100 steps for a test", "give --steps-budget", ErrorKind::Usage});
  budget.take(60, "layer 'a'", "its gates");
  CHECK(budget.left() == 40);
  CHECK(refusal([&] { budget.take(41, "layer 'b'", "its gates"); }) ==
        "layer 'b' asks for 41 steps for its gates; the limit is 100 steps (100 steps for a test), of which 60 are "
        "used; give --steps-budget");
  CHECK(budget.used() == 60);
  CHECK(contains(refusal([&] { budget.take(uint64_t{1} << 40, uint64_t{1} << 40, "it", "all"); }),
                 "it asks for more than 2^64 steps"));
  budget.give_back(1000);
  CHECK(budget.left() == 100);
  budget.reach(99, "it", "time");
  CHECK(budget.left() == 1);
  CHECK_THROWS_AS(budget.reach(101, "it", "time"), Error);
}

TEST_CASE("compressed files unpack to no more than memory= allows") {
  const std::string zeros(4 << 20, '1');
  const std::string expected =
      "'FILE' asks for 1048577 bytes for its decompressed content; the limit is 1048576 bytes; give a larger memory=";
  CHECK(refusal_of("x.txt.gz", gzip_file(zeros), {{"memory", "1M"}}) == expected);
  CHECK(refusal_of("x.txt.zst", zstd_file(zeros), {{"memory", "1M"}}) == expected);
  CHECK(contains(
      refusal_of("x.npz", zip_file({{"a.npy", npy_file("|u1", "(4194304,)", zeros)}}, true), {{"memory", "1M"}}),
      "FILE#a.npy' asks for 4194"));
  const std::string idx = std::string("\0\0\x08\x01\0\x40\0\0", 8) + zeros;
  CHECK(contains(refusal_of("x.idx.gz", gzip_file(idx), {{"memory", "1M"}}),
                 "asks for 4194312 bytes for its decompressed content"));
  CHECK(refusal_of("x.txt.gz", gzip_file(zeros), {{"memory", "8M"}}).empty());
  CHECK(contains(refusal_of("x.txt", "abc", {{"memory", "much"}}), "memory=much is not a number of bytes"));
  const TemporaryFolder folder;
  CHECK(FileBytes::open(folder.write("x", std::string(1000, 'x')))->budget()->most() ==
        first_allowance + 1000 * allowance_per_byte);
}

TEST_CASE("text: files are not held in memory twice") {
  const TemporaryFolder folder;
  TextOptions options;
  const auto used = [&](const std::string& text) {
    const FileBytesPtr file = FileBytes::open(folder.write("x.txt", text));
    const auto producer = read_text(file, options);
    CHECK(producer->size() > 0);
    return file->budget()->used();
  };
  CHECK(used(std::string(100'000, 'a') + "bc") == 0);
  std::string greek;
  for (int i = 0; i < 1000; ++i) greek += "\xCE\xB1";
  CHECK(used(greek + "abc") == 1003);
}

TEST_CASE("pictures: the memory of decoding is counted first, resizing takes only the memory of its result") {
  std::vector<uint8_t> noise(1000 * 1000 * 3);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<uint8_t>(i * i >> 5);
  CHECK(contains(refusal_of("x.png", png_file(1000, 1000, noise), {{"memory", "1M"}}),
                 "asks for 3112000 bytes for 1000 x 1000 pixels; the limit is 1048576 bytes"));
  CHECK(refusal_of("x.png", png_file(1000, 1000, noise)).empty());
  noise.resize(200'000);
  const TemporaryFolder folder;
  const std::string path = folder.write("x.png", png_file(100'000, 2, noise));
  const uint64_t before = bytes_allocated();
  const auto producer = open_file(path, Options{{"resize", "28x512"}});
  CHECK(producer->describe()->sample == Shape{28, 512});
  CHECK(bytes_allocated() - before < 8 << 20);
}

TEST_CASE("class names that are not UTF-8 are refused when they are read") {
  const std::string remedy = "convert it, for example with iconv -t UTF-8";
  CHECK(refusal_of("x.csv", "a,y\n1,tea\n2,caf\xE9\n", {{"#", "y"}}) ==
        "'FILE' line 3, column #1 'y': the class 'caf\\xE9' is not UTF-8: its byte 3 does not begin a character; " +
            remedy);
  CHECK(refusal_of("x.csv", "a,y\n1,tea\n2,caf\xC3\xA9\n", {{"#", "y"}}).empty());
  CHECK(refusal_of("x.jsonl", "{\"y\": \"caf\xE9\"}\n") == "'FILE' line 1 is not UTF-8; " + remedy);
  const TemporaryFolder folder;
  const std::string pixel = png_file(1, 1, {7});
  for (const char* name : {"tea", "caf\xE9"}) {
    std::filesystem::create_directory(folder.path(name));
    folder.write(std::string(name) + "/1.png", pixel);
  }
  CHECK(contains(refusal([&] {
                   open_file(folder.path("."), Options{{"#", "label"}});
                 }),
                 "has the class 'caf\\xE9', which is not UTF-8"));
}

TEST_CASE("csv: a column with the largest integer has no class count") {
  const TemporaryFolder folder;
  const std::string path = folder.write("x.csv", "y\n180\n9223372036854775807\n");
  CHECK(open_file(path, Options{})->describe()->classes == 0);
}

TEST_CASE("a producer's class names must be UTF-8") {
  class Named : public CountingProducer {
   public:
    Named() : CountingProducer(3) {}
    std::optional<StreamInfo> describe() override {
      auto info = CountingProducer::describe();
      info->symbols = {"tea", "caf\xE9"};
      return info;
    }
  };
  CHECK(contains(refusal([] { Source("y", std::make_shared<Named>()); }),
                 "stream 'y' names class 1 'caf?', which is not UTF-8"));
}

TEST_CASE("a stream of many small files needs few mappings") {
  const TemporaryFolder folder;
  for (int i = 0; i < 300; ++i) {
    folder.write(std::to_string(i) + ".csv", "1,2\n3,4\n");
    folder.write(std::to_string(i) + ".npy", npy_file("|u1", "(2, 2)", "abcd"));
  }
  for (const char* pattern : {"*.csv", "*.npy"}) {
    const uint64_t before = mappings();
    const auto producer = open_file(folder.path(pattern), Options{});
    CHECK(producer->size() == 600);
    CHECK(mappings() - before < 50);
  }
}
