// NPZ, safetensors, raw numbers, tokens, and files compressed with gzip and zstd.
#include <cstring>

#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"
#include "tests/streams/written_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

template <typename T>
std::vector<std::vector<T>> samples(const std::string& path, const Options& options = {}) {
  return drain<T>(*open_file(path, options));
}
// Returns the error text without the file's name.
std::string refused_archive(const std::string& path, const Options& options = {}) {
  std::string what = refusal([&] { open_file(path, options); });
  for (size_t at; (at = what.find(path)) != std::string::npos;) what.replace(at, path.size(), "FILE");
  return what;
}

const std::string two_rows = npy_file("<f4", "(2, 3)", bytes_of<float>({1, 2, 3, 4, 5, 6}));
const std::string two_labels = npy_file("|u1", "(2,)", bytes_of<uint8_t>({7, 9}));
const std::vector<std::vector<float>> two_by_three{{1, 2, 3}, {4, 5, 6}};

}  // namespace

TEST_CASE("arrays of an NPZ archive, stored and deflated, by name") {
  const TemporaryFolder folder;
  for (const bool deflate : {false, true})
    for (const bool wide : {false, true}) {
      const std::string path = folder.write(
          "x.npz", zip_file({{"x.npy", two_rows}, {"note.txt", "hello"}, {"y.npy", two_labels}}, deflate, wide));
      CHECK(samples<float>(path, {{"#", "x"}}) == two_by_three);
      CHECK(samples<uint8_t>(path, {{"#", "y"}}) == std::vector<std::vector<uint8_t>>{{7}, {9}});
      CHECK(open_file(path, Options{{"#", "y"}})->describe()->classes == 10);
      CHECK(refused_archive(path) == "'FILE' holds 2 arrays; write '#' and one of them: x, y");
      CHECK(refused_archive(path, {{"#", "z"}}) == "'FILE' has no array 'z'; it holds: x, y");
    }
  CHECK(samples<float>(folder.write("one.npz", zip_file({{"x.npy", two_rows}}))) == two_by_three);
  CHECK(samples<float>(folder.write("named_otherwise", zip_file({{"x.npy", two_rows}}, true))) == two_by_three);
  CHECK(refused_archive(folder.write("none.npz", zip_file({{"note.txt", "hello"}}))) == "'FILE' holds no array");
}

TEST_CASE("damaged archives are refused") {
  const TemporaryFolder folder;
  const std::string good = zip_file({{"x.npy", two_rows}}), packed = zip_file({{"x.npy", two_rows}}, true);
  const auto broken = [&](std::string file, size_t at, const std::string& bytes) {
    file.replace(at, bytes.size(), bytes);
    return refused_archive(folder.write("x.npz", file));
  };
  const size_t entry = good.find("PK\x01\x02"), packed_entry = packed.find("PK\x01\x02"), end = good.size() - 22;
  CHECK(refused_archive(folder.write("x.npz", good.substr(0, good.size() - 5))) ==
        "'FILE' is a damaged zip archive: it has no end record, as when a download broke off; get the file again");
  CHECK(broken(good, entry, "XX") ==
        "'FILE' is a damaged zip archive: entry 0 of 1 of its directory is not there at byte " + std::to_string(entry) +
            "; get the file again");
  CHECK(broken(good, end + 16, little(good.size(), 4)) ==
        "'FILE' is a damaged zip archive: its directory of 51 bytes at byte " + std::to_string(good.size()) +
            " is not before its end record at byte " + std::to_string(end) + "; get the file again");
  CHECK(broken(good, entry - 1, "X") == "'FILE#x.npy' is damaged: its checksum does not fit; get the file again");
  CHECK(broken(good, entry + 8, little(1, 2)) == "'FILE#x.npy' is encrypted; save it without a password");
  CHECK(broken(good, entry + 10, little(12, 2)) ==
        "'FILE#x.npy' is compressed by zip's method 12; stored (0) and deflated (8) can be read; save it with "
        "numpy.savez or "
        "savez_compressed");
  CHECK(broken(good, entry + 20, little(1000, 4) + little(1000, 4)) ==
        "'FILE#x.npy' is damaged: 1000 bytes are promised from byte 35 on, the archive has " +
            std::to_string(good.size()) + "; get the file again");
  CHECK(broken(good, entry + 42, little(7, 4)) ==
        "'FILE#x.npy' is damaged: its local header is not at byte 7; get the file again");
  CHECK(broken(packed, packed_entry + 24, little(0x7FFFFFFF, 4)) ==
        "'FILE#x.npy' is damaged: its directory promises 2147483647 bytes, more than " +
            std::to_string(packed_entry - 35) + " compressed bytes can hold; get the file again");
  CHECK(broken(packed, packed_entry + 24, little(50, 4)) ==
        "'FILE#x.npy' is damaged: its deflate stream is not sound after 50 of 50 bytes; get the file again");
  CHECK(refused_archive(folder.write("x.npz", zip_file({{"x.npy", two_rows.substr(0, two_rows.size() - 4)}}))) ==
        "'FILE#x.npy' is truncated: its NPY header promises 24 bytes of elements, 20 are there; get the file again");
}

