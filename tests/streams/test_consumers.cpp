#include <unistd.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "consumers/format.hpp"
#include "consumers/output_file.hpp"
#include "consumers/streams.hpp"
#include "engine/tensor/half.hpp"
#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string line(LineFormat format, const HTensor& sample, std::vector<std::string> symbols = {}) {
  return LineWriter(format, std::move(symbols)).line(sample);
}

// Returns the text that `body` writes to standard output.
std::string printed(const std::function<void()>& body) {
  const TemporaryFolder folder;
  std::fflush(stdout);
  const int kept = dup(1);
  REQUIRE(freopen(folder.path("out").c_str(), "w", stdout) != nullptr);
  body();
  std::fflush(stdout);
  dup2(kept, 1);
  close(kept);
  return folder.read("out");
}

const HTensor matrix = HTensor::from<float>({2, 3}, {0.1f, 2, -3e10f, 1.0f / 3, 5, 4});

}  // namespace

TEST_CASE("a sample is one line") {
  CHECK(line(LineFormat::Text, matrix) == "0.1 2 -3e+10 0.33333334 5 4");
  CHECK(line(LineFormat::Csv, matrix) == "0.1,2,-3e+10,0.33333334,5,4");
  CHECK(line(LineFormat::Json, matrix) == "[[0.1, 2, -3e+10], [0.33333334, 5, 4]]");
  CHECK(line(LineFormat::Argmax, matrix) == "1 1");
  CHECK(line(LineFormat::Symbols, matrix, {"no", "yes", "maybe"}) == "yes yes");
  CHECK(line(LineFormat::Symbols, matrix, {"a", "\xC3\xA9", "c"}) == "\xC3\xA9\xC3\xA9");
  CHECK(line(LineFormat::Text, HTensor::scalar(2.5f)) == "2.5");
  CHECK(line(LineFormat::Json, HTensor::scalar(2.5f)) == "2.5");
  CHECK(line(LineFormat::Argmax, HTensor::scalar(2.5f)) == "0");
}

TEST_CASE("JSON has the sign of a negative zero, which '-0' would lose") {
  CHECK(line(LineFormat::Json, HTensor::from<float>({3}, {-0.0f, 0, -1})) == "[-0.0, 0, -1]");
  const TemporaryFolder folder;
  const auto rows = drain<float>(*open_file(folder.write("x.jsonl", "[-0.0, 0, -1]\n"), {}));
  CHECK((std::signbit(rows.at(0).at(0)) && !std::signbit(rows[0][1])));
}

TEST_CASE("real numbers are written with the fewest digits that restore every bit") {
  const auto text = [](DType dtype, const auto& value) { return line(LineFormat::Text, HTensor(dtype, {}, &value)); };
  CHECK(text(DType::F32, 1.0f / 3) == "0.33333334");
  CHECK(text(DType::F32, 16777217.0f) == "1.6777216e+07");
  CHECK(text(DType::F32, 0.1f) == "0.1");
  CHECK(text(DType::F32, -0.0f) == "-0");
  CHECK(text(DType::F32, 1e-45f) == "1e-45");
  CHECK(text(DType::F64, 1.0 / 3) == "0.3333333333333333");
  CHECK(text(DType::F32, -std::numeric_limits<float>::quiet_NaN()) == "nan");  // the sign is meaningless
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    const auto f = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const auto d = std::bit_cast<double>(bits);
    if (std::isfinite(f)) {
      const std::string written = text(DType::F32, f);
      CHECK((std::strtof(written.c_str(), nullptr) == f && written.size() <= 15));
    }
    if (std::isfinite(d)) CHECK(std::strtod(text(DType::F64, d).c_str(), nullptr) == d);
  }
  size_t digits = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    const std::string half = text(DType::F16, b), brain = text(DType::BF16, b);
    if (std::isfinite(half_to_float(b))) CHECK(float_to_half(std::strtof(half.c_str(), nullptr)) == b);
    if (std::isfinite(bfloat_to_float(b))) CHECK(float_to_bfloat(std::strtof(brain.c_str(), nullptr)) == b);
    digits = std::max({digits, half.size(), brain.size()});
  }
  CHECK(digits <= 11);  // "-1.2345e-05"
}

