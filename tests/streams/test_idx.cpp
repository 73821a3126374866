#include <zlib.h>

#include <cstring>
#include <random>

#include "producers/file/formats.hpp"
#include "producers/file/idx.hpp"
#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string big(uint32_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8), static_cast<char>(v)};
}

std::string idx(uint8_t type, const std::vector<uint32_t>& dims, const std::string& elements) {
  std::string s{0, 0, static_cast<char>(type), static_cast<char>(dims.size())};
  for (const uint32_t d : dims) s += big(d);
  return s + elements;
}

std::string gzip(const std::string& bytes) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&z, bytes.size()) + 32, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

template <typename T>
std::string big_endian(const std::vector<T>& values) {
  std::string s;
  for (T v : values) {
    char bytes[sizeof v];
    std::memcpy(bytes, &v, sizeof v);
    std::reverse(bytes, bytes + sizeof v);
    s.append(bytes, sizeof v);
  }
  return s;
}

std::string refused(const std::string& path) {
  return refusal([&] { open_file(path, Options{}); });
}

template <typename T>
void check_round_trip(uint8_t code, DType dtype, std::mt19937& random) {
  const TemporaryFolder folder;
  const uint32_t n = 1 + random() % 9, a = 1 + random() % 5, b = 1 + random() % 5;
  std::vector<T> values(n * a * b);
  for (T& v : values) v = static_cast<T>(static_cast<int32_t>(random()) / 7);
  const std::string bytes = idx(code, {n, a, b}, big_endian(values));
  for (const std::string& path :
       {folder.write("x.idx", bytes), folder.write("x.idx.gz", gzip(bytes)), folder.write("unnamed", bytes)}) {
    const auto producer = open_file(path, Options{});
    CHECK(producer->size() == n);
    CHECK(producer->describe()->dtype == dtype);
    CHECK(producer->describe()->sample == Shape{a, b});
    CHECK(producer->describe()->classes == 0);
    const auto one_by_one = drain<T>(*producer);
    REQUIRE(one_by_one.size() == n);
    for (size_t i = 0; i < n; ++i)
      CHECK(std::equal(one_by_one[i].begin(), one_by_one[i].end(),
                       values.begin() + static_cast<std::ptrdiff_t>(i * a * b)));
    REQUIRE(producer->rewind());
    CHECK(drain_blocks<T>(*producer, 4) == one_by_one);
  }
}

}  // namespace

TEST_CASE("idx files of every type survive a round trip, plain and compressed") {
  std::mt19937 random(7);
  for (int i = 0; i < 5; ++i) {
    check_round_trip<uint8_t>(0x08, DType::U8, random);
    check_round_trip<int8_t>(0x09, DType::I8, random);
    check_round_trip<int16_t>(0x0B, DType::I16, random);
    check_round_trip<int32_t>(0x0C, DType::I32, random);
    check_round_trip<float>(0x0D, DType::F32, random);
    check_round_trip<double>(0x0E, DType::F64, random);
  }
}

TEST_CASE("integers without axes are labels, and the class count is the largest plus one") {
  const TemporaryFolder folder;
  const auto classes = [&](uint8_t code, const std::string& elements, uint32_t n, Options options = {}) {
    return open_file(folder.write("l.idx", idx(code, {n}, elements)), options)->describe()->classes;
  };
  CHECK(classes(0x08, "\x03\x07\x01", 3) == 8);
  CHECK(classes(0x08, "\x03\x07\x01", 3, Options{{"part", "0-0.4"}}) == 8);
  CHECK(classes(0x0C, big_endian<int32_t>({5, 70000}), 2) == 70001);
  CHECK(classes(0x0C, big_endian<int32_t>({5, -1}), 2) == 0);
  CHECK(classes(0x0D, big_endian<float>({1, 2}), 2) == 0);
}