TEST_CASE("tensors of a safetensors file, by name") {
  const TemporaryFolder folder;
  const std::string header = R"({"__metadata__":{"by":"hand"},"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("y":{"dtype":"I64","shape":[2],"data_offsets":[24,40]}})";
  const std::string data = bytes_of<float>({1, 2, 3, 4, 5, 6}) + bytes_of<int64_t>({3, 1});
  const std::string path = folder.write("x.safetensors", safetensors_file(header, data));
  CHECK(samples<float>(path, {{"#", "x"}}) == two_by_three);
  CHECK(samples<int64_t>(path, {{"#", "y"}}) == std::vector<std::vector<int64_t>>{{3}, {1}});
  CHECK(open_file(path, Options{{"#", "y"}})->describe()->classes == 4);
  CHECK(refused_archive(path) == "'FILE' holds 2 tensors; write '#' and one of them: x, y");
  const auto with = [&](const std::string& h, const std::string& d) {
    return refused_archive(folder.write("bad.safetensors", safetensors_file(h, d)), {{"#", "x"}});
  };
  const std::string sorry = "'FILE' is not a safetensors file: at byte ";
  const std::string last = std::to_string(8 + header.size() + 40);
  CHECK(with(header, data + "more") == sorry + last + ", 4 bytes follow the last tensor; the file must end there");
  CHECK(with(header, data.substr(0, 30)) ==
        sorry + "8, tensor 'y': data_offsets = [24, 40] are not inside the 30 bytes of data");
  CHECK(with(R"({"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,23]}})", data.substr(0, 23)) ==
        sorry + "8, tensor 'x': F32 [2, 3] takes 24 bytes, data_offsets = [0, 23] hold 23");
  CHECK(with(R"({"x":{"dtype":"F12","shape":[2,3],"data_offsets":[0,24]}})", data) ==
        sorry +
            "8, tensor 'x': dtype 'F12' is not one that can be read: BOOL, U8, I8, F8_E5M2, F8_E4M3, I16, U16, "
            "F16, BF16, I32, U32, F32, F64, I64, U64");
  CHECK(with(R"({"x":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[0,6]}})", "abcdef") ==
        "'FILE' holds f8_e4m3 in tensor 'x', a type that samples cannot have; convert it to f32");
  CHECK(with(R"({"x":{"shape":[2,3],"data_offsets":[0,24]}})", data) == sorry + "8, tensor 'x': has no 'dtype'");
  CHECK(with(R"({"x":)", data).find(sorry + "8, the header is not JSON: ") == 0);
  CHECK(with(R"({"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", "1234") ==
        "'FILE' holds one number without axes (tensor 'x'); the first axis counts the samples; save it with the shape "
        "[1]");
  CHECK(with(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}})", "1234") ==
        sorry + "8, tensor 'x': the size of shape [4294967296, 4294967296, 4294967296] overflows");
  CHECK(refused_archive(folder.write("bad.safetensors", little(1000, 8) + "{\"")) ==
        sorry + "0, the header's length is 1000, but only 2 bytes follow");
  const std::string nine = R"({"x":{"dtype":"U8","shape":[2,1,1,1,1,1,1,1,1],"data_offsets":[0,2]}})";
  CHECK(samples<uint8_t>(folder.write("nine.safetensors", safetensors_file(nine, "ab"))) ==
        std::vector<std::vector<uint8_t>>{{'a'}, {'b'}});  // an axis of samples and eight more
  if (!have_data("malformed/safetensors/trailing-bytes.safetensors")) return;
  CHECK(refused_archive(data_path("malformed/safetensors/trailing-bytes.safetensors")) ==
        sorry + "32851, 5 bytes follow the last tensor; the file must end there");
}

TEST_CASE("raw numbers have the type and shape of the address") {
  const TemporaryFolder folder;
  const std::string numbers = bytes_of<float>({1, 2, 3, 4, 5, 6}), path = folder.write("x.bin", numbers);
  CHECK(samples<float>(path, {{"dtype", "f32"}, {"shape", "3"}}) == two_by_three);
  CHECK(samples<float>(path, {{"dtype", "f32"}}).size() == 6);
  CHECK(open_file(path, Options{{"dtype", "i16"}, {"shape", "2x3"}})->describe()->sample == Shape{2, 3});
  CHECK(samples<float>(folder.write("y.raw", "skip" + numbers), {{"dtype", "f32"}, {"shape", "3"}, {"offset", "4"}}) ==
        two_by_three);
  CHECK(samples<float>(path, {{"dtype", "f32"}, {"part", "0.5-1"}}) == std::vector<std::vector<float>>{{4}, {5}, {6}});
  CHECK(refused_archive(path, {{"dtype", "f32"}, {"shape", "5"}}) ==
        "'FILE' has 24 bytes, which are not samples of 20 bytes each; correct dtype=, shape= or offset=");
  CHECK(refused_archive(path, {{"dtype", "f32"}, {"offset", "24"}}) ==
        "'FILE' has 0 bytes after the first 24, which are not samples of 4 bytes each; correct dtype=, shape= or "
        "offset=");
  CHECK(refused_archive(path, {{"dtype", "f32"}, {"shape", "2x"}}) ==
        "shape=2x of 'FILE' is not a shape; write sizes with x between, such as shape=28x28");
  CHECK(
      refused_archive(path, {{"dtype", "float"}}) ==
      "dtype=float of 'FILE' is not a type; write dtype= and one of bool, u8, i8, u16, i16, f16, bf16, u32, i32, f32, "
      "u64, i64, f64");
  CHECK(
      refused_archive(path) ==
      "'FILE' may hold tokens or raw numbers; for tokens give window= (and vocab=), for raw numbers dtype= and shape=");
}