TEST_CASE("numbers of every type are written") {
  const auto text = [](DType dtype, const auto& value) { return line(LineFormat::Text, HTensor(dtype, {}, &value)); };
  CHECK(text(DType::U8, uint8_t{255}) == "255");
  CHECK(text(DType::I8, int8_t{-128}) == "-128");
  CHECK(text(DType::U16, uint16_t{65535}) == "65535");
  CHECK(text(DType::I16, int16_t{-5}) == "-5");
  CHECK(text(DType::I32, int32_t{-2000000000}) == "-2000000000");
  CHECK(text(DType::U32, uint32_t{4000000000u}) == "4000000000");
  CHECK(text(DType::I64, int64_t{-9007199254740993}) == "-9007199254740993");
  CHECK(text(DType::U64, uint64_t{18446744073709551615u}) == "18446744073709551615");
  CHECK(text(DType::F64, 1e300) == "1e+300");
  CHECK(text(DType::F16, uint16_t{0x3E00}) == "1.5");
  CHECK(text(DType::F16, uint16_t{0xC001}) == "-2.002");
  CHECK(text(DType::F16, uint16_t{0x0001}) == "6e-08");
  CHECK(text(DType::F16, uint16_t{0xFC00}) == "-inf");
  CHECK(text(DType::BF16, uint16_t{0xC040}) == "-3");
  const uint8_t yes = 1;
  CHECK(line(LineFormat::Json, HTensor(DType::Bool, {}, &yes)) == "true");
  CHECK(line(LineFormat::Text, HTensor(DType::Bool, {}, &yes)) == "1");
  CHECK(line(LineFormat::Json, HTensor::from<float>({3}, {NAN, INFINITY, 1})) == "[null, null, 1]");
  CHECK(line(LineFormat::Argmax, HTensor::from<float>({3}, {NAN, -5, -6})) == "");
  CHECK(line(LineFormat::Argmax, HTensor::from<float>({3, 2}, {1, 2, INFINITY, 0, 4, -INFINITY})) == "1  0");
  CHECK(line(LineFormat::Argmax, HTensor::from<float>({2}, {-INFINITY, -INFINITY})) == "");
  CHECK(line(LineFormat::Symbols, HTensor::from<int32_t>({3}, {2, 0, 1}), {"a", "b", "c"}) == "cab");
  CHECK(refusal([] {
          line(LineFormat::Symbols, HTensor::from<int32_t>({1}, {3}), {"a", "b", "c"});
        }) == "the index 3 has no symbol; 3 symbols are known");
}

TEST_CASE("stdout: prints one line per sample") {
  const auto print = [](Options options) {
    return printed([&] {
      const auto out = open_stdout("", options);
      out->push(matrix);
      out->push(HTensor::scalar(1));
      out->finish();
    });
  };
  CHECK(print({}) == "0.1 2 -3e+10 0.33333334 5 4\n1\n");
  CHECK(print({{"format", "json"}}) == "[[0.1, 2, -3e+10], [0.33333334, 5, 4]]\n1\n");
  CHECK(print({{"format", "argmax"}}) == "1 1\n0\n");
  CHECK(print({{"format", "symbols"}, {"symbols", "no,yes"}}) == "yes yes\nno\n");
  CHECK(print({{"format", "symbols"}, {"vocabulary", "a\xC3\xA9"}}) == "\xC3\xA9\xC3\xA9\na\n");
  CHECK(refusal([] {
          open_stdout("", Options{{"format", "xml"}});
        }) == "format=xml is unknown; write format=text, json, csv, argmax or symbols; on standard output also hxs");
  CHECK(refusal([] {
          open_stdout("", Options{{"format", "symbols"}});
        }) == "format=symbols needs the symbols; write symbols=a,b,c for words or vocabulary=abc for characters");
  CHECK(refusal([] { open_stdout("x.csv", Options{}); }) ==
        "stdout:x.csv takes no path; write stdout: alone, or file:x.csv");
}