TEST_CASE("a part of an idx file is a range of its records") {
  const TemporaryFolder folder;
  std::string elements;
  for (int i = 0; i < 100; ++i) elements += static_cast<char>(i);
  const std::string path = folder.write("x.idx", idx(8, {100}, elements));
  const auto first = drain<uint8_t>(*open_file(path, Options{{"part", "0-0.29"}})),
             rest = drain<uint8_t>(*open_file(path, Options{{"part", "0.29-1"}}));
  CHECK(first.size() == 29);
  CHECK(rest.size() == 71);
  CHECK(rest[0][0] == 29);
  CHECK(refusal([&] {
          open_file(path, Options{{"part", "0.9-0.1"}});
        }) == "part=0.9-0.1 is not a part of '" + path + "'; write two rising fractions of 1, for example part=0-0.9");
  CHECK(refusal([&] {
          open_file(path, Options{{"part", "0-0.001"}});
        }) == "part=0-0.001 of the 100 in '" + path + "' is empty; take a larger part");
  for (const char* bad : {"x", "0", "0-2", "0-0.5x", "-1-1", "0--1", "nan-1"})
    CHECK(refusal([&] {
            open_file(path, Options{{"part", bad}});
          }) == "part=" + std::string(bad) + " is not a part of '" + path +
                    "'; write two rising fractions of 1, for example part=0-0.9");
}

TEST_CASE("idx files: wrong lengths and broken files are refused") {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& bytes) {
    const std::string path = folder.write("x.idx", bytes), text = refused(path);
    return text.substr(0, path.size() + 2) == "'" + path + "'" ? text.substr(path.size() + 3) : text;
  };
  CHECK(refuse("\0\0\x08") == "is empty");
  CHECK(refuse(std::string("\0\0\x08", 3)) == "has 3 bytes, an IDX header has at least 8; get the file again");
  CHECK(refuse(std::string("\0\1\x08\1", 4) + big(1) + "x") ==
        "is not IDX: bytes 0 and 1 are 0x00 0x01, expected 0x00 0x00");
  CHECK(refuse(std::string("\0\0\x0A\1", 4) + big(1) + "x") ==
        "is not IDX: byte 2, the element type, is 0x0A, expected 0x08 (u8), 0x09 (i8), 0x0B (i16), 0x0C (i32), 0x0D "
        "(f32) or 0x0E (f64)");
  CHECK(refuse(std::string("\0\0\x08\0", 4)) == "is not IDX: byte 3, the number of axes, is 0, expected 1 to 8");
  CHECK(refuse(std::string("\0\0\x08\2", 4) + big(1)) ==
        "ends at byte 8 inside its header of 12 bytes; get the file again");
  CHECK(refuse(idx(8, {3, 0}, "")) == "holds no elements: axis 1, at byte 8, has size 0");
  CHECK(refuse(idx(8, {3, 2}, "abcde")) ==
        "is truncated: its header promises 18 bytes (3 records of u8[2]), there are 17, enough for 2 records; get the "
        "file again");
  CHECK(refuse(idx(8, {3}, "abcd")) ==
        "is longer than declared: its header promises 11 bytes (3 records of u8), there are 12; the header or the data "
        "is damaged");
  CHECK(refuse(idx(0x0E, {~0u, ~0u, ~0u, ~0u}, "")) ==
        "promises an array of shape [4294967295, 4294967295, 4294967295, 4294967295], more than any memory holds; the "
        "file is damaged");
  CHECK(refuse(idx(0x0C, {~0u, 1}, "abcd")) ==
        "is truncated: its header promises 17179869192 bytes (4294967295 records of i32[1]), there are 16, enough for "
        "1 record; get the file again");
}