TEST_CASE("token files are windows of numbers below the vocabulary") {
  const TemporaryFolder folder;
  const std::string path = folder.write("x.bin", bytes_of<uint16_t>({0, 1, 2, 3, 4, 5, 500, 7}));
  const auto producer = open_file(path, Options{{"window", "4"}, {"shift", "2"}});
  const StreamInfo info = *producer->describe();
  CHECK(info.sample == Shape{4});
  CHECK(info.position_axes == 1);
  CHECK(info.classes == 501);
  CHECK(drain<int32_t>(*producer) == std::vector<std::vector<int32_t>>{{0, 1, 2, 3}, {2, 3, 4, 5}, {4, 5, 500, 7}});
  const uint64_t last = 2;
  int32_t window[4];
  REQUIRE(producer->read_at(&last, 1, window));
  CHECK(window[2] == 500);
  CHECK(open_file(path, Options{{"window", "4"}, {"vocab", "50257"}})->describe()->classes == 50257);
  const auto few = open_file(path, Options{{"window", "4"}, {"vocab", "500"}});
  CHECK(few->next());
  CHECK(refusal([&] { few->next(); }) == "'" + path +
                                             "' holds the symbol 500 at place 6; with a vocabulary of 500 the largest "
                                             "is 499; give the right vocab= and dtype=");
  CHECK(samples<int32_t>(path, {{"window", "2"}, {"dtype", "u32"}, {"vocab", "2000000000"}}).size() == 2);
  CHECK(refused_archive(folder.write("y.bin", "123"), {{"window", "1"}}) ==
        "'FILE' has 3 bytes, which are not tokens of 2 bytes each; correct dtype=");
  CHECK(refused_archive(path, {{"window", "9"}}) ==
        "'FILE' has 8 tokens, fewer than the window of 9; give a smaller window=");
  CHECK(refused_archive(path, {{"window", "2"}, {"dtype", "f32"}}) ==
        "dtype=f32 of 'FILE' is not a token type; write dtype=u16 or dtype=u32");
}

TEST_CASE("every format may be compressed with gzip or zstd") {
  const TemporaryFolder folder;
  const std::string csv = "a,b,c\n1,2,3\n4,5,6\n";
  CHECK(samples<float>(folder.write("x.csv.gz", gzip_file(csv))) == two_by_three);
  CHECK(samples<float>(folder.write("x.csv.zst", zstd_file(csv))) == two_by_three);
  CHECK(samples<float>(folder.write("x.npy.zst", zstd_file(two_rows))) == two_by_three);
  CHECK(samples<float>(folder.write("x.npz.zst", zstd_file(zip_file({{"x.npy", two_rows}})))) == two_by_three);
  CHECK(samples<float>(folder.write("two.csv.zst", zstd_file("a,b,c\n1,2,3\n") + zstd_file("4,5,6\n"))) ==
        two_by_three);
  const std::string cut = zstd_file(std::string(1000, 'x') + csv);
  CHECK(refused_archive(folder.write("cut.csv.zst", cut.substr(0, cut.size() - 4)))
            .find("'FILE' is truncated: the zstd stream breaks off at byte ") == 0);
  CHECK(refused_archive(folder.write("bad.csv.zst", "\x28\xB5\x2F\xFD" + std::string(20, '\xFF'))) ==
        "'FILE' is damaged: the zstd stream is not sound (Unsupported frame parameter) at byte 0 after 0 decompressed "
        "bytes; get the file again");
  CHECK(refused_archive(folder.write("bomb.csv.zst", zstd_file(std::string(size_t{200} << 20, '0')))) ==
        "'FILE' decompresses to more than 67108864 bytes; decompress it first");
}

TEST_CASE("archives written by other programs are read") {
  if (!have_data("numpy/candle-test.npz")) return;
  // numpy/expected.json
  const auto numbers = samples<int64_t>(data_path("numpy/candle-test.npz"), {{"#", "x_plus_one"}});
  REQUIRE(numbers.size() == 10);
  for (size_t i = 0; i < 10; ++i) CHECK(numbers[i] == std::vector<int64_t>{static_cast<int64_t>(i) + 1});
  CHECK(refused_archive(data_path("numpy/candle-test.npz")) ==
        "'FILE' holds 2 arrays; write '#' and one of them: x, x_plus_one");
  CHECK(samples<int32_t>(data_path("numpy/int_arrays_compressed.npz"), {{"#", "b"}}) ==
        std::vector<std::vector<int32_t>>{{3}, {4}, {5}});
}