TEST_CASE("file: the extension gives the format, and producers read the file back") {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, Options options = {}) {
    const auto out = open_output_file(folder.path(name), options);
    out->push(HTensor::from<float>({2}, {1, 2.5}));
    out->push(HTensor::from<float>({2}, {3, -4}));
    out->finish();
    return folder.read(name);
  };
  CHECK(write("a.csv") == "1,2.5\n3,-4\n");
  CHECK(write("a.txt") == "1 2.5\n3 -4\n");
  CHECK(write("a.jsonl") == "[1, 2.5]\n[3, -4]\n");
  CHECK(write("b.txt", {{"format", "argmax"}}) == "1\n0\n");
  write("a.npy");
  for (const char* name : {"a.csv", "a.npy"})
    CHECK(drain<float>(*open_file(folder.path(name), Options{})) == std::vector<std::vector<float>>{{1, 2.5}, {3, -4}});
  CHECK(folder.names().size() == 5);
  CHECK(refusal([&] { open_output_file(folder.path("a.xyz"), Options{}); }) ==
        "'" + folder.path("a.xyz") + "' has no known extension; end its name in .csv, .jsonl, .txt or .npy");
  CHECK(refusal([&] {
          open_output_file(folder.path("a.npy"), Options{{"format", "text"}});
        }) == "the option format= has no effect for '" + folder.path("a.npy") + "'; leave it out");
}

TEST_CASE("npy files of every type survive a round trip") {
  const TemporaryFolder folder;
  int n = 0;
  for (const DType dtype : {DType::Bool, DType::U8, DType::I8, DType::I16, DType::U16, DType::I32, DType::U32,
                            DType::I64, DType::U64, DType::F16, DType::BF16, DType::F32, DType::F64}) {
    const std::string path = folder.path(std::to_string(n++) + ".npy");
    const auto out = open_output_file(path, Options{});
    std::vector<uint16_t> bits(24, 0x0101);  // equal bytes, so that the elements of every type are equal
    const HTensor sample(dtype, {2, 3}, bits.data());
    for (int i = 0; i < 5; ++i) out->push(sample);
    out->finish();
    const auto in = open_file(path, Options{});
    CHECK(in->size() == 5);
    CHECK(in->describe()->sample == Shape{2, 3});
    CHECK(in->describe()->dtype == (dtype == DType::BF16 ? DType::F32 : dtype));
    if (dtype == DType::BF16) continue;
    CHECK(std::memcmp(in->next().bytes(), sample.bytes(), 6 * element_bytes(dtype)) == 0);
  }
  const auto wide = open_file(folder.path("10.npy"), Options{})->next();  // bf16 0x0101 is the upper half of this f32
  uint32_t bits = 0;
  std::memcpy(&bits, wide.bytes(), 4);
  CHECK(bits == 0x01010000);
}

TEST_CASE("a file appears only when it is complete") {
  const TemporaryFolder folder;
  folder.write("a.csv", "old");
  {
    const auto out = open_output_file(folder.path("a.csv"), Options{});
    out->push(HTensor::scalar(1));
    CHECK(folder.read("a.csv") == "old");
  }
  CHECK(folder.names() == std::vector<std::string>{"a.csv"});  // discarded files leave nothing
  CHECK(folder.read("a.csv") == "old");
  const auto out = open_output_file(folder.path("a.csv"), Options{});
  out->push(HTensor::scalar(1));
  out->finish();
  out->finish();
  CHECK(folder.read("a.csv") == "1\n");
  CHECK(refusal([&] { out->push(HTensor::scalar(1)); }) ==
        "cannot write '" + folder.path("a.csv") + "': it is finished");
  CHECK(folder.names() == std::vector<std::string>{"a.csv"});
}

TEST_CASE("write errors state their cause") {
  const TemporaryFolder folder;
  const std::string lost = folder.path("none/a.csv");
  CHECK(refusal([&] { open_output_file(lost, Options{}); }) ==
        "cannot write '" + lost + "': No such file or directory");
  std::filesystem::create_directory(folder.path("d.csv"));
  CHECK(refusal([&] { open_output_file(folder.path("d.csv"), Options{}); }) ==
        "cannot write '" + folder.path("d.csv") + "': Is a directory");
  const auto npy = open_output_file(folder.path("a.npy"), Options{});
  npy->push(HTensor(DType::F32, {2}));
  CHECK(
      refusal([&] { npy->push(HTensor(DType::F32, {3})); }) ==
      "cannot write '" + folder.path("a.npy") +
          "': sample 1 has shape [3], those before it [2]; an .npy file holds samples of one type, a .jsonl file any");
  CHECK(refusal([&] { OutputFile full("/dev/full"); }) == "cannot write '/dev/full': File exists");
}