TEST_CASE("compressed files: wrong lengths and broken files are refused") {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& bytes) {
    const std::string path = folder.write("x.idx.gz", bytes), text = refused(path);
    return text.substr(0, path.size() + 2) == "'" + path + "'" ? text.substr(path.size() + 3) : text;
  };
  std::string noise(5000, '\0');
  std::mt19937 random(3);
  for (char& c : noise) c = static_cast<char>(random());
  const std::string good = gzip(idx(8, {50, 100}, noise));
  CHECK(refuse(good) == "");
  CHECK(refuse(good + std::string(512, '\0')) == "");
  CHECK(refuse(good + "tail")
            .find("is damaged: the gzip stream is followed by something else at byte " + std::to_string(good.size()) +
                  " after 5012 decompressed bytes; get the file again") == 0);
  CHECK(refuse(good.substr(0, good.size() - 4)) == "is truncated: the gzip stream breaks off at byte " +
                                                       std::to_string(good.size() - 4) +
                                                       " after 5012 decompressed bytes; get the file again");
  const std::string cut = refuse(good.substr(0, good.size() / 2));
  CHECK(cut.find("is truncated: the gzip stream breaks off at byte " + std::to_string(good.size() / 2) + " after ") ==
        0);
  CHECK(cut.find(" decompressed bytes, its IDX header promises 5012 (50 records of u8[100]), enough for 2") !=
        std::string::npos);
  CHECK(refuse(gzip(idx(8, {50, 100}, noise.substr(100)))) ==
        "is truncated: the gzip stream holds 4912 bytes, its IDX header promises 5012 (50 records of u8[100]), enough "
        "for 49 records; get the file again");
  CHECK(refuse(gzip(idx(8, {49, 100}, noise))) ==
        "is longer than declared: its IDX header promises 4912 bytes (49 records of u8[100]), more come out; the "
        "header or the data is damaged");
  CHECK(refuse(gzip(idx(8, {7}, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"))) ==
        "is longer than declared: its IDX header promises 15 bytes (7 records of u8), more come out; the header or the "
        "data is damaged");
  const std::string lie = gzip(idx(8, {~0u, 1000}, "x"));
  CHECK(refuse(lie) ==
        "is damaged: its IDX header promises 4294967295012 bytes (4294967295 records of u8[1000]), more than " +
            std::to_string(lie.size()) + " bytes of gzip can hold; get the file again");
  std::string flipped = good;
  flipped[flipped.size() - 6] = static_cast<char>(flipped[flipped.size() - 6] ^ 1);
  CHECK(refuse(flipped).find("is damaged: the gzip stream is damaged (incorrect data check) at byte ") == 0);
}

TEST_CASE("members of a compressed file are concatenated") {
  const TemporaryFolder folder;
  const std::string bytes = idx(8, {4}, "\1\2\3\4");
  const auto producer = open_file(folder.write("x.gz", gzip(bytes.substr(0, 9)) + gzip(bytes.substr(9))), Options{});
  CHECK(drain<uint8_t>(*producer) == std::vector<std::vector<uint8_t>>{{1}, {2}, {3}, {4}});
}

TEST_CASE("compressed files of other formats than idx are unpacked") {
  const TemporaryFolder folder;
  const auto csv = open_file(folder.write("x.csv.gz", gzip("a,b\n1,2\n3,4\n")), Options{});
  CHECK(drain<float>(*csv) == std::vector<std::vector<float>>{{1, 2}, {3, 4}});
  const std::string path = folder.write("bomb.csv.gz", gzip(std::string(100000, '1')));
  const auto packed = FileBytes::open(path);
  CHECK(refusal([&] { gunzip(packed, 5000); }) ==
        "'" + path + "' decompresses to more than 5000 bytes; decompress it first");
  const std::string empty = folder.write("empty.gz", gzip(""));
  CHECK(refused(empty) == "'" + empty + "' is empty after decompression");
}

TEST_CASE("files that cannot be opened give the cause") {
  const TemporaryFolder folder;
  CHECK(refused(folder.path("none.idx")) == "cannot read '" + folder.path("none.idx") + "': No such file or directory");
  CHECK(refused(folder.path("")) == "'" + folder.path("") + "' is a folder without files of known extensions");
  CHECK(refused("") == "file: names no file; write file:PATH");
  CHECK(refused("/dev/null") == "cannot read '/dev/null': it is not a regular file");
  CHECK(refused(folder.write("x.elf",
                             "\x7F"
                             "ELF")) ==
        "'" + folder.path("x.elf") +
            "' has no known format, by its first bytes or its extension; add format=" + all_formats());
  CHECK(all_formats() == "npy, npz, idx, image, safetensors, hxs, jsonl, csv, text, tokens or raw");
  CHECK(refused(folder.write("x.npz", "PK\x03\x04")) ==
        "'" + folder.path("x.npz") +
            "' is a damaged zip archive: it has no end record, as when a download broke off; get the file again");
  const std::string path = folder.write("x.idx", idx(8, {1}, "a"));
  CHECK(refusal([&] {
          open_file(path, Options{{"window", "3"}});
        }) == "the option window= has no effect for '" + path + "', which is idx; leave it out");
  CHECK(refusal([&] {
          open_file(path, Options{{"#", "label"}});
        }) == "'" + path + "' is idx, which has no columns to select with '#label'; leave it out");
  CHECK(refusal([&] {
          open_file(path, Options{{"format", "xml"}});
        }) == "format=xml is unknown; write format=" + all_formats());
}

TEST_CASE("samples of files are read by number without moving the sequential position") {
  const TemporaryFolder folder;
  const std::string path = folder.write("x.idx", idx(8, {100, 2}, [] {
                                          std::string bytes;
                                          for (int i = 0; i < 200; ++i) bytes += static_cast<char>(i);
                                          return bytes;
                                        }()));
  const auto producer = open_file(path, Options{});
  CHECK(producer->read_at(nullptr, 0, nullptr));
  uint8_t first[2], some[6];
  CHECK(producer->read(1, first) == 1);
  const uint64_t numbers[] = {99, 0, 50};
  CHECK(producer->read_at(numbers, 3, some));
  CHECK(std::vector<int>(some, some + 6) == std::vector<int>{198, 199, 0, 1, 100, 101});
  CHECK(producer->read(1, first) == 1);
  CHECK(std::vector<int>(first, first + 2) == std::vector<int>{2, 3});
  const auto part = open_file(path, Options{{"part", "0.5-1"}});
  CHECK(part->read_at(numbers + 1, 1, first));
  CHECK(first[0] == 100);
  std::filesystem::resize_file(path, 10);
  CHECK(refusal([&] {
          for (int i = 0; i < 100; ++i) producer->read_at(numbers + 1, 1, first);
        }).find("became shorter while it was read") != std::string::npos);
}

TEST_CASE("a file truncated during reading is noticed") {
  const TemporaryFolder folder;
  const std::string path = folder.write("x.idx", idx(8, {20000}, std::string(20000, 'a')));
  const auto producer = open_file(path, Options{});
  CHECK(producer->next());
  std::filesystem::resize_file(path, 100);
  CHECK(refusal([&] { producer->next(); }) == "'" + path +
                                                  "' became shorter while it was read: it had 20008 bytes and has 100; "
                                                  "write new data beside the old file and rename it");
}

TEST_CASE("idx files written by other programs are read") {
  if (!have_data("malformed/idx")) return;
  const auto at = [](const char* name) { return data_path(std::string("malformed/idx/") + name); };
  const auto bytes = drain<int8_t>(*open_file(at("byte.idx"), Options{}));
  CHECK(bytes == std::vector<std::vector<int8_t>>{{1, 2, 3, 4}, {4, 3, 2, 1}, {5, 6, 7, 8}, {8, 7, 6, 5}});
  CHECK(drain<int32_t>(*open_file(at("int.idx"), Options{}))[0] == std::vector<int32_t>{1234, 2, 3, 4});
  CHECK(refused(at("invalid-magic-byte.idx")) ==
        "'" + at("invalid-magic-byte.idx") + "' is not IDX: bytes 0 and 1 are 0x00 0x05, expected 0x00 0x00");
  CHECK(refused(at("too-little-data.idx")) == "'" + at("too-little-data.idx") +
                                                  "' is truncated: its header promises 52 bytes (5 records of i32[2]), "
                                                  "there are 28, enough for 2 records; get the file again");
  CHECK(refused(at("incorrect-num-dims.idx")) ==
        "'" + at("incorrect-num-dims.idx") +
            "' is truncated: its header promises 32 bytes (2 records of i32[2, 1]), there are 28, enough for 1 "
            "record; get the file again");
  const std::string kmnist = at("kmnist-train-images-truncated.gz");
  CHECK(refused(kmnist) == "'" + kmnist +
                               "' is truncated: the gzip stream breaks off at byte 2119680 after 5497012 decompressed "
                               "bytes, its IDX header promises 47040016 "
                               "(60000 records of u8[28, 28]), enough for 7011 records; get the file again");
}

TEST_CASE("the published mnist files are read") {
  if (!have_data("mnist")) return;
  const auto labels = open_file(data_path("mnist/train-labels-idx1-ubyte.gz"), Options{});
  CHECK(labels->size() == 60000);
  CHECK(labels->describe()->classes == 10);
  const auto images = open_file(data_path("mnist/t10k-images-idx3-ubyte.gz"), Options{});
  CHECK(images->size() == 10000);
  CHECK(images->describe()->sample == Shape{28, 28});
  uint64_t sum = 0;
  for (const auto& image : drain_blocks<uint8_t>(*images, 64))
    for (const uint8_t v : image) sum += v;
  CHECK(sum == 264923200ull);
}
